"""Attention rollout: how attention passes from layer to layer down to the words.

L layers, A heads, n tokens of a sequence.

Source: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from filbert.inspection.claims import Claim
from filbert.inspection.maps import attention_maps, check_size
from filbert.model.grouping import standing_rows
from filbert.model.heads import Model


def rollout(maps_LAnn: Tensor) -> Tensor:
    """From which input every token's last state is gathered, float64 (n, n); rows sum to one.

    A layer is the mean of its heads' maps and, for the residual connection, of the identity in
    equal parts; the layers are multiplied, the first one on the right.

    Args:
        maps_LAnn: attention probabilities as `attention_maps` gives them.
    """
    length = maps_LAnn.shape[-1]
    same = torch.eye(length, dtype=torch.float64)
    rolled = same
    for layer_Ann in maps_LAnn.double():
        heads_nn = layer_Ann.sum(0)
        # Heads that were pruned are all zero and count for nothing.
        heads_nn = heads_nn / heads_nn.sum(-1, keepdim=True)
        rolled = (0.5 * heads_nn + 0.5 * same) @ rolled
    return rolled


def rolled_out(model: Model, claim: Claim) -> np.ndarray:
    """The parts of each token in what the claim's head reads, float64 (n,), 1 in all.

    Raises:
        ConfigError: the model has no attention, or the text is too long for it.
    """
    batch = claim.batch(1).to(model.device)
    config = model.config
    check_size(config, batch.num_tokens)
    (maps,) = attention_maps(model, batch)
    rolled_nn = rollout(maps)
    if claim.reads is not None:
        rolled_nn = rolled_nn[list(claim.reads)]
    elif config.pooled == "cls":
        rolled_nn = rolled_nn[standing_rows(batch, causal=config.causal).cpu()]
    return rolled_nn.mean(0).numpy()
