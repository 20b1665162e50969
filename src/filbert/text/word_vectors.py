"""Vectors of words, and the word table that a vocabulary begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from filbert.errors import ConfigError

# Spread of vectors that are drawn with nothing to follow.
USUAL_SPREAD = 0.1


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and what stands for them.

    Attributes:
        words: n different ones.
        table: float32 (n, d), a row a word.
        source: the file they come from, for messages.
    """

    words: list[str]
    table: np.ndarray
    source: str = "the vectors"

    @property
    def dim(self) -> int:
        """d, numbers a word."""
        return int(self.table.shape[1])


def word_table(
    ids: Mapping[str, int], num_rows: int, vectors: WordVectors | None, *, dim: int, seed: int
) -> tuple[np.ndarray, int]:
    """A word table: vectors where there are some, all other rows drawn as they are spread.

    Args:
        ids: the row of each word.
        num_rows: of the table.
        vectors: may hold other words too. None draws every row.
        dim: numbers a word.
        seed: of the draws, which depend on nothing else but the shape and the spread.

    Returns:
        float32 (num_rows, dim), and how many of the words have a vector.

    Raises:
        ConfigError: `vectors` have another dimension, or none of the words.
    """
    draws = np.random.default_rng(seed).standard_normal((num_rows, dim), dtype=np.float32)
    if vectors is None:
        return draws * np.float32(USUAL_SPREAD), 0
    if vectors.dim != dim:
        raise ConfigError(
            f"{vectors.source} has {vectors.dim} numbers a word, and dim is {dim}. "
            f"Give dim {vectors.dim}."
        )
    found = [(ids[word], row) for row, word in enumerate(vectors.words) if word in ids]
    if not found:
        raise ConfigError(
            f"{vectors.source} has none of the {len(ids):,} words of the vocabulary. Is it of this "
            "language, and in lower case?"
        )
    places, rows = map(list, zip(*found, strict=True))
    known = vectors.table[rows]
    table = known.mean(0) + draws * known.std(0) if len(rows) > 1 else draws * known.std()
    table[places] = known
    return table.astype(np.float32, copy=False), len(rows)
