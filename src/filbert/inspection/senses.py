"""Groups among the vectors of one word, and a map of them in two dimensions.

N vectors, H width.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from filbert.errors import ConfigError
from filbert.inspection.self_similarity import cosines, unit

# Below so many places nothing can be left out to see whether groups stay.
LEAST_FOR_STABILITY = 8
MOST_GROUPS = 8
REPEATS = 50
PROJECTIONS = ("pca", "umap")


@dataclass(frozen=True, eq=False)
class Groups:
    """Places in groups.

    Attributes:
        numbers: the group of each place, integers (N,), the largest group is 0.
        silhouette: how much nearer a place is to its own group than to the next, -1 to 1; None
            for a single group.
        stability: mean adjusted Rand index between these groups and those that come out when a
            quarter of the places is left out; None for fewer than 8 places.
    """

    numbers: np.ndarray
    silhouette: float | None
    stability: float | None

    @property
    def count(self) -> int:
        """How many groups there are."""
        return int(self.numbers.max()) + 1


def grouped(vectors_NH: np.ndarray, count: int | None = None, *, seed: int = 0) -> Groups:
    """The word's places in groups: Ward's method on vectors of length one.

    Args:
        vectors_NH: float (N, H).
        count: groups wanted; equal vectors are never parted, so there may be fewer. None: the
            number with the best silhouette (Rousseeuw 1987) among those that leave no place alone,
            or a single group where there is none.
        seed: of what is left out for `stability`.

    Raises:
        ConfigError: more groups are wanted than there are places.
    """
    size = len(vectors_NH)
    check_count(count, size)
    units = unit(vectors_NH)
    numbers, silhouette = _best(units, count)
    stability = None
    if size >= LEAST_FOR_STABILITY and numbers.max() > 0:
        from sklearn.metrics import adjusted_rand_score

        draw = np.random.default_rng(seed)
        found = []
        for _ in range(REPEATS):
            kept = np.sort(draw.permutation(size)[: size * 3 // 4])
            if count is None or count <= len(kept):
                again = _best(units[kept], count)[0]
                found.append(adjusted_rand_score(numbers[kept], again))
        stability = float(np.mean(found)) if found else None
    return Groups(_by_size(numbers), silhouette, stability)


def check_count(count: int | None, size: int) -> None:
    """Refuse more groups than places, or none.

    Raises:
        ConfigError: that.
    """
    if count is not None and not 1 <= count <= size:
        raise ConfigError(f"--senses {count}: the word has {size} places; give 1 to {size}.")


def _best(units_NH: np.ndarray, count: int | None) -> tuple[np.ndarray, float | None]:
    """The groups of each place and their silhouette."""
    from scipy.cluster.hierarchy import fcluster, linkage

    size = len(units_NH)
    apart = np.clip(1 - cosines(units_NH), 0, None)
    best: tuple[np.ndarray, float | None] = (np.zeros(size, dtype=np.int64), None)
    # The differences of equal vectors are roundings.
    if count == 1 or size < 2 or apart.max() < 1e-6:
        return best
    tree = linkage(units_NH, "ward")
    for number in [count] if count else range(2, min(MOST_GROUPS, size - 1) + 1):
        found = fcluster(tree, number, "maxclust").astype(np.int64) - 1
        # Of three places one is alone whatever happens.
        if count is None and size > 3 and np.bincount(found).min() < 2:
            continue
        score = _silhouette(apart, found)
        if best[1] is None or (score is not None and score > best[1]):
            best = (found, score)
    return best


def _silhouette(apart_NN: np.ndarray, numbers: np.ndarray) -> float | None:
    from sklearn.metrics import silhouette_score

    if not 2 <= len(np.unique(numbers)) < len(numbers):
        return None
    return float(silhouette_score(apart_NN, numbers, metric="precomputed"))


def _by_size(numbers: np.ndarray) -> np.ndarray:
    """The same groups, numbered by size and then by their first place."""
    kinds, first, sizes = np.unique(numbers, return_index=True, return_counts=True)
    order = sorted(range(len(kinds)), key=lambda i: (-sizes[i], first[i]))
    names = {int(kinds[old]): new for new, old in enumerate(order)}
    return np.array([names[int(number)] for number in numbers])


# Two dimensions


def check_projection(name: str) -> None:
    """Make sure that `plane` can draw it.

    Raises:
        ConfigError: it is none of PROJECTIONS, or its package is not installed.
    """
    if name not in PROJECTIONS:
        raise ConfigError(f"--plot {name!r} is not one of {list(PROJECTIONS)}.")
    if name == "umap":
        try:
            _umap()
        except ImportError:
            raise ConfigError(
                "--plot umap needs umap-learn, which is not here: pip install umap-learn. Or leave "
                "--plot out for PCA."
            ) from None


def plane(
    vectors_NH: np.ndarray, projection: str = "pca", *, seed: int = 0
) -> tuple[np.ndarray, tuple[float, float] | None]:
    """Two coordinates for every vector, and the shares of variance that they hold (PCA only).

    Args:
        vectors_NH: taken at length one, so that distances on the map are those of cosines.
        projection: "pca" or "umap".
        seed: of UMAP.

    Returns:
        float (N, 2); equal vectors are equal points.
    """
    units = unit(vectors_NH)
    if projection == "umap" and len(units) > 3:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = _umap()(
                n_components=2,
                n_neighbors=min(15, len(units) - 1),
                metric="cosine",
                init="random",
                random_state=seed,
            )
            return np.asarray(made.fit_transform(units), dtype=np.float64), None
    centred = units - units.mean(0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    total = float(np.square(values).sum())
    # One vector in many places: what is left is roundings.
    if total < 1e-10 * len(units):
        return np.zeros((len(units), 2)), (0.0, 0.0)
    # A column has no sign of its own: its largest entry is made positive.
    signs = np.sign(left[np.abs(left).argmax(0), np.arange(left.shape[1])])
    points = np.zeros((len(units), 2))
    count = min(2, len(values))
    points[:, :count] = (left * signs * values)[:, :count]
    shares = [*(np.square(values[:count]) / total).tolist(), 0.0]
    return points, (shares[0], shares[1])


def turned(points_N2: np.ndarray, like_N2: np.ndarray) -> np.ndarray:
    """Points turned and mirrored to lie as near as possible to others; distances stay.

    Source: Schoenemann 1966, the orthogonal Procrustes problem.
    """
    left, _, right = np.linalg.svd(points_N2.T @ like_N2)
    found: np.ndarray = points_N2 @ left @ right
    return found


def _umap() -> Any:
    from importlib import import_module

    return import_module("umap").UMAP
