"""Finds and opens a model by what the user typed: a folder, a checkpoint or a name.

`find_model` returns a place: a folder in Hugging Face's layout, or the prefix of a TensorFlow
checkpoint of Google's (".../bert_model.ckpt", next to which is ".../bert_model.ckpt.index").
`read_checkpoint` and `read_tokenizer` read a place. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from filbert.checkpoints.families import (
    ADAPTER_CONFIG,
    GOOGLE_CONFIGS,
    PICKLES,
    SAFETENSORS,
    TENSOR_BUNDLE,
)
from filbert.errors import (
    ConfigError,
    FormatError,
    InputError,
    did_you_mean,
    printable,
    unreadable_as,
)
from filbert.files import read_json

if TYPE_CHECKING:
    from filbert.checkpoints.checkpoint import Checkpoint
    from filbert.checkpoints.sentence_transformers import ModelFolder
    from filbert.text.tokenizer import Tokenizer

# The built-in models: folders of samples/, by the names that users type.
_BUILT_IN = {"filbert-mini": "filbert-mini", "minilm": "minilm", "all-MiniLM-L6-v2": "minilm"}
# Published models whose names are often misspelt.
_PUBLISHED = (
    "bert-base-uncased", "bert-base-cased", "bert-large-uncased", "bert-base-multilingual-cased",
    "distilbert-base-uncased", "roberta-base", "albert-base-v2",
    "google/electra-base-discriminator", "answerdotai/ModernBERT-base",
)  # fmt: skip

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_REVISION = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w./-]{0,199}")
# A TensorFlow checkpoint also has a file with its graph, which is not needed.
_PART = re.compile(r"(?P<prefix>.+)\.(index|meta|data-\d{5}-of-\d{5})")
# Names of files, which are never Hub ids.
_FILE = re.compile(r".*\.(ckpt(-\w+)?|index|meta|data-\d{5}-of-\d{5}|zip|tar|tar\.gz|tgz)")


def find_model(name: str, *, tokenizer_only: bool = False) -> Path:
    """Return the place of a model; it is downloaded if it is not on this machine.

    Args:
        name: A local path takes precedence: a folder in Hugging Face's layout, a folder with a
            TensorFlow checkpoint, its prefix or one of its files. Else
            "filbert-mini", "minilm", or a Hub id, also with a branch, tag or commit, as
            "owner/name@revision".
        tokenizer_only: The weights are not needed, and a folder need not have a config.json.

    Raises:
        InputError: No such folder or id, no access, or no network.
        ConfigError: An impossible revision.
        FormatError: A folder without a model.
    """
    local = _find_local(name, tokenizer_only)
    if local is not None:
        return local
    hub_id, at, asked = name.partition("@")
    revision = asked if at else None
    if hub_id in _BUILT_IN:
        if revision is not None:
            raise ConfigError(f"{hub_id} has no revisions; name it without @{revision}.")
        return Path(__file__).parents[1] / "samples" / _BUILT_IN[hub_id]
    if _FILE.fullmatch(name):
        raise InputError(f"{name!r}: no such file or checkpoint. Check the path.")
    if name.startswith((".", "~", os.sep)) or not HUB_ID.fullmatch(hub_id):
        raise InputError(
            f"{printable(name, 200)!r}: no such folder, and it is not a Hugging Face Hub id "
            "(owner/name) either. Check the path."
        )
    if revision is not None and not _REVISION.fullmatch(revision):
        raise ConfigError(f"{printable(revision)!r} is no revision (a branch, tag or commit).")
    from filbert.checkpoints.hub import fetch

    try:
        folder = fetch(hub_id, revision=revision, tokenizer_only=tokenizer_only)
    except InputError as error:
        hint = "" if hub_id in _PUBLISHED else did_you_mean(hub_id, (*_BUILT_IN, *_PUBLISHED))
        raise InputError(
            f"There is no folder {hub_id!r} and no built-in model of this name.{hint} {error}"
        ) from error
    return _in_folder(folder, name, tokenizer_only)


def _find_local(name: str, tokenizer_only: bool) -> Path | None:
    """Return the place that a path names; None if there is no such path."""
    if not name:
        return None
    try:
        path = Path(name).expanduser()
        is_folder, is_file, is_prefix = path.is_dir(), path.is_file(), is_google(path)
    # A name that is too long, an unreadable folder, no such ~user.
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{printable(name, 200)!r} cannot be opened: {reason}. Check the name."
        ) from error
    if is_folder:
        return _in_folder(path, name, tokenizer_only)
    if is_prefix:
        return path
    if not is_file:
        return None
    part = _PART.fullmatch(path.name)
    if part is None:
        raise InputError(f"{name} is a file; name the model's folder, and unpack an archive first.")
    prefix = path.with_name(part["prefix"])
    if not is_google(prefix):
        raise FormatError(
            f"{name} is a part of a TensorFlow checkpoint, and {prefix.name}.index is not next to "
            "it. Put both into one folder."
        )
    return prefix


def is_google(place: Path) -> bool:
    """Return whether a place is the prefix of a TensorFlow checkpoint."""
    return Path(f"{place}.index").is_file()


def is_adapter(place: Path) -> bool:
    """Return whether a place is the folder of an adapter: without weights of a whole model."""
    names = [path.name for path in place.iterdir()] if place.is_dir() else []
    whole = (p.fullmatch(name) for p in (SAFETENSORS, PICKLES) for name in names)
    return ADAPTER_CONFIG in names and not any(whole)


@unreadable_as(InputError)
def open_folder(place: Path | ModelFolder, route: str | None = None) -> ModelFolder:
    """Return a place with its parsed files; that of an adapter has the model that it changes.

    Raises:
        InputError: The base of the adapter is not found.
        FormatError: adapter_config.json names no base, or one that is no whole model.
    """
    from filbert.checkpoints.sentence_transformers import ModelFolder

    if isinstance(place, ModelFolder):
        return place
    if not is_adapter(place):
        return ModelFolder(place, route)
    path = place / ADAPTER_CONFIG
    settings = read_json(path)
    name, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    if not isinstance(name, str) or not isinstance(revision, str | None):
        raise FormatError(f"{path}: base_model_name_or_path must name the adapter's base model.")
    try:
        base = find_model(name if not revision or Path(name).exists() else f"{name}@{revision}")
    except InputError as error:
        raise InputError(f"The base of the adapter {place} is not found: {error}") from error
    if is_adapter(base) or is_google(base):
        raise FormatError(
            f"{path}: its base {printable(name, 200)} is not a whole model in Hugging Face's "
            "layout. Convert that first: filbert convert SRC DST --to huggingface"
        )
    return ModelFolder(place, route, ModelFolder(base))


def read_checkpoint(place: Path | ModelFolder, *, adapter: str | None = None) -> Checkpoint:
    """Read the checkpoint at a place, with an `adapter` as in `huggingface.read`.

    The files of a ModelFolder are parsed once for checkpoint, tokenizer and sentence vectors.

    Raises:
        FormatError: A damaged file, or something that the encoder cannot express.
    """
    folder = open_folder(place)
    path = folder.path
    if adapter is not None and (is_google(path) or folder.base is not None):
        raise ConfigError(f"{path} has no adapters of tasks, which are those of one model alone.")
    if is_google(path):
        from filbert.checkpoints import google

        return google.read(path)
    from filbert.checkpoints import adapters, huggingface

    if folder.base is not None:
        return adapters.read(folder)
    return huggingface.read(folder, adapter=adapter)


def read_tokenizer(place: Path | ModelFolder) -> Tokenizer:
    """Read the tokenizer of the checkpoint at a place."""
    folder = open_folder(place).described
    if is_google(folder.path):
        from filbert.checkpoints.google import read_google_tokenizer

        return read_google_tokenizer(folder.path.parent)
    from filbert.checkpoints import huggingface

    tokenizer = huggingface.read_tokenizer(folder.encoder, config=folder.config)
    if folder.is_static and folder.config is not None:
        tokenizer.add_no_specials(folder.config["vocab_size"] - 1)
    return tokenizer


@unreadable_as(InputError)
def _in_folder(folder: Path, name: str, tokenizer_only: bool) -> Path:
    """Return the folder, or the prefix of the one TensorFlow checkpoint in it."""
    files = sorted(path.name for path in folder.iterdir())
    # In the oldest folders with a modules.json the encoder is in a subfolder.
    has_config = not {"config.json", "modules.json", ADAPTER_CONFIG}.isdisjoint(files)
    if has_config and any(p.fullmatch(file) for p in (SAFETENSORS, PICKLES) for file in files):
        return folder
    has_google = any(config in files for config in GOOGLE_CONFIGS)
    parts = [part for part in map(TENSOR_BUNDLE.fullmatch, files) if part]
    with_data = {part["prefix"] for part in parts if not part[0].endswith(".index")}
    prefixes = [
        part["prefix"]
        for part in parts
        if part[0].endswith(".index") and (has_google or part["prefix"] in with_data)
    ]
    if len(prefixes) == 1:
        return folder / prefixes[0]
    if has_config or tokenizer_only:
        return folder
    if prefixes:
        raise FormatError(
            f"{name} holds {len(prefixes)} checkpoints: {_listed(prefixes)}. "
            f"Name one of them: {folder / prefixes[-1]}"
        )
    listed = _listed(files) or "nothing"
    if (folder / "run.json").is_file() and (folder / "model" / "config.json").is_file():
        return folder / "model"
    configs = ("config.json", *GOOGLE_CONFIGS)
    near = [
        folder / file
        for file in ["model", *files[:50]]
        if any((folder / file / config).is_file() for config in configs)
    ]
    hint = f"Did you mean {near[0]}?" if near else "Name a model's folder."
    missing = "file that ends in .index" if has_google else "config.json"
    raise FormatError(f"{name} is no model: no {missing} (found: {listed}). {hint}")


def _listed(names: list[str]) -> str:
    return ", ".join(map(printable, names[:8])) + (", ..." if len(names) > 8 else "")
