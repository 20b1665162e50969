"""benchmarks/against/pretrain_mlm.py: its blocks and masks, its judge, its clock and its table."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks" / "against"
SHAPE = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}


@pytest.fixture
def tokenizer(load, vocab):
    return load("pretrain_data").bert_tokenizer(vocab)


LINES = ["the film was good", "a play , bad"] * 40


# Blocks and masks


def test_blocks_are_cut_from_lines_end_to_end_and_the_rest_is_dropped(load, tokenizer):
    blocks = load("pretrain_data").grouped(tokenizer, LINES[:3], 5)
    words = tokenizer.batch_decode(blocks)
    assert words == ["[CLS] the film was good", "[SEP] [CLS] a play,", "bad [SEP] [CLS] the film"]


def test_every_thousand_texts_are_cut_apart_as_run_mlm_does(load, tokenizer, monkeypatch):
    data = load("pretrain_data")
    monkeypatch.setattr(data, "TEXTS_AT_ONCE", 1)
    # Six tokens each, so one block of five, and one left over.
    assert data.grouped(tokenizer, LINES[:2], 5).tolist() == [
        [2, 5, 7, 8, 11],
        [2, 6, 24, 26, 12],
    ]


def test_framed_blocks_hold_running_text_between_cls_and_sep(load, tokenizer):
    blocks = load("pretrain_data").framed(tokenizer, LINES[:3], 6)
    assert tokenizer.batch_decode(blocks) == [
        "[CLS] the film was good [SEP]",
        "[CLS] a play, bad [SEP]",
        "[CLS] the film was good [SEP]",
    ]


def test_15_percent_are_masked_80_10_10_and_never_a_special_token(load, tokenizer):
    data = load("pretrain_data")
    blocks = data.framed(tokenizer, LINES * 50, 42)
    found = data.mask(blocks, tokenizer, seed=0)
    assert len(found.labels) == 6 * len(blocks)  # 0.15 of 40
    assert (blocks[found.rows, found.columns] == found.labels).all()
    assert not np.isin(found.labels, tokenizer.all_special_ids).any()
    untouched = np.ones(blocks.shape, bool)
    untouched[found.rows, found.columns] = False
    assert (found.input_ids[untouched] == blocks[untouched]).all()
    new = found.input_ids[found.rows, found.columns]
    # 2,400 draws: three standard deviations are 0.025; a random word is the old one or [MASK] in
    # 2 of 35 cases.
    assert np.mean(new == tokenizer.mask_token_id) == pytest.approx(0.8, abs=0.03)
    assert np.mean(new == found.labels) == pytest.approx(0.1, abs=0.03)


def test_the_same_seed_asks_the_same_questions_before_and_after_saving(load, tokenizer, tmp_path):
    data = load("pretrain_data")
    blocks = data.framed(tokenizer, LINES, 12)
    first, again, other = (data.mask(blocks, tokenizer, seed) for seed in (0, 0, 1))
    assert first.digest == again.digest != other.digest
    first.save(tmp_path / "set.npz")
    assert data.HeldOut.load(tmp_path / "set.npz").digest == first.digest
    few = first.first(2)
    assert len(few.input_ids) == 2 and set(few.rows) == {0, 1}


def test_the_held_out_novel_gives_over_20000_questions_in_both_shapes(load, shared_data):
    data = load("pretrain_data")
    vocabulary = data.bert_tokenizer(shared_data / "tokenizers" / "bert-base-uncased")
    lines = data.read_lines(shared_data / "eltec_small" / "valid.txt.xz")
    sets = data.held_out_sets(vocabulary, lines, 128)
    assert {name: found.input_ids.shape[1] for name, found in sets.items()} == {
        "framed": 128,
        "grouped": 128,
    }
    assert all(len(found.labels) >= 20_000 for found in sets.values())


# The judge


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_the_judge_finds_the_loss_that_transformers_finds(load, tokenizer, tmp_path, activation):
    from transformers import BertConfig, BertForMaskedLM

    data, judge = load("pretrain_data"), load("pretrain_judge")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_act=activation, initializer_range=0.5, **SHAPE
    )
    model = BertForMaskedLM(config).eval()
    # Drawn as zeros, and then their place would not matter.
    torch.nn.init.normal_(model.cls.predictions.bias)
    found = data.mask(data.framed(tokenizer, LINES, 10), tokenizer, seed=0)
    ids = torch.from_numpy(found.input_ids).long()
    labels = torch.full_like(ids, -100)
    labels[found.rows, found.columns] = torch.from_numpy(found.labels)
    with torch.no_grad():
        theirs = model(input_ids=ids, labels=labels)
    right = (theirs.logits.argmax(-1) == labels).sum() / len(found.labels)
    model.save_pretrained(tmp_path)
    ours = judge.judge_folder(tmp_path, {"framed": found})["framed"]
    # Float32, in another order of summation.
    assert ours["loss"] == pytest.approx(float(theirs.loss), rel=1e-5)
    assert ours["accuracy"] == pytest.approx(float(right))
    state = judge.judge(model.state_dict(), config.to_dict(), found)
    assert state["loss"] == pytest.approx(ours["loss"], rel=1e-6)


def test_the_judge_reads_a_folder_that_filbert_wrote(load, tokenizer, tmp_path):
    from transformers import BertForMaskedLM

    from filbert.checkpoints import huggingface
    from filbert.checkpoints.checkpoint import Checkpoint
    from filbert.model.config import EncoderConfig
    from filbert.model.encoder import Encoder, initialize
    from filbert.model.heads import Model, new_head

    data, judge = load("pretrain_data"), load("pretrain_judge")
    torch.manual_seed(0)
    config = EncoderConfig(vocab_size=tokenizer.vocab_size, pooler=None, **SHAPE)
    model = Model(Encoder(config), new_head("masked_lm", config))
    initialize(model, 0.5)
    written = Checkpoint(config, "bert", model.state_dict(), head="masked_lm")
    huggingface.write(written, tmp_path)
    found = data.mask(data.framed(tokenizer, LINES, 10), tokenizer, seed=0)
    ours = judge.judge_folder(tmp_path, {"framed": found})["framed"]
    theirs = BertForMaskedLM.from_pretrained(tmp_path).eval()
    again = judge.judge(theirs.state_dict(), theirs.config.to_dict(), found)
    assert ours["loss"] == pytest.approx(again["loss"], rel=1e-6)


# The peer's clock


def test_the_clock_counts_training_alone_and_stops_at_the_budget(load, monkeypatch):
    pytest.importorskip("accelerate", reason="the peer's Trainer needs it")
    peer = load("peer_pretrain")
    now = [100.0]
    monkeypatch.setattr(peer.time, "perf_counter", lambda: now[0])

    def look(model):
        now[0] += 1_000.0  # an evaluation
        return {"loss": 1.0}

    clock = peer.Clock(10.0, 7, every=4.0, look=look)
    control = SimpleNamespace(should_training_stop=False)
    clock.on_train_begin(None, None, control)
    while not control.should_training_stop:
        now[0] += 1.5
        clock.on_step_end(None, None, control, model=None)
    assert (clock.steps, clock.seconds) == (7, 10.5)
    assert [(seconds, tokens) for seconds, tokens, _ in clock.curve] == [(4.5, 21), (9.0, 42)]
    assert (clock.timed_steps, clock.timed_seconds) == (5, 7.5)


# Figures


def test_tokens_and_seconds_are_summed_over_the_steps_of_a_log(load, tmp_path):
    lines = [
        {"step": 1, "tokens_per_second": 100.0, "seconds": 2.0, "loss": 9.0},
        {"step": 1, "split": "dev", "metrics": {"mlm_loss": 8.5, "mlm_accuracy": 0.1}},
        {"step": 2, "tokens_per_second": 50.0, "seconds": 4.0, "loss": 8.0},
        {"step": 2, "split": "dev", "metrics": {"mlm_loss": 7.5, "mlm_accuracy": 0.2}},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = load("pretrain_mlm").read_metrics(path)
    assert (found["tokens"], found["training_seconds"], found["steps"]) == (300, 4.0, 2)
    assert found["tokens_per_second"] == 75.0
    assert found["curve"] == [
        (2.0, 200, {"loss": 8.5, "accuracy": 0.1}),
        (4.0, 300, {"loss": 7.5, "accuracy": 0.2}),
    ]


def record(side, minutes, speed, loss, *, seed=0, others=0.0):
    curve = [(seconds * minutes, 0, {"loss": value}) for seconds, value in ((20, 9.0), (60, 5.0))]
    return {
        "side": side,
        "seconds": 60.0 * minutes,
        "seed": seed,
        "lr": 1e-3,
        "tokens_per_second": speed,
        "tokens": 1_000,
        "steps": 10,
        "precision": "float32",
        "judged": {
            "framed": {"loss": loss, "accuracy": 0.1},
            "grouped": {"loss": loss + 0.1, "accuracy": 0.1},
        },
        "curve": curve,
        "others": others,
    }


def test_a_loss_is_reached_between_two_points_of_a_curve_moved_to_the_judge(load):
    reach = load("pretrain_table").time_to_reach
    found = record("filbert", 1, 1.0, 6.0)  # the judge says 6 where the curve ends in 5
    assert reach(found, 10.0, "framed") == 20.0  # 9 + 1
    assert reach(found, 8.0, "framed") == pytest.approx(40.0)
    assert reach(found, 6.0, "framed") == pytest.approx(60.0)
    assert reach(found, 5.9, "framed") is None


def test_the_report_says_which_goals_are_met(load):
    report = load("pretrain_table").report
    runs = [
        record("transformers", 10, 100.0, 7.0),
        record("filbert", 10, 450.0, 6.0),
        record("filbert", 3, 400.0, 6.9, others=0.5),
    ]
    text = report(runs)
    assert "450 against 100, 4.50 times; goal 4 times: met" in text
    assert "goal, the peer's loss in 3 min, in both shapes: met" in text
    assert "other programs were at work: filbert, 3 min, lr 0.001, seed 0." in text
    runs[1]["tokens_per_second"] = 399.0
    runs[2]["judged"]["grouped"]["loss"] = 7.2
    text = report(runs)
    assert "3.99 times; goal 4 times: missed" in text
    assert "in both shapes: missed" in text
    assert "Seed 0" not in report(runs[:2])


# Runs


def small(bench, data, tmp_path, *words):
    return bench.parse(["--data", str(data), "--small", "--out", str(tmp_path), *words])


def test_a_result_that_is_there_is_not_made_again(load, shared_data, tmp_path, monkeypatch):
    bench = load("pretrain_mlm")
    made = []

    def pretend(request, log):
        made.append((request["side"], request["seconds"]))
        if len(made) == 2:
            return None  # the first time, the shorter run of filbert fails
        found = record(request["side"], 1, 1.0, 7.0)
        return {name: found[name] for name in ("tokens_per_second", "judged", "others")}

    monkeypatch.setattr(bench, "run_alone", pretend)
    given = small(bench, shared_data, tmp_path, "--set", "lr=2e-3", "schedule=cosine")
    records, failures = bench.compare(given, tmp_path, None)
    assert (len(records), failures) == (2, 1)
    runs = [(side, pytest.approx(seconds)) for side, seconds in (("transformers", 6.0),)]
    runs += [("filbert", pytest.approx(3.0)), ("filbert", pytest.approx(6.0))]
    assert made == runs
    assert records[1]["recipe"]["lr"] == 2e-3
    assert records[1]["recipe"]["schedule"] == "cosine"
    records, failures = bench.compare(given, tmp_path, None)
    assert (len(records), failures) == (3, 0)
    assert made[3:] == runs[1:2]
    # Another learning rate is another run.
    bench.compare(small(bench, shared_data, tmp_path, "--set", "lr=3e-3"), tmp_path, None)
    assert made[4:] == runs[1:]


def test_a_search_tries_every_learning_rate_on_both_sides(load, shared_data, tmp_path):
    bench = load("pretrain_mlm")
    given = small(bench, shared_data, tmp_path, "--search", "1", "--lrs", "1e-3", "2e-3")
    found = [
        (side, settings.get("recipe", settings)["lr"])
        for side, minutes, settings in bench.plans(given)
    ]
    assert found == [(s, lr) for lr in (1e-3, 2e-3) for s in ("transformers", "filbert")]


@pytest.mark.parametrize("side", ["filbert", "transformers"])
def test_each_side_trains_for_its_time_and_is_judged(load, shared_data, tmp_path, side):
    if side == "transformers":
        pytest.importorskip("accelerate", reason="the peer's Trainer needs it")
    bench = load("pretrain_mlm")
    given = small(bench, shared_data, tmp_path)
    common = bench.prepare(given, tmp_path)
    settings = {s: settings for s, _, settings in bench.plans(given)}[side]
    request = bench.request_of(side, 2 / 60, 0, common, settings)
    found = bench.run_alone(request | {"out": str(tmp_path / "run")}, tmp_path / "log.txt")
    assert found is not None, (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert found["steps"] > 0 and found["tokens"] > 0
    assert found["curve"]
    # A fresh model says log(30,522) = 10.33 nats; a few steps move it a little.
    assert all(5.0 < judged["loss"] < 10.5 for judged in found["judged"].values())
    assert set(found["judged"]) == {"framed", "grouped"}
