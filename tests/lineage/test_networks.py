"""Networks without attention against values computed by hand, and as contestants."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import nn

from filbert.compare.recipe import NetworkOptions
from filbert.errors import ConfigError
from filbert.lineage.classifier import NetworkClassifier, fit_network
from filbert.lineage.networks import Convolutional, Recurrent
from filbert.lineage.words import frequent_words, split_words, word2vec, word_table
from filbert.train.linear import joined
from filbert.train.options import flat

SMALL = flat(NetworkOptions(dim=8, hidden=6, min_count=1, lr=0.02, batch_size=16))


@pytest.fixture(scope="module")
def fitted(film_splits, film_task):
    def fit(kind, *, seed=0, **changes) -> NetworkClassifier:
        train = [joined(row) for row in film_splits["train"]], film_splits["train"]
        options = SMALL | changes
        return fit_network(
            kind, film_task, options, train=train, dev=film_splits["dev"], seed=seed
        )[0]

    return fit


@pytest.mark.parametrize("kind", ["lstm", "bigru", "cnn"])
def test_a_network_learns_and_the_same_seed_gives_the_same_model(
    kind, fitted, film_splits, film_task
):
    first, again, other = (fitted(kind, seed=seed) for seed in (0, 0, 1))
    scores = [
        [answer["scores"]["pos"] for answer in model.predict_rows(film_splits["test"])]
        for model in (first, again, other)
    ]
    assert scores[0] == scores[1] != scores[2]
    gold = [film_task.gold(row) for row in film_splits["test"]]
    assert first.task.metrics(gold, first.predict_rows(film_splits["test"]))["accuracy"] > 0.9


def test_words_have_their_vectors_from_a_file(fitted, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("the " + " ".join("7" * 8) + "\nqqq 0 1 0 0 0 0 0 0\n")
    network = fitted("bigru", vectors=str(path), steps=1, lr=1e-9).network
    row = network.words.weight[network.rows["the"]]
    torch.testing.assert_close(row, torch.full((8,), 7.0))


@pytest.mark.parametrize("kind", ["lstm", "bigru", "cnn"])
def test_padding_changes_nothing(kind):
    torch.manual_seed(0)
    sizes = (4, 3, 2, 0.5)
    network = (Convolutional(*sizes) if kind == "cnn" else Recurrent(kind, *sizes)).eval()
    long, short = torch.randn(7, 4), torch.randn(2, 4)
    both = nn.utils.rnn.pad_sequence([long, short], batch_first=True, padding_value=9.0)
    if kind == "cnn":
        # A window over the end of a text reads zeros.
        both = nn.utils.rnn.pad_sequence([long, short], batch_first=True)
    together = network(both, torch.tensor([7, 2]))
    torch.testing.assert_close(together[1], network(short[None], torch.tensor([2]))[0])
    torch.testing.assert_close(together[0], network(long[None], torch.tensor([7]))[0])


def test_filters_see_windows_of_words():
    network = Convolutional(1, 1, 1, 0.0).eval()
    with torch.no_grad():
        for layer in network.filters:
            layer.weight.fill_(1.0)
            layer.bias.zero_()
        network.out.weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
        network.out.bias.zero_()
    vectors = torch.tensor([1.0, -2.0, 3.0, 4.0, -1.0, 2.0])[None, :, None]
    # The largest sums of 3, 4 and 5 neighbours: 3+4-1 = 6, 3+4-1+2 = 8, -2+3+4-1+2 = 6.
    assert network(vectors, torch.tensor([6])).item() == pytest.approx(6 + 80 + 600)
    assert network(-vectors.abs(), torch.tensor([6])).item() == 0


def test_word2vec_without_gensim_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(ConfigError, match="word2vec needs gensim; install it with: pip install"):
        word2vec(["a b"], dim=4, seed=0)


def test_words_and_their_vectors():
    assert split_words("It's well-made, isn't it??") == [
        "It", "'s", "well", "-", "made", ",", "is", "n't", "it", "??",
    ]  # fmt: skip
    texts = ["a b b", "B c"]
    assert frequent_words(texts, most=4, min_count=1) == ["[PAD]", "[UNK]", "b", "a"]
    table = word_table(["[PAD]", "[UNK]", "b"], texts, {"vectors": "word2vec", "dim": 5}, 1)
    again = word_table(["[PAD]", "[UNK]", "b"], texts, {"vectors": "word2vec", "dim": 5}, 1)
    assert table.shape == (3, 5)
    assert torch.equal(table, again)
    other = word_table(["[PAD]", "[UNK]", "b"], texts, {"vectors": "word2vec", "dim": 5}, 2)
    assert not torch.equal(table[2], other[2])
    assert not np.allclose(table[2], 0)
