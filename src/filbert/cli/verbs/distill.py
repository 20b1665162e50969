"""filbert distill."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from filbert.cli.flags import print_json
from filbert.train.distill_options import DistillOptions


def distill(*, options: Annotated[DistillOptions, Parameter(name="*")], json: bool = False) -> None:
    """A small model learns from a large one: filbert distill [RECIPE] --teacher MODEL --out DIR.

    With --train it learns a fine-tuned teacher's answers to labelled rows, with --corpus what an
    encoder makes of raw text. RECIPE is a TOML file with these options; flags win over it.

    Parameters
    ----------
    options:
        the run.
    json:
        print the metrics as JSON.
    """
    options = DistillOptions.from_keywords(vars(options))

    from pathlib import Path

    from rich.console import Console

    from filbert.report.run import write_run_report

    if options.from_text:
        from filbert.report.table import pretraining_table as table
        from filbert.train.distill_pretraining import distill_pretraining as run_distillation
    else:
        from filbert.report.table import result_table as table
        from filbert.train.distill_task import distill_task as run_distillation

    run = run_distillation(options)
    if not run:  # not the first of several processes
        return
    report = write_run_report(Path(options.out), show_texts=options.show_texts)
    if json:
        print_json(run["metrics"])
        return
    Console(emoji=False).print(table(run))
    print(f"model:  {Path(options.out) / 'model'}")
    print(f"report: {report}")
