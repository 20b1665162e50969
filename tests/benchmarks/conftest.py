"""The benchmark scripts as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    """`load(name)` imports a module of benchmarks/ or benchmarks/against/."""
    folders = [FOLDER, FOLDER / "against"]
    for folder in folders:
        monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module
    for path in [path for folder in folders for path in folder.glob("*.py")]:
        sys.modules.pop(path.stem, None)
