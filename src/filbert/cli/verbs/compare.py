"""filbert compare, and its ranking on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson, Folder, flags_of, shown_as
from filbert.cli.output import print_json, print_table
from filbert.compare.recipe import StudyOptions
from filbert.errors import ConfigError, printable
from filbert.report import numbers
from filbert.train.options import names_of

if TYPE_CHECKING:
    from rich.text import Text

    from filbert.report.comparison import StudyFiles

    StudyFlags = Any
else:
    StudyFlags = flags_of(StudyOptions)


def compare(
    recipe: str | None = None,
    /,
    *,
    out: Folder,
    models: Annotated[tuple[str, ...], shown_as("MODEL...")] = (),
    options: Annotated[StudyFlags | None, Parameter(name="*")] = None,
    only: tuple[str, ...] = (),
    overwrite: bool = False,
    json: AsJson = False,
) -> int:
    """Train and measure several models on the same rows; one report with intervals and tests.

    The same command resumes a comparison that was stopped or killed.

    Parameters
    ----------
    recipe:
        TOML file with the study and a table for every contestant; toxic-study and
        distil-toxic are built in. With --data it may be left out: TF-IDF and the built-in models,
        or those of --models, are compared.
    out:
        the folder of the study.
    models:
        without a recipe: models instead of the built-in ones, between commas: folders or Hub ids.
    only:
        run these contestants only.
    overwrite:
        replace finished runs of other rows or options.
    """
    from filbert import api
    from filbert.report.comparison import StudyFiles

    flags = {} if options is None else StudyOptions.from_keywords(vars(options)).given()
    compared = api.compare(
        _given_or_usual(recipe, models, flags),
        out=out,
        only=only,
        overwrite=overwrite,
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
        print_ranking(StudyFiles(compared.folder))
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


def print_ranking(study: StudyFiles) -> None:
    """Print the contestants of a study, the best first: metrics with intervals, and costs."""
    from rich.text import Text

    columns = study.metrics[:3]
    rows: list[tuple[str | Text, ...]] = []
    for one in study.measured + [one for one in study.contestants if not one.get("test")]:
        done = sum(seed["status"] == "finished" for seed in one["seeds"])
        metrics = [_cell(one["test"][key]) if one.get("test") else Text("–") for key, _ in columns]
        seconds, speed = (one["costs"].get(key) for key in ("training_seconds", "rows_per_second"))
        rows.append(
            (
                Text(printable(one["name"]), style="bold"),
                *metrics,
                one["status"] if not done else f"{done}/{len(one['seeds'])}",
                numbers.seconds(seconds),
                numbers.count(speed and round(speed)),
            )
        )
    names = (heading.partition(",")[0] for _, heading in columns)
    if columns:
        num_rows = study.results["data"]["test"]["rows"]
        print(f"{num_rows:,} test rows, mean of the seeds, {study.level} interval")
    print_table(("contestant", *names, "runs", "training", "rows/s"), rows, texts=(0,))


def _cell(metric: dict[str, Any]) -> Text:
    """Return the mean of the seeds with its interval below; that over seeds takes precedence."""
    from rich.text import Text

    text = Text(numbers.fixed(metric["value"], 4))
    interval = metric.get("over_seeds") or metric
    if interval["low"] is not None:
        ends = (f"{interval[end]:.3f}".removeprefix("0") for end in ("low", "high"))
        text.append("\n" + "–".join(ends), style="dim")
    return text
