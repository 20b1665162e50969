"""What a pre-training run came to, and what one would take, as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from filbert.report import numbers
from filbert.report.pretraining_sections import FIGURES

if TYPE_CHECKING:
    from rich.table import Table


def pretraining_table(run: dict[str, Any]) -> Table:
    """The held-out figures and the pace of a run.

    Args:
        run: content of run.json.
    """
    table = _facts(run.get("name") or "pre-training")
    for split, figures in run["metrics"].items():
        for key, value in figures.items():
            name, kind = FIGURES.get(key, (key.replace("_", " "), "figure"))
            shown = numbers.percent(value) if kind == "share" else f"{value:,.4f}"
            table.add_row(f"{name} ({split})", shown)
        table.add_section()
    table.add_row("steps", f"{run['steps']:,}")
    table.add_row("tokens seen", f"{run['tokens']:,}")
    table.add_row("tokens per second", f"{run['tokens_per_second']:,.0f}")
    table.add_row("time", numbers.seconds(run["seconds"]))
    table.add_row("parameters", f"{run['model']['parameters']:,}")
    return table


def estimate_table(estimate: dict[str, Any]) -> Table:
    """What a dry run found.

    Args:
        estimate: as `train.dry_run.dry_run` gives it.
    """
    table = _facts("dry run")
    table.add_row("parameters", f"{estimate['parameters']:,}")
    for number, phase in enumerate(estimate["phases"], 1):
        table.add_section()
        rows = f"{phase['batch_size']:,} rows of up to {phase['max_length']:,} tokens"
        table.add_row(f"phase {number}", f"{phase['steps']:,} steps of {rows}")
        table.add_row("passes over the text", f"{phase['epochs']:.2f}")
        table.add_row("tokens", f"{phase['tokens']:,}")
        table.add_row("tokens per second here", f"{phase['tokens_per_second']:,.0f}")
        table.add_row("TFLOP/s here", f"{phase['tflops_per_second']:.3f}")
        table.add_row("time here", numbers.seconds(phase["seconds"]))
    table.add_section()
    table.add_row("tokens", f"{estimate['tokens']:,}")
    table.add_row("FLOP", f"{estimate['flops']:.2e}")
    table.add_row("memory of the trial", f"{estimate['memory_bytes'] / 2**30:.2f} GiB")
    table.add_row("precision", estimate["precision"])
    table.add_row("time here", numbers.seconds(estimate["seconds"]), style="bold")
    return table


def _facts(title: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    return table
