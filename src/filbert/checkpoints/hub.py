"""Downloads models from the Hugging Face Hub with huggingface_hub.

The client reads HF_HOME, HF_TOKEN, HF_HUB_OFFLINE and HF_ENDPOINT. It is imported only for models
that are not found under a local name.
"""

from __future__ import annotations

import glob
import logging
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from filbert.checkpoints.families import (
    ADAPTER_CONFIG,
    ADAPTER_FILES,
    BUNDLE_CONFIG,
    BUNDLE_VOCABULARY,
    GOOGLE_CONFIGS,
    PICKLES,
    SAFETENSORS,
    SENTENCE_FILES,
    TENSOR_BUNDLE,
)
from filbert.errors import FormatError, InputError, printable

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


_BY_TYPE = {
    "GatedRepoError": "{repo} is gated on the Hugging Face Hub. Ask for access on its page, then "
    "set HF_TOKEN.",
    "RepositoryNotFoundError": "{repo} is no model on the Hugging Face Hub (or a private one: set "
    "HF_TOKEN).",
    "RevisionNotFoundError": "{repo} has no revision {revision!r} on the Hugging Face Hub.",
}
_BY_STATUS = {
    401: "The Hugging Face Hub does not accept the token (HF_TOKEN or the login).",
    403: "The token has no right to this on {repo}. Use one that has.",
    429: "The Hugging Face Hub has had too many requests from here. Wait, or set HF_TOKEN.",
}


def explained(error: BaseException, repo: str, revision: str | None = None) -> str:
    """Return a sentence on what failed and what to do, for an exception of huggingface_hub."""
    from huggingface_hub import constants

    links = [error]
    while (link := links[-1].__cause__ or links[-1].__context__) and link not in links:
        links.append(link)
    names = [name for link in links if (name := type(link).__name__) in _BY_TYPE]
    responses = [r for link in links if (r := getattr(link, "response", None)) is not None]
    if names:
        sentence = _BY_TYPE[names[0]]
    elif responses:
        status = responses[0].status_code
        failed = f"The Hugging Face Hub has failed (it answered {status}). Try again later."
        sentence = _BY_STATUS.get(status, failed)
    else:
        reason = f"{type(links[-1]).__name__}: {' '.join(str(links[-1]).split())}"
        return (
            f"The request to {constants.ENDPOINT} failed ({printable(reason, 200)}). Check the "
            "network, HF_ENDPOINT, and the free space in HF_HOME."
        )
    return sentence.format(repo=repo, revision=revision or "main")


# Which files belong to a model. Names are paths relative to its folder.

_SMALL = (
    "config.json", ADAPTER_CONFIG, "filbert.json", "modules.json",
    "config_sentence_transformers.json", "router_config.json",
    *SENTENCE_FILES, *GOOGLE_CONFIGS, "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json", "merges.txt",
    "spiece.model", "sentencepiece.bpe.model", "spm.model",
    "30k-clean.model",  # ALBERT's, as published by Google
)  # fmt: skip
# sentence-transformers numbers the folders of its modules: 1_Pooling, 2_Dense, 3_Normalize. Those
# of a Router's routes begin with the route: query_0_Transformer.
_ROUTE = r"([A-Za-z]{1,40}_)?"
_MODULE = re.compile(rf"(?P<folder>{_ROUTE}\d{{1,2}}_[A-Za-z]{{1,40}})/(?P<file>[^/]+)")
# Until 2020 the encoder was in such a folder, the first: 0_Transformer, 0_BERT.
_ENCODER = re.compile(rf"{_ROUTE}0_[A-Za-z]{{1,40}}/(?=[^/]+$)")


def is_small(name: str) -> bool:
    """Return whether a file describes a model or belongs to its tokenizer."""
    module = _MODULE.fullmatch(name)
    is_module_config = module is not None and module["file"] == "config.json"
    return is_module_config or _ENCODER.sub("", name) in _SMALL


def is_published(name: str) -> bool:
    """Return whether a file is uploaded: no training state, no data and no pickle."""
    module = _MODULE.fullmatch(name)
    if module is not None:
        return is_small(name) or module["file"] == "model.safetensors"
    name = name.removeprefix("generator/")
    if "/" in name or name in GOOGLE_CONFIGS:
        return False
    if name in ("README.md", ADAPTER_FILES[0]):
        return True
    return is_small(name) or SAFETENSORS.fullmatch(name) is not None


def to_fetch(names: Iterable[str], *, tokenizer_only: bool = False) -> list[str]:
    """Return which files of a repository to download.

    safetensors are preferred to pickles, and both to a TensorFlow checkpoint.
    """
    everything = set(names)
    chosen = {name for name in everything if is_small(name)}
    if tokenizer_only:
        return sorted(chosen)
    # The card names the licence, which derived models inherit.
    chosen |= everything & {"README.md"} | module_weights(everything)
    top = {name for name in everything if "/" not in name}
    # A table of word vectors has no config.json.
    for pattern in (SAFETENSORS, PICKLES) if everything & {"config.json", "modules.json"} else ():
        if tensors := {name for name in top if pattern.fullmatch(name)}:
            return sorted(chosen | tensors)
    adapters = [name for name in ADAPTER_FILES if name in everything]
    if ADAPTER_CONFIG in everything and adapters:
        return sorted(chosen | {adapters[0]})
    bundle = {name for name in top if TENSOR_BUNDLE.fullmatch(name)}
    if any(name.removesuffix(".index") + ".data-00000-of-00001" in bundle for name in bundle):
        patterns = (BUNDLE_CONFIG, BUNDLE_VOCABULARY)
        chosen |= {name for name in top if any(pattern.fullmatch(name) for pattern in patterns)}
    return sorted(chosen | bundle)


def module_weights(names: set[str]) -> set[str]:
    """Return the file of each module that its tensors are read from."""
    folders = {match["folder"] for match in map(_MODULE.fullmatch, names) if match}
    files = ("pytorch_model.bin", "model.safetensors")
    found = {at: f"{at}/{file}" for file in files for at in folders if f"{at}/{file}" in names}
    return set(found.values())


def fetch(name: str, *, revision: str | None = None, tokenizer_only: bool = False) -> Path:
    """Download a model, "owner/name", into huggingface_hub's cache and return its folder.

    Raises:
        InputError: No such model or revision, no access, or no network and no copy.
        FormatError: The repository holds no weights, or several TensorFlow checkpoints.
    """
    import huggingface_hub
    from huggingface_hub import constants, errors

    if constants.HF_HUB_OFFLINE:
        folder = _cached(name, revision)
        if folder is None:
            raise InputError(
                f"The cache has no copy of {name}, and downloads are switched off (HF_HUB_OFFLINE)."
            )
        return folder
    try:
        # snapshot_download would send the same request without a timeout.
        info = huggingface_hub.HfApi().model_info(
            name, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT
        )
    except hub_failures() as error:
        why = explained(error, name, revision)
        folder = _cached(name, revision)
        if folder is None or isinstance(error, errors.RevisionNotFoundError):
            raise InputError(why) from error
        log.warning("%s Using the copy of %s in the local cache.", why, name)
        return folder
    wanted = to_fetch(
        [file.rfilename for file in info.siblings or ()], tokenizer_only=tokenizer_only
    )
    if not tokenizer_only:
        _check_weights(name, wanted)
    patterns = [glob.escape(file) for file in wanted]
    _keep_bars_out_of_logs()
    try:
        return Path(
            huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=patterns)
        )
    except hub_failures() as error:
        raise InputError(explained(error, name, revision)) from error


def _keep_bars_out_of_logs() -> None:
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        disable_progress_bars()


def _check_weights(name: str, wanted: list[str]) -> None:
    """Refuse a repository without weights, or with several checkpoints, before the download."""
    prefixes = [file.removesuffix(".index") for file in wanted if file.endswith(".index")]
    if len(prefixes) > 1:
        raise FormatError(
            f"{name} holds {len(prefixes)} checkpoints: {', '.join(map(printable, prefixes[:8]))}. "
            "Download one of them, and give its prefix."
        )
    patterns = (SAFETENSORS, PICKLES, TENSOR_BUNDLE)
    found = any(p.fullmatch(_ENCODER.sub("", file)) for p in patterns for file in wanted)
    if not found and not set(ADAPTER_FILES) & set(wanted):
        raise FormatError(
            f"{name} holds no weights that filbert reads: no model.safetensors, pytorch_model.bin "
            "or TensorFlow checkpoint."
        )


def _cached(name: str, revision: str | None) -> Path | None:
    """Return the copy in the cache, or None if there is none."""
    import huggingface_hub

    try:
        # With the patterns of the download, files that are not needed would count as missing.
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, local_files_only=True, allow_patterns=[]
            )
        )
    except hub_failures():
        return None
