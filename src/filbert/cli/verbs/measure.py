"""filbert evaluate and compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli import arguments
from filbert.cli.output import print_json, print_table, warn_of_int8
from filbert.compare.recipe import StudyOptions
from filbert.errors import ConfigError, printable
from filbert.report import numbers
from filbert.tasks.base import Prediction, Task, TaskOptions, task_class
from filbert.train.options import LabelledFileOptions, from_flat, names_of

if TYPE_CHECKING:
    from rich.text import Text

    from filbert.evaluation import Answered
    from filbert.inference.precision import PrecisionLoss
    from filbert.inference.predictor import Predictor
    from filbert.report.comparison import StudyFiles

# Labels of the largest confusion matrix, its width without the names of rows, and the confusions
# that are listed for more labels.
_MATRIX_LABELS, _WIDTH, _CONFUSIONS = 12, 56, 10
_RATES = ("precision", "recall", "f1")
# Options of the task that also a model with a task of its own takes.
_FOR_ALL_MODELS = ("positive", "repair_tags")
_TaskOfPredictions = Annotated[
    str | None,
    arguments.shown_as(
        "TASK",
        f"with --predictions, as the options of a task: what they answer: {arguments.TASKS}",
    ),
]
_SecondPrecision = Annotated[
    str | None,
    Parameter(help="another precision, such as float32: evaluate in both and compare the metrics."),
]


@arguments.flags_of(LabelledFileOptions)
def evaluate(
    model: str | None = None,
    /,
    *,
    data: arguments.File,
    task: _TaskOfPredictions = None,
    predictions: arguments.OptionalFile = None,
    null_odds: arguments.OptionalFile = None,
    out: arguments.OptionalFolder = None,
    json: arguments.AsJson = False,
    null_threshold: arguments.NullThreshold = None,
    against: _SecondPrecision = None,
    max_loss: arguments.MaxLoss = None,
    loading: arguments.Loading = None,
    **options: Any,
) -> None:
    """Measure a model on labelled rows or text, or score predictions of another program.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id; several, between commas, answer as one.
    data:
        labelled rows; of a masked-LM model without a task, text.
    predictions:
        JSONL as `filbert predict` writes it, one line for each row of --data.
    null_odds:
        with --predictions for questions: SQuAD's JSON of null scores by id.
    out:
        folder for metrics.json and, for questions, the prediction files of SQuAD.
    """
    if (model is None) == (predictions is None) or (predictions is None) != (task is None):
        raise ConfigError("Give either a MODEL, or --task and --predictions.")
    if model is None and (null_threshold, against) != (None, None):
        raise ConfigError("--null-threshold and --against need a MODEL: predictions are final.")
    if max_loss is not None and against is None:
        raise ConfigError("--max-loss needs --against, the precision to compare with.")
    if out is not None and Path(out).is_file():
        raise ConfigError(f"--out {out} is a file; name a folder.")
    flags = from_flat(LabelledFileOptions, options)
    answers: list[Answered] = []
    load = vars(loading or arguments.LoadFlags()) | {"null_threshold": null_threshold}
    if against is not None and (load["backend"] != "torch" or data == arguments.STDIO):
        raise ConfigError("--against reads a FILE twice, and an export has one precision only.")
    loss = None
    if model is None:
        from filbert.evaluation import score_predictions

        scored, names = task_class(str(task)).from_options(flags.task, flags.columns), flags.columns
        metrics = score_predictions(scored, data, str(predictions), names, out, null_odds, answers)
    else:
        predictor, metrics = _measured(model, data, flags, load, out, answers)
        if against is None:
            warn_of_int8(predictor)
        else:
            _, exact = _measured(model, data, flags, load | {"precision": against})
            loss = _loss(predictor, exact, metrics)
    _report(metrics, loss, against, answers, as_json=json)
    if loss and max_loss is not None:
        loss.check(max_loss, f"{model} in {load['precision']} on {data}", load["precision"])


def _loss(predictor: Predictor, exact: dict[str, Any], metrics: dict[str, Any]) -> PrecisionLoss:
    """Compare a model's metrics with those in another precision."""
    from filbert.inference.precision import precision_loss

    if predictor.task is None:
        return precision_loss(exact, metrics, ("mlm_accuracy", "perplexity"), whole=1.0)
    spec = predictor.task.spec
    return precision_loss(exact, metrics, spec.metric_names, whole=spec.metric_scale)


def _measured(
    model: str,
    data: str,
    flags: LabelledFileOptions,
    load: dict[str, Any],
    out: str | None = None,
    answers: list[Answered] | None = None,
) -> tuple[Predictor, dict[str, Any]]:
    """Load a model, and return it with its metrics."""
    from filbert.evaluation import evaluate_model
    from filbert.inference.predictor import Predictor

    given = {f.name for f in fields(TaskOptions) if getattr(flags.task, f.name) != f.default}
    if wrong := sorted(given.difference(_FOR_ALL_MODELS)):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
        raise ConfigError(f"{names}: only with --predictions; a MODEL has its own task.")
    predictor = Predictor.load(model, **load)
    metrics = evaluate_model(
        predictor,
        data,
        flags.columns,
        out,
        options=flags.task,
        max_length=load["max_length"],
        answers=answers,
    )
    return predictor, metrics


def _report(
    metrics: dict[str, Any],
    loss: PrecisionLoss | None,
    against: str | None,
    answers: list[Answered],
    *,
    as_json: bool,
) -> None:
    """Print the metrics, then the labels of the answers, or all of it as JSON.

    With `against`, each metric has its value in that precision and its loss.
    """
    changes = {change.name: change for change in (loss.changes if loss else ())}
    if as_json:
        losses = {name: {"value": c.exact, "loss": c.loss} for name, c in changes.items()}
        print_json(metrics if against is None else metrics | {"against": {against: losses}})
        return
    rows = []
    for name, value in metrics.items():
        in_label_table = answers and against is None and name in ("macro_f1", "weighted_f1")
        if isinstance(value, dict | list) or in_label_table:
            continue
        row = [name, f"{value:.4f}" if isinstance(value, float) else str(value)]
        if name in changes:
            row += [f"{changes[name].exact:.4f}", f"{changes[name].loss:+.4f}"]
        rows.append(row)
    headings = ["metric", "value", *([] if against is None else [against, "worse by"])]
    print_table(headings, rows, texts=[0])
    if metrics.get("left_out"):
        names = ", ".join(metrics["left_out"])
        print(f"not in the mean areas, because their rows have one class: {names}")
    for what in answers:
        _print_labels(metrics, *what, with_means=against is None)


def _print_labels(
    metrics: dict[str, Any],
    task: Task,
    gold: Sequence[Any],
    predictions: Sequence[Prediction],
    *,
    with_means: bool,
) -> None:
    """Print precision, recall and F1 of every label, perhaps their means, and the confusions."""
    import numpy as np
    from rich.text import Text

    from filbert.metrics.classification import label_metrics

    spec = task.spec
    by_label: dict[str, dict[str, Any]] = metrics.get("per_label") or {}
    is_single = spec.labels_are_classes and not spec.multilabel
    pairs: list[tuple[str, str]] = []
    if is_single:
        names = list(spec.labels or ())
        answers = (str(answer["label"]) for answer in predictions)
        pairs = list(zip((names[number] for number in gold), answers, strict=True))
        wanted, given = (np.array(side, object) for side in zip(*pairs, strict=True))
        occurring = [name for name in names if name in wanted or name in given]
        by_label = {name: label_metrics(wanted == name, given == name) for name in occurring}
    if not by_label:
        return
    table = np.array([[label[rate] for rate in _RATES] for label in by_label.values()])
    support = np.array([label["support"] for label in by_label.values()])
    rows: list[list[str | Text]] = [
        [label, *(f"{value:.4f}" for value in values), f"{count:,}"]
        for label, values, count in zip(by_label, table, support, strict=True)
    ]
    for name, weights in {"macro mean": None, "weighted mean": support}.items():
        if with_means and (weights is None or support.sum()):
            mean = np.average(table, axis=0, weights=weights)
            cells = [*(f"{value:.4f}" for value in mean), f"{support.sum():,}"]
            rows.append([Text(name, style="bold"), *cells])
    print()
    unit = "rows" if spec.labels_are_classes else "entities"
    print_table(["label", *_RATES, unit], rows, texts=[0])
    if len(by_label) > 1 and pairs:
        print()
        _print_confusions(list(by_label), pairs)


def _print_confusions(labels: list[str], pairs: Sequence[tuple[str, str]]) -> None:
    """Print the confusion matrix, or for many labels the most frequent confusions."""
    from rich.text import Text

    counts = Counter(pairs)
    if len(labels) > _MATRIX_LABELS:
        wrong = [(pair, count) for pair, count in counts.most_common() if pair[0] != pair[1]]
        rows = [[*pair, f"{count:,}"] for pair, count in wrong[:_CONFUSIONS]]
        print_table(["most confused: label", "predicted", "rows"], rows, texts=[0, 1])
        return
    is_wide = sum(map(len, labels)) + len(labels) > _WIDTH
    heads = [str(number) for number in range(1, len(labels) + 1)] if is_wide else labels
    matrix: list[list[str | Text]] = [
        [
            f"{head} {label}" if is_wide else label,
            *(Text(f"{counts[label, o]:,}", style="bold" if o == label else "") for o in labels),
        ]
        for head, label in zip(heads, labels, strict=True)
    ]
    print_table(["label \\ predicted", *heads], matrix, texts=[0])


@arguments.flags_of(StudyOptions)
def compare(
    recipe: str | None = None,
    /,
    *,
    out: arguments.Folder,
    models: Annotated[tuple[str, ...], arguments.shown_as("MODEL...")] = (),
    only: tuple[str, ...] = (),
    overwrite: bool = False,
    json: arguments.AsJson = False,
    **options: Any,
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

    flags = from_flat(StudyOptions, options).given()
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
        metrics = [
            _with_interval(one["test"][key]) if one.get("test") else Text("–") for key, _ in columns
        ]
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


def _with_interval(metric: dict[str, Any]) -> Text:
    """Return the mean of the seeds with its interval below; that over seeds takes precedence."""
    from rich.text import Text

    text = Text(numbers.fixed(metric["value"], 4))
    interval = metric.get("over_seeds") or metric
    if interval["low"] is not None:
        ends = (f"{interval[end]:.3f}".removeprefix("0") for end in ("low", "high"))
        text.append("\n" + "–".join(ends), style="dim")
    return text
