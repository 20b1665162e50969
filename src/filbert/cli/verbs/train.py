"""filbert finetune, pretrain, distill and replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson, OptionalFolder, Overwrite, flags_of
from filbert.cli.output import cell, print_json, print_places, print_run, print_table
from filbert.errors import printable
from filbert.report.numbers import MISSING
from filbert.train.distill_options import DistillOptions
from filbert.train.options import FinetuneOptions
from filbert.train.pretrain_options import PretrainOptions

if TYPE_CHECKING:
    from filbert.api import Run


@flags_of(FinetuneOptions, required=("out",))
def finetune(*, json: AsJson = False, **options: Any) -> int:
    """Fine-tune a model on labelled rows and write a run folder."""
    from filbert import api

    run = api.finetune(**options)
    if not run.facts:  # not the first of several processes
        return 0

    several = {kind: run.facts[kind] for kind in ("seeds", "folds") if kind in run.facts}
    status = 1 if any(one["failed"] for one in several.values()) else 0
    if json:
        print_json(run.metrics | several)
        return status
    print_run(run.facts) if "folds" not in several else _print_folds(several["folds"])
    if "seeds" in several:
        _print_seeds(several["seeds"])
    print_places(run.folder)
    return status


def _print_seeds(seeds: dict[str, Any]) -> None:
    """Print mean, deviation and best of the metric that chose."""
    summary = seeds["metrics"]["dev"].get(seeds["metric"])
    about = "not defined for every seed"
    if summary is not None:
        deviation = summary["deviation"]
        about = f"mean {summary['mean']:.4f}"
        about += "" if deviation is None else f", deviation {deviation:.4f}"
    if seeds["best_value"] is not None:
        about += f", best {seeds['best_value']:.4f} (seed {seeds['best']})"
    print(f"{len(seeds['runs'])} seeds, dev {seeds['metric']}: {about}")
    if seeds["failed"]:
        print(f"failed: seed {', '.join(seeds['failed'])}")


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


@flags_of(PretrainOptions, hidden=("seeds", "metric", "patience", "baseline"))
def pretrain(*, json: AsJson = False, **options: Any) -> None:
    """Pre-train on raw text: filbert pretrain RECIPE [--out DIR] [--key value].

    RECIPE is a TOML file with these options, or the name of a built-in recipe:
    mini-cpu, fast-base, bert-base-2018, bert-large-2018, roberta-base, albert-base, electra-small,
    domain-adapt, filbert-mini, transformer-small, elmo-small, ulmfit-small,
    xlnet-small. Flags take precedence.
    """
    from filbert import api
    from filbert.report.table import throughput

    run = api.pretrain(**options)
    if options.get("objective") in api.LINEAGE and not json:
        for split, metrics in run.metrics.items():
            print(f"{split}: " + ", ".join(f"{name} {n:.4f}" for name, n in metrics.items()))
        print(f"model: {run.folder}")
        return
    _print_finished(run, throughput(run.facts) if run.facts and not json else "", json=json)


@flags_of(DistillOptions, required=("out",), hidden=("seeds", "baseline"))
def distill(*, json: AsJson = False, **options: Any) -> None:
    """Train a small model on a large one: filbert distill [RECIPE] --teacher MODEL --out DIR.

    With --train it learns a fine-tuned teacher's answers to labelled rows, with --corpus the
    vectors of an encoder for raw text. RECIPE is a TOML file with these options; flags take
    precedence.
    """
    from filbert import api

    _print_finished(api.distill(**options), json=json)


def _print_finished(run: Run, *lines: str, json: bool) -> None:
    if not run.facts:  # not the first of several processes
        return
    if json:
        print_json(run.metrics)
        return
    print_run(run.facts)
    for line in lines:
        print(line)
    print_places(run.folder)


def replay(
    model: str,
    /,
    *,
    out: OptionalFolder = None,
    tolerance: float | None = None,
    overwrite: Overwrite = False,
    device: Annotated[
        str | None, Parameter(help="cpu, cuda, ...; by default that of the recorded run.")
    ] = None,
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
        largest allowed difference of a metric; by default 0 if data, versions, device and threads
        are those of the recorded run, otherwise 0.001.
    """
    from rich.text import Text

    from filbert.train.log import console
    from filbert.train.replay import replay as run_again

    result = run_again(model, out=out, tolerance=tolerance, overwrite=overwrite, device=device)
    if json:
        metrics = [one._asdict() | {"difference": one.difference} for one in result.metrics]
        print_json({"same": result.is_same, **vars(result), "metrics": metrics})
        return 0 if result.is_same else 1
    rows: list[tuple[str | Text, ...]] = []
    for one in result.metrics:
        style = "" if result.is_near(one) else "bold red"
        difference = MISSING if one.difference is None else f"{one.difference:.2g}"
        cells = (cell(one.recorded), cell(one.replayed), difference)
        name = printable(f"{one.split} {one.metric.replace('_', ' ')}", 500)
        rows.append((name, *(Text(cell, style=style) for cell in cells)))
    if rows:
        print_table(("metric", "recorded", "replayed", "difference"), rows, texts=(0,))
    for sentence in result.differs:
        print(f"differs: {sentence}")
    weights = {None: "no hashes were recorded", True: "the same, bit for bit", False: "different"}
    print(f"weights: {weights[result.same_weights]}")
    near, tolerance = sum(map(result.is_near, result.metrics)), result.tolerance
    within = f"differ by at most {tolerance:g}" if tolerance else "are equal"
    print(f"metrics: {near} of {len(rows)} {within}" if rows else "metrics: none were measured")
    same, style = ("the same", "green") if result.is_same else ("NOT THE SAME", "bold red")
    console().print(f"result:  {same}", style=style)
    print(f"run:     {result.out}")
    return 0 if result.is_same else 1
