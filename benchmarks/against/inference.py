r"""Vectors of texts from token ids: filbert and its peers, the same ids, in turns.

    python benchmarks/against/inference.py [--models base minilm] [--sides NAME ...] [--rounds 5]

256 texts of log-normal length (median 50, mean 71, at most 256 tokens; random words), every side in
a process of its own, all of them ready at once and one at work at a time. A turn is all texts once:
in batches of 32 as they come, of 32 and 8 longest first, and, for those who make batches
themselves, all of them in one call. What comes out is the mean of each text's last hidden states;
tokenising is not in it. A figure is the median of the rounds, after one that does not count.

Useful GFLOP/s: 2 x the parameters of the layers (85.05 million for BERT-base) x real tokens per
second; padding and attention's own products count for nothing. "base" has BERT-base's shape and
random weights, since its own are not at hand: the work is the same, but its vectors mean nothing,
so look at MiniLM's for what a number format costs.

Peers that are not installed are named and left out. Results are written setting by setting, and the
same command goes on where it was stopped (`--again` for anew). All sides of the base model together
need about 14 GB. `--small` is a look at the machinery in a minute and proves nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from inference_models import LABELS, folder_of
from inference_table import markdown
from runs import append, machine, read_results

from filbert.bench.facts import available_cores, package_versions
from filbert.bench.job import Job
from filbert.bench.products import layer_shapes, product_rates
from filbert.bench.sides import SIDES, take_part
from filbert.bench.turns import Child, Turns, children, take_turns
from filbert.bench.workload import (
    Workload,
    drawn,
    layer_parameters,
    mixed_lengths,
    useful_gflop,
)
from filbert.formats.opening import read_checkpoint
from filbert.model.config import EncoderConfig

RESULTS = Path(__file__).parents[1] / "results" / "inference.jsonl"
# Order and batch; 0 is all texts in one call.
SETTINGS = {
    "unsorted, 32": ("unsorted", 32),
    "sorted, 32": ("sorted", 32),
    "sorted, 8": ("sorted", 8),
    "unsorted, all": ("unsorted", 0),
}
# Those who make batches of a list themselves.
OWN_BATCHES = ("filbert", "plain-torch")
SMALL = {"models": ["tiny"], "rounds": 1, "texts": 12, "settings": ["unsorted, 32"]}

Record = dict[str, Any]


def gflops(record: Record) -> float:
    """Useful GFLOP/s of the median turn."""
    return float(record["useful_gflop"] / np.median(record["seconds"]))


def key_of(record: Record) -> str:
    """Equal for turns that need not be made twice."""
    names = ("model", "ids", "side", "setting", "threads", "device")
    return json.dumps({name: record[name] for name in names}, sort_keys=True)


def agreement(sides: dict[str, Child], out: Path) -> dict[str, float]:
    """The smallest cosine of each side's vectors to those of the first float32 side."""
    vectors = {}
    for name, child in sides.items():
        child.ask({"do": "vectors", "out": str(out / f"{name}.npy")})
        vectors[name] = np.load(out / f"{name}.npy").astype(np.float64)
    judges = [name for name in vectors if name.endswith("float32")]
    if not judges:
        return {}
    judge = vectors[judges[0]]
    found = {}
    for name, mine in vectors.items():
        norms = np.linalg.norm(mine, axis=1) * np.linalg.norm(judge, axis=1)
        found[name] = float(((mine * judge).sum(1) / norms).min())
    return found


def about_model(config: EncoderConfig, workload: Workload) -> Record:
    return {
        "ids": workload.digest,
        "texts": len(workload.texts),
        "tokens": workload.num_tokens,
        "layer_parameters": layer_parameters(config),
        "useful_gflop": useful_gflop(config, workload.num_tokens),
    }


def is_asked(side: str, setting: str) -> bool:
    return SETTINGS[setting][1] > 0 or side.startswith(OWN_BATCHES)


def compare(given: argparse.Namespace, out: Path, results: Path | None) -> tuple[list[Record], int]:
    """Make the turns that are missing; all records that were asked for, and the failures."""
    kept = out / "results.jsonl"
    done = {} if given.again else {key_of(r): r for r in read_results(kept)}
    facts = machine() | package_versions()
    names, reasons = take_part("encode", given.sides, given.device)
    print("".join(f"left out: {reason}\n" for reason in reasons), end="", flush=True)
    chosen: list[Record] = []
    failures = 0
    for model in given.models:
        folder, vocabulary = folder_of(model, out / "models")
        if folder is None:
            print(f"{model} is left out: {vocabulary}")
            continue
        config = read_checkpoint(folder).config
        workload = drawn(mixed_lengths(given.texts), vocab_size=config.vocab_size, **vocabulary)
        place = out / f"{model}-{workload.digest}"
        place.mkdir(parents=True, exist_ok=True)
        workload.save(place / "ids.npz")
        about = about_model(config, workload) | {
            "model": model,
            "label": LABELS[model],
            "threads": given.threads,
            "device": given.device,
        }
        wanted = {
            setting: [
                about | {"side": name, "setting": setting}
                for name in names
                if is_asked(name, setting)
            ]
            for setting in given.settings
        }
        missing = {
            setting: [record for record in records if key_of(record) not in done]
            for setting, records in wanted.items()
        }
        sides = {record["side"] for records in missing.values() for record in records}
        jobs = [
            Job(
                "encode",
                name,
                str(folder),
                str(place / "ids.npz"),
                str(place / "converted"),
                given.threads,
                given.device,
            )
            for name in names
            if name in sides
        ]
        if jobs:
            print(f"{LABELS[model]}: bare matrix products", flush=True)
            shapes = layer_shapes(config)
            rates = product_rates(shapes, device=given.device, seconds=given.seconds)
            with children(jobs, place / "logs", together=given.threads) as (ready, failed):
                failures += _said(failed)
                close = agreement(ready, place)
                for setting, records in missing.items():
                    asked = {r["side"]: r for r in records if r["side"] in ready}
                    turns = _turns(ready, asked, setting, given.rounds)
                    failures += _said(turns.failed)
                    for name in turns.replies:
                        record = asked[name] | {
                            "seconds": [r["seconds"] for r in turns.replies[name][setting]],
                            "cosine": close.get(name),
                            "products": rates,
                            "beside": sorted(turns.replies),
                            "others": turns.others,
                            "machine": facts,
                            "time": time.strftime("%F %T"),
                        }
                        done[key_of(record)] = record
                        append(kept, record)
                        if results is not None:
                            append(results, record)
                        print(f"  {setting:14} {name:22} {gflops(record):7.1f}", flush=True)
                    for name in set(ready) & set(asked) - set(turns.replies):
                        ready.pop(name).close()
        every = [record for records in wanted.values() for record in records]
        chosen += [done[key_of(record)] for record in every if key_of(record) in done]
    return chosen, failures


def _turns(ready: dict[str, Child], asked: dict[str, Record], setting: str, rounds: int) -> Turns:
    order, batch = SETTINGS[setting]
    sides = {name: child for name, child in ready.items() if name in asked}
    request = {setting: {"do": "run", "order": order, "batch": batch}}
    return take_turns(sides, dict.fromkeys(sides, request), rounds=rounds)


def _said(failed: list[str]) -> int:
    for sentence in failed:
        print(f"  failed: {sentence}", flush=True)
    return len(failed)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=LABELS, default=["base", "minilm"])
    parser.add_argument("--sides", nargs="+", choices=SIDES["encode"], help="all that are here")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--rounds", type=int, default=5, help="that count")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--seconds", type=float, default=0.5, help="for each matrix product")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    parser.add_argument("--out", type=Path, help="models, logs and results, to go on from")
    parser.add_argument("--small", action="store_true", help="a tiny model, no record")
    given = parser.parse_args(words)
    if given.small:
        vars(given).update(SMALL | {"seconds": 0.01})
    return given


def main() -> int:
    given = parse()
    with tempfile.TemporaryDirectory() as spare:
        out = given.out or (Path(spare) if given.small else Path("runs") / "inference")
        records, failures = compare(given, out, None if given.small else RESULTS)
    print("\n" + markdown(records, SETTINGS))
    if failures:
        print(f"\n{failures} sides failed; the same command tries them again.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
