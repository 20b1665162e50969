"""PackedBatch: packing, unpacking, filling."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from filbert.batch import from_padded, pack, split

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def sequences(lengths: list[int]) -> list[np.ndarray]:
    return [np.arange(n) + 10 * i + 1 for i, n in enumerate(lengths)]


def test_positions_start_at_zero_in_every_sequence():
    batch = pack([[7, 8, 9], [5], [3, 4]])
    assert batch.position_ids.tolist() == [0, 1, 2, 0, 0, 1]
    assert batch.cu_seqlens.tolist() == [0, 3, 4, 6]
    assert batch.cu_seqlens.dtype == torch.int32
    assert batch.starts.tolist() == [0, 3, 4]
    assert batch.max_seqlen == 3


@given(LENGTHS)
def test_packing_then_splitting_gives_the_sequences_back(lengths):
    batch = pack(sequences(lengths))
    pieces = split(batch.input_ids, batch)
    assert [p.tolist() for p in pieces] == [s.tolist() for s in sequences(lengths)]


@given(LENGTHS)
def test_padding_then_unpadding_gives_the_batch_back(lengths):
    batch = pack(sequences(lengths))
    rows = [split(rows, batch) for rows in (batch.input_ids, torch.ones(batch.num_tokens))]
    ids, mask = (pad_sequence(one, batch_first=True) for one in rows)
    assert ids.shape == (len(lengths), max(lengths))
    again = from_padded(ids, mask)
    assert again.lengths == batch.lengths
    assert torch.equal(again.input_ids, batch.input_ids)
    assert torch.equal(again.position_ids, batch.position_ids)


def test_left_padding_is_refused_and_not_misread():
    with pytest.raises(ValueError, match="right padding"):
        from_padded(torch.tensor([[0, 5, 6]]), torch.tensor([[0, 1, 1]]))


def test_an_empty_sequence_is_refused():
    with pytest.raises(ValueError, match="no empty one"):
        pack([[1], []])


def test_a_batch_takes_its_borders_along_to_another_device():
    batch = pack([[7, 8, 9], [5], [3, 4]], [[0, 0, 1], [0], [1, 1]])
    moved = batch.to("meta")
    assert moved.lengths == batch.lengths
    for name in ("input_ids", "position_ids", "token_type_ids"):
        tensor = getattr(moved, name)
        assert tensor.device.type == "meta" and tensor.dtype == torch.int64
        assert tensor.shape == (6,) and tensor.is_contiguous()
    assert "cu_seqlens" in moved.__dict__, "made on the host, not from a list on the device"
    assert moved.cu_seqlens.device.type == "meta" and moved.cu_seqlens.dtype == torch.int32
    assert batch.to("cpu") is batch
