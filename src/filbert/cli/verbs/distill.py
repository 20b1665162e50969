"""filbert distill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson, flags_of
from filbert.cli.output import print_json
from filbert.train.distill_options import DistillOptions

if TYPE_CHECKING:
    DistillFlags = Any
else:
    DistillFlags = flags_of(DistillOptions, required=("out",))


def distill(*, options: Annotated[DistillFlags, Parameter(name="*")], json: AsJson = False) -> None:
    """Train a small model on a large one: filbert distill [RECIPE] --teacher MODEL --out DIR.

    With --train it learns a fine-tuned teacher's answers to labelled rows, with --corpus the
    vectors of an encoder for raw text. RECIPE is a TOML file with these options; flags take
    precedence.
    """
    chosen = DistillOptions.from_keywords(vars(options))

    from pathlib import Path

    from rich.console import Console

    from filbert.report.run import write_run_report

    if chosen.from_text:
        from filbert.report.table import pretraining_table as table
        from filbert.train.distill_text import distill_text as run_distillation
    else:
        from filbert.report.table import result_table as table
        from filbert.train.distill import distill as run_distillation

    run = run_distillation(chosen)
    if not run:  # not the first of several processes
        return
    out = Path(chosen.run.out)
    report = write_run_report(out, show_texts=chosen.data.show_texts)
    if json:
        print_json(run["metrics"])
        return
    Console(emoji=False).print(table(run))
    print(f"model:  {out / 'model'}")
    print(f"report: {report}")
