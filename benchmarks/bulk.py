"""How fast `filbert embed` and `predict` are next to their model alone: rows/s of both, in turns.

    python benchmarks/bulk.py --model minilm --rows 20000
    python benchmarks/bulk.py --verb predict --model runs/toxic/model --rows 20000
    python benchmarks/bulk.py --command --rows 1000000 --median 8 --precision bf16

The verb: rows are read from a CSV file, tokenised, run, pooled or decoded, written and journalled,
as `filbert embed --out X.npy` does it once the model is loaded. The model alone: the same chunks,
tokenised beforehand, run (and pooled), in the same batches. Prints one JSON line per round, with
the memory that came on top between the first quarter of the chunks and the last one, and the
median share at the end.

With --command it is `filbert embed` itself, as a process: ended by SIGTERM when half of the rows
are there, and gone on with (`--resume`). Printed are rows/s over both parts, the memory of each (at
the first quarter of its time, at its end, the most), and whether the rows came back in order: the
least cosine of a hundred of them to the same text alone in float32, and the greatest to the text
of the row after it. Either way the last line is added to runs/results/bulk.jsonl.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "against"))

from runs import add_results_options, append, machine

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.texts import chunks, read_texts, text_of
from filbert.inference.bulk import (
    Entry,
    Work,
    answer_work,
    answers_here,
    pending_chunks,
    unfinished,
    vector_work,
)
from filbert.inference.forward import run_model
from filbert.inference.predictor import Predictor
from filbert.tasks.rows import read_task_rows
from filbert.text.tokenizer import characters_in
from sides.agreement import cosines

# Rows that are compared with the same text alone.
LOOKED_AT = 100
WORDS = ("the", "a", "film", "play", "was", "is", "very", "good", "bad", "story", "and", "plot")


def memory_of(process: int | str) -> float:
    """What a process has of the memory now, in MiB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Memory:
    """Is told of every chunk, and notes how much memory the process then has, in MiB."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def done(self, entry: Entry) -> None:
        self.marks.append(memory_of("self"))

    @property
    def growth(self) -> float:
        """From the first quarter to the end."""
        return self.marks[-1] - self.marks[len(self.marks) // 4]


def write_rows(path: Path, rows: int, median: int) -> None:
    """Texts of log-normal length, `median` words in the middle, at most five times as many."""
    draw = random.Random(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text"])
        for _ in range(rows):
            words = min(5 * median, 1 + round(draw.lognormvariate(0, 0.8) * median))
            writer.writerow([" ".join(draw.choices(WORDS, k=words))])


def through_the_verb(work: Work, source: Path, folder: Path) -> tuple[float, float]:
    """Seconds for the file, and the growth of the memory."""
    memory = Memory()
    start = time.perf_counter()
    rows: Iterable[Row] = read_texts(str(source), ColumnNames())
    if work.options["verb"] == "predict":
        task = work.predictor.known_task()
        rows = read_task_rows(task, source, ColumnNames(), labelled=False)
    with unfinished(folder / "v.npy", work, is_resumable=True, overwrite=True) as output:
        pending = pending_chunks(work, rows)
        for entry, content in answers_here(work, pending):
            output.add(entry, content)
            memory.done(entry)
    return time.perf_counter() - start, memory.growth


def model_alone(work: Work, examples: list[list[Example]]) -> float:
    """Seconds for chunks that are tokens already."""
    one = work.predictor
    start = time.perf_counter()
    for chunk in examples:
        if work.options["verb"] == "predict":
            run_model(one.model, chunk, max_tokens=one.max_tokens, precision=one.precision)
        else:
            one.vectors(chunk)
    return time.perf_counter() - start


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--verb", choices=("embed", "predict"), default="embed")
    options.add_argument("--model", default="minilm")
    options.add_argument("--data", help="a file with a column `text`, instead of made-up texts")
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--median", type=int, default=40, help="words of a made-up text")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--precision", default="float32")
    options.add_argument("--command", action="store_true", help="filbert embed, as a process")
    add_results_options(options, "bulk")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = Path(given.data) if given.data else folder / "rows.csv"
        if not given.data:
            write_rows(source, given.rows, given.median)
        measure = command_itself if given.command else beside_the_model
        found = {
            "verb": given.verb,
            "model": given.model,
            "precision": given.precision,
            "median_words": None if given.data else given.median,
        } | measure(given, source, folder)
    found |= {"machine": machine(), "time": time.strftime("%F %T")}
    append(given.results, found)
    print(json.dumps(found))


def command_itself(given: argparse.Namespace, source: Path, folder: Path) -> dict[str, Any]:
    """`filbert embed` over the file in two parts."""
    texts = [text_of(row) for row in read_texts(str(source), ColumnNames())]
    out = folder / "v.npy"
    command = [sys.executable, "-m", "filbert", "embed", given.model, str(source), "--out", out]
    command += ["--precision", given.precision, "--resume"]
    judge = Predictor.load(given.model)
    half = len(texts) * len(judge.embed(["one"])[0]) * 4 / 2
    start = time.perf_counter()
    parts = [part_of(command, source, out, until=half)]
    if not out.exists():
        parts.append(part_of(command, source, out))
    seconds = time.perf_counter() - start
    vectors = np.load(out, mmap_mode="r")
    assert len(vectors) == len(texts), (len(vectors), len(texts))
    rows = sorted(random.Random(2).sample(range(len(texts) - 1), min(LOOKED_AT, len(texts) - 1)))
    alone = judge.embed([texts[row] for row in rows])
    own, other = (cosines(alone, vectors[[row + step for row in rows]]) for step in (0, 1))
    return {
        "rows": len(texts),
        "file_mb": round(source.stat().st_size / 2**20, 1),
        "seconds": round(seconds, 1),
        "rows_per_second": round(len(texts) / seconds, 1),
        "parts": parts,
        "least_cosine": float(own.min()),
        "greatest_to_the_next": float(other.max()),
    }


def part_of(
    command: list[Any], source: Path, out: Path, until: float = float("inf")
) -> dict[str, Any]:
    """Run it, to its end or until so many bytes are next to the source; watch its memory."""
    process = subprocess.Popen(list(map(str, command)))
    marks: list[float] = []
    while process.poll() is None:
        time.sleep(0.5)
        try:
            marks.append(memory_of(process.pid))
        except (OSError, IndexError):  # it has just ended
            break
        made = sum(size_of(file) for file in out.parent.rglob("*") if file != source)
        if made > until and not out.exists():
            process.send_signal(signal.SIGTERM)
            until = float("inf")
    status = process.wait()
    marks = [mark for mark in marks if mark > 0]
    return {
        "status": status,
        "quarter_mb": round(marks[len(marks) // 4]),
        "end_mb": round(marks[-1]),
        "peak_mb": round(max(marks)),
    }


def size_of(path: Path) -> int:
    """Bytes of a file; none of a folder, or of what is just being moved."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def beside_the_model(given: argparse.Namespace, source: Path, folder: Path) -> dict[str, Any]:
    """The verb in this process and the model alone, in turns."""
    predictor = Predictor.load(given.model, precision=given.precision)
    is_embed = given.verb == "embed"
    work = vector_work(predictor, ".npy", {}) if is_embed else answer_work(predictor)
    texts = [text_of(row) for row in read_texts(str(source), ColumnNames())]
    examples = [predictor.text_examples(chunk) for chunk in chunks(texts, characters_in)]
    model_alone(work, examples[:1])
    rounds = []
    for number in range(given.rounds):
        verb, growth = through_the_verb(work, source, folder)
        alone = model_alone(work, examples)
        rounds.append({
            "verb_rows_per_second": round(len(texts) / verb, 1),
            "model_rows_per_second": round(len(texts) / alone, 1), "share": round(alone / verb, 4),
            "growth_mb": round(growth, 1),
        })  # fmt: skip
        print(json.dumps({"round": number} | rounds[-1]), flush=True)
    share = statistics.median(one["share"] for one in rounds)
    return {"rows": len(texts), "rounds": rounds, "median_share": share}


if __name__ == "__main__":
    main()
