"""What belongs to a model, for the Hub and folders alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from filbert.checkpoints.hub import (
    _check_weights,
    to_fetch,
)
from filbert.checkpoints.upload import files_to_push
from filbert.errors import FormatError

OLD = (
    "modules.json",
    "0_BERT/config.json",
    "0_BERT/pytorch_model.bin",
    "0_BERT/sentence_bert_config.json",
    "0_BERT/vocab.txt",
    "1_Pooling/config.json",
)
CHECKPOINT = ("m.ckpt.index", "m.ckpt.data-00000-of-00001")


def fill(folder: Path, *names: str) -> set[str]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"{}")
    return set(names)


def test_an_old_folder_with_its_encoder_below_is_fetched_whole():
    assert to_fetch(OLD) == sorted(OLD)
    assert "0_BERT/vocab.txt" in to_fetch(OLD, tokenizer_only=True)
    _check_weights("owner/old", to_fetch(OLD))
    dense = ["config.json", "2_Dense/config.json", "2_Dense/pytorch_model.bin"]
    with pytest.raises(FormatError, match="no weights"):
        _check_weights("owner/dense", to_fetch(dense))


@pytest.mark.parametrize(
    "names",
    [
        ("electra_config.json", "vocab.txt"),
        ("bert_config_large.json", "german_vocab.txt"),
        ("my_config.json", "zh.model"),
    ],
)
def test_names_of_their_own_count_beside_a_checkpoint(names):
    files = (*names, *CHECKPOINT)
    assert to_fetch(files) == sorted(files)
    assert set(to_fetch(["config.json", "model.safetensors", *files])).isdisjoint(CHECKPOINT)


@pytest.mark.parametrize("kept", ["2_Dense/model.safetensors", None])
def test_a_module_with_its_weights_in_a_pickle_is_never_uploaded(tiny_model, tmp_path, kept):
    for file in tiny_model.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    fill(tmp_path, "2_Dense/config.json", "2_Dense/pytorch_model.bin", *([kept] if kept else []))
    if kept:
        chosen = files_to_push(tmp_path)
        assert kept in chosen and "2_Dense/pytorch_model.bin" not in chosen
        return
    with pytest.raises(FormatError, match="Convert it first"):
        files_to_push(tmp_path)
