"""The results of finetune_tasks.py as a table for the docs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

OURS, PEER = "filbert", "transformers"
# Cores that other programs may keep busy before a time is not to be believed.
BUSY = 0.2

Record = Mapping[str, Any]


def pairs_of(records: Sequence[Record], task: str) -> list[tuple[Record, Record]]:
    """Runs of one task and seed, ours and the peer's; seeds that lack a side are left out."""
    sides: dict[str, dict[int, Record]] = {OURS: {}, PEER: {}}
    for record in records:
        if record["task"] == task:
            sides[record["side"]][record["seed"]] = record
    return [(sides[OURS][s], sides[PEER][s]) for s in sorted(sides[OURS]) if s in sides[PEER]]


def ratios_of(pairs: Sequence[tuple[Record, Record]]) -> list[float]:
    """How many times as long as ours the peer trained, by seed."""
    return [peer["training_seconds"] / ours["training_seconds"] for ours, peer in pairs]


def holds(ours: Sequence[float], peer: Sequence[float]) -> bool:
    """Whether our mean is not below the peer's by more than the larger deviation of the two.

    With one seed there is no deviation, and only an equal or better score holds.
    """
    spread = max(_deviation(ours), _deviation(peer))
    return statistics.fmean(ours) >= statistics.fmean(peer) - spread


def markdown(records: Sequence[Record], figures: Mapping[str, Sequence[str]]) -> str:
    """A row per task, then the geometric mean of the ratios and what to beware of.

    Args:
        records: of all runs; tasks in order of appearance.
        figures: the names of each task's figures, the one that chose the epoch first.
    """
    lines = [
        "| task | rows (of) | dev rows (of) | lr, epochs | seeds | dev figure | filbert | Trainer "
        "| filbert s | Trainer s | ratio (spread) |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    medians, below, busy = [], [], []
    for task in dict.fromkeys(record["task"] for record in records):
        pairs = pairs_of(records, task)
        if not pairs:
            lines.append(f"| {task} | no complete pair of runs |" + " |" * 9)
            continue
        ratios = ratios_of(pairs)
        medians.append(statistics.median(ratios))
        both = list(zip(*pairs, strict=True))
        values = {
            name: [[r["scores"][name] for r in side] for side in both] for name in figures[task]
        }
        first, settings = pairs[0][0], pairs[0][0]["settings"]
        seconds = [statistics.median(r["training_seconds"] for r in side) for side in both]
        cells = [
            task,
            _counted(first, "train"),
            _counted(first, "dev"),
            f"{settings['lr']:g}, {settings['epochs']}",
            str(len(pairs)),
            " / ".join(figures[task]),
            *(" / ".join(_spread(found[side]) for found in values.values()) for side in (0, 1)),
            *(f"{median:.1f}" for median in seconds),
            f"{medians[-1]:.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        ]
        lines.append("| " + " | ".join(cells) + " |")
        if not holds(*values[figures[task][0]]):
            below.append(task)
        busy += [
            f"{r['task']} {r['side']} seed {r['seed']}" for p in pairs for r in p if _is_busy(r)
        ]
    if medians:
        mean = statistics.geometric_mean(medians)
        lines += ["", f"Geometric mean of the ratios over {len(medians)} tasks: {mean:.2f}."]
        told = ", ".join(below) if below else "none"
        lines += [f"Tasks where filbert is below the Trainer by more than the spread: {told}."]
        precisions = sorted({r["precision"] for r in records if r["side"] == OURS})
        lines += [f"filbert trained in {' and '.join(precisions)}, the Trainer in float32."]
    if busy:
        lines += ["Not to be believed, since other programs were at work: " + ", ".join(busy) + "."]
    return "\n".join(lines)


def _is_busy(record: Record) -> bool:
    return (record.get("others") or 0.0) > BUSY


def _counted(record: Record, split: str) -> str:
    rows, available = record["rows"][split], record["available"][split]
    return f"{rows:,}" if rows == available else f"{rows:,} ({available:,})"


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.1f}"
    return f"{mean} ± {_deviation(values):.1f}" if len(values) > 1 else mean
