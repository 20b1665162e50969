"""Rows of two texts, with or without a score for their similarity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from filbert.data.findings import Finding
from filbert.data.records import Row
from filbert.errors import InputError, printable


def require_pair(row: Row) -> None:
    """Check that there is a second text.

    Raises:
        InputError: There is none; with file and line.
    """
    if row.values.get("text_pair") in (None, ""):
        raise InputError(
            f"{row.where}: no second text. Sentence vectors are trained on pairs; fill the column "
            "'text_pair', or drop the row."
        )


def score_of(row: Row) -> float | None:
    """Return the label as a number; None without one.

    Raises:
        InputError: It is no finite number; with file and line.
    """
    value = row.values.get("label")
    if value is None or value == "":
        return None
    number = as_number(value)
    if not math.isfinite(number):
        raise InputError(
            f"{row.where}: label {printable(repr(value), 40)} is not a number. A label says how "
            "similar both texts are."
        )
    return number


def as_number(value: Any) -> float:
    """Return the value as a float; nan for anything else, also for True and for "1_000"."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def scale_of(rows: Iterable[Row]) -> float:
    """Return what the scores of the training rows are divided by to become cosines.

    1.0 if all are between -1 and 1, 5.0 if all are between 0 and 5 (as in STS-B), else the largest.

    Raises:
        InputError: A score is no number, or there are negative scores and scores above 1.
    """
    scores = [(score, row.where) for row in rows if (score := score_of(row)) is not None]
    smallest, where = min(scores, default=(math.inf, ""))
    largest = max((score for score, _ in scores), default=-math.inf)
    if smallest >= -1 and largest <= 1:
        return 1.0
    if smallest < 0:
        raise InputError(
            f"{where}: label {smallest:g}, but the largest is {largest:g}. A label is the wanted "
            "cosine of both texts, from -1 to 1, or a score from 0 upwards."
        )
    return 5.0 if largest <= 5 else largest


def require_positive(row: Row) -> None:
    """Check that the label, if there is one, is 1: a pair with the same meaning.

    Raises:
        InputError: It is another number.
    """
    score = score_of(row)
    if score not in (None, 1.0):
        raise InputError(
            f"{row.where}: label {score:g}. --loss contrastive takes every training row as a pair "
            "with the same meaning, label 1 or none. Drop the others, or pass --loss cosine."
        )


def pair_findings(
    rows: Sequence[Row], *, positives: bool, score_max: float | None
) -> Iterator[Finding]:
    """Yield pairs without information, and labels that cannot be used.

    Args:
        rows: Rows whose scores `score_of` can read.
        positives: Whether every row must be a pair with the same meaning.
        score_max: The end of the scale, if it is known.
    """
    for row in rows:
        if row.values["text"] == row.values.get("text_pair"):
            message = "Pairs of a text with itself; their cosine is always 1."
            yield Finding("warning", "identical_pair", message, row.where)
        score = score_of(row)
        if score is None:
            continue
        if positives and score != 1:
            message = "Rows with a label other than 1; --loss contrastive refuses them in training."
            yield Finding("warning", "not_a_positive", message, row.where)
        elif not positives and score_max is not None and abs(score) > score_max:
            message = f"Labels above {score_max:g}, the end of the scale in training."
            yield Finding("warning", "label_range", message, row.where)


def complete_pair(prediction: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return `value` of a foreign prediction for a pair, and `rank` and `pool_size` if both exist.

    Raises:
        InputError: What is missing or impossible, with file and line.
    """
    value = as_number(prediction.get("value"))
    if not math.isfinite(value):
        raise InputError(f"{where}: a prediction needs 'value', the cosine of a pair, a number.")
    rank, pool_size = prediction.get("rank"), prediction.get("pool_size")
    if rank is None or pool_size is None:
        return {"value": value}
    if not 1 <= as_number(rank) <= as_number(pool_size) < math.inf:
        raise InputError(
            f"{where}: rank {printable(repr(rank), 40)} of {printable(repr(pool_size), 40)}; "
            "a rank counts from 1 to its 'pool_size'."
        )
    return {"value": value, "rank": int(as_number(rank)), "pool_size": int(as_number(pool_size))}
