"""filbert bench."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filbert.bench import Measured

TABLES = ("tokenize", "encode", "latency", "train")


def bench(
    what: str | None = None,
    /,
    *,
    model: str = "filbert-mini",
    seconds: float = 10.0,
    threads: int | None = None,
    device: str | None = None,
    json: bool = False,
) -> None:
    """Measure how fast this machine runs a model in its number formats; about a minute.

    Number formats take turns on the same texts; each value is a median. For comparisons with
    other tools see `benchmarks/` in the source repository.

    Parameters
    ----------
    what:
        tokenize, encode (vectors of texts), latency (one text at a time) or train (fine-tuning
        steps); all four when not given.
    model:
        folder, checkpoint, built-in name or Hub id.
    seconds:
        approximate time of each table; loading the model comes on top.
    threads:
        CPU threads; one per core when not given.
    device:
        cpu, cuda, ...; the first GPU when there is one.
    json:
        print JSON.
    """
    from filbert.errors import ConfigError

    if what is not None and what not in TABLES:
        raise ConfigError(f"There is no bench {what!r}. Available: {', '.join(TABLES)}.")
    if (threads is not None and threads < 1) or not 0 < seconds < 1e6:
        raise ConfigError("--threads and --seconds must be above zero.")

    import torch

    from filbert.bench import measure
    from filbert.cli.flags import print_json
    from filbert.train.provenance import device_name

    if threads is not None:
        torch.set_num_threads(threads)
    results = measure(model, (what,) if what else TABLES, seconds, device)
    machine = {
        "device": device_name(torch.device(device or "cpu")),
        "threads": torch.get_num_threads(),
        "vector_units": torch.backends.cpu.get_cpu_capability(),
    }
    if json:
        print_json({"model": model, **machine, "results": results})
        return
    title = (
        f"{model} on {machine['device']}, {machine['threads']} threads, {machine['vector_units']}"
    )
    _print_tables(title, results)


def _print_tables(title: str, results: Measured) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(emoji=False)
    console.print(title, style="bold", highlight=False, markup=False)
    for table in TABLES:
        rows = {name: row for name, row in results.items() if name.split()[0] == table}
        if not rows:
            continue
        grid = Table(box=None, pad_edge=False)
        for heading in (table, *next(iter(rows.values()))):
            grid.add_column(heading, justify="left" if heading == table else "right")
        for name, row in rows.items():
            label = name.removeprefix(table).strip() or "all texts"
            grid.add_row(
                label,
                *(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in row.values()),
            )
        console.print(grid, highlight=False, markup=False)
