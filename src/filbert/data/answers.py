"""A classifier's answers: ours from probabilities, somebody else's checked and completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from filbert.data.labels import label_name, listed
from filbert.errors import InputError


def complete_answer(
    prediction: Mapping[str, Any], where: str, labels: Sequence[str], *, multilabel: bool
) -> dict[str, Any]:
    """A prediction with `scores` for all labels and its `label` (`labels` when multi-label).

    One that names only its label is taken as sure of it; one that gives only scores, as choosing
    the highest (those from 0.5 when multi-label).

    Raises:
        InputError: what is missing, unknown or no probability, with file and line.
    """
    key = "labels" if multilabel else "label"
    scores, named = prediction.get("scores"), prediction.get(key)
    if named is None and scores is None:
        raise InputError(f"{where}: a prediction needs {key!r}, 'scores', or both.")
    try:
        given = named if multilabel and isinstance(named, list) else [named]
        chosen = [label_name(n) for n in given if n is not None]
        table = None if scores is None else {label_name(k): float(v) for k, v in scores.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{where}: the prediction cannot be read: {error}.") from error
    if not set(chosen) <= set(labels):
        raise InputError(f"{where}: {chosen} is not one of the labels {listed(labels)}.")
    if table is None:
        table = {label: float(label in chosen) for label in labels}
    if set(table) != set(labels):
        raise InputError(
            f"{where}: the scores are for {listed(sorted(table))}; "
            f"the labels are {listed(labels)}. Name all labels with --labels."
        )
    if not all(0.0 <= score <= 1.0 for score in table.values()):
        raise InputError(f"{where}: a score is not a probability from 0 to 1.")
    if named is None and multilabel:
        chosen = [label for label in labels if table[label] >= 0.5]
    elif named is None:
        chosen = [max(labels, key=table.__getitem__)]
    return {key: chosen if multilabel else chosen[0], "scores": table}


def answer(
    probabilities: np.ndarray,
    labels: Sequence[str],
    thresholds: Sequence[float] | None,
    *,
    multilabel: bool,
    positive: int | None,
) -> dict[str, Any]:
    """`scores` with the `label` (and its `score`) or `labels` that follow from them.

    Args:
        probabilities: float (C,).
        labels: C names.
        thresholds: one per label when multi-label (None: 0.5 for all); one for the positive class
            of two; None: the likeliest wins.
        multilabel: any number of labels.
        positive: the positive class of two; None for more.
    """
    scores = {label: float(p) for label, p in zip(labels, probabilities, strict=True)}
    if multilabel:
        least = thresholds or [0.5] * len(labels)
        given = [k for k, p, t in zip(labels, probabilities, least, strict=True) if p >= t]
        return {"labels": given, "scores": scores}
    best = int(probabilities.argmax())
    if positive is not None and thresholds:
        best = positive if probabilities[positive] >= thresholds[0] else 1 - positive
    return {"label": labels[best], "score": scores[labels[best]], "scores": scores}
