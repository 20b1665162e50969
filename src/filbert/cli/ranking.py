"""The contestants of a study on a terminal, the best first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from filbert.report import numbers
from filbert.report.numbers import MISSING

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

# Metric and heading; the first one ranks.
_BINARY = (("pr_auc", "PR AUC"), ("roc_auc", "ROC AUC"), ("f1", "F1"))
_MORE = (("macro_f1", "macro F1"), ("accuracy", "accuracy"))


def ranking_table(results: dict[str, Any]) -> Table:
    """Metrics with 95 % intervals, and costs.

    Args:
        results: content of results.json.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from filbert.errors import printable

    columns = _BINARY if results["positive"] is not None else _MORE
    ranked = sorted(results["contestants"], key=lambda c: -_value(c, columns[0][0]))
    rows = results["data"]["test"]["rows"]
    level = 100 * ((results.get("statistics") or {}).get("level") or 0.95)
    title = f"{numbers.count(rows)} test rows, mean of the seeds, {level:g} % interval"
    if any((c.get("test") or {}).get(columns[0][0], {}).get("over_seeds") for c in ranked):
        title += " (over rows and seeds)"
    table = Table(
        title=title,
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0),
    )
    # The names give way, and only the longer ones: figures that break cannot be read.
    table.add_column("contestant", style="bold", min_width=18, overflow="fold")
    for _, heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("runs", "training", "rows/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in ranked:
        done = [seed for seed in one["seeds"] if seed["status"] == "finished"]
        costs = one.get("costs") or {}
        figures = [_figure(one, key) for key, _ in columns]
        if not done:
            figures[0] = Text(one["status"], style="red")
        table.add_row(
            Text(printable(one["name"])),
            *figures,
            f"{len(done)}/{len(one['seeds'])}",
            _seconds(costs.get("training_seconds")),
            _whole(costs.get("rows_per_second")),
        )
    return table


def _value(one: dict[str, Any], metric: str) -> float:
    found = (one.get("test") or {}).get(metric) or {}
    value = found.get("value")
    return -1.0 if value is None else float(value)


def _figure(one: dict[str, Any], metric: str) -> Text:
    """Mean of the seeds; below it the interval, which holds the choice of seeds where it can."""
    from rich.text import Text

    found = (one.get("test") or {}).get(metric) or {}
    if found.get("value") is None:
        return Text(MISSING)
    text = Text(f"{found['value']:.4f}")
    interval = found.get("over_seeds") or found
    if interval.get("low") is not None and interval.get("high") is not None:
        ends = (f"{interval[end]:.3f}".removeprefix("0") for end in ("low", "high"))
        text.append("\n" + "–".join(ends), style="dim")
    return text


def _seconds(value: float | None) -> str:
    """4.8 s, 95 s, 12 min, 3.4 h: eight characters at most."""
    if value is None or value < 120:
        return numbers.seconds(value)
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def _whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"
