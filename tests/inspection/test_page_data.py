"""The numbers of a page come back as they were, within half a step, and fit."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest

from filbert.inspection import page_data
from filbert.inspection.page_data import packed_maps, packed_vectors, plan
from filbert.inspection.view import View


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
    for text, of_layer in zip(packed_maps(maps, levels), maps, strict=True):
        planes = np.frombuffer(unpacked(text), np.uint8).reshape(-1, 3, 9, 9).astype(int)
        steps = planes[0] + (256 * planes[1] if levels > 255 else 0)
        error = np.abs(steps.swapaxes(-1, -2) / levels - of_layer)
        assert error.max() <= 0.5001 / levels
        assert len(planes) == (2 if levels > 255 else 1)


def test_queries_and_keys_come_back_within_half_a_step():
    vectors = np.random.default_rng(2).normal(0, 3, (2, 5, 8)).astype(np.float32)
    vectors[1] = 0
    packed = packed_vectors(vectors)
    steps = np.frombuffer(unpacked(packed.text), np.int8).reshape(2, 5, 8)
    found = steps * np.array(packed.scales)[:, None, None]
    assert np.abs(found - vectors).max() <= 0.5001 * np.abs(vectors).max() / 127


def test_a_short_text_is_kept_as_finely_as_can_be_with_all_vectors():
    stored = plan([view(softmaxed(2, 2, 3, 9, 9))])
    assert stored.levels == 65535
    assert stored.has_vectors[0].all()


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_a_twelfth_of_a_long_page_takes_a_twelfth_of_the_room(scale, monkeypatch):
    # One of twelve layers, at 512 tokens. Steps that are pure noise are worse than any model's.
    monkeypatch.setattr(page_data, "BUDGET", page_data.BUDGET / 12)
    one = view(softmaxed(scale, 1, 12, 512, 512), 64)
    stored = plan([one], [(0, 5), (7, 0)])
    assert stored.levels >= 127
    assert np.argwhere(stored.has_vectors[0]).tolist() == [[0, 5]]
    size = sum(map(len, packed_maps(one.maps, stored.levels)))
    size += len(packed_vectors(one.queries_keys[0, :, 5]).text)
    assert size <= page_data.BUDGET
