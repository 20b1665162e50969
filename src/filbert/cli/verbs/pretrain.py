"""filbert pretrain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson, flags_of
from filbert.cli.output import print_json
from filbert.train.pretrain_options import PretrainOptions

if TYPE_CHECKING:
    PretrainFlags = Any
else:
    PretrainFlags = flags_of(PretrainOptions)


def pretrain(
    *, options: Annotated[PretrainFlags | None, Parameter(name="*")] = None, json: AsJson = False
) -> None:
    """Pre-train on raw text: filbert pretrain RECIPE [--corpus FILE ...] [--out DIR] [--key value].

    RECIPE is a TOML file with these options, or the name of a built-in recipe:
    mini-cpu, fast-base, bert-base-2018, bert-large-2018, roberta-base, albert-base, electra-small,
    domain-adapt, filbert-mini. Flags take precedence.
    """
    chosen = PretrainOptions.from_keywords(vars(options) if options else {})

    from pathlib import Path

    from rich.console import Console

    from filbert.report.run import write_run_report
    from filbert.report.table import pretraining_table
    from filbert.train.pretrain import pretrain as run_pretraining

    run = run_pretraining(chosen)
    if not run:  # not the first of several processes
        return
    out = Path(chosen.run.out)
    report = write_run_report(out)
    if json:
        print_json(run["metrics"])
        return
    Console(emoji=False).print(pretraining_table(run))
    print(f"model:  {out / 'model'}")
    print(f"report: {report}")
