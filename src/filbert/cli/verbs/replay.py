"""filbert replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.flags import print_json
from filbert.train.options import InputPaths

if TYPE_CHECKING:
    from filbert.train.replay import Verdict


def replay(
    model: str,
    /,
    *,
    out: str | None = None,
    tolerance: float | None = None,
    overwrite: bool = False,
    device: str | None = None,
    places: Annotated[InputPaths | None, Parameter(name="*")] = None,
    json: bool = False,
) -> int:
    """Train a model again as its filbert.json says, and compare the numbers.

    Exit status 1 when a metric is further away than the tolerance.

    Parameters
    ----------
    model:
        a model that filbert trained, or its run folder.
    out:
        the run folder to make; next to the recorded one when not given.
    tolerance:
        largest difference of a metric that passes; 0 where versions, device and threads are those
        of the recorded run, else 0.001.
    overwrite:
        replace an earlier run in OUT.
    device:
        cpu, cuda, ...; that of the recorded run when not given.
    json:
        print JSON.
    """
    from rich.console import Console

    from filbert.cli.comparison import replay_table
    from filbert.train.replay import replay as run_again

    verdict = run_again(
        model, out=out, tolerance=tolerance, overwrite=overwrite, device=device, places=places
    )
    if json:
        print_json(_as_json(verdict))
    else:
        weights = {
            None: "their hashes were not recorded",
            True: "the same, bit for bit",
            False: "not bit for bit the same",
        }
        Console(emoji=False).print(replay_table(verdict.figures, verdict.tolerance))
        print(f"weights: {weights[verdict.same_weights]}")
        is_same = "the same" if verdict.is_same else "NOT THE SAME"
        print(f"{is_same} (tolerance {verdict.tolerance})")
        print(f"run:     {verdict.out}")
    return 0 if verdict.is_same else 1


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
