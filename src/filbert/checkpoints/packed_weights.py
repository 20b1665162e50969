"""Reads `packed.safetensors`: the built-in models, stored in one byte a weight.

A matrix NAME is an int8 tensor of whole numbers from -127 to 127, with a float16 tensor NAME.scale
that has one number a row; a weight is its whole number times the scale of its row. If the metadata
names a base, the folder of another packed model next to this one, that product is the difference
from the base's weight of the same name, but for the pooler, which minilm has fitted for new heads.
The other tensors are float16. The file has a name of its own, so that tools which do not know the
format find no weights in the folder: `filbert convert` writes the ordinary form.
benchmarks/pack_weights.py writes the files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from filbert.errors import FormatError, printable

PACKED = "packed.safetensors"
_SCALE = ".scale"

# Shape and safetensors' name of the dtype, by tensor name.
Described = dict[str, tuple[tuple[int, ...], str]]
Reader = Callable[[str], Tensor]


def unpacked(
    path: Path, tensors: Described, reader: Reader, base: tuple[Described, Reader] | None
) -> tuple[Described, Reader]:
    """Return the tensors of a packed file as they are computed with, in float32.

    Args:
        base: What this function returned for the base.

    Raises:
        FormatError: A matrix without a scale for each of its rows, or another dtype.
    """
    described: Described = {}
    for name, (shape, dtype) in tensors.items():
        if name.endswith(_SCALE) and name.removesuffix(_SCALE) in tensors:
            continue
        scale = tensors.get(name + _SCALE)
        if (dtype, scale) not in (("I8", (shape[:1], "F16")), ("F16", None)) or not shape:
            raise FormatError(
                f"{path}: {printable(name)} is neither float16 nor int8 rows with a float16 scale "
                "each. The file is damaged; install filbert again."
            )
        described[name] = (shape, "F32")

    def read(name: str) -> Tensor:
        values = reader(name).float()
        if name + _SCALE not in tensors:
            return values
        scale = reader(name + _SCALE).float()
        values.mul_(scale.view(-1, *[1] * (values.ndim - 1)))
        if base is None or ".pooler." in name or base[0].get(name) != described[name]:
            return values
        return values.add_(base[1](name))

    return described, read
