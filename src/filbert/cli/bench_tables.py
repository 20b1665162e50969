"""The tables of `filbert bench` on a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from filbert.bench.facts import package_versions
from filbert.bench.measure import Setup, Table

# Cores that other programs may have kept busy before the figures are worth little.
_IDLE = 0.2


def print_table(table: Table, console: Console) -> None:
    """The figures, then what they say, then who is not in them."""
    console.print(f"\n{table.title}", style="bold", highlight=False, markup=False)
    grid = Grid(box=None, pad_edge=False)
    for heading in ("", *table.columns):
        grid.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    for side, figures in table.rows.items():
        grid.add_row(side, *(f"{figures[name]:,.{_digits(figures[name])}f}" for name in figures))
    if table.rows:
        console.print(grid, highlight=False, markup=False)
    for sentence in (*table.says, *_busy(table)):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    for sentence in table.left_out:
        said = f"Left out: {sentence}"
        console.print(said, style="dim", highlight=False, markup=False, soft_wrap=True)


def _digits(value: float) -> int:
    return 0 if value >= 100 or isinstance(value, int) else 1 if value >= 10 else 2


def _busy(table: Table) -> list[str]:
    cores = table.facts.get("other_programs_cores") or 0.0
    if cores <= _IDLE:
        return []
    return [
        f"Beware: other programs kept {cores:.1f} cores busy meanwhile; ratios still hold best."
    ]


def as_json(tables: Sequence[Table], setup: Setup) -> dict[str, Any]:
    """Everything that was measured."""
    import torch

    from filbert import __version__
    from filbert.train.facts import device_name

    return {
        "filbert": __version__,
        "model": setup.model.name,
        "device": device_name(torch.device(setup.device)),
        "threads": setup.threads,
        "packages": package_versions(("torch", *_peers())),
        **{
            table.name: {
                "title": table.title,
                "rows": table.rows,
                "left_out": table.left_out,
                "says": table.says,
                **table.facts,
            }
            for table in tables
        },
    }


def _peers() -> tuple[str, ...]:
    from filbert.bench.facts import PEERS

    return PEERS
