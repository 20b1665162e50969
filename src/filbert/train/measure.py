"""Compare a trained model with simple predictors, and with itself in lower precision: R rows."""

from __future__ import annotations

import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.texts import text_of
from filbert.errors import ConfigError
from filbert.inference.forward import default_max_tokens, run_model
from filbert.inference.precision import built, precision_loss
from filbert.metrics.bootstrap import (
    Form,
    Weighting,
    areas_form,
    binary_form,
    class_form,
    difference,
    resampled,
)
from filbert.metrics.entities import entities_of
from filbert.model.int8 import has_integer_products
from filbert.model.precision import Precision, choose_precision
from filbert.tasks.base import Prediction, Task, TaskOptions, gain, set_vector_head, task_class
from filbert.text.tokenizer import Tokenizer
from filbert.train.linear import RIDGE, TFIDF, USUAL_STRENGTH, WordCounts, fit_linear, joined
from filbert.train.splits import Split

# The untrained model, its tokenizer and the length to cut texts at.
Start = tuple[Checkpoint, Tokenizer, int]
# Above these sizes of the training rows TF-IDF is left out, so that it takes seconds.
TFIDF_ROWS = 50_000
TFIDF_CHARACTERS = 10_000_000
# Pairs that the untrained model is run on at most, and rows of a resampled rank correlation.
PAIRS = 2_000
# Resamples of an interval, the most rows, and the most labels of a resampled confusion matrix.
RESAMPLES, INTERVAL_ROWS, INTERVAL_LABELS = 1_000, 20_000, 40
COSINE = "the cosine of the untrained model"


# The task with its fitted thresholds, and the predictions by split, of a simple predictor.
Answered = tuple[Task, dict[str, list[Prediction]]]


def measure_baselines(
    task: Task,
    splits: Mapping[str, Split],
    metrics: Mapping[str, Mapping[str, Any]],
    metric: str,
    start: Start,
    device: torch.device,
    *,
    predictions: Mapping[str, Sequence[Prediction]] | None = None,
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Measure simple predictors on the dev and test rows.

    Args:
        task: Has the labels and no fitted thresholds.
        splits: With "train"; without others nothing is measured.
        metrics: Those of the trained model, by split.
        metric: What the best step was chosen by.
        start, device: For the cosines of the untrained model.
        predictions: Of the trained model, by split; without them there are no intervals.

    Returns:
        The best one on dev, or on test where there are no dev rows: `name`, `split`, `metric`, the
        baseline's `value`, the `model`'s and whether it `is_beaten`; None where no simple predictor
        is known and where the metric is undefined. And for the tables one entry for each, the best
        first: `name`, `metrics` on test, otherwise on dev, `seconds`, and `differences`, see
        `differences`.
    """
    parts = {name: splits[name] for name in ("dev", "test") if name in splits}
    if not parts:
        return None, []
    first, headline = next(iter(parts)), list(parts)[-1]
    known = []
    for name, fit in _candidates(task, start, device):
        began = time.perf_counter()
        if (answered := fit(task, splits["train"], parts)) is not None:
            fitted, answers = answered
            measured = {n: fitted.metrics(part.gold, answers[n]) for n, part in parts.items()}
            entry: dict[str, Any] = {"name": name, "metrics": measured[headline]}
            entry |= {"seconds": time.perf_counter() - began, "differences": {}}
            if predictions is not None:
                gold, model = parts[headline].gold, predictions[headline]
                entry["differences"] = differences(task, gold, model, answers[headline])
            if (value := _value(measured[first], metric)) is not None:
                known.append((value, entry))
    known.sort(key=lambda pair: -gain(metric, pair[0]))
    model_value = _value(metrics[first], metric)
    entries = [entry for _, entry in known]
    if not known or model_value is None:
        return None, entries
    value, simple = known[0]
    best = {
        "name": simple["name"],
        "split": first,
        "metric": metric,
        "value": value,
        "model": model_value,
        "is_beaten": gain(metric, model_value) > gain(metric, value),
    }
    return best, entries


def _candidates(
    task: Task, start: Start, device: torch.device
) -> list[tuple[str, Callable[[Task, Split, Mapping[str, Split]], Answered | None]]]:
    """Return simple predictors by name; none for questions, choices and contrastive pairs."""
    linear = partial(_linear, is_symbols=start[1].kind == "symbols")
    if task.spec.labels_are_classes:
        frequent = "the most frequent label" if task.spec.multilabel else "the majority class"
        return [(TFIDF, linear), (frequent, _most_frequent)]
    if task.spec.problem_type == "regression":
        cosine = partial(_cosines, start=start, device=device)
        return [(RIDGE, linear), ("the mean of the training rows", _mean), (COSINE, cosine)]
    if task.spec.row_format.name == "sentences":
        return [("the most frequent tag of each word", _word_tags)]
    return []


def baseline_lines(baseline: dict[str, Any] | None, predictions: Sequence[Prediction]) -> list[str]:
    """Warn that a model does not beat its baseline, or predicts no label before any fitting."""
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


def _most_frequent(task: Task, train: Split, parts: Mapping[str, Split]) -> Answered:
    # Whether a training row has a label, bool (rows, labels).
    spec, labels = task.spec, np.asarray(train.gold)
    labels = labels if spec.multilabel else np.arange(spec.num_labels or 0) == labels[:, None]
    logits = np.log((labels.sum(0) + 1) / ((~labels).sum(0) + 1 if spec.multilabel else 1))
    logits[logits.argmax()] = max(logits.max(), 0.01)  # A probability above 0.5.
    answers = {}
    for name, part in parts.items():
        examples = [Example(i, np.zeros(1), np.zeros(1), 1) for i in range(len(part.rows))]
        answers[name] = task.decode([torch.from_numpy(logits)] * len(examples), examples)
    return task, answers


def _linear(
    task: Task, train: Split, parts: Mapping[str, Split], *, is_symbols: bool = False
) -> Answered | None:
    """Return a linear model on TF-IDF; None if that takes long or no text has a word."""
    if len(train.rows) > TFIDF_ROWS:
        return None
    clean = task.spec.clean
    texts = [joined(row, clean) for row in train.rows]
    if sum(map(len, texts)) > TFIDF_CHARACTERS:
        return None
    try:
        # Of few rows, pairs of words and words that occur only once add nothing (docs/log.md).
        features = WordCounts(texts, ngrams=1, min_df=1, is_symbols=is_symbols)
    except ConfigError:
        return None
    fitted, _ = fit_linear(
        task,
        features,
        train=(texts, train.rows),
        dev=parts["dev"].rows if "dev" in parts else (),
        strength=USUAL_STRENGTH,
        cleaning=clean,
    )
    return fitted.task, {name: fitted.predict_rows(part.rows) for name, part in parts.items()}


def _mean(task: Task, train: Split, parts: Mapping[str, Split]) -> Answered:
    mean = {"value": float(np.mean(train.gold))}
    return task, {name: [mean] * len(part.rows) for name, part in parts.items()}


def _word_tags(task: Task, train: Split, parts: Mapping[str, Split]) -> Answered:
    """Predict for each word its most frequent tag in train, O for unknown words."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for gold in train.gold:
        for word, tag in zip(gold.sentence.words, gold.tags, strict=True):
            counts[word][tag] += 1
    usual = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    return task, {
        name: [{"tags": [usual.get(w, "O") for w in gold.sentence.words]} for gold in part.gold]
        for name, part in parts.items()
    }


def _cosines(
    task: Task, train: Split, parts: Mapping[str, Split], *, start: Start, device: torch.device
) -> Answered | None:
    """Return cosines of the vectors that the untrained model gives to both texts of a pair."""
    rows = [row for part in parts.values() for row in part.rows]
    if len(rows) > PAIRS or not all(isinstance(text_of(row), tuple) for row in rows):
        return None
    checkpoint, tokenizer, length = start
    vectors = task_class("embedding").from_options(TaskOptions(loss="cosine"), ColumnNames())
    model = checkpoint.build().to(device)
    set_vector_head(model, vectors)
    exact = Precision("float32", "baseline")
    answers = {}
    for name, part in parts.items():
        examples = vectors.examples(part.rows, tokenizer, max_length=length, with_targets=False)
        outputs = run_model(model, examples, precision=exact)
        answers[name] = vectors.decode(outputs, examples)
    return task, answers


def differences(
    task: Task, gold: Sequence[Any], model: Sequence[Prediction], other: Sequence[Prediction]
) -> dict[str, dict[str, float]]:
    """Return `low`, `high` and `p` of model less other by metric, see `metrics.bootstrap`.

    Empty for tasks without a fast form.
    """
    forms = [_form(task, gold, predictions) for predictions in (model, other)]
    known = [form for form in forms if form is not None]
    if len(known) < 2 or len(gold) > INTERVAL_ROWS:
        return {}
    is_class = task.spec.labels_are_classes and not task.spec.multilabel
    strata = np.asarray(gold) if is_class else np.zeros(len(gold), int)
    mine, theirs = resampled(known, strata, resamples=RESAMPLES, seed=0)
    found = {name: difference(values, theirs[name]) for name, values in mine.items()}
    return {key: values for key, values in found.items() if values["low"] is not None}


def _form(task: Task, gold: Sequence[Any], predictions: Sequence[Prediction]) -> Form | None:
    """Return metrics of weighted rows; None where they take long or are not known."""
    spec, names = task.spec, task.spec.labels or ()
    if spec.row_format.name == "sentences":
        return _entity_f1(gold, predictions)
    if spec.problem_type == "regression":
        return _spearman(gold, predictions) if len(gold) <= PAIRS else None
    if not spec.labels_are_classes:
        return None
    wanted = np.stack([np.asarray(one) for one in gold])
    scores = np.array([[p["scores"][name] for name in names] for p in predictions])
    if spec.multilabel:
        return _mean_areas([areas_form(wanted[:, c], scores[:, c]) for c in range(len(names))])
    called = np.array([names.index(p["label"]) for p in predictions])
    if spec.positive is not None:
        number = names.index(spec.positive)
        return binary_form(wanted == number, scores[:, number], called == number)
    if len(names) <= INTERVAL_LABELS:
        return class_form(wanted, called, len(names))
    is_right = called == wanted
    return lambda weights: {"accuracy": (is_right @ weights) / len(is_right)}


def _mean_areas(labels: Sequence[Weighting]) -> Form:
    def of(weights: np.ndarray) -> dict[str, np.ndarray]:
        areas = np.stack([areas_of(weights) for areas_of in labels], axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # All labels may be undefined in a resample.
            return dict(zip(("roc_auc", "pr_auc"), np.nanmean(areas, axis=1), strict=True))

    return of


def _spearman(gold: Sequence[Any], predictions: Sequence[Prediction]) -> Form:
    from scipy.stats import rankdata

    wanted, given = np.asarray(gold, float), np.array([p["value"] for p in predictions], float)

    def of(weights: np.ndarray) -> dict[str, np.ndarray]:
        rows = np.stack([np.repeat(np.arange(len(wanted)), column) for column in weights.T], axis=1)
        ranks = (rankdata(side[rows], axis=0) for side in (wanted, given))
        mine, theirs = (one - one.mean(0) for one in ranks)
        with np.errstate(invalid="ignore"):  # One side may be constant in a resample.
            r = (mine * theirs).sum(0) / np.sqrt((mine**2).sum(0) * (theirs**2).sum(0))
        return {"spearman": np.nan_to_num(r)}

    return of


def _entity_f1(gold: Sequence[Any], predictions: Sequence[Prediction]) -> Form:
    from filbert.data.tags import to_bio

    # Right, predicted and gold entities of each sentence, int (R, 3).
    counts = []
    for one, prediction in zip(gold, predictions, strict=True):
        wanted, given = set(entities_of(one.tags)), set(entities_of(to_bio(prediction["tags"])))
        counts.append((len(wanted & given), len(given), len(wanted)))
    table = np.array(counts)

    def of(weights: np.ndarray) -> dict[str, np.ndarray]:
        right, predicted, wanted = table.T @ weights
        return {"f1": 2 * right / np.maximum(predicted + wanted, 1)}

    return of


def precision_losses(
    trained: Checkpoint, task: Task, dev: Split, exact: dict[str, Any], device: torch.device
) -> dict[str, dict[str, Any] | None]:
    """Return how the metrics on the dev rows move when the model computes in less than float32.

    Args:
        trained: the model as it is saved, without notes on int8 of earlier weights.
        task: calibrated, with its thresholds.
        exact: their metrics in float32.

    Returns:
        `bf16_loss`, which `--precision auto` reads, and `int8_loss`, for the warning on int8. Each
        has `metric`, the one that falls most, its values in `float32` and `bf16` or `int8`, `loss`
        (the first less the second, as a share), `change` (the largest of any metric, up or down)
        and `rows`. None where that format is not fast and so not used, for a task
        whose metrics are no shares or correlations, and where one of them is no longer defined.
    """
    wanted = {"bf16": choose_precision("auto", device).name == "bf16"}
    wanted["int8"] = device.type == "cpu" and has_integer_products()
    losses: dict[str, dict[str, Any] | None] = {f"{name}_loss": None for name in wanted}
    for name in (name for name, is_fast in wanted.items() if is_fast):
        model = built(trained, Precision(name, "compared"), device)
        set_vector_head(model, task)
        outputs = run_model(
            model,
            dev.examples,
            max_tokens=default_max_tokens(device, model.config, name),
            # The model's own layers are in that format, so that nothing has to be cast.
            precision=Precision("float32", "as it is"),
        )
        del model  # before the next copy is made
        found = task.metrics(dev.gold, task.decode(outputs, dev.examples))
        spec = task.spec
        compared = precision_loss(exact, found, spec.metric_names, whole=spec.metric_scale)
        worst = compared.worst
        if worst is not None and not compared.lost:
            losses[f"{name}_loss"] = {
                "metric": worst.name,
                "float32": worst.exact,
                name: worst.other,
                "loss": worst.share,
                "change": compared.largest_change,
                "rows": len(dev.rows),
            }
    return losses
