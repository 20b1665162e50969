"""Which optimiser, and the groups of parameters that it treats alike."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import torch
from torch import Tensor

from filbert.train.adam import BertAdam
from filbert.train.distributed import Trainable
from filbert.train.muon import Muon
from filbert.train.options import TrainOptions
from filbert.train.trainable import rate_shares

# Of a model and, in ELECTRA, of the generator beside it.
_IN_LAYER = re.compile(r"(?:^|\.)layers\.\d+\.")
# Query, key and value; the three gates of a GRU.
_STACKED = re.compile(r"\.qkv\.weight$|\.gru\.weight_[ih]h_l0")


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
