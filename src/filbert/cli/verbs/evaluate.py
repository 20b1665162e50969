"""filbert evaluate."""

from __future__ import annotations

from typing import Any


def evaluate(
    model: str | None = None,
    /,
    *,
    data: str,
    task: str | None = None,
    predictions: str | None = None,
    json: bool = False,
    text_column: str = "text",
    text_pair_column: str | None = None,
    label_column: str | None = None,
    label_columns: tuple[str, ...] | None = None,
    labels: tuple[str, ...] | None = None,
    positive: str | None = None,
    multilabel: bool = False,
    max_length: int | None = None,
    precision: str = "float32",
    device: str | None = None,
) -> None:
    """Measure a model on labelled rows, or score predictions made elsewhere.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id; leave it out with --predictions.
    data:
        the labelled rows.
    task:
        with --predictions: the task they are for.
    predictions:
        JSONL in the shape that `filbert predict` writes, one line a row of --data, in its order.
    json:
        print JSON.
    text_column:
        name of the column with the text.
    text_pair_column:
        name of the column with the second text.
    label_column:
        name of the column with the label.
    label_columns:
        one 0/1 column per label.
    labels:
        with --predictions: the labels in order; those of the rows when not given.
    positive:
        with --predictions: the positive class of two; the second label when not given.
    multilabel:
        with --predictions: each row has any number of labels.
    max_length:
        cut texts to this many tokens; the model's own limit when not given.
    precision:
        float32, bf16, or auto for the faster of the two on this machine.
    device:
        cpu, cuda, ...; the first GPU when there is one.
    """
    from rich.console import Console
    from rich.table import Table

    from filbert.cli.flags import file_name, print_json
    from filbert.data.columns import ColumnNames
    from filbert.errors import ConfigError
    from filbert.evaluate import evaluate_model, score_predictions
    from filbert.predict import Predictor
    from filbert.tasks.base import TaskOptions, task_class
    from filbert.train.options import names_of

    if (model is None) == (predictions is None) or (predictions is None) != (task is None):
        raise ConfigError("Give either a MODEL, or --task and --predictions.")
    names = ColumnNames(
        text=text_column,
        text_pair=text_pair_column,
        label=label_column,
        label_columns=names_of(label_columns) if label_columns else None,
        multilabel=multilabel,
    )
    if model is not None:
        if labels or positive or multilabel:
            raise ConfigError(
                "--labels, --positive and --multilabel go with --predictions; "
                "a MODEL knows its own."
            )
        predictor = Predictor.load(model, precision=precision, device=device, max_length=max_length)
        metrics = evaluate_model(predictor, file_name(data), names)
    else:
        assert task is not None and predictions is not None
        options = TaskOptions(
            labels=names_of(labels) if labels else None,
            label_columns=names.label_columns,
            positive=positive,
            multilabel=multilabel,
        )
        judge = task_class(task).from_options(options)
        metrics = score_predictions(judge, file_name(data), file_name(predictions), names)
    if json:
        print_json(metrics)
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in _flat(metrics):
        table.add_row(name, f"{value:.4f}" if isinstance(value, float) else str(value))
    Console().print(table, highlight=False)


def _flat(metrics: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in metrics.items():
        rows += (
            _flat(value, f"{prefix}{name} ")
            if isinstance(value, dict)
            else [(prefix + name, value)]
        )
    return rows
