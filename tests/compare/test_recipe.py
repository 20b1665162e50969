"""A recipe is read and refused before anything is trained."""

from __future__ import annotations

import pytest

from filbert.compare.recipe import chosen, training_options
from filbert.errors import ConfigError, FilbertError


def with_contestant(recipe, **table):
    return {**recipe, "contestants": {**recipe["contestants"], "new": table}}


REFUSED = [
    ({"sedes": 3}, "'sedes' is unknown. Did you mean 'seeds'"),
    ({"contestants": {}}, "names no contestant"),
    ({"contestants": {"a/b": {}}}, "the name becomes a folder"),
    ({"contestants": {"a": 3}}, "must be a table"),
    ({"data": "x.csv"}, "either data"),
    ({"test": None}, "train is given without test"),
    ({"split": [0.5, 0.4, 0.4]}, "add up to 1"),
    ({"seeds": 0}, "whole number from 1"),
    ({"near_duplicates": "drop"}, "must be one of"),
    ({"merge_labels": ["a", "b"]}, "go together"),
    ({"merge_labels": ["a"], "merge_as": "x", "label_column": "y"}, "both name the label"),
    ({"cleaning": ["studdy"]}, "Did you mean 'study'"),
    ({"dev": "-"}, "standard input cannot be read twice"),
    ({"keep_columns": ["length"]}, "called 'length' already. Rename the column"),
    ({"keep_columns": ["text"]}, "the column .text. is a text.* Leave it out"),
    ({"keep_columns": ["a"], "text_column": "a"}, "the column 'a' is a text"),
    ({"cleaning": ["urls+lowercase", "lowercase + urls"]}, "the same steps twice"),
]


@pytest.mark.parametrize(("change", "sentence"), REFUSED)
def test_a_wrong_key_is_refused_with_a_sentence(change, sentence, recipe, read):
    changed = {k: v for k, v in (recipe | change).items() if v is not None}
    with pytest.raises(ConfigError, match=sentence):
        read(changed)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "encodr"}, "kind 'encodr' is not one of .* Did you mean 'encoder'"),
        ({"model": "minilmm"}, "minilmm.* Did you mean 'minilm'"),
        ({"model": "minilm", "epoch": 2}, "no option 'epoch'. Did you mean 'epochs'"),
        ({"model": "minilm", "train": "x"}, "the same for all contestants"),
        ({"model": "minilm", "clean": "study"}, "write cleaning"),
        ({"model": "minilm", "lr": -1.0}, "lr is -1.0"),
        ({}, "'model' is missing"),
        ({"kind": "tfidf", "lr": 0.1}, "no option 'lr'"),
        ({"kind": "tfidf", "C": 0}, "above zero"),
        ({"kind": "tfidf", "ngrams": 0}, "whole number from 1"),
        ({"kind": "bigru", "hiden": 8}, "Did you mean 'hidden'"),
        ({"kind": "bigru", "vectors": "nowhere.txt"}, "no file nowhere.txt"),
        ({"kind": "static", "vectors": "a.txt", "model": "minilm"}, "both name the word vectors"),
        ({"kind": "tfidf", "cleaning": []}, "names nothing"),
        ({"kind": "bigru", "pooling": "mena"}, "pooling is 'mena'.* Did you mean 'mean'"),
        ({"kind": "bigru", "dropout": 1.0}, r"dropout is 1.0; it must be in \[0, 1\)"),
        ({"kind": "bigru", "max_words": 2}, "max_words is 2; give at least 3"),
        ({"model": "TINY", "keep_layers": "3"}, "layers"),
        ({"model": "TINY", "keep_layers": "1", "reinit_layers": 2}, "encoder has 1 layers"),
        ({"model": "TINY", "freeze": "7"}, "layers within 0-1"),
        ({"model": "TINY", "metric": "roc_au"}, "metric is .* Did you mean 'roc_auc'"),
        ({"model": "TINY", "precision": "bf61"}, "precision is 'bf61'.* Did you mean 'bf16'"),
        ({"model": "TINY", "device": "gpu"}, "gpu"),
    ],
)
def test_a_wrong_contestant_is_refused_by_its_name(
    table, sentence, recipe, read, monkeypatch, tiny_model
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    table = {k: str(tiny_model) if v == "TINY" else v for k, v in table.items()}
    with pytest.raises(FilbertError, match=r"\[contestants\.new\].*" + sentence):
        read(with_contestant(recipe, **table))


def test_a_length_that_the_model_does_not_serve_is_refused_before_training(recipe, read):
    with pytest.raises(ConfigError, match=r"\[contestants.tiny\]: max_length 100"):
        read(recipe, max_length=100)


def test_each_cleaning_makes_a_contestant_of_its_own(recipe, read):
    recipe["contestants"]["tfidf"]["cleaning"] = ["none", "study", "urls+lowercase"]
    found = read(recipe).contestants
    assert [c.name for c in found] == [
        "tiny", "tfidf", "tfidf, cleaned", "tfidf, urls+lowercase",
    ]  # fmt: skip
    assert found[3].steps == ("urls", "lowercase")
    assert len({c.folder for c in found}) == 4


def test_a_cleaning_has_one_name_however_it_is_spelt(recipe, read):
    recipe["contestants"]["tfidf"]["cleaning"] = ["Lowercase+urls", "STUDY"]
    _, some, whole = read(recipe).contestants
    assert (some.name, some.folder) == ("tfidf, urls+lowercase", "tfidf-urls+lowercase")
    assert (some.cleaning, whole.cleaning) == ("urls,lowercase", "study")
    assert whole.name == "tfidf, cleaned"


def test_two_contestants_never_share_a_folder(recipe, read):
    recipe["contestants"]["Tiny"] = recipe["contestants"]["tiny"]
    with pytest.raises(ConfigError, match="share a folder"):
        read(recipe)


def test_a_flag_wins_over_the_recipe_and_over_a_contestant(recipe, read):
    recipe["contestants"]["tiny"]["epochs"] = 5.0
    tiny = read(recipe, epochs=2.0, max_length=16).contestants[0]
    assert (tiny.options["epochs"], tiny.options["max_length"]) == (2.0, 16)
    assert "steps" not in tiny.options


@pytest.mark.parametrize("own", [{"epochs": 5.0}, {"steps": 7}, {"time": "1m"}])
def test_how_long_a_contestant_says_it_trains_wins_over_all_that_everybody_was_told(
    own, recipe, read
):
    recipe |= {"epochs": 2.0, "steps": 4}
    recipe["contestants"]["tiny"] |= own
    tiny = training_options(read(recipe).contestants[0])
    assert {k: v for k, v in tiny.items() if k in ("epochs", "steps", "time")} == own


def test_what_has_one_solution_runs_with_one_seed(recipe, read):
    tiny, tfidf = read(recipe, seeds=3, seed=5).contestants
    assert tiny.seeds == (5, 6, 7)
    assert tfidf.seeds == (5,)


def test_only_takes_all_variants_of_a_name_and_refuses_others(recipe, read):
    recipe["cleaning"] = ["none", "study"]
    contestants = read(recipe).contestants
    assert [c.name for c in chosen(contestants, ["tiny"])] == ["tiny", "tiny, cleaned"]
    assert [c.name for c in chosen(contestants, ["tiny-cleaned"])] == ["tiny, cleaned"]
    with pytest.raises(ConfigError, match="Did you mean 'tiny'"):
        chosen(contestants, ["tinny"])
    # A comma parts two names, so a name that holds one is given as its folder.
    with pytest.raises(ConfigError, match=r"names of folders, of .*'tiny-cleaned'"):
        chosen(contestants, ["tiny, cleaned"])


def test_cleaning_as_a_flag_wins_over_a_contestants_own(recipe, read):
    recipe["contestants"]["tfidf"]["cleaning"] = ["none", "study"]
    assert [c.name for c in read(recipe).contestants] == ["tiny", "tfidf", "tfidf, cleaned"]
    assert [c.name for c in read(recipe, cleaning="none").contestants] == ["tiny", "tfidf"]


def test_the_dimension_is_that_of_the_vectors_and_another_one_is_refused(recipe, read, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("film 1 2 3\ngood 4 5 6\n")
    table = {"kind": "bigru", "vectors": str(path)}
    assert read(with_contestant(recipe, **table)).contestants[-1].options["dim"] == 3
    with pytest.raises(ConfigError, match="has 3 numbers a word, and dim is 4"):
        read(with_contestant(recipe, **table, dim=4))
    path.write_text("film\n")
    with pytest.raises(FilbertError, match=r"\[contestants.new\]: .*v.txt:1"):
        read(with_contestant(recipe, **table))
