"""Every layout of a Hugging Face folder is read into the same checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from filbert.checkpoints import huggingface, weights
from filbert.errors import InputError
from filbert.files import replace_folder

WORDS = "bert.embeddings.word_embeddings.weight"


def test_a_written_checkpoint_is_read_back_equal(folder, make, same):
    checkpoint = huggingface.read(folder)
    assert same(checkpoint, make())
    assert checkpoint.labels == ("no", "yes", "né")
    assert checkpoint.source == folder


def test_two_writes_are_the_same_bytes(tmp_path, make):
    assert huggingface.write(make(), tmp_path / "a") == huggingface.write(make(), tmp_path / "b")


def test_other_files_of_the_folder_stay(folder, make):
    (folder / "vocab.txt").write_text("[PAD]\n")
    huggingface.write(make("spans"), folder)
    assert (folder / "vocab.txt").read_text() == "[PAD]\n"
    assert huggingface.read(folder).head == "spans"


def test_the_tokenizer_keys_of_config_json_survive(folder, tmp_path, edit_config):
    edit_config(folder, pad_token_id=3, tokenizer_class="BertTokenizer")
    huggingface.write(huggingface.read(folder), tmp_path / "again")
    raw = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (raw["pad_token_id"], raw["tokenizer_class"]) == (3, "BertTokenizer")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_file_keeps_its_dtype_and_builds_as_float32(tmp_path, dtype, make):
    checkpoint = make()
    checkpoint.tensors = {name: tensor.to(dtype) for name, tensor in checkpoint.tensors.items()}
    huggingface.write(checkpoint, tmp_path)
    back = huggingface.read(tmp_path)
    assert {tensor.dtype for tensor in back.tensors.values()} == {dtype}
    assert {parameter.dtype for parameter in back.build().parameters()} == {torch.float32}


# Other layouts of the same tensors.


def test_sharded_safetensors_are_read(folder, make, refusal, same):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    parts = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    assert same(huggingface.read(folder), make())

    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors is missing" in refusal(folder)


def test_a_model_that_does_not_fit_on_the_disk_leaves_the_old_one(
    tmp_path, make, same, monkeypatch
):
    folder = tmp_path / "model"
    huggingface.write(make(), folder)

    def full(tensors: Any, path: Path, **rest: Any) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(weights, "save_file", full)
    with pytest.raises(InputError, match="No space left"), replace_folder(folder) as new:
        huggingface.write(make("spans"), new)
    assert same(huggingface.read(folder), make())
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("bad", ["../model.safetensors", "/etc/passwd", "x.bin", 7, None])
def test_an_index_that_points_elsewhere_is_refused(folder, bad, refusal):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {WORDS: bad}}))
    assert WORDS in refusal(folder)


@pytest.mark.parametrize("zipped", [True, False])
def test_pytorch_model_bin_is_read(folder, zipped, make, same):
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    (folder / "model.safetensors").unlink()
    assert same(huggingface.read(folder), make())


def test_a_sharded_pytorch_model_bin_is_read(folder, make, same):
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model-00001-of-00001.bin")
    index = {"weight_map": {name: "pytorch_model-00001-of-00001.bin" for name in tensors}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    assert same(huggingface.read(folder), make())


class _Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(folder, tmp_path, refusal):
    (folder / "model.safetensors").unlink()
    torch.save({"a": _Payload(tmp_path / "ran")}, folder / "pytorch_model.bin")
    assert "could run code" in refusal(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04 not a zip", b"\x80\x02}q\x00."])
def test_a_damaged_pickle_is_refused(folder, content, refusal):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    assert "pytorch_model.bin" in refusal(folder)


def test_names_without_prefix_and_with_gamma_and_beta_are_read(folder, make, edit_tensors, same):
    def old_names(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            new = name.removeprefix("bert.")
            if "LayerNorm" in new:
                new = new.replace(".weight", ".gamma").replace(".bias", ".beta")
            tensors[new] = tensors.pop(name)
        tensors["embeddings.position_ids"] = torch.arange(20)[None]

    edit_tensors(folder, old_names)
    assert same(huggingface.read(folder), make())


def test_one_tensor_under_two_names_is_refused(folder, edit_tensors, refusal):
    edit_tensors(folder, lambda t: t.update({WORDS.removeprefix("bert."): t[WORDS].clone()}))
    assert "same tensor under two names" in refusal(folder)


def test_tied_decoders_may_be_repeated_but_not_differ(tmp_path, make, edit_tensors, refusal, same):
    huggingface.write(make("masked_lm"), tmp_path)

    def repeat(tensors: dict[str, torch.Tensor]) -> None:
        tensors["cls.predictions.decoder.weight"] = tensors[WORDS].clone()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()

    edit_tensors(tmp_path, repeat)
    assert same(huggingface.read(tmp_path), make("masked_lm"))
    edit_tensors(tmp_path, lambda t: t.__delitem__("cls.predictions.bias"))
    assert same(huggingface.read(tmp_path), make("masked_lm"))
    edit_tensors(tmp_path, lambda t: t["cls.predictions.decoder.weight"].add_(1))
    assert "cls.predictions.decoder.weight differs from" in refusal(tmp_path)


def test_the_oldest_configs_name_no_class_and_the_tensors_tell(tmp_path, make, edit_config, same):
    huggingface.write(make("pretraining"), tmp_path)
    edit_config(tmp_path, architectures=...)
    assert same(huggingface.read(tmp_path), make("pretraining"))


def test_a_class_that_the_tensors_do_not_settle_has_to_be_named(folder, edit_config, refusal):
    edit_config(folder, architectures=...)
    text = refusal(folder)
    assert (
        "BertForSequenceClassification, BertForMultipleChoice, BertForTokenClassification" in text
    )


def test_a_masked_lm_file_with_the_pair_head_is_read_whole_and_says_so(
    tmp_path, make, edit_config, same
):
    # google-bert/bert-base-uncased is such a file.
    huggingface.write(make("pretraining"), tmp_path)
    edit_config(tmp_path, architectures=["BertForMaskedLM"])
    checkpoint = huggingface.read(tmp_path)
    assert same(checkpoint, make("pretraining"))
    assert "BertForMaskedLM" in checkpoint.notes[0]


def test_a_pooler_that_the_class_does_not_use_is_left_out_and_said(
    tmp_path, make, edit_tensors, same
):
    huggingface.write(make("spans"), tmp_path)
    extra = {
        f"bert.pooler.dense.{leaf}": torch.ones(shape)
        for leaf, shape in (("weight", (16, 16)), ("bias", 16))
    }
    edit_tensors(tmp_path, lambda t: t.update(extra))
    checkpoint = huggingface.read(tmp_path)
    assert same(checkpoint, make("spans"))
    assert "bert.pooler.dense" in checkpoint.notes[0]
