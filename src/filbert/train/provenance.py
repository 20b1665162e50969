"""Where a run's figures come from: the code, the libraries, the model it started from."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from filbert.checkpoints.weights import weight_files
from filbert.errors import FormatError
from filbert.files import sha256_of
from filbert.train.options import DECLARED

# Names that only filbert knows, as the Hub knows them; None where it does not.
BUILT_IN = {
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2",
    "filbert-mini": None,
}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_CARD_CHARACTERS = 2**16


def versions() -> dict[str, str]:
    """Of Python and the libraries that decide what a run computes."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "tokenizers": version("tokenizers"),
    }


def commit() -> str | None:
    """The git commit that filbert runs from, with "+changes-" and a
    hash of them behind it when its code was changed.

    None for an installed package, or where git does not answer.
    """
    package = Path(__file__).parents[1]
    root = package.parents[1]
    git = shutil.which("git")
    if git is None or package != root / "src" / "filbert" or not (root / ".git").exists():
        return None

    def ask(*words: str) -> str:
        return subprocess.run(
            [git, "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        found = ask("rev-parse", "HEAD")
        changes = ask("diff", "HEAD", "--", "src")
    except (OSError, subprocess.SubprocessError):
        return None
    # Two trees that were changed after the same commit need not be alike.
    return f"{found}+changes-{sha256(changes.encode()).hexdigest()[:12]}" if changes else found


def base_model(name: str, folder: Path | None) -> dict[str, Any]:
    """The model that a run starts from: its name, the sha256 of its files, what its card says.

    Args:
        name: as the user gave it.
        folder: where it lies; what describes it and holds its weights is hashed.

    Returns:
        `name`; `hub_id`, None for a folder of the user's; `files`: name -> {"sha256"}; `license`
        and `language` (a list) of its model card, None where it has none.
    """
    paths: list[Path] = []
    if folder is not None:
        try:
            paths = [folder / "config.json", *weight_files(folder)]
        except FormatError:  # a checkpoint of Google's
            paths = [*folder.glob("*_config.json"), *folder.glob("*.data-?????-of-?????")]
    files = {path.name: {"sha256": sha256_of(path)} for path in sorted(paths) if path.is_file()}
    card = folder / "README.md" if folder is not None else None
    return {"name": name, "hub_id": _hub_id(name), "files": files, **_declared(card)}


def _hub_id(name: str) -> str | None:
    if name in BUILT_IN:
        return BUILT_IN[name]
    hub_id = name.partition("@")[0]  # without the revision
    is_id = _HUB_ID.fullmatch(hub_id) and not Path(name).exists()
    return hub_id if is_id else None


def _declared(card: Path | None) -> dict[str, Any]:
    """License and languages in the front matter of a model card.

    Only these two keys are looked for, in the forms that cards use, so no YAML is interpreted.
    """
    found: dict[str, Any] = {"license": None, "language": None}
    if card is None or not card.is_file():
        return found
    try:
        with card.open(encoding="utf-8-sig") as file:
            text = file.read(_CARD_CHARACTERS)
    except (OSError, ValueError):
        return found
    begin, _, rest = text.partition("---\n")
    front = f"\n{rest}".partition("\n---")[0] if not begin.strip() else ""
    for key in found:
        entry = re.search(rf"^{key}:[ ]*(.*(?:\n[ ]*-[ ]+.*)*)", front, re.MULTILINE)
        items = re.findall(r"[^\s,\[\]'\"]+", entry[1]) if entry else []
        kept = [item for item in items if re.fullmatch(DECLARED[key], item)]
        if kept:
            found[key] = kept if key == "language" else kept[0]
    return found
