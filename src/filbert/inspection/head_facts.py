"""What was found about heads, as plain lists and numbers for JSON and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from filbert.inspection.agreement import Agreement
from filbert.inspection.head_coreference import Coreference
from filbert.inspection.head_relations import Guess, Relation
from filbert.inspection.heads import NUMBERS, HeadNumbers
from filbert.speed.loss import MetricChange

DIGITS = 6


def head_rows(
    numbers: HeadNumbers, agreement: Agreement, worth: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """One record a head, pruned ones left out.

    Args:
        numbers: of all heads.
        agreement: of the same.
        worth: "metric", "value", and by layer and head "importance" and "without": what masking
            each head costs. "lost" in a record is what the metric loses, so positive is harm.
    """
    rows = []
    for (layer, head), cluster in zip(agreement.heads, agreement.clusters.tolist(), strict=True):
        row: dict[str, Any] = {"layer": layer, "head": head}
        for number in NUMBERS:
            row[number.name] = rounded(numbers.values[number.name][layer, head])
        row["cluster"] = cluster
        if worth is not None:
            row["importance"] = rounded(worth["importance"][layer][head])
            row["without"] = without = rounded(worth["without"][layer][head])
            change = None
            if without is not None and worth["value"] is not None:
                change = MetricChange(worth["metric"], worth["value"], without).loss
            row["lost"] = rounded(change)
        rows.append(row)
    return rows


def agreement_facts(agreement: Agreement) -> dict[str, Any]:
    """The divergence of all pairs of heads, their order in the dendrogram, their places."""
    return {
        "heads": [list(pair) for pair in agreement.heads],
        "divergence": rounded(agreement.divergence),
        "order": agreement.order.tolist(),
        "places": rounded(agreement.places),
        "stress": rounded(agreement.stress),
    }


def relation_facts(relations: Sequence[Relation]) -> list[dict[str, Any]]:
    """One record a relation."""
    return [
        {
            "relation": relation.name,
            "count": relation.count,
            "head": _guess(relation.head),
            "offset": _guess(relation.offset),
            "accuracies": rounded(relation.accuracies),
        }
        for relation in relations
    ]


def _guess(guess: Guess) -> dict[str, Any]:
    direction = {} if guess.direction is None else {"direction": guess.direction}
    return {
        "name": guess.name,
        **direction,
        "accuracy": rounded(guess.accuracy),
        "held_out": rounded(guess.held_out),
    }


def coreference_facts(found: Coreference) -> dict[str, Any]:
    """The best head, the baselines, and all heads."""
    return {
        "documents": found.documents,
        "truncated": found.truncated,
        "mentions_left_out": found.left_out,
        "mentions": found.mentions,
        "head": found.head,
        "accuracy": rounded(found.accuracy),
        "nearest": rounded(found.nearest),
        "same_word": rounded(found.same_word),
        "accuracies": rounded(found.accuracies),
    }


def rounded(value: Any) -> Any:
    """Numbers and arrays as JSON has them: a few digits, None for what is not a number."""
    if isinstance(value, np.ndarray):
        return [rounded(part) for part in value.tolist()]
    if isinstance(value, list):
        return [rounded(part) for part in value]
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, DIGITS)
    return value if value is None or isinstance(value, int) else rounded(float(value))
