"""filbert compare, and its ranking on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson, flags_of
from filbert.cli.output import print_json, print_table
from filbert.compare.recipe import StudyOptions
from filbert.errors import ConfigError, printable
from filbert.report import numbers
from filbert.report.numbers import MISSING
from filbert.train.options import names_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    StudyFlags = Any
else:
    StudyFlags = flags_of(StudyOptions)

# Metric and heading; the first one ranks.
_BINARY = (("pr_auc", "PR AUC"), ("roc_auc", "ROC AUC"), ("f1", "F1"))
_OTHER = (("macro_f1", "macro F1"), ("accuracy", "accuracy"))


def compare(
    recipe: str | None = None,
    /,
    *,
    out: str,
    models: tuple[str, ...] = (),
    options: Annotated[StudyFlags | None, Parameter(name="*")] = None,
    only: tuple[str, ...] = (),
    overwrite: bool = False,
    show_texts: bool = False,
    json: AsJson = False,
) -> int:
    """Train and measure several models on the same rows; one report with intervals and tests.

    The same command resumes a comparison that was stopped or killed.

    Parameters
    ----------
    recipe:
        TOML file with the study and a table for every contestant; toxic-study and
        distil-toxic are built in. With --data it may be left out: TF-IDF, the built-in models
        and those of --models are compared.
    out:
        the folder of the study.
    models:
        without a recipe: further models, between commas: folders or Hub ids.
    only:
        run these contestants only.
    overwrite:
        replace finished runs of other rows or options.
    show_texts:
        the report shows texts of the rows.
    """
    from filbert import api

    flags = {} if options is None else StudyOptions.from_keywords(vars(options)).given()
    compared = api.compare(
        _given_or_usual(recipe, models, flags),
        out=out,
        only=only,
        overwrite=overwrite,
        show_texts=show_texts,
        **flags,
    )
    failed = [
        (one["name"], seed)
        for one in compared.results["contestants"]
        for seed in one["seeds"]
        if seed["status"] == "failed"
    ]
    if json:
        print_json(compared.results)
    else:
        print_ranking(compared.results)
        for name, seed in failed:
            print(f"failed:  {name}, seed {seed['seed']}: {seed['error']}")
        print(f"report:  {compared.folder / 'report.html'}")
    return 1 if failed else 0


def _given_or_usual(
    recipe: str | None, models: tuple[str, ...], flags: dict[str, Any]
) -> str | dict[str, Any]:
    """Return the recipe, or that of a comparison of usual models on rows that the flags name."""
    from filbert.compare.recipe import usual_recipe

    if recipe is None and not flags.keys() & {"data", "train"}:
        raise ConfigError("compare needs a RECIPE, or --data FILE with labelled rows.")
    if recipe is not None and models:
        raise ConfigError("--models is for a comparison without a recipe; add tables to it.")
    return usual_recipe(names_of(models)) if recipe is None else recipe


def print_ranking(results: dict[str, Any], console: Console | None = None) -> None:
    """Print the contestants of results.json, the best first: metrics with intervals, and costs."""
    from rich.console import Console
    from rich.text import Text

    columns = _BINARY if results["positive"] is not None else _OTHER
    first = columns[0][0]
    ranked = sorted(results["contestants"], key=lambda one: -_value(one, first))
    level = 100 * ((results.get("statistics") or {}).get("level") or 0.95)
    num_rows = numbers.count(results["data"]["test"]["rows"])
    title = f"{num_rows} test rows, mean of the seeds, {level:g} % interval"
    if any(_metric(one, first).get("over_seeds") for one in ranked):
        title += " (over rows and seeds)"
    rows: list[tuple[str | Text, ...]] = []
    for one in ranked:
        done = [seed for seed in one["seeds"] if seed["status"] == "finished"]
        costs = one.get("costs") or {}
        metrics = [_cell(one, key) for key, _ in columns]
        if not done:
            metrics[0] = Text(one["status"], style="red")
        rows.append(
            (
                Text(printable(one["name"]), style="bold"),
                *metrics,
                f"{len(done)}/{len(one['seeds'])}",
                _seconds(costs.get("training_seconds")),
                _whole(costs.get("rows_per_second")),
            )
        )
    headings = ("contestant", *(name for _, name in columns), "runs", "training", "rows/s")
    console = console or Console(emoji=False)
    console.print(title, highlight=False)
    print_table(headings, rows, texts=(0,), console=console)


def _metric(one: dict[str, Any], name: str) -> dict[str, Any]:
    return (one.get("test") or {}).get(name) or {}


def _value(one: dict[str, Any], name: str) -> float:
    value = _metric(one, name).get("value")
    return -1.0 if value is None else float(value)


def _cell(one: dict[str, Any], name: str) -> Text:
    """Return the mean of the seeds with its interval below; that over seeds takes precedence."""
    from rich.text import Text

    metric = _metric(one, name)
    if metric.get("value") is None:
        return Text(MISSING)
    text = Text(f"{metric['value']:.4f}")
    interval = metric.get("over_seeds") or metric
    if interval.get("low") is not None and interval.get("high") is not None:
        ends = (f"{interval[end]:.3f}".removeprefix("0") for end in ("low", "high"))
        text.append("\n" + "–".join(ends), style="dim")
    return text


def _seconds(value: float | None) -> str:
    """Return 4.8 s, 95 s, 12 min or 3.4 h: eight characters at most."""
    if value is None or value < 120:
        return numbers.seconds(value)
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def _whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"
