from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from filbert.errors import ConfigError
from filbert.inspection.agreement import MAX_TOKENS, AgreementStudy, arranged, on_a_plane
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model

SIZES = {
    "vocab_size": 34,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}


def added(tiny, texts, maps, **changes):
    found = AgreementStudy(Model(Encoder(EncoderConfig(**{**SIZES, **changes}))))
    for text, one in zip(texts, maps, strict=True):
        (encoding,) = tiny.encode([text], with_offsets=True)
        found.add(one, encoding)
    return found


def random_maps(length, layers=2, heads=2, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.softmax(3 * torch.randn(layers, heads, length, length, generator=draw), -1)


def test_the_divergence_is_scipys_averaged_over_all_tokens(tiny):
    texts = ["the film", "he was very good"]
    maps = [random_maps(4, seed=1), random_maps(6, seed=2)]
    found = added(tiny, texts, maps).result(2)
    assert found.heads == ((0, 0), (0, 1), (1, 0), (1, 1))
    rows = [(one, row) for one in maps for row in range(1, one.shape[-1] - 1)]
    for a, (layer_a, head_a) in enumerate(found.heads):
        for b, (layer_b, head_b) in enumerate(found.heads):
            wanted = np.mean(
                [
                    jensenshannon(one[layer_a, head_a, row], one[layer_b, head_b, row]) ** 2
                    for one, row in rows
                ]
            )
            assert found.divergence[a, b] == pytest.approx(wanted, abs=1e-6)  # float32 maps


def test_so_many_texts_are_compared_and_no_more(tiny, monkeypatch):
    texts, maps = ["the film", "he was very good"], [random_maps(4, seed=1), random_maps(6, seed=2)]
    monkeypatch.setattr("filbert.inspection.agreement.MAX_TEXTS", 1)
    study = added(tiny, texts, maps)
    first = added(tiny, texts[:1], maps[:1])
    assert study.num_texts == 1
    np.testing.assert_array_equal(study.result(1).divergence, first.result(1).divergence)


def test_heads_that_look_elsewhere_are_as_far_apart_as_can_be(tiny):
    maps = torch.zeros(1, 2, 4, 4)
    maps[0, 0, :, 1] = 1
    maps[0, 1, :, 2] = 1
    found = added(tiny, ["the film"], [maps], num_hidden_layers=1).result(2)
    assert found.divergence[0, 1] == pytest.approx(math.log(2))


def test_of_a_long_text_tokens_from_all_of_it_are_compared(tiny):
    text = " ".join(["film"] * 48)
    maps = torch.zeros(1, 2, 50, 50)
    maps[..., 0] = 1
    # The heads differ in the last third alone.
    maps[0, 1, 34:, 0], maps[0, 1, 34:, 1] = 0, 1
    found = added(tiny, [text], [maps], num_hidden_layers=1).result(1)
    # 48 tokens, of which 15 are in the last third.
    assert found.divergence[0, 1] / math.log(2) == pytest.approx(15 / 48, abs=1 / MAX_TOKENS)


def test_pruned_heads_are_not_compared(tiny):
    found = added(tiny, ["the film"], [random_maps(4)], heads_per_layer=(2, 1)).result(2)
    assert found.heads == ((0, 0), (0, 1), (1, 0))


def test_two_families_of_heads_become_two_clusters_numbered_by_their_first_head():
    heads = tuple((layer, head) for layer in range(2) for head in range(3))
    is_first = np.array([1, 0, 1, 1, 0, 0])
    divergence = np.where(is_first[:, None] == is_first, 0.01, 0.5) * (1 - np.eye(6))
    found = arranged(heads, divergence, 2)
    assert found.clusters.tolist() == [0, 1, 0, 0, 1, 1]
    assert sorted(is_first[found.order].tolist()) in (
        is_first[found.order].tolist(), is_first[found.order].tolist()[::-1],
    )  # fmt: skip


@pytest.mark.parametrize("rounds", [0, 200])
def test_points_of_a_plane_are_found_again(monkeypatch, rounds):
    monkeypatch.setattr("filbert.inspection.agreement.ROUNDS", rounds)
    points = np.random.default_rng(0).normal(size=(7, 2))
    distance = np.linalg.norm(points[:, None] - points, axis=-1)
    places, stress = on_a_plane(distance)
    assert stress < 1e-6
    assert np.allclose(np.linalg.norm(places[:, None] - places, axis=-1), distance, atol=1e-6)


def test_what_does_not_fit_a_plane_has_less_stress_than_by_scaling_alone(monkeypatch):
    points = np.random.default_rng(0).normal(size=(12, 6))
    distance = np.linalg.norm(points[:, None] - points, axis=-1)
    _, stress = on_a_plane(distance)
    monkeypatch.setattr("filbert.inspection.agreement.ROUNDS", 0)
    _, before = on_a_plane(distance)
    assert 0.05 < stress < before - 0.01


def test_one_head_and_equal_heads_have_places_too(tiny):
    alone = added(
        tiny, ["the film"], [random_maps(4, 1, 1)], num_hidden_layers=1, num_attention_heads=1
    ).result(1)
    assert alone.places.tolist() == [[0, 0]]
    same = random_maps(4, 1, 1).repeat(2, 2, 1, 1)
    found = added(tiny, ["the film"], [same]).result(1)
    assert np.abs(found.places).max() < 1e-3
    assert found.clusters.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("clusters", [0, 5])
def test_more_clusters_than_heads_are_refused(tiny, clusters):
    with pytest.raises(ConfigError, match=f"clusters is {clusters}; this model has 4 heads"):
        added(tiny, ["the film"], [random_maps(4)]).result(clusters)
