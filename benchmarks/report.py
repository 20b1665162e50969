r"""The tables of docs/performance.md and README.md, from the newest records of benchmarks/results.

    python benchmarks/report.py             # shows the table of all rows
    python benchmarks/report.py --write     # puts both between the markers of their pages
    python benchmarks/report.py --check     # exit status 1 when a page and the results differ

The README has the first row of fine-tuning, vectors and serving, and the size of the wheel.

A row is made from one file of results, and only what has been measured gets one. What no script
records, such as the size of the wheel, stands in results/by_hand.jsonl with its date.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "against"))

from inference_table import GOALS, IDLE, best_of_filbert, best_peer, rate  # noqa: E402
from latency import figures  # noqa: E402
from runs import read_results  # noqa: E402
from task_table import pairs_of, ratios_of  # noqa: E402

BEGIN = "<!-- measured: this table is written by benchmarks/report.py -->"
END = "<!-- /measured -->"
HEAD = ["| what | command | filbert | peer | |", "|---|---|---|---|---|"]

Record = dict[str, Any]


def row(what: str, command: str, mine: str, peer: str, ratio: str) -> str:
    return f"| {what} | {f'`{command}`' if command else ''} | {mine} | {peer} | {ratio} |"


def times(ratio: float) -> str:
    digits = 2 if ratio < 1.5 else 1 if ratio < 10 else 0
    return f"**{ratio:.{digits}f} x**"


def beside_others(*records: Record | None) -> str:
    """A word of warning where other programs ran while one of these was measured."""
    busy = max((r.get("others") or 0.0 for r in records if r is not None), default=0.0)
    return f", but other programs took {busy:.1f} cores" if busy > IDLE else ""


def sessions(records: Sequence[Record], *, of_one_set: bool = True) -> list[list[Record]]:
    """Records that were measured next to each other: within an hour, and of one set of sides."""
    groups: list[list[Record]] = []
    for record in sorted(records, key=lambda r: r.get("time", "")):
        before = groups[-1][-1] if groups else None
        other = of_one_set and before is not None and before.get("beside") != record.get("beside")
        if before is None or other or _apart(before, record):
            groups.append([])
        groups[-1].append(record)
    return groups


def _apart(one: Record, other: Record) -> bool:
    if "time" not in one or "time" not in other:
        return False
    between = datetime.fromisoformat(other["time"]) - datetime.fromisoformat(one["time"])
    return between > timedelta(hours=1)


def newest(records: Sequence[Record], *names: str) -> list[Record]:
    """The last record of each combination of these fields, in the order of the first ones."""
    kept: dict[tuple[Any, ...], Record] = {}
    for record in records:
        kept[tuple(json.dumps(record.get(name)) for name in names)] = record
    return list(kept.values())


# One function a file of results: its records to rows


def finetune_toxic(records: Sequence[Record]) -> list[str]:
    """Like for like first: seconds of the pair whose peer was fastest, the least disturbed one.

    Scores are means of all seeds, of at least three.
    """
    kept = newest(records, "side", "seed", "rows")
    rows = []
    for sides in (
        ("filbert-float32", "transformers"),
        ("filbert", "transformers-bf16"),
        ("filbert", "transformers"),
    ):
        runs = [{(r["rows"], r["seed"]): r for r in kept if r["side"] == side} for side in sides]
        both = set(runs[0]) & set(runs[1])
        if not both:
            continue
        largest = max(both)[0]
        chosen = sorted(key for key in both if key[0] == largest)
        best = min(chosen, key=lambda key: runs[1][key]["seconds"])
        cells = []
        for some in runs:
            cell = f"{some[best]['seconds']:,.0f} s ({some[best]['precision']})"
            if len(chosen) > 2:
                cell += f", ROC AUC {statistics.mean(some[key]['roc_auc'] for key in chosen):.4f}"
            cells.append(cell)
        rows.append(
            row(
                f"fine-tune on {largest:,} comments, one epoch, length 256, batch 32",
                "make bench-finetune",
                cells[0],
                f"Trainer, dynamic padding: {cells[1]}",
                times(runs[1][best]["seconds"] / runs[0][best]["seconds"]),
            )
        )
    return rows


def finetune_tasks(records: Sequence[Record]) -> list[str]:
    """The geometric mean over tasks of the median ratios of their seeds."""
    kept = newest(records, "task", "side", "seed", "device")
    ratios = {}
    for task in dict.fromkeys(record["task"] for record in kept):
        found = ratios_of(pairs_of(kept, task))
        if found:
            ratios[task] = statistics.median(found)
    if not ratios:
        return []
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values()))
    low, high = min(ratios.values()), max(ratios.values())
    return [
        row(
            f"fine-tune on {len(ratios)} tasks ({', '.join(ratios)})",
            "make bench-tasks",
            "bf16",
            "Trainer, dynamic padding, float32",
            f"{times(mean)} ({low:.1f} to {high:.1f}; geometric mean), scores in "
            "[fine-tuning](finetune.md#against-transformers-trainer)",
        )
    ]


def embed(records: Sequence[Record]) -> list[str]:
    kept = {record["side"]: record for record in records}
    peer = kept.get("sentence-transformers")
    rows = []
    for precision in GOALS:
        mine = kept.get(f"filbert-{precision}")
        if mine is None or peer is None:
            continue
        speeds = [r["rows"] / statistics.median(r["seconds"]) for r in (mine, peer)]
        rows.append(
            row(
                f"embed {mine['rows']:,} comments with MiniLM, {precision}",
                "make bench-embed",
                f"{speeds[0]:,.0f} rows/s",
                f"sentence-transformers: {speeds[1]:,.0f} rows/s",
                f"{times(speeds[0] / speeds[1])}, cosine to float32 at least "
                f"{_floor(mine['cosine_min'])}",
            )
        )
    return rows


def _floor(cosine: float) -> str:
    """Four digits, and never more than there is."""
    return f"{math.floor(cosine * 1e4 + 1e-6) / 1e4:.4f}"


def pretrain_mlm(records: Sequence[Record]) -> list[str]:
    kept = newest(records, "side", "seconds")
    peers = [record for record in kept if record["side"] == "transformers"]
    mine = sorted(
        (record for record in kept if record["side"] == "filbert"), key=lambda r: r["seconds"]
    )
    if not peers or not mine:
        return []
    peer, longest = max(peers, key=lambda r: r["seconds"]), mine[-1]
    speeds = [record["tokens_per_second"] for record in (longest, peer)]
    losses = ", ".join(f"{_loss(r)} after {r['seconds'] / 60:g} minutes" for r in mine)
    shape = longest["shape"]
    return [
        row(
            f"masked LM from scratch, {shape['num_hidden_layers']} x {shape['hidden_size']}, "
            f"{longest['max_length']} tokens",
            "make bench-pretrain",
            f"{speeds[0]:,.0f} tokens/s; held-out loss {losses}",
            f"Trainer: {speeds[1]:,.0f} tokens/s; {_loss(peer)} after "
            f"{peer['seconds'] / 60:g} minutes",
            times(speeds[0] / speeds[1]),
        )
    ]


def _loss(record: Record) -> str:
    return f"{record['judged']['framed']['loss']:.2f}"


def inference(records: Sequence[Record]) -> list[str]:
    """Filbert's slowest order of all texts, against the best peer of its session at its best."""
    rows = []
    for model in dict.fromkeys(record["model"] for record in records):
        # Of each number format the last session in which filbert was measured.
        kept = [
            newest(session, "side", "setting", "device")
            for session in sessions(
                # Not every setting has all sides.
                [record for record in records if record["model"] == model],
                of_one_set=False,
            )
        ]
        for precision in GOALS:
            some = next((s for s in reversed(kept) if best_of_filbert(s, precision)), [])
            mine, peer = best_of_filbert(some, precision), best_peer(some, precision)
            if mine is None:
                continue
            ceiling = mine["products"].get(precision)
            part = f" of {ceiling:,.0f} possible" if ceiling else ""
            rows.append(
                row(
                    f"vectors of {mine['texts']} texts as they come, {mine['label']}, {precision}",
                    "make bench-inference",
                    f"{rate(mine):,.0f} useful GFLOP/s{part}",
                    f"{peer['side']}, {peer['setting']}: {rate(peer):,.0f}" if peer else "",
                    times(rate(mine) / rate(peer)) + beside_others(mine, peer) if peer else "",
                )
            )
    return rows


def latency(records: Sequence[Record]) -> list[str]:
    """Filbert's fastest side, against the fastest peer of the same session."""
    rows = []
    for model, tokens in dict.fromkeys((r["model"], r["tokens"]) for r in records):
        some = [r for r in records if (r["model"], r["tokens"]) == (model, tokens)]
        # Of each of filbert's sides the last record, and those of the same session.
        mine: dict[str, tuple[Record, list[Record]]] = {}
        for session in sessions(some):
            kept = newest(session, "side", "device")
            mine |= {r["side"]: (r, kept) for r in kept if r["side"].startswith("filbert")}
        if not mine:
            continue
        best, beside = min(mine.values(), key=lambda pair: _p50(pair[0]))
        peers = [r for r in beside if not r["side"].startswith("filbert")]
        other = min(peers, key=_p50, default=None)
        rows.append(
            row(
                f"one text of {tokens} tokens, {best['label']}",
                "make bench-latency",
                f"{best['side']}: {_latency(best)}",
                f"{other['side']}: {_latency(other)}" if other else "",
                times(_p50(other) / _p50(best)) + beside_others(best, other) if other else "",
            )
        )
    return rows


def _p50(record: Record) -> float:
    return float(figures(record)["p50_ms"])


def _latency(record: Record) -> str:
    found = figures(record)
    return (
        f"p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms, first request "
        f"{found['first_ratio']:.1f} medians"
    )


def serve(records: Sequence[Record]) -> list[str]:
    """Sixteen clients, float32 on all sides; nothing from half of them."""
    asked = [r for r in newest(records, "side", "clients") if r["clients"] == 16]
    mine = next((r for r in asked if r["side"] == "filbert"), None)
    peers = [r for r in asked if not r["side"].startswith("filbert")]
    if mine is None or not peers:
        return []
    best = max(peers, key=lambda r: float(r["rate"]))
    cells = [f"{r['rate']:.0f} requests/s, p99 {r['p99_ms']:.0f} ms" for r in (mine, best)]
    ratio = f"{times(mine['rate'] / best['rate'])}, vectors equal to {mine['difference']:.0e}"
    what = "serve vectors of real comments to 16 clients, MiniLM, float32"
    return [row(what, "make bench-serve", cells[0], f"{best['side']}: {cells[1]}", ratio)]


def by_hand(records: Sequence[Record]) -> list[str]:
    names = ("what", "command", "filbert", "peer", "ratio")
    return [row(*(record.get(name, "") for name in names)) for record in newest(records, "what")]


MAKERS: dict[str, Callable[[Sequence[Record]], list[str]]] = {
    "finetune_toxic": finetune_toxic,
    "finetune_tasks": finetune_tasks,
    "embed": embed,
    "inference": inference,
    "latency": latency,
    "serve": serve,
    "pretrain_mlm": pretrain_mlm,
    "by_hand": by_hand,
}
# Of the README: the first rows of fine-tuning, vectors and serving, and the last, sizes.
SHORT = (("finetune_toxic", 0), ("embed", 0), ("serve", 0), ("by_hand", -1))


def table(results: Path) -> str:
    """The whole table, in the order of `MAKERS`."""
    lines = list(HEAD)
    for name, maker in MAKERS.items():
        lines += maker(read_results(results / f"{name}.jsonl"))
    return "\n".join(lines)


def short_table(results: Path) -> str:
    """The four rows of the README."""
    rows = [MAKERS[name](read_results(results / f"{name}.jsonl"))[at] for name, at in SHORT]
    return "\n".join([*HEAD, *rows])


def updated(page: str, table: str) -> str:
    """The page with the table between its markers.

    Raises:
        ValueError: there is not one of each marker, in this order.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in after:
        raise ValueError(f"the page must hold {BEGIN} and, after it, {END} once.")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE / "results")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="put the tables into the pages")
    what.add_argument("--check", action="store_true", help="fail where pages and results differ")
    given = parser.parse_args(words)
    if not given.write and not given.check:
        print(table(given.results))
        return 0
    status = 0
    for page, makes in PAGES.items():
        found = page.read_text(encoding="utf-8")
        made = updated(found, makes(given.results))
        if given.write:
            page.write_text(made, encoding="utf-8")
        elif found != made:
            print(f"{page} and the results differ; make report writes it.", file=sys.stderr)
            status = 1
    return status


PAGES = {HERE.parent / "docs" / "performance.md": table, HERE.parent / "README.md": short_table}

if __name__ == "__main__":
    sys.exit(main())
