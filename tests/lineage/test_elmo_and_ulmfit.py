"""ELMo and ULMFiT against arithmetic written in the test, and from raw text to a comparison."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import filbert
from filbert.cli.main import run
from filbert.errors import FilbertError
from filbert.lineage.elmo import Elmo, ElmoConfig, ScalarMix, characters, read_allennlp
from filbert.lineage.pretraining import adapt, load
from filbert.lineage.ulmfit import AwdLstm, AwdLstmConfig, UlmfitClassifier, locked_dropout
from filbert.train.linear import joined

SIZES = {"dim": 7, "projection_dim": 3, "n_layers": 2, "cell_clip": 0.4, "proj_clip": 0.4}
FILTERS = [[1, 2], [3, 4]]


# ELMo


def test_words_are_spelled_in_bytes_between_marks():
    ids = characters(["né", "x" * 60])
    assert ids.shape == (4, 50)
    # All are one more than the authors' numbers: 256 to 260 for text, word and padding.
    assert ids[0, :4].tolist() == [259, 257, 260, 261]
    assert ids[1, :6].tolist() == [259, 111, 196, 170, 260, 261]
    assert ids[2, -2:].tolist() == [121, 260]
    assert ids[3, :4].tolist() == [259, 258, 260, 261]


def published_file(path):
    """Write random weights in the layout of AllenNLP, and return them."""
    import h5py

    draw = np.random.default_rng(0)
    count = sum(n for _, n in FILTERS)
    shapes = {"char_embed": (261, 5), "CNN_proj/W_proj": (count, 3), "CNN_proj/b_proj": (3,)}
    for at, (size, n) in enumerate(FILTERS):
        shapes |= {f"CNN/W_cnn_{at}": (1, size, 5, n), f"CNN/b_cnn_{at}": (n,)}
    for name in ("carry", "transform"):
        shapes |= {f"CNN_high_0/W_{name}": (count, count), f"CNN_high_0/b_{name}": (count,)}
    for side in (0, 1):
        for layer in (0, 1):
            cell = f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            shapes |= {f"{cell}/W_0": (6, 28), f"{cell}/B": (28,), f"{cell}/W_P_0": (7, 3)}
    tensors = {name: draw.normal(0, 0.4, size=shape).astype("f4") for name, shape in shapes.items()}
    for name in tensors:
        if name.endswith("W_P_0"):  # some states reach their bound
            tensors[name] *= 3
    with h5py.File(path, "w") as file:
        for name, tensor in tensors.items():
            file[name] = tensor
    return tensors


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def word_vector(ids, w):
    """Compute the vector of a word from its characters, as bilm-tf does."""
    letters = np.concatenate([np.zeros((1, 5)), w["char_embed"]])[ids]
    found = []
    for at, (size, _) in enumerate(FILTERS):
        kernel = w[f"CNN/W_cnn_{at}"][0]
        windows = [
            np.einsum("cd,cdn->n", letters[start : start + size], kernel)
            for start in range(len(letters) - size + 1)
        ]
        found.append(np.maximum(np.max(windows, 0) + w[f"CNN/b_cnn_{at}"], 0))
    x = np.concatenate(found)
    carry = sigmoid(x @ w["CNN_high_0/W_carry"] + w["CNN_high_0/b_carry"])
    new = np.maximum(x @ w["CNN_high_0/W_transform"] + w["CNN_high_0/b_transform"], 0)
    return (carry * new + (1 - carry) * x) @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"]


def states(inputs, w, side, layer):
    """Compute the states of TensorFlow's LSTMCell with projection and bounds, word by word."""
    cell_name = f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    state, cell, found = np.zeros(3), np.zeros(7), []
    for x in inputs:
        gates = np.concatenate([x, state]) @ w[f"{cell_name}/W_0"] + w[f"{cell_name}/B"]
        i, j, f, o = np.split(gates, 4)
        cell = np.clip(sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(j), -0.4, 0.4)
        state = np.clip((sigmoid(o) * np.tanh(cell)) @ w[f"{cell_name}/W_P_0"], -0.4, 0.4)
        found.append(state)
    return np.array(found)


def test_published_weights_compute_what_the_authors_code_does(tmp_path):
    w = published_file(tmp_path / "weights.hdf5")
    options = {
        "char_cnn": {"embedding": {"dim": 5}, "filters": FILTERS, "n_highway": 1},
        "lstm": SIZES,
    }
    (tmp_path / "options.json").write_text(json.dumps(options))
    model, _ = load(tmp_path, "elmo")
    texts = [characters(["so", "it", "goes"]), characters(["on"])]
    lengths = torch.tensor([len(text) for text in texts])
    ids = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(t) for t in texts], True)
    found = model(ids, lengths)
    for row, text in enumerate(texts):
        words = np.stack([word_vector(word, w) for word in text])
        ahead = [words, states(words, w, 0, 0)]
        ahead.append(states(ahead[1], w, 0, 1) + ahead[1])
        behind = [words, states(words[::-1], w, 1, 0)[::-1]]
        behind.append(states(behind[1][::-1], w, 1, 1)[::-1] + behind[1])
        for layer in range(3):
            expected = np.concatenate([ahead[layer], behind[layer]], -1)
            got = found[layer][row, : len(text)].detach().numpy()
            np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)
    (tmp_path / "weights.hdf5").write_bytes(b"nothing")
    with pytest.raises(FilbertError, match="not a file of ELMo's weights"):
        read_allennlp(tmp_path / "weights.hdf5", options)


def test_the_mix_is_a_weighted_mean_times_a_factor():
    mix = ScalarMix(2)
    with torch.no_grad():
        mix.shares.copy_(torch.tensor([0.0, 3.0]).log1p())
        mix.factor.fill_(2.0)
    assert mix([torch.tensor([5.0]), torch.tensor([10.0])]).item() == pytest.approx(2 * 9.0)


def test_a_text_has_the_same_vectors_in_company():
    torch.manual_seed(0)
    model = Elmo(ElmoConfig(width=3, cells=4, filters=((1, 2), (2, 2)))).eval()
    texts = [torch.from_numpy(characters(text.split())) for text in ("a b c d", "e")]
    ids = torch.nn.utils.rnn.pad_sequence(texts, True)
    together = model(ids, torch.tensor([6, 3]))
    for layer, alone in zip(together, model(texts[1][None], torch.tensor([3])), strict=True):
        torch.testing.assert_close(layer[1, :3], alone[0])


# ULMFiT


def test_the_language_model_is_an_lstm_over_shared_vectors():
    torch.manual_seed(0)
    model = AwdLstm(AwdLstmConfig(vocab_size=9, width=3, cells=5, layers=2)).eval()
    ids = torch.randint(0, 9, (2, 6))
    states, after = model(ids)
    expected = model.table(ids)
    for layer in model.layers:
        expected, _ = layer(expected)
    torch.testing.assert_close(states, expected)
    torch.testing.assert_close(model.logits(states), expected @ model.table.weight.T + model.bias)
    # A state goes on.
    first, state = model(ids[:, :4])
    second, _ = model(ids[:, 4:], state)
    torch.testing.assert_close(torch.cat((first, second), 1), states)


def test_all_words_of_a_text_lose_the_same_elements():
    dropped = locked_dropout(torch.ones(3, 4, 200), 0.5, training=True)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert not torch.equal(dropped[0], dropped[1])
    assert 0.8 < dropped.mean().item() < 1.2


def test_what_is_dropped_and_how_often(monkeypatch):
    model = AwdLstm(AwdLstmConfig(vocab_size=9, width=3, cells=5, layers=2, dropout=0.5))
    calls = []

    def dropout(values, rate, training=True):
        calls.append((tuple(values.shape), rate))
        return values

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    model(torch.zeros(4, 6, dtype=torch.long))
    # Half of section 4.1's rates: words, inputs, then of each layer recurrent weights and states.
    assert calls == [
        ((9, 1), 0.025), ((4, 1, 3), 0.2), ((20, 5), 0.25), ((4, 1, 5), 0.15), ((12, 3), 0.25),
        ((4, 1, 3), 0.2),
    ]  # fmt: skip


def test_a_language_model_learns_the_texts_of_a_task():
    torch.manual_seed(0)
    model = AwdLstm(AwdLstmConfig(vocab_size=5, width=8, cells=8, layers=2, dropout=0.0))
    listed, texts = ["[PAD]", "[UNK]", "a", "b", "c"], ["a b c"] * 60
    ids = torch.tensor([[2, 3, 4, 2, 3, 4, 2]])

    def loss():
        with torch.no_grad():
            scores = model.logits(model(ids[:, :-1])[0])
        return torch.nn.functional.cross_entropy(scores[0], ids[0, 1:]).item()

    before = loss()
    adapt(model, texts, listed, {"batch_size": 2, "epochs": 100.0, "lr": 0.02})
    assert before > 1.5
    assert loss() < 0.5
    adapt(model, ["a"], listed, {"batch_size": 2, "epochs": 1.0, "lr": 0.02})  # too short: nothing


def test_rates_rise_fall_and_reach_lower_layers_later():
    model = AwdLstm(AwdLstmConfig(vocab_size=9, width=3, cells=5, layers=3))
    network = UlmfitClassifier(model, ["x"] * 9, 2, 10)
    assert len(network.groups()) == 5
    assert network.rates(0.05) == pytest.approx([1 / 32 + 31 / 32 * 0.5, 0, 0, 0, 0])
    assert network.rates(0.1)[:3] == pytest.approx([1, 1 / 2.6, 0])
    assert network.rates(0.55) == pytest.approx(
        [(1 / 32 + 31 / 32 * 0.5) / 2.6**k for k in range(5)]
    )
    assert network.rates(1.0)[0] == pytest.approx(1 / 32)


# From raw text to a comparison


def test_pretrained_models_become_contestants(films, film_splits, tmp_path, capsys, one_process):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(joined(row) for row in film_splits["train"]) * 6)
    data = {name: str(films / f"{name}.csv") for name in ("train", "dev", "test")}
    study = data | {"positive": "pos", "resamples": 50, "contestants": {}}
    for kind, rate in (("elmo", "1e-4"), ("ulmfit", "0.01")):
        folder = tmp_path / kind
        words = [
            "pretrain",
            f"{kind}-small",
            "--corpus",
            str(text),
            "--out",
            str(folder),
            "--lr",
            rate,
        ]
        sizes = "--num-hidden-layers 2 --hidden-size 24 --intermediate-size 32 --batch-size 4"
        assert run([*words, *sizes.split(), "--steps", "60", "--json"]) == 0
        dev = json.loads(capsys.readouterr().out)["dev"]
        assert dev["perplexity"] == pytest.approx(np.exp(dev["loss"]))
        if kind == "elmo":
            both = [dev[f"loss_{direction}"] for direction in ("forward", "backward")]
            assert dev["loss"] == pytest.approx(np.mean(both))
            assert dev["perplexity_backward"] == pytest.approx(np.exp(both[1]))
        rows = (folder / "metrics.jsonl").read_text().splitlines()
        losses = [json.loads(row)["loss"] for row in rows]
        assert len(losses) == 60
        assert np.mean(losses[-5:]) < np.mean(losses[:5])
        study["contestants"][kind] = {
            "kind": kind, "model": str(folder), "hidden": 16, "steps": 120,
            "lr": 0.005 if kind == "elmo" else 0.02,
        }  # fmt: skip
    with pytest.raises(FilbertError, match="of the kind ulmfit, not elmo"):
        load(tmp_path / "ulmfit", "elmo")
    with one_process():
        filbert.compare(study, out=tmp_path / "out")
    for kind in ("elmo", "ulmfit"):
        facts = json.loads((tmp_path / "out/contestants" / kind / "seed-0/run.json").read_text())
        assert facts["costs"]["parameters"] > 1_000
        assert facts["metrics"]["test"]["accuracy"] > 0.8


def test_too_little_text_and_foreign_options_are_refused(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a b a b " * 20)
    given = {"objective": "elmo", "corpus": str(text), "out": str(tmp_path / "x")}
    with pytest.raises(FilbertError, match="80 words, too few"):
        filbert.pretrain(**given)
    with pytest.raises(FilbertError, match="mask_rate is not an option of this recipe"):
        filbert.pretrain(**given, mask_rate=0.2)
