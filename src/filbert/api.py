"""The Python face of filbert: what `import filbert` offers.

Its functions import what they need once the options are known to be right: torch takes a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.train.options import FinetuneOptions, names_of
from filbert.train.pretrain_options import PretrainOptions

if TYPE_CHECKING:
    from filbert.inference.predictor import Predictor


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: the run folder: run.json, metrics.jsonl, model/, report.html, plots/.
        facts: the content of run.json.
    """

    folder: Path
    facts: dict[str, Any]

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Metrics by split: {"dev": {...}, "test": {...}}."""
        return self.facts["metrics"]  # type: ignore[no-any-return]

    @property
    def baseline(self) -> dict[str, Any] | None:
        """The best simple predictor on dev, otherwise on test; None if there is none."""
        return self.facts.get("baseline")

    @cached_property
    def model(self) -> Predictor:
        """The model that the run left, loaded."""
        from filbert.inference.predictor import Predictor

        return Predictor.load(self.folder / "model")


@dataclass(frozen=True)
class Comparison:
    """A finished comparison.

    Attributes:
        folder: the study's folder: results.json, report.html, table.md, plots/, contestants/.
        results: the content of results.json.
    """

    folder: Path
    results: dict[str, Any]


def load(name: str | Path, **options: Any) -> Predictor:
    """Load a model folder, a built-in name ("filbert-mini") or a Hub id; see `Predictor.load`."""
    from filbert.inference.predictor import Predictor

    return Predictor.load(name, **options)


def finetune(**options: Any) -> Run:
    """Fine-tune; the keywords are the fields of `FinetuneOptions`.

    Raises:
        ConfigError: an unknown or missing keyword, or options that contradict each other.
        InputError, FormatError: the data or the model is wrong; nothing has been written then.
    """
    chosen = FinetuneOptions.from_keywords(options)

    from filbert.report.run import write_run_report
    from filbert.train.seeds import run

    facts = run(chosen)
    folder = Path(chosen.run.out)
    if facts:  # only the first of several processes has any
        write_run_report(folder, show_texts=chosen.data.show_texts)
    return Run(folder, facts)


def pretrain(**options: Any) -> Run:
    """Pre-train; the keywords are the fields of `PretrainOptions`.

    Raises:
        ConfigError: an unknown or missing keyword, or options that contradict each other.
        InputError, FormatError: the text or the model is wrong.
    """
    chosen = PretrainOptions.from_keywords(options)

    from filbert.report.run import write_run_report
    from filbert.train.pretrain import pretrain as run_pretraining

    facts = run_pretraining(chosen)
    folder = Path(chosen.run.out)
    if facts:  # only the first of several processes has any
        write_run_report(folder)
    return Run(folder, facts)


def distill(**options: Any) -> Run:
    """Make a student learn from a teacher; the keywords are the fields of `DistillOptions`.

    Raises:
        ConfigError: an unknown or missing keyword, or teacher and student that do not go together.
        InputError, FormatError: the data or a model is wrong.
    """
    from filbert.train.distill_options import DistillOptions

    chosen = DistillOptions.from_keywords(options)

    from filbert.report.run import write_run_report
    from filbert.train.distill import distill as distill_rows
    from filbert.train.distill_text import distill_text

    facts = distill_text(chosen) if chosen.from_text else distill_rows(chosen)
    folder = Path(chosen.run.out)
    if facts:  # only the first of several processes has any
        write_run_report(folder, show_texts=chosen.data.show_texts)
    return Run(folder, facts)


def compare(
    recipe: str | Path | Mapping[str, Any],
    *,
    out: str | Path,
    only: str | Sequence[str] | None = None,
    overwrite: bool | None = None,
    show_texts: bool | None = None,
    **options: Any,
) -> Comparison:
    """Compare several models on the same rows; goes on where an earlier call was stopped.

    Args:
        recipe: a TOML file, the name of a built-in study, or its content, with a table
            "contestants".
        out: the folder of the study.
        only: run these contestants only: names of folders ("minilm-cleaned"), or without their
            cleaning ("minilm": all its variants).
        overwrite: repeat the runs whose recipe changed, or all runs if the rows changed.
        show_texts: the report shows texts of the rows.
        options: fields of `StudyOptions`. They and the arguments above take precedence over the
            recipe.

    Raises:
        ConfigError: an unknown keyword, key or contestant; the nearest name is given. Or finished
            runs are of other rows or options, and `overwrite` is off.
        InputError, FormatError: the data, a model or a file of the study is wrong. After the
            training has begun, a contestant that fails raises nothing: its `status` says so.
        Interrupted: Ctrl-C or SIGTERM; the same call goes on.
    """
    from filbert.compare.options import StudyOptions
    from filbert.compare.recipe import read_study
    from filbert.recipes import call_of_study, read_recipe, recipe_path

    flags = StudyOptions.from_keywords(options)
    name = "study"
    if not isinstance(recipe, Mapping):
        path = recipe_path(str(recipe), "compare")
        name, recipe = path.stem, read_recipe(path)
    call = call_of_study(recipe)
    of_study = {key: value for key, value in recipe.items() if key not in call}
    study = read_study(of_study, flags, name=name)

    from filbert.compare.runs import run_study

    results = run_study(
        study,
        out,
        only=names_of(call.get("only", ()) if only is None else only),
        overwrite=call.get("overwrite", False) if overwrite is None else overwrite,
        show_texts=call.get("show_texts", False) if show_texts is None else show_texts,
    )
    return Comparison(Path(out), results)
