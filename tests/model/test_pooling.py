"""Pooling of tokens and of sequences."""

import pytest
import torch

from filbert.batch import pack
from filbert.errors import ConfigError
from filbert.model.pooling import (
    _ON_A_GPU,
    check_pooling,
    mean_of_groups,
    mean_of_sequences,
    pool,
    table_of_groups,
)


@pytest.mark.parametrize("pooling", sorted(_ON_A_GPU))
def test_all_sequences_at_once_give_what_one_after_the_other_gives(pooling):
    batch = pack([[1] * n for n in (5, 1, 64, 7)])
    rows = torch.randn(batch.num_tokens, 6, generator=torch.Generator().manual_seed(0))
    found = _ON_A_GPU[pooling](rows, batch.cu_seqlens)
    # Sums of up to 64 numbers come in another order.
    torch.testing.assert_close(found, pool(rows, batch, pooling), rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooling", ["cls+cls", "mean+max+mean"])
def test_no_pooling_is_asked_for_twice(pooling):
    check_pooling("cls+mean")
    with pytest.raises(ConfigError, match="twice"):
        check_pooling(pooling)


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
@pytest.mark.parametrize("groups", [(2, 1, 3), (2, 2, 2), (6,)])
def test_the_mean_of_groups_and_its_gradient_are_those_of_a_loop(shape, groups):
    torch.manual_seed(0)
    values = torch.randn(6, *shape, dtype=torch.float64, requires_grad=True)
    found = mean_of_groups(values, groups)
    wanted = torch.stack([part.mean(0) for part in values.split(list(groups))])
    torch.testing.assert_close(found, wanted)
    weights = torch.randn_like(wanted)
    (slope,) = torch.autograd.grad((found * weights).sum(), values)
    (judge,) = torch.autograd.grad((wanted * weights).sum(), values)
    torch.testing.assert_close(slope, judge)


def test_uneven_groups_get_no_probability_in_their_empty_places():
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    table = table_of_groups(values, (2, 3))
    assert table.softmax(-1)[0, 2] == 0
    torch.testing.assert_close(table[0, :2].softmax(-1), values[:2].softmax(-1))
    loss = torch.nn.functional.cross_entropy(table, torch.tensor([1, 0]), reduction="sum")
    judge = -(values[:2].log_softmax(-1)[1] + values[2:].log_softmax(-1)[0])
    torch.testing.assert_close(loss, judge)
    torch.testing.assert_close(*(torch.autograd.grad(x, values)[0] for x in (loss, judge)))


def test_the_mean_of_a_sequence_is_that_of_its_rows_and_an_empty_one_is_zero():
    rows = torch.randn(6, 3, dtype=torch.float32, requires_grad=True)
    borders = torch.tensor([0, 2, 2, 6], dtype=torch.int32)
    found = mean_of_sequences(rows, borders)
    wanted = torch.stack([rows[:2].mean(0), torch.zeros(3), rows[2:].mean(0)])
    torch.testing.assert_close(found, wanted)
    found.sum().backward()
    assert torch.equal(
        rows.grad, torch.tensor([0.5, 0.5, 0.25, 0.25, 0.25, 0.25])[:, None] + 0 * rows
    )
