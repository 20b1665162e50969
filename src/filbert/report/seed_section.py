"""Part of the report about several seeds: how far one figure can be trusted."""

from __future__ import annotations

from typing import Any

from filbert.report import numbers, page, score_plots
from filbert.report.folder import SPLITS, RunFolder
from filbert.report.page import Html, Section
from filbert.report.sections import drawn
from filbert.report.table import SHORT_COLUMNS, short_columns

MOST_PANELS = 5


def seeds(folder: RunFolder) -> Section | None:
    """Mean, deviation and every seed's value; the seed that was kept, and the ones that failed."""
    spread = folder.run.get("seeds")
    if not spread or not spread.get("runs"):
        return None
    parts: list[object] = [page.element("p", _sentence(spread))]
    if spread.get("failed"):
        failed = [[seed, why] for seed, why in spread["failed"].items()]
        parts.append(page.element("p", f"{len(failed)} failed and are no part of the figures:"))
        parts.append(page.table(["seed", "why it failed"], failed, num_text_columns=2))
    figures: list[Html] = []
    for split in reversed(SPLITS):
        columns = _columns(folder.run, spread, split)
        if not columns:
            continue
        values = [(heading, _values(spread, split, key)) for key, heading in columns]
        plot = score_plots.seed_dots(values[:MOST_PANELS], str(spread["best"]), f"{split} metric")
        caption = f"{split}: one dot a seed, the kept one red; grey: mean and one deviation."
        alt = f"Metrics of every seed on {split}"
        figures.append(drawn(folder, f"seeds_{split}", plot, alt=alt, caption=caption))
        parts_of_split = [page.element("h3", f"On {split}"), _table(spread, split, columns)]
        figures.append(page.element("div", page.join(parts_of_split)))
    return page.section("Seeds", *parts, page.gallery(figures))


def spread_of_seeds(run: dict[str, Any]) -> str:
    """The seeds in half a sentence, for the top of the page; empty for a single one."""
    spread = run.get("seeds") or {}
    if len(spread.get("runs") or ()) < 2:
        return ""
    figures = ((spread.get("figures") or {}).get("dev") or {}).get(spread.get("metric"))
    if not figures:
        return ""
    return (
        f"The best of {len(spread['runs'])} seeds, whose dev {_heading(spread['metric'])} is "
        f"{figures['mean']:.3f} ± {figures['deviation']:.3f}."
    )


def _sentence(spread: dict[str, Any]) -> str:
    text = f"{len(spread['runs'])} seeds were trained. Kept is seed {spread['best']}, the best on "
    text += f"dev by {_heading(spread['metric'])}"
    if spread.get("best_value") is not None:
        text += f" ({numbers.metric(spread['best_value'])})"
    return text + (
        ". Being the best on dev flatters its dev figures; the mean says what a new seed may give."
    )


def _heading(key: object) -> str:
    columns = [column for group in SHORT_COLUMNS.values() for column in group]
    return dict(reversed(columns)).get(str(key), str(key).replace("_", " "))


def _columns(run: dict[str, Any], spread: dict[str, Any], split: str) -> list[tuple[str, str]]:
    """The metric that chose, then the headline metrics; only those that every seed has."""
    known = (spread.get("figures") or {}).get(split) or {}
    short = dict(short_columns(run))
    order = dict.fromkeys([str(spread.get("metric")), *short])
    return [(key, short.get(key, key.replace("_", " "))) for key in order if key in known]


def _values(spread: dict[str, Any], split: str, key: str) -> list[tuple[str, float]]:
    return [(seed, float(run["metrics"][split][key])) for seed, run in spread["runs"].items()]


def _table(spread: dict[str, Any], split: str, columns: list[tuple[str, str]]) -> Html:
    rows: list[list[object]] = []
    for seed, run in spread["runs"].items():
        name: object = f"seed {seed}"
        if seed == str(spread["best"]):
            name = page.element("strong", f"{name}, kept")
        rows.append([name, *(numbers.metric(run["metrics"][split][key]) for key, _ in columns)])
    for name in ("mean", "deviation"):
        found = spread["figures"][split]
        rows.append([name, *(numbers.metric(found[key][name]) for key, _ in columns)])
    return page.table(["", *(heading for _, heading in columns)], rows, kind="dense")
