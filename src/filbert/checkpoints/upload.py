"""Uploads model folders to the Hugging Face Hub with huggingface_hub."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filbert.checkpoints.families import PICKLES, SAFETENSORS
from filbert.checkpoints.hub import explained, hub_failures, is_published, module_weights
from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.checkpoints.weights import weight_files
from filbert.errors import ConfigError, FormatError, InputError, printable, unreadable_as
from filbert.files import read_json

log = logging.getLogger(__name__)


def check_repo(repo_id: str) -> None:
    """Raise a ConfigError unless a repository id has the form "owner/name"."""
    if repo_id.count("/") != 1 or not all(repo_id.split("/")):
        raise ConfigError(f"{printable(repo_id)!r} is no repository: give owner/name.")


@unreadable_as(InputError)
def files_to_push(folder: Path) -> dict[str, int]:
    """Return the size in bytes of each file that `push` uploads, after loading the model.

    Raises:
        FormatError: No model, one that filbert cannot load, weights in a pickle, or a file whose
            digest is not the one in filbert.json.
        InputError: No such folder, or a file is missing.
    """
    from filbert.checkpoints.huggingface import check_digests

    if not folder.is_dir():
        raise InputError(f"{folder} is no local folder; only a folder can be uploaded.")
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    convert = f"Convert it first: filbert convert {folder} DIR --to huggingface"
    if "config.json" not in names:
        hint = f"Did you mean {folder / 'model'}?" if "model/config.json" in names else convert
        raise FormatError(f"{folder} is no model: no config.json. {hint}")
    weights = {path.name for path in weight_files(folder)}
    if any(PICKLES.fullmatch(Path(name).name) for name in weights | module_weights(names)):
        raise FormatError(f"{folder} holds weights in a pickle, which can run code. {convert}")
    for part in (folder, folder / "generator"):
        if (part / "config.json").is_file():
            read_checkpoint(part)
    read_tokenizer(folder)
    if "filbert.json" in names:
        filbert = read_json(folder / "filbert.json")
        listed = [name for name in filbert.get("files") or () if is_published(name)]
        check_digests(folder, filbert, [folder / name for name in listed])
    chosen = {
        n for n in names if is_published(n) and (n in weights or not SAFETENSORS.fullmatch(n))
    }
    return {name: (folder / name).stat().st_size for name in sorted(chosen)}


def push(
    folder: Path,
    repo_id: str,
    *,
    private: bool = False,
    announce: Callable[[dict[str, int]], object] = lambda files: None,
) -> str:
    """Upload a model folder to the Hub in one commit, and return the model's address.

    The commit deletes weights and tokenizer files of another model in the repository, which a
    loader would read. All other files stay. A missing repository is created. `announce` is called
    with size by file name before the upload.

    Raises:
        FormatError: As `files_to_push`, or the Hub does not accept the README.md.
        ConfigError: An invalid repository id, or a private upload to a public repository.
        InputError: No token or not the right one, no network, or the Hub refused.
    """
    import huggingface_hub
    from huggingface_hub import constants

    check_repo(repo_id)
    files = files_to_push(folder)
    if constants.HF_HUB_OFFLINE:
        raise InputError("HF_HUB_OFFLINE switches the network off. Unset it to upload.")
    token = huggingface_hub.get_token()
    if not token:
        raise InputError(
            "Uploading needs a token: set HF_TOKEN to one with the right to write, or log in with "
            "hf auth login."
        )
    announce(files)
    try:
        api = huggingface_hub.HfApi(token=token)
        api.create_repo(repo_id, private=private or None, exist_ok=True)
        if private and not api.model_info(repo_id).private:
            raise ConfigError(
                f"{repo_id} is already public; nothing was uploaded. Make it private on its page, "
                "or choose another name."
            )
        _commit(api, folder, files, repo_id)
    except hub_failures() as error:
        raise InputError(explained(error, repo_id)) from error
    return f"{constants.ENDPOINT}/{repo_id}"


def _commit(api: Any, folder: Path, files: dict[str, int], repo_id: str) -> None:
    """Replace the model in a repository in one commit."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    siblings = api.model_info(repo_id).siblings or ()
    existing = {file.rfilename for file in siblings} - {"README.md"}
    stale = {n for n in existing if is_published(n) or PICKLES.fullmatch(n)} - files.keys()
    if stale:
        log.info("deleting files of another model: %s", ", ".join(sorted(stale)))
    added = [CommitOperationAdd(name, folder / name) for name in files]
    api.create_commit(
        repo_id,
        operations=[*added, *map(CommitOperationDelete, sorted(stale))],
        commit_message="Upload a model with filbert",
    )
