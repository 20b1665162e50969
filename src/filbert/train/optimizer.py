"""Optimizers: AdamW, BERT's Adam, LAMB and Muon, and the parameter groups that they share.

N matrices of a shape, R rows, C columns of each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim.adamw import adamw

from filbert.model.batched import float32_by_onednn
from filbert.train.distributed import Trainable
from filbert.train.options import TrainOptions
from filbert.train.trainable import rate_shares

# Of a model and, in ELECTRA, of the generator beside it.
_IN_LAYER = re.compile(r"(?:^|\.)layers\.\d+\.")
# Query, key and value; the three gates of a GRU.
_STACKED = re.compile(r"\.qkv\.weight$|\.gru\.weight_[ih]h_l0")
# Any beta to this power is 0, so that the correction of the bias divides by 1.
_ENDLESS = 1e30
# Chosen so that five steps bring any singular value between 0.01 and 1 near 1 (0.7 to 1.2).
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_SMALLEST_NORM = 1e-7
_MOMENTUM = 0.95
# Root mean square of AdamW's updates, which Muon's are scaled to.
_USUAL_RMS = 0.2


class _Kind(NamedTuple):
    """What the parameters of a group have in common; see `new_optimizer`."""

    share: float
    parts: int
    in_layer: bool


def new_optimizer(model: Trainable, options: TrainOptions) -> torch.optim.Optimizer:
    """The optimiser that `options.optimizer` names, over all parameters that learn.

    Decay is decoupled everywhere, and none falls on biases and LayerNorm (every vector).

    * adamw: with bias correction, which is what the first releases of BERT lacked and what small
      data sets need (Zhang et al. 2021, section 4).
    * bert_adam, lamb: see `BertAdam`.
    * muon: see `Muon`. Its products are in bf16 where the device has units for that, unless
      `options.precision` is float32.

    A group's "share" is what its learning rate is to be multiplied by, "parts" how many matrices
    lie below each other in its parameters (3 in query, key and value, and in a GRU's gates; 0 for
    vectors), and
    "in_layer" tells the layers from tables and heads.
    """
    shares = rate_shares(model, options.layer_decay)
    kinds: dict[_Kind, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            in_layer = _IN_LAYER.search(name) is not None
            kind = _Kind(shares[name], _parts(name, parameter), in_layer)
            kinds.setdefault(kind, []).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": some, "weight_decay": options.weight_decay * bool(kind.parts)} | kind._asdict()
        for kind, some in kinds.items()
    ]
    betas = (options.beta1, options.beta2)
    chosen = options.optimizer
    eps = options.epsilon
    if chosen == "muon":
        device = next(iter(model.parameters())).device
        dtype = _product_dtype(device, options.precision)
        return Muon(groups, lr=options.lr, betas=betas, eps=eps, dtype=dtype)
    if chosen in ("bert_adam", "lamb"):
        adapts = chosen == "lamb"
        return BertAdam(groups, lr=options.lr, betas=betas, eps=eps, adapts=adapts)
    assert chosen == "adamw", chosen
    return torch.optim.AdamW(groups, lr=options.lr, betas=betas, eps=eps, fused=True)


def _parts(name: str, parameter: Tensor) -> int:
    if parameter.ndim < 2:
        return 0
    return 3 if _STACKED.search(name) else 1


def _product_dtype(device: torch.device, precision: str) -> torch.dtype:
    # By what the processor has, not by the clock: a resumed run must choose the same.
    if precision == "float32":
        return torch.float32
    if device.type == "cuda":
        has_units = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_units = device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if has_units else torch.float32


def adam_pass(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    steps: Sequence[Tensor],
    group: dict[str, Any],
) -> None:
    """One AdamW step in place: `torch.optim.AdamW`'s fused pass, which reads everything once.

    Args:
        weights: and all that follow: one tensor each per parameter, whole or this rank's rows.
        steps: how many steps each has made, float32 scalars; they are counted up.
        group: lr, betas, eps and weight_decay.
    """
    # A rank that has no rows of a small parameter has nothing to do for it.
    kept = [i for i, weight in enumerate(weights) if weight.numel()]
    if not kept:
        return
    beta1, beta2 = group["betas"]
    adamw(
        [weights[i] for i in kept],
        [gradients[i] for i in kept],
        [means[i] for i in kept],
        [squares[i] for i in kept],
        [],
        [steps[i] for i in kept],
        fused=True,
        amsgrad=False,
        beta1=beta1,
        beta2=beta2,
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=False,
    )


def learning(group: dict[str, Any]) -> list[Tensor]:
    """The parameters of a group that have a gradient."""
    return [parameter for parameter in group["params"] if parameter.grad is not None]


def own_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Their gradients: the rows of them that lie on this rank."""
    return [own_rows(p.grad) for p in parameters if p.grad is not None]


class BertAdam(torch.optim.Optimizer):
    """Adam without bias correction, and LAMB.

    With m and v the running means of gradient and squared gradient: u = m / (sqrt(v) + eps) + decay
    w, then w -= lr u. LAMB multiplies lr by |w| / |u| for every matrix; the ratio is 1 for vectors
    and where a norm is 0.

    Args:
        groups: each with "params", "weight_decay" and "parts": how many matrices lie below each
            other in each parameter, 0 for vectors. Each of them has a ratio of its own, as query,
            key and value have in the original.
        adapts: LAMB.

    Source: google-research/bert, optimization.py; google-research/albert, lamb_optimizer.py;
    You et al. 2020, algorithm 2, which corrects the bias where the code does not.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        adapts: bool = False,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})
        self.adapts = adapts

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change the parameters; under FSDP, LAMB's is a meeting of the ranks."""
        adapted: list[_Part] = []
        for group in self.param_groups:
            parameters = learning(group)
            weights = [own_rows(parameter) for parameter in parameters]
            moments = [self._moments(parameter) for parameter in parameters]
            targets, asked = weights, group
            if self.adapts and group["parts"]:
                # From a weight of 0, with a rate of 1, the pass gives Adam's part of -u.
                targets = [torch.zeros_like(weight) for weight in weights]
                asked = group | {"lr": 1.0, "weight_decay": 0.0}
            # Counting it up changes nothing: 1e30 + 1 is 1e30.
            steps = [weights[0].new_full((), _ENDLESS)] * len(weights) if weights else []
            means, squares = [list(kind) for kind in zip(*moments, strict=True)] or [[], []]
            adam_pass(targets, own_gradients(parameters), means, squares, steps, asked)
            if targets is not weights and targets:
                torch._foreach_add_(targets, weights, alpha=-group["weight_decay"])
                adapted += [
                    _Part(parameter, weight, update, group, part)
                    for parameter, weight, update in zip(parameters, weights, targets, strict=True)
                    for part in range(group["parts"])
                ]
        if adapted:
            _adapt(adapted)

    def _moments(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return own_rows(state["exp_avg"]), own_rows(state["exp_avg_sq"])


class _Part:
    """One matrix of a parameter, as far as it lies on this rank: its weights and -u."""

    def __init__(
        self, parameter: Tensor, weight: Tensor, update: Tensor, group: dict[str, Any], part: int
    ) -> None:
        height = len(parameter) // group["parts"]
        begin = first_own_row(parameter)
        rows = slice(max(0, part * height - begin), max(0, (part + 1) * height - begin))
        self.parameter = parameter
        self.weight, self.update = weight[rows], update[rows]
        self.lr: float = group["lr"]


def _adapt(parts: Sequence[_Part]) -> None:
    """Take LAMB's step."""
    tensors = [part.weight for part in parts] + [part.update for part in parts]
    squared = torch.stack(torch._foreach_norm(tensors)).double().square_()
    norms = summed(squared, parts[0].parameter).sqrt_().view(2, -1).tolist()
    for part, weight, update in zip(parts, *norms, strict=True):
        ratio = weight / update if weight > 0 and update > 0 else 1.0
        part.weight.add_(part.update, alpha=part.lr * ratio)


class Muon(torch.optim.Optimizer):
    """Momentum whose matrices are made orthogonal before they are added.

    The same learning rate and decay as AdamW's fit, since the updates are as large.

    Args:
        groups: each with "params", "weight_decay", "in_layer": whether Muon takes them, if they are
            matrices, and "parts": how many matrices lie below each other in each parameter, 0 for
            vectors. Each of them is made orthogonal by itself.
        lr: of all; changed by "lr" of a group.
        betas: AdamW's, as is eps.
        eps: of AdamW.
        dtype: of the products that make matrices orthogonal; everything else is float32. bf16 is
            the original's; against float64 it is 12 to 15 % off (float32: 0.0006 %), which is less
            than what the five steps leave undone.

    Source: Jordan et al. 2024 (kellerjordan.github.io/posts/muon) for momentum, Nesterov's form and
    the iteration; Liu et al. 2025 (arXiv 2502.16982), section 2.2, for scale and decay.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change the parameters; a meeting of the ranks under FSDP."""
        for group in self.param_groups:
            parameters = learning(group)
            if not parameters:
                continue
            if group["in_layer"] and group["parts"]:
                self._turn(parameters, group)
            else:
                self._adam(parameters, group)

    def _turn(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Muon's step."""
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        gradients = own_gradients(parameters)
        momenta = [own_rows(self.state[parameter]["momentum"]) for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1.0 - _MOMENTUM)
        wanted = torch._foreach_lerp(gradients, momenta, _MOMENTUM)
        shapes: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for parameter, update in zip(parameters, wanted, strict=True):
            shapes.setdefault(parameter.shape, []).append((parameter, update.to(self.dtype)))
        for (height, width), some in shapes.items():
            whole = torch.stack([all_rows(update, parameter) for parameter, update in some])
            matrices = whole.view(-1, height // group["parts"], width)
            turned = orthogonal(matrices).reshape(whole.shape)
            scale = _USUAL_RMS * math.sqrt(max(matrices.shape[1:]))
            for (parameter, _), update in zip(some, turned, strict=True):
                weight, begin = own_rows(parameter), first_own_row(parameter)
                weight.mul_(1.0 - group["lr"] * group["weight_decay"])
                weight.add_(update[begin : begin + len(weight)], alpha=-group["lr"] * scale)

    def _adam(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """AdamW's step."""
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        adam_pass(
            [own_rows(parameter) for parameter in parameters],
            own_gradients(parameters),
            [own_rows(state["exp_avg"]) for state in states],
            [own_rows(state["exp_avg_sq"]) for state in states],
            [state["step"] for state in states],
            group,
        )


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest orthogonal matrices, roughly: their singular values become 0.7 to 1.2.

    Five steps of a Newton-Schulz iteration of fifth order, in the dtype of `matrices`.

    Args:
        matrices: (N, R, C). Their size does not matter; all zeros stay zeros.

    Returns:
        (N, R, C).
    """
    # Products with the shorter side are the smaller ones.
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


def own_rows(tensor: Tensor) -> Tensor:
    """The rows that lie on this rank, sharing the memory of `tensor`."""
    return tensor.to_local() if _is_spread(tensor) else tensor  # type: ignore[attr-defined,no-any-return]


def first_own_row(tensor: Tensor) -> int:
    """Which of the R rows the first of `own_rows` is."""
    if not _is_spread(tensor):
        return 0
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    # As torch.chunk cuts: equal pieces, rounded up, the last ones shorter or empty.
    begin = min(mesh.get_local_rank() * -(-len(tensor) // mesh.size()), len(tensor))
    assert begin + len(own_rows(tensor)) <= len(tensor)
    return int(begin)


def all_rows(rows: Tensor, like: Tensor) -> Tensor:
    """All R rows, on every rank, of a tensor that is spread as `like` is.

    A meeting of the ranks, if it is spread.

    Args:
        rows: this rank's, of any dtype.
        like: the whole tensor's shape, and how it is spread.
    """
    if not _is_spread(like):
        return rows
    from torch.distributed.tensor import DTensor

    assert isinstance(like, DTensor)
    spread = DTensor.from_local(
        rows, like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )
    return spread.full_tensor()  # type: ignore[no-any-return]


def summed(values: Tensor, like: Tensor) -> Tensor:
    """The sum of `values`, in place, over the ranks that `like` is spread over; a meeting then."""
    if _is_spread(like):
        dist.all_reduce(values, group=like.device_mesh.get_group())  # type: ignore[attr-defined]
    return values


def _is_spread(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")
