from __future__ import annotations

from typing import Any

import pytest

from filbert.data import tags as schemes
from filbert.data.columns import ColumnNames
from filbert.data.conll import read_sentences, sentence_of
from filbert.data.records import Row
from filbert.errors import InputError


def _tags(values: dict[str, Any], repair: bool = False) -> list[str]:
    row = Row(values, "f.jsonl", 7)
    return schemes.tags_of(row, sentence_of(row), repair=repair)


def _words(tags: str, **values: Any) -> dict[str, Any]:
    return {"tokens": ["w"] * len(tags.split()), "tags": tags.split(), **values}


# Schemes


@pytest.mark.parametrize(
    ("tags", "broken", "bio"),
    [
        ("O B-a I-a B-a", [], "O B-a I-a B-a"),
        ("I-a I-a B-a I-b", [0, 3], "B-a I-a B-a B-b"),
        ("S-a O B-b I-b E-b", [0, 4], "B-a O B-b I-b I-b"),
        ("U-a O B-b I-b L-b L-b", [0, 4, 5], "B-a O B-b I-b I-b B-b"),
        ("U-a B-b L-b", [0, 2], "B-a B-b I-b"),
        ("B-a I-b O I-b B-a", [1, 3], "B-a B-b O B-b B-a"),
        ("O O", [], "O O"),
        ("", [], ""),
    ],
)
def test_tags_of_any_scheme_become_bio(tags, broken, bio):
    assert schemes.breaks(tags.split()) == broken
    assert schemes.to_bio(tags.split()) == bio.split()
    assert schemes.breaks(bio.split()) == []


@pytest.mark.parametrize(
    "tag", ["", "o", "B", "B-", "X-a", "B_a", "a-B", "BI-a", "B-a\n", "B-" + "x" * 201]
)
def test_what_is_no_tag_is_refused_with_its_line(tag):
    row = Row({"tokens": ["v", "w"], "tags": ["O", tag], "lines": [3, 4]}, "f.conll", 3)
    with pytest.raises(InputError, match=r"^f\.conll:4: the tag .* neither O nor"):
        schemes.tags_of(row, sentence_of(row), repair=True)


def test_tags_that_break_bio_are_refused_with_their_line_and_read_when_asked():
    row = Row(_words("O I-a B-a", lines=[3, 4, 5]), "f.conll", 3)
    with pytest.raises(InputError, match=r"^f\.conll:4: .* I-a follows O.*--repair-tags"):
        schemes.tags_of(row, sentence_of(row), repair=False)
    assert schemes.tags_of(row, sentence_of(row), repair=True) == ["O", "B-a", "B-a"]
    with pytest.raises(InputError, match=r"^f\.jsonl:7, word 1: .* S-a follows nothing"):
        _tags(_words("S-a"))


def test_tags_of_another_number_than_words_are_refused_with_both_counts():
    with pytest.raises(InputError, match=r"^f\.jsonl:7: 2 tokens, but 3 tags"):
        _tags({"tokens": ["a", "b"], "tags": ["O", "O", "O"]})


@pytest.mark.parametrize("tags", [None, "O", 3, [3], [None], [["O"]]])
def test_tags_that_are_no_list_of_texts_are_refused(tags):
    with pytest.raises(InputError, match=r"^f\.jsonl:7.*tags?"):
        _tags({"tokens": ["a"], "tags": tags})


# Spans


@pytest.mark.parametrize(
    ("spans", "tags"),
    [
        ([], "O O O O"),
        ([[0, 3]], "B-span O O O"),
        ([{"start": 4, "end": 10, "label": "x"}], "O B-x I-x O"),
        ([[1, 2]], "B-span O O O"),  # any overlap counts
        ([[2, 6, "x"]], "B-x I-x O O"),
        ([[3, 4]], "O O O O"),  # white space only
        ([[8, 13, "b"], [0, 7, "a"]], "B-a I-a B-b I-b"),
        ([[0, 1, "a"], [1, 7, "b"]], "B-a B-b O O"),  # the first of two takes a shared word
    ],
)
def test_a_word_has_the_label_of_the_span_that_touches_it(spans, tags):
    assert _tags({"text": "one two six ten", "spans": spans}) == tags.split()


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        (None, "no list of spans"),
        ([[0, 4]], "span 1 is characters 0 to 4 of the 3 of its text"),
        ([[0, 1], [2, 2]], "span 2 is characters 2 to 2"),
        ([[-1, 2]], "span 1"),
        ([[0, 2], [1, 3]], "0 to 2 and 1 to 3 overlap"),
        ([[0, True]], "whole numbers"),
        ([[0]], "span 1 is not"),
        ([{"start": 0}], "whole numbers"),
        ([{"start": 0, "end": 1, "label": 3}], "a label must be"),
    ],
)
def test_spans_that_fit_no_text_are_refused(spans, message):
    with pytest.raises(InputError, match=rf"^f\.jsonl:7: .*{message}"):
        _tags({"text": "a b", "spans": spans})


def test_all_spans_of_the_toxic_comments_become_tags(shared_data):
    words = touched = spans = 0
    for row in read_sentences(shared_data / "toxic_spans" / "train.jsonl.gz", ColumnNames()):
        sentence = sentence_of(row)
        found = schemes.spans_in(row.values["spans"], row.where, sentence.text)
        tags, lost = schemes.span_tags(sentence, found)
        assert schemes.breaks(tags) == []
        assert sum(tag == "B-span" for tag in tags) == len(found) - len(lost)
        words += len(tags)
        spans += len(found)
        touched += len(found) - len(lost)
    assert spans > 10_000
    assert touched > 0.99 * spans


# Findings and predictions


def test_every_break_of_bio_is_found():
    row = Row(_words("I-a O I-b", lines=[3, 4, 5]), "f.conll", 3)
    found = list(schemes.tag_findings(row, sentence_of(row)))
    assert [(f.level, f.kind, f.where) for f in found] == [
        ("warning", "broken_bio", "f.conll:3"),
        ("warning", "broken_bio", "f.conll:5"),
    ]


def test_a_span_that_gets_no_word_is_found():
    row = Row({"text": "one two", "spans": [[0, 3], [3, 4]]}, "f.jsonl", 7)
    found = list(schemes.tag_findings(row, sentence_of(row)))
    assert [(f.kind, f.where) for f in found] == [("lost_span", "f.jsonl:7, characters 3 to 4")]


def test_a_span_that_takes_more_than_was_marked_is_found():
    row = Row({"text": "one two", "spans": [[0, 3], [4, 6]]}, "f.jsonl", 7)
    found = list(schemes.tag_findings(row, sentence_of(row)))
    assert [(f.kind, f.where) for f in found] == [("widened_span", "f.jsonl:7, characters 4 to 6")]


@pytest.mark.parametrize(
    ("tags", "leaders", "wanted"),
    [
        ("B-a I-a O", [0, -1, 2, 3], "B-a I-a I-a O"),
        ("B-a B-a", [0, -1, 2, -1], "B-a O B-a O"),
        ("B-a", [-1, 1, 1], "O B-a I-a"),
        ("O B-b I-b", [0, 0, 2, -1, -1, 5], "O O B-b I-b I-b I-b"),
        ("", [-1, -1], "O O"),
    ],
)
def test_a_word_without_a_token_cuts_no_entity_in_two(tags, leaders, wanted):
    assert schemes.spread_tags(tags.split(), leaders) == wanted.split()


@pytest.mark.parametrize(
    "given", ["B-p I-p O B-l", "B-p E-p O S-l", "B-p L-p O U-l", "I-p I-p O I-l"]
)
def test_predictions_of_any_scheme_are_the_same_answer(given):
    row = Row(_words("B-p I-p O B-l"), "f.jsonl", 7)
    sentence = sentence_of(row)
    wanted = schemes.GoldTags(row.values["tags"], sentence, row.where)
    answer = schemes.check_answer({"tags": given.split()}, "p.jsonl:1")
    assert schemes.answered_tags(wanted, answer) == row.values["tags"]


@pytest.mark.parametrize("prediction", [{}, {"tags": "O"}, {"tags": [1]}, {"entities": [3]}])
def test_a_prediction_without_tags_or_entities_is_refused(prediction):
    with pytest.raises(InputError, match=r"^p\.jsonl:2"):
        schemes.check_answer(prediction, "p.jsonl:2")
