"""Statistics of attention heads against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from filbert.errors import InputError
from filbert.inference.predictor import Predictor
from filbert.inspect import attention, heads
from filbert.inspect.heads import STATISTICS, summarise_heads


@pytest.fixture(scope="module")
def predictor(tiny_model) -> Predictor:
    return Predictor.load(tiny_model)


def test_statistics_of_known_maps_are_those_computed_by_hand(predictor, monkeypatch):
    # [CLS] he was [SEP], one head for which the others are copies.
    maps = torch.tensor(
        [[1.0, 0, 0, 0], [0.5, 0.25, 0.25, 0], [0, 0.5, 0, 0.5], [0, 0, 0, 1.0]]
    ).expand(2, 4, 4, 4)
    monkeypatch.setattr(heads, "attention_of_texts", lambda *_: [(0, maps, None)])
    summary = summarise_heads(predictor, ["he was"])
    # Rows 1 and 2 count; special tokens do not.
    wanted = {
        "entropy": (1.5 * np.log(2) + np.log(2)) / 2,
        "distance": ((0.5 + 0.25) + (0.5 + 0.5)) / 2,
        "cls": 0.5 / 2,
        "sep": 0.5 / 2,
        "itself": 0.25 / 2,
        "previous": (0.5 + 0.5) / 2,
        "next": (0.25 + 0.5) / 2,
    }
    assert set(wanted) == set(STATISTICS)
    for name, value in wanted.items():
        np.testing.assert_allclose(summary.values[name], value, atol=1e-12)
    assert (summary.num_texts, summary.num_tokens) == (1, 4)


def test_texts_in_groups_give_the_same_statistics(predictor, monkeypatch):
    texts = ["the film was good", "he was", ("a play", "not very bad")]
    whole = summarise_heads(predictor, texts)
    monkeypatch.setattr(attention, "BATCH_WEIGHTS", 128)
    alone = summarise_heads(predictor, texts)
    for name, values in whole.values.items():
        # Sequences of one batch share a product, so the last bits of float32 differ.
        np.testing.assert_allclose(values, alone.values[name], atol=1e-6)
    records = whole.to_dict()["heads"]
    assert len(records) == 8 and records[5]["layer"] == 1 and records[5]["head"] == 1


def test_empty_texts_are_refused(predictor):
    for texts in ([], [" "]):
        with pytest.raises(InputError, match="All texts are empty"):
            summarise_heads(predictor, texts)
