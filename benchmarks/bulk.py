"""How fast `filbert embed` is beside its model alone: rows/s of both, in turns.

    python benchmarks/bulk.py --model minilm --rows 20000

The verb: rows are read from a CSV file, tokenised, run, pooled, written and journalled, as
`filbert embed --out X.npy` does it once the model is loaded. The model alone: the same chunks,
tokenised beforehand, run and pooled, in the same batches. Prints one JSON line per round, and the
median share last. With --memory it instead prints the most memory that the verb itself takes.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from filbert.bulk.output import unfinished
from filbert.bulk.run import carry_out, here
from filbert.bulk.work import Vectors
from filbert.data.chunks import characters_in, chunks
from filbert.data.columns import ColumnNames
from filbert.data.texts import read_texts, text_of
from filbert.predict import Predictor

WORDS = ("the", "a", "film", "play", "was", "is", "very", "good", "bad", "story", "and", "plot")


class Nobody:
    """Is told how far the work is, and tells nobody."""

    def kept(self, rows: int, truncated: int) -> None: ...

    def done(self, rows: int, truncated: int) -> None: ...


def write_rows(path: Path, rows: int, median: int) -> None:
    """Texts of log-normal length, `median` words in the middle, at most five times as many."""
    draw = random.Random(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text"])
        for _ in range(rows):
            words = min(5 * median, 1 + round(draw.lognormvariate(0, 0.8) * median))
            writer.writerow([" ".join(draw.choices(WORDS, k=words))])


def through_the_verb(predictor: Predictor, source: Path, folder: Path) -> float:
    """Seconds for the file."""
    work = Vectors(predictor, ".npy")
    start = time.perf_counter()
    rows = read_texts(str(source), ColumnNames())
    with unfinished(folder / "v.npy", work, is_resumable=True, overwrite=True) as output:
        assert output is not None
        carry_out(work, rows, output, engine=here(work), watch=Nobody())
    return time.perf_counter() - start


def model_alone(predictor: Predictor, examples: list) -> float:
    """Seconds for chunks that are tokens already."""
    start = time.perf_counter()
    for chunk in examples:
        predictor.vectors(chunk)
    return time.perf_counter() - start


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
    texts = [text_of(row) for row in read_texts(str(source), ColumnNames())]
    examples = [predictor.text_examples(chunk) for chunk in chunks(texts, characters_in)]
    model_alone(predictor, examples[:1])
    shares = []
    for number in range(given.rounds):
        verb = through_the_verb(predictor, source, folder)
        alone = model_alone(predictor, examples)
        shares.append(alone / verb)
        print(json.dumps({
            "round": number, "verb_rows_per_second": round(len(texts) / verb, 1),
            "model_rows_per_second": round(len(texts) / alone, 1), "share": round(shares[-1], 4),
        }), flush=True)  # fmt: skip
    print(json.dumps({
        "model": given.model, "precision": given.precision, "rows": len(texts),
        "machine": platform.processor() or platform.machine(), "torch": torch.__version__,
        "threads": torch.get_num_threads(), "median_share": round(statistics.median(shares), 4),
        "spread": [round(min(shares), 4), round(max(shares), 4)],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
