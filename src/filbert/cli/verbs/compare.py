"""filbert compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.flags import flags_of, print_json
from filbert.compare.options import StudyOptions

if TYPE_CHECKING:
    StudyFlags = Any
else:
    StudyFlags = flags_of(StudyOptions)


def compare(
    recipe: str,
    /,
    *,
    out: str,
    options: Annotated[StudyFlags | None, Parameter(name="*")] = None,
    only: tuple[str, ...] = (),
    overwrite: bool = False,
    show_texts: bool = False,
    json: bool = False,
) -> int:
    """Train and measure several models on the same rows; one report with intervals and tests.

    The same command resumes a comparison that was stopped or killed.

    Parameters
    ----------
    recipe:
        TOML file with the study and a table for every contestant; toxic-study and
        distil-toxic are built in.
    out:
        the folder of the study.
    options:
        the study; flags take precedence over the recipe.
    only:
        run these contestants only: names of folders, or without their cleaning.
    overwrite:
        run again what the recipe has changed, and everything if the rows have changed.
    show_texts:
        the report shows texts of the rows.
    json:
        print results.json.
    """
    from rich.console import Console

    from filbert import api
    from filbert.cli.ranking import ranking_table

    flags = {} if options is None else StudyOptions.from_keywords(vars(options)).given()
    compared = api.compare(
        recipe, out=out, only=only, overwrite=overwrite, show_texts=show_texts, **flags
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
        Console(emoji=False).print(ranking_table(compared.results))
        for name, seed in failed:
            print(f"failed:  {name}, seed {seed['seed']}: {seed['error']}")
        if compared.results.get("choice"):
            print(f"choice:  {compared.results['choice']['why']}")
        print(f"table:   {compared.folder / 'table.md'}")
        print(f"report:  {compared.folder / 'report.html'}")
    return 1 if failed else 0
