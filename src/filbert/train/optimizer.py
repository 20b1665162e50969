"""Optimizers: AdamW, BERT's Adam, LAMB and Muon, and the parameter groups that they share.

N matrices of a shape, R rows, C columns of each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from filbert.model.cpu import float32_by_onednn
from filbert.train.distributed import Trainable
from filbert.train.options import TrainOptions, chosen_value

# Matches the layers of a model and, in ELECTRA, of the generator.
_IN_LAYER = re.compile(r"(?:^|\.)layers\.\d+\.")
# Vectors of each head, stored as matrices.
_OF_HEADS = re.compile(r"\.relative\.\w+$")
# Any beta to this power is 0, so the bias correction divides by 1.
_ENDLESS = 1e30
# With these, five steps map any singular value between 0.01 and 1 to 0.7 to 1.2.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_SMALLEST_NORM = 1e-7
_MOMENTUM = 0.95
# Root mean square of typical AdamW updates; Muon updates are scaled to it.
_USUAL_RMS = 0.2


def new_optimizer(
    model: Trainable, options: TrainOptions, *, precision: str = "auto"
) -> torch.optim.Optimizer:
    """Create the optimizer that `options.optimizer` names, over all trainable parameters.

    Weight decay is decoupled everywhere and is not applied to vectors (biases and LayerNorm).

    * adamw: with bias correction, which small data sets need (Zhang et al. 2021, section 4). The
      first releases of BERT had none.
    * bert_adam, lamb, muon: see `BertAdam`, `Lamb` and `Muon`. The products of Muon are in bf16 if
      the device has units for it, unless `precision`, as the user gave it, is float32.

    The "share" of a group multiplies its learning rate. "parts" is the number of matrices stacked
    in each parameter: 3 for query, key and value, 0 for vectors.
    "in_layer" is true for parameters of the layers, false for those of embeddings and heads.
    """
    shares = rate_shares(model, options.layer_decay or 1.0)
    kinds: dict[tuple[float, int, bool], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            in_layer = _IN_LAYER.search(name) is not None
            kind = (shares[name], _parts(name, parameter, model), in_layer)
            kinds.setdefault(kind, []).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": some, "share": share, "parts": parts, "in_layer": in_layer}
        | {"weight_decay": options.weight_decay * bool(parts)}
        for (share, parts, in_layer), some in kinds.items()
    ]
    optimizers: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adamw": torch.optim.AdamW,
        "bert_adam": BertAdam,
        "lamb": Lamb,
        "muon": partial(Muon, dtype=_product_dtype(next(model.parameters()).device, precision)),
    }
    betas, lr = (options.beta1, options.beta2), chosen_value(options.lr)
    # optimization.py of google-research/bert and of ALBERT; torch's elsewhere.
    eps = options.eps or (1e-6 if options.optimizer in ("bert_adam", "lamb") else 1e-8)
    return optimizers[options.optimizer](groups, lr=lr, betas=betas, eps=eps, fused=True)


def _parts(name: str, parameter: Tensor, model: Trainable) -> int:
    """Return the number of matrices of one size that a parameter consists of; 0 for a vector."""
    if parameter.ndim < 2 or _OF_HEADS.search(name):
        return 0
    if not name.endswith(".qkv.weight"):
        return 1
    # Queries are cut to the size of the keys, whose heads may be fewer.
    attention = model.config.attention
    return 2 + attention.heads // (attention.key_value_heads or attention.heads)


def _product_dtype(device: torch.device, precision: str) -> torch.dtype:
    # Decided by the hardware and not by a timing: a resumed run must choose the same.
    if precision == "float32":
        return torch.float32
    if device.type == "cuda":
        has_units = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_units = device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if has_units else torch.float32


def learning(group: dict[str, Any]) -> list[Tensor]:
    """Return the parameters of a group that have a gradient."""
    return [parameter for parameter in group["params"] if parameter.grad is not None]


class BertAdam(torch.optim.AdamW):
    """AdamW without bias correction: u = m / (sqrt(v) + eps) + decay * w, and the step is -lr * u.

    m and v are the running means of gradient and squared gradient.

    Source: google-research/bert, optimization.py.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters."""
        for parameter in (p for group in self.param_groups for p in learning(group)):
            if not self.state[parameter]:
                # Incrementing has no effect: 1e30 + 1 equals 1e30 in float32.
                self.state[parameter]["step"] = parameter.new_full((), _ENDLESS)
                self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
                self.state[parameter]["exp_avg_sq"] = torch.zeros_like(parameter)
        super().step()


class Lamb(BertAdam):
    """LAMB: the step of each matrix is lr * ratio * u, with ratio = |w| / |u|.

    The ratio is 1 where either norm is 0, and for vectors. Groups are those of `new_optimizer`.

    Source: google-research/albert, lamb_optimizer.py; You et al. 2020, algorithm 2, which corrects
    the bias where the code does not.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters."""
        before = []
        for group in self.param_groups:
            if group["parts"]:
                updates = learning(group)
                weights = [parameter.clone() for parameter in updates]
                before.append((group, updates, weights, group["lr"], group["weight_decay"]))
                # From weights of 0 at a rate of 1, the step is the Adam part of -u.
                group["lr"], group["weight_decay"] = 1.0, 0.0
                for parameter in updates:
                    parameter.zero_()
        super().step()
        # Weights, -u and learning rate of each matrix.
        matrices: list[tuple[Tensor, Tensor, float]] = []
        for group, updates, weights, rate, decay in before:
            group["lr"], group["weight_decay"] = rate, decay
            for weight, update in zip(weights, updates, strict=True):
                update.add_(weight, alpha=-decay)
                halves = (whole.chunk(group["parts"]) for whole in (weight, update))
                matrices += [(*pair, rate) for pair in zip(*halves, strict=True)]
        if not matrices:
            return
        sides = [*(weight for weight, *_ in matrices), *(update for _, update, _ in matrices)]
        norms = torch.stack(torch._foreach_norm(sides)).double().view(2, -1).T.tolist()
        for (weight, update, rate), (size, length) in zip(matrices, norms, strict=True):
            ratio = size / length if size > 0 and length > 0 else 1.0
            torch.add(weight, update, alpha=rate * ratio, out=update)


class Muon(torch.optim.AdamW):
    """Muon for the matrices inside the layers, AdamW for everything else, in one optimizer.

    Muon makes the momentum of each matrix orthogonal before it is added to the weights. The updates
    are as large as those of AdamW, so the same learning rate and weight decay are suitable.

    `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"` has the same update for one matrix, but
    cannot replace this class: it treats the stacked query, key and value matrix as one matrix, and
    it always computes in bf16.

    Args:
        groups: As `new_optimizer` makes them. Each stacked matrix is made orthogonal separately.
        dtype: Number format of the products that make matrices orthogonal; all else is float32.
            The original uses bf16. Its error against float64 is 12 to 15 % (float32: 0.0006 %),
            less than the deviation that remains after five iterations.

    Source: Jordan et al. 2024 (kellerjordan.github.io/posts/muon) for momentum, Nesterov's form and
    the iteration; Liu et al. 2025 (arXiv 2502.16982), section 2.2, for scale and decay.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        dtype: torch.dtype = torch.float32,
        **options: Any,
    ) -> None:
        super().__init__(groups, **options)
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters."""
        every, rest = self.param_groups, []
        for group in every:
            if not (group["in_layer"] and group["parts"]):
                rest.append(group)
            elif parameters := learning(group):
                self._muon(parameters, group)
        self.param_groups = rest
        super().step()
        self.param_groups = every

    def _muon(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Make a Muon step."""
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        gradients = [p.grad for p in parameters if p.grad is not None]
        momenta = [self.state[parameter]["momentum"] for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1.0 - _MOMENTUM)
        wanted = torch._foreach_lerp(gradients, momenta, _MOMENTUM)
        shapes: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for parameter, update in zip(parameters, wanted, strict=True):
            shapes.setdefault(parameter.shape, []).append((parameter, update.to(self.dtype)))
        for (height, width), some in shapes.items():
            whole = torch.stack([update for _, update in some])
            matrices = whole.view(-1, height // group["parts"], width)
            turned = orthogonal(matrices).reshape(whole.shape)
            scale = _USUAL_RMS * math.sqrt(max(matrices.shape[1:]))
            for (parameter, _), update in zip(some, turned, strict=True):
                parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * scale)


def orthogonal(matrices: Tensor) -> Tensor:
    """Approximate the nearest orthogonal matrices: all singular values become 0.7 to 1.2.

    Makes five steps of a Newton-Schulz iteration of fifth order, in the dtype of `matrices`,
    (N, R, C) of any scale. Zero matrices stay zero.
    """
    # Products over the shorter side are smaller.
    is_tall = matrices.shape[1] > matrices.shape[2]
    turned = matrices.mT.contiguous() if is_tall else matrices
    norms = turned.norm(dim=(1, 2), keepdim=True).clamp_min(_SMALLEST_NORM)
    turned = turned / norms
    a, b, c = _COEFFICIENTS
    with float32_by_onednn(turned.device.type == "cpu" and turned.dtype == torch.float32):
        for _ in range(_ITERATIONS):
            square = turned @ turned.mT
            fourth = torch.baddbmm(square, square, square, beta=b, alpha=c)
            turned = torch.baddbmm(turned, fourth, turned, beta=a)
    return turned.mT if is_tall else turned


def rate_shares(model: Trainable, layer_decay: float) -> dict[str, float]:
    """Return the share of the learning rate of every parameter that learns, by its name.

    Depth is 0 for the embeddings, 1 to L for the layers and L + 2 for pooler and head; each gets
    decay to the power of L + 2 - depth. Source: Clark et al. 2020, appendix B, and its code.
    """
    layers = len(model.encoder.layers)
    shares = {}
    for name, parameter in model.named_parameters():
        layer = re.match(r"encoder\.layers\.(\d+)\.", name)
        depth = layers + 2
        if layer:
            depth = int(layer[1]) + 1
        elif name.startswith(("encoder.embeddings.", "encoder.distances.")):
            depth = 0
        elif name.startswith("encoder.final_norm."):
            depth = layers
        if parameter.requires_grad:
            shares[name] = layer_decay ** (layers + 2 - depth)
    return shares
