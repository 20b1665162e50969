"""The commands of docs/vocab.md, docs/corpus.md and docs/pretrain.md run, in their order."""

from __future__ import annotations

import lzma
import re
import shlex
from pathlib import Path

import pytest

from filbert.cli.main import run
from filbert.recipes import built_in

DOCS = Path(__file__).parents[2] / "docs"

# Long options of the pages, and what makes them short.
SHORTER = [(r"--size \d+", "--size 400"), (r"--time \w+", "--time 1s"), (r"--workers \d+", "")]
SMALL_RUN = {"batch-size": 8, "max-length": 32, "dev-rows": 8, "precision": "float32"}
SMALL_MODEL = {"num-hidden-layers": 1, "hidden-size": 32, "num-attention-heads": 2}


def commands(page: str) -> list[str]:
    """The lines of a page that a reader would type."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def small(line: str) -> list[str]:
    """The words of a command behind `filbert`, with less to do."""
    for long, short in SHORTER:
        line = re.sub(long, short, line)
    if " pretrain " in line:
        flags = SMALL_RUN if " --model " in line else SMALL_RUN | SMALL_MODEL
        line += "".join(f" --{k} {v}" for k, v in flags.items() if f"--{k} " not in line)
    if " finetune " in line:
        line += " --steps 2 --max-length 32 --precision float32"
    return shlex.split(line, comments=True)[1:]


@pytest.fixture
def workplace(tmp_path, shared_data, monkeypatch) -> Path:
    """The files that the pages speak of, with little in them."""
    text = (shared_data / "google_bert_sample" / "sample_text.txt").read_bytes()
    (tmp_path / "eltec_small").mkdir()
    for name in ("train.txt.xz", "valid.txt.xz", "eltec_small/train.txt.xz"):
        (tmp_path / name).write_bytes(lzma.compress(text))
    (tmp_path / "tokenizers").symlink_to(shared_data / "tokenizers")
    (tmp_path / "words.txt").write_text("countenance\nparlour\nbonnet\n")
    rows = "".join(f"{'good' if i % 2 else 'bad'},film number {i}\n" for i in range(16))
    for name in ("labels.csv", "labels.dev.csv"):
        (tmp_path / name).write_text(f"label,text\n{rows}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("page", "least"), [("vocab.md", 1), ("corpus.md", 3), ("pretrain.md", 7)])
def test_the_commands_of_a_page_run(page, least, workplace):
    lines = commands(page)
    assert len(lines) >= least
    for line in lines:
        assert line.startswith("filbert ")
        assert run(small(line)) == 0, line


def test_the_pages_promise_no_recipe_that_is_missing():
    table = re.findall(
        r"^\| `([a-z][a-z0-9-]+)` \|", (DOCS / "pretrain.md").read_text(), re.MULTILINE
    )
    assert sorted(table) == sorted(path.stem for path in built_in())
