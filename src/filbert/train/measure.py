"""Compare a trained model with simple predictors, and with itself in lower precision: R rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.texts import text_of
from filbert.inference.forward import default_max_tokens, run_model
from filbert.inference.precision import built, precision_loss
from filbert.model.int8 import has_integer_products
from filbert.model.precision import Precision, choose_precision
from filbert.tasks.base import Prediction, Task, TaskOptions, set_vector_head, task_class
from filbert.text.tokenizer import Tokenizer
from filbert.train.progress import FALLING
from filbert.train.splits import Split

# The untrained model, its tokenizer and the length to cut texts at.
Start = tuple[Checkpoint, Tokenizer, int]
# Above these sizes of the training rows TF-IDF is left out, so that it takes seconds.
TFIDF_ROWS = 50_000
TFIDF_CHARACTERS = 10_000_000
# Pairs that the untrained model is run on at most.
PAIRS = 2_000


def measure_baseline(
    task: Task,
    splits: Mapping[str, Split],
    metrics: Mapping[str, Mapping[str, Any]],
    metric: str,
    start: Start,
    device: torch.device,
) -> dict[str, Any] | None:
    """Measure the best simple predictor on dev, or on test where there are no dev rows.

    Args:
        task: Knows the labels and has no fitted thresholds.
        metrics: Those of the trained model, by split.
        metric: What the best step was chosen by.

    Returns:
        `name`, `split`, `metric`, the baseline's `value`, the `model`'s and whether it `is_beaten`.
        None for other tasks and where the metric is undefined.
    """
    split = splits.get("dev") or splits.get("test")
    if split is None:
        return None
    candidates: dict[str, dict[str, Any]] = {}
    if task.spec.labels_are_classes:
        candidates = _classifiers(task, splits["train"], split)
    elif task.spec.problem_type == "regression":
        mean = [{"value": float(np.mean(splits["train"].gold))}] * len(split.rows)
        candidates["the mean of the training rows"] = task.metrics(split.gold, mean)
        if len(split.rows) <= PAIRS and all(isinstance(text_of(r), tuple) for r in split.rows):
            cosines = _cosines(split.rows, start, device)
            candidates["the cosine of the untrained model"] = task.metrics(split.gold, cosines)
    model = _value(metrics[split.name], metric)
    values = {name: _value(found, metric) for name, found in candidates.items()}
    known = {name: value for name, value in values.items() if value is not None}
    if not known or model is None:
        return None
    sign = -1.0 if metric in FALLING else 1.0
    name = max(known, key=lambda name: sign * known[name])
    found = {"name": name, "split": split.name, "metric": metric, "value": known[name]}
    return found | {"model": model, "is_beaten": sign * model > sign * known[name]}


def baseline_lines(baseline: dict[str, Any] | None, predictions: Sequence[Prediction]) -> list[str]:
    """Say that a model does not beat its baseline, or predicts no label before any fitting."""
    lines = []
    if baseline is not None and not baseline["is_beaten"]:
        values = "{metric} {model:.4f} against {value:.4f}".format(**baseline)
        where = "the model does not beat {name} on {split}".format(**baseline)
        lines.append(f"baseline: {where}: {values}")
    if predictions and all(prediction.get("labels") == [] for prediction in predictions):
        lines.append("baseline: at 0.5 the model predicts no label for any dev row")
    return lines


def _value(metrics: Mapping[str, Any], metric: str) -> float | None:
    value = metrics.get(metric)
    # Constant predictions have no correlation.
    return 0.0 if value is None and metric in ("spearman", "pearson") else value


def _classifiers(task: Task, train: Split, split: Split) -> dict[str, dict[str, Any]]:
    examples = [Example(i, np.zeros(1), np.zeros(1), 1) for i in range(len(split.rows))]
    # Whether a training row has a label, bool (rows, labels).
    spec, labels = task.spec, np.asarray(train.gold)
    labels = labels if spec.multilabel else np.arange(spec.num_labels or 0) == labels[:, None]
    logits = np.log((labels.sum(0) + 1) / ((~labels).sum(0) + 1 if spec.multilabel else 1))
    name = "the most frequent label" if spec.multilabel else "the majority class"
    logits[logits.argmax()] = max(logits.max(), 0.01)  # A probability above 0.5.
    outputs = [torch.from_numpy(logits)] * len(examples)
    candidates = {name: task.metrics(split.gold, task.decode(outputs, examples))}
    if not spec.multilabel and (scores := _tfidf(task, train, split.rows)) is not None:
        outputs = list(scores)
        if split.name == "dev":
            # As the trained model's threshold.
            task = task.calibrate(split.gold, outputs, examples)
        predictions = task.decode(outputs, examples)
        candidates["TF-IDF with logistic regression"] = task.metrics(split.gold, predictions)
    return candidates


def _tfidf(task: Task, train: Split, rows: Sequence[Row]) -> torch.Tensor | None:
    """Log-probabilities, float64 (R, labels); None where that takes long or cannot be fitted."""
    read = partial(text_of, clean=task.spec.clean)
    known, others = (
        [text if isinstance(text, str) else " ".join(text) for text in map(read, part)]
        for part in (train.rows, rows)
    )
    if len(known) > TFIDF_ROWS or sum(map(len, known)) > TFIDF_CHARACTERS:
        return None
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True, strip_accents="unicode")
    classifier = LogisticRegression(C=10.0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 100 iterations are near enough.
            classifier.fit(vectorizer.fit_transform(known), train.gold)
    except ValueError:
        # No word occurs in two texts, or all rows have one of the declared labels.
        return None
    scores = np.full((len(rows), task.spec.num_labels or 0), -30.0)
    scores[:, classifier.classes_] = classifier.predict_log_proba(vectorizer.transform(others))
    return torch.from_numpy(scores)


def _cosines(rows: list[Row], start: Start, device: torch.device) -> list[Prediction]:
    checkpoint, tokenizer, length = start
    task = task_class("embedding").from_options(TaskOptions(loss="cosine"), ColumnNames())
    examples = task.examples(rows, tokenizer, max_length=length, with_targets=False)
    model = checkpoint.build().to(device)
    set_vector_head(model, task)
    exact, limit = Precision("float32", "baseline"), default_max_tokens(device)
    return task.decode(run_model(model, examples, max_tokens=limit, precision=exact), examples)


def precision_losses(
    checkpoint: Checkpoint,
    weights: dict[str, Tensor],
    task: Task,
    dev: Split,
    exact: dict[str, Any],
    device: torch.device,
) -> dict[str, dict[str, Any] | None]:
    """How the metrics on the dev rows move when the model computes in less than float32.

    Args:
        checkpoint: what the model was built from.
        weights: by the names of Model.state_dict(), as they are saved.
        task: calibrated, with its thresholds.
        dev: the rows.
        exact: their metrics in float32.
        device: where the model runs.

    Returns:
        `bf16_loss`, which `--precision auto` reads, and `int8_loss`, for the warning on int8. Each
        has `metric`, the one that falls most, its values in `float32` and `bf16` or `int8`, `loss`
        (the first less the second, as a share), `change` (the largest of any metric, up or down)
        and `rows`. None where that format is not fast and so not used, for a task
        whose metrics are no shares or correlations, and where one of them is no longer defined.
    """
    # Nothing that was noted on int8 of the weights before training is true of these.
    trained = replace(checkpoint, tensors=weights, filbert=None)
    wanted = {"bf16": choose_precision("auto", device).name == "bf16"}
    wanted["int8"] = device.type == "cpu" and has_integer_products()
    return {
        f"{name}_loss": _loss(trained, name, task, dev, exact, device) if is_fast else None
        for name, is_fast in wanted.items()
    }


def _loss(
    trained: Checkpoint,
    name: str,
    task: Task,
    dev: Split,
    exact: dict[str, Any],
    device: torch.device,
) -> dict[str, Any] | None:
    """The same of one format."""
    model = built(trained, Precision(name, "compared"), device)
    set_vector_head(model, task)
    outputs = run_model(
        model,
        dev.examples,
        max_tokens=default_max_tokens(device, model.config, name),
        # The model's own layers are in that format, so that nothing has to be cast.
        precision=Precision("float32", "as it is"),
    )
    found = task.metrics(dev.gold, task.decode(outputs, dev.examples))
    compared = precision_loss(exact, found, task.spec.metric_names, whole=task.spec.metric_scale)
    worst = compared.worst
    if worst is None or compared.lost:
        return None
    return {
        "metric": worst.name,
        "float32": worst.exact,
        name: worst.other,
        "loss": worst.share,
        "change": compared.largest_change,
        "rows": len(dev.rows),
    }
