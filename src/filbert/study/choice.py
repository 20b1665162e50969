"""The model that a study was made to find: quick and good enough, chosen on dev, told by test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from filbert.report.comparison_study import named
from filbert.report.numbers import percent
from filbert.study.target import Target

HEADINGS = {"pr_auc": "PR AUC", "macro_f1": "macro F1"}


def choice_of(entries: Sequence[Mapping[str, Any]], target: Target, metric: str) -> dict[str, Any]:
    """Who is chosen, and why.

    With a quality to reach it is the cheapest of those that reach it on dev: the one that answers
    most rows a second, as that is what serving a row costs. With a time alone it is the best on dev
    of those within the time. Test rows have no part in it, so that their figures stay honest.

    Args:
        entries: contestants of results.json.
        target: what must be reached.
        metric: the figure of two labels or of more.

    Returns:
        target_quality, target_latency_seconds, of, metric, chosen (a name, or None), why (sentences
        for the reader), and candidates: name, dev, dev_share, rows_per_second, latency_seconds,
        is_good and is_quick.
    """
    known = {entry["name"]: _facts(entry, metric) for entry in entries if entry.get("test")}
    reference = known.get(target.of or "")
    found = []
    for name, facts in known.items():
        if target.quality is not None and name == target.of:
            continue
        share = facts["dev"] / reference["dev"] if reference and reference["dev"] else None
        facts |= {
            "dev_share": share,
            "is_good": target.quality is None or (share is not None and share >= target.quality),
            "is_quick": _is_quick(facts["latency_seconds"], target),
        }
        found.append({"name": name, **facts})
    fitting = [one for one in found if one["is_good"] and one["is_quick"]]
    by = "dev" if target.quality is None else "rows_per_second"
    chosen = max(fitting, key=lambda one: one[by] or 0.0, default=None)
    if target.quality is not None and reference is None:
        why = f"{named(target.of)} has no finished run, so nobody's share of its quality is known."
    elif chosen is None:
        why = _none(found, target, HEADINGS[metric])
    else:
        share = next(e.get("share") for e in entries if e["name"] == chosen["name"])
        why = _chosen(chosen, len(fitting), reference, share, target, HEADINGS[metric])
    return {
        "target_quality": target.quality,
        "target_latency_seconds": target.latency_seconds,
        "of": target.of,
        "metric": metric,
        "chosen": None if chosen is None else chosen["name"],
        "why": why,
        "candidates": found,
    }


def _facts(entry: Mapping[str, Any], metric: str) -> dict[str, Any]:
    values = [(run.get("dev") or {}).get(metric) for run in entry["seeds"]
              if run["status"] == "finished"]  # fmt: skip
    numbers = [value for value in values if value is not None]
    costs = entry.get("costs") or {}
    return {
        "dev": fmean(numbers) if numbers else 0.0,
        "rows_per_second": costs.get("rows_per_second"),
        "latency_seconds": costs.get("latency_seconds"),
    }


def _is_quick(seconds: float | None, target: Target) -> bool:
    limit = target.latency_seconds
    return limit is None or (seconds is not None and seconds <= limit)


def _chosen(
    one: Mapping[str, Any],
    num_fitting: int,
    reference: Mapping[str, Any] | None,
    share: Mapping[str, Any] | None,
    target: Target,
    heading: str,
) -> str:
    what = " and ".join(_wishes(target, heading))
    if target.quality is None:
        text = f"{named(one['name'])} has the highest {heading} on dev ({one['dev']:.4f})"
    else:
        text = (
            f"{named(one['name'])} answers most rows a second ({one['rows_per_second'] or 0:,.0f})"
        )
    text += f" of the {num_fitting} that {what}" if num_fitting > 1 else f", the only one to {what}"
    if one["dev_share"] is not None and target.quality is not None:
        text += f"; it has {percent(one['dev_share'])} there"
    if target.latency_seconds is not None:
        text += f"; it takes {_time(one['latency_seconds'])}"
    text += "."
    pace = (reference or {}).get("rows_per_second")
    if pace and one["rows_per_second"] and target.quality is not None:
        text += (
            f" That is {one['rows_per_second'] / pace:.1f} times the speed of {named(target.of)}."
        )
    if share is not None and share.get("value") is not None:
        text += f" On test it has {percent(share['value'])}"
        if share.get("low") is not None:
            text += f" [{percent(share['low'])}, {percent(share['high'])}]"
        text += f" of {named(share['of'])}'s {heading}"
        if target.quality is not None and share["value"] < target.quality:
            text += ", which is less than was asked for"
        text += "."
    return text


def _none(found: Sequence[Mapping[str, Any]], target: Target, heading: str) -> str:
    wishes = _wishes(target, heading)
    text = f"None of the {len(found)} measured contestants could {' and '.join(wishes)}."
    good = [one for one in found if one["dev_share"] is not None]
    if target.quality is not None and good:
        best = max(good, key=lambda one: one["dev_share"])
        text += (
            f" The nearest in quality is {named(best['name'])} with {percent(best['dev_share'])}."
        )
    quick = [one for one in found if one["latency_seconds"] is not None]
    if target.latency_seconds is not None and quick:
        first = min(quick, key=lambda one: one["latency_seconds"])
        text += f" The quickest is {named(first['name'])} with {_time(first['latency_seconds'])}."
    return text


def _wishes(target: Target, heading: str) -> list[str]:
    found = []
    if target.quality is not None:
        found.append(f"reach {percent(target.quality)} of {named(target.of)}'s {heading} on dev")
    if target.latency_seconds is not None:
        found.append(f"answer a single text within {_time(target.latency_seconds)}")
    return found


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
