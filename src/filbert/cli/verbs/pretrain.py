"""filbert pretrain."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from filbert.cli.flags import print_json
from filbert.train.pretrain_options import PretrainOptions

_OPTIONS = PretrainOptions()


def pretrain(
    *, options: Annotated[PretrainOptions, Parameter(name="*")] = _OPTIONS, json: bool = False
) -> None:
    """Learn from raw text: filbert pretrain RECIPE [--corpus FILE ...] [--out DIR] [--key value].

    RECIPE is a TOML file with these options, or the name of a recipe that filbert brings along:
    mini-cpu, fast-base, bert-base-2018, bert-large-2018, roberta-base, albert-base, electra-small,
    domain-adapt, filbert-mini. Flags win over it.

    Parameters
    ----------
    options:
        the run.
    json:
        print the result as JSON.
    """
    options = PretrainOptions.from_keywords(vars(options))

    from pathlib import Path

    from rich.console import Console

    from filbert.report.run import write_run_report
    from filbert.report.table import pretraining_table

    if options.dry_run:
        from filbert.report.table import estimate_table
        from filbert.train.dry_run import dry_run

        estimate = dry_run(options)
        if json:
            print_json(estimate)
        elif estimate:
            Console(emoji=False).print(estimate_table(estimate))
        return
    from filbert.train.pretrain import pretrain as run_pretraining

    run = run_pretraining(options)
    if not run:  # not the first of several processes
        return
    report = write_run_report(Path(options.out))
    if json:
        print_json(run["metrics"])
        return
    Console(emoji=False).print(pretraining_table(run))
    print(f"model:  {Path(options.out) / 'model'}")
    print(f"report: {report}")
