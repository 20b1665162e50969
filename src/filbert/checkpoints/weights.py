"""Writes safetensors files; reads these, also sharded, pickles and packed weights.

Names and shapes are known from the headers before any tensor is read.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from filbert.checkpoints.families import ADAPTER_FILES
from filbert.errors import FormatError, printable, unreadable_as
from filbert.files import MAX_JSON_BYTES, read_json

# The built-in models, see `_unpacked`. Tools that do not know the format find no weights under this
# name; `filbert convert` writes the ordinary form.
PACKED = "packed.safetensors"
_SCALE = ".scale"
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
_NAMES = ("model.safetensors", "pytorch_model.bin", PACKED, *ADAPTER_FILES)
# Tensors of a pickle may share memory, as tied weights do.
_MAX_SHARING = 16
# Unpickling takes two microseconds a byte. The pickle of 24 layers has 50,000 bytes.
_MAX_PICKLE_BYTES = 2**20
# Low-rank adapters of jina-embeddings-v3, of all its tasks, and a weight that has them.
ADAPTERS = re.compile(r".*\.parametrizations\.weight\.0\.lora_[AB]")
_ADAPTED = ".parametrizations.weight.original"


class Stored(NamedTuple):
    """A tensor in a file, which `read` reads; `dtype` is safetensors' name."""

    shape: tuple[int, ...]
    dtype: str
    path: Path
    read: Callable[[], Tensor]


@dataclass
class Weights:
    """The tensors of a model folder by name, which are read on demand.

    Attributes:
        path: The file, or the index of several; for messages.
        adapter: Number of a task whose low-rank adapters are added to the weights that have one,
            and numerator of the product's factor; the rank is the denominator.
    """

    path: Path
    tensors: dict[str, Stored]
    adapter: tuple[int, float] | None = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    def read(self, name: str) -> Tensor:
        """Read one tensor, on the CPU, in its file's dtype.

        Raises:
            FormatError: The dtype is not floating point, or a value is not finite.
        """
        stored = self.tensors[name]
        if stored.dtype not in _DTYPES:
            raise FormatError(
                f"{stored.path}: {printable(name)} has dtype {stored.dtype}; only "
                f"{', '.join(_DTYPES)} can be read. Convert the checkpoint to floating point first."
            )
        tensor = stored.read().contiguous()
        if self.adapter is not None and name.endswith(_ADAPTED):
            tensor = self._with_adapter(name, tensor, *self.adapter)
        check_finite(tensor, f"{stored.path}: {printable(name)}")
        return tensor

    def _with_adapter(self, name: str, tensor: Tensor, task: int, alpha: float) -> Tensor:
        """Return weight + alpha / rank * B A of a task, float32.

        The factors are stacked by tasks: A (tasks, rank, columns) and B (tasks, rows, rank); of an
        embedding table the first is (tasks, rows, rank), and the product is A B.

        Source: Hu et al. 2022 (LoRA), section 4.1, and jinaai/xlm-roberta-flash-implementation,
        modeling_lora.py.
        """
        names = [f"{name.removesuffix('original')}0.lora_{part}" for part in "BA"]
        factors = [self.read(part)[task] for part in names if part in self.tensors]
        if len(factors) == 2 and factors[0].shape[-1] != factors[1].shape[0]:
            factors.reverse()
        shape = (factors[0].shape[0], *factors[-1].shape[1:]) if factors else ()
        if len(factors) != 2 or shape != tensor.shape:
            path = self.tensors[name].path
            raise FormatError(f"{path}: {printable(name)} has no adapter of its shape.")
        left, right = (factor.float() for factor in factors)
        return tensor.float() + alpha / left.shape[1] * (left @ right)


def check_finite(tensor: Tensor, what: str) -> None:
    """Raise a FormatError about `what` if a value is NaN or infinite."""
    # NaN propagates to minimum and maximum, so one pass finds every value that is not finite.
    if tensor.numel() and not all(bool(end.isfinite()) for end in tensor.aminmax()):
        raise FormatError(
            f"{what} holds values that are not finite (NaN or infinity). The file is damaged, or "
            "it was saved by a run that had diverged."
        )


def _in_safetensors(path: Path) -> dict[str, Stored]:
    tensors, metadata = _opened(path)
    if path.name != PACKED:
        return tensors
    base: dict[str, Stored] = {}
    if (name := metadata.get("base")) is not None:
        place = path.absolute().parents[1] / name / PACKED
        if Path(name).name != name or not place.is_file():
            raise FormatError(f"{path} is based on {printable(name)}, which is not next to it.")
        base = _unpacked(place, _opened(place)[0], {})
    return _unpacked(path, tensors, base)


def _opened(path: Path) -> tuple[dict[str, Stored], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file."""
    with path.open("rb") as start:
        first = start.read(8)
        size = int.from_bytes(first, "little")
    if first == b"version ":
        raise FormatError(
            f"{path} is a pointer of Git LFS, not the weights themselves. Fetch them: git lfs pull"
        )
    if size > MAX_JSON_BYTES:
        raise FormatError(
            f"{path} is not a whole safetensors file: a header of {size:,} bytes. Download or "
            "copy it again."
        )
    try:
        file: Any = safe_open(path, framework="pt")
        tensors = {}
        for name in file.keys():  # noqa: SIM118 (not a dict)
            part, read = file.get_slice(name), partial(file.get_tensor, name)
            tensors[name] = Stored(tuple(part.get_shape()), str(part.get_dtype()), path, read)
        return tensors, file.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        raise FormatError(
            f"{path} is not a whole safetensors file ({printable(str(error), 200)}). "
            "Download or copy it again."
        ) from error


def _is_zip(path: Path) -> bool:
    """Return whether a pickle is a zip archive, and refuse one that would fill the memory."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            _check_calls(content)
        return False
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        for part in parts:
            if part.filename.endswith(".pkl") and part.compress_type == zipfile.ZIP_STORED:
                if part.file_size > _MAX_PICKLE_BYTES:
                    raise ValueError(f"a table of contents of {part.file_size:,} bytes")
                _check_calls(archive.read(part))
    if (
        any(part.compress_type != zipfile.ZIP_STORED for part in parts)
        or sum(part.file_size for part in parts) > path.stat().st_size
    ):
        raise ValueError("its parts are compressed or overlap, which torch.save never does")
    return True


def _check_calls(content: bytes | mmap) -> None:
    # torch's weights-only loading calls bytearray(n) for any n in the file and allocates n bytes.
    if content.find(b"bytearray\n") >= 0:
        raise pickle.UnpicklingError("it calls bytearray, which no tensor needs")


def _in_pickle(path: Path) -> dict[str, Stored]:
    try:
        with warnings.catch_warnings():  # torch warns about old pickles
            warnings.simplefilter("ignore")
            values = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except pickle.UnpicklingError as error:
        raise FormatError(
            f"{path} is damaged or holds more than tensors, so it was not opened: loading it could "
            "run code. Convert it to safetensors where you trust it."
        ) from error
    except Exception as error:  # damaged bytes make torch.load raise many types
        first = "".join(str(error).splitlines()[:1]).split(" (Could this error")[0].rstrip(". ")
        reason = printable(first, 200)
        if not any(map(str.isalpha, reason)):  # a bare number, the key of a KeyError
            reason = type(error).__name__
        raise FormatError(f"{path} is damaged: {reason}. Fetch it again.") from error
    if not isinstance(values, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in values.items()
    ):
        raise FormatError(f"{path} is not a table of tensors by name.")
    for name, value in values.items():
        if value.is_meta:
            raise FormatError(
                f"{path}: {printable(name)} is on the meta device, so its numbers are not in the "
                "file. Save the model again, with all its weights loaded."
            )
    total = sum(value.numel() * value.element_size() for value in values.values())
    if total > _MAX_SHARING * path.stat().st_size:
        raise FormatError(
            f"{path} has {path.stat().st_size:,} bytes, but its tensors would take {total:,}. It "
            "is damaged, or made to fill the memory."
        )
    names = {dtype: name for name, dtype in _DTYPES.items()}
    tensors = {}
    for name, value in values.items():
        dtype = names.get(value.dtype, str(value.dtype).removeprefix("torch."))
        if value.layout != torch.strided or value.is_quantized:
            dtype = str(value.layout)
        tensors[name] = Stored(tuple(value.shape), dtype, path, partial(values.__getitem__, name))
    return tensors


def _in_file(path: Path) -> dict[str, Stored]:
    """Return the tensors of a file by name."""
    if not path.is_file():
        raise FormatError(f"{path} is missing.")
    with path.open("rb"):  # raises PermissionError, which the libraries would hide
        pass
    return _in_safetensors(path) if path.suffix == ".safetensors" else _in_pickle(path)


def _shards(index: Path) -> dict[str, str]:
    """Return the file name of each tensor, from an index file."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise FormatError(f"{index} has no weight_map.")
    suffix = index.name.split(".")[1]
    for name, file in table.items():
        if (
            not isinstance(file, str)
            or len(file) > 255
            or Path(file).name != file
            or not file.endswith(f".{suffix}")
        ):
            raise FormatError(
                f"{index}: {printable(name)} is in {short(file)}, which is no .{suffix} file of "
                "this folder."
            )
    return table


@unreadable_as(FormatError)
def weight_files(folder: Path) -> list[Path]:
    """Return the files that `open_weights` opens, beginning with the index if there is one.

    Raises:
        FormatError: There are none, or the folder is not readable.
    """
    for name in _NAMES:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return [index, *(folder / file for file in sorted(set(_shards(index).values())))]
    found = ", ".join(sorted(path.name for path in folder.iterdir())[:8])
    raise FormatError(
        f"{folder} has no weights: no {' or '.join(_NAMES[:-1])}, in one file or sharded "
        f"(found: {found}). Fetch or copy them there."
    )


@unreadable_as(FormatError)
def open_weights(folder: Path) -> Weights:
    """Open a folder's tensors without reading them; safetensors are preferred.

    Raises:
        FormatError: No weights, a damaged or unreadable file, a pickle with more than tensors, or
            shards that contradict their index.
    """
    files = weight_files(folder)
    if files[0].suffix != ".json":
        return Weights(files[0], _in_file(files[0]))
    tensors: dict[str, Stored] = {}
    for path in files[1:]:
        for name, tensor in _in_file(path).items():
            if name in tensors:
                raise FormatError(
                    f"{printable(name)} is both in {tensors[name].path} and in {path.name}."
                )
            tensors[name] = tensor
    table = _shards(files[0])
    in_files = {name: tensor.path.name for name, tensor in tensors.items()}
    if wrong := [name for name, _ in table.items() ^ in_files.items()]:
        raise FormatError(
            f"{files[0]} and its shards disagree about {listed(set(wrong))}. Download or copy the "
            "folder again."
        )
    return Weights(files[0], tensors)


def listed(names: Collection[str]) -> str:
    """Return the first names of tensors, and the number of the others."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(printable(name) for name in sorted(names)[:3]) + more


# Writing.


def save_tensors(
    tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write contiguous CPU tensors, of which no two share memory, into a file; not atomic.

    Raises:
        OSError: The disk is full, or another system error.
    """
    try:
        save_file(tensors, path, metadata=metadata or {"format": "pt"})
    except SafetensorError as error:
        # The message contains the system error: "No space left on device (os error 28)".
        if (code := re.search(r"(?:os error|code:) (\d+)", str(error))) is not None:
            raise OSError(int(code[1]), str(error), str(path)) from error
        raise


def _unpacked(path: Path, tensors: dict[str, Stored], base: dict[str, Stored]) -> dict[str, Stored]:
    """Return the tensors of a packed file, one byte a weight, as they are computed with: float32.

    A matrix NAME is an int8 tensor of whole numbers from -127 to 127, with a float16 tensor
    NAME.scale that has one number a row; a weight is its whole number times the scale of its row.
    If the metadata names a base, the folder of another packed model next to this one, that product
    is the difference from the base's weight of the same name, but for the pooler, which minilm has
    fitted for new heads. The other tensors are float16. benchmarks/pack_weights.py writes them.
    `base` is what this function returned for the base, or empty.
    """

    def read(name: str) -> Tensor:
        values = tensors[name].read().float()
        if name + _SCALE not in tensors:
            return values
        scale = tensors[name + _SCALE].read().float()
        values.mul_(scale.view(-1, *[1] * (values.ndim - 1)))
        if ".pooler." in name or name not in base or base[name].shape != values.shape:
            return values
        return values.add_(base[name].read())

    unpacked = {}
    for name, (shape, dtype, _, _) in tensors.items():
        if name.endswith(_SCALE) and name.removesuffix(_SCALE) in tensors:
            continue
        scale = tensors.get(name + _SCALE)
        kinds = (dtype, scale and scale[:2])
        if kinds not in (("I8", (shape[:1], "F16")), ("F16", None)) or not shape:
            raise FormatError(
                f"{path}: {printable(name)} is neither float16 nor int8 rows with a float16 scale "
                "each. The file is damaged; install filbert again."
            )
        unpacked[name] = Stored(shape, "F32", path, partial(read, name))
    return unpacked
