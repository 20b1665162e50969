"""filbert bench."""

from __future__ import annotations

from filbert.cli.arguments import AsJson, Device, ModelName
from filbert.cli.output import print_json, print_table
from filbert.errors import ConfigError

TABLES = ("tokenize", "encode", "latency", "train")


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
    if what is not None and what not in TABLES:
        raise ConfigError(f"There is no bench {what!r}. Available: {', '.join(TABLES)}.")
    if (threads is not None and threads < 1) or not 0 < seconds < 1e6:
        raise ConfigError("--threads and --seconds must be above zero.")

    import torch

    from filbert.bench import measure
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
    print("{} on {device}, {threads} threads, {vector_units}".format(model, **machine))
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
