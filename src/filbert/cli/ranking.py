"""The contestants of a study on a terminal, the best first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from filbert.report.numbers import MISSING

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

# Metric and heading; the first one ranks.
_BINARY = (("pr_auc", "PR AUC"), ("roc_auc", "ROC AUC"), ("f1", "F1"))
_MORE = (("macro_f1", "macro F1"), ("accuracy", "accuracy"))


def ranking_table(results: dict[str, Any]) -> Table:
    """Figures with 95 % intervals, and costs.

    Args:
        results: content of results.json.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from filbert.errors import printable
    from filbert.report import numbers

    columns = _BINARY if results["positive"] is not None else _MORE
    ranked = sorted(results["contestants"], key=lambda c: -_value(c, columns[0][0]))
    rows = results["data"]["test"]["rows"]
    title = f"{numbers.count(rows)} test rows, mean of the seeds, 95 % interval"
    table = Table(
        title=title,
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("contestant", style="bold", no_wrap=True)
    for _, heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("seeds", "training", "rows/s"):
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
            numbers.seconds(costs.get("training_seconds")),
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
        text.append(f"\n{interval['low']:.3f}–{interval['high']:.3f}", style="dim")
    return text


def _whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"
