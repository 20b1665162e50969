"""The notebooks of the course run and show what is stored; all but the first are slow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

COURSE = sorted((Path(__file__).parents[2] / "notebooks" / "course").glob("*.ipynb"))
SLOW = [pytest.param(path, marks=pytest.mark.slow) for path in COURSE[1:]]


def shown(content: dict[str, Any]) -> list[list[str]]:
    """Return for each cell what kinds of outputs it has, apart from logs."""
    return [
        [o["output_type"] for o in cell.get("outputs", []) if o.get("name") != "stderr"]
        for cell in content["cells"]
    ]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", [COURSE[0], *SLOW], ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(path, load, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    stored = shown(json.loads(path.read_text(encoding="utf-8")))
    assert shown(load("run_notebooks").run_notebook(path)) == stored
