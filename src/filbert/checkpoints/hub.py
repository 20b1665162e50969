"""Models from and to the Hugging Face Hub, through its own client: cache, token, resumed downloads.

huggingface_hub reads HF_HOME, HF_TOKEN, HF_HUB_OFFLINE and HF_ENDPOINT. It is imported only when a
model is asked for that is not on this machine under its own name.
"""

from __future__ import annotations

import errno
import glob
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filbert.checkpoints.model_files import (
    GOOGLE_CONFIGS,
    PICKLES,
    SAFETENSORS,
    TENSOR_BUNDLE,
    beside_encoder,
    is_published,
    module_weights,
    to_fetch,
)
from filbert.errors import ConfigError, FormatError, InputError, printable, unreadable_as
from filbert.files import sha256_of

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)


def hub_failures() -> tuple[type[Exception], ...]:
    """The exceptions by which huggingface_hub says that something failed on the way.

    Its HTTP library was another one before version 1, and is named nowhere here.
    """
    from huggingface_hub import errors

    http = errors.HfHubHTTPError.__bases__[0]
    xet = getattr(errors, "XetDownloadError", OSError)
    # ValueError: a malformed answer; RuntimeError: how a failed upload is wrapped.
    return (OSError, ValueError, RuntimeError, http, xet, errors.EntryNotFoundError)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an exception, if the Hub answered at all."""
    for link in _chain(error):
        status = getattr(getattr(link, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
    return None


def explained(
    error: BaseException, repo: str, revision: str | None = None, *, uploading: bool = False
) -> str:
    """One sentence on what failed, and what to do about it.

    Args:
        error: what huggingface_hub raised.
        repo: the Hub id that was asked for.
        revision: of it, if one was asked for.
        uploading: rather than fetching.
    """
    from huggingface_hub import constants, errors

    links = list(_chain(error))
    for link in links:
        if isinstance(link, errors.GatedRepoError):
            return (
                f"{repo} is gated on the Hugging Face Hub: ask for access on its page, then set "
                "HF_TOKEN to a token of yours."
            )
        if isinstance(link, errors.DisabledRepoError):
            return f"{repo} has been disabled on the Hugging Face Hub."
        if isinstance(link, errors.RepositoryNotFoundError):
            if uploading:
                return f"{repo} is not there on the Hugging Face Hub, or not for this token."
            return (
                f"{repo!r} is no folder here and no model on the Hugging Face Hub (or a private "
                "one: set HF_TOKEN)."
            )
        if isinstance(link, errors.RevisionNotFoundError):
            return f"{repo} has no revision {revision or 'main'!r} on the Hugging Face Hub."
        if isinstance(link, errors.FileMetadataError):
            return (
                f"{constants.ENDPOINT} does not answer as a Hugging Face Hub does. Check "
                "HF_ENDPOINT, and proxies on the way."
            )
        code = link.errno if isinstance(link, OSError) else None
        if code in _NO_ROOM:
            return (
                f"No room left on the disk of {constants.HF_HUB_CACHE} while fetching {repo}. Free "
                "some space, or set HF_HOME to a larger disk."
            )
        if code in _NO_ACCESS:
            place = getattr(link, "filename", None) or constants.HF_HUB_CACHE
            return (
                f"{printable(str(place), 200)} cannot be written to. Set HF_HOME to a folder of "
                "yours."
            )
    status = status_of(error)
    if status is not None:
        return _answered(status, repo, links)
    if any("Timeout" in type(link).__name__ for link in links):
        return (
            f"{constants.ENDPOINT} did not answer in time. Try again; HF_HUB_DOWNLOAD_TIMEOUT "
            "sets the seconds to wait."
        )
    root = links[-1]
    reason = printable(" ".join(str(root).split()), 120)
    if isinstance(error, ValueError):
        return f"{constants.ENDPOINT} and this machine do not understand each other: {reason}."
    return (
        f"{constants.ENDPOINT} could not be reached ({type(root).__name__}: {reason}). Check the "
        "network, and HF_ENDPOINT if it is set."
    )


def _answered(status: int, repo: str, links: list[BaseException]) -> str:
    said = next((s for link in links if (s := getattr(link, "server_message", None))), "")
    detail = f": {printable(' '.join(str(said).split()), 200)}" if said else ""
    if status == 401:
        return f"The Hugging Face Hub does not accept the token (HF_TOKEN or the login){detail}."
    if status == 403:
        return f"The token has no right to this on {repo}{detail}. Use one that has."
    if status == 429:
        return "The Hugging Face Hub has had too many requests from here; wait, or set HF_TOKEN."
    if status >= 500:
        return f"The Hugging Face Hub is out of order (it answered {status}). Try again later."
    return f"The Hugging Face Hub refused the request for {repo} (it answered {status}{detail})."


log = logging.getLogger(__name__)


def is_offline(local_files_only: bool | None) -> bool:
    """Whether nothing may be fetched: as asked for, else by HF_HUB_OFFLINE."""
    if local_files_only is not None:
        return local_files_only
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


@contextmanager
def _bars_on_a_terminal_only() -> Iterator[None]:
    """Progress bars go to stderr, and into no log file, unless the user's environment says so."""
    from huggingface_hub import constants
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    asked = constants.HF_HUB_DISABLE_PROGRESS_BARS is not None
    if asked or sys.stderr.isatty() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def fetch(
    name: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    local_files_only: bool | None = None,
    tokenizer_only: bool = False,
) -> Path:
    """The folder of a Hub model in huggingface_hub's cache, with the files that filbert reads.

    Args:
        name: a Hub id, "owner/name".
        revision: a branch, tag or commit; the main branch when not given.
        token: for private models; without it, huggingface_hub's own (HF_TOKEN or the login).
        local_files_only: never touch the network; None leaves it to HF_HUB_OFFLINE.
        tokenizer_only: leave the weights where they are.

    Raises:
        InputError: no such model or revision, no access, no network and no whole copy in the cache.
        FormatError: there are several checkpoints to choose from.
    """
    import huggingface_hub
    from huggingface_hub import constants, errors

    at = f" at revision {revision!r}" if revision else ""
    if is_offline(local_files_only):
        folder = _cached(name, revision, tokenizer_only)
        if folder is None:
            raise InputError(
                f"{name!r} is no folder here and not, or not whole, in the local cache{at}, and "
                "fetching is switched off (HF_HUB_OFFLINE or local files only). Check the path, or "
                "switch it on."
            )
        return folder
    with _bars_on_a_terminal_only():
        try:
            # snapshot_download would ask the same, but wait for an answer without end.
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
        _check_choice(name, published, wanted, tokenizer_only)
        try:
            folder = Path(
                huggingface_hub.snapshot_download(
                    name,
                    revision=revision,
                    token=token,
                    allow_patterns=[glob.escape(file) for file in wanted],
                )
            )
        except hub_failures() as error:
            raise InputError(explained(error, name, revision)) from error
    return folder


def _check_choice(name: str, published: list[str], wanted: list[str], tokenizer_only: bool) -> None:
    """Refuse before anything large is fetched."""
    if tokenizer_only:
        return
    prefixes = [file.removesuffix(".index") for file in wanted if file.endswith(".index")]
    if len(prefixes) > 1:
        raise FormatError(
            f"{name} holds {len(prefixes)} checkpoints: {', '.join(map(printable, prefixes[:8]))}. "
            "Download the one you want, and name its prefix."
        )
    patterns = (SAFETENSORS, PICKLES, TENSOR_BUNDLE)
    if not any(
        pattern.fullmatch(file) for pattern in patterns for file in map(beside_encoder, wanted)
    ):
        found = ", ".join(map(printable, sorted(published)[:8])) or "nothing"
        more = ", ..." if len(published) > 8 else ""
        raise FormatError(
            f"{name} holds no weights that filbert reads: no model.safetensors, pytorch_model.bin "
            f"or TensorFlow checkpoint (found: {found}{more})."
        )


def _cached(name: str, revision: str | None, tokenizer_only: bool) -> Path | None:
    """The copy in the cache, if it is there with all that is needed."""
    import huggingface_hub

    try:
        # No patterns: with them, files that nobody needs would make the copy count as incomplete.
        folder = Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, local_files_only=True, allow_patterns=[]
            )
        )
    except hub_failures():
        return None
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if tokenizer_only:
        return folder if files else None
    return folder if _is_whole(folder, files) else None


def _is_whole(folder: Path, files: set[str]) -> bool:
    if not _has_modules(folder, files):
        return False
    own = set(map(beside_encoder, files))
    for file in ("model.safetensors", "pytorch_model.bin") if "config.json" in own else ():
        if file in own:
            return True
        index = f"{file}.index.json"
        if index in files:
            try:
                table = json.loads((folder / index).read_bytes())["weight_map"]
                return set(table.values()) <= files
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                return True  # damaged, which its reader says better
    parts = [part for part in map(TENSOR_BUNDLE.fullmatch, files) if part]
    return len({part[0].endswith(".index") for part in parts}) == 2


def _has_modules(folder: Path, files: set[str]) -> bool:
    """Whether the modules are there that modules.json names, if there is one."""
    if "modules.json" not in files:
        return True
    weights = {name.rpartition("/")[0] for name in module_weights(files)}
    try:
        modules = [
            (m["type"], m["path"]) for m in json.loads((folder / "modules.json").read_bytes())
        ]
        return all(
            f"{path}/config.json" in files and (path in weights or not kind.endswith("Dense"))
            for kind, path in modules
            # A folder elsewhere is not fetched either, and Normalize has nothing to keep.
            if is_published(f"{path}/config.json") and not kind.endswith("Normalize")
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return True  # damaged, which its reader says better


def check_repo(repo_id: str) -> None:
    """Refuse what is no name of a repository.

    Raises:
        ConfigError: it is not "owner/name".
    """
    if repo_id.count("/") != 1 or not all(repo_id.split("/")):
        raise ConfigError(f"{printable(repo_id)!r} is no repository: give owner/name.")


@unreadable_as(InputError)
def files_to_push(folder: Path) -> dict[str, int]:
    """Bytes by name of what `push` uploads, after making sure that it is a whole model.

    Args:
        folder: a model folder in Hugging Face's layout. Names are relative to it.

    Raises:
        FormatError: no model, one that filbert cannot load, weights in a pickle, or a file that is
            not the one listed in filbert.json.
        InputError: no such folder.
    """
    from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
    from filbert.checkpoints.weights import weight_files

    if not folder.is_dir():
        raise InputError(f"{folder} is no folder here; only a folder can be uploaded.")
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if "config.json" not in names:
        if any(name in names for name in GOOGLE_CONFIGS) or any(
            name.endswith(".index") for name in names
        ):
            raise FormatError(
                f"{folder} holds a TensorFlow checkpoint. Convert it first: filbert convert "
                f"{folder} DIR --to huggingface"
            )
        hint = f" Did you mean {folder / 'model'}?" if "model/config.json" in names else ""
        raise FormatError(f"{folder} is no model: no config.json.{hint}")
    weights = {path.name for path in weight_files(folder)}
    read = {name.rpartition("/")[2] for name in weights | module_weights(names)}
    if any(PICKLES.fullmatch(name) for name in read):
        raise FormatError(
            f"{folder} holds its weights as a pickle, which nobody can load safely. Convert it "
            f"first: filbert convert {folder} DIR --to huggingface"
        )
    read_checkpoint(folder)
    read_tokenizer(folder)
    if "generator/config.json" in names:
        read_checkpoint(folder / "generator")
    _check_listed(folder)
    chosen = {
        n for n in names if is_published(n) and (n in weights or not SAFETENSORS.fullmatch(n))
    }
    return {name: (folder / name).stat().st_size for name in sorted(chosen)}


def _check_listed(folder: Path) -> None:
    """Compare every file that filbert.json lists with its digest there."""
    path = folder / "filbert.json"
    if not path.is_file():
        return
    try:
        listed = dict(json.loads(path.read_bytes()).get("files") or {})
        digests = {name: entry.get("sha256") for name, entry in listed.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise FormatError(f"{path} does not list its files as it should.") from error
    for name, digest in digests.items():
        if not is_published(name):
            continue
        if not (folder / name).is_file():
            raise FormatError(f"{path} lists {printable(name)}, which is missing.")
        if digest is not None and sha256_of(folder / name) != digest:
            raise FormatError(
                f"{folder / name} is damaged or was changed: its sha256 is not the one in "
                "filbert.json. Restore it; if you changed it on purpose, remove its entry there."
            )


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
    """Upload a model folder to the Hub, in one commit.

    Files of another model that a loader would take there (other weights, tokenizer files) go with
    the same commit; everything else in the repository stays.

    Args:
        folder: a model folder; what is uploaded of it, `files_to_push` says.
        repo_id: "owner/name"; made when it is not there.
        private: make a repository that only its owner sees.
        token: with the right to write; without it, huggingface_hub's own (HF_TOKEN or the login).
        revision: a branch; made when it is not there. The main branch when not given.
        message: of the commit.
        announce: told the files, bytes by name, before the first is sent.

    Returns:
        The address of the model.

    Raises:
        FormatError: as `files_to_push`, or a README.md whose head the Hub does not take.
        ConfigError: a repository id that cannot be, or a private upload to a public repository.
        InputError: no token or not the right one, no network, or the Hub refused.
    """
    files = files_to_push(folder)
    import huggingface_hub
    from huggingface_hub import constants

    check_repo(repo_id)
    if is_offline(None):
        raise InputError("HF_HUB_OFFLINE switches the network off. Unset it to upload.")
    token = token or huggingface_hub.get_token()
    if not token:
        raise InputError(
            "Uploading needs a token: set HF_TOKEN to one with the right to write, or log in with "
            "hf auth login."
        )
    api = huggingface_hub.HfApi(token=token)
    announce(files)
    with _bars_on_a_terminal_only():
        try:
            there = _open_repository(api, repo_id, private, revision)
            stale = {n for n in there if is_published(n) or PICKLES.fullmatch(n)} - files.keys()
            stale.discard("README.md")
            if stale:
                log.info("removing what belonged to another model: %s", ", ".join(sorted(stale)))
            api.create_commit(
                repo_id,
                operations=[
                    *(huggingface_hub.CommitOperationAdd(n, folder / n) for n in files),
                    *(huggingface_hub.CommitOperationDelete(n) for n in sorted(stale)),
                ],
                commit_message=message or "Upload a model with filbert",
                revision=revision,
            )
        except hub_failures() as error:
            if isinstance(error, ValueError) and "README.md" in str(error):
                raise FormatError(
                    f"{folder / 'README.md'}: the Hub does not take its head: "
                    f"{printable(' '.join(str(error).split()), 300)}"
                ) from error
            raise InputError(explained(error, repo_id, revision, uploading=True)) from error
    branch = f"/tree/{revision}" if revision not in (None, "main") else ""
    return f"{constants.ENDPOINT}/{repo_id}{branch}"


def _open_repository(api: Any, repo_id: str, private: bool, revision: str | None) -> set[str]:
    """Make repository and branch where they are missing; the names of the files there."""
    from huggingface_hub import constants, errors

    timeout = constants.HF_HUB_ETAG_TIMEOUT
    try:
        info = api.model_info(repo_id, timeout=timeout)
    except errors.RepositoryNotFoundError:
        info = None
    if info is None:
        api.create_repo(repo_id, private=private or None)
    elif private and not info.private:
        raise ConfigError(
            f"{repo_id} is there already and public; nothing was uploaded. Make it private on "
            "its page, or name another."
        )
    if revision not in (None, "main"):
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    info = api.model_info(repo_id, revision=revision, timeout=timeout)
    return {file.rfilename for file in info.siblings or ()}
