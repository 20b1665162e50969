"""The texts of a comparison: their lengths, their order, and the work that is counted."""

import numpy as np
import pytest

from filbert.bench.workload import Workload, drawn, layer_parameters, mixed_lengths, useful_gflop
from filbert.checkpoints.fresh import fresh_config

MARKS = {"vocab_size": 30_522, "cls_id": 101, "sep_id": 102}


def test_lengths_have_the_median_mean_and_limit_that_the_table_names():
    lengths = mixed_lengths(256)
    assert np.median(lengths) == 50
    assert lengths.mean() == pytest.approx(71, abs=0.1)  # Lengths are whole numbers.
    assert lengths.max() == 256
    assert lengths.min() >= 3


def test_a_limit_below_the_mean_still_gives_lengths_within_it():
    lengths = mixed_lengths(64, longest=64)
    assert lengths.max() == 64
    assert lengths.min() >= 3


def test_the_same_seed_draws_the_same_ids_between_the_marks():
    one, other = (drawn(mixed_lengths(32), **MARKS) for _ in range(2))
    assert one.digest == other.digest
    assert drawn(mixed_lengths(32), **MARKS, seed=1).digest != one.digest
    assert all((ids[0], ids[-1]) == (101, 102) for ids in one.texts)
    assert one.num_tokens == mixed_lengths(32).sum()


def test_batches_hold_every_text_once_in_either_order():
    workload = drawn(mixed_lengths(20), **MARKS)
    for order in ("unsorted", "sorted"):
        batches = workload.batches(order, 8)
        assert [len(batch) for batch in batches] == [8, 8, 4]
        ids = sorted(tuple(text) for batch in batches for text in batch)
        assert ids == sorted(tuple(text) for text in workload.texts)
    lengths = [len(text) for batch in workload.batches("sorted", 8) for text in batch]
    assert lengths == sorted(lengths, reverse=True)
    assert [len(batch) for batch in workload.batches("unsorted", 0)] == [20]


def test_a_saved_workload_comes_back_to_the_last_id(tmp_path):
    workload = drawn(mixed_lengths(9), **MARKS)
    workload.save(tmp_path / "ids.npz")
    assert Workload.load(tmp_path / "ids.npz").digest == workload.digest


def test_the_layers_of_bert_base_have_85_million_parameters():
    base = fresh_config("bert", vocab_size=30_522, head="masked_lm")
    assert layer_parameters(base) == 85_054_464
    assert useful_gflop(base, 1_000) == pytest.approx(170.108928)


def test_shared_layers_count_as_often_as_they_are_met():
    shared = fresh_config("albert", vocab_size=100, head="masked_lm", hidden_size=64)
    own = fresh_config("bert", vocab_size=100, head="masked_lm", hidden_size=64)
    assert layer_parameters(shared) == layer_parameters(own)
