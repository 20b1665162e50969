"""filbert finetune."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson, flags_of
from filbert.cli.output import print_json, print_table
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
    several = {kind: run[kind] for kind in ("seeds", "folds") if kind in run}
    status = 1 if any(one["failed"] for one in several.values()) else 0
    if json:
        print_json(run["metrics"] | several)
        return status
    if "folds" in run:
        _print_folds(run["folds"])
    else:
        Console(emoji=False).print(result_table(run))
        for line in difference_lines(run):
            print(line)
    for line in spread_lines(run["seeds"]) if "seeds" in run else ():
        print(line)
    print(f"model:  {Path(chosen.run.out) / 'model'}")
    print(f"report: {report}")
    return status


def _print_folds(folds: dict[str, Any]) -> None:
    """Print mean, deviation and all values of every metric over the folds."""
    rows = {name: summary for name, summary in folds["metrics"].items() if name != "threshold"}
    baseline = folds["baseline"]
    if baseline is not None:
        rows[f"{baseline['metric']} of {baseline['name']}"] = baseline

    def cells(summary: dict[str, Any]) -> list[str]:
        deviation = summary["deviation"]
        numbers = [summary["mean"], *([] if deviation is None else [deviation])]
        return [f"{n:.4f}" for n in numbers] + [" ".join(f"{v:.4f}" for v in summary["values"])]

    print(f"{len(folds['runs'])} folds; the model of the run is trained on all rows")
    headings = ("metric", "mean", "deviation", "folds")
    print_table(headings, [(name, *cells(s)) for name, s in rows.items()], texts=(0, 3))
    if folds["failed"]:
        print(f"failed: fold {', '.join(folds['failed'])}")
