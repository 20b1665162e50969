"""The number formats that may be asked for; here, so that options are checked without torch."""

from __future__ import annotations

PRECISIONS = ("auto", "float32", "bf16")
# Of a model that is only asked; see `speed.quantize`.
INFERENCE_PRECISIONS = (*PRECISIONS, "int8")
