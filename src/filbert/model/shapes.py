"""Few shapes of batches on a processor, since oneDNN keeps something for every one that it meets.

T tokens in the batch, S sequences.

A product of a number of rows that is new costs half a millisecond for its code, and 0.3 MB that are
never given back, as much again while its place in the cache lasts. A layer has four products, so
packed batches, which are of any size, took 1.5 GB more within 500 sizes (docs/log.md). So a batch
is filled up to the next of about 150 sizes, by 1.5 % on the average.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.batch import PackedBatch
from filbert.model.heads import Model

# Most tokens that a batch is filled with.
_STEP = 32


def next_size(count: int) -> int:
    """The least of our sizes that is not below `count`: all up to 32, then 16 or more an octave."""
    step = min(_STEP, 1 << max(0, count.bit_length() - 5))
    return -(-count // step) * step


def few_shapes(batch: PackedBatch, model: nn.Module) -> PackedBatch:
    """The batch, filled to our sizes where the model's products run in oneDNN.

    S gets one by sequences of one token behind the others, whose answers are to be cut off; T by
    tokens of no sequence, which the encoder takes away again. All are of id 0.
    """
    if batch.input_ids.device.type != "cpu" or not isinstance(model, Model):
        return batch
    more = next_size(batch.num_sequences) - batch.num_sequences
    empty = next_size(batch.num_tokens + more) - batch.num_tokens
    if not empty:
        return batch
    rows = (batch.input_ids, batch.position_ids, batch.token_type_ids)
    ids, places, types = (F.pad(row, (0, empty)) for row in rows)
    return PackedBatch(ids, places, types, batch.lengths + (1,) * more)


def few_rows(at: Tensor) -> Tensor:
    """Rows to ask for, int64 (K,), the first one again behind them, to one of our sizes."""
    return torch.cat([at, at[:1].expand(next_size(len(at)) - len(at))]) if len(at) else at
