"""Word vectors for the mean of words."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.compare.classifiers import word_table
from filbert.errors import InputError


def test_a_file_gives_the_words_of_the_texts_that_it_has(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("film 1 0\nother 5 5\ngood 0 2\n")
    means = word_table(["A good film", "unheard"], vectors=str(path), model=None)
    assert sorted(means.words) == ["film", "good"]
    assert means.of(["good film!", "zzz"]).tolist() == [[0.5, 1.0], [0.0, 0.0]]


def test_a_file_of_another_language_is_refused(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("kino 1 0\nbuch 0 1\n")
    with pytest.raises(InputError, match="none of the 2 words of the training texts"):
        word_table(["a good film"], vectors=str(path), model=None)


def test_a_word_of_several_pieces_has_the_mean_of_their_rows(tiny_model):
    from filbert.checkpoints.opening import read_checkpoint, read_tokenizer

    table = read_checkpoint(tiny_model).tensors["encoder.embeddings.word.weight"].float().numpy()
    word = "films"
    pieces = read_tokenizer(tiny_model).encode([word], max_length=64)[0].input_ids[1:-1]
    assert len(pieces) > 1
    means = word_table([word], vectors=None, model=str(tiny_model))
    assert np.allclose(means.table[0], table[pieces].mean(0), rtol=0, atol=1e-6)


def test_words_of_other_texts_have_their_vectors_out_of_the_file(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("film 1 0\nother 5 5\nnever 0 2\n")
    means = word_table(["a film"], vectors=str(path), model=None, others=["the other film"])
    assert sorted(means.words) == ["film", "other"]
    with pytest.raises(InputError, match="none of the 1 words of the training texts"):
        word_table(["unheard"], vectors=str(path), model=None, others=["a film"])
