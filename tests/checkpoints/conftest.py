"""A tiny model folder and the ways to damage it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.conftest import sizes

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.errors import FormatError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model

CONFIG = EncoderConfig.of(
    **sizes(vocab_size=50, layers=2, width=16, heads=2, inner=24, positions=20)
)


def _make(kind: str | None = "sequence", **fields: Any) -> Checkpoint:
    torch.manual_seed(1)
    bare = Checkpoint(CONFIG, "bert", Model(Encoder(CONFIG)).state_dict(), **fields)
    if kind is None:
        return bare
    return with_new_head(bare, kind, labels=("no", "yes", "né") if kind == "sequence" else None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    huggingface.write(_make(), tmp_path)
    return tmp_path


def _edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    raw = {**json.loads(path.read_text("utf-8")), **changes}
    path.write_text(json.dumps({key: value for key, value in raw.items() if value is not ...}))


def _edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = {
        name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()
    }
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _refusal(folder: Path) -> str:
    with pytest.raises(FormatError) as caught:
        huggingface.read(folder)
    text = str(caught.value)
    assert text.count("\n") == 0
    assert len(text) < 700
    return text


def _same(left: Checkpoint, right: Checkpoint) -> bool:
    assert left.tensors.keys() == right.tensors.keys()
    equal = all(torch.equal(left.tensors[name], right.tensors[name]) for name in left.tensors)
    return equal and (left.config, left.head, left.labels) == (
        right.config,
        right.head,
        right.labels,
    )


@pytest.fixture
def make() -> Callable[..., Any]:
    return _make


@pytest.fixture
def edit_config() -> Callable[..., Any]:
    return _edit_config


@pytest.fixture
def edit_tensors() -> Callable[..., Any]:
    return _edit_tensors


@pytest.fixture
def refusal() -> Callable[..., Any]:
    return _refusal


@pytest.fixture
def same() -> Callable[..., Any]:
    return _same
