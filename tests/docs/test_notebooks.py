"""The notebooks run from top to bottom, in this process and without IPython: plain Python only.

What the last line of a cell gives is shown as Jupyter would show it. Real data are replaced by a
few rows in the same files, and MiniLM by a tiny model.
"""

from __future__ import annotations

import ast
import gzip
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


def write_data(folder: Path) -> None:
    """Write the files that the notebooks read, with a few rows."""
    table = "text\tlabel\n" + "the film was good\tpos\na bad play\tneg\n" * 10
    words = "the O\nfilm B-album\n\na O\nplay B-song\n\n"
    papers = [{"_id": str(i), "title": f"film {i}", "text": "it was good"} for i in range(9)]
    claims = [{"_id": "7", "text": "film 3 was good"}]
    lines = ["\n".join(map(json.dumps, part)) for part in (papers, claims)]
    answers = [{"text": "good", "answer_start": 7}]
    asked = [{"id": str(i), "question": "how?", "answers": answers} for i in range(30)]
    texts = [[{"context": "it was good", "qas": [one]}] for one in asked]
    articles = [{"title": text[0]["qas"][0]["id"], "paragraphs": text} for text in texts]
    files = {
        **{f"banking77/{part}.tsv.gz": table for part in ("train", "dev")},
        **{f"crossner/music/{part}.conll.gz": words for part in ("train", "dev", "test")},
        "scifact/corpus.jsonl.gz": lines[0],
        "scifact/queries.jsonl.gz": lines[1],
        "squad/dev-v1.1.json.gz": json.dumps({"version": "1.1", "data": articles}),
        "scifact/qrels/dev.tsv": "query-id\tcorpus-id\tscore\n7\t3\t1\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, tiny_model, monkeypatch):
    def shorter(*, epochs=None, **options):
        model = str(tiny_model) if options["model"] == "minilm" else options["model"]
        return finetune(**options | {"steps": 2, "model": model})

    def load(name, **options):
        return load_model(str(tiny_model) if name == "minilm" else name, **options)

    finetune, load_model, pretrain = filbert.finetune, filbert.load, filbert.pretrain
    monkeypatch.setattr(filbert, "finetune", shorter)
    monkeypatch.setattr(filbert, "load", load)
    monkeypatch.setattr(filbert, "pretrain", lambda **given: pretrain(**given | {"steps": 2}))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("FILBERT_DATA", str(tmp_path / "data"))
    write_data(tmp_path / "data")
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
