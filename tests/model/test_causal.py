"""Causal encoders: no hidden state depends on later tokens, and the last represents the text."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from tests.conftest import sizes

from filbert.batch import pack, split
from filbert.errors import ConfigError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, hidden_states, initialize
from filbert.model.heads import Model, VectorHead, new_head
from filbert.model.pooling import pool

# Equal ones, near-equal ones in one group, and some alone.
LENGTHS = (5, 5, 7, 20, 20, 21, 3, 1)
CAUSAL = EncoderConfig.of(
    **sizes(vocab_size=50, layers=2, width=16, heads=2, inner=24, positions=64),
    causal=True,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    head_dropout=0.0,
)


def batch_of(lengths: tuple[int, ...] = LENGTHS):
    return pack([[(7 * i + n) % 49 + 1 for i in range(n)] for n in lengths])


def model_of(kind: str | None, **changes: Any) -> Model:
    torch.manual_seed(0)
    config = CAUSAL.changed(**changes)
    count = 3 if kind in ("sequence", "tokens") else None
    model = Model(Encoder(config), None if kind is None else new_head(kind, config, count))
    # Large weights, so that a token that is seen shows.
    initialize(model, 0.3)
    return model.eval()


def changed_at(batch, row: int):
    ids = batch.input_ids.clone()
    ids[row] = (ids[row] + 11) % 49 + 1
    return dataclasses.replace(batch, input_ids=ids)


def sequence_of(batch, row):
    return int((batch.cu_seqlens[1:] <= row).sum())


@pytest.mark.parametrize("changes", [{}, {"position_offset": 2}, {"rotary_base": 100.0}])
def test_changing_a_token_changes_no_hidden_state_before_it_and_all_from_it_on(changes):
    model = model_of(None, **changes)
    batch = batch_of((6, 6, 7, 1))
    with torch.no_grad():
        before = split(model(batch), batch)
        for row in range(batch.num_tokens):
            after = split(model(changed_at(batch, row)), batch)
            which, at = sequence_of(batch, row), int(batch.position_ids[row])
            for number, (old, new) in enumerate(zip(before, after, strict=True)):
                moved = (old - new).abs().amax(1) > 0
                first = at if number == which else len(old)
                assert not moved[:first].any() and moved[first:].all()


def test_a_causal_encoder_without_local_layers_alone():
    with pytest.raises(ConfigError, match="causal with local_window 8"):
        CAUSAL.changed(local_window=8, global_every=2)


@pytest.mark.parametrize("kind", ["sequence", "choices", "pair"])
@pytest.mark.parametrize("pooled", ["cls", "mean"])
def test_the_answer_for_a_sequence_depends_on_every_token_of_it(kind, pooled):
    model = model_of(kind, pooled=pooled)
    batch = batch_of((6, 9, 1))
    with torch.no_grad():
        before = model(batch)
        for row in range(batch.num_tokens):
            moved = (model(changed_at(batch, row)) - before).abs().reshape(3, -1).amax(1) > 0
            assert moved.tolist() == [sequence_of(batch, row) == n for n in range(3)]


def test_the_sentence_vector_cls_is_the_last_token_of_a_causal_encoder():
    model, batch = model_of(None), batch_of()
    config = model.config
    with torch.no_grad():
        hidden = hidden_states(model.encoder, batch, (1, config.num_hidden_layers))
        ends = torch.stack([piece[-1] for piece in split(hidden, batch)])
        starts = torch.stack([piece[0] for piece in split(hidden, batch)])
    assert torch.equal(pool(hidden, batch, "cls", causal=True), ends)
    assert torch.equal(pool(hidden, batch, "cls"), starts)
    assert torch.equal(pool(hidden, batch, "last"), ends)
    both = pool(hidden, batch, "cls+mean", causal=True)
    assert torch.equal(both[:, : hidden.shape[1]], ends)
    read = Model(model.encoder, VectorHead(config, "cls")).read(hidden, batch)
    assert torch.equal(read, ends)
