"""PackedBatch: packing, unpacking."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from filbert.batch import pack, split

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
