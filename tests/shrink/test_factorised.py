from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from filbert.batch import pack
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_layers
from filbert.checkpoints.fresh import factorised
from filbert.errors import ConfigError

RANK = 7
# float32 tables behind one more product.
TOLERANCE = 1e-5


def of_rank(checkpoint, rank=RANK):
    """The same with tables whose rows span `rank` dimensions."""
    generator = torch.Generator().manual_seed(1)
    tensors = dict(checkpoint.tensors)
    first = tensors["encoder.embeddings.word.weight"]
    basis = torch.randn(rank, first.shape[1], generator=generator)
    for part in ("word", "position", "token_type"):
        name = f"encoder.embeddings.{part}.weight"
        tensors[name] = torch.randn(len(tensors[name]), rank, generator=generator) @ basis
    return replace(checkpoint, tensors=tensors)


def difference(checkpoint, size, batch):
    small = factorised(checkpoint, size)
    with torch.no_grad():
        apart = small.checkpoint.build()(batch) - checkpoint.build()(batch)
    return float(apart.abs().max()), small


@pytest.mark.parametrize("eps", [1e-12, 0.5])
def test_tables_of_a_smaller_rank_lose_nothing(drawn, batch, eps):
    checkpoint = of_rank(drawn(kind=None, layer_norm_eps=eps))
    exact, small = difference(checkpoint, RANK + 1, batch)
    assert exact < TOLERANCE
    assert small.kept == pytest.approx(1.0)
    assert small.checkpoint.tensors["encoder.embeddings.word.weight"].shape == (50, RANK + 1)
    lossy, smaller = difference(checkpoint, RANK, batch)
    assert lossy > 1e-2
    assert smaller.kept < 0.999


def test_a_row_that_every_sum_holds_is_kept_though_it_does_not_vary(drawn):
    checkpoint = of_rank(drawn(kind=None, type_vocab_size=1))
    name = "encoder.embeddings.token_type.weight"
    checkpoint.tensors[name] = 3.0 * torch.randn(1, 32, generator=torch.Generator().manual_seed(2))
    exact, _ = difference(checkpoint, RANK + 2, pack([[1, 2, 3, 4], [30, 49]]))
    assert exact < TOLERANCE


def test_tables_that_are_narrow_already_are_narrowed_behind_the_same_projection(drawn, batch):
    checkpoint = of_rank(drawn(kind=None, family="electra", pooler=None, embedding_size=16))
    exact, small = difference(checkpoint, RANK + 1, batch)
    assert exact < TOLERANCE
    assert small.checkpoint.family == "electra"
    assert difference(checkpoint, RANK - 1, batch)[0] > 1e-2


def test_wider_tables_lose_less(drawn, batch):
    checkpoint = drawn(kind=None)
    kept = [factorised(checkpoint, size).kept for size in (4, 8, 16, 31)]
    assert kept == sorted(kept)
    losses = [difference(checkpoint, size, batch)[0] for size in (4, 31)]
    assert losses[1] < losses[0]


@pytest.mark.parametrize("kind", ["sequence", "tokens", "spans", "choices"])
def test_a_model_keeps_its_head_and_is_read_back(drawn, batch, tmp_path, kind):
    checkpoint = of_rank(drawn(kind))
    small = with_layers(factorised(checkpoint, RANK + 1).checkpoint, (0, 2))
    huggingface.write(small, tmp_path)
    again = huggingface.read(tmp_path)
    assert again.config == small.config
    wanted = with_layers(checkpoint, (0, 2)).build()(batch)
    assert (again.build()(batch) - wanted).abs().max() < TOLERANCE


def test_a_masked_lm_head_is_left_out_with_a_note(drawn):
    small = factorised(drawn("masked_lm"), 8).checkpoint
    assert small.head is None
    assert "head left out: masked_lm." in small.notes


def test_families_without_a_place_for_it_and_odd_widths_are_refused(drawn):
    with pytest.raises(ConfigError, match="config.json of a roberta model has no place.* bert, "):
        factorised(drawn(kind=None, family="roberta"), 8)
    for size in (1, 32, 100):
        with pytest.raises(ConfigError, match="the tables are 32 wide"):
            factorised(drawn(kind=None), size)
    with pytest.raises(ConfigError, match="has no 'pair' head"):
        factorised(drawn("pair"), 8)
