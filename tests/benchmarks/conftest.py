"""What the tests of the comparisons share."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "against"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    """Modules of the benchmark's folder, which is no package, by name."""
    names = {path.stem for path in FOLDER.glob("*.py")}
    monkeypatch.syspath_prepend(str(FOLDER))

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield module
    for name in names:
        sys.modules.pop(name, None)
