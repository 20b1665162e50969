"""What every side of a comparison is given: the same token ids, in the same order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

from filbert.model.config import EncoderConfig

# Half of the texts are shorter; the mean; the longest. Comments and questions look like this.
MEDIAN, MEAN, LONGEST = 50, 71.0, 256
# Ids below are marks, unused places and single characters in the vocabularies of this kind.
_FIRST_WORD = 1_000


@dataclass(frozen=True)
class Workload:
    """Token ids of n texts, special tokens included.

    Attributes:
        texts: int64 arrays, each of at least two ids.
    """

    texts: tuple[np.ndarray, ...]

    @property
    def num_tokens(self) -> int:
        """Real tokens of all texts; nobody's padding."""
        return sum(map(len, self.texts))

    @property
    def digest(self) -> str:
        """Equal for the same ids in the same order."""
        whole = hashlib.sha256()
        for ids in self.texts:
            whole.update(len(ids).to_bytes(4, "little") + ids.astype("<i8").tobytes())
        return whole.hexdigest()[:16]

    def batches(self, order: str, size: int) -> list[list[np.ndarray]]:
        """The texts as they come, or longest first, `size` at a time; 0 for all at once."""
        texts = list(self.texts)
        if order == "sorted":
            texts.sort(key=len, reverse=True)
        size = size or len(texts)
        return [texts[start : start + size] for start in range(0, len(texts), size)]

    def save(self, path: Path) -> None:
        """Write for `load`."""
        lengths = np.array([len(ids) for ids in self.texts])
        np.savez(path, ids=np.concatenate(self.texts), lengths=lengths)

    @classmethod
    def load(cls, path: Path) -> Workload:
        """Read what `save` wrote."""
        with np.load(path) as file:
            borders = np.cumsum(file["lengths"])[:-1]
            return cls(tuple(np.split(file["ids"].astype(np.int64), borders)))


def mixed_lengths(
    count: int, *, median: int = MEDIAN, mean: float = MEAN, longest: int = LONGEST
) -> np.ndarray:
    """Log-normal lengths with this median and, once the longest are cut, this mean; ascending.

    They are the quantiles rather than draws, so that few texts are spread as many are. Where
    `longest` leaves no such mean, the spread is that of the longest with a mean below.
    """
    quantiles = ndtri((np.arange(count) + 0.5) / count)

    def lengths(spread: float) -> np.ndarray:
        found: np.ndarray = np.clip(median * np.exp(spread * quantiles), 3, longest)
        return found

    narrow, wide = 0.01, 1.5
    if float(lengths(wide).mean()) <= mean:
        spread = wide
    else:
        spread = float(brentq(lambda s: float(lengths(s).mean()) - mean, narrow, wide))
    whole: np.ndarray = np.rint(lengths(spread)).astype(np.int64)
    return whole


def drawn(
    lengths: Sequence[int] | np.ndarray,
    *,
    vocab_size: int,
    cls_id: int,
    sep_id: int,
    seed: int = 0,
) -> Workload:
    """Random words of these lengths, in random order, between the two marks."""
    draw = np.random.default_rng(seed)
    first = min(_FIRST_WORD, vocab_size // 2)
    texts = []
    for length in draw.permutation(np.asarray(lengths)):
        ids = draw.integers(first, vocab_size, size=int(length))
        ids[0], ids[-1] = cls_id, sep_id
        texts.append(ids)
    return Workload(tuple(texts))


def layer_parameters(config: EncoderConfig) -> int:
    """Parameters that a token meets in the layers: 85.05 million for BERT-base.

    All but 0.2 % stand in matrices; biases and LayerNorms are counted with them. Twice this is the
    useful work of a token: padding, attention's own products and element-wise work are not counted.
    """
    from filbert.checkpoints.checkpoint import meta_model
    from filbert.model.encoder import layer_of

    layers = meta_model(config, None).encoder.layers
    met = (layer_of(layers, index) for index in range(config.num_hidden_layers))
    return sum(parameter.numel() for layer in met for parameter in layer.parameters())


def useful_gflop(config: EncoderConfig, tokens: int) -> float:
    """2 x the parameters of the layers x tokens, in 10^9."""
    return 2 * layer_parameters(config) * tokens / 1e9
