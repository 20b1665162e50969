"""Who takes part: every side's name, what it needs, and where its code is.

Nothing of another tool is imported here: a side is loaded in its own process.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple


class Side(NamedTuple):
    """One way of doing a piece of work.

    Attributes:
        loader: "module:function" of this package; called with a Job and `precision`.
        precision: number format of the matrix products.
        needs: packages without which it cannot run.
        on_gpu: whether it also runs on a GPU here.
    """

    loader: str
    precision: str = "float32"
    needs: tuple[str, ...] = ()
    on_gpu: bool = False


_HUGGING = ("transformers",)
_ONNX = ("onnxruntime", "onnx", "transformers")
_OWN_ONNX = ("onnxruntime", "onnx")
_CT2 = ("ctranslate2", "transformers")
_VINO = ("openvino", "onnx", "transformers")
_HTTP = ("fastapi", "uvicorn")

# By kind of work, in the order of the tables; the first is what agreement is measured against
# where it takes part.
SIDES: dict[str, dict[str, Side]] = {
    "encode": {
        "transformers-float32": Side("torch_sides:transformers", "float32", _HUGGING, True),
        "transformers-bf16": Side("torch_sides:transformers", "bf16", _HUGGING, True),
        "plain-torch-float32": Side("torch_sides:plain", "float32", (), True),
        "plain-torch-bf16": Side("torch_sides:plain", "bf16", (), True),
        "plain-torch-int8": Side("torch_sides:plain", "int8"),
        "onnxruntime-float32": Side("peers:onnxruntime", "float32", _ONNX),
        "onnxruntime-int8": Side("peers:onnxruntime", "int8", _ONNX),
        "ctranslate2-float32": Side("peers:ctranslate2", "float32", _CT2),
        "ctranslate2-int8": Side("peers:ctranslate2", "int8", _CT2),
        "openvino-float32": Side("peers:openvino", "float32", _VINO),
        "openvino-bf16": Side("peers:openvino", "bf16", _VINO),
        "openvino-qint8": Side("peers:openvino", "int8", (*_VINO, "nncf")),
        "filbert-float32": Side("torch_sides:filbert", "float32", (), True),
        "filbert-bf16": Side("torch_sides:filbert", "bf16", (), True),
        "filbert-int8": Side("torch_sides:filbert", "int8"),
        "filbert-static-int8": Side("torch_sides:static", "int8"),
        "filbert-onnxruntime-float32": Side("peers:exported", "float32", _OWN_ONNX),
        "filbert-onnxruntime-int8": Side("peers:exported", "int8", _OWN_ONNX),
    },
    "tokenize": {
        "transformers": Side("tokenizing:transformers", needs=_HUGGING),
        "tokenizers": Side("tokenizing:tokenizers"),
        "filbert": Side("tokenizing:filbert"),
    },
    "train": {
        "transformers-float32": Side("training:transformers", "float32", _HUGGING, True),
        "transformers-bf16": Side("training:transformers", "bf16", _HUGGING, True),
        "filbert-float32": Side("training:filbert", "float32", (), True),
        "filbert-bf16": Side("training:filbert", "bf16", (), True),
    },
    "serve": {
        "fastapi-float32": Side(
            "serving:sentence_transformers", "float32", (*_HTTP, "sentence_transformers")
        ),
        "filbert-float32": Side("serving:filbert", "float32", _HTTP, True),
        "filbert-bf16": Side("serving:filbert", "bf16", _HTTP, True),
    },
}

# The same processes, asked for one text at a time.
SIDES["latency"] = SIDES["encode"]


def why_not(work: str, name: str, device: str) -> str | None:
    """Why a side takes no part here, in a sentence; None when it can."""
    side = SIDES[work][name]
    missing = [package for package in side.needs if find_spec(package) is None]
    if missing:
        return f"{name}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not here."
    if device != "cpu" and not side.on_gpu:
        return f"{name}: runs on the processor only, and this is a table of the GPU."
    return None


def take_part(work: str, wanted: Sequence[str] | None, device: str) -> tuple[list[str], list[str]]:
    """The sides that can run here, and a sentence for each that cannot.

    Args:
        work: a key of `SIDES`.
        wanted: names; all when None.
        device: "cpu" or a GPU's name.
    """
    names = list(SIDES[work]) if wanted is None else list(wanted)
    reasons = {name: why_not(work, name, device) for name in names}
    return (
        [name for name in names if reasons[name] is None],
        [reason for reason in reasons.values() if reason is not None],
    )


def load(work: str, name: str, job: Any) -> Any:
    """A side made ready, in this process: what its loader returns."""
    side = SIDES[work][name]
    module, _, function = side.loader.partition(":")
    return getattr(import_module(f"sides.{module}"), function)(job, side.precision)
