"""Tags of the words of a sentence: from rows and spans, and from other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from filbert.data.conll import Sentence, place_of
from filbert.data.labels import MAX_LABEL, listed
from filbert.data.records import Finding, Row
from filbert.errors import InputError, printable

# In place of a prefix, for tags without one.
ALONE = "W"

# The label of spans without one.
SPAN_LABEL = "span"


class GoldTags(NamedTuple):
    """The correct tags of a sentence, and the sentence, for answers that come as entities."""

    tags: list[str]
    sentence: Sentence
    where: str


class Span(NamedTuple):
    """Characters [start, end) of a text, and their label."""

    start: int
    end: int
    label: str


# Tag schemes


def tag_names(types: Iterable[str], *, alone: bool = False) -> tuple[str, ...]:
    """Return the tags of entity types: "O", then B- and I- of each; the types if they are alone."""
    if alone:
        return tuple(types)
    return ("O", *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))


def check_tag_names(labels: Sequence[str]) -> None:
    """Raise a ValueError unless all names are tags of entities, with "O" among them."""
    for label in labels:
        if stands_alone(label):
            raise ValueError(_no_tag(label))
    if "O" not in labels:
        raise ValueError(f'{listed(labels)} lack the tag "O"')


@lru_cache(maxsize=2**14)
def split_tag(tag: str) -> tuple[str, str]:
    """Return prefix and type: ("B", "person"); ("O", "") for "O"; (ALONE, "NOUN") for "NOUN".

    Raises:
        ValueError: It is no tag.
    """
    if tag == "O":
        return "O", ""
    prefix, _, kind = tag.partition("-")
    if prefix not in tuple("BIESLU"):
        prefix, kind = ALONE, tag
    if not kind or len(kind) > MAX_LABEL or not kind.isprintable():
        raise ValueError(_no_tag(tag))
    return prefix, kind


def _no_tag(tag: str) -> str:
    return f'the tag "{printable(tag, 40)}" is neither O nor a prefix and a type, as in B-person.'


def stands_alone(tag: str) -> bool:
    """Return whether a tag is for its word alone, as a part of speech is."""
    return split_tag(tag)[0] == ALONE


def breaks(tags: Sequence[str]) -> list[int]:
    """Return the tags that break BIO: I-X after O or after another type, or another prefix."""
    indices: list[int] = []
    before = ""
    for index, tag in enumerate(tags):
        prefix, kind = split_tag(tag)
        if prefix not in ("B", "I", "O", ALONE) or (prefix == "I" and kind != before):
            indices.append(index)
        before = kind
    return indices


def to_bio(tags: Sequence[str]) -> list[str]:
    """Return BIO tags of the same entities, by conlleval's reading of IOB1, IOBES or broken tags.

    A tag that cannot continue the entity before it begins one: I-X at the start becomes B-X.
    """
    bio: list[str] = []
    before, old = "O", ""
    for tag in tags:
        prefix, kind = split_tag(tag)
        if prefix in ("O", ALONE):
            bio.append(tag)
        else:
            begins = prefix in "BSU" or before not in "BI" or kind != old
            bio.append(f"{'B' if begins else 'I'}-{kind}")
        before, old = prefix, kind
    return bio


def spread_tags(tags: Sequence[str], leaders: Sequence[int]) -> list[str]:
    """Return a BIO tag for every word from those of the words that have a token of their own.

    A word that shares its token continues what that token's first word began. One without any, of
    characters that the vocabulary drops, continues the entity around it, and else is O.

    Args:
        tags: Of the words that lead themselves, in order.
        leaders: For each word the one whose token it shares, itself, or -1.
    """
    spread: list[str] = []
    remaining = iter([*tags, "O"])
    coming = next(remaining)
    for index, leader in enumerate(leaders):
        if leader == index:
            spread.append(coming)
            coming = next(remaining)
        elif leader < 0:
            spread.append(coming if split_tag(coming)[0] == "I" else "O")
        else:
            prefix, kind = split_tag(spread[leader])
            spread.append(f"I-{kind}" if prefix in "BI" else spread[leader])
    return spread


# Tags of a row


def tags_of(row: Row, sentence: Sentence, *, repair: bool) -> list[str]:
    """Return the BIO tags of a row's words, from its `tags` or `spans`.

    With `repair`, IOB1 and IOBES are read, and what breaks BIO is repaired; see `to_bio`. Otherwise
    that is an InputError, as are malformed tags and another number than words.
    """
    if row.values.get("tokens") is None:
        return span_tags(sentence, spans_in(row.values.get("spans"), row.where, sentence.text))[0]
    tags = _raw_tags(row, sentence)
    if repair:
        return to_bio(tags)
    for index in breaks(tags):
        tag = printable(tags[index], 40)
        before = printable(tags[index - 1], 40) if index else "nothing"
        raise InputError(
            f"{place_of(row, index)}: the tag {tag} follows {before}, but in BIO an entity begins "
            "with B- and continues with I-. Correct it, or pass --repair-tags to read IOB1 and "
            "IOBES too."
        )
    return tags


def _raw_tags(row: Row, sentence: Sentence) -> list[str]:
    """Return the `tags` of a row, of any scheme."""
    tags = row.values.get("tags")
    if not isinstance(tags, list | tuple) or len(tags) != len(sentence.words):
        problem = f"{len(tags)} tags" if isinstance(tags, list | tuple) else "no list of tags"
        raise InputError(
            f"{row.where}: {len(sentence.words)} tokens, but {problem}. Every token needs exactly "
            "one tag."
        )
    checked = _checked_tags(tags, lambda index: place_of(row, index))
    alone = [stands_alone(tag) for tag in checked]
    if any(alone) and not all(alone):
        index = alone.index(True)
        raise InputError(f"{place_of(row, index)}: {_no_tag(checked[index])}")
    return checked


def _checked_tags(tags: Sequence[Any], place: Callable[[int], str]) -> list[str]:
    for index, tag in enumerate(tags):
        if not isinstance(tag, str):
            kind = type(tag).__name__
            raise InputError(f"{place(index)}: a tag must be a text, such as O; this is a {kind}.")
        try:
            split_tag(tag)
        except ValueError as error:
            raise InputError(f"{place(index)}: {error}") from error
    return list(tags)


def kinds_in(sentences: Iterable[GoldTags]) -> tuple[set[str], bool]:
    """Return the types in the tags of some sentences, and whether the tags have no prefixes.

    Raises:
        InputError: Those of some sentences do, those of others do not.
    """
    kinds: set[str] = set()
    first: dict[bool, GoldTags] = {}
    for gold in sentences:
        if not gold.tags:
            continue
        kinds.update(split_tag(tag)[1] for tag in gold.tags)
        first.setdefault(stands_alone(gold.tags[0]), gold)
        if len(first) == 2:
            raise InputError(
                f"{first[True].where}: {_no_tag(first[True].tags[0])} Those of "
                f"{first[False].where} are. Write all tags in one way."
            )
    return kinds - {""}, True in first


def tag_findings(row: Row, sentence: Sentence) -> Iterator[Finding]:
    """Yield each tag that breaks BIO; each span without a word or with a border inside one.

    Rows with broken tags only come here if they are repaired: `tags_of` refuses others.
    """
    if row.values.get("tokens") is not None:
        message = "Tags that break BIO; they are repaired."
        for index in breaks(_raw_tags(row, sentence)):
            yield Finding("warning", "broken_bio", message, place_of(row, index))
        return
    spans = spans_in(row.values.get("spans"), row.where, sentence.text)
    lost = span_tags(sentence, spans)[1]
    starts, ends = set(sentence.starts.tolist()), set(sentence.ends.tolist())
    for span in spans:
        place = f"{row.where}, characters {span.start} to {span.end}"
        if span in lost:
            message = "Spans without a word of their own; they are not used for training."
            yield Finding("warning", "lost_span", message, place)
        elif span.start not in starts or span.end not in ends:
            message = "Spans with a border inside a word; the whole word is used."
            yield Finding("warning", "widened_span", message, place)


# Predictions of other programs


def check_answer(prediction: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a prediction's `tags` of any scheme or its `entities`, or raise an InputError."""
    tags, entities = prediction.get("tags"), prediction.get("entities")
    if isinstance(tags, list):
        return {"tags": _checked_tags(tags, lambda index: f"{where}, word {index + 1}")}
    if tags is not None or entities is None:
        raise InputError(
            f"{where}: a prediction needs 'tags', a list with one for each word, or 'entities' "
            "with start, end and label."
        )
    return {"entities": spans_in(entities, where)}


def types_in(answer: Mapping[str, Any]) -> set[str]:
    """Return the entity types in the result of `check_answer`."""
    if "tags" in answer:
        return {split_tag(tag)[1] for tag in answer["tags"]} - {""}
    return {span.label for span in answer["entities"]}


def answered_tags(wanted: GoldTags, answer: Mapping[str, Any]) -> list[str]:
    """Return a BIO tag for each word, from a result of `check_answer` or a prediction of our own.

    Raises:
        InputError: It does not fit the words of its row.
    """
    given: list[str] | None = answer.get("tags")
    if given is None:
        where = f"{wanted.where}, prediction"
        spans = spans_in(answer["entities"], where, wanted.sentence.text)
        tags = span_tags(wanted.sentence, spans)[0]
        alone = any(map(stands_alone, wanted.tags))
        return [split_tag(tag)[1] or tag for tag in tags] if alone else tags
    if len(given) != len(wanted.tags):
        raise InputError(
            f"{wanted.where}: {len(wanted.tags)} words, but its prediction has {len(given)} tags."
        )
    return to_bio(given)


# Spans


def spans_in(value: Any, where: str, text: str | None = None) -> list[Span]:
    """Return the spans of a row, ordered by start.

    Args:
        value: A list of {"start", "end", "label"}, [start, end] or [start, end, label]; the default
            label is "span".
        text: The text of the spans; None if it is not known yet.

    Raises:
        InputError: It is no such list, a span is outside the text, or two spans overlap.
    """
    if not isinstance(value, list | tuple):
        raise InputError(
            f"{where}: no list of spans. Give a list (possibly empty) of "
            '{"start": 0, "end": 5, "label": "person"} or [start, end].'
        )
    spans = []
    for index, item in enumerate(value, 1):
        place = f"{where}: span {index}"
        spans.append(span := _span(item, place))
        if not 0 <= span.start < span.end or (text is not None and span.end > len(text)):
            size = "" if text is None else f" of the {len(text)} of its text"
            raise InputError(
                f"{place} is characters {span.start} to {span.end}{size}; start counts from 0, and "
                "end is after the last character."
            )
    spans.sort()
    for one, two in zip(spans, spans[1:], strict=False):
        if two.start < one.end:
            raise InputError(
                f"{where}: the spans {one.start} to {one.end} and {two.start} to {two.end} "
                "overlap. A word has one tag only, so keep one of them."
            )
    return spans


def _span(item: Any, where: str) -> Span:
    if isinstance(item, dict):
        item = (item.get("start"), item.get("end"), item.get("label", SPAN_LABEL))
    start, end, label = (
        (*item, SPAN_LABEL)[:3]
        if isinstance(item, list | tuple) and len(item) in (2, 3)
        else (None,) * 3
    )
    if type(start) is not int or type(end) is not int:
        raise InputError(
            f'{where} is not [start, end] or {{"start", "end", "label"}} with whole numbers.'
        )
    try:
        split_tag(f"B-{label}" if isinstance(label, str) else "")
    except ValueError as error:
        raise InputError(
            f"{where}: a label must be a text of 1 to {MAX_LABEL} printable characters."
        ) from error
    return Span(start, end, label)


def span_tags(sentence: Sentence, spans: Iterable[Span]) -> tuple[list[str], list[Span]]:
    """Return BIO tags from spans in order, and the spans that got no word.

    A word that shares any character with a span belongs to it, and to the first of several. So a
    span that ends inside a word is read as ending after it.
    """
    tags = ["O"] * len(sentence.words)
    lost: list[Span] = []
    free = 0
    for span in spans:
        first = max(free, int(np.searchsorted(sentence.ends, span.start, side="right")))
        free = max(first, int(np.searchsorted(sentence.starts, span.end, side="left")))
        if first == free:
            lost.append(span)
        for index in range(first, free):
            tags[index] = f"{'B' if index == first else 'I'}-{span.label}"
    return tags, lost
