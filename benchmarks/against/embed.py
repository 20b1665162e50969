r"""Vectors of real comments: filbert and sentence-transformers, MiniLM, one machine and hour.

    python benchmarks/against/embed.py --data DIR/jigsaw_toxic_binary/train.csv.gz \
        [--rows 5000] [--repeats 5]

sentence-transformers runs with its defaults (float32, batch 32, sorted by length, at most 256
tokens). Every run is a process of its own and the sides take turns; loading the model is not
counted, tokenising is. The vectors are compared at the end: largest difference for float32,
smallest and mean cosine similarity for the other precisions.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from runs import add_results_options, append

SIDES = ["sentence-transformers", "filbert-float32", "filbert-bf16"]


def read(source: Path, rows: int) -> list[str]:
    csv.field_size_limit(2**30)
    with gzip.open(source, "rt", encoding="utf-8", newline="") as file:
        return [
            row["comment_text"] for _, row in zip(range(rows), csv.DictReader(file), strict=False)
        ]


def child(side: str, texts: list[str], out: Path) -> float:
    from sides.conversion import plain_folder

    folder = str(plain_folder("minilm"))
    if side == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        peer = SentenceTransformer(folder, device="cpu")
        peer.encode(texts[:64])
        started = time.perf_counter()
        vectors = peer.encode(texts)
        seconds = time.perf_counter() - started
    else:
        import filbert

        model = filbert.load(folder, precision=side.removeprefix("filbert-"))
        model.embed(texts[:64])
        started = time.perf_counter()
        vectors = model.embed(texts)
        seconds = time.perf_counter() - started
    np.save(out, vectors)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sides", nargs="+", default=SIDES)
    add_results_options(parser, "embed")
    parser.add_argument("--child", nargs=2, metavar=("SIDE", "OUT"))
    given = parser.parse_args()
    if given.child:
        seconds = child(given.child[0], read(given.data, given.rows), Path(given.child[1]))
        print(f"RESULT {seconds}")
        return
    seconds: dict[str, list[float]] = {side: [] for side in given.sides}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(given.repeats):
            for side in given.sides:
                command = [
                    sys.executable,
                    __file__,
                    "--data",
                    str(given.data),
                    "--rows",
                    str(given.rows),
                ]
                command += ["--child", side, f"{name}/{side}.npy"]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                line = next(x for x in done.stdout.splitlines() if x.startswith("RESULT "))
                seconds[side].append(float(line.removeprefix("RESULT ")))
        vectors = {side: np.load(f"{name}/{side}.npy").astype(np.float64) for side in given.sides}
    reference = vectors[given.sides[0]]
    print(f"{'side':24} {'rows/s (median)':>16} {'spread':>15} {'ratio':>6}  agreement")
    base = statistics.median(seconds[given.sides[0]])
    for side in given.sides:
        times = seconds[side]
        rate = given.rows / statistics.median(times)
        spread = f"{given.rows / max(times):.0f}-{given.rows / min(times):.0f}"
        mine = vectors[side]
        cosine = (
            (mine * reference).sum(1)
            / np.linalg.norm(mine, axis=1)
            / np.linalg.norm(reference, axis=1)
        )
        agreement = (
            f"largest difference {np.abs(mine - reference).max():.1e}, "
            f"cosine at least {cosine.min():.6f}, mean {cosine.mean():.6f}"
        )
        ratio = base / statistics.median(times)
        print(f"{side:24} {rate:16.1f} {spread:>15} {ratio:6.2f}  {agreement}")
        stamp = {
            "rows": given.rows,
            "machine": platform.processor(),
            "time": time.strftime("%F %T"),
        }
        record = {"side": side, "seconds": times, "ratio": ratio, "cosine_min": cosine.min()}
        append(given.results, record | stamp)


if __name__ == "__main__":
    main()
