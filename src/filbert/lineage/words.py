"""Words as the models before BERT read them: splitting, vocabulary, vectors, batches.

S texts in a batch, T words of the longest, E width of the word vectors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from filbert.data.word_vectors import WordVectors, read_vectors
from filbert.errors import ConfigError
from filbert.lineage.elmo import characters

# Words as in published vectors (Manning et al. 2014): "n't" and other contractions are words of
# their own, and so are punctuation marks.
_WORD = re.compile(r"\w+?(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|\w+|([^\w\s])\1{0,2}")
PADDING, UNKNOWN = 0, 1
_SPECIAL = ["[PAD]", "[UNK]"]
_SPREAD = 0.1  # standard deviation of word vectors that are drawn without a file


def split_words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, as written."""
    return [match[0] for match in _WORD.finditer(text)]


def frequent_words(texts: Sequence[str], *, most: int, min_count: int) -> list[str]:
    """Return the most frequent words in lower case, padding and the unknown word first.

    Raises:
        ConfigError: No word is frequent enough.
    """
    counts = Counter(word for text in texts for word in split_words(text.lower()))
    frequent = [word for word, count in counts.items() if count >= min_count]
    frequent.sort(key=lambda word: (-counts[word], word))
    if not frequent:
        raise ConfigError(f"No word occurs {min_count} times in the training texts.")
    return [*_SPECIAL, *frequent[: most - len(_SPECIAL)]]


def word_vectors(
    source: str,
    texts: Sequence[str],
    words: Sequence[str],
    wanted: set[str],
    *,
    dim: int,
    seed: int,
) -> WordVectors:
    """Return the vectors of `wanted` words in a file, or of all words of texts by word2vec.

    Raises:
        ConfigError: The file has none of the training words, or word2vec is not installed.
    """
    if source == "word2vec":
        return word2vec(texts, dim=dim, seed=seed)
    known = read_vectors(Path(source), wanted)
    if set(words).isdisjoint(known.words):
        raise ConfigError(
            f"{source} has none of the {len(words):,} words of the training texts. Is it of this "
            "language, and in lower case?"
        )
    return known


def word2vec(texts: Sequence[str], *, dim: int, seed: int) -> WordVectors:
    """Train skip-gram vectors on texts with gensim, on one thread so that they are reproducible.

    Source: Mikolov et al. 2013, with its five negative samples and window of five words.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise ConfigError(
            "word2vec needs gensim; install it with: pip install gensim. Or name a file of "
            "vectors in vectors."
        ) from error
    model = Word2Vec(
        [split_words(text.lower()) for text in texts], vector_size=dim, window=5, min_count=1,
        sg=1, negative=5, workers=1, seed=seed, epochs=20,
    )  # fmt: skip
    return WordVectors(list(model.wv.index_to_key), np.asarray(model.wv.vectors, dtype=np.float32))


def word_table(
    words: Sequence[str], texts: Sequence[str], options: Mapping[str, Any], seed: int
) -> Tensor:
    """Return float32 (words, E): from a file, learned from the texts, or drawn at random."""
    dim, draw = options["dim"], np.random.default_rng(seed)
    table = draw.standard_normal((len(words), dim), dtype=np.float32) * _SPREAD
    if options["vectors"] is None:
        return torch.from_numpy(table)
    trained = words[len(_SPECIAL) :]
    known = word_vectors(options["vectors"], texts, trained, set(words), dim=dim, seed=seed)
    rows = {word: at for at, word in enumerate(words)}
    kept = [at for at, word in enumerate(known.words) if word in rows]
    # Words without a vector are drawn with the standard deviation of the others.
    table *= known.table.std() / _SPREAD
    table[[rows[known.words[at]] for at in kept]] = known.table[kept]
    return torch.from_numpy(table)


def encode(texts: Sequence[str], words: Mapping[str, int], limit: int) -> list[list[int]]:
    """Return the ids of each text's words; an empty text is one unknown word."""
    rows = ([words.get(word, UNKNOWN) for word in split_words(text.lower())] for text in texts)
    return [ids[:limit] or [UNKNOWN] for ids in rows]


def padded(ids: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Return ids (S, T), padded at the end, and lengths (S,)."""
    lengths = torch.tensor([len(words) for words in ids])
    return pad_sequence([torch.tensor(words) for words in ids], batch_first=True), lengths


@dataclass(frozen=True)
class RunningText:
    """N words in order: ids in a vocabulary, and places among all different words as written."""

    ids: Tensor
    places: Tensor
    forms: list[str]

    @classmethod
    def of(cls, texts: Sequence[str], listed: list[str]) -> RunningText:
        """Return the words of texts, end to end."""
        written = [word for text in texts for word in split_words(text)]
        rows = {word: at for at, word in enumerate(listed)}
        ids = torch.tensor([rows.get(word.lower(), UNKNOWN) for word in written])
        forms = sorted(set(written))
        at = {word: row for row, word in enumerate(forms)}
        return cls(ids, torch.tensor([at[word] for word in written]), forms)

    def part(self, words: slice) -> RunningText:
        """Return some of the words."""
        return replace(self, ids=self.ids[words], places=self.places[words])

    @cached_property
    def letters(self) -> Tensor:
        """Character ids of the different words, int64 (forms, C)."""
        return torch.from_numpy(np.stack([characters([form])[1] for form in self.forms]))
