"""Which heads do the same: Jensen-Shannon divergence, clusters, and a map of all heads.

K heads of the whole model, K = L * A without the pruned ones; n tokens of one sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from filbert.errors import ConfigError
from filbert.inspection.heads import lost_heads
from filbert.model.heads import Model
from filbert.text.encoding import Encoding

# Entries of the middle distributions that are computed at once, float32: 64 MiB.
_BLOCK = 2**24

# Of a longer text so many tokens, spread evenly: all pairs of heads are compared at each.
MAX_TOKENS = 32
# So many texts, the first ones: BERT-large has 73,536 pairs of heads, each compared at every token.
MAX_TEXTS = 100

ROUNDS = 200


@dataclass(frozen=True)
class Agreement:
    """How alike the heads are.

    Attributes:
        heads: (layer, head) of each, K of them.
        divergence: float64 (K, K), mean Jensen-Shannon divergence in nats, 0 to ln 2.
        clusters: int (K,), from 0, numbered in the order of the first head of each.
        order: int (K,), heads as a dendrogram lays them out, so that like stands beside like.
        places: float64 (K, 2), on a plane, as far apart as the divergence's root, as well as that
            can be.
        stress: how badly it can: 0 is exact (Kruskal 1964, stress-1).
        linkage: (K - 1, 4), what scipy draws a dendrogram from; empty for one head.
    """

    heads: tuple[tuple[int, int], ...]
    divergence: np.ndarray
    clusters: np.ndarray
    order: np.ndarray
    places: np.ndarray
    stress: float
    linkage: np.ndarray


class AgreementStudy:
    """Adds up the divergence of all pairs of heads, one text after the other.

    JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2, averaged over the text's own tokens, MAX_TOKENS
    of each of the first MAX_TEXTS texts. Source: Clark et al. 2019, section 6, who take the sum.
    """

    def __init__(self, model: Model) -> None:
        places = np.argwhere(~lost_heads(model))
        self.heads = tuple((int(layer), int(head)) for layer, head in places)
        self._layers, self._heads = places[:, 0], places[:, 1]
        self._sum = np.zeros((len(places), len(places)))
        self._count = self.num_texts = 0

    def add(self, maps: Tensor, encoding: Encoding) -> None:
        """Count one text, unless MAX_TEXTS were; `maps` float32 (L, A, n, n)."""
        assert encoding.sequence is not None
        own_tokens = np.flatnonzero(encoding.sequence >= 0)
        if not len(own_tokens) or self.num_texts == MAX_TEXTS:
            return
        self.num_texts += 1
        chosen = np.linspace(0, len(own_tokens) - 1, min(len(own_tokens), MAX_TOKENS)).round()
        rows = torch.from_numpy(own_tokens[chosen.astype(int)])
        found = maps[:, :, rows][self._layers, self._heads]  # (K, r, n)
        own = torch.special.entr(found).sum(-1).double().sum(-1)
        for first in range(len(found)):
            others = found[first + 1 :]
            step = max(1, _BLOCK // max(1, found[first].numel()))
            for start in range(0, len(others), step):
                block = others[start : start + step]
                middle = torch.special.entr((block + found[first]) / 2).sum(-1).double().sum(-1)
                at = slice(first + 1 + start, first + 1 + start + len(block))
                apart = middle - (own[first] + own[at]) / 2
                # Equal heads come out at minus a rounding error.
                self._sum[first, at] += apart.clamp_min(0).numpy()
        self._count += len(rows)

    def check(self, num_clusters: int) -> None:
        """Refuse a number of clusters that `result` cannot make.

        Raises:
            ConfigError: there are not so many heads.
        """
        count = len(self.heads)
        if not 1 <= num_clusters <= count:
            raise ConfigError(f"clusters is {num_clusters}; this model has {count} heads.")

    def result(self, num_clusters: int) -> Agreement:
        """Clusters and map.

        Raises:
            ConfigError: there are not so many heads.
        """
        self.check(num_clusters)
        upper = self._sum / max(1, self._count)
        return arranged(self.heads, upper + upper.T, num_clusters)


def arranged(
    heads: tuple[tuple[int, int], ...], divergence: np.ndarray, num_clusters: int
) -> Agreement:
    """Clusters by complete linkage and places on a plane, of the divergence's root.

    The root of the divergence is a distance (Endres and Schindelin 2003); the divergence itself
    breaks the triangle inequality.
    """
    from scipy.cluster.hierarchy import fcluster, leaves_list
    from scipy.cluster.hierarchy import linkage as link
    from scipy.spatial.distance import squareform

    distance = np.sqrt(divergence)
    if len(heads) < 2:
        nowhere = np.zeros((len(heads), 2))
        zero = np.zeros(len(heads), dtype=int)
        return Agreement(heads, divergence, zero, zero, nowhere, 0.0, np.zeros((0, 4)))
    # Optimal ordering turns the branches so that neighbours are alike.
    tree = link(squareform(distance, checks=False), "complete", optimal_ordering=True)
    labels = fcluster(tree, num_clusters, criterion="maxclust")
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    clusters = np.argsort(np.argsort(first))[inverse]
    places, stress = on_a_plane(distance)
    return Agreement(heads, divergence, clusters, leaves_list(tree), places, stress, tree)


def on_a_plane(distance: np.ndarray) -> tuple[np.ndarray, float]:
    """Points whose distances are near those given, (K, K) to (K, 2), and their stress.

    Classical scaling (Torgerson 1952: the two leading axes of the doubly centred squares, the
    largest coordinate of each positive), then majorisation (de Leeuw 1977), which only lowers the
    stress. There is no seed.
    """
    squares = distance**2
    centred = squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    leading = np.argsort(values)[::-1][:2]
    axes = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))
    axes *= np.where(axes[np.abs(axes).argmax(0), range(axes.shape[1])] < 0, -1.0, 1.0)
    places = np.zeros((len(distance), 2))
    places[:, : axes.shape[1]] = axes
    shown = _between(places)
    for _ in range(ROUNDS):
        ratio = np.divide(distance, shown, out=np.zeros_like(distance), where=shown > 1e-12)
        places = (ratio.sum(1)[:, None] * places - ratio @ places) / len(places)
        shown = _between(places)
    total = (distance**2).sum()
    stress = float(np.sqrt(((shown - distance) ** 2).sum() / total)) if total else 0.0
    return places, stress


def _between(places: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.norm(places[:, None] - places, axis=-1))
