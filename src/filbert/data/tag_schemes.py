"""Tags by their form: prefixes and types, the schemes they follow, and the names a model has.

A tag is "O", or a prefix and a type, such as "B-person". BIO (IOB2): every entity begins with B-,
and I- goes on. IOB1: I- everywhere, B- only where an entity follows another of its type. IOBES: as
BIO, with E- on the last word and S- on a single one; BILOU writes L- and U- for these. Or all tags
of a file stand for their words alone, as parts of speech do: no prefix, and no O among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from filbert.data.labels import MAX_LABEL, listed
from filbert.errors import printable

# In place of a prefix, of tags that have none.
ALONE = "W"


def tag_names(types: Iterable[str], *, alone: bool = False) -> tuple[str, ...]:
    """The tags of entity types: "O", then B- and I- of each; the types, where they stand alone."""
    return (
        tuple(types) if alone else ("O", *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))
    )


def check_tag_names(labels: Sequence[str]) -> None:
    """Refuse names that are not all tags of entities, with "O" among them.

    Raises:
        ValueError: they are not.
    """
    for label in labels:
        if stands_alone(label):
            raise ValueError(no_tag(label))
    if "O" not in labels:
        raise ValueError(f'{listed(labels)} lack the tag "O"')


@lru_cache(maxsize=2**14)
def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and type: ("B", "person"); ("O", "") for "O"; (ALONE, "NOUN") for "NOUN".

    Raises:
        ValueError: it is no tag.
    """
    if tag == "O":
        return "O", ""
    prefix, _, kind = tag.partition("-")
    if prefix not in tuple("BIESLU"):
        prefix, kind = ALONE, tag
    if not kind or len(kind) > MAX_LABEL or not kind.isprintable():
        raise ValueError(no_tag(tag))
    return prefix, kind


def no_tag(tag: str) -> str:
    """What is wrong with a tag that is none."""
    return f'the tag "{printable(tag, 40)}" is neither O nor a prefix and a type, as in B-person.'


def stands_alone(tag: str) -> bool:
    """Whether a tag is for its word alone, as a part of speech is."""
    return split_tag(tag)[0] == ALONE


def form_of(tag: str) -> tuple[bool, str]:
    """Whether a tag stands alone, and its type."""
    return stands_alone(tag), split_tag(tag)[1]


def breaks(tags: Sequence[str]) -> list[int]:
    """Indices of the tags that break BIO: I-X after O or after another type, or another prefix."""
    found: list[int] = []
    before = ""
    for index, tag in enumerate(tags):
        prefix, kind = split_tag(tag)
        if prefix not in ("B", "I", "O", ALONE) or (prefix == "I" and kind != before):
            found.append(index)
        before = kind
    return found


def to_bio(tags: Sequence[str]) -> list[str]:
    """BIO tags of the same entities, by conlleval's reading of IOB1, IOBES or broken tags.

    What cannot continue the entity before it begins one: I-X at the start becomes B-X.
    """
    found: list[str] = []
    before, old = "O", ""
    for tag in tags:
        prefix, kind = split_tag(tag)
        if prefix in ("O", ALONE):
            found.append(tag)
        else:
            begins = prefix in "BSU" or before not in "BI" or kind != old
            found.append(f"{'B' if begins else 'I'}-{kind}")
        before, old = prefix, kind
    return found


def spread_tags(tags: Sequence[str], leaders: Sequence[int]) -> list[str]:
    """A BIO tag for every word from those of the words that have a token of their own.

    A word that shares its token goes on with what that token's first word began. One without any,
    of characters that the vocabulary drops, goes on with the entity around it, and else is O.

    Args:
        tags: of the words that lead themselves, in order.
        leaders: for each word the one whose token it shares, itself, or -1.
    """
    found: list[str] = []
    left = iter([*tags, "O"])
    coming = next(left)
    for index, leader in enumerate(leaders):
        if leader == index:
            found.append(coming)
            coming = next(left)
        elif leader < 0:
            found.append(coming if split_tag(coming)[0] == "I" else "O")
        else:
            prefix, kind = split_tag(found[leader])
            found.append(f"I-{kind}" if prefix in "BI" else found[leader])
    return found


def scheme_of(sequences: Iterable[Sequence[str]]) -> str | None:
    """The first of BIO, IOB1 and IOBES (or BILOU) that all sequences obey; None for none."""
    left = dict(_OBEYS)
    for tags in sequences:
        pairs = [split_tag(tag) for tag in tags]
        left = {name: obeys for name, obeys in left.items() if obeys(pairs)}
    return next(iter(left), None)


def _follows(free: str, bound: str) -> Callable[[Sequence[tuple[str, str]]], bool]:
    """A scheme whose prefixes `free` stand anywhere, and `bound` behind a tag of its kind alone."""

    def obeys(pairs: Sequence[tuple[str, str]]) -> bool:
        kinds = ["", *(kind for _, kind in pairs)]
        return all(
            prefix in free or (prefix == bound and kind == before)
            for (prefix, kind), before in zip(pairs, kinds, strict=False)
        )

    return obeys


def _is_iobes(pairs: Sequence[tuple[str, str]]) -> bool:
    inside = None
    for prefix, kind in [*pairs, ("O", "")]:
        if inside is None and prefix not in "OBSU":
            return False
        if inside is not None and (prefix not in "IEL" or kind != inside):
            return False
        inside = kind if prefix in "BI" else None
    return True


_OBEYS: dict[str, Callable[[Sequence[tuple[str, str]]], bool]] = {
    "BIO": _follows("BO", "I"),
    "IOB1": _follows("IO", "B"),
    "IOBES": _is_iobes,
}
