from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path

import pytest
import torch

from filbert.checkpoints import weights
from filbert.checkpoints.weights import open_weights
from filbert.errors import FormatError


def refused(folder: Path) -> str:
    with pytest.raises(FormatError) as caught:
        open_weights(folder)
    assert len(str(caught.value)) < 500
    return str(caught.value)


def test_a_tensor_without_numbers_is_refused(tmp_path):
    torch.save({"a": torch.empty(2, device="meta")}, tmp_path / "pytorch_model.bin")
    assert "pytorch_model.bin: a is on the meta device" in refused(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_shard_name_that_no_file_can_have_is_refused(tmp_path, name):
    index = {"weight_map": {"a": "x" * 5000 + Path(name).suffix}}
    (tmp_path / f"{name}.index.json").write_text(json.dumps(index))
    assert "which is no" in refused(tmp_path)


def test_opening_a_pickle_is_silent_and_its_damage_is_said_in_words(tmp_path, monkeypatch):
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"a": 1}))

    def load(*_: object, **__: object) -> None:
        warnings.warn("an old pickle", stacklevel=1)
        raise KeyError(134)

    monkeypatch.setattr(weights.torch, "load", load)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert refused(tmp_path).endswith("pytorch_model.bin is damaged: KeyError. Fetch it again.")
