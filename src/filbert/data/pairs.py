"""Rows of two texts, maybe with a score for how close they are in meaning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from filbert.data.findings import Finding
from filbert.data.records import Row
from filbert.errors import InputError, printable


def require_pair(row: Row) -> None:
    """Make sure that there is a second text.

    Raises:
        InputError: there is none; with file and line.
    """
    if row.values.get("text_pair") in (None, ""):
        raise InputError(
            f"{row.where}: no second text. Sentence vectors are learnt from pairs; fill the column "
            "'text_pair', or drop the row."
        )


def score_of(row: Row) -> float | None:
    """The label as a number; None without one.

    Raises:
        InputError: it is no finite number; with file and line.
    """
    value = row.values.get("label")
    if value is None or value == "":
        return None
    number = as_number(value)
    if not math.isfinite(number):
        raise InputError(
            f"{row.where}: label {printable(repr(value), 40)} is not a number. A label says how "
            "close both texts are in meaning."
        )
    return number


def as_number(value: Any) -> float:
    """The value as a float; nan where it is none: a truth value, or 1_000 as Python writes it."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def scale_of(rows: Iterable[Row]) -> float:
    """What scores must be divided by to be cosines, found from all training rows.

    1.0 where all lie between -1 and 1, so are cosines already; 5.0 where all lie between 0 and 5,
    as in STS-B; else the largest.

    Raises:
        InputError: a score is no number, or there are both negative ones and ones beyond 1.
    """
    largest, smallest, lowest = -math.inf, math.inf, ""
    for row in rows:
        score = score_of(row)
        if score is None:
            continue
        if score < smallest:
            smallest, lowest = score, row.where
        largest = max(largest, score)
    if smallest >= -1 and largest <= 1:
        return 1.0
    if smallest < 0:
        raise InputError(
            f"{lowest}: label {smallest:g}, while the largest is {largest:g}. A label is what the "
            "cosine of both texts shall be, from -1 to 1, or a score from 0 upwards."
        )
    return 5.0 if largest <= 5 else largest


def require_positive(row: Row) -> None:
    """Make sure that a row with a label is a pair of equal meaning, label 1.

    Raises:
        InputError: it is not, so that learning from it as one would teach nonsense.
    """
    score = score_of(row)
    if score not in (None, 1.0):
        raise InputError(
            f"{row.where}: label {score:g}. --loss contrastive takes every training row for a pair "
            "of equal meaning, label 1 or none. Drop the others, or pass --loss cosine."
        )


def pair_findings(
    rows: Sequence[Row], *, positives: bool, score_max: float | None
) -> Iterator[Finding]:
    """Pairs that teach nothing, and labels that cannot be learnt from.

    Args:
        rows: with scores that `score_of` can read.
        positives: every row shall be a pair of equal meaning.
        score_max: the end of the scale, where it is known.
    """
    for row in rows:
        if row.values["text"] == row.values.get("text_pair"):
            message = "Pairs of a text with itself; their cosine is 1 whatever is learnt."
            yield Finding("warning", "identical_pair", message, row.where)
        score = score_of(row)
        if score is None:
            continue
        if positives and score != 1:
            message = (
                "Rows with a label other than 1; --loss contrastive learns from pairs of equal "
                "meaning and refuses them in training."
            )
            yield Finding("warning", "not_a_positive", message, row.where)
        elif not positives and score_max is not None and abs(score) > score_max:
            message = f"Labels beyond {score_max:g}, the end of the scale in training."
            yield Finding("warning", "label_range", message, row.where)


def complete_pair(prediction: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Somebody's prediction for a pair: `value`, and its `rank` if that comes with its `pool_size`.

    Raises:
        InputError: what is missing or impossible, with file and line.
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
