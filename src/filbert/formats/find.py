"""A model's name to its place: a folder, a checkpoint, an archive, a built-in name, a Hub id.

Nothing heavy is imported before a name turns out to need it.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

from filbert.errors import ConfigError, FormatError, InputError, printable, unreadable_as
from filbert.formats.built_in import MINI, MINILM, find_built_in
from filbert.formats.model_files import GOOGLE_CONFIGS, PICKLES, SAFETENSORS, TENSOR_BUNDLE

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_REVISION = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w./-]{0,199}")
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
# Beside TensorFlow's checkpoints lies a graph, which nothing here needs.
_PART = re.compile(r"(?P<prefix>.+)\.(index|meta|data-\d{5}-of-\d{5})")
# Names of files, which nobody means as a Hub id.
_FILE = re.compile(
    r".*(\.ckpt|\.ckpt-\w+|\.index|\.meta|\.data-\d{5}-of-\d{5}|\.zip|\.tar|\.tar\.gz|\.tgz)"
)


def find_model(
    name: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    local_files_only: bool | None = None,
    tokenizer_only: bool = False,
) -> Path:
    """The place of a model; fetched or unpacked when it has none on this machine yet.

    Args:
        name: what there is on this machine goes first. A folder in Hugging Face's layout; a folder
            with a TensorFlow checkpoint, its prefix (".../bert_model.ckpt") or one of its files; a
            .zip or .tar.gz of either, which is unpacked into the cache once; "filbert-mini", which
            is always there; "minilm" (also "all-MiniLM-L6-v2"), whose file is checked by its hash;
            a Hub id, also with a revision: "owner/name@revision".
        revision: of a Hub id: a branch, tag or commit.
        token: for private Hub models; without it, huggingface_hub's own (HF_TOKEN or the login).
        local_files_only: never touch the network; None leaves it to HF_HUB_OFFLINE.
        tokenizer_only: the weights are not needed, and a folder need not have a config.json.

    Returns:
        The folder, or the prefix of a TensorFlow checkpoint, which is itself no file.

    Raises:
        InputError: no such folder or id, no access, or no network.
        ConfigError: two revisions, or one that cannot be.
        FormatError: a folder that is no model, a hostile or damaged archive, or a MiniLM file that
            is not the known one.
    """
    path = Path(name)
    try:
        path = path.expanduser()
        is_folder, is_file = bool(name) and path.is_dir(), bool(name) and path.is_file()
        is_prefix = bool(name) and Path(f"{path}.index").is_file()
    # A name too long, a folder closed to us, no such ~user.
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"{printable(name, 200)!r} cannot be opened: "
            f"{getattr(error, 'strerror', None) or error}. Check the name."
        ) from error
    if is_folder:
        return _in_folder(path, name, tokenizer_only)
    if is_prefix:
        return path
    if is_file:
        return _of_file(path, name, tokenizer_only)
    hub_id, at, asked = name.partition("@")
    if at:
        if revision not in (None, asked):
            raise ConfigError(f"{name!r} asks for one revision and {revision!r} for another.")
        revision = asked
    built_in = find_built_in(hub_id, local_files_only)
    if built_in is not None:
        if revision is not None:
            raise ConfigError(f"{hub_id} has no revisions; name it without @{revision}.")
        return built_in
    if _FILE.fullmatch(name):
        raise InputError(f"{name!r}: no such file or checkpoint. Check the path.")
    if (
        name.startswith((".", "~", os.sep))
        or name.endswith(os.sep)
        or not _HUB_ID.fullmatch(hub_id)
    ):
        raise InputError(
            f"{printable(name, 200)!r}: no such folder, and it is no Hugging Face Hub id "
            "(owner/name) either. Check the path."
        )
    if revision is not None and not _REVISION.fullmatch(revision):
        raise ConfigError(
            f"{printable(revision)!r} is no revision: give a branch, a tag or a commit."
        )
    from filbert.formats.hub import fetch

    try:
        folder = fetch(
            hub_id,
            revision=revision,
            token=token,
            local_files_only=local_files_only,
            tokenizer_only=tokenizer_only,
        )
    except InputError as error:
        near = get_close_matches(hub_id, (MINI, MINILM), 1, 0.8)
        if near:
            raise InputError(f"{error} Did you mean {near[0]}?") from error
        if hub_id in str(error):
            raise
        raise InputError(
            f"{hub_id!r} is no built-in name and no folder here, and the Hub could not be asked: "
            f"{error}"
        ) from error
    return _in_folder(folder, name, tokenizer_only)


def _of_file(path: Path, name: str, tokenizer_only: bool) -> Path:
    if path.name.lower().endswith(_ARCHIVES):
        from filbert.formats.archives import unpacked

        return _in_folder(unpacked(path), name, tokenizer_only)
    part = _PART.fullmatch(path.name)
    if part is None:
        raise InputError(f"{name} is a file; name the model's folder.")
    prefix = path.with_name(part["prefix"])
    if not Path(f"{prefix}.index").is_file():
        raise FormatError(
            f"{name} is a part of a TensorFlow checkpoint, and its other part {prefix.name}.index "
            "is not beside it. Put both into one folder."
        )
    return prefix


@unreadable_as(InputError)
def _in_folder(folder: Path, name: str, tokenizer_only: bool) -> Path:
    """The place within a folder: itself, or the prefix of the one checkpoint in it."""
    found = sorted(path.name for path in folder.iterdir())
    # In the oldest folders with a modules.json the encoder lies one folder below.
    has_config = "config.json" in found or "modules.json" in found
    layouts = (SAFETENSORS, PICKLES)
    if has_config and any(p.fullmatch(file) for p in layouts for file in found):
        return folder
    is_google = any(config in found for config in GOOGLE_CONFIGS)
    parts = [part for part in map(TENSOR_BUNDLE.fullmatch, found) if part]
    with_data = {part["prefix"] for part in parts if not part[0].endswith(".index")}
    prefixes = [
        part["prefix"]
        for part in parts
        if part[0].endswith(".index") and (is_google or part["prefix"] in with_data)
    ]
    if len(prefixes) == 1:
        return folder / prefixes[0]
    if has_config or tokenizer_only:
        return folder
    if prefixes:
        listed = ", ".join(printable(prefix) for prefix in prefixes[:8])
        raise FormatError(
            f"{name} holds {len(prefixes)} checkpoints: {listed}{', ...' if prefixes[8:] else ''}. "
            f"Name one of them: {folder / prefixes[-1]}"
        )
    listed = ", ".join(printable(file) for file in found[:8]) or "nothing"
    more = ", ..." if len(found) > 8 else ""
    if is_google:
        raise FormatError(
            f"{name} has a configuration of Google's, but no checkpoint: there is no file that "
            f"ends in .index (found: {listed}{more})."
        )
    raise FormatError(
        f"{name} is no model: no config.json (found: {listed}{more}).{_nearby(folder, found)}"
    )


def _nearby(folder: Path, found: list[str]) -> str:
    configs = ("config.json", *GOOGLE_CONFIGS)
    for file in ["model", *found[:50]]:
        if any((folder / file / config).is_file() for config in configs):
            return f" Did you mean {folder / file}?"
    return " Name a model's folder."
