"""The commands of docs/finetune.md run, in their order."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

from filbert.cli.main import run

PAGE = (Path(__file__).parents[2] / "docs" / "finetune.md").read_text(encoding="utf-8")

WORDS = ["Ada", "met", "Alan", "in", "London", "and", "they", "spoke", "of", "engines"]


def task_files(folder: Path) -> None:
    """The files that docs/finetune.md speaks of: a few rows each."""
    for part, count in (("", 16), (".dev", 8)):
        texts = [" ".join(WORDS[i % 4 :]) for i in range(count)]
        with (folder / f"sts{part}.csv").open("w", newline="") as file:
            rows = [(t, f"{t} {i}", i % 6) for i, t in enumerate(texts)]
            csv.writer(file).writerows([("text", "text_pair", "label"), *rows])
        with (folder / f"pairs{part}.csv").open("w", newline="") as file:
            rows = [(f"{t} {i}", f"{i} {t}") for i, t in enumerate(texts)]
            csv.writer(file).writerows([("text", "text_pair"), *rows])
        tagged = "\n".join(f"{w}\t{'B-PER' if w in ('Ada', 'Alan') else 'O'}" for w in WORDS)
        (folder / f"ner{part}.conll").write_text(f"{tagged}\n\n" * count)
        lines = [
            {"context": t, "choices": ["engines", f"cats {i}"], "label": 0}
            for i, t in enumerate(texts)
        ]
        (folder / f"choices{part}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        questions = [
            {
                "id": f"{part}{i}",
                "question": f"Where did they meet, {i}?",
                "answers": [{"text": "London", "answer_start": text.index("London")}],
            }
            for i, text in enumerate(texts)
        ]
        paragraphs = [
            {"context": text, "qas": [qa]} for text, qa in zip(texts, questions, strict=True)
        ]
        content = {"version": "1.1", "data": [{"title": "engines", "paragraphs": paragraphs}]}
        (folder / f"squad{part}.json").write_text(json.dumps(content))


def test_the_commands_of_the_fine_tuning_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    task_files(tmp_path)
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    lines = [x for block in blocks for x in block.splitlines() if x.strip()]
    assert len(lines) >= 13
    for line in lines:
        if " finetune " in line or " verify-resume " in line:
            line += " --steps 3 --eval-every 2 --max-length 32 --precision float32"
        status = run(shlex.split(line, comments=True)[1:])
        assert status == 0, f"{line}\n{capsys.readouterr().err[-2000:]}"
    assert len(list((tmp_path / "runs").glob("*/report.html"))) == 10
