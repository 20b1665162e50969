"""Optimisers and schedules against torch, transformers, and the papers' formulas in numpy."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import sizes
from torch import Tensor, nn

from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model, new_head
from filbert.train.base_model import freeze
from filbert.train.optimizer import Muon, new_optimizer
from filbert.train.options import TrainOptions
from filbert.train.schedule import rate_at

STEPS = 20
LR, DECAY, BETA1, BETA2, EPS = 1e-2, 0.1, 0.9, 0.98, 1e-6
Array = np.ndarray[Any, np.dtype[np.float64]]


def new_model() -> Model:
    torch.manual_seed(0)
    config = EncoderConfig.of(
        **sizes(vocab_size=40, layers=2, width=24, heads=2, inner=56, positions=32)
    )
    model = Model(Encoder(config), new_head("masked_lm", config, None))
    freeze(model, None)
    return model


def run(name: str) -> tuple[dict[str, Array], list[dict[str, Array]], dict[str, Array]]:
    """Weights before, the gradients of every step, and the weights after, in float64."""
    model = new_model()
    options = TrainOptions(
        optimizer=name,
        lr=LR,
        weight_decay=DECAY,
        beta1=BETA1,
        beta2=BETA2,
        eps=EPS,
    )
    optimizer = new_optimizer(model, options, precision="float32")
    learning = {n: p for n, p in model.named_parameters() if p.requires_grad}
    before = {n: p.detach().double().numpy() for n, p in learning.items()}
    gradients = []
    for step in range(STEPS):
        torch.manual_seed(step)
        for parameter in learning.values():
            # Of very unequal sizes, as those of a real model.
            parameter.grad = torch.randn(parameter.shape) * 10.0 ** float(torch.randn(()))
        gradients.append({n: p.grad.double().numpy() for n, p in learning.items()})
        optimizer.step()
    return before, gradients, {n: p.detach().double().numpy() for n, p in learning.items()}


def adam_moments(gradients: list[Array]) -> list[tuple[Array, Array]]:
    m = v = np.zeros_like(gradients[0])
    found = []
    for gradient in gradients:
        m = BETA1 * m + (1 - BETA1) * gradient
        v = BETA2 * v + (1 - BETA2) * gradient**2
        found.append((m, v))
    return found


def bert_adam(weight: Array, gradients: list[Array]) -> Array:
    """google-research/bert, optimization.py."""
    for m, v in adam_moments(gradients):
        update = m / (np.sqrt(v) + EPS)
        if weight.ndim > 1:
            update = update + DECAY * weight
        weight = weight - LR * update
    return weight


def lamb(weight: Array, gradients: list[Array]) -> Array:
    """google-research/albert, lamb_optimizer.py."""
    for m, v in adam_moments(gradients):
        update = m / (np.sqrt(v) + EPS)
        ratio = 1.0
        if weight.ndim > 1:
            update = update + DECAY * weight
            sizes = np.linalg.norm(weight), np.linalg.norm(update)
            ratio = sizes[0] / sizes[1] if sizes[0] > 0 and sizes[1] > 0 else 1.0
        weight = weight - ratio * LR * update
    return weight


def adamw(weight: Array, gradients: list[Array]) -> Array:
    """Loshchilov & Hutter 2019, algorithm 2."""
    for step, (m, v) in enumerate(adam_moments(gradients), 1):
        update = (m / (1 - BETA1**step)) / (np.sqrt(v / (1 - BETA2**step)) + EPS)
        weight = weight - LR * (update + DECAY * weight * (weight.ndim > 1))
    return weight


def muon(weight: Array, gradients: list[Array]) -> Array:
    """Jordan et al. 2024, with the scale and decay of Liu et al. 2025, equation 4."""
    momentum = np.zeros_like(weight)
    for gradient in gradients:
        momentum = 0.95 * momentum + gradient
        x = 0.95 * momentum + gradient
        x = x / np.linalg.norm(x)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        update = 0.2 * math.sqrt(max(x.shape)) * x
        weight = weight - LR * (update + DECAY * weight)
    return weight


def expected(name: str, key: str, weight: Array, gradients: list[Array]) -> Array:
    formula = {"adamw": adamw, "bert_adam": bert_adam, "lamb": lamb, "muon": adamw}[name]
    if name == "muon" and ".layers." in key and weight.ndim > 1:
        formula = muon
    if not key.endswith("qkv.weight"):
        return formula(weight, gradients)
    # Query, key and value are three variables in the originals.
    thirds = zip(
        np.split(weight, 3), zip(*[np.split(g, 3) for g in gradients], strict=True), strict=True
    )
    return np.concatenate([formula(part, list(some)) for part, some in thirds])


@pytest.mark.parametrize("name", ["adamw", "bert_adam", "lamb", "muon"])
def test_twenty_steps_are_those_of_the_formula_in_float64(name):
    before, gradients, after = run(name)
    assert len(after) > 30
    for key, weight in before.items():
        wanted = expected(name, key, weight, [g[key] for g in gradients])
        gone = np.abs(wanted - weight).max()
        # Twenty float32 steps; the iteration of Muon multiplies rounding errors by about 100.
        limit = 2e-4 if name == "muon" and ".layers." in key else 2e-5
        assert np.abs(after[key] - wanted).max() < limit * gone, key


def judged(shape: tuple[int, int], ours: Any, theirs: Any) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    first = nn.Parameter(torch.randn(shape) * 0.05)
    second = nn.Parameter(first.detach().clone())
    optimizers = ours(first), theirs(second)
    for _ in range(STEPS):
        gradient = torch.randn(shape)
        for parameter, optimizer in zip((first, second), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    return first.detach(), second.detach()


@pytest.mark.parametrize("in_layer", [False, True])
def test_muons_rest_is_torchs_fused_adamw_to_the_bit(in_layer):
    group = {"weight_decay": DECAY, "parts": 0 if in_layer else 1, "in_layer": in_layer}
    some = {"lr": LR, "betas": (BETA1, BETA2), "eps": EPS, "fused": True}
    found, wanted = judged(
        (33, 17),
        lambda p: Muon([{"params": [p]} | group], **some),
        lambda p: torch.optim.AdamW([p], weight_decay=DECAY, **some),
    )
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("shape", [(32, 32), (32, 80), (80, 32)])
def test_muon_is_torchs_where_both_multiply_in_bf16(shape):
    group = {"weight_decay": DECAY, "parts": 1, "in_layer": True}
    adam = {"betas": (BETA1, BETA2), "eps": EPS}
    found, wanted = judged(
        shape,
        lambda p: Muon([{"params": [p]} | group], lr=LR, dtype=torch.bfloat16, **adam),
        lambda p: torch.optim.Muon([p], lr=LR, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
    )
    # Both round to 8 bits after each of 15 products, whose sums may come in another order.
    assert float((found - wanted).norm() / wanted.norm()) < 0.03


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("linear", "linear"), ("cosine", "cosine"), ("constant", "constant_with_warmup")],
)
@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.37])
def test_a_schedule_is_that_of_transformers(ours, theirs, warmup):
    from transformers import get_scheduler

    steps = 73
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=3e-4)
    judge = get_scheduler(theirs, optimizer, int(warmup * steps), steps)
    for step in range(steps):
        found = rate_at(ours, step, steps, warmup=warmup, peak=3e-4)
        assert found == pytest.approx(judge.get_last_lr()[0], rel=1e-12, abs=1e-18)
        with warnings.catch_warnings():
            # It wants the optimiser to step before it.
            warnings.simplefilter("ignore")
            judge.step()
