"""What pretrain_mlm.py prints: a table of the runs, their curves, and whether the goals are met."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

GOAL_RATIO = 4.0
# Cores that other programs may have kept busy before a run's time is worth nothing.
IDLE = 0.1

Record = dict[str, Any]
Curve = Sequence[tuple[float, int, dict[str, float]]]


def name_of(record: Record) -> str:
    lr = record.get("recipe", record)["lr"]
    return f"{record['side']}, {record['seconds'] / 60:g} min, lr {lr:g}, seed {record['seed']}"


def time_to_reach(record: Record, loss: float, held_out: str) -> float | None:
    """About how many seconds of training a run took to come down to `loss`; None if it did not.

    The last point of the curve is moved to what the judge found, and all others by as much.
    """
    curve: Curve = record["curve"]
    shift = record["judged"][held_out]["loss"] - curve[-1][2]["loss"]
    before: tuple[float, float] | None = None
    for seconds, _, metrics in curve:
        found = metrics["loss"] + shift
        if found <= loss:
            if before is None:
                return seconds
            share = (before[1] - loss) / (before[1] - found)
            return before[0] + share * (seconds - before[0])
        before = seconds, found
    return None


def curve_line(record: Record) -> str:
    points = (f"{seconds:.0f}s {metrics['loss']:.3f}" for seconds, _, metrics in record["curve"])
    return f"{name_of(record)}: " + ", ".join(points)


def goals(peer: Record, full: Record, short: Record) -> list[str]:
    """The two goals for three runs of one seed, in sentences."""
    ratio = full["tokens_per_second"] / peer["tokens_per_second"]
    lines = [
        f"tokens/s: {full['tokens_per_second']:,.0f} against {peer['tokens_per_second']:,.0f}, "
        f"{ratio:.2f} times; goal {GOAL_RATIO:g} times: {_word(ratio >= GOAL_RATIO)}"
    ]
    wanted = {name: found["loss"] for name, found in peer["judged"].items()}
    reached = all(short["judged"][name]["loss"] <= loss for name, loss in wanted.items())
    for name, loss in wanted.items():
        lines.append(
            f"loss, {name}: the peer {loss:.4f} after {peer['seconds'] / 60:g} min; filbert "
            f"{short['judged'][name]['loss']:.4f} after {short['seconds'] / 60:g} min and "
            f"{full['judged'][name]['loss']:.4f} after {full['seconds'] / 60:g}; the peer's loss "
            f"was reached {_when(time_to_reach(short, loss, name))} in the shorter run, "
            f"{_when(time_to_reach(full, loss, name))} in the longer"
        )
    minutes = f"{short['seconds'] / 60:g} min"
    lines.append(f"goal, the peer's loss in {minutes}, in both shapes: {_word(reached)}")
    return lines


def report(records: Sequence[Record]) -> str:
    """All of it, as Markdown."""
    names = list(records[0]["judged"]) if records else []
    lines = [
        "| run | tokens/s | tokens | steps | precision | "
        + " | ".join(f"loss {name} | accuracy" for name in names)
        + " |"
    ]
    lines.append("|" + "---|" * (5 + 2 * len(names)))
    for record in records:
        judged = (
            f"{record['judged'][n]['loss']:.4f} | {record['judged'][n]['accuracy']:.4f}"
            for n in names
        )
        lines.append(
            f"| {name_of(record)} | {record['tokens_per_second']:,.0f} | {record['tokens']:,} "
            f"| {record['steps']:,} | {record['precision']} | " + " | ".join(judged) + " |"
        )
    lines += ["", "Curves (the peer's by the judge, filbert's by its own dev figures):"]
    lines += [f"* {curve_line(record)}" for record in records]
    ratios = []
    for seed in sorted({record["seed"] for record in records}):
        runs = [record for record in records if record["seed"] == seed]
        peers = [record for record in runs if record["side"] == "transformers"]
        ours = sorted(
            (record for record in runs if record["side"] == "filbert"),
            key=lambda record: -record["seconds"],
        )
        if len(peers) != 1 or len(ours) != 2:
            continue  # a search, or a run that failed
        lines += ["", f"Seed {seed}:"]
        lines += [f"* {line}" for line in goals(peers[0], ours[0], ours[1])]
        ratios.append(ours[0]["tokens_per_second"] / peers[0]["tokens_per_second"])
    if len(ratios) > 1:
        lines.append(
            f"\nRatio of tokens/s over {len(ratios)} seeds: median {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})."
        )
    busy = [name_of(record) for record in records if (record["others"] or 0.0) > IDLE]
    if busy:
        lines.append(f"\nNot to be trusted, other programs were at work: {'; '.join(busy)}.")
    return "\n".join(lines)


def _word(is_met: bool) -> str:
    return "met" if is_met else "missed"


def _when(seconds: float | None) -> str:
    return "never" if seconds is None else f"after about {seconds:.0f} s"
