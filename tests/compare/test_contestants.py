"""One contestant with one seed: classifiers, what their seconds include, and costs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from filbert.compare import contestants
from filbert.compare.contestants import ContestantRun, EnergyMeter, measure, run_contestant
from filbert.compare.recipe import Contestant, NetworkOptions
from filbert.data.records import Row
from filbert.errors import ConfigError
from filbert.lineage.words import word_means
from filbert.train.options import flat

SMALL = flat(NetworkOptions(dim=8, hidden=6, min_count=1, lr=0.02, batch_size=16))


@pytest.fixture
def job(films, tiny_model, tmp_path):
    def make(kind="encoder", **options):
        if kind == "encoder":
            options = {"steps": 2, "max_length": 32, "precision": "float32", "device": "cpu",
                       "model": str(tiny_model)} | options  # fmt: skip
        return ContestantRun(
            Contestant("it", kind, options, cleaning=(), seeds=(0,)), seed=0,
            data={name: str(films / f"{name}.csv") for name in ("train", "dev", "test")},
            labels=("neg", "pos"), positive="pos", out=str(tmp_path / "seed-0"), fingerprint="x",
        )  # fmt: skip

    return make


def facts_of(job):
    return json.loads((job.folder / "run.json").read_text(encoding="utf-8"))


# Runs


def test_training_seconds_are_texts_to_weights_without_dev(job, capsys):
    frozen = job(freeze="encoder", eval_every=1)
    run_contestant(frozen)
    run = facts_of(frozen)
    parts = [run[name] for name in (
        "training_seconds", "train_tokenise_seconds", "features_seconds",
    )]  # fmt: skip
    assert run["costs"]["training_seconds"] == pytest.approx(sum(parts))
    assert all(part > 0 for part in parts)
    # Of three splits one.
    assert run["train_tokenise_seconds"] < run["tokenise_seconds"]
    # A run that begins has nothing to resume, and says nothing about it.
    assert "resume" not in capsys.readouterr().err


def test_a_label_with_a_comma_stays_one_label(job, tmp_path):
    labels = ("Business, finance", "arts", "sports, games")
    path = tmp_path / "news.jsonl"
    rows = [{"text": f"a story {i}", "label": labels[i % 3]} for i in range(9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {name: str(path) for name in ("train", "dev", "test")}
    one = replace(job(), labels=labels, positive=None, data=data)
    run_contestant(one)
    assert facts_of(one)["labels"] == list(labels)


def test_a_gpt_2_competes_like_an_encoder(job, tmp_path, shared_data):
    transformers = pytest.importorskip("transformers")
    sizes = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, n_positions=64)
    transformers.GPT2LMHeadModel(sizes).save_pretrained(tmp_path / "gpt2")
    shutil.copytree(shared_data / "tokenizers/gpt2", tmp_path / "gpt2", dirs_exist_ok=True)
    one = job(model=str(tmp_path / "gpt2"))
    run_contestant(one)
    assert facts_of(one)["model"]["family"] == "gpt2"
    config = json.loads((one.folder / "model/config.json").read_text())
    assert config["architectures"] == ["GPT2ForSequenceClassification"]


def test_words_of_dev_and_test_have_their_vectors_from_a_file(job, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("the 1 0\nunheard 0 1\n")
    one = job("static", vectors=str(path), model=None, C=1.0)
    test = tmp_path / "test.csv"
    test.write_text(Path(one.data["test"]).read_text().rstrip() + "\nunheard,pos\n")
    run_contestant(replace(one, data=one.data | {"test": str(test)}))
    # Two rows of the table, their words, and the weights, bias and scale of two features.
    assert facts_of(one)["costs"]["bytes_on_disk"] == 2 * 2 * 4 + 10 + 8 * (4 + 2 + 2 + 2)


@pytest.mark.parametrize("kind", ["lstm", "bigru", "cnn"])
def test_a_network_run_writes_facts_and_predictions(kind, job, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("the 1 0 0 0 0 0 0 0\n")
    one = job(kind, **SMALL | {"vectors": str(path), "steps": 3, "max_length": 4})
    run_contestant(one)
    assert facts_of(one)["costs"]["parameters"] > 8 * 50
    lines = (one.folder / "predictions/test.jsonl").read_text().splitlines()
    assert any(json.loads(line)["truncated"] for line in lines)


def test_word2vec_learns_the_words_of_the_training_texts(job):
    one = job("static", vectors="word2vec", model=None, C=1.0)
    run_contestant(one)
    facts = facts_of(one)
    assert facts["model"]["source"] == "word2vec"
    assert facts["metrics"]["test"]["accuracy"] > 0.8


# Word vectors


def test_word_vectors_come_from_the_file_or_from_the_pieces_of_a_model(tmp_path, tiny_model):
    from filbert.checkpoints.opening import read_checkpoint, read_tokenizer

    path = tmp_path / "v.txt"
    path.write_text("film 1 0\nother 5 5\ngood 0 2\nnever 7 7\n")
    every = ["A good film", "unheard", "the other film"]
    means = word_means(every[:2], every, vectors=str(path), model=None)
    assert sorted(means.words) == ["film", "good", "other"]
    assert means.means(["good film!", "zzz"]).tolist() == [[0.5, 1.0], [0.0, 0.0]]
    learned = word_means(["a good film", "a film"], every, vectors="word2vec", model=None)
    assert sorted(learned.words) == ["a", "film", "good"]
    with pytest.raises(ConfigError, match="none of the 1 words of the training texts"):
        word_means(["unheard"], every, vectors=str(path), model=None)
    # A word of several pieces has the mean of their rows.
    table = read_checkpoint(tiny_model).tensors["encoder.embeddings.word.weight"].float().numpy()
    pieces = read_tokenizer(tiny_model).encode(["films"], max_length=64)[0].input_ids[1:-1]
    assert len(pieces) > 1
    means = word_means(["films"], ["films"], vectors=None, model=str(tiny_model))
    np.testing.assert_allclose(means.table[0], table[pieces].mean(0), rtol=0, atol=1e-6)


# Costs


class Clock:
    """A predictor that takes so many seconds a row, and the clock that it moves."""

    def __init__(self, *paces: float) -> None:
        self.now, self.paces, self.batches = 0.0, list(paces), []

    def predict(self, rows):
        self.batches.append([row.line for row in rows])
        self.now += len(rows) * (self.paces.pop(0) if len(self.paces) > 1 else self.paces[0])
        return []

    def measure(self, monkeypatch):
        monkeypatch.setattr(contestants.time, "perf_counter", lambda: self.now)
        return measure(self.predict, [Row({"text": str(i)}, "x", i + 1) for i in range(5000)])


def test_speed_is_the_median_pass_over_spread_rows_after_a_warm_up(monkeypatch):
    clock = Clock(0.001, 0.001, 0.002, 0.004, 0.001, 0.002)
    found = clock.measure(monkeypatch)
    assert [len(lines) for lines in clock.batches[:7]] == [64, *[1024] * 5, 1]
    assert found["rows_per_second"] == pytest.approx(500)
    lines = clock.batches[5]
    assert (lines[0], lines[-1]) == (1, 5000)
    assert {b - a for a, b in zip(lines, lines[1:], strict=False)} <= {4, 5}


def test_a_slow_model_is_timed_in_fewer_passes(monkeypatch):
    clock = Clock(0.02)
    clock.measure(monkeypatch)
    # Two passes of 20.5 seconds, then 200 single texts of 0.02 seconds.
    assert [len(lines) for lines in clock.batches].count(1024) == 2


def test_latency_is_the_median_of_single_texts_until_the_time_is_over(monkeypatch):
    clock = Clock(*[0.001] * 6, *[0.001] * 120, *[0.003] * 60, 0.6)
    found = clock.measure(monkeypatch)
    assert found["latency_seconds"] == pytest.approx(0.001)
    assert 190 < len(clock.batches) - 6 < 200


def test_energy_is_the_sum_of_sockets_whose_counters_begin_again(tmp_path):
    def write(socket, value):
        (tmp_path / socket).mkdir(exist_ok=True)
        (tmp_path / socket / "energy_uj").write_text(f"{value}\n")
        (tmp_path / socket / "max_energy_range_uj").write_text("10000000\n")

    assert EnergyMeter(str(tmp_path)).read() == 0
    write("intel-rapl:0", 9_000_000)
    write("intel-rapl:1", 1_000_000)
    write("intel-rapl:0:0", 5)  # the cores of the first socket
    meter = EnergyMeter(str(tmp_path))
    write("intel-rapl:0", 500_000)
    write("intel-rapl:1", 3_000_000)
    write("intel-rapl:0:0", 900_000)
    assert meter.read() == pytest.approx(3.5)
