"""benchmarks/pretrain_gpu.py: its FLOPs, its batches, and that its loop trains."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from filbert.data.examples import Example, collate
from filbert.data.masking import MaskedRow
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model, new_head
from filbert.speed.flops import forward_flops, training_flops

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "pretrain_gpu.py"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pretrain_gpu", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def config(**changes: int | None) -> EncoderConfig:
    sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2}
    return EncoderConfig(**sizes | {"intermediate_size": 20} | changes, pooler=None)


def example(length: int, num_masked: int) -> Example:
    target = MaskedRow(np.arange(1, 1 + num_masked), np.full(num_masked, 7), None)
    return Example(0, np.full(length, 5, np.int32), np.zeros(length, np.int32), length, target)


def test_the_flops_of_a_small_model_are_those_counted_by_hand(bench):
    # One layer, H = 4, F = 6, V = 10; one sequence of 3 tokens, 2 of them masked.
    small = config(
        vocab_size=10,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=6,
    )
    multiply_adds = (
        3 * 4 * 4 * 4  # query, key, value and output of 3 tokens
        + 3 * (4 * 6 + 6 * 4)  # up and down
        + 3 * 3 * 4  # 3 x 3 scores of width 4
        + 3 * 3 * 4  # and the mixture of the values
        + 2 * (4 * 4 + 4 * 10)  # the head's transform and word table, for 2 tokens
    )
    assert forward_flops(small, [3], num_masked=2) == 2 * multiply_adds == 1_040
    assert bench.step_flops(small, [[example(3, 2)]]) == 3 * 1_040


@pytest.mark.parametrize(("length", "mega"), [(128, 545.3), (512, 587.8)])
def test_base_costs_what_its_sizes_say(bench, length, mega):
    base = bench.config_of("base", length, 0.1)
    flops = training_flops(base, [length] * 20, num_masked=3 * length)
    assert flops / (20 * length) / 1e6 == pytest.approx(
        mega, abs=0.1
    )  # to the digit that is written


@pytest.mark.parametrize("changes", [{}, {"embedding_size": 4}])
def test_a_step_multiplies_as_often_as_its_flops_say(bench, changes):
    small = config(**changes)
    # Equal lengths: where they differ, places of padding are multiplied too, and are not counted.
    step = [example(9, 2), example(9, 3)]
    model = Model(Encoder(small), new_head("masked_lm", small)).train()
    at = torch.tensor([1, 2, 10, 11, 12])
    with FlopCounterMode(display=False) as counted:
        logits = model(collate(step), at)
        forward = counted.get_total_flops()
        logits.sum().backward()
    assert forward == forward_flops(small, [9, 9], num_masked=5)
    assert counted.get_total_flops() == bench.step_flops(small, [step])


def test_synthetic_sequences_are_full_and_masked_at_15_percent(bench):
    steps = bench.synthetic_steps(40, 200, 2)
    step = next(steps)
    assert [len(micro_batch) for micro_batch in step] == [5, 5]
    assert bench.num_tokens(step) == 400
    first = step[0][0]
    assert (first.input_ids[first.target.positions] == bench.MASK).all()
    assert len(first.target.positions) == 6
    assert first.input_ids[0] == bench.CLS and first.input_ids[-1] == bench.SEP
    assert not np.isin(first.target.labels, [bench.CLS, bench.SEP, bench.MASK]).any()
    others = [next(steps) for _ in range(4)]
    assert others[-1] is step  # four of them take turns


def test_the_measured_loop_trains(bench):
    found = bench.measure(
        config(vocab_size=bench.VOCAB_SIZE),
        bench.synthetic_steps(16, 128, 1),
        CPU,
        precision="float32",
        num_warm=1,
        num_steps=4,
        lr=1e-2,
    )
    assert found.last_loss < found.first_loss - 1
    low, high = found.spread
    assert 0 < low <= found.tokens_per_second <= high
    assert found.flops_per_second > found.tokens_per_second


def test_the_command_measures_made_up_and_real_batches(
    bench, shared_data, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(bench.SIZES, "tiny", (1, 16, 2))
    # The product's own size plays no part here.
    monkeypatch.setattr(bench, "product_peak", lambda device, dtype, size: 1e9)
    text = tmp_path / "text.txt"
    text.write_text("The film was good, and the play was bad.\n" * 200, encoding="utf-8")
    words = ["--device", "cpu", "--size", "tiny", "--lengths", "16", "--tokens", "64"]
    words += ["--precision", "float32", "--warm", "1", "--steps", "1"]
    words += ["--data", str(text), "--tokenizer", str(shared_data / "tokenizers/bert-base-uncased")]
    results = tmp_path / "results.jsonl"
    assert bench.main([*words, "--results", str(results)]) == 0
    records = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [record["batches"] for record in records] == ["synthetic", "real"]
    for record in records:
        assert record["utilisation"] == record["flops_per_second"] / 1e9
    printed = capsys.readouterr().out
    assert printed.count("| tiny | 16 |") == 2
    assert "goal: 60% of the measured product" in printed


def test_without_a_gpu_the_command_says_what_to_do(bench, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stopped:
        bench.parse([])
    assert stopped.value.code == 2
    assert "--device cpu --size tiny" in capsys.readouterr().err


def test_the_product_rate_is_positive(bench):
    assert bench.product_peak(CPU, torch.float32, 16) > 0
