"""Write a model in another format: Hugging Face, Google's, or with int8 layers recorded."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filbert.checkpoints import google, huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.fresh import id_entries
from filbert.checkpoints.opening import (
    find_model,
    is_google,
    open_folder,
    read_checkpoint,
    read_tokenizer,
)
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError
from filbert.files import check_target, portable, replace_folder, sha256_of
from filbert.inference.predictor import Predictor
from filbert.onnx_export import choose_float_layers
from filbert.text.tokenizer import Tokenizer

FORMATS = ("huggingface", "google", "int8", "static-int8")
# Files of a model's folder, which may be replaced.
_MARKERS = ("config.json", "bert_config.json", "albert_config.json")


def convert_model(
    source: str,
    target: Path,
    *,
    to: str,
    data: str | None = None,
    names: ColumnNames | None = None,
    max_loss: float | None = None,
    adapter: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a model and its tokenizer in another format; every tensor stays the same bit for bit.

    The arguments are those of `filbert convert`; `names` are the columns of `data`.

    Returns:
        What was written: family, head, hashes of the files, and notes on what was left out.
    """
    _check_options(to, data=data, max_loss=max_loss, adapter=adapter)
    place = find_model(source)
    check_target(target, place, overwrite=overwrite)
    checkpoint = read_checkpoint(place, adapter=adapter)
    tokenizer = read_tokenizer(place)
    config = checkpoint.config
    misfits = tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, place)
    facts: dict[str, Any] = {
        "target": str(target),
        "format": to,
        "family": checkpoint.family,
        "head": checkpoint.head,
        "hidden_act": config.feed_forward.activation,
        "tensors": len(checkpoint.tensors),
        "parameters": sum(tensor.numel() for tensor in checkpoint.tensors.values()),
        "notes": [*checkpoint.notes, *misfits, *_left_out(place, to)],
        **({} if adapter is None else {"adapter": adapter}),
    }
    if data is not None:
        exact = Predictor.load(source, device="cpu")
        is_static = to == "static-int8"
        facts["int8"] = choose_float_layers(
            exact, data, names, max_loss=max_loss, is_static=is_static
        )
        stored = (checkpoint.filbert or {}) | {"int8": facts["int8"]}
        checkpoint = replace(checkpoint, filbert=stored)
    marker = next((name for name in _MARKERS if (target / name).is_file()), _MARKERS[0])
    with replace_folder(target, marker=marker) as new:
        if to == "google":
            return facts | {"files": google.write(checkpoint, tokenizer, new)}
        files = _write(checkpoint, tokenizer, new, place=place, source=source, adapter=adapter)
        return facts | {"files": files}


def _check_options(
    to: str, *, data: str | None, max_loss: float | None, adapter: str | None
) -> None:
    if to not in FORMATS:
        other = " ONNX is written by filbert export --format onnx." if to == "onnx" else ""
        raise ConfigError(f"--to {to} is not one of {', '.join(FORMATS)}.{other}")
    is_int8 = to in ("int8", "static-int8")
    if not is_int8 and (data is not None or max_loss is not None):
        raise ConfigError(
            "--data and --max-loss are for --to int8 and static-int8. Leave them out."
        )
    if is_int8 and (data is None or data == "-"):
        raise ConfigError(f"--to {to} measures the layers on rows: give --data FILE.")
    if adapter is not None and to != "huggingface":
        raise ConfigError("--adapter is for --to huggingface. Convert the result once more.")


def _left_out(place: Path, to: str) -> list[str]:
    """Return notes on files of a Hugging Face folder that the new folder does not have."""
    names = {
        "modules.json": "the computation of sentence vectors",
        "filbert.json": "how the model was trained",
        "README.md": "its licence and its language",
    }
    notes = [
        f"{name} is left out: Google's format cannot express {what}."
        for name, what in (names if to == "google" else {}).items()
        if place.is_dir() and (place / name).is_file()
    ]
    if (place / "generator").is_dir():
        notes.append("generator/ is left out: it is a separate model. Convert it by itself.")
    return notes


def _write(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    new: Path,
    *,
    place: Path,
    source: str,
    adapter: str | None,
) -> dict[str, str]:
    """Write a Hugging Face folder, and return the SHA-256 of each file."""
    from_google = is_google(place)
    converted = {
        "from": portable(source),
        "format": "google" if from_google else "huggingface",
        "filbert": version("filbert"),
        "notes": list(checkpoint.notes),
    }
    stored = {**(checkpoint.filbert or {}), "converted": converted}
    if from_google:  # whose configuration has no ids
        ids = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id)
        checkpoint = replace(checkpoint, extra=id_entries(checkpoint.family, ids))
    described = open_folder(place).described.path
    huggingface.write_folder(new, checkpoint, tokenizer, stored, source=described, prompt=adapter)
    if not from_google and (place / "README.md").is_file():
        shutil.copyfile(place / "README.md", new / "README.md")
    files = sorted(path for path in new.rglob("*") if path.is_file())
    return {path.relative_to(new).as_posix(): sha256_of(path) for path in files}
