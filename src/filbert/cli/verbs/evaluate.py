"""filbert evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import (
    STDIO,
    TASKS,
    AsJson,
    Backend,
    Device,
    LabelledFile,
    MaxLength,
    MaxLoss,
    NullThreshold,
    Precision,
)
from filbert.cli.output import print_json, print_table, warn_of_int8
from filbert.errors import ConfigError
from filbert.tasks.base import TaskOptions, task_class
from filbert.train.options import LabelledFileOptions, from_flat

if TYPE_CHECKING:
    from filbert.evaluation import OnAnswers
    from filbert.inference.precision import MetricChange, PrecisionLoss

# Options of the task that also a model with a task of its own takes.
_FOR_ALL_MODELS = ("positive", "repair_tags")
_TaskOfPredictions = Annotated[
    str | None, Parameter(help=f"with --predictions: task that they answer: {TASKS}")
]
_SecondPrecision = Annotated[
    str | None,
    Parameter(help="another precision, such as float32: evaluate in both and compare the metrics."),
]


def evaluate(
    model: str | None = None,
    /,
    *,
    data: str,
    task: _TaskOfPredictions = None,
    predictions: str | None = None,
    null_odds: str | None = None,
    out: str | None = None,
    options: LabelledFile = None,
    json: AsJson = False,
    max_length: MaxLength = None,
    null_threshold: NullThreshold = None,
    precision: Precision = "float32",
    against: _SecondPrecision = None,
    max_loss: MaxLoss = None,
    backend: Backend = "torch",
    device: Device = None,
) -> None:
    """Measure a model on labelled rows or text, or score predictions of another program.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id; leave it out with --predictions.
    data:
        labelled rows; of a masked-LM model without a task, text.
    predictions:
        JSONL as `filbert predict` writes it, one line for each row of --data.
    null_odds:
        with --predictions for questions: SQuAD's JSON of null scores by id.
    out:
        folder for metrics.json and, for questions, the prediction files of SQuAD.
    """
    _check(model, task, predictions, against, max_loss, null_threshold, backend, data)
    folder = Path(out) if out else None
    if folder is not None and folder.is_file():
        raise ConfigError(f"--out {out} is a file; name a folder.")
    flags = from_flat(LabelledFileOptions, vars(options) if options else {})
    answers, loss = list[tuple[Any, ...]](), None
    keep = lambda *what: answers.append(what)  # noqa: E731
    if model is None:
        from filbert.evaluation import score_predictions

        assert task is not None and predictions is not None
        metrics = score_predictions(
            task_class(task).from_options(flags.task, flags.columns),
            data, predictions, flags.columns, folder, null_odds, on_answers=keep,
        )  # fmt: skip
    else:
        loading = dict(
            backend=backend, device=device, max_length=max_length, null_threshold=null_threshold
        )
        metrics, loss = _evaluate_model(
            model, data, flags, folder,
            precision=precision, against=against, loading=loading, on_answers=keep,
        )  # fmt: skip
    _report(metrics, loss.changes if loss else (), against, answers, as_json=json)
    if loss and max_loss is not None:
        loss.check(max_loss, f"{model} in {precision} on {data}", precision)


def _check(
    model: str | None,
    task: str | None,
    predictions: str | None,
    against: str | None,
    max_loss: float | None,
    null_threshold: float | None,
    backend: str,
    data: str,
) -> None:
    """Refuse options that contradict each other."""
    if (model is None) == (predictions is None) or (predictions is None) != (task is None):
        raise ConfigError("Give either a MODEL, or --task and --predictions.")
    if model is None and (null_threshold, against) != (None, None):
        raise ConfigError("--null-threshold and --against need a MODEL: predictions are final.")
    if max_loss is not None and against is None:
        raise ConfigError("--max-loss goes with --against, the precision to compare with.")
    if against is not None and (backend != "torch" or data == STDIO):
        raise ConfigError("--against reads a FILE twice, and an export has one precision only.")


def _evaluate_model(
    model: str,
    data: str,
    flags: LabelledFileOptions,
    folder: Path | None,
    *,
    precision: str,
    against: str | None,
    loading: dict[str, Any],
    on_answers: OnAnswers,
) -> tuple[dict[str, Any], PrecisionLoss | None]:
    """Return the metrics of a model, and the loss of each compared with a second precision."""
    from filbert.evaluation import evaluate_model, metric_names, with_positive_class
    from filbert.inference.precision import precision_loss
    from filbert.inference.predictor import Predictor

    given = {f.name for f in fields(TaskOptions) if getattr(flags.task, f.name) != f.default}
    if wrong := sorted(given.difference(_FOR_ALL_MODELS)):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
        raise ConfigError(f"{names}: only with --predictions; a MODEL has its own task.")
    predictor = Predictor.load(model, precision=precision, **loading)
    predictor.task = task = with_positive_class(
        predictor.task, flags.task.positive, repair_tags=flags.task.repair_tags
    )
    if against is None:
        warn_of_int8(predictor)
    length = loading["max_length"]
    metrics = evaluate_model(
        predictor, data, flags.columns, folder, max_length=length, on_answers=on_answers
    )
    if against is None:
        return metrics, None
    predictor = Predictor.load(model, precision=against, **loading)
    predictor.task = task
    exact = evaluate_model(predictor, data, flags.columns, max_length=length)
    whole = 1.0 if task is None else task.spec.metric_scale
    return metrics, precision_loss(exact, metrics, metric_names(predictor), whole=whole)


def _report(
    metrics: dict[str, Any],
    changes: Sequence[MetricChange],
    against: str | None,
    answers: list[tuple[Any, ...]],
    *,
    as_json: bool,
) -> None:
    """Print the metrics, then the labels of the answers, or all of it as JSON."""
    if as_json:
        losses = {c.name: {"value": c.exact, "loss": c.loss} for c in changes}
        print_json(metrics if against is None else metrics | {"against": {against: losses}})
        return
    from filbert.cli.label_tables import print_labels

    _print_metrics(metrics, changes, against)
    for what in answers:
        print_labels(metrics, *what)


def _print_metrics(
    metrics: dict[str, Any], changes: Sequence[MetricChange], against: str | None
) -> None:
    """Print one metric a line; with `against`, its value in that precision and the loss."""
    by_name = {change.name: change for change in changes}
    rows = []
    for name, value in metrics.items():
        if isinstance(value, dict | list):
            continue
        row = [name, f"{value:.4f}" if isinstance(value, float) else str(value)]
        if against is not None:
            change = by_name.get(name)
            row += ["", ""] if change is None else [f"{change.exact:.4f}", f"{change.loss:+.4f}"]
        rows.append(row)
    headings = ["metric", "value", *([] if against is None else [against, "worse by"])]
    print_table(headings, rows, texts=[0])
    if metrics.get("left_out"):
        names = ", ".join(metrics["left_out"])
        print(f"not in the mean areas, because their rows have one class: {names}")
