"""filbert verify-resume."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from filbert.cli.flags import print_json
from filbert.train.options import FinetuneOptions


def verify_resume(
    *,
    options: Annotated[FinetuneOptions, Parameter(name="*")],
    kill_after: int | None = None,
    json: bool = False,
) -> int:
    """Check on your own recipe that a killed run, resumed, ends with the same weights.

    Runs it straight through, then again with a kill -9 on the way and --resume. Exit status 1 when
    the two differ.

    Parameters
    ----------
    options:
        the run; --out becomes a folder with both.
    kill_after:
        the step after which the second run is killed; half of the steps when not given.
    json:
        print JSON.
    """
    options = FinetuneOptions.from_keywords(vars(options))

    from filbert.train.verify import verify_resume as verify

    verdict = verify(options, kill_after)
    if json:
        print_json(verdict._asdict() | {"same": verdict.same})
    else:
        print(f"straight:  {verdict.straight}")
        print(f"resumed:   {verdict.resumed} (killed after step {verdict.killed_after})")
        print("the same weights, bit for bit" if verdict.same else "THE WEIGHTS DIFFER")
    return 0 if verdict.same else 1
