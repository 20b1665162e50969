"""Word vectors for the mean-of-words contestant: out of a file, or out of an encoder's table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from filbert.errors import InputError
from filbert.study.linear import WordMeans, words_of


def word_table(
    texts: Sequence[str], *, vectors: str | None, model: str | None, others: Sequence[str] = ()
) -> WordMeans:
    """Vectors of the words that stand in the training texts, out of a file also of others.

    Args:
        texts: of train, cleaned.
        vectors: a GloVe or word2vec text file; the words of the texts that it has.
        model: else: an encoder; a word's vector is the mean of the rows that the word's pieces have
            in its embedding table.
        others: more texts that the classifier will read, cleaned. The file has a vector for most of
            their words whether or not a training text has the word.

    Raises:
        InputError: the file has none of the words of the training texts.
        FormatError: the file or the model is damaged.
    """
    words = sorted({word for text in texts for word in words_of(text)})
    if vectors is None:
        assert model is not None
        return WordMeans(words, _of_model(words, model))

    from filbert.data.word_vectors import read_vectors

    found = read_vectors(Path(vectors), {*words, *(w for text in others for w in words_of(text))})
    if set(words).isdisjoint(found.words):
        raise InputError(
            f"{vectors} has none of the {len(words):,} words of the training texts. Is it of this "
            f"language, and in lower case?"
        )
    return WordMeans(found.words, np.asarray(found.table, dtype=np.float32))


def _of_model(words: Sequence[str], model: str) -> np.ndarray:
    """float32 (words, embedding size)."""
    from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer

    place = find_model(model)
    table = read_checkpoint(place).tensors["encoder.embeddings.word.weight"].float().numpy()
    tokenizer = read_tokenizer(place)
    ids = tokenizer.encode(list(words), max_length=64)
    vectors = np.zeros((len(words), table.shape[1]), dtype=np.float32)
    for at, encoding in enumerate(ids):
        # Between the special tokens at both ends.
        pieces = encoding.input_ids[1:-1]
        if len(pieces):
            vectors[at] = table[pieces].mean(0)
    return vectors
