"""Linear probes: which layer's features serve a task best.

R rows or words, H hidden size, C classes, L layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.texts import chunks
from filbert.errors import ConfigError
from filbert.inference.predictor import Predictor
from filbert.model.heads import Model
from filbert.tasks.base import TaskOptions, task_class
from filbert.tasks.rows import read_task_rows

# The states of all layers of so many tokens are in memory at once.
MOST_TOKENS = 8_192


def probe_layers(
    predictor: Predictor, task: str, *, train: str, dev: str, names: ColumnNames | None = None
) -> dict[str, Any]:
    """Fit a logistic regression on the frozen features of every layer.

    A classifier reads the mean over the tokens of a text, a tagger the first token of each word.
    Source: Devlin et al. 2019, section 5.3; Tenney et al. 2019 for the reading of the result.

    Args:
        predictor: The model; its head is not used.
        task: "classification" (one label) or "tagging".

    Returns:
        Plain values for JSON: the number of `rows` of train and dev, the metrics on dev of all
        `layers`, and the layer that is `best` by the `metric` of the task.
    """
    columns = names or ColumnNames()
    kind = task_class(task).from_options(TaskOptions(), columns)
    if kind.spec.row_format.name not in ("labelled", "sentences"):
        raise ConfigError(f"--task {task}: classification and tagging are probed.")
    train_rows = list(read_task_rows(kind, train, columns))
    fitted = kind.fit(train_rows)
    if fitted.spec.multilabel:
        raise ConfigError("Rows with several labels are not probed. Give one label a row.")
    dev_rows = list(read_task_rows(fitted, dev, columns))
    gold = [fitted.gold(row) for row in dev_rows]
    limit = predictor.max_length
    data = [
        fitted.examples(rows, predictor.tokenizer, max_length=limit, with_targets=True)
        for rows in (train_rows, dev_rows)
    ]
    features = [_features(predictor, examples) for examples in data]
    targets = np.concatenate([np.atleast_1d(example.target) for example in data[0]])
    layers: list[dict[str, Any]] = []
    for train_RH, dev_RH in zip(*features, strict=True):
        logits_RC = _fit(train_RH, targets, dev_RH, len(fitted.spec.labels or ()))
        outputs = list(_outputs(logits_RC, data[1]))
        metrics = fitted.metrics(gold, fitted.decode(outputs, data[1]))
        layers.append({"layer": len(layers)} | metrics)
    metric, rows = fitted.spec.selection_metric, {"train": len(train_rows), "dev": len(dev_rows)}
    # Undefined metrics count as zero.
    best = int(np.argmax([layer[metric] or 0.0 for layer in layers]))
    return {"metric": metric, "rows": rows, "best": best, "layers": layers}


def states_by_layer(predictor: Predictor, examples: Sequence[Example]) -> Iterator[torch.Tensor]:
    """Yield the states of each example, float32 (n, L + 1, H).

    An exported graph is a ConfigError.
    """
    if not isinstance(predictor.model, Model):
        raise ConfigError("An exported model has its last layer only. Use the original model.")
    layers = tuple(range(predictor.model.config.num_hidden_layers + 1))
    for part in chunks(examples, lambda example: len(example.input_ids), MOST_TOKENS):
        for states in predictor.vectors(part, pooling="none", layers=layers):
            yield torch.from_numpy(states).view(len(states), len(layers), -1)


def _features(predictor: Predictor, examples: Sequence[Example]) -> np.ndarray:
    """Compute the features of every layer, float32 (L + 1, R, H), in the order of examples."""
    features = []
    for example, states in zip(examples, states_by_layer(predictor, examples), strict=True):
        rows = _word_rows(example)
        chosen = states.mean(0, keepdim=True) if rows is None else states[rows]
        features.append(chosen.numpy())
    return np.swapaxes(np.concatenate(features), 0, 1)


def _word_rows(example: Example) -> torch.Tensor | None:
    """Return the first token of each word of a tagging example, None for classification."""
    rows = getattr(example.source, "rows", None)
    return None if rows is None else torch.from_numpy(rows)


def _fit(
    train_RH: np.ndarray, targets: np.ndarray, dev_RH: np.ndarray, num_labels: int
) -> np.ndarray:
    """Fit the probe and return its log-probabilities on dev, float32 (R, C)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Standardised, because the scale of hidden states differs from layer to layer.
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1_000))
    probe.fit(train_RH, targets)
    logits_RC = np.full((len(dev_RH), num_labels), -100.0, dtype=np.float32)
    logits_RC[:, probe.classes_] = np.maximum(probe.predict_log_proba(dev_RH), -100.0)
    return logits_RC


def _outputs(logits_RC: np.ndarray, examples: Sequence[Example]) -> Iterator[torch.Tensor]:
    """Arrange the logits like the outputs of a head, as `Task.decode` expects them."""
    start = 0
    for example in examples:
        rows = _word_rows(example)
        if rows is None:
            yield torch.from_numpy(logits_RC[start])
            start += 1
            continue
        output = torch.zeros(len(example.input_ids), logits_RC.shape[1])
        output[rows] = torch.from_numpy(logits_RC[start : start + len(rows)])
        start += len(rows)
        yield output
