"""Predictions of other programs: what is completed, what is refused and where."""

from __future__ import annotations

import math

import pytest

from filbert.data.records import Row
from filbert.errors import InputError
from filbert.tasks.base import Task
from filbert.tasks.classification import Classification
from filbert.tasks.embedding import SentenceEmbedding
from filbert.tasks.multiple_choice import MultipleChoice
from filbert.tasks.regression import Regression
from filbert.tasks.rows import complete_predictions
from filbert.tasks.span_qa import GoldAnswers, SpanQA
from filbert.tasks.tagging import Tagging

CLASSES = Classification(labels=("a", "b"))
TAGS = Tagging(("O", "B-b", "I-b"), declared=True)
ROWS = {
    Classification: Row({"text": "t", "label": "a"}, "f.jsonl", 1),
    Regression: Row({"text": "t", "label": 1}, "f.jsonl", 1),
    SentenceEmbedding: Row({"text": "t", "text_pair": "u", "label": 1}, "f.jsonl", 1),
    Tagging: Row({"tokens": ["v"], "tags": ["B-b"]}, "f.jsonl", 1),
    MultipleChoice: Row({"context": "c", "choices": ["x", "y"], "label": 0}, "f.jsonl", 1),
    SpanQA: Row({"id": "q", "question": "q", "context": "c", "answers": []}, "f.jsonl", 1),
}


def gold_json(task: Task, gold: object) -> object:
    return task.spec.row_format.gold_json(task.spec, gold)


def completed(task: Task, prediction: dict) -> dict:
    answers = [Row(prediction, "p.jsonl", 7)]
    return complete_predictions(task, [ROWS[type(task)]], answers)[1][0]


@pytest.mark.parametrize(
    ("task", "given", "expected"),
    [
        (CLASSES, {"label": "a"}, {"label": "a", "scores": {"a": 1.0, "b": 0.0}}),
        (
            CLASSES,
            {"scores": {"a": 0.2, "b": 0.8}},
            {"label": "b", "scores": {"a": 0.2, "b": 0.8}},
        ),
        (Regression(), {"value": "2.5", "truncated": False}, {"value": 2.5}),
        (SentenceEmbedding(), {"value": "0.5", "rank": 3}, {"value": 0.5}),
        (
            SentenceEmbedding(),
            {"value": 1, "rank": 3, "pool_size": 9},
            {"value": 1, "rank": 3, "pool_size": 9},
        ),
        (MultipleChoice(), {"scores": [0.75, 0.25]}, {"choice": 0, "scores": [0.75, 0.25]}),
        (MultipleChoice(), {"choice": 1}, {"choice": 1, "scores": None}),
        (SpanQA(), {"answer": "x"}, {"answer": "x"}),
    ],
)
def test_a_prediction_is_completed_for_the_metrics(task, given, expected):
    assert completed(task, given) == expected


def test_names_of_the_evaluate_library_are_read():
    given = {"prediction_text": "", "no_answer_probability": 1}
    assert completed(SpanQA(), given).items() >= {"answer": "", "null_score": 1.0}.items()


@pytest.mark.parametrize(
    ("task", "prediction", "words"),
    [
        (CLASSES, {}, "a prediction needs 'label'"),
        (CLASSES, {"scores": {"z": 1.0}}, "the scores must be a probability"),
        (CLASSES, {"label": "z", "scores": {"a": 0.1, "b": 0.9}}, "not one of the labels"),
        (CLASSES, {"label": "a", "scores": 0.7}, "cannot be read"),
        (CLASSES, {"label": ["a", "b"]}, "cannot be read"),
        (CLASSES, {"label": "a", "scores": {"a": None, "b": 1}}, "cannot be read"),
        (CLASSES, {"label": "a", "scores": {"a": math.nan, "b": 1}}, "must be a probability"),
        (Regression(), {"label": 1}, "a prediction needs 'value'"),
        (Regression(), {"value": math.nan}, "the value nan is not a number"),
        (Regression(), {"value": 1e300}, r"the value 1e\+300 is not a number"),
        (SentenceEmbedding(), {"value": math.nan}, "a prediction needs 'value'"),
        (TAGS, {"tags": ["B-a"]}, r"entity type 'a' is not one of \['b'\]"),
        (MultipleChoice(), {"label": 1}, "needs 'choice', 'scores', or both"),
        (MultipleChoice(), {"choice": 2}, "the choice is not a number from 0 to 1"),
        (MultipleChoice(), {"scores": [0.5]}, "1 scores for 2 choices"),
        (MultipleChoice(), {"scores": [0.5, math.nan]}, "not a probability"),
        (MultipleChoice(), {"scores": 3}, "not a list of numbers"),
        (SpanQA(), {"answer": 1}, 'a prediction needs "answer"'),
        (SpanQA(), {"answer": "x", "null_score": "1"}, "is not a finite number"),
    ],
)
def test_a_prediction_that_cannot_be_measured_is_refused_with_its_place(task, prediction, words):
    with pytest.raises(InputError, match=f"p.jsonl:7: .*{words}"):
        completed(task, prediction)


def test_the_labels_are_those_of_rows_and_predictions_unless_declared():
    row = ROWS[Classification]
    answer = Row({"scores": {"a": 0.1, "b": 0.2, "z": 0.7}}, "p", 1)
    assert complete_predictions(Classification(), [row], [answer])[0].spec.labels == ("a", "b", "z")
    sentence, tags = ROWS[Tagging], Row({"tags": ["B-a"]}, "p", 1)
    found = complete_predictions(Tagging(), [sentence], [tags])[0]
    assert found.spec.labels == ("O", "B-a", "I-a", "B-b", "I-b")
    assert complete_predictions(TAGS, [sentence], [Row({"tags": ["O"]}, "p", 1)])[0] is TAGS


@pytest.mark.parametrize(
    "answer",
    [
        {"tags": ["PRP", "NN", "O"]},
        {
            "entities": [
                {"start": 0, "end": 2, "label": "PRP"},
                {"start": 3, "end": 6, "label": "NN"},
            ]
        },
    ],
)
def test_tags_without_bio_may_come_as_tags_or_spans(answer):
    row = Row({"tokens": ["he", "ran", "."], "tags": ["PRP", "VBD", "."]}, "f.jsonl", 1)
    task, complete = complete_predictions(Tagging(), [row], [Row(answer, "p", 1)])
    assert task.spec.labels == (".", "NN", "PRP", "VBD")
    metrics = task.metrics([task.gold(row)], complete)
    assert (metrics["precision"], metrics["recall"], metrics["accuracy"]) == (1 / 2, 1 / 3, 1 / 3)


def test_gold_answers_are_written_as_names_numbers_tags_and_texts():
    assert gold_json(CLASSES, 1) == "b"
    assert (
        gold_json(SentenceEmbedding(), None) is None and gold_json(SentenceEmbedding(), 2.5) == 2.5
    )
    assert gold_json(TAGS, TAGS.gold(ROWS[Tagging])) == ["B-b"]
    assert gold_json(SpanQA(), GoldAnswers("q", ("x",))) == ["x"]
