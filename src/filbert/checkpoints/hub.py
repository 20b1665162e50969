"""Downloads models from the Hugging Face Hub and uploads them, with huggingface_hub.

The client reads HF_HOME, HF_TOKEN, HF_HUB_OFFLINE and HF_ENDPOINT. It is imported only for models
that are not found under a local name.
"""

from __future__ import annotations

import errno
import glob
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filbert.checkpoints.families import (
    BUNDLE_CONFIG,
    BUNDLE_VOCABULARY,
    GOOGLE_CONFIGS,
    PICKLES,
    SAFETENSORS,
    SENTENCE_FILES,
    TENSOR_BUNDLE,
)
from filbert.errors import ConfigError, FormatError, InputError, printable, unreadable_as
from filbert.files import read_json

log = logging.getLogger(__name__)

# Errors.


def hub_failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that huggingface_hub raises for failed requests."""
    from huggingface_hub import errors

    # requests.HTTPError before version 1 of huggingface_hub, httpx.HTTPError since.
    http = errors.HfHubHTTPError.__bases__[0]
    xet = getattr(errors, "XetDownloadError", OSError)
    # ValueError: a malformed answer; RuntimeError: how a failed upload is wrapped.
    return (OSError, ValueError, RuntimeError, http, xet, errors.EntryNotFoundError)


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
_BY_TYPE = {
    "GatedRepoError": "{repo} is gated on the Hugging Face Hub. Ask for access on its page, then "
    "set HF_TOKEN.",
    "RepositoryNotFoundError": "{repo!r} is no local folder and no model on the Hugging Face Hub "
    "(or a private one: set HF_TOKEN).",
    "RevisionNotFoundError": "{repo} has no revision {revision!r} on the Hugging Face Hub.",
}
_BY_STATUS = {
    401: "The Hugging Face Hub does not accept the token (HF_TOKEN or the login).",
    403: "The token has no right to this on {repo}. Use one that has.",
    429: "The Hugging Face Hub has had too many requests from here. Wait, or set HF_TOKEN.",
}


def explained(error: BaseException, repo: str, revision: str | None = None) -> str:
    """Return a sentence on what failed and what to do, for an exception of huggingface_hub.

    Args:
        error: One of `hub_failures`; its causes are considered too.
        repo: The Hub id of the request.
        revision: The revision of the request, if any.
    """
    from huggingface_hub import constants

    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    types = [type(link).__name__ for link in links]
    responses = [getattr(link, "response", None) for link in links]
    status = next((r.status_code for r in responses if r is not None), None)
    disk = [link for link in links if getattr(link, "errno", None) in _DISK]
    if known := [_BY_TYPE[name] for name in types if name in _BY_TYPE]:
        sentence = known[0]
    elif disk:
        place = getattr(disk[0], "filename", None) or constants.HF_HUB_CACHE
        return (
            f"{printable(str(place), 200)} cannot be written: {getattr(disk[0], 'strerror', '')}. "
            "Free some space, or set HF_HOME to another folder."
        )
    elif status is not None:
        sentence = _BY_STATUS.get(
            status, f"The Hugging Face Hub has failed (it answered {status}). Try again later."
        )
    elif any("Timeout" in name for name in types):
        sentence = "{endpoint} did not answer in time. Set HF_HUB_DOWNLOAD_TIMEOUT to wait longer."
    else:
        sentence = "{endpoint} could not be reached ({reason}). Check the network and HF_ENDPOINT."
    return sentence.format(
        repo=repo,
        revision=revision or "main",
        endpoint=constants.ENDPOINT,
        reason=f"{types[-1]}: {printable(' '.join(str(links[-1]).split()), 120)}",
    )


# Which files belong to a model.

_SMALL = frozenset(
    {
        "config.json",
        "filbert.json",
        "modules.json",
        "config_sentence_transformers.json",
        *SENTENCE_FILES,
        *GOOGLE_CONFIGS,
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.txt",
        "vocab.json",
        "merges.txt",
        "spiece.model",
        "sentencepiece.bpe.model",
        "30k-clean.model",  # ALBERT's, as published by Google
    }
)
# sentence-transformers numbers the folders of its modules: 1_Pooling, 2_Dense, 3_Normalize.
_MODULE = re.compile(r"(?P<folder>\d{1,2}_[A-Za-z]{1,40})/(?P<file>[^/]+)")
# Until 2020 the encoder was in such a folder, the first: 0_Transformer, 0_BERT.
_ENCODER = re.compile(r"0_[A-Za-z]{1,40}/(?=[^/]+$)")


def _is_small(name: str) -> bool:
    """Return whether a file describes a model or belongs to its tokenizer."""
    module = _MODULE.fullmatch(name)
    is_module_config = module is not None and module["file"] == "config.json"
    return is_module_config or _ENCODER.sub("", name) in _SMALL


def is_published(name: str) -> bool:
    """Return whether a file is uploaded: no training state, no data and no pickle.

    Args:
        name: Path relative to the model's folder.
    """
    module = _MODULE.fullmatch(name)
    if module is not None:
        return _is_small(name) or module["file"] == "model.safetensors"
    name = name.removeprefix("generator/")
    if "/" in name or name in GOOGLE_CONFIGS:
        return False
    return _is_small(name) or name == "README.md" or SAFETENSORS.fullmatch(name) is not None


def to_fetch(names: Iterable[str], *, tokenizer_only: bool = False) -> list[str]:
    """Return which files of a repository to download.

    safetensors are preferred to pickles, and both to a TensorFlow checkpoint.

    Args:
        names: All files, relative to the model's folder.
        tokenizer_only: No tensors are needed.
    """
    everything = set(names)
    chosen = {name for name in everything if _is_small(name)}
    if tokenizer_only:
        return sorted(chosen)
    # The card names the licence, which derived models inherit.
    chosen |= everything & {"README.md"} | _module_weights(everything)
    top = {name for name in everything if "/" not in name}
    for pattern in (SAFETENSORS, PICKLES) if "config.json" in everything else ():
        if tensors := {name for name in top if pattern.fullmatch(name)}:
            return sorted(chosen | tensors)
    bundle = {name for name in top if TENSOR_BUNDLE.fullmatch(name)}
    if any(name.removesuffix(".index") + ".data-00000-of-00001" in bundle for name in bundle):
        patterns = (BUNDLE_CONFIG, BUNDLE_VOCABULARY)
        chosen |= {name for name in top if any(pattern.fullmatch(name) for pattern in patterns)}
    return sorted(chosen | bundle)


def _module_weights(names: set[str]) -> set[str]:
    """Return the file of each module that its tensors are read from."""
    tensors = {f"{match['folder']}/" for match in map(_MODULE.fullmatch, names) if match}
    weights = (
        [
            name
            for file in ("model.safetensors", "pytorch_model.bin")
            if (name := at + file) in names
        ]
        for at in tensors
    )
    return {files[0] for files in weights if files}


# Downloads.


def is_offline(local_files_only: bool | None) -> bool:
    """Return whether downloads are switched off, by the argument or else by HF_HUB_OFFLINE."""
    if local_files_only is not None:
        return local_files_only
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


@contextmanager
def _bars_on_a_terminal_only() -> Iterator[None]:
    """Switch progress bars off where stderr is a file, unless the environment decides."""
    from huggingface_hub import constants, utils

    is_set = constants.HF_HUB_DISABLE_PROGRESS_BARS is not None
    if is_set or sys.stderr.isatty() or utils.are_progress_bars_disabled():  # type: ignore[attr-defined]
        yield
        return
    utils.disable_progress_bars()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        utils.enable_progress_bars()  # type: ignore[attr-defined]


def fetch(
    name: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    local_files_only: bool | None = None,
    tokenizer_only: bool = False,
) -> Path:
    """Download a model into huggingface_hub's cache and return its folder.

    Args:
        name: A Hub id, "owner/name".
        revision: A branch, tag or commit; by default the main branch.
        token: For private models; by default huggingface_hub's own (HF_TOKEN or the login).
        local_files_only: Never use the network; None means HF_HUB_OFFLINE decides.
        tokenizer_only: Do not download the weights.

    Raises:
        InputError: No such model or revision, no access, or no network and no complete copy.
        FormatError: The repository holds no weights, or several TensorFlow checkpoints.
    """
    import huggingface_hub
    from huggingface_hub import constants, errors

    if is_offline(local_files_only):
        folder = _cached(name, revision, tokenizer_only)
        if folder is None:
            raise InputError(
                f"{name!r} is no local folder, and there is no complete copy in the local cache. "
                "Downloads are switched off (HF_HUB_OFFLINE or local files only)."
            )
        return folder
    with _bars_on_a_terminal_only():
        try:
            # snapshot_download would send the same request without a timeout.
            info = huggingface_hub.HfApi(token=token).model_info(
                name, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT
            )
        except hub_failures() as error:
            why = explained(error, name, revision)
            folder = _cached(name, revision, tokenizer_only)
            if folder is None or isinstance(error, errors.RevisionNotFoundError):
                raise InputError(why) from error
            log.warning("%s Using the copy of %s in the local cache.", why, name)
            return folder
        published = [file.rfilename for file in info.siblings or ()]
        wanted = to_fetch(published, tokenizer_only=tokenizer_only)
        if not tokenizer_only:
            _check_weights(name, wanted)
        try:
            return Path(
                huggingface_hub.snapshot_download(
                    name,
                    revision=revision,
                    token=token,
                    allow_patterns=[glob.escape(file) for file in wanted],
                )
            )
        except hub_failures() as error:
            raise InputError(explained(error, name, revision)) from error


def _check_weights(name: str, wanted: list[str]) -> None:
    """Refuse a repository without weights, or with several checkpoints, before the download."""
    prefixes = [file.removesuffix(".index") for file in wanted if file.endswith(".index")]
    if len(prefixes) > 1:
        raise FormatError(
            f"{name} holds {len(prefixes)} checkpoints: {', '.join(map(printable, prefixes[:8]))}. "
            "Download one of them, and give its prefix."
        )
    patterns = (SAFETENSORS, PICKLES, TENSOR_BUNDLE)
    if not any(p.fullmatch(_ENCODER.sub("", file)) for p in patterns for file in wanted):
        raise FormatError(
            f"{name} holds no weights that filbert reads: no model.safetensors, pytorch_model.bin "
            "or TensorFlow checkpoint."
        )


def _cached(name: str, revision: str | None, tokenizer_only: bool) -> Path | None:
    """Return the copy in the cache, or None if there is no complete one."""
    import huggingface_hub

    try:
        # With the patterns of the download, files that are not needed would count as missing.
        folder = Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, local_files_only=True, allow_patterns=[]
            )
        )
    except hub_failures():
        return None
    is_complete = any(folder.iterdir()) if tokenizer_only else has_weights(folder)
    return folder if is_complete else None


def has_weights(folder: Path) -> bool:
    """Return whether a folder holds a configuration and all files of its weights."""
    from filbert.checkpoints.sentence_transformers import ModelFolder
    from filbert.checkpoints.weights import weight_files

    parts = [name for path in folder.iterdir() if TENSOR_BUNDLE.fullmatch(name := path.name)]
    if len({name.endswith(".index") for name in parts}) == 2:
        return True
    try:
        encoder = ModelFolder(folder).encoder
        files = [encoder / "config.json", *weight_files(encoder)]
    except FormatError:
        return False
    return all(file.is_file() for file in files)


# Uploads.


def check_repo(repo_id: str) -> None:
    """Check that a repository id has the form "owner/name".

    Raises:
        ConfigError: It has not.
    """
    if repo_id.count("/") != 1 or not all(repo_id.split("/")):
        raise ConfigError(f"{printable(repo_id)!r} is no repository: give owner/name.")


@unreadable_as(InputError)
def files_to_push(folder: Path) -> dict[str, int]:
    """Return the size in bytes of each file that `push` uploads, after loading the model.

    Args:
        folder: A model folder in Hugging Face's layout. Names are relative to it.

    Raises:
        FormatError: No model, one that filbert cannot load, weights in a pickle, or a file whose
            digest is not the one in filbert.json.
        InputError: No such folder.
    """
    from filbert.checkpoints.huggingface import check_digests
    from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
    from filbert.checkpoints.weights import weight_files

    if not folder.is_dir():
        raise InputError(f"{folder} is no local folder; only a folder can be uploaded.")
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    convert = f"Convert it first: filbert convert {folder} DIR --to huggingface"
    if "config.json" not in names:
        if names & set(GOOGLE_CONFIGS) or any(name.endswith(".index") for name in names):
            raise FormatError(f"{folder} holds a TensorFlow checkpoint. {convert}")
        hint = f" Did you mean {folder / 'model'}?" if "model/config.json" in names else ""
        raise FormatError(f"{folder} is no model: no config.json.{hint}")
    weights = {path.name for path in weight_files(folder)}
    if any(PICKLES.fullmatch(Path(name).name) for name in weights | _module_weights(names)):
        raise FormatError(f"{folder} holds weights in a pickle, which can run code. {convert}")
    for part in (folder, folder / "generator"):
        if (part / "config.json").is_file():
            read_checkpoint(part)
    read_tokenizer(folder)
    if "filbert.json" in names:
        filbert = read_json(folder / "filbert.json")
        listed = [name for name in filbert.get("files") or () if is_published(name)]
        if missing := sorted(set(listed) - names):
            raise FormatError(
                f"{folder}/filbert.json lists {printable(missing[0])}; it is missing."
            )
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
    token: str | None = None,
    revision: str | None = None,
    message: str | None = None,
    announce: Callable[[dict[str, int]], object] = lambda files: None,
) -> str:
    """Upload a model folder to the Hub in one commit, and return the model's address.

    The commit deletes weights and tokenizer files of another model in the repository, which a
    loader would read. All other files stay.

    Args:
        folder: A model folder; `files_to_push` chooses the files.
        repo_id: "owner/name"; created if missing.
        private: Create a private repository.
        token: With the right to write; by default huggingface_hub's own (HF_TOKEN or the login).
        revision: A branch, created if missing; by default the main branch.
        message: Message of the commit.
        announce: Called with size by file name before the upload.

    Raises:
        FormatError: As `files_to_push`, or the Hub does not accept the README.md.
        ConfigError: An invalid repository id, or a private upload to a public repository.
        InputError: No token or not the right one, no network, or the Hub refused.
    """
    import huggingface_hub
    from huggingface_hub import constants

    files = files_to_push(folder)
    check_repo(repo_id)
    if is_offline(None):
        raise InputError("HF_HUB_OFFLINE switches the network off. Unset it to upload.")
    token = token or huggingface_hub.get_token()
    if not token:
        raise InputError(
            "Uploading needs a token: set HF_TOKEN to one with the right to write, or log in with "
            "hf auth login."
        )
    announce(files)
    try:
        with _bars_on_a_terminal_only():
            api = huggingface_hub.HfApi(token=token)
            _commit(api, folder, files, repo_id, private, revision, message)
    except hub_failures() as error:
        if isinstance(error, ValueError) and "README.md" in str(error):
            reason = printable(" ".join(str(error).split()), 300)
            raise FormatError(
                f"{folder / 'README.md'}: the Hub does not accept its metadata: {reason}"
            ) from error
        raise InputError(explained(error, repo_id, revision)) from error
    branch = f"/tree/{revision}" if revision not in (None, "main") else ""
    return f"{constants.ENDPOINT}/{repo_id}{branch}"


def _commit(
    api: Any,
    folder: Path,
    files: dict[str, int],
    repo_id: str,
    private: bool,
    revision: str | None,
    message: str | None,
) -> None:
    """Create repository and branch if missing, and replace the model there in one commit."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    api.create_repo(repo_id, private=private or None, exist_ok=True)
    if private and not api.model_info(repo_id).private:
        raise ConfigError(
            f"{repo_id} is already public; nothing was uploaded. Make it private on its page, or "
            "choose another name."
        )
    if revision not in (None, "main"):
        api.create_branch(repo_id, branch=str(revision), exist_ok=True)
    siblings = api.model_info(repo_id, revision=revision).siblings or ()
    existing = {file.rfilename for file in siblings} - {"README.md"}
    stale = {n for n in existing if is_published(n) or PICKLES.fullmatch(n)} - files.keys()
    if stale:
        log.info("deleting files of another model: %s", ", ".join(sorted(stale)))
    api.create_commit(
        repo_id,
        operations=[
            *(CommitOperationAdd(name, folder / name) for name in files),
            *(CommitOperationDelete(name) for name in sorted(stale)),
        ],
        commit_message=message or "Upload a model with filbert",
        revision=revision,
    )
