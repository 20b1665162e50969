"""Options of students and of quantised models."""

from __future__ import annotations

import pytest

from filbert.errors import FilbertError

STUDENT = {"kind": "distilled", "teacher": "tiny", "keep_layers": "1"}


def with_contestants(recipe, **tables):
    return {**recipe, "contestants": {**recipe["contestants"], **tables}}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "distilled", "keep_layers": "1"}, "'teacher' is missing"),
        (
            {**STUDENT, "teacher": "tny"},
            "teacher 'tny' is not a contestant above .* Did you mean 'tiny'",
        ),
        ({**STUDENT, "teacher": "tfidf"}, "of kind encoder or distilled"),
        ({"kind": "distilled", "teacher": "tiny"}, "it needs a student"),
        ({**STUDENT, "method": "sofd"}, "Did you mean 'soft'"),
        ({**STUDENT, "method": "minilm"}, "learns from --corpus"),
        ({**STUDENT, "alpha": 2.0}, "alpha is 2.0"),
        ({**STUDENT, "cleaning": "study"}, "no option 'cleaning'"),
        ({**STUDENT, "max_length": 500}, "max_length 500"),
        ({**STUDENT, "student": "minilmm"}, "minilmm"),
        ({"kind": "quantised", "of": "tiny", "precision": "int4"}, "no option 'precision'"),
        ({"kind": "distilled", "teacher": "new", "keep_layers": "1"}, "not a contestant above"),
    ],
)
def test_a_student_or_quantised_model_that_cannot_be_is_refused_in_a_sentence(
    table, sentence, recipe, read, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FilbertError, match=sentence):
        read(with_contestants(recipe, new=table))


def test_a_student_may_teach_in_its_turn(recipe, read):
    second = {"kind": "distilled", "teacher": "new", "keep_layers": "1"}
    found = read(with_contestants(recipe, new=STUDENT, last=second)).contestants
    assert found[-1].source.source.name == "tiny"


def test_options_of_all_contestants_reach_students_and_flags_win(recipe, read):
    study = read(with_contestants(recipe, new={**STUDENT, "epochs": 5.0}), epochs=2.0)
    new = study.contestants[-1]
    assert (new.options["epochs"], new.options["max_length"]) == (2.0, 32)
    assert "steps" not in new.options
    int8 = read(with_contestants(recipe, new={"kind": "quantised", "of": "tiny"})).contestants[-1]
    assert int8.options == {"of": "tiny"}
