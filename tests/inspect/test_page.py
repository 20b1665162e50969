"""The attention page: its content, its numbers and what is refused."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest

import filbert
from filbert.errors import ConfigError, InputError
from filbert.inference.predictor import Predictor
from filbert.inspect import page
from filbert.inspect.attention import View
from filbert.inspect.page import most_focused_head, pack_maps, pack_vectors, plan_storage


@pytest.fixture(scope="module")
def predictor(tiny_model) -> Predictor:
    return Predictor.load(tiny_model)


def test_every_model_sees_every_text_and_a_pair_is_one_text(predictor, tiny_model):
    found = filbert.inspect([predictor, tiny_model], ["the film", ("a film", "a play")])
    assert [(view.model, view.texts) for view in found.views] == [
        (name, texts)
        for name in ("model 1", "model 2")
        for texts in (("the film",), ("a film", "a play"))
    ]
    assert filbert.inspect(predictor, "a film", "a play").views[0].texts == ("a film", "a play")
    assert repr(found).startswith("Inspection(model 1: 4 tokens, model 1: 7 tokens")


def test_models_of_one_name_are_told_apart_by_their_folders(predictor, tiny_model, deep_model):
    above, name = tiny_model.parent.name, tiny_model.name
    assert [view.model for view in filbert.inspect(predictor, "a film").views] == [name]
    found = filbert.inspect([predictor, deep_model], "a film")
    assert deep_model.name == name
    assert [view.model for view in found.views] == [
        f"{above}/{name}",
        f"{deep_model.parent.name}/{name}",
    ]


def test_a_text_for_a_loaded_model_is_cut_as_asked(predictor):
    (view,) = filbert.inspect(predictor, "film " * 12, max_length=5).views
    assert (len(view.tokens), view.num_tokens) == (5, 14)
    with pytest.raises(ConfigError, match="max_length 65 is not in 3..64"):
        filbert.inspect(predictor, "a film", max_length=65)


def test_the_page_asks_nobody_for_anything(predictor, tmp_path):
    found = filbert.inspect(predictor, "the film was good")
    path = found.save(tmp_path / "page.html")
    content = path.read_text(encoding="utf-8")
    assert content == found.html
    assert "default-src 'none'" in content
    for address in ("http://", "https://", "@import", "url(h", "src="):
        assert address not in content.replace("http://www.w3.org/2000/svg", "")


def test_a_page_opens_at_the_head_that_looks_at_other_words(predictor):
    (view,) = filbert.inspect(predictor, "the film was very good , he").views
    view.maps[:] = np.eye(len(view.tokens))
    view.maps[1, 3] = np.roll(np.eye(len(view.tokens)), 3, axis=1)
    assert most_focused_head(view) == (1, 3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"text": ["a film"] * 7}, "7 texts make 7 views; at most 6"),
        ({"text": []}, "at least one model and one text"),
        ({"text": ["a", "b"], "text_b": "c"}, "second text of one pair"),
        ({"layer": 2}, r"layer 2 is not in 0\.\.1"),
        ({"head": 4}, r"head 4 is not in 0\.\.3"),
    ],
)
def test_what_cannot_be_shown_is_refused(predictor, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        filbert.inspect(predictor, **{"text": "the film"} | options)


def test_a_place_that_cannot_be_written_to_is_named(predictor, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        filbert.inspect(predictor, "the film").save(tmp_path / "none" / "page.html")


def softmaxed(scale: float, *shape: int) -> np.ndarray:
    scores = np.random.default_rng(0).normal(0, scale, shape).astype(np.float32)
    weights = np.exp(scores)
    return weights / weights.sum(-1, keepdims=True)


def view(maps: np.ndarray, size: int = 8) -> View:
    layers, heads, length, _ = maps.shape
    vectors = np.random.default_rng(1).normal(0, 1, (layers, 2, heads, length, size))
    places = np.arange(length)
    names = tuple(f"w{at}" for at in places)
    return View(
        "m", ("text",), names, places * 0, places, names, maps, np.zeros((layers, heads), bool),
        vectors.astype(np.float32), length,
    )  # fmt: skip


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text), -15)


@pytest.mark.parametrize("levels", [255, 65535])
def test_weights_come_back_within_half_a_step(levels):
    maps = softmaxed(2, 2, 3, 9, 9)
    for text, of_layer in zip(pack_maps(maps, levels), maps, strict=True):
        planes = np.frombuffer(unpacked(text), np.uint8).reshape(-1, 3, 9, 9).astype(int)
        steps = planes[0] + (256 * planes[1] if levels > 255 else 0)
        error = np.abs(steps.swapaxes(-1, -2) / levels - of_layer)
        assert error.max() <= 0.5001 / levels
        assert len(planes) == (2 if levels > 255 else 1)


def test_queries_and_keys_come_back_within_half_a_step():
    vectors = np.random.default_rng(2).normal(0, 3, (2, 5, 8)).astype(np.float32)
    vectors[1] = 0
    text, scales = pack_vectors(vectors)
    steps = np.frombuffer(unpacked(text), np.int8).reshape(2, 5, 8)
    found = steps * np.array(scales)[:, None, None]
    assert np.abs(found - vectors).max() <= 0.5001 * np.abs(vectors).max() / 127


def test_a_short_text_is_kept_as_finely_as_can_be_with_all_vectors():
    assert plan_storage([view(softmaxed(2, 2, 3, 9, 9))]) == (65535, True)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_a_twelfth_of_a_long_page_takes_a_twelfth_of_the_room(scale, monkeypatch):
    # One of twelve layers, at 512 tokens. Steps that are pure noise are worse than any model's.
    monkeypatch.setattr(page, "BUDGET", page.BUDGET / 12)
    one = view(softmaxed(scale, 1, 12, 512, 512), 64)
    levels, has_vectors = plan_storage([one])
    assert levels >= 127 and not has_vectors
    size = sum(map(len, pack_maps(one.maps, levels)))
    assert size <= page.BUDGET * 4 / 3  # in base64
