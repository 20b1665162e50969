r"""One text at a time, 16 and 128 tokens: p50 and p99, and the first request against the median.

    python benchmarks/against/latency.py [--models base minilm] [--sides NAME ...] \
        [--requests 200] [--starts 3]

Sides, models and what is measured are those of inference.py: token ids in, one vector out, every
side in a process of its own, all ready at once and one at work at a time, 20 requests a turn. The
first request is the first of a fresh process, right after loading, with no other side running:
the median of some such starts, since a moment's other work can fall on a single one. Goal: it takes
at most twice the median of all requests. `--small` is a look at the machinery and proves nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from inference_models import LABELS
from inference_runs import add, jobs_of, kept_in, models_of, options, said, sides_of
from runs import Record, carry_out

from filbert.checkpoints.opening import read_checkpoint
from sides.turns import children, take_turns
from sides.workload import drawn

LENGTHS = (16, 128)
A_TURN = 20
# What turns that need not be made twice have in common.
SAME = ("model", "side", "tokens", "requests", "threads", "device")
SMALL = {"models": ["tiny"], "requests": 4, "lengths": [16], "starts": 1}


def figures(record: Record) -> dict[str, float]:
    """Milliseconds: p50, p99, the first request, and how many medians that is; the worst first."""
    times = 1e3 * np.array(record["seconds"])
    half, most = np.percentile(times, [50, 99])
    # Earlier records have the first request of one process.
    firsts = 1e3 * np.array(record.get("firsts") or [record["first"]])
    first = float(np.median(firsts))
    return {
        "p50_ms": half,
        "p99_ms": most,
        "first_ms": first,
        "first_ratio": first / half,
        "worst_first_ratio": float(firsts.max()) / half,
    }


def compare(given: argparse.Namespace, out: Path, results: Path | None) -> tuple[list[Record], int]:
    """Make the requests that are missing; all records that were asked for, and the failures."""
    kept = kept_in(given, out, results, *SAME)
    names = sides_of(given)
    chosen: list[Record] = []
    failures = 0
    for model, folder, vocabulary in models_of(given, out):
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
            missing = {record["side"]: record for record in kept.missing(wanted)}
            jobs = jobs_of(missing, folder, place, given)
            firsts: dict[str, list[float]] = {name: [] for name in missing}
            one = {"one": {"do": "requests", "tokens": tokens, "count": 1}}
            # Nothing else may run between a side's loading and its first request.
            for job in [job for job in jobs for _ in range(given.starts)]:
                with children([job], place / "logs") as (ready, failed):
                    begun = take_turns(ready, dict.fromkeys(ready, one), rounds=1, warm_up=False)
                failures += said([*failed, *begun.failed])
                for replies in begun.replies.values():
                    firsts[job.side] += replies["one"][0]["seconds"]
            jobs = [job for job in jobs if firsts[job.side]]
            some = {"do": "requests", "tokens": tokens, "count": min(A_TURN, given.requests)}
            with children(jobs, place / "logs", together=given.threads) as (ready, failed):
                turns = take_turns(
                    ready,
                    dict.fromkeys(ready, {"some": some}),
                    rounds=max(1, given.requests // A_TURN),
                )
            failures += said([*failed, *turns.failed])
            for name, replies in turns.replies.items():
                seconds = [s for reply in replies["some"] for s in reply["seconds"]]
                add(kept, missing[name] | {"firsts": firsts[name], "seconds": seconds}, turns)
            chosen += kept.made(wanted)
    return chosen, failures


def markdown(records: list[Record]) -> str:
    """One table; milliseconds."""
    lines = [
        "| model | tokens | side | p50 ms | p99 ms | first ms | first / p50 | worst first / p50 |",
        "|---" * 8 + "|",
    ]
    for record in records:
        found = figures(record)
        lines.append(
            f"| {record['model']} | {record['tokens']} | {record['side']} | "
            f"{found['p50_ms']:.2f} | {found['p99_ms']:.2f} | {found['first_ms']:.1f} | "
            f"{found['first_ratio']:.1f} | {found['worst_first_ratio']:.1f} |"
        )
    return "\n".join(lines)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = options(__doc__, "latency")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--starts", type=int, default=3, help="fresh processes for first requests")
    given = parser.parse_args(words)
    if given.small:
        vars(given).update(SMALL)
    return given


def main() -> int:
    given = parse()
    return carry_out("latency", given, compare, markdown, is_recorded=not given.small)


if __name__ == "__main__":
    sys.exit(main())
