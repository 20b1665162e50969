"""Tiny models of every task for the tests of explanations, drawn at random but sharply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.predict import Predictor
from filbert.tasks.base import Task
from filbert.text.tokenizer import Tokenizer

Draw = Callable[..., Predictor]


@pytest.fixture(scope="session")
def drawn(tiny_model: Path) -> Draw:
    """`drawn("sequence", task)`: the tiny encoder under a head large enough to have opinions."""

    def draw(
        kind: str | None, task: Task | None = None, *, max_length: int | None = None
    ) -> Predictor:
        torch.manual_seed(3)
        count = None if task is None else task.num_labels
        checkpoint = with_new_head(huggingface.read(tiny_model), kind, count)
        for name, tensor in checkpoint.tensors.items():
            if name.startswith(("head", "encoder.pooler")):
                checkpoint.tensors[name] = tensor + 0.3 * torch.randn(tensor.shape)
        return Predictor(
            checkpoint.build(), Tokenizer.load(tiny_model), task, max_length=max_length
        )

    return draw
