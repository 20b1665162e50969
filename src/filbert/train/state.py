"""Saved states of a training run: complete and checked, or not there at all.

    state/step-00000120/
        model.safetensors      one file per first part of the tensors' names
        optimizer.safetensors
        facts.json
        manifest.json          size and SHA-256 of the others; written last

A state grows in a hidden folder, is flushed to the disk, and is renamed into its place. Nothing is
ever pickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from filbert.errors import InputError, RunError
from filbert.files import flush, replace_folder, sha256_of

_FORMAT = 1
_STEP = re.compile(r"step-([0-9]{8,})")
_GROUP = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_FILE = re.compile(r"facts\.json|[A-Za-z][A-Za-z0-9_-]*\.safetensors")
# Growing; moved aside by replace_folder; moved aside to be deleted.
_LEFTOVER = re.compile(r"\.step-([0-9]{8,})\.[0-9a-f]{12}\.(tmp|old|gone)")
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class _Damaged(Exception):
    """A state that cannot be used; the message is half a sentence that says why."""


@dataclass(frozen=True, eq=False)
class State:
    """All that a run needs to go on.

    Attributes:
        step: optimiser steps made.
        tensors: by names whose first part, up to the first dot, is the file they go to. Dense, of
            any shape and device; those that were read are on the host and own their memory.
        facts: what JSON can hold. Floats come back with the same bits.
    """

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_state(
    folder: Path, state: State, *, keep: int = 2, unchanged: Collection[str] = ()
) -> Path:
    """Save a state, then remove those that are no longer needed.

    Args:
        folder: holds the states; made when missing.
        state: is not changed.
        keep: how many states up to this step remain. Those of later steps are removed: this run
            did not start from them, so they were damaged or of an abandoned run.
        unchanged: first name parts whose tensors are probably those of the newest state. Such a
            file is linked instead of written again, if it really holds the same bytes.

    Returns:
        The folder of this state. It is on the disk.

    Raises:
        RunError: the disk is full, or the folder may not be written to. Older states stay.
    """
    assert keep >= 1, "a run that keeps no state cannot go on"
    facts = json.dumps(state.facts, indent=2).encode()
    path = folder / f"step-{state.step:08d}"
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            flush(folder.parent)
        newest = next(iter(_sound(folder).values()), None)
        if path.exists() and not _is_sound(path, state.step):
            _remove([path])
        with replace_folder(path, marker="manifest.json") as staging:
            files = {"facts.json": _write(staging / "facts.json", [facts])}
            for group, tensors in _groups(state.tensors).items():
                new = staging / f"{group}.safetensors"
                old = newest / new.name if newest and group in unchanged else None
                files[new.name] = (old and _link(old, new, tensors)) or _write(
                    new, _safetensors(tensors)
                )
            manifest = {"format": _FORMAT, "step": state.step, "files": files}
            _write(staging / "manifest.json", [json.dumps(manifest, indent=2).encode()])
    except (OSError, InputError) as error:
        raise RunError(_not_saved(folder, state.step, error)) from error
    # Whatever cannot be removed today is tried again at the next save; the new state is safe.
    with contextlib.suppress(OSError):
        _remove(_not_needed(folder, state.step, keep))
    return path


def newest_state(folder: Path) -> tuple[State | None, list[str]]:
    """The complete state of the latest step, checked byte by byte, and what was skipped.

    Returns:
        The state, or None where there is none; and one sentence for each later state that is
        damaged, newest first.

    Raises:
        RunError: `folder` is there but may not be read.
    """
    skipped: list[str] = []
    for step, path in _states(folder).items():
        try:
            return _read(path, step), skipped
        except _Damaged as error:
            skipped.append(f"{folder.name}/{path.name}: {error}; skipped")
    return None, skipped


def clean_state(folder: Path) -> None:
    """Remove what killed writers have left. No process may save in `folder` meanwhile.

    A state that was moved aside for a new one of the same step, which never came, is put back.
    """
    for path in _entries(folder):
        if match := _LEFTOVER.fullmatch(path.name):
            place = folder / f"step-{match[1]}"
            if match[2] == "old" and not place.exists() and _is_sound(path, int(match[1])):
                with contextlib.suppress(OSError):
                    path.rename(place)
            else:
                shutil.rmtree(path, ignore_errors=True)


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order of the names; in hexadecimal."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


# Writing


def _groups(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        group = name.partition(".")[0]
        assert _GROUP.fullmatch(group), f"{name!r} cannot name a file"
        groups.setdefault(group, {})[name] = tensor
    return groups


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def _safetensors(tensors: dict[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file, piece by piece.

    safetensors.torch.save gives them too, but from a copy of everything in memory, and not for
    tensors that share memory.

    Source: the format section of the safetensors README.
    """
    header: dict[str, Any] = {}
    end = 0
    # Wide dtypes first, so that every tensor starts at a multiple of its element size.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    for name in names:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        yield _bytes(tensors[name])


def _write(path: Path, pieces: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Write a file; its entry in the manifest, from what was meant to be written."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
            size += len(piece)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _link(old: Path, new: Path, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    """Let `new` be the file `old`; None if that holds other bytes, or links are not possible."""
    digest, size = hashlib.sha256(), 0
    for piece in _safetensors(tensors):
        digest.update(piece)
        size += len(piece)
    try:
        # A damaged file must not be passed on from state to state.
        if old.stat().st_size != size or sha256_of(old) != digest.hexdigest():
            return None
        os.link(old, new)
    except OSError:
        return None
    return {"bytes": size, "sha256": digest.hexdigest()}


def _not_saved(folder: Path, step: int, error: Exception) -> str:
    cause = error if isinstance(error, OSError) else error.__cause__
    reason = getattr(cause, "strerror", None) or str(error).rstrip(".")
    good = next(iter(_sound(folder).values()), None)
    last = f"The last good state is {good.name}" if good else "There is no earlier state"
    return (
        f"The state of step {step} cannot be saved in {folder}: {reason}. {last}. "
        "Remove the cause, then repeat the command with --resume."
    )


# Finding, reading and removing


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RunError(f"{folder} cannot be read: {error.strerror}.") from error


def _states(folder: Path) -> dict[int, Path]:
    """The folders named like states, by step, the latest first."""
    states = {}
    for path in _entries(folder):
        match = _STEP.fullmatch(path.name)
        if match and path.name == f"step-{int(match[1]):08d}":
            states[int(match[1])] = path
    return {step: states[step] for step in sorted(states, reverse=True)}


def _load(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _Damaged(f"{path.name} is missing") from error
    except OSError as error:
        raise _Damaged(f"{path.name} cannot be read ({error.strerror})") from error


def _object(name: str, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"{name} is not valid JSON") from error
    if not isinstance(value, dict):
        raise _Damaged(f"{name} holds no JSON object")
    return value


def _manifest(path: Path, step: int) -> dict[str, Any]:
    """SHA-256 by file of a state whose files are all there and have the right size."""
    manifest = _object("manifest.json", _load(path / "manifest.json"))
    if manifest.get("format") != _FORMAT:
        raise _Damaged(f"manifest.json is not of format {_FORMAT}")
    if manifest.get("step") != step:
        raise _Damaged("manifest.json is of another step")
    files = manifest.get("files")
    if not isinstance(files, dict) or "facts.json" not in files:
        raise _Damaged("manifest.json does not list the files")
    for name, entry in files.items():
        if not _FILE.fullmatch(name) or not isinstance(entry, dict):
            raise _Damaged("manifest.json lists something that is no file of a state")
        try:
            size = (path / name).stat().st_size
        except OSError as error:
            raise _Damaged(f"{name} is missing") from error
        if size != entry.get("bytes"):
            raise _Damaged(f"{name} has {size:,} bytes, not the number in manifest.json")
    return {name: entry.get("sha256") for name, entry in files.items()}


def _read(path: Path, step: int) -> State:
    contents = {}
    for name, sha256 in _manifest(path, step).items():
        contents[name] = _load(path / name)
        if hashlib.sha256(contents[name]).hexdigest() != sha256:
            raise _Damaged(f"{name} is damaged (its SHA-256 is not the one in manifest.json)")
    facts = _object("facts.json", contents.pop("facts.json"))
    tensors: dict[str, Tensor] = {}
    for name in sorted(contents):
        try:
            # Popped, so that not everything is in memory twice.
            tensors |= safetensors.torch.load(contents.pop(name))
        except SafetensorError as error:
            raise _Damaged(f"{name} is not a safetensors file") from error
    return State(step=step, tensors=tensors, facts=facts)


def _is_sound(path: Path, step: int) -> bool:
    """Whether a state looks complete; its bytes are not read."""
    try:
        _manifest(path, step)
    except _Damaged:
        return False
    return True


def _sound(folder: Path) -> dict[int, Path]:
    """The states that look complete, by step, the latest first."""
    return {step: path for step, path in _states(folder).items() if _is_sound(path, step)}


def _not_needed(folder: Path, step: int, keep: int) -> list[Path]:
    kept = [other for other in _sound(folder) if other <= step][:keep]
    # A state that is damaged does not count, and goes once there are enough others.
    first = kept[-1] if len(kept) == keep else 0
    return [path for other, path in _states(folder).items() if not first <= other <= step]


def _remove(states: list[Path]) -> None:
    """Delete states, which lose their names before they lose their files."""
    hidden = []
    for path in states:
        hidden.append(path.rename(path.with_name(f".{path.name}.{token_hex(6)}.gone")))
    if hidden:
        flush(hidden[0].parent)
    for path in hidden:
        shutil.rmtree(path, ignore_errors=True)
