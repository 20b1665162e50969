"""How fast `filbert embed` and `predict` are beside their model alone: rows/s of both, in turns.

    python benchmarks/bulk.py --model minilm --rows 20000
    python benchmarks/bulk.py --verb predict --model runs/toxic/model --rows 20000

The verb: rows are read from a CSV file, tokenised, run, pooled or decoded, written and journalled,
as `filbert embed --out X.npy` does it once the model is loaded. The model alone: the same chunks,
tokenised beforehand, run (and pooled), in the same batches. Prints one JSON line per round, with
the memory that came on top between the first quarter of the chunks and the last one, and the
median share at the end. With --memory it instead prints the most memory that the verb itself takes.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from filbert.bulk.output import unfinished
from filbert.bulk.run import carry_out, here
from filbert.bulk.work import Answers, Vectors, Work
from filbert.data.chunks import characters_in, chunks
from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.texts import read_texts, text_of
from filbert.predict import Predictor
from filbert.speed.execution import run_model

WORDS = ("the", "a", "film", "play", "was", "is", "very", "good", "bad", "story", "and", "plot")


class Memory:
    """Is told of every chunk, and notes how much memory the process then has, in MiB."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def kept(self, rows: int, truncated: int) -> None: ...

    def done(self, rows: int, truncated: int) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.marks.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)

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
    if isinstance(work, Answers):
        rows = work.predictor.known_task().read(source, ColumnNames(), labelled=False)
    with unfinished(folder / "v.npy", work, is_resumable=True, overwrite=True) as output:
        assert output is not None
        carry_out(work, rows, output, engine=here(work), watch=memory)
    return time.perf_counter() - start, memory.growth


def model_alone(work: Work, examples: list[list[Example]]) -> float:
    """Seconds for chunks that are tokens already."""
    one = work.predictor
    start = time.perf_counter()
    for chunk in examples:
        if isinstance(work, Answers):
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
    options.add_argument("--memory", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = Path(given.data) if given.data else folder / "rows.csv"
        if not given.data:
            write_rows(source, given.rows, given.median)
        if given.memory:
            measure_memory(given.model, source, folder)
        else:
            measure_speed(given, source, folder)


def measure_memory(model: str, source: Path, folder: Path) -> None:
    verb = ["embed", model, str(source), "--out", str(folder / "v.npy")]
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "filbert", *verb], check=True)
    seconds = time.perf_counter() - start
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps({"file_mb": source.stat().st_size >> 20, "peak_mb": round(most),
                      "seconds": round(seconds, 1)}))  # fmt: skip


def measure_speed(given: argparse.Namespace, source: Path, folder: Path) -> None:
    predictor = Predictor.load(given.model, precision=given.precision)
    work: Work = Vectors(predictor, ".npy") if given.verb == "embed" else Answers(predictor)
    texts = [text_of(row) for row in read_texts(str(source), ColumnNames())]
    examples = [predictor.text_examples(chunk) for chunk in chunks(texts, characters_in)]
    model_alone(work, examples[:1])
    shares = []
    for number in range(given.rounds):
        verb, growth = through_the_verb(work, source, folder)
        alone = model_alone(work, examples)
        shares.append(alone / verb)
        print(json.dumps({
            "round": number, "verb_rows_per_second": round(len(texts) / verb, 1),
            "model_rows_per_second": round(len(texts) / alone, 1), "share": round(shares[-1], 4),
            "growth_mb": round(growth, 1),
        }), flush=True)  # fmt: skip
    print(json.dumps({
        "verb": given.verb, "model": given.model, "precision": given.precision, "rows": len(texts),
        "machine": platform.processor() or platform.machine(), "torch": torch.__version__,
        "threads": torch.get_num_threads(), "median_share": round(statistics.median(shares), 4),
        "spread": [round(min(shares), 4), round(max(shares), 4)],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
