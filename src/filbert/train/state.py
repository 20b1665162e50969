"""Saved states of a training run: complete and checked, or not there at all.

    state/step-00000120/
        state.safetensors      all tensors; the metadata of its header holds the facts
        manifest.json          size and SHA-256 of that file; written last

A state is written in a hidden folder, flushed to the disk, and renamed. Nothing is ever pickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from filbert.checkpoints.weights import save_tensors
from filbert.errors import FilbertError, FormatError, InputError, RunError
from filbert.files import flush, read_json, replace_folder, sha256_of

_FORMAT = 2
_TENSORS, _MANIFEST = "state.safetensors", "manifest.json"
_STEP = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,})")
# Being written; moved aside by replace_folder; moved aside to be deleted.
_LEFTOVER = re.compile(r"\.step-([0-9]{8,})\.[0-9a-f]{12}\.(tmp|old|gone)")


@dataclass(frozen=True, eq=False)
class State:
    """All that a run needs to go on.

    Attributes:
        tensors: By name; of any shape and device, no two in the same memory. Those that were read
            are on the CPU.
        facts: What JSON can hold. Floats come back with the same bits.
    """

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_state(folder: Path, state: State, *, keep: int = 2) -> Path:
    """Save a state, then remove those that are no longer needed.

    The newest `keep` states up to this step remain. Those of later steps go: this run did not start
    from them, so they were damaged or of an abandoned run.

    Returns:
        The folder of this state. It is on the disk.

    Raises:
        RunError: The disk is full, or the folder is not writable. Older states stay.
    """
    assert keep >= 1, "a run that keeps no state cannot be resumed"
    path = folder / f"step-{state.step:08d}"
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            flush(folder.parent)
        if path.exists() and not _is_sound(path):
            _remove([path])
        with replace_folder(path, marker=_MANIFEST) as staging:
            file = staging / _TENSORS
            tensors = {n: one.detach().cpu().contiguous() for n, one in state.tensors.items()}
            save_tensors(tensors, file, {"facts": json.dumps(state.facts)})
            size, digest = file.stat().st_size, sha256_of(file)
            manifest = {"format": _FORMAT, "step": state.step, "bytes": size, "sha256": digest}
            (staging / _MANIFEST).write_text(json.dumps(manifest, indent=2), "utf-8")
    except (OSError, InputError) as error:
        raise RunError(_not_saved(folder, state.step, error)) from error
    # What cannot be removed now is tried again at the next save; the new state is safe.
    with contextlib.suppress(OSError):
        _remove(_not_needed(folder, state.step, keep))
    return path


def newest_state(folder: Path) -> tuple[State | None, list[str]]:
    """Read the complete state of the latest step; every byte is checked.

    Returns:
        The state, or None if there is none; and one sentence for each later state that is damaged,
        newest first.

    Raises:
        RunError: `folder` exists but is not readable.
    """
    skipped: list[str] = []
    for path in _states(folder).values():
        try:
            return _read(path), skipped
        except FilbertError as error:
            skipped.append(f"{folder.name}/{path.name}: {str(error).rstrip('.')}; skipped")
    return None, skipped


def clean_state(folder: Path) -> None:
    """Remove what killed processes have left. No process may save in `folder` at the same time.

    A state that was moved aside for a new one of the same step, which never came, is put back.
    """
    for path in _entries(folder):
        if match := _LEFTOVER.fullmatch(path.name):
            place = folder / f"step-{match[1]}"
            if match[2] == "old" and not place.exists() and _is_sound(path):
                with contextlib.suppress(OSError):
                    path.rename(place)
            else:
                shutil.rmtree(path, ignore_errors=True)


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of names, dtypes, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        values = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(values.view(torch.uint8).numpy().data)
    return digest.hexdigest()


# What a model and its optimizer have to save


def learned_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights that learn, by the names of `state_dict`; the others never change."""
    return {name: one.detach() for name, one in model.named_parameters() if one.requires_grad}


def moments_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimizer, by names such as "exp_avg.<parameter>"."""
    return {
        f"{kind}.{name}": tensor
        for name, parameter in model.named_parameters()
        for kind, tensor in optimizer.state.get(parameter, {}).items()
    }


def load_moments(
    model: nn.Module, optimizer: torch.optim.Optimizer, moments: Mapping[str, Tensor]
) -> None:
    """Copy the output of `moments_of` into an optimizer."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for key, tensor in moments.items():
        kind, _, name = key.partition(".")
        parameter = parameters[name]
        optimizer.state[parameter][kind] = tensor.to(parameter.device, copy=True)


# Writing


def _not_saved(folder: Path, step: int, error: Exception) -> str:
    cause = error if isinstance(error, OSError) else error.__cause__
    reason = getattr(cause, "strerror", None) or str(error).rstrip(".")
    good = next((path for path in _states(folder).values() if _is_sound(path)), None)
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
    """Return the folders named like states, by step, the latest first."""
    matches = [(path, _STEP.fullmatch(path.name)) for path in _entries(folder)]
    states = {int(match[1]): path for path, match in matches if match}
    return dict(sorted(states.items(), reverse=True))


def _manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a state; the state is complete, but its bytes are not read."""
    manifest, tensors = read_json(path / _MANIFEST), path / _TENSORS
    step = int(path.name.partition("step-")[2].partition(".")[0])
    if (manifest.get("format"), manifest.get("step")) != (_FORMAT, step):
        raise FormatError(f"{_MANIFEST} is not of this step and of format {_FORMAT}.")
    if not tensors.is_file() or tensors.stat().st_size != manifest.get("bytes"):
        raise FormatError(f"{_TENSORS} is missing or has another size than in {_MANIFEST}.")
    return manifest


def _read(path: Path) -> State:
    manifest, tensors = _manifest(path), path / _TENSORS
    try:
        if sha256_of(tensors) != manifest.get("sha256"):
            raise FormatError(f"the SHA-256 of {_TENSORS} is not the one in {_MANIFEST}.")
        with safe_open(tensors, framework="pt") as file:
            # Copies, because the file may be deleted.
            read = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            facts = json.loads(file.metadata()["facts"])
    except (OSError, SafetensorError) as error:
        raise FormatError(f"{_TENSORS} cannot be read: {error}.") from error
    return State(step=manifest["step"], tensors=read, facts=facts)


def _is_sound(path: Path) -> bool:
    """Return whether a state looks complete; its bytes are not read."""
    try:
        _manifest(path)
    except FormatError:
        return False
    return True


def _not_needed(folder: Path, step: int, keep: int) -> list[Path]:
    states = _states(folder)
    kept = [n for n, path in states.items() if n <= step and _is_sound(path)][:keep]
    # A state that is damaged does not count, and goes once there are enough others.
    first = kept[-1] if len(kept) == keep else 0
    return [path for other, path in states.items() if not first <= other <= step]


def _remove(states: list[Path]) -> None:
    """Delete states, which lose their names before they lose their files."""
    hidden = []
    for path in states:
        hidden.append(path.rename(path.with_name(f".{path.name}.{token_hex(6)}.gone")))
    if hidden:
        flush(hidden[0].parent)
    for path in hidden:
        shutil.rmtree(path, ignore_errors=True)
