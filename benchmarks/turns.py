r"""Two checkouts of filbert in turns on this machine: is the new one as fast as the old one?

    python benchmarks/turns.py --old ../filbert-old [--new .] [--rounds 5] [--only embed,serve]

Every measurement is a process of its own with PYTHONPATH at a checkout's src, and uses the command
line or the public Python interface only. Old and new take turns, and every second round begins with
the new one. A ratio is the median of new over the median of old in the same unit of speed, so
above 1 the new one is faster. Model: MiniLM (6 layers, width 384). Loading is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WORDS = Path(__file__).read_text().replace("(", " ").replace(")", " ").split()


def texts(count: int, low: int, high: int) -> list[str]:
    """Made of words of this file; lengths vary as those of comments do."""
    draw = random.Random(count)
    return [" ".join(draw.choices(WORDS, k=draw.randint(low, high))) for _ in range(count)]


def write_inputs(place: Path) -> None:
    rows = [{"text": t, "label": "ab"[len(t) % 2]} for t in texts(256, 10, 90)]
    for name, part in (("train", rows[:224]), ("dev", rows[224:])):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    documents = texts(400, 60, 200)
    (place / "text.txt").write_text("\n\n".join(documents) + "\n")


def finetune(place: Path) -> float:
    """Tokens a second of optimiser steps, as the run itself notes them."""
    import filbert

    out = place / "finetuned"
    filbert.finetune(
        task="classification", model="minilm", train=str(place / "train.jsonl"),
        dev=str(place / "dev.jsonl"), out=str(out), steps=4, seed=1,
        precision="float32", overwrite=True,
    )  # fmt: skip
    return float(json.loads((out / "run.json").read_text())["tokens_per_second"])


def pretrain(place: Path) -> float:
    """Tokens a second of optimiser steps on masked words."""
    import filbert

    out = place / "pretrained"
    filbert.pretrain(
        corpus=str(place / "text.txt"), tokenizer="minilm", out=str(out),
        num_hidden_layers=6, hidden_size=384, num_attention_heads=12, steps=4, batch_size=16,
        max_length=128, seed=1, precision="float32", overwrite=True,
    )  # fmt: skip
    return float(json.loads((out / "run.json").read_text())["tokens_per_second"])


def timed(work: Callable[[], object], count: int) -> float:
    """Of `count` things a second."""
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def embed(place: Path) -> float:
    """Rows a second, of a file."""
    import filbert

    model, rows = filbert.load("minilm"), texts(300, 10, 90)
    model.embed(rows[:32])
    return timed(lambda: model.embed(rows), len(rows))


def inference(place: Path) -> float:
    """Rows a second of a classifier, all in one call."""
    import filbert

    model, rows = filbert.load(place / "classifier"), texts(300, 10, 90)
    model.predict(rows[:32])
    return timed(lambda: model.predict(rows), len(rows))


def latency(place: Path) -> float:
    """Requests a second of one short text at a time: the inverse of the median time."""
    import filbert

    model, rows = filbert.load(place / "classifier"), texts(220, 8, 14)
    seconds = []
    for text in rows:
        started = time.perf_counter()
        model.predict([text])
        seconds.append(time.perf_counter() - started)
    return 1 / statistics.median(seconds[20:])


def serve(place: Path) -> float:
    """Requests a second over HTTP by eight clients that keep asking."""
    port, rows = 18_000 + os.getpid() % 10_000, texts(360, 8, 40)
    command = [sys.executable, "-m", "filbert", "serve", str(place / "classifier")]
    command += ["--port", str(port)]

    def ask(text: str) -> None:
        body = json.dumps({"inputs": text}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/predict", body, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=60).read()

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(300):
                try:
                    ask(rows[0])
                    break
                except OSError:
                    assert server.poll() is None, "the server did not start"
                    time.sleep(0.2)

            def client(part: list[str]) -> None:
                for text in part:
                    ask(text)

            def all_clients() -> None:
                with ThreadPoolExecutor(8) as pool:
                    list(pool.map(client, [rows[i::8] for i in range(8)]))

            return timed(all_clients, len(rows))
        finally:
            server.terminate()


MEASURES: dict[str, tuple[Callable[[Path], float], str]] = {
    "finetune": (finetune, "tokens/s"),
    "pretrain": (pretrain, "tokens/s"),
    "embed": (embed, "rows/s"),
    "inference": (inference, "rows/s"),
    "latency": (latency, "requests/s"),
    "serve": (serve, "requests/s"),
}


def run_child(checkout: Path, words: list[str]) -> str:
    """What this script prints as a child that imports filbert of a checkout."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), *words],
        env=os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{checkout}: {' '.join(words)}\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--new", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(MEASURES))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # The classifier is one run's, so that both sides load the same weights.
        place = Path(folder)
        write_inputs(place)
        run_child(given.old, ["--child", "finetune", folder])
        (place / "finetuned" / "model").rename(place / "classifier")
        for name in given.only.split(","):
            found: dict[str, list[float]] = {"old": [], "new": []}
            for number in range(given.rounds):
                for side in ("old", "new")[:: -1 if number % 2 else 1]:
                    line = run_child(getattr(given, side), ["--child", name, folder])
                    found[side].append(float(line))
            old, new = (statistics.median(found[side]) for side in ("old", "new"))
            spread = max((max(v) - min(v)) / statistics.median(v) for v in found.values())
            print(
                f"{name:10} old {old:9.1f}  new {new:9.1f} {MEASURES[name][1]:10} "
                f"new/old {new / old:.3f}  (spread of one side up to {spread:.0%})",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(MEASURES[sys.argv[2]][0](Path(sys.argv[3])))
    else:
        main()
