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

# In the order of the tables; the first is what agreement is measured against where it takes part.
SIDES: dict[str, Side] = {
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
}


def why_not(name: str, device: str) -> str | None:
    """Why a side takes no part here, in a sentence; None when it can."""
    side = SIDES[name]
    missing = [package for package in side.needs if find_spec(package) is None]
    if missing:
        return f"{name}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not here."
    if device != "cpu" and not side.on_gpu:
        return f"{name}: runs on the processor only, and this is a table of the GPU."
    return None


def take_part(wanted: Sequence[str] | None, device: str) -> tuple[list[str], list[str]]:
    """The sides that can run here, and a sentence for each that cannot.

    Args:
        wanted: names; all when None.
        device: "cpu" or a GPU's name.
    """
    names = list(SIDES) if wanted is None else list(wanted)
    reasons = {name: why_not(name, device) for name in names}
    return (
        [name for name in names if reasons[name] is None],
        [reason for reason in reasons.values() if reason is not None],
    )


def load(name: str, job: Any) -> Any:
    """A side made ready, in this process: what its loader returns."""
    side = SIDES[name]
    module, _, function = side.loader.partition(":")
    return getattr(import_module(f"sides.{module}"), function)(job, side.precision)
