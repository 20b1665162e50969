"""filbert bench."""

from __future__ import annotations


def bench(
    what: str | None = None,
    /,
    *,
    model: str = "filbert-mini",
    sides: str | None = None,
    seconds: float = 30.0,
    texts: int = 64,
    threads: int | None = None,
    device: str | None = None,
    json: bool = False,
) -> None:
    """How fast this machine is, beside other tools that are installed; about a minute a table.

    Every side works in a process of its own, on the same texts, and they take turns.

    Parameters
    ----------
    what:
        tokenize, encode (vectors from token ids), latency (the same, one text at a time), train
        (fine-tuning steps) or serve (vectors over HTTP); all five when not given.
    model:
        folder, checkpoint, built-in name or Hub id.
    sides:
        only these, between commas, such as filbert-bf16,transformers-float32.
    seconds:
        for the turns of a table, about; loading and converting models comes on top.
    texts:
        how many texts encode gets.
    threads:
        processor threads of every side; one a core, or OMP_NUM_THREADS, when not given.
    device:
        cpu, cuda, ...; the first GPU when there is one.
    json:
        print JSON.
    """
    import tempfile
    from pathlib import Path

    from rich.console import Console

    from filbert.bench.measure import MAKERS
    from filbert.cli.bench_tables import as_json, print_table
    from filbert.cli.flags import print_json
    from filbert.cli.setup_bench import chosen_sides, chosen_tables, set_up
    from filbert.train.log import say

    wanted = chosen_sides(chosen_tables(what), sides)
    console = Console(emoji=False)
    found = []
    with tempfile.TemporaryDirectory(prefix="filbert-bench-") as name:
        setup = set_up(
            model,
            Path(name),
            device=device,
            threads=threads,
            seconds=seconds,
            texts=texts,
        )
        for table, some in wanted.items():
            made = MAKERS[table](setup, some, say)
            found.append(made)
            if not json:
                print_table(made, console)
    if json:
        print_json(as_json(found, setup))
