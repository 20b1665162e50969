"""The same figures for parts of the test rows: by length, and by the columns that say who is meant.

N rows.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from filbert.errors import InputError, printable
from filbert.metrics.intervals import ends, resampled
from filbert.study.figures import TESTED_BINARY, Judged

# Slices of one column; rarer values share one.
MOST_VALUES = 20
# With fewer rows of a class an interval of the slice would say little and look like much.
FEWEST_FOR_INTERVAL = 10
NOT_STATED = "not stated"
# What tables write where there is no value, in any case.
_MISSING = {"", "nan", "na", "null", "none"}


def slices_of(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> list[tuple[str, str, np.ndarray]]:
    """(by, name, row indices int64) of every part: length quartiles first, then column by column.

    Raises InputError when a column is in no row.
    """
    found = [("length", name, at) for name, at in by_length(rows)]
    for column in columns:
        found += [(column, name, at) for name, at in by_column(rows, column)]
    return found


def by_length(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, np.ndarray]]:
    """Up to four parts of near equal size by the number of words in the raw text (or pair).

    Words are what stands between white space. Rows of one length stay together; texts that are all
    of one length give no part.
    """
    lengths = np.array(
        [len(f"{row.get('text') or ''} {row.get('text_pair') or ''}".split()) for row in rows],
        dtype=np.int64,
    )
    if not len(lengths) or lengths.min() == lengths.max():
        return []
    edges = np.unique(np.quantile(lengths, [0.25, 0.5, 0.75, 1.0], method="inverted_cdf"))
    parts = []
    below = -1
    for edge in edges:
        at = np.flatnonzero((lengths > below) & (lengths <= edge))
        least, most = int(lengths[at].min()), int(lengths[at].max())
        span = f"{least:,}" if least == most else f"{least:,}-{most:,}"
        parts.append((f"{span} word" if span == "1" else f"{span} words", at))
        below = int(edge)
    return parts


def by_column(rows: Sequence[Mapping[str, Any]], column: str) -> list[tuple[str, np.ndarray]]:
    """The parts of one column.

    Numbers from 0 to 1 (0/1, or the share of people who saw a group meant) become "yes" from 0.5 on
    and "no"; all other values are names as they stand, the 20 most frequent, the rest together.
    Rows without a value (see `is_missing`) are "not stated".
    """
    if not any(column in row for row in rows):
        known = sorted({name for row in rows for name in row} - {"text", "text_pair", "label"})
        near = difflib.get_close_matches(column, known, n=1)
        hint = f" Did you mean {printable(near[0])}?" if near else ""
        names = ", ".join(printable(name) for name in known) or "none"
        raise InputError(
            f'No test row has the column "{printable(column)}" to make slices by; '
            f"the columns kept beside text and label are: {names}.{hint}"
        )
    values = [row.get(column) for row in rows]
    missing = [is_missing(value) for value in values]
    shares = [None if gone else _share(v) for v, gone in zip(values, missing, strict=True)]
    if all(gone or s is not None for s, gone in zip(shares, missing, strict=True)):
        named = [NOT_STATED if s is None else "yes" if s >= 0.5 else "no" for s in shares]
        order = ["yes", "no"]
    else:
        pairs = zip(values, missing, strict=True)
        named = [NOT_STATED if gone else printable(str(value).strip()) for value, gone in pairs]
        counts = Counter(name for name in named if name != NOT_STATED)
        order = sorted(counts, key=lambda name: (-counts[name], name))
        if len(order) > MOST_VALUES:
            rest = f"{len(order) - MOST_VALUES + 1:,} other values"
            kept = set(order[: MOST_VALUES - 1]) | {NOT_STATED}
            named = [name if name in kept else rest for name in named]
            order = [*order[: MOST_VALUES - 1], rest]
    table = np.array(named, dtype=object)
    parts = [(name, np.flatnonzero(table == name)) for name in [*order, NOT_STATED]]
    return [(name, at) for name, at in parts if len(at)]


def is_missing(value: Any) -> bool:
    """Whether a row says nothing in a column: empty, NaN, or the words nan, NA, null and none."""
    return value is None or str(value).strip().lower() in _MISSING


def _share(value: Any) -> float | None:
    """The value as a number from 0 to 1; None when it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return {"true": 1.0, "false": 0.0}.get(str(value).strip().lower())
    return number if 0 <= number <= 1 else None


def slice_figures(judged: Judged) -> dict[str, float | None]:
    """What can be said of a part of the rows.

    Two labels: roc_auc, pr_auc, f1, precision, recall, accuracy, false_positive_rate; None where
    the part has no row to divide by. More labels: accuracy, macro_f1.
    """
    found = judged.metrics()
    if judged.positive is None:
        return {key: found[key] for key in ("accuracy", "macro_f1")}
    is_positive, called = judged.is_positive, judged.called
    kept: dict[str, float | None] = {
        key: found[key] for key in ("roc_auc", "pr_auc", "f1", "precision", "recall", "accuracy")
    }
    if not is_positive.any():
        kept |= {"f1": None, "precision": None, "recall": None}
    negatives = called[~is_positive]
    kept["false_positive_rate"] = float(negatives.mean()) if len(negatives) else None
    return kept


def slice_intervals(
    parts: Mapping[str, Judged], *, resamples: int, level: float, seed: int
) -> dict[str, dict[str, tuple[float | None, float | None]]]:
    """(low, high) of roc_auc, pr_auc and f1 by contestant, for two labels with ten rows each.

    Args:
        parts: the contestants' answers for the same rows.
        resamples: B, the same resamples for all.
        level: of the intervals.
        seed: of the draws.
    """
    first = next(iter(parts.values()))
    gold = first.is_positive
    few = min(int(gold.sum()), int((~gold).sum())) < FEWEST_FOR_INTERVAL
    if first.positive is None or few:
        return {name: {} for name in parts}
    forms = [one.tested_form()[1] for one in parts.values()]
    drawn = resampled(forms, gold, resamples=resamples, seed=seed)
    return {
        name: {figure: ends(row, level) for figure, row in zip(TESTED_BINARY, values, strict=True)}
        for name, values in zip(parts, drawn, strict=True)
    }
