"""What a student or a quantised model may say, and what a study may look for."""

from __future__ import annotations

import pytest

from filbert.compare.recipe import references, seconds_of
from filbert.errors import ConfigError, FilbertError

STUDENT = {"kind": "distilled", "teacher": "tiny", "keep_layers": "1"}


def with_contestants(recipe, **tables):
    return {**recipe, "contestants": {**recipe["contestants"], **tables}}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "distilled", "keep_layers": "1"}, "'teacher' is missing"),
        ({**STUDENT, "teacher": "tny"}, "teacher 'tny' is not one .* Did you mean 'tiny'"),
        ({**STUDENT, "teacher": "tfidf"}, "is of kind 'tfidf'; it must be one of"),
        ({"kind": "distilled", "teacher": "tiny"}, "It needs a student"),
        ({**STUDENT, "keep_layers": "5"}, r"\[contestants\.new\].*layers"),
        ({**STUDENT, "method": "sofd"}, "Did you mean 'soft'"),
        ({**STUDENT, "method": "minilm"}, "learns from --corpus"),
        ({**STUDENT, "alpha": 2.0}, "alpha is 2.0"),
        ({**STUDENT, "cleaning": "study"}, "reads texts as tiny does"),
        ({**STUDENT, "method": "pkd"}, "nothing to compare"),
        ({**STUDENT, "method": "tinybert", "layer_map": "4"}, "layer"),
        ({**STUDENT, "max_length": 500}, "max_length 500"),
        ({**STUDENT, "student": "minilmm"}, "minilmm"),
        ({"kind": "quantised", "of": "tiny", "precision": "int4"}, "precision 'int4' is not one"),
        (
            {"kind": "quantised", "of": "tiny", "backend": "onnxruntim"},
            "Did you mean 'onnxruntime'",
        ),
        ({**STUDENT, "augment_with": "no-such-model-xyz"}, "no-such-model-xyz"),
        ({"kind": "static", "model": 3}, "model is 3; it must be the name"),
        ({"kind": "distilled", "teacher": "new", "keep_layers": "1"}, "in a circle"),
    ],
)
def test_a_student_or_quantised_model_that_cannot_be_is_refused_in_a_sentence(
    table, sentence, recipe, read, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FilbertError, match=sentence):
        read(with_contestants(recipe, new=table))


def test_integers_are_for_the_processor_wherever_the_others_are_trained(recipe, read, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    tables = with_contestants(recipe, small={"kind": "quantised", "of": "tiny"})
    study = read(tables | {"device": "cuda"})
    by_name = {one.name: one for one in study.contestants}
    assert by_name["tiny"].options["device"] == "cuda"
    assert "device" not in by_name["small"].options
    wrong = with_contestants(recipe, small={"kind": "quantised", "of": "tiny", "device": "cuda"})
    with pytest.raises(FilbertError, match="int8 runs on CPUs only, and device is cuda"):
        read(wrong)


def test_a_teacher_with_several_cleanings_is_named_by_its_folder(recipe, read):
    recipe["cleaning"] = ["none", "study"]
    plain = read(with_contestants(recipe, new=STUDENT)).contestants[-1]
    assert plain.source.folder == "tiny" and plain.steps == ()
    named = {**STUDENT, "teacher": "tiny-cleaned"}
    cleaned = read(with_contestants(recipe, new=named)).contestants[-1]
    assert cleaned.source.folder == "tiny-cleaned" and cleaned.steps == cleaned.source.steps != ()
    # With one cleaning alone the title will do, also when that came by a flag.
    only = read(with_contestants(recipe, new=STUDENT), cleaning="study").contestants[-1]
    assert only.source.folder == "tiny-cleaned"
    recipe["cleaning"] = ["study", "urls"]
    with pytest.raises(ConfigError, match=r"Give one of \['tiny-cleaned', 'tiny-urls'\]"):
        read(with_contestants(recipe, new=STUDENT))


def test_a_student_may_teach_in_its_turn(recipe, read):
    second = {"kind": "distilled", "teacher": "new", "keep_layers": "1"}
    found = read(with_contestants(recipe, last=second, new=STUDENT)).contestants
    assert [(c.folder, c.depth) for c in found[-2:]] == [("last", 2), ("new", 1)]
    assert found[-2].root.folder == "tiny"


def test_options_of_all_contestants_reach_students_and_flags_win(recipe, read):
    study = read(with_contestants(recipe, new={**STUDENT, "epochs": 5.0}), epochs=2.0)
    new = study.contestants[-1]
    assert (new.options["epochs"], new.options["max_length"]) == (2.0, 32)
    assert "steps" not in new.options
    int8 = read(with_contestants(recipe, new={"kind": "quantised", "of": "tiny"})).contestants[-1]
    assert int8.options == {"precision": "int8", "backend": "torch", "device": "cpu", "of": "tiny"}


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"target_quality": 0.0}, "target_quality is 0.0; give a share"),
        ({"target_quality": 0.9, "target_of": "tinny"}, "target_of 'tinny' .* Did you mean 'tiny'"),
        ({"target_of": "tiny"}, "needs target_quality"),
        ({"target_quality": 0.9}, "no single teacher"),
        ({"target_latency": "0ms"}, "above zero"),
    ],
)
def test_a_target_that_means_nothing_is_refused(flags, sentence, recipe, read):
    with pytest.raises(ConfigError, match=sentence):
        read(recipe, **flags)


def test_whose_quality_is_meant_is_the_one_teachers_or_said(recipe, read):
    one = with_contestants(recipe, new=STUDENT)
    assert read(one, target_quality=0.9).target.of == "tiny"
    study = read(one, target_quality=0.9, target_of="tfidf", target_latency="5ms")
    assert (study.target.of, study.target.latency_seconds) == ("tfidf", 5e-3)
    assert references(study.contestants, study.target) == {"tiny": "tfidf", "new": "tfidf"}
    assert read(one).target is None
    assert references(read(one).contestants, None) == {"tfidf": "tiny", "new": "tiny"}
    two = with_contestants(
        one, tiny2=recipe["contestants"]["tiny"], new2={**STUDENT, "teacher": "tiny2"}
    )
    assert references(read(two).contestants, None) == {"new": "tiny", "new2": "tiny2"}
    assert references(read(recipe).contestants, None) == {}


def test_times_have_units():
    assert [seconds_of(text) for text in ("5ms", "0.5 s", "2S")] == [5e-3, 0.5, 2.0]
