"""filbert quickstart."""

from __future__ import annotations

from filbert.cli.arguments import ModelName


def quickstart(
    *,
    out: str = "runs/quickstart",
    model: ModelName = "filbert-mini",
    seed: int = 42,
    steps: int | None = None,
    overwrite: bool = False,
) -> None:
    """Run the embedded example, from text to report: is a comment toxic?

    Checks 4,000 comments, fine-tunes a small model on them and compares it with TF-IDF on other
    comments. It takes a few minutes on a CPU and needs no network.

    Parameters
    ----------
    out:
        the run folder.
    seed:
        random seed for the new head, shuffling and dropout.
    steps:
        stop after this many optimiser steps, for a test.
    overwrite:
        replace an earlier run in --out.
    """
    from pathlib import Path

    from rich.console import Console

    from filbert.cli.verbs.check import print_report
    from filbert.quickstart import check_sample
    from filbert.quickstart import quickstart as run_quickstart
    from filbert.report.table import difference_lines, result_table
    from filbert.train.run_folder import check_out

    folder = Path(out)
    check_out(folder, overwrite=overwrite)
    print_report(check_sample(model), Console(stderr=True))
    facts = run_quickstart(folder, overwrite=overwrite, model=model, seed=seed, steps=steps)
    Console(emoji=False).print(result_table(facts))
    for line in difference_lines(facts):
        print(line)
    print(f"report: {folder / 'report.html'}")
    print("Try next:")
    print(f"  echo 'Thank you for your help.' | filbert predict {folder / 'model'}")
    print(f"  filbert info {folder / 'model'}")
    print('  filbert fill "She opened the [MASK] and went out."')
    print("  filbert compare toxic-study --data YOUR.csv --out runs/study --seeds 1")
    print("  filbert check --task classification YOUR.csv --text-column TEXT --label-column LABEL")
