"""filbert evaluate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.flags import flags_of
from filbert.train.options import LabelledFileOptions, from_flat

if TYPE_CHECKING:
    from filbert.inference.precision import MetricChange

    FileFlags = Any
else:
    FileFlags = flags_of(LabelledFileOptions)


def evaluate(
    model: str | None = None,
    /,
    *,
    data: str,
    task: str | None = None,
    predictions: str | None = None,
    null_odds: str | None = None,
    out: str | None = None,
    options: Annotated[FileFlags | None, Parameter(name="*")] = None,
    json: bool = False,
    max_length: int | None = None,
    null_threshold: float | None = None,
    precision: str = "float32",
    against: str | None = None,
    max_loss: float | None = None,
    backend: str = "torch",
    device: str | None = None,
) -> None:
    """Measure a model on labelled rows or text, or score predictions made elsewhere.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id; leave it out with --predictions.
    data:
        the labelled rows; of a masked-LM model without a task, text whose words are masked.
    task:
        with --predictions: what they answer: classification, regression, tagging, span_qa,
        multiple_choice or embedding.
    predictions:
        JSONL in the shape that `filbert predict` writes, one line a row of --data, in its order.
    null_odds:
        with --predictions for questions: SQuAD's JSON of how sure there is no answer, by id.
    out:
        folder for metrics.json and, for questions, predictions.json, nbest_predictions.json and
        null_odds.json.
    options:
        columns and, with --predictions, the task.
    json:
        print JSON.
    max_length:
        cut texts to this many tokens; the model's own limit when not given. Of text for a
        masked-LM model, tokens of a row: those of its pre-training when not given.
    null_threshold:
        of a question answering MODEL: the answer is "" where the null score is above it. When not
        given, the threshold stored with the model, or 0 where it has none and rows have no answer.
    precision:
        float32, bf16, int8, or auto: bf16 where it is faster and keeps the answers.
    against:
        another precision, such as float32: evaluate in both and say how far each metric moves.
    max_loss:
        with --against: refuse (exit status 2) when a metric falls by more, such as 0.005.
    backend:
        torch, or onnxruntime for a folder that filbert export made.
    device:
        cpu, cuda, ...; the first GPU when there is one.
    """
    from filbert.errors import ConfigError

    if (model is None) == (predictions is None) or (predictions is None) != (task is None):
        raise ConfigError("Give either a MODEL, or --task and --predictions.")
    if against is not None and model is None:
        raise ConfigError(
            "--against compares precisions of a MODEL; predictions have none. Leave it out."
        )
    if against is not None and backend == "onnxruntime":
        raise ConfigError(
            "--against compares precisions of one folder; an export has one. Evaluate the export "
            "and the model that it was made from, each without --against."
        )
    if null_threshold is not None and model is None:
        raise ConfigError(
            "--null-threshold needs a MODEL: predictions have been decided. Leave it out."
        )
    if max_loss is not None and against is None:
        raise ConfigError("--max-loss goes with --against, the precision to compare with.")
    if max_loss is not None and not max_loss >= 0:
        raise ConfigError(f"--max-loss is {max_loss}; it must be zero or above.")

    from dataclasses import fields
    from pathlib import Path

    from filbert.cli.flags import STDIO, print_json
    from filbert.cli.output import warn_of_int8
    from filbert.evaluate import (
        evaluate_model,
        metric_names,
        score_predictions,
        with_positive_class,
    )
    from filbert.inference.precision import precision_loss
    from filbert.inference.predictor import Predictor
    from filbert.tasks.base import TaskOptions, task_class

    if against is not None and data == STDIO:
        raise ConfigError("--data is read more than once. Give a file.")
    flags = from_flat(LabelledFileOptions, vars(options) if options else {})
    loss = None
    folder = Path(out) if out else None
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {out} is a file; name a folder.")
    if model is not None:
        own = [f.name for f in fields(TaskOptions) if getattr(flags.task, f.name) != f.default]
        own = [name for name in own if name not in ("positive", "repair_tags")]
        if own:
            given = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(own))
            raise ConfigError(f"{given}: only with --predictions; a MODEL knows its own.")
        predictor = Predictor.load(
            model,
            precision=precision,
            backend=backend,
            device=device,
            max_length=max_length,
            null_threshold=null_threshold,
        )
        task_of_model = with_positive_class(
            predictor.task, flags.task.positive, repair_tags=flags.task.repair_tags
        )
        predictor.task = task_of_model
        if against is None:
            warn_of_int8(predictor)
        metrics = evaluate_model(predictor, data, flags.columns, folder, max_length=max_length)
        if against is not None:
            predictor = Predictor.load(
                model, precision=against, device=device, max_length=max_length
            )
            predictor.task = task_of_model
            exact = evaluate_model(predictor, data, flags.columns, max_length=max_length)
            whole = 1.0 if predictor.task is None else predictor.task.spec.metric_scale
            loss = precision_loss(exact, metrics, metric_names(predictor), whole=whole)
    else:
        assert task is not None and predictions is not None
        judge = task_class(task).from_options(flags.task, flags.columns)
        metrics = score_predictions(judge, data, predictions, flags.columns, folder, null_odds)
    moved = {} if loss is None else {c.name: c for c in loss.changes}
    if json:
        changes = {c.name: {"value": c.exact, "loss": c.loss} for c in moved.values()}
        print_json(metrics if loss is None else metrics | {"against": {against: changes}})
    else:
        _print_table(metrics, moved, against)
    if loss is not None and max_loss is not None:
        loss.check(max_loss, f"{model} in {precision} on {data}", precision)


def _print_table(
    metrics: dict[str, Any], moved: dict[str, MetricChange], against: str | None
) -> None:
    """A line a metric; where it `moved`, its value in the other precision and the loss."""
    from filbert.cli.output import print_table

    rows = []
    for name, value in _flat(metrics):
        row = [name, f"{value:.4f}" if isinstance(value, float) else str(value)]
        if against is not None:
            change = moved.get(name)
            row += ["", ""] if change is None else [f"{change.exact:.4f}", f"{change.loss:+.4f}"]
        rows.append(row)
    headings = ["metric", "value", *([] if against is None else [against, "worse by"])]
    print_table(headings, rows, texts=[0])


def _flat(metrics: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in metrics.items():
        rows += (
            _flat(value, f"{prefix}{name} ")
            if isinstance(value, dict)
            else [(prefix + name, value)]
        )
    return rows
