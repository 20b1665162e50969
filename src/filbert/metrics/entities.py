"""Entity-level precision, recall and F1 of tag sequences: exact boundaries and exact type.

The rules are those of conlleval (Tjong Kim Sang and De Meulder 2003, section 2.4) and seqeval's
default mode: a tag that cannot continue the entity before it begins one, whatever its prefix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

_PREFIXED = re.compile("[BIESLU](-|$)")
# Prefixes that continue an entity, and those that can be continued.
_CONTINUES, _LEFT_OPEN = frozenset("IEL"), frozenset("BI")


def entity_metrics(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Compute metrics of the tags of sentences, over all of them together and for each type.

    Returns:
        `f1`, `precision`, `recall` (0 for an empty denominator, as in seqeval), `accuracy` (share
        of equal tags, None without a tag) and `per_label`: {type: {precision, recall, f1,
        support}}, types in alphabetical order, `support` being the number of gold entities.
    """
    wanted: Counter[str] = Counter()
    given: Counter[str] = Counter()
    right: Counter[str] = Counter()
    num_tags = num_equal = 0
    for truth, answer in zip(gold, predicted, strict=True):
        num_tags += len(truth)
        num_equal += sum(one == other for one, other in zip(truth, answer, strict=True))
        expected = set(entities_of(truth))
        found = set(entities_of(answer))
        wanted.update(kind for kind, _, _ in expected)
        given.update(kind for kind, _, _ in found)
        right.update(kind for kind, _, _ in expected & found)
    per_label = {
        kind: {**_rates(right[kind], given[kind], wanted[kind]), "support": wanted[kind]}
        for kind in sorted(wanted | given)
    }
    total = _rates(right.total(), given.total(), wanted.total())
    accuracy = num_equal / num_tags if num_tags else None
    return {**total, "accuracy": accuracy, "per_label": per_label}


@lru_cache
def split(tag: str) -> tuple[str, str]:
    """Return prefix and type of a tag that is not "O"; the prefix is "" if it has none."""
    return (tag[0], tag[2:] or "_") if _PREFIXED.match(tag) else ("", tag)


def entities_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the entities of one sentence as (type, first word, word after the last), in order.

    `tags` may be in BIO, IOB1, IOBES or BILOU, or malformed. The type of a tag without one, such as
    "B", is "_". A tag without prefix, such as "NOUN", is an entity of one word.
    """
    before, kind, start = "O", "", 0  # prefix and type of the previous tag
    found: list[tuple[str, int, int]] = []
    # The last tag ends what the one before it left open.
    for index, tag in enumerate([*tags, "O"]):
        prefix, own = ("O", "") if tag == "O" else split(tag)
        if own != kind or prefix not in _CONTINUES or before not in _LEFT_OPEN:
            if before != "O":
                found.append((kind, start, index))
            start, kind = index, own
        before = prefix
    return found


def _rates(right: int, given: int, wanted: int) -> dict[str, float]:
    return {
        "precision": right / given if given else 0.0,
        "recall": right / wanted if wanted else 0.0,
        "f1": 2 * right / (given + wanted) if given + wanted else 0.0,
    }
