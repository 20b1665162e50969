"""What belongs to a model, for the Hub, archives and folders alike."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from filbert.checkpoints.hub import (
    _check_weights,
    has_weights,
    to_fetch,
)
from filbert.checkpoints.opening import find_model
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


def zipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], inside: str
) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        for name in names:
            archive.writestr(inside + name, "{}")
    return find_model(str(tmp_path / "m.zip"))


def unpacked_names(folder: Path) -> set[str]:
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    return found - {"unpacked.json"}


@pytest.mark.parametrize("inside", ["", "model/"])
def test_an_old_folder_with_its_encoder_below_is_carried_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    assert unpacked_names(zipped(tmp_path, monkeypatch, OLD, inside)) == set(OLD)
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
def test_names_of_their_own_count_beside_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    files = (*names, *CHECKPOINT)
    place = zipped(tmp_path, monkeypatch, files, "bert/")
    assert place.name == "m.ckpt" and unpacked_names(place.parent) == set(files)
    assert to_fetch(files) == sorted(files)
    assert set(to_fetch(["config.json", "model.safetensors", *files])).isdisjoint(CHECKPOINT)


@pytest.mark.parametrize("kept", ["2_Dense/model.safetensors", None])
def test_a_module_with_its_weights_in_a_pickle_is_never_uploaded(
    tiny_model: Path, tmp_path: Path, kept: str | None
) -> None:
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


@pytest.mark.parametrize(
    ("files", "whole"),
    [
        (("model.safetensors", "vocab.txt"), False),
        (("config.json", "model.safetensors"), True),
        (("bert_config.json", *CHECKPOINT), True),
    ],
)
def test_a_copy_in_the_cache_is_whole_with_its_configuration(
    tmp_path: Path, files: tuple[str, ...], whole: bool
) -> None:
    fill(tmp_path, *files)
    assert has_weights(tmp_path) is whole
