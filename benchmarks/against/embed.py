r"""Vectors of real comments: filbert and its peers, MiniLM, one machine and hour.

    python benchmarks/against/embed.py --data DIR/jigsaw_toxic_binary/train.csv.gz \
        [--rows 5000] [--repeats 5] [--sides NAME ...]

sentence-transformers runs with its defaults (float32, batch 32, sorted by length, at most 256
tokens). The engines get token ids of the tokenizers library, in batches of 8 longest first, which
is their best setting in inference.py. Static int8, filbert's and OpenVINO's (as NNCF recommends),
is measured on the same short sentences. Every run is a process of its own and the sides take turns;
loading and converting the model is not counted, tokenising is. The vectors are compared at the end:
largest difference for float32, smallest and mean cosine similarity for the other precisions.
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
from collections.abc import Callable
from pathlib import Path

import numpy as np
from runs import add_results_options, append

from filbert.files import available_cores
from sides.job import Job

ENGINES = ["openvino-float32", "openvino-bf16", "openvino-qint8", "onnxruntime-int8"]
OWN = [f"filbert-{precision}" for precision in ("float32", "bf16", "int8", "static-int8")]
SIDES = ["sentence-transformers", *OWN, *ENGINES]
MAX_LENGTH, BATCH = 256, 8


def read(source: Path, rows: int) -> list[str]:
    csv.field_size_limit(2**30)
    with gzip.open(source, "rt", encoding="utf-8", newline="") as file:
        return [
            row["comment_text"] for _, row in zip(range(rows), csv.DictReader(file), strict=False)
        ]


Embed = Callable[[list[str]], np.ndarray]


def engine(side: str, folder: Path) -> Embed:
    """Embed by an engine that pads each batch to its longest text."""
    from tokenizers import Tokenizer

    from sides.sides import load

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_LENGTH)
    place = f"{folder}-converted"
    encode = load(side, Job(side, str(folder), "", place, available_cores()))

    def embed(texts: list[str]) -> np.ndarray:
        ids = [np.array(one.ids) for one in tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        vectors: dict[int, np.ndarray] = {}
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            vectors |= zip(rows, encode([ids[row] for row in rows]), strict=True)
        found = np.stack([vectors[row] for row in range(len(texts))])
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))

    return embed


def embed_of(side: str, folder: Path) -> Embed:
    """Load a side, on token ids or on texts."""
    if side == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), device="cpu").encode  # type: ignore[no-any-return]
    if side not in OWN:
        return engine(side, folder)
    from filbert import samples
    from filbert.conversion import convert_model
    from filbert.inference.predictor import Predictor
    from filbert.onnx_export import int8_engine

    model, precision = folder, side.removeprefix("filbert-")
    if precision == "static-int8":
        model, precision = folder.with_name(f"{folder.name}-static-int8"), "int8"
        if not model.is_dir():
            rows = str(samples.path("intents_train.csv.gz"))
            convert_model(str(folder), model, to="static-int8", data=rows)
    # As `filbert embed` loads it.
    loading = {"precision": precision, "backend": "torch", "device": None}
    name, loading = int8_engine(str(model), loading) if precision == "int8" else (model, loading)
    return Predictor.load(name, packed=True, **loading).embed


def child(side: str, texts: list[str], out: Path) -> float:
    """Embed the texts and store the vectors; returns the seconds."""
    from sides.conversion import plain_folder

    embed = embed_of(side, plain_folder("minilm"))
    embed(texts[:64])
    started = time.perf_counter()
    vectors = embed(texts)
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
