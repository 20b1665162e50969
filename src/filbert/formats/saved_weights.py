"""Writing the tensors of a model folder: model.safetensors, or shards of it with their index."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from filbert.formats.model_files import SAFETENSORS

# What Hub and transformers call a file of a convenient size.
MAX_SHARD_BYTES = 5_000_000_000
_INDEX = "model.safetensors.index.json"


def save_tensors(
    tensors: Mapping[str, Tensor], folder: Path, *, max_shard_bytes: int = MAX_SHARD_BYTES
) -> None:
    """Write tensors by name, contiguous and on the host; plain writes, the caller stages them.

    Args:
        tensors: what to write; no two may share memory.
        folder: where to.
        max_shard_bytes: above this, the tensors are spread over several files, none with more but
            where a single tensor has.

    Raises:
        OSError: the disk is full, or another failure of the system.
    """
    shards = list(_shards(tensors, max_shard_bytes))
    if len(shards) <= 1:
        _save(dict(tensors), folder / "model.safetensors")
        return
    weight_map: dict[str, str] = {}
    for i, shard in enumerate(shards, start=1):
        name = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        _save(shard, folder / name)
        weight_map |= dict.fromkeys(shard, name)
    index = {
        "metadata": {"total_size": sum(map(_bytes, tensors.values()))},
        "weight_map": dict(sorted(weight_map.items())),
    }
    (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def remove_others(folder: Path, written: Mapping[str, object]) -> None:
    """Delete tensor files of an earlier model that would be read beside, or before, the new ones.

    Args:
        folder: of the model.
        written: names of the new files.
    """
    for path in folder.iterdir():
        if SAFETENSORS.fullmatch(path.name) and path.name not in written:
            path.unlink()


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _shards(tensors: Mapping[str, Tensor], limit: int) -> Iterator[dict[str, Tensor]]:
    """Tensors in their order, as many together as stay within the limit."""
    shard: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors.items():
        if shard and size + _bytes(tensor) > limit:
            yield shard
            shard, size = {}, 0
        shard[name] = tensor
        size += _bytes(tensor)
    if shard:
        yield shard


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        # The library gives the system's error as text: "No space left on device (os error 28)".
        if (code := re.search(r"(?:os error|code:) (\d+)", str(error))) is not None:
            raise OSError(int(code[1]), str(error), str(path)) from error
        raise
