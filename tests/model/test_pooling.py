"""Vectors of texts: both ways to the same numbers."""

import pytest
import torch

from filbert.batch import pack
from filbert.model.pooling import _AT_ONCE, pool


@pytest.mark.parametrize("pooling", sorted(_AT_ONCE))
def test_all_sequences_at_once_give_what_one_after_the_other_gives(pooling):
    batch = pack([[1] * n for n in (5, 1, 64, 7)])
    rows = torch.randn(batch.num_tokens, 6, generator=torch.Generator().manual_seed(0))
    found = _AT_ONCE[pooling](rows, batch.cu_seqlens)
    # Sums of up to 64 numbers come in another order.
    torch.testing.assert_close(found, torch.stack(pool(rows, batch, pooling)), rtol=0, atol=1e-6)
