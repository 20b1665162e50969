"""filbert finetune."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson
from filbert.cli.flags import flags_of
from filbert.cli.output import print_json
from filbert.train.options import FinetuneOptions

if TYPE_CHECKING:
    FinetuneFlags = Any
else:
    FinetuneFlags = flags_of(FinetuneOptions, required=("out",))


def finetune(
    *, options: Annotated[FinetuneFlags, Parameter(name="*")], json: AsJson = False
) -> int:
    """Fine-tune a model on labelled rows and write a run folder."""
    chosen = FinetuneOptions.from_keywords(vars(options))

    from pathlib import Path

    from rich.console import Console

    from filbert.report.run import write_run_report
    from filbert.report.table import difference_lines, result_table
    from filbert.train.seeds import run as run_finetuning
    from filbert.train.seeds import spread_lines

    run = run_finetuning(chosen)
    if not run:  # not the first of several processes
        return 0
    report = write_run_report(Path(chosen.run.out), show_texts=chosen.data.show_texts)
    several = {"seeds": run["seeds"]} if "seeds" in run else {}
    status = 1 if several and run["seeds"]["failed"] else 0
    if json:
        print_json(run["metrics"] | several)
        return status
    Console(emoji=False).print(result_table(run))
    for line in difference_lines(run):
        print(line)
    for line in spread_lines(run["seeds"]) if "seeds" in run else ():
        print(line)
    print(f"model:  {Path(chosen.run.out) / 'model'}")
    print(f"report: {report}")
    return status
