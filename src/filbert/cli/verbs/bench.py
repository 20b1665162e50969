"""filbert bench."""

from __future__ import annotations

from filbert.cli.arguments import AsJson, Device, ModelName
from filbert.cli.output import print_json, print_table


def bench(
    what: str | None = None,
    /,
    *,
    model: ModelName = "filbert-mini",
    seconds: float = 10.0,
    threads: int | None = None,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Measure how fast this machine runs a model in its number formats; about a minute.

    Number formats take turns on the same texts; each value is a median. For comparisons with
    other tools see `benchmarks/` in the source repository.

    Parameters
    ----------
    what:
        tokenize, encode (vectors of texts), latency (one text at a time) or train (fine-tuning
        steps); by default all four.
    seconds:
        approximate time of each table, without loading the model.
    threads:
        CPU threads; by default one per core.
    """
    from filbert.bench import TABLES, measure

    measured = measure(model, what, seconds=seconds, threads=threads, device=device)
    if json:
        print_json(measured)
        return
    print("{model} on {device}, {threads} threads, {vector_units}".format(**measured))
    results = measured["results"]
    for table in TABLES:
        rows = {name: row for name, row in results.items() if name.split()[0] == table}
        if rows:
            cells = [
                [name.removeprefix(table).strip() or "all texts", *map(_number, row.values())]
                for name, row in rows.items()
            ]
            print_table((table, *next(iter(rows.values()))), cells, texts=(0,))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
