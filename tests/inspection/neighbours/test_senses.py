"""Groups, their steadiness, and maps in two dimensions."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from filbert.errors import ConfigError
from filbert.inspection.senses import check_projection, grouped, plane, turned


def clouds(*sizes, apart=3.0):
    draw = np.random.default_rng(0)
    centres = apart * np.eye(16)[: len(sizes)] + 1
    return np.concatenate(
        [c + 0.3 * draw.standard_normal((n, 16)) for c, n in zip(centres, sizes, strict=True)]
    )


def test_clouds_that_are_apart_become_groups_the_largest_first():
    found = grouped(clouds(4, 9, 6))
    assert found.numbers.tolist() == [2] * 4 + [0] * 9 + [1] * 6
    assert found.count == 3
    assert found.silhouette is not None and found.silhouette > 0.6
    assert found.stability is not None and found.stability > 0.95


def test_groups_in_a_single_cloud_do_not_stay_when_places_are_left_out():
    found = grouped(np.random.default_rng(0).standard_normal((40, 16)) + 1)
    assert found.stability is None or found.stability < 0.8


def test_no_place_is_a_group_of_its_own_unless_three_are_all_there_is():
    alone = np.concatenate([clouds(7), -clouds(1)])
    assert np.bincount(grouped(alone).numbers).min() >= 2
    assert grouped(clouds(2, 1)).numbers.tolist() == [0, 0, 1]


def test_equal_vectors_are_one_group_and_one_point():
    same = np.tile(np.random.default_rng(0).standard_normal(16), (9, 1))
    found = grouped(same)
    assert (found.count, found.silhouette, found.stability) == (1, None, None)
    points, shares = plane(same)
    assert not points.any()
    assert shares == (0.0, 0.0)


def test_the_number_of_groups_can_be_given():
    assert grouped(clouds(5, 5), 4).count == 4
    assert grouped(clouds(5, 5), 1).count == 1
    assert grouped(clouds(3), 3).count == 3
    for number in (0, 11):
        with pytest.raises(ConfigError, match=f"--senses {number}: the word has 10 places"):
            grouped(clouds(5, 5), number)


def test_the_map_is_that_of_principal_components():
    from sklearn.decomposition import PCA

    vectors = clouds(5, 4)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    judge = PCA(2).fit(units)
    points, shares = plane(vectors)
    # The sign of an axis is nobody's to say.
    assert np.abs(np.abs(points) - np.abs(judge.transform(units))).max() < 1e-9
    assert shares == pytest.approx(tuple(judge.explained_variance_ratio_))
    assert np.take_along_axis(points, np.abs(points).argmax(0)[None], 0).min() > 0


def test_two_places_have_a_map():
    points, shares = plane(np.array([[1.0, 0], [0, 1]]))
    assert points.shape == (2, 2)
    assert shares == pytest.approx((1.0, 0.0))


def test_a_map_turned_towards_another_keeps_its_distances():
    points = np.random.default_rng(0).standard_normal((7, 2))
    angle = 2.0
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    mirrored = points @ turn @ np.diag([1, -1])
    assert np.abs(turned(mirrored, points) - points).max() < 1e-12


def test_umap_is_used_where_it_is_installed_and_its_absence_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ConfigError, match="umap-learn, which is not here"):
        check_projection("umap")
    with pytest.raises(ConfigError, match="--plot 'tsne' is not one of"):
        check_projection("tsne")

    class UMAP:
        def __init__(self, **options):
            assert options["n_components"] == 2
            assert options["n_neighbors"] == 8

        def fit_transform(self, vectors):
            return vectors[:, :2] * 2

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=UMAP))
    check_projection("umap")
    points, shares = plane(clouds(5, 4), "umap")
    assert points.shape == (9, 2)
    assert shares is None
