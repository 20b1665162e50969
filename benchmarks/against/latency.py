r"""One text at a time, 16 and 128 tokens: p50 and p99, and the first request against the median.

    python benchmarks/against/latency.py [--models base minilm] [--sides NAME ...] \
        [--requests 200]

Sides, models and what is measured are those of inference.py: token ids in, one vector out, every
side in a process of its own, all ready at once and one at work at a time, 20 requests a turn. The
first request is the first of a fresh process, right after loading. Goal: it takes at most twice the
median. `--small` is a look at the machinery and proves nothing.
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
from runs import append, machine, read_results

from filbert.bench.facts import available_cores, package_versions
from filbert.bench.job import Job
from filbert.bench.sides import SIDES, take_part
from filbert.bench.turns import children, take_turns
from filbert.bench.workload import drawn
from filbert.formats.opening import read_checkpoint

RESULTS = Path(__file__).parents[1] / "results" / "latency.jsonl"
LENGTHS = (16, 128)
A_TURN = 20
SMALL = {"models": ["tiny"], "requests": 4, "lengths": [16]}

Record = dict[str, Any]


def figures(record: Record) -> dict[str, float]:
    """Milliseconds: p50, p99, the first request, and how many medians that is."""
    times = 1e3 * np.array(record["seconds"])
    half, most = np.percentile(times, [50, 99])
    first = 1e3 * record["first"]
    return {"p50_ms": half, "p99_ms": most, "first_ms": first, "first_ratio": first / half}


def key_of(record: Record) -> str:
    names = ("model", "side", "tokens", "requests", "threads", "device")
    return json.dumps({name: record[name] for name in names}, sort_keys=True)


def compare(given: argparse.Namespace, out: Path, results: Path | None) -> tuple[list[Record], int]:
    """Make the requests that are missing; all records that were asked for, and the failures."""
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
        size = read_checkpoint(folder).config.vocab_size
        place = out / f"{model}-latency"
        place.mkdir(parents=True, exist_ok=True)
        drawn([8, 8], vocab_size=size, **vocabulary).save(place / "ids.npz")
        for tokens in given.lengths:
            wanted = [
                {
                    "model": model,
                    "label": LABELS[model],
                    "side": name,
                    "tokens": tokens,
                    "requests": given.requests,
                    "threads": given.threads,
                    "device": given.device,
                }
                for name in names
            ]
            missing = {r["side"]: r for r in wanted if key_of(r) not in done}
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
                for name in missing
            ]
            with children(jobs, place / "logs", together=given.threads) as (ready, failed):
                first = {"one": {"do": "requests", "tokens": tokens, "count": 1}}
                firsts = take_turns(ready, dict.fromkeys(ready, first), rounds=1, warm_up=False)
                ready = {name: ready[name] for name in firsts.replies}
                some = {"do": "requests", "tokens": tokens, "count": min(A_TURN, given.requests)}
                turns = take_turns(
                    ready,
                    dict.fromkeys(ready, {"some": some}),
                    rounds=max(1, given.requests // A_TURN),
                )
            for sentence in (*failed, *firsts.failed, *turns.failed):
                failures += 1
                print(f"  failed: {sentence}", flush=True)
            for name, replies in turns.replies.items():
                record = missing[name] | {
                    "first": firsts.replies[name]["one"][0]["seconds"][0],
                    "seconds": [s for reply in replies["some"] for s in reply["seconds"]],
                    "beside": sorted(turns.replies),
                    "others": turns.others,
                    "machine": facts,
                    "time": time.strftime("%F %T"),
                }
                done[key_of(record)] = record
                for path in (kept, results):
                    if path is not None:
                        append(path, record)
            chosen += [done[key_of(record)] for record in wanted if key_of(record) in done]
    return chosen, failures


def markdown(records: list[Record]) -> str:
    """One table; milliseconds."""
    lines = [
        "| model | tokens | side | p50 ms | p99 ms | first ms | first / p50 |",
        "|---" * 7 + "|",
    ]
    for record in records:
        found = figures(record)
        lines.append(
            f"| {record['model']} | {record['tokens']} | {record['side']} | "
            f"{found['p50_ms']:.2f} | {found['p99_ms']:.2f} | {found['first_ms']:.1f} | "
            f"{found['first_ratio']:.1f} |"
        )
    return "\n".join(lines)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=LABELS, default=["base", "minilm"])
    parser.add_argument("--sides", nargs="+", choices=SIDES["encode"], help="all that are here")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    parser.add_argument("--out", type=Path, help="models, logs and results, to go on from")
    parser.add_argument("--small", action="store_true", help="a tiny model, no record")
    given = parser.parse_args(words)
    if given.small:
        vars(given).update(SMALL)
    return given


def main() -> int:
    given = parse()
    with tempfile.TemporaryDirectory() as spare:
        out = given.out or (Path(spare) if given.small else Path("runs") / "latency")
        records, failures = compare(given, out, None if given.small else RESULTS)
    print("\n" + markdown(records))
    if failures:
        print(f"\n{failures} sides failed; the same command tries them again.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
