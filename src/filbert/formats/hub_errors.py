"""What goes wrong between here and the Hugging Face Hub, in one sentence each."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from filbert.errors import printable

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
