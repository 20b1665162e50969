"""Words as the models before BERT read them: splitting, vocabulary, vectors, batches.

S texts in a batch, T words of the longest, E width of the word vectors; N texts.
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
from filbert.train.linear import Size, words_of

# Words as in published vectors (Manning et al. 2014): "n't" and other contractions are words of
# their own, and so are punctuation marks.
_WORD = re.compile(r"\w+?(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|\w+|([^\w\s])\1{0,2}")
PADDING, UNKNOWN = 0, 1
_SPECIAL = ["[PAD]", "[UNK]"]
_SPREAD = 0.1  # standard deviation of word vectors that are drawn without a file
_MEANS_DIM = 100  # width of the vectors of word2vec whose means are features


def split_words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, as written."""
    return [match[0] for match in _WORD.finditer(text)]


def frequent_words(texts: Sequence[str], *, most: int, min_count: int) -> list[str]:
    """Return the most frequent words in lower case, padding and the unknown word first.

    If no word is frequent enough, it is a ConfigError.
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

    A file with none of the training `words` is a ConfigError, and so is word2vec without gensim.
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


# Means of word vectors


class WordMeans:
    """Mean of the vectors of a text's words, each feature scaled to mean 0 and deviation 1.

    The scale is fitted on the training `texts`. The `table` has a row for each of the `words`.
    """

    def __init__(self, texts: Sequence[str], words: Sequence[str], table: np.ndarray) -> None:
        self.words, self.table = list(words), table
        self._rows = {word: at for at, word in enumerate(self.words)}
        means = self.means(texts)
        deviation = means.std(0)
        self.mean, self.deviation = means.mean(0), np.where(deviation, deviation, 1.0)

    def means(self, texts: Sequence[str]) -> np.ndarray:
        """Return the means, float64 (N, E); zeros for a text without a known word."""
        means = np.zeros((len(texts), self.table.shape[1]))
        for at, text in enumerate(texts):
            known = [self._rows[w] for w in words_of(text) if w in self._rows]
            if known:
                means[at] = self.table[known].mean(0)
        return means

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """Return the scaled means."""
        scaled: np.ndarray = (self.means(texts) - self.mean) / self.deviation
        return scaled

    @property
    def size(self) -> Size:
        """The values of the table, and the bytes of the words, the table and the scale."""
        words = len("".join(self.words).encode())
        arrays = (self.table, self.mean, self.deviation)
        return Size(int(self.table.size), words + sum(int(array.nbytes) for array in arrays))


def word_means(
    train: Sequence[str],
    every: Sequence[str],
    *,
    vectors: str | None,
    model: str | None,
    seed: int = 0,
) -> WordMeans:
    """Return the means of the vectors of words, from a file, word2vec or an encoder.

    Args:
        train: Cleaned training texts.
        every: Cleaned texts of all splits, whose words are looked up in the file.
        vectors: A GloVe or word2vec text file, or "word2vec" for vectors of the training texts.
        model: Without a file, an encoder; a word's vector is the mean of its tokens' rows in the
            embedding table.
    """
    words = sorted({word for text in train for word in words_of(text)})
    if vectors is None:
        assert model is not None
        return WordMeans(train, words, _of_model(words, model))
    wanted = {word for text in every for word in words_of(text)}
    known = word_vectors(vectors, train, words, wanted, dim=_MEANS_DIM, seed=seed)
    return WordMeans(train, known.words, np.asarray(known.table, dtype=np.float32))


def _of_model(words: Sequence[str], model: str) -> np.ndarray:
    """Return float32 (words, embedding size)."""
    from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer

    place = find_model(model)
    table = read_checkpoint(place).tensors["encoder.embeddings.word.weight"].float().numpy()
    vectors = np.zeros((len(words), table.shape[1]), dtype=np.float32)
    for at, encoding in enumerate(read_tokenizer(place).encode(list(words), max_length=64)):
        # Without the special tokens at both ends.
        pieces = encoding.input_ids[1:-1]
        if len(pieces):
            vectors[at] = table[pieces].mean(0)
    return vectors
