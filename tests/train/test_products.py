"""Whose products a training step's are, and that its gradient is that of torch's own ones."""

from __future__ import annotations

import pytest
import torch
from tests.conftest import sizes

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.model import cpu
from filbert.model.config import EncoderConfig
from filbert.model.cpu import float32_is_exact
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, new_head
from filbert.model.precision import Precision
from filbert.tasks.base import TaskOptions
from filbert.tasks.regression import Regression
from filbert.train.distributed import start
from filbert.train.optimizer import orthogonal
from filbert.train.step import accumulate, model_forward

pytestmark = pytest.mark.skipif(
    not float32_is_exact(), reason="this processor's float32 products are not oneDNN's"
)


def model_of(width: int) -> Model:
    config = EncoderConfig.of(
        **sizes(vocab_size=60, layers=2, width=width, heads=4, inner=2 * width, positions=128)
    )
    torch.manual_seed(0)
    model = Model(Encoder(config), new_head("sequence", config, num_labels=1))
    initialize(model, 0.05)
    return model.train()


def step(model: Model, precision: str) -> tuple[list[str], dict[str, torch.Tensor]]:
    """Settings that the forward pass saw, and the gradients."""
    seen: list[str] = []
    ids = torch.randint(5, 60, (6, 90), generator=torch.Generator().manual_seed(1)).numpy()
    rows = [Example(i, row, row * 0, len(row), target=float(i % 2)) for i, row in enumerate(ids)]
    with start("cpu") as parallel:
        inner = model_forward(model, parallel.device)

        def forward(examples, targets):
            seen.append(torch.backends.mkldnn.matmul.fp32_precision)
            return inner(examples, targets)

        model.zero_grad()
        accumulate(
            forward,
            model,
            Regression.from_options(TaskOptions(), ColumnNames()),
            [rows[:3], rows[3:]],
            parallel=parallel,
            precision=Precision(precision, "as asked"),
            seed=(0, 0),
            stand_in=rows[:1],
        )
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return seen, gradients


def test_float32_steps_of_large_layers_are_onednns(monkeypatch):
    large = model_of(384)
    seen, found = step(large, "float32")
    assert seen == ["bf16"] * 2
    assert torch.backends.mkldnn.matmul.fp32_precision == "none"
    monkeypatch.setattr(cpu, "float32_is_exact", lambda: False)
    seen, expected = step(large, "float32")
    assert seen == ["none"] * 2
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_muon_turns_float32_matrices_by_onednn(monkeypatch):
    asked: list[str] = []
    given = cpu._PERMISSION.given
    monkeypatch.setattr(cpu._PERMISSION, "given", lambda: (asked.append("bf16"), given())[1])
    matrices = torch.randn(2, 64, 96)
    found = orthogonal(matrices)
    assert asked == ["bf16"]
    monkeypatch.setattr(cpu, "float32_is_exact", lambda: False)
    torch.testing.assert_close(found, orthogonal(matrices), rtol=0, atol=1e-5)
    orthogonal(matrices.bfloat16())
    assert asked == ["bf16"]
