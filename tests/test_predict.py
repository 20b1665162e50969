"""Predictor: what it refuses, and what a folder may and may not decide."""

import json
import shutil
import sys

import numpy as np
import pandas
import pytest

import filbert
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.errors import InputError
from filbert.inference.predictor import Predictor


@pytest.fixture
def folder(film_run, tmp_path):
    shutil.copytree(film_run.folder / "model", tmp_path / "model")
    return tmp_path / "model"


def change(folder, **entries):
    path = folder / "filbert.json"
    content = json.loads(path.read_text())
    content["task"].update(entries.pop("task", {}))
    path.write_text(json.dumps(content | entries))


def test_a_text_gets_the_same_answer_and_vector_alone_and_in_company(film_run):
    texts = ["good", "the film was bad", "a play , a play , a play and he", "", "great film"]
    model = film_run.model
    together, vectors = model.predict(texts), model.embed(texts)
    for text, answer, vector in zip(texts, together, vectors, strict=True):
        alone = model.predict([text])[0]
        # Another number of rows may pick another kernel; the issue allows 1e-6 in float32.
        assert alone["scores"]["pos"] == pytest.approx(answer["scores"]["pos"], abs=1e-6)
        np.testing.assert_allclose(model.embed([text])[0], vector, atol=1e-6)


def test_rows_may_have_the_columns_of_training(folder):
    change(folder, options={"text_column": "message"})
    model = Predictor.load(folder)
    table = pandas.DataFrame({"message": ["good", "bad"], "day": [1, 2]})
    assert model.predict(table) == model.predict(["good", "bad"])
    with pytest.raises(InputError, match="Item 0 has no 'text'; its keys are day"):
        model.predict(table[["day"]])


def test_answers_come_in_order_whatever_the_batch_size(film_run):
    texts = [("the " * (i * 7 % 23)) + ("good" if i % 3 else "bad") for i in range(200)]
    model = Predictor.load(film_run.folder / "model", max_tokens=40)
    wide = film_run.model.predict(texts)
    narrow = model.predict(texts)
    assert [a["label"] for a in narrow] == [a["label"] for a in wide]
    assert [a["num_tokens"] for a in narrow] == [a["num_tokens"] for a in wide]


def test_streams_get_what_lists_get_and_the_width_is_known_beforehand(film_run):
    model, texts = film_run.model, ["good", "the film was bad"]
    for options in ({}, {"pooling": "cls+max"}, {"layers": (0, -1)}):
        vectors = model.embed(texts, **options)
        np.testing.assert_array_equal(list(model.embed_texts(iter(texts), **options)), vectors)
        assert model.vector_size(**options) == vectors.shape[1]


@pytest.mark.parametrize(
    "wrong", [5, [None], [5], [("a", "b", "c")], [("a", 5)]], ids=lambda w: str(w)
)
def test_what_is_no_text_is_refused_and_not_spelt_out(film_run, wrong):
    for call in (film_run.model.predict, film_run.model.embed):
        with pytest.raises(filbert.InputError):
            call(wrong)


def test_no_text_gives_no_answer(film_run):
    assert film_run.model.predict([]) == []
    assert film_run.model.embed([]).shape == (0, 32)
    assert film_run.model.embed([], pooling="none") == []


@pytest.mark.parametrize("layers", [(), 5, "-1", [7], [1.5], [-1, -1], [2, -1]])
def test_layers_that_are_not_there_are_refused(film_run, layers):
    with pytest.raises(filbert.ConfigError, match="layer"):
        film_run.model.embed(["good"], layers=layers)


def test_numbers_given_as_text_are_refused_in_a_sentence(film_run, tmp_path):
    folder = film_run.folder / "model"
    with pytest.raises(filbert.ConfigError, match=r"max_tokens is '5'"):
        Predictor.load(folder, max_tokens="5")
    with pytest.raises(filbert.ConfigError, match=r"max_length '12' is not in"):
        Predictor.load(folder, max_length="12")
    with pytest.raises(filbert.ConfigError, match="pooling '5' is not one of"):
        film_run.model.embed(["good"], pooling=5)


def test_a_folder_cannot_have_a_module_of_its_choosing_imported(folder):
    change(folder, task={"name": "antigravity:fly"})
    with pytest.raises(filbert.FormatError, match="is not one of"):
        Predictor.load(folder)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "entries",
    [
        {"temperature": 0},
        {"temperature": "x"},
        {"thresholds": ["x"]},
        {"thresholds": [0.1, 0.2]},
        {"thresholds": [7.0]},
        {"labels": ["pos", "neg"]},
        {"labels": ["neg", "pos", "both"]},
        {"labels": 5},
        {"positive": "nope"},
        {"name": 5},
    ],
    ids=str,
)
def test_a_filbert_json_that_makes_no_sense_is_refused(folder, entries):
    change(folder, task=entries)
    with pytest.raises(filbert.FormatError, match=r"filbert.json"):
        Predictor.load(folder)


@pytest.mark.parametrize("length", [100_000, "abc", 1, True])
def test_a_stored_length_that_the_model_does_not_serve_is_refused(folder, length):
    change(folder, max_length=length)
    with pytest.raises(filbert.FormatError, match=r"filbert.json: max_length"):
        Predictor.load(folder)


@pytest.mark.parametrize("length", [2, 65, True])
def test_a_config_refuses_a_length_without_positions(film_run, length):
    config = film_run.model.model.config
    config.check_max_length(None), config.check_max_length(64)
    with pytest.raises(filbert.ConfigError, match=r"not in 3\.\.64"):
        config.check_max_length(length)


def test_a_single_output_means_regression_and_is_not_called_a_label(tiny_model, tmp_path):
    checkpoint = with_new_head(huggingface.read(tiny_model), "sequence", labels=("LABEL_0",))
    shutil.copytree(tiny_model, tmp_path / "cross")
    huggingface.write(checkpoint, tmp_path / "cross")
    model = Predictor.load(tmp_path / "cross")
    assert model.task is not None and model.task.spec.name == "regression"
    assert set(model.predict(["the film"])[0]) == {"value", "truncated", "num_tokens"}


def test_bf16_answers_stay_close_to_float32(film_run):
    model = Predictor.load(film_run.folder / "model", precision="bf16")
    texts = ["the film was good", "bad , bad film"]
    exact, rough = film_run.model.embed(texts), model.embed(texts)
    cosine = (exact * rough).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(rough, axis=1)
    assert (cosine > 0.999).all()
    assert not np.array_equal(exact, rough), "the control: bf16 must have been used"
