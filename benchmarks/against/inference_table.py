"""What inference.py prints: useful GFLOP/s a side and setting, and where filbert stands."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

Record = dict[str, Any]
# Useful GFLOP/s on the machine of the goal: two Zen 4 cores, BERT-base.
GOALS = {"float32": 170, "bf16": 340, "int8": 540}
# Cores that other programs may have kept busy before a figure is worth nothing.
IDLE = 0.1


def rate(record: Record, seconds: float | None = None) -> float:
    """Useful GFLOP/s."""
    if seconds is None:
        seconds = statistics.median(record["seconds"])
    return float(record["useful_gflop"] / seconds)


def precision_of(side: str) -> str:
    """The number format of a side; OpenVINO calls its static int8 models qint8."""
    return side.rpartition("-")[2].removeprefix("q")


def best_peer(records: Iterable[Record], precision: str) -> Record | None:
    """The fastest turn of any peer in a number format, in whatever setting."""
    peers = [
        record
        for record in records
        if not record["side"].startswith("filbert") and precision_of(record["side"]) == precision
    ]
    return max(peers, key=rate, default=None)


def best_of_filbert(records: Iterable[Record], precision: str) -> Record | None:
    """Filbert's fastest turn over all texts in one call, by its own engine."""
    mine = [
        record
        for record in records
        if record["side"] in (f"filbert-{precision}", f"filbert-static-{precision}")
    ]
    whole = [record for record in mine if record["setting"].endswith("all")] or mine
    return max(whole, key=rate, default=None)


def markdown(records: Sequence[Record], settings: Iterable[str]) -> str:
    """A table for each model."""
    parts = []
    for model in dict.fromkeys(record["model"] for record in records):
        parts += _of_model([record for record in records if record["model"] == model], settings)
    return "\n".join(parts)


def _of_model(records: Sequence[Record], settings: Iterable[str]) -> list[str]:
    first = records[0]
    shown = [name for name in settings if any(r["setting"] == name for r in records)]
    lines = [
        f"{first['label']}, {first['texts']} texts of {first['tokens']:,} tokens, "
        f"{first['threads']} threads; useful GFLOP/s, median (slowest to fastest) of "
        f"{len(first['seconds'])} turns; texts/s at the best setting.",
        "",
        f"| side | {' | '.join(shown)} | texts/s | smallest cosine |",
        "|---" * (len(shown) + 3) + "|",
    ]
    for side in dict.fromkeys(record["side"] for record in records):
        mine = {r["setting"]: r for r in records if r["side"] == side}
        cells = [_cell(mine[name]) if name in mine else "" for name in shown]
        best = max(mine.values(), key=rate)
        texts = best["texts"] / statistics.median(best["seconds"])
        cosine = next(iter(mine.values()))["cosine"]
        close = "" if cosine is None else f"{cosine:.5f}"
        lines.append(f"| {side} | {' | '.join(cells)} | {texts:,.0f} | {close} |")
    rates = ", ".join(f"{kind} {value:,.0f}" for kind, value in first["products"].items())
    lines += ["", f"Bare matrix products of the same shapes: {rates}.", *standing(records)]
    busy = sorted({r["setting"] for r in records if (r["others"] or 0) > IDLE})
    if busy:
        lines.append(f"Beware: other programs were at work during {'; '.join(busy)}.")
    return [*lines, ""]


def _cell(record: Record) -> str:
    slow, fast = max(record["seconds"]), min(record["seconds"])
    return f"{rate(record):.0f} ({rate(record, slow):.0f} to {rate(record, fast):.0f})"


def standing(records: Sequence[Record]) -> list[str]:
    """A sentence a number format: filbert against the best peer and the goal."""
    lines = []
    for precision, goal in GOALS.items():
        mine, peer = best_of_filbert(records, precision), best_peer(records, precision)
        if mine is None:
            continue
        line = f"{precision}: {mine['side']} {rate(mine):.0f}"
        if peer is not None:
            line += (
                f", the best peer {rate(peer):.0f} ({peer['side']}, {peer['setting']}): "
                f"{rate(mine) / rate(peer):.2f} times"
            )
        if records[0]["model"] == "base":
            line += f"; goal on two Zen 4 cores {goal}"
        lines.append(line + ".")
    return lines
