"""Word vectors for linear classifiers: N rows, F features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from filbert.lineage.words import word_vectors
from filbert.train.linear import words_of

# Width of word2vec's vectors.
_DIM = 100


class WordMeans:
    """Mean of the vectors of a text's words, each feature scaled to mean 0 and deviation 1.

    Args:
        texts: Training texts, which the scale is fitted on.
        words: In the order of the table.
        table: float32 (words, F).
    """

    def __init__(self, texts: Sequence[str], words: Sequence[str], table: np.ndarray) -> None:
        self.words, self.table = list(words), table
        self._rows = {word: at for at, word in enumerate(self.words)}
        means = self.means(texts)
        deviation = means.std(0)
        self.mean, self.deviation = means.mean(0), np.where(deviation, deviation, 1.0)

    @property
    def num_parameters(self) -> int:
        """Number of values in the table."""
        return int(self.table.size)

    def means(self, texts: Sequence[str]) -> np.ndarray:
        """Return the means, float64 (N, F); zeros for a text without a known word."""
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
    def num_bytes(self) -> int:
        """Bytes of the words, the table and the scale."""
        words = len("".join(self.words).encode())
        return words + sum(int(a.nbytes) for a in (self.table, self.mean, self.deviation))


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
        seed: Of word2vec.

    Raises:
        ConfigError: The file has none of the words of the training texts, or gensim is missing.
        InputError, FormatError: The file or the model is damaged.
    """
    words = sorted({word for text in train for word in words_of(text)})
    if vectors is None:
        assert model is not None
        return WordMeans(train, words, _of_model(words, model))
    wanted = {word for text in every for word in words_of(text)}
    known = word_vectors(vectors, train, words, wanted, dim=_DIM, seed=seed)
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
