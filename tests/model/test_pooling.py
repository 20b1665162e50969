"""Vectors of texts: both ways to the same numbers."""

import pytest
import torch

from filbert.batch import pack
from filbert.errors import ConfigError
from filbert.model.pooling import _ON_A_GPU, check_pooling, pool


@pytest.mark.parametrize("pooling", sorted(_ON_A_GPU))
def test_all_sequences_at_once_give_what_one_after_the_other_gives(pooling):
    batch = pack([[1] * n for n in (5, 1, 64, 7)])
    rows = torch.randn(batch.num_tokens, 6, generator=torch.Generator().manual_seed(0))
    found = _ON_A_GPU[pooling](rows, batch.cu_seqlens)
    # Sums of up to 64 numbers come in another order.
    torch.testing.assert_close(found, torch.stack(pool(rows, batch, pooling)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooling", ["cls+cls", "mean+max+mean"])
def test_no_pooling_is_asked_for_twice(pooling):
    check_pooling("cls+mean")
    with pytest.raises(ConfigError, match="twice"):
        check_pooling(pooling)
