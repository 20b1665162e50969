"""A recipe is read and refused before anything is trained."""

from __future__ import annotations

import pytest

from filbert.compare.recipe import usual_recipe
from filbert.compare.study import run_study
from filbert.errors import ConfigError, FilbertError


def with_contestant(recipe, **table):
    return {**recipe, "contestants": {**recipe["contestants"], "new": table}}


REFUSED = [
    ({"sedes": 3}, "no option 'sedes'. Did you mean 'seeds'"),
    ({"contestants": {}}, "names no contestant"),
    ({"contestants": {"a/b": {}}}, "the name becomes a folder"),
    ({"contestants": {"a": 3}}, "must be a table"),
    ({"data": "x.csv"}, "either data"),
    ({"test": None}, "train is given without test"),
    ({"split": [0.5, 0.4, 0.4]}, "add up to 1"),
    ({"seeds": 0}, "whole number from 1"),
    ({"merge_labels": ["a", "b"]}, "give both"),
    ({"merge_labels": ["a"], "merge_as": "x", "label_column": "y"}, "both say where the label is"),
    ({"cleaning": "studdy"}, "Did you mean 'study'"),
    ({"dev": "-"}, "--dev must be a file"),
]


@pytest.mark.parametrize(("change", "sentence"), REFUSED)
def test_a_wrong_key_is_refused_with_a_sentence(change, sentence, recipe, read):
    changed = {k: v for k, v in (recipe | change).items() if v is not None}
    with pytest.raises(ConfigError, match=sentence):
        read(changed)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "encodr"}, "kind is 'encodr'.* Did you mean 'encoder'"),
        ({"model": "minilmm"}, "minilmm.* Did you mean 'minilm'"),
        ({"model": "minilm", "epoch": 2}, "no option 'epoch'. Did you mean 'epochs'"),
        ({"model": "minilm", "train": "x"}, "the same for all contestants"),
        ({"model": "minilm", "clean": "study"}, "write cleaning"),
        ({"model": "minilm", "lr": -1.0}, "lr is -1.0"),
        ({}, "'model' is missing"),
        ({"kind": "tfidf", "lr": 0.1}, "no option 'lr'"),
        ({"kind": "tfidf", "C": 0}, "above 0"),
        ({"kind": "tfidf", "ngrams": 0}, "whole number from 1"),
        ({"kind": "bigru", "hiden": 8}, "Did you mean 'hidden'"),
        ({"kind": "bigru", "vectors": "nowhere.txt"}, "nowhere.txt: no such file"),
        ({"kind": "static", "vectors": "a.txt", "model": "minilm"}, "both name the word vectors"),
        ({"kind": "bigru", "dropout": 1.0}, r"dropout is 1.0; it must be in \[0, 1\)"),
        ({"kind": "bigru", "model": "x"}, "bigru has no pre-trained model"),
        ({"kind": "elmo"}, "filbert pretrain elmo-small"),
        ({"kind": "ulmfit", "model": "nowhere"}, "nowhere has no lineage.json"),
        ({"kind": "bigru", "max_words": 2}, "max_words is 2; it must be a whole number from 3"),
        ({"model": "minilm", "device": "cpu"}, "the same for all contestants"),
    ],
)
def test_a_wrong_contestant_is_refused_by_its_name(table, sentence, recipe, read, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FilbertError, match=r"\[contestants\.new\].*" + sentence):
        read(with_contestant(recipe, **table))


def test_a_length_that_the_model_does_not_serve_is_refused_before_training(recipe, read):
    with pytest.raises(ConfigError, match=r"\[contestants.tiny\]: max_length 100"):
        read(recipe, max_length=100)


def test_a_flag_wins_over_the_recipe_and_over_a_contestant(recipe, read):
    recipe["contestants"]["tiny"]["epochs"] = 5.0
    tiny = read(recipe, epochs=2.0, max_length=16).contestants[0]
    assert (tiny.options["epochs"], tiny.options["max_length"]) == (2.0, 16)
    assert "steps" not in tiny.options


@pytest.mark.parametrize("own", [{"epochs": 5.0}, {"steps": 7}, {"time": "1m"}])
def test_the_length_of_a_contestant_s_own_table_takes_precedence(own, recipe, read):
    recipe |= {"epochs": 2.0, "steps": 4}
    recipe["contestants"]["tiny"] |= own
    tiny = read(recipe).contestants[0].options
    assert {k: v for k, v in tiny.items() if k in ("epochs", "steps", "time")} == own


def test_what_has_one_solution_runs_with_one_seed(recipe, read):
    tiny, tfidf = read(recipe, seeds=3, seed=5).contestants
    assert tiny.seeds == (5, 6, 7)
    assert tfidf.seeds == (5,)


def test_the_dimension_is_that_of_the_vectors(recipe, read, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("film 1 2 3\ngood 4 5 6\n")
    table = {"kind": "bigru", "vectors": str(path)}
    assert read(with_contestant(recipe, **table)).contestants[-1].options["dim"] == 3
    with pytest.raises(ConfigError, match="leave dim out"):
        read(with_contestant(recipe, **table, dim=4))
    path.write_text("film\n")
    with pytest.raises(FilbertError, match=r"\[contestants.new\]: .*v.txt:1"):
        read(with_contestant(recipe, **table))


def test_without_a_recipe_tfidf_and_the_named_or_the_built_in_models_are_compared():
    assert list(usual_recipe([])["contestants"]) == ["tfidf", "minilm", "filbert-mini"]
    tables = usual_recipe(["minilm", "org/minilm", "./my model"])["contestants"]
    assert tables == {
        "tfidf": {"kind": "tfidf"},
        "minilm": {"model": "minilm"},
        "minilm-2": {"model": "org/minilm"},
        "my-model": {"model": "./my model"},
    }


def test_cleaning_is_of_the_flag_then_of_the_contestant_then_of_the_study(recipe, read):
    recipe |= {"cleaning": "urls"}
    recipe["contestants"]["tfidf"]["cleaning"] = "Lowercase+urls"
    assert [c.cleaning for c in read(recipe).contestants] == [("urls",), ("urls", "lowercase")]
    assert [c.cleaning for c in read(recipe, cleaning="none").contestants] == [(), ()]


def test_only_takes_names_of_contestants(recipe, read, tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'tiny'"):
        run_study(read(recipe), tmp_path / "out", only=["tinny"])


# Students and quantised models

STUDENT = {"kind": "distilled", "teacher": "tiny", "keep_layers": "1"}


def with_contestants(recipe, **tables):
    return {**recipe, "contestants": {**recipe["contestants"], **tables}}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "distilled", "keep_layers": "1"}, "teacher is None; name a contestant above"),
        ({**STUDENT, "teacher": "tny"}, "teacher is 'tny'.* Did you mean 'tiny'"),
        ({**STUDENT, "teacher": "tfidf"}, "of kind encoder or distilled"),
        ({"kind": "distilled", "teacher": "tiny"}, "it needs a student"),
        ({**STUDENT, "method": "sofd"}, "Did you mean 'soft'"),
        ({**STUDENT, "method": "minilm"}, "learns from --corpus"),
        ({**STUDENT, "alpha": 2.0}, "alpha is 2.0"),
        ({**STUDENT, "cleaning": "study"}, "no option 'cleaning'"),
        ({**STUDENT, "max_length": 500}, "max_length 500"),
        ({**STUDENT, "student": "minilmm"}, "minilmm"),
        ({"kind": "quantised", "of": "tiny", "precision": "int4"}, "no option 'precision'"),
        ({"kind": "ensemble", "of": "tiny"}, "two seeds or more; give seeds"),
        ({"kind": "distilled", "teacher": "new", "keep_layers": "1"}, "name a contestant above"),
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
    assert [one.source for one in found[-2:]] == ["tiny", "new"]


def test_options_of_all_contestants_reach_students_and_flags_win(recipe, read):
    study = read(with_contestants(recipe, new={**STUDENT, "epochs": 5.0}), epochs=2.0)
    new = study.contestants[-1]
    assert (new.options["epochs"], new.options["max_length"]) == (2.0, 32)
    assert "steps" not in new.options
    int8 = read(with_contestants(recipe, new={"kind": "quantised", "of": "tiny"})).contestants[-1]
    assert int8.options == {"of": "tiny"}
