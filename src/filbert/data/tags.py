"""Tags of the words of a sentence: from rows and spans, and from other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from filbert.data.conll import Sentence, place_of
from filbert.data.findings import Finding, Level
from filbert.data.labels import MAX_LABEL
from filbert.data.row import Row
from filbert.data.tag_schemes import breaks, no_tag, scheme_of, split_tag, stands_alone, to_bio
from filbert.errors import InputError, printable

# What a span is called that comes without label.
SPAN_LABEL = "span"


class Gold(NamedTuple):
    """The wanted tags of a sentence, and the sentence, for answers that come as entities."""

    tags: list[str]
    sentence: Sentence
    where: str


class Span(NamedTuple):
    """Characters [start, end) of a text, and what they are."""

    start: int
    end: int
    label: str


# Tags of a row


def tags_of(row: Row, sentence: Sentence, *, repair: bool) -> list[str]:
    """The BIO tags of a row's words, from its `tags` or `spans`.

    Args:
        row: the row.
        sentence: of the row.
        repair: read IOB1 and IOBES, and mend what breaks BIO; see `to_bio`.

    Raises:
        InputError: there are none, not as many as words, malformed ones, or ones that break BIO.
    """
    if row.values.get("tokens") is None:
        return span_tags(sentence, spans_in(row.values.get("spans"), row.where, sentence.text))[0]
    tags = raw_tags(row, sentence)
    if repair:
        return to_bio(tags)
    for index in breaks(tags):
        raise InputError(f"{place_of(row, index)}: {_break_named(tags, index)}")
    return tags


def raw_tags(row: Row, sentence: Sentence) -> list[str]:
    """The `tags` of a row, of any scheme.

    Raises:
        InputError: there are none, not as many as words, or malformed ones.
    """
    tags = row.values.get("tags")
    if tags is None:
        raise InputError(f'{row.where}: no tags. Give a list, one tag for each of the "tokens".')
    if not isinstance(tags, list | tuple):
        raise InputError(f'{row.where}: "tags" must be a list, one tag for each of the "tokens".')
    if len(tags) != len(sentence.words):
        raise InputError(
            f"{row.where}: {len(sentence.words)} tokens, but {len(tags)} tags. "
            "Every token needs exactly one tag."
        )
    found = check_tags(tags, lambda index: place_of(row, index))
    alone = [stands_alone(tag) for tag in found]
    if any(alone) and not all(alone):
        index = alone.index(True)
        raise InputError(f"{place_of(row, index)}: {no_tag(found[index])}")
    return found


def check_tags(tags: Sequence[Any], place: Callable[[int], str]) -> list[str]:
    """The same tags, each of them well-formed.

    Raises:
        InputError: one is not; `place` says where the tag of an index stands.
    """
    for index, tag in enumerate(tags):
        if not isinstance(tag, str):
            kind = type(tag).__name__
            raise InputError(f"{place(index)}: a tag must be a text, such as O; this is a {kind}.")
        try:
            split_tag(tag)
        except ValueError as error:
            raise InputError(f"{place(index)}: {error}") from error
    return list(tags)


def kinds_in(sentences: Iterable[Gold]) -> tuple[set[str], bool]:
    """The types in the tags of some sentences, and whether these are tags that stand alone.

    Raises:
        InputError: those of some sentences do, those of others do not.
    """
    kinds: set[str] = set()
    first: dict[bool, Gold] = {}
    for gold in sentences:
        if not gold.tags:
            continue
        kinds.update(split_tag(tag)[1] for tag in gold.tags)
        first.setdefault(stands_alone(gold.tags[0]), gold)
        if len(first) == 2:
            raise InputError(
                f"{first[True].where}: {no_tag(first[True].tags[0])} Those of "
                f"{first[False].where} are. Write all tags in one way."
            )
    return kinds - {""}, True in first


def _break_named(tags: Sequence[str], index: int) -> str:
    prefix, kind = split_tag(tags[index])
    kind = printable(kind, 40)
    scheme = scheme_of([tags])
    hint = f" (the sentence reads as {scheme})" if scheme else ""
    if prefix == "I":
        before = printable(tags[index - 1], 40) if index else "nothing"
        wrong = f"the tag I-{kind} follows {before}, but in BIO an entity begins with B-{kind}."
    else:
        wrong = f"the tag {prefix}-{kind} is not of BIO, which knows B-, I- and O."
    return f"{wrong} Correct it, or pass --repair-tags to read it all the same{hint}."


def tag_findings(row: Row, sentence: Sentence, *, repair: bool) -> Iterator[Finding]:
    """Each tag of a row, whose words are `sentence`, that breaks BIO; each span without a word.

    Raises:
        InputError: the row cannot be read even with repair.
    """
    if row.values.get("tokens") is not None:
        level: Level = "warning" if repair else "error"
        mended = "they are mended" if repair else "correct them, or pass --repair-tags"
        for index in breaks(raw_tags(row, sentence)):
            message = f"Tags that break BIO; {mended}."
            yield Finding(level, "broken_bio", message, place_of(row, index))
        return
    spans = spans_in(row.values.get("spans"), row.where, sentence.text)
    lost = span_tags(sentence, spans)[1]
    borders = {*sentence.starts.tolist()}, {*sentence.ends.tolist()}
    for span in spans:
        place = f"{row.where}, characters {span.start} to {span.end}"
        if span in lost:
            message = "Spans without a word of their own; nothing is learnt from them."
            yield Finding("warning", "lost_span", message, place)
        elif span.start not in borders[0] or span.end not in borders[1]:
            message = "Spans with a border inside a word; all of the word is taken."
            yield Finding("warning", "widened_span", message, place)


# Predictions from elsewhere


def check_answer(prediction: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A prediction with `tags` (of any scheme), or else with `entities` (`Span`s).

    Raises:
        InputError: it has neither, or malformed ones.
    """
    tags, entities = prediction.get("tags"), prediction.get("entities")
    if isinstance(tags, list):
        return {"tags": check_tags(tags, lambda index: f"{where}, word {index + 1}")}
    if tags is not None or entities is None:
        raise InputError(
            f"{where}: a prediction needs 'tags', a list with one for each word, or 'entities' "
            "with start, end and label."
        )
    return {"entities": spans_in(entities, where)}


def types_in(answer: Mapping[str, Any]) -> set[str]:
    """The entity types in what `check_answer` gave."""
    if "tags" in answer:
        return {split_tag(tag)[1] for tag in answer["tags"]} - {""}
    return {span.label for span in answer["entities"]}


def answered_tags(wanted: Gold, answer: Mapping[str, Any]) -> list[str]:
    """A BIO tag for each word, from what `check_answer` gave or from a prediction of our own.

    Raises:
        InputError: it does not fit the words of its row.
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
    """The spans of a row, ordered by start.

    Args:
        value: a list of {"start", "end", "label"}, [start, end] or [start, end, label]; without
            label they are called "span".
        where: for messages.
        text: what they point into; None where that is not known yet.

    Raises:
        InputError: it is no such list, a span lies outside the text, or two overlap.
    """
    if not isinstance(value, list | tuple):
        found = "no spans" if value is None else f'"spans" holds a {type(value).__name__}'
        raise InputError(
            f"{where}: {found}. Give a list (possibly empty) of "
            '{"start": 0, "end": 5, "label": "person"} or [start, end].'
        )
    spans = [_span(item, f"{where}: span {index + 1}") for index, item in enumerate(value)]
    for index, span in enumerate(spans):
        if not 0 <= span.start < span.end or (text is not None and span.end > len(text)):
            behind = "" if text is None else f" of the {len(text)} of its text"
            raise InputError(
                f"{where}: span {index + 1} is characters {span.start} to {span.end}{behind}; "
                "start counts from 0, and end is behind the last character."
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
        start, end, label = item.get("start"), item.get("end"), item.get("label", SPAN_LABEL)
    elif isinstance(item, list | tuple) and len(item) in (2, 3):
        start, end, label = (*item, SPAN_LABEL)[:3]
    else:
        raise InputError(f'{where} is not [start, end] or {{"start", "end", "label"}}.')
    if not (isinstance(start, int) and isinstance(end, int)) or bool in (type(start), type(end)):
        raise InputError(f"{where}: start and end must be whole numbers.")
    try:
        split_tag(f"B-{label}" if isinstance(label, str) else "")
    except ValueError as error:
        raise InputError(
            f"{where}: a label must be a text of 1 to {MAX_LABEL} printable characters."
        ) from error
    return Span(start, end, label)


def span_tags(sentence: Sentence, spans: Iterable[Span]) -> tuple[list[str], list[Span]]:
    """BIO tags from spans in order, and the spans that got no word.

    A word that shares any character with a span is of the span, and of the first if there are
    several. So a span that ends within a word is read as ending behind it.
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
