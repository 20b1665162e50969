"""Cross entropy over a large vocabulary that reads the logits once.

K rows, V classes. torch's function on (614, 30,522) bf16 logits makes four float32 copies of them
(the cast, its logarithms, their gradient, the gradient's cast); here a few rows at a time stay in
the cache, and the gradient is made on the same way.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

# Rows whose float32 logits fit a CPU's cache: 8 MB at 30,522 classes.
_CACHED = 2**21


def cross_entropy(logits_KV: Tensor, labels_K: Tensor) -> Tensor:
    """Return the sum of -log softmax(logits)[label], float32 scalar.

    Args:
        logits_KV: in any float type, (K, V); K may be 0.
        labels_K: int64 (K,), each in [0, V).
    """
    if logits_KV.device.type != "cpu":
        return F.cross_entropy(logits_KV.float(), labels_K, reduction="sum")
    return cast("Tensor", _CrossEntropy.apply(logits_KV, labels_K))  # type: ignore[no-untyped-call]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_KV: Tensor, labels_K: Tensor) -> Tensor:
        wants_gradient = ctx.needs_input_grad[0]
        gradient = torch.empty_like(logits_KV) if wants_gradient else None
        rows = max(1, _CACHED // max(1, logits_KV.shape[1]))
        total = logits_KV.new_zeros((), dtype=torch.float32)
        for start in range(0, len(logits_KV), rows):
            part = slice(start, start + rows)
            # A copy, also of float32 logits: it is overwritten below.
            scores = logits_KV[part].to(torch.float32, copy=True)
            labels = labels_K[part, None]
            normaliser = torch.logsumexp(scores, 1, keepdim=True)
            total += (normaliser - scores.gather(1, labels)).sum()
            if gradient is not None:
                # softmax - one at the label
                scores.sub_(normaliser).exp_()
                scores.scatter_add_(1, labels, torch.full_like(normaliser, -1.0))
                gradient[part] = scores
        if gradient is not None:
            ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        # A scalar does not change the type, and is not rounded to it.
        return gradient * grads[0], None
