"""The notebooks run from top to bottom, in this process and without IPython: plain Python only.

What the last line of a cell gives is shown as Jupyter would show it.
"""

from __future__ import annotations

import ast
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import filbert

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def cells_of(path: Path) -> list[dict[str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    return content["cells"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch, capsys):
    def shorter(*, epochs=None, **options):
        return finetune(**options | {"steps": 2})

    finetune = filbert.finetune
    monkeypatch.setattr(filbert, "finetune", shorter)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells_of(path)):
        if cell["cell_type"] != "code":
            continue
        parts = ast.parse("".join(cell["source"]))
        shown = parts.body.pop() if isinstance(parts.body[-1], ast.Expr) else None
        where = f"{path.name}, cell {number}"
        exec(compile(parts, where, "exec", dont_inherit=True), names)
        if shown is not None:
            value = eval(compile(ast.Expression(shown.value), where, "eval"), names)
            assert getattr(value, "_repr_html_", value.__repr__)()
    # The one that pre-trains ends by asking what it has learnt.
    if path.stem.startswith("6"):
        assert "barks" in capsys.readouterr().out.rpartition("dog")[2]
