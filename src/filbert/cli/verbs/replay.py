"""filbert replay."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from filbert.cli.arguments import AsJson
from filbert.cli.output import print_json, print_table
from filbert.cli.verbs.info import NOTHING, shown
from filbert.errors import printable


def replay(
    model: str,
    /,
    *,
    out: str | None = None,
    tolerance: float | None = None,
    overwrite: bool = False,
    device: Annotated[
        str | None, Parameter(help="cpu, cuda, ...; by default that of the recorded run.")
    ] = None,
    json: AsJson = False,
) -> int:
    """Train a model again from the options in its filbert.json, and compare the metrics.

    Exit status 1 if a metric differs by more than the tolerance.

    Parameters
    ----------
    model:
        a model that filbert trained, or its run folder.
    out:
        the run folder to write; by default next to the recorded one.
    tolerance:
        largest allowed difference of a metric; by default 0 if data, versions, device and threads
        are those of the recorded run, otherwise 0.001.
    overwrite:
        replace an earlier run in OUT.
    """
    from rich.text import Text

    from filbert.train.replay import replay as run_again

    result = run_again(model, out=out, tolerance=tolerance, overwrite=overwrite, device=device)
    if json:
        metrics = [one._asdict() | {"difference": one.difference} for one in result.metrics]
        print_json({"same": result.is_same, **vars(result), "metrics": metrics})
        return 0 if result.is_same else 1
    rows: list[tuple[str | Text, ...]] = []
    for one in result.metrics:
        style = "" if result.is_near(one) else "bold red"
        difference = NOTHING if one.difference is None else f"{one.difference:.2g}"
        cells = (shown(one.recorded), shown(one.replayed), difference)
        name = printable(f"{one.split} {one.metric.replace('_', ' ')}", 500)
        rows.append((name, *(Text(cell, style=style) for cell in cells)))
    print_table(("metric", "recorded", "replayed", "difference"), rows, texts=(0,))
    for sentence in result.differs:
        print(f"differs: {sentence}")
    weights = {None: "no hashes were recorded", True: "the same, bit for bit", False: "different"}
    print(f"weights: {weights[result.same_weights]}")
    print(f"{'the same' if result.is_same else 'NOT THE SAME'} (tolerance {result.tolerance})")
    print(f"run:     {result.out}")
    return 0 if result.is_same else 1
