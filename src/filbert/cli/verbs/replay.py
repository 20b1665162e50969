"""filbert replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson
from filbert.cli.output import print_json, print_table
from filbert.cli.verbs.info import NOTHING, shown
from filbert.errors import printable

if TYPE_CHECKING:
    from filbert.train.replay import Verdict


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
    data_root: str | None = None,
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
        largest allowed difference of a metric; by default 0 if versions, device and threads are
        those of the recorded run, otherwise 0.001.
    overwrite:
        replace an earlier run in OUT.
    data_root:
        folder with the files of the run, if they have moved.
    """
    from filbert.train.replay import replay as run_again

    verdict = run_again(
        model, out=out, tolerance=tolerance, overwrite=overwrite, device=device, data_root=data_root
    )
    if json:
        print_json(_as_json(verdict))
    else:
        weights = {
            None: "their hashes were not recorded",
            True: "the same, bit for bit",
            False: "not bit for bit the same",
        }
        _print_metrics(verdict)
        print(f"weights: {weights[verdict.same_weights]}")
        is_same = "the same" if verdict.is_same else "NOT THE SAME"
        print(f"{is_same} (tolerance {verdict.tolerance})")
        print(f"run:     {verdict.out}")
    return 0 if verdict.is_same else 1


def _print_metrics(verdict: Verdict) -> None:
    """Print the metrics of a run and its replay; differences beyond the tolerance are red."""
    from rich.text import Text

    rows: list[tuple[str | Text, ...]] = []
    for figure in verdict.figures:
        style = "" if figure.is_within(verdict.tolerance) else "bold red"
        difference = NOTHING if figure.difference is None else f"{figure.difference:.2g}"
        cells = (shown(figure.recorded), shown(figure.replayed), difference)
        name = printable(f"{figure.split} {figure.metric.replace('_', ' ')}", 500)
        rows.append((name, *(Text(cell, style=style) for cell in cells)))
    print_table(("metric", "recorded", "replayed", "difference"), rows, texts=(0,))


def _as_json(verdict: Verdict) -> dict[str, Any]:
    figures = [figure._asdict() | {"difference": figure.difference} for figure in verdict.figures]
    return {
        "same": verdict.is_same,
        "same_weights": verdict.same_weights,
        "tolerance": verdict.tolerance,
        "differs": verdict.differs,
        "out": verdict.out,
        "figures": figures,
    }
