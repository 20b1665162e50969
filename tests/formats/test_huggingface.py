"""Damaged, contradictory and hostile folders are refused with a sentence that names the thing."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from filbert.errors import ConfigError, FormatError
from filbert.formats import huggingface
from filbert.formats.checkpoint import Checkpoint, with_new_head
from filbert.formats.files import sha256_of
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model

WORDS = "bert.embeddings.word_embeddings.weight"
CONFIG = EncoderConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=20,
)


def make(kind: str | None = "sequence", **fields: Any) -> Checkpoint:
    torch.manual_seed(1)
    bare = Checkpoint(CONFIG, "bert", Model(Encoder(CONFIG)).state_dict(), **fields)
    if kind is None:
        return bare
    return with_new_head(bare, kind, labels=("no", "yes", "né") if kind == "sequence" else None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    huggingface.write(make(), tmp_path)
    return tmp_path


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    raw = {**json.loads(path.read_text("utf-8")), **changes}
    path.write_text(json.dumps({key: value for key, value in raw.items() if value is not ...}))


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = {
        name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()
    }
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refusal(folder: Path) -> str:
    with pytest.raises(FormatError) as caught:
        huggingface.read(folder)
    text = str(caught.value)
    assert text.count("\n") == 0
    assert len(text) < 700
    return text


def same(left: Checkpoint, right: Checkpoint) -> bool:
    assert left.tensors.keys() == right.tensors.keys()
    equal = all(torch.equal(left.tensors[name], right.tensors[name]) for name in left.tensors)
    return equal and (left.config, left.head, left.labels) == (
        right.config,
        right.head,
        right.labels,
    )


def test_a_written_checkpoint_is_read_back_equal(folder: Path) -> None:
    checkpoint = huggingface.read(folder)
    assert same(checkpoint, make())
    assert checkpoint.labels == ("no", "yes", "né")
    assert checkpoint.source == folder


def test_two_writes_are_the_same_bytes(tmp_path: Path) -> None:
    assert huggingface.write(make(), tmp_path / "a") == huggingface.write(make(), tmp_path / "b")


def test_write_returns_the_hashes_of_its_files(tmp_path: Path) -> None:
    hashes = huggingface.write(make(), tmp_path)
    assert hashes == {path.name: sha256_of(path) for path in tmp_path.iterdir()}
    assert sorted(hashes) == ["config.json", "model.safetensors"]


def test_other_files_of_the_folder_stay(folder: Path) -> None:
    (folder / "vocab.txt").write_text("[PAD]\n")
    huggingface.write(make("spans"), folder)
    assert (folder / "vocab.txt").read_text() == "[PAD]\n"
    assert huggingface.read(folder).head == "spans"


def test_the_tokenizer_keys_of_config_json_survive(folder: Path, tmp_path: Path) -> None:
    edit_config(folder, pad_token_id=3, tokenizer_class="BertTokenizer")
    huggingface.write(huggingface.read(folder), tmp_path / "again")
    raw = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (raw["pad_token_id"], raw["tokenizer_class"]) == (3, "BertTokenizer")


def test_build_does_not_share_memory_with_the_checkpoint() -> None:
    checkpoint = make()
    before = {name: tensor.clone() for name, tensor in checkpoint.tensors.items()}
    with torch.no_grad():
        for parameter in checkpoint.build().parameters():
            parameter.fill_(9)
    assert all(torch.equal(before[name], tensor) for name, tensor in checkpoint.tensors.items())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_file_keeps_its_dtype_and_builds_as_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    checkpoint = make()
    checkpoint.tensors = {name: tensor.to(dtype) for name, tensor in checkpoint.tensors.items()}
    huggingface.write(checkpoint, tmp_path)
    back = huggingface.read(tmp_path)
    assert {tensor.dtype for tensor in back.tensors.values()} == {dtype}
    assert {parameter.dtype for parameter in back.build().parameters()} == {torch.float32}


# Other layouts of the same tensors.


def test_sharded_safetensors_are_read(folder: Path) -> None:
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


@pytest.mark.parametrize("bad", ["../model.safetensors", "/etc/passwd", "x.bin", 7, None])
def test_an_index_that_points_elsewhere_is_refused(folder: Path, bad: Any) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {WORDS: bad}}))
    assert WORDS in refusal(folder)


def test_an_index_that_lies_about_a_shard_is_refused(folder: Path) -> None:
    file = "model-00001-of-00001.safetensors"
    (folder / "model.safetensors").rename(folder / file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"phantom": file}})
    )
    assert "disagree" in refusal(folder)


@pytest.mark.parametrize("zipped", [True, False])
def test_pytorch_model_bin_is_read(folder: Path, zipped: bool) -> None:
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    (folder / "model.safetensors").unlink()
    assert same(huggingface.read(folder), make())


def test_a_sharded_pytorch_model_bin_is_read(folder: Path) -> None:
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


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"a": _Payload(tmp_path / "ran")}, folder / "pytorch_model.bin")
    assert "could run code" in refusal(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04 not a zip", b"\x80\x02}q\x00."])
def test_a_damaged_pickle_is_refused(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    assert "pytorch_model.bin" in refusal(folder)


def test_names_without_prefix_and_with_gamma_and_beta_are_read(folder: Path) -> None:
    def old_names(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            new = name.removeprefix("bert.")
            if "LayerNorm" in new:
                new = new.replace(".weight", ".gamma").replace(".bias", ".beta")
            tensors[new] = tensors.pop(name)
        tensors["embeddings.position_ids"] = torch.arange(20)[None]

    edit_tensors(folder, old_names)
    assert same(huggingface.read(folder), make())


def test_one_tensor_under_two_names_is_refused(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.update({WORDS.removeprefix("bert."): t[WORDS].clone()}))
    assert "same tensor under two names" in refusal(folder)


def test_tied_decoders_may_be_repeated_but_not_differ(tmp_path: Path) -> None:
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


def test_the_oldest_configs_name_no_class_and_the_tensors_tell(tmp_path: Path) -> None:
    huggingface.write(make("pretraining"), tmp_path)
    edit_config(tmp_path, architectures=...)
    assert same(huggingface.read(tmp_path), make("pretraining"))


def test_a_class_that_the_tensors_do_not_settle_has_to_be_named(folder: Path) -> None:
    edit_config(folder, architectures=...)
    text = refusal(folder)
    assert (
        "BertForSequenceClassification, BertForMultipleChoice, BertForTokenClassification" in text
    )


def test_a_masked_lm_file_with_the_pair_head_is_read_whole_and_says_so(tmp_path: Path) -> None:
    # google-bert/bert-base-uncased is such a file.
    huggingface.write(make("pretraining"), tmp_path)
    edit_config(tmp_path, architectures=["BertForMaskedLM"])
    checkpoint = huggingface.read(tmp_path)
    assert same(checkpoint, make("pretraining"))
    assert "BertForMaskedLM" in checkpoint.notes[0]


def test_a_pooler_that_the_class_does_not_use_is_left_out_and_said(tmp_path: Path) -> None:
    huggingface.write(make("spans"), tmp_path)
    extra = {
        f"bert.pooler.dense.{leaf}": torch.ones(shape)
        for leaf, shape in (("weight", (16, 16)), ("bias", 16))
    }
    edit_tensors(tmp_path, lambda t: t.update(extra))
    checkpoint = huggingface.read(tmp_path)
    assert same(checkpoint, make("spans"))
    assert "bert.pooler.dense" in checkpoint.notes[0]


# Weights that do not fit.


def test_missing_and_unexpected_tensors_are_listed_with_their_number(folder: Path) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        for part in ("query", "key", "value"):
            for leaf in ("weight", "bias"):
                del tensors[f"bert.encoder.layer.0.attention.self.{part}.{leaf}"]
        tensors["bert.encoder.layer.1.adapter.weight"] = torch.ones(2)

    edit_tensors(folder, change)
    text = refusal(folder)
    assert "6 missing (bert.encoder.layer.0.attention.self.key.bias" in text
    assert "and 3 more" in text
    assert "1 unexpected (bert.encoder.layer.1.adapter.weight)" in text
    assert "model.safetensors" in text


@pytest.mark.parametrize(
    ("changes", "field", "tensor"),
    [
        ({"vocab_size": 51}, "vocab_size 51", WORDS),
        ({"hidden_size": 32}, "hidden_size 32", WORDS),
        ({"max_position_embeddings": 19}, "max_position_embeddings 19", "position_embeddings"),
        ({"type_vocab_size": 3}, "type_vocab_size 3", "token_type_embeddings"),
        ({"intermediate_size": 32}, "intermediate_size 32", "layer.0.intermediate.dense.weight"),
        ({"num_hidden_layers": 3}, "num_hidden_layers 3", "bert.encoder.layer.1."),
        ({"num_hidden_layers": 1}, "num_hidden_layers 1", "bert.encoder.layer.1."),
        ({"id2label": {"0": "a", "1": "b"}}, "2 labels (id2label)", "classifier.weight"),
        ({"id2label": ...}, "2 labels (id2label)", "classifier.weight"),
        (
            {"architectures": ["BertForQuestionAnswering"]},
            "BertForQuestionAnswering",
            "qa_outputs.weight",
        ),
        ({"architectures": ["BertModel"]}, "BertModel", "classifier.weight"),
        ({"num_attention_heads": 3}, "num_attention_heads 3", "hidden_size 16"),
    ],
)
def test_a_config_that_contradicts_the_weights_names_field_and_tensor(
    folder: Path, changes: dict[str, Any], field: str, tensor: str
) -> None:
    edit_config(folder, **changes)
    text = refusal(folder)
    assert field in text
    assert tensor in text
    assert "config.json" in text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(folder: Path, value: float) -> None:
    edit_tensors(folder, lambda t: t["classifier.weight"].view(-1)[7:8].fill_(value))
    assert "classifier.weight holds values that are not finite" in refusal(folder)


def test_integer_weights_are_refused(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.update({"classifier.bias": torch.ones(3, dtype=torch.int32)}))
    assert "classifier.bias has dtype I32" in refusal(folder)


# Damaged files.


def test_a_truncated_file_is_refused_wherever_it_ends(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for length in (0, 3, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "model.safetensors" in refusal(folder)


def test_a_flipped_bit_in_the_header_is_refused_or_changes_nothing(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    generator = torch.Generator().manual_seed(0)
    for position in [*range(8), *torch.randint(8, header, (150,), generator=generator).tolist()]:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(torch.randint(8, (1,), generator=generator))
        path.write_bytes(damaged)
        try:
            checkpoint = huggingface.read(folder)
        except FormatError as error:
            assert "model.safetensors" in str(error)
        else:
            assert same(checkpoint, make())


@pytest.mark.parametrize("size", [0, 1, 2**31, 2**62, 2**64 - 1])
def test_a_header_that_lies_about_its_size_is_refused(folder: Path, size: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", size) + path.read_bytes()[8:])
    assert "model.safetensors" in refusal(folder)


@pytest.mark.parametrize("shape", [[50, 10**15], [-50, 16], [2**63, 2], "x"])
def test_a_header_with_an_absurd_shape_is_refused(folder: Path, shape: Any) -> None:
    header = {WORDS: {"dtype": "F32", "shape": shape, "data_offsets": [0, 3200]}}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(3200))
    assert "model.safetensors" in refusal(folder)


def list_in_filbert_json(folder: Path, files: Any) -> None:
    (folder / "filbert.json").write_text(json.dumps({"task": "classification", "files": files}))


def test_a_flipped_bit_in_a_tensor_is_found_by_the_hash_in_filbert_json(tmp_path: Path) -> None:
    hashes = huggingface.write(make(), tmp_path)
    list_in_filbert_json(tmp_path, {name: {"sha256": value} for name, value in hashes.items()})
    assert huggingface.read(tmp_path).filbert["task"] == "classification"

    path = tmp_path / "model.safetensors"
    whole = bytearray(path.read_bytes())
    whole[-100] ^= 1
    path.write_bytes(whole)
    assert "model.safetensors is damaged or was changed" in refusal(tmp_path)
    (tmp_path / "filbert.json").unlink()
    huggingface.read(tmp_path)  # the control: nothing else sees it


@pytest.mark.parametrize(
    "files", [7, {"model.safetensors": "abc"}, {"model.safetensors": {"sha256": 1}}]
)
def test_a_filbert_json_with_odd_hashes_is_refused(folder: Path, files: Any) -> None:
    list_in_filbert_json(folder, files)
    assert "filbert.json" in refusal(folder)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff{}", b"[" * 100_000, b'{"a": ' + b"9" * 9000 + b"}"]
)
@pytest.mark.parametrize("name", ["config.json", "filbert.json"])
def test_a_damaged_json_file_is_refused_by_name(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    assert name in refusal(folder)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    assert "is no model: no config.json (found: nothing)" in refusal(tmp_path)
    (tmp_path / "train.csv").write_text("text,label\n")
    assert "(found: train.csv)" in refusal(tmp_path)
    assert "no config.json" in refusal(tmp_path / "nowhere")


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    text = refusal(folder)
    assert "has no weights" in text
    assert "tf_model.h5" in text


# Hostile and inexpressible configs.


@pytest.mark.parametrize(
    "key", ["vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"]
)
@pytest.mark.parametrize("value", [-1, 0, 10**9, "10**400", 1.5, "16", None, True, [], ...])
def test_an_absurd_size_is_refused_fast(folder: Path, key: str, value: Any) -> None:
    edit_config(folder, **{key: 10**400 if value == "10**400" else value})
    start = time.perf_counter()
    assert key in refusal(folder)
    assert time.perf_counter() - start < 2


def test_the_largest_config_that_is_allowed_costs_nothing(folder: Path) -> None:
    sizes = {"vocab_size": 4_000_000, "hidden_size": 65_536, "intermediate_size": 524_288}
    edit_config(folder, **sizes, num_hidden_layers=512, num_attention_heads=1024)
    start = time.perf_counter()
    assert "num_hidden_layers 512" in refusal(folder)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2'"),
        ({"model_type": ...}, "no model_type"),
        ({"model_type": ["bert"]}, "model_type ['bert']"),
        ({"architectures": ["BertForPoetry"]}, "BertForPoetry"),
        ({"architectures": "BertModel"}, "architectures"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
        ({"hidden_act": 3}, "hidden_act is 3"),
        ({"hidden_dropout_prob": "a lot"}, "hidden_dropout_prob is 'a lot'"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps"),
        ({"layer_norm_eps": -1}, "layer_norm_eps"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label"),
        ({"id2label": ["a"]}, "id2label"),
        ({"id2label": {"0": "a", "1": "b", "2": "a"}}, "label 'a' to two ids"),
        ({"id2label": ..., "num_labels": -3}, "num_labels"),
        ({"problem_type": "guessing"}, "problem_type is 'guessing'"),
    ],
)
def test_what_the_encoder_cannot_be_is_refused_by_its_key(
    folder: Path, changes: dict[str, Any], says: str
) -> None:
    edit_config(folder, **changes)
    text = refusal(folder)
    assert says in text
    assert "config.json" in text


def test_albert_with_layers_inside_its_groups_is_refused(folder: Path) -> None:
    edit_config(folder, model_type="albert", inner_group_num=2)
    assert "inner_group_num is 2" in refusal(folder)


def test_a_config_that_the_family_cannot_say_is_not_written(tmp_path: Path) -> None:
    config = EncoderConfig(**{**CONFIG.__dict__, "embedding_size": 8})
    checkpoint = Checkpoint(config, "bert", Model(Encoder(config)).state_dict())
    with pytest.raises(ConfigError, match="no way to say embedding_size 8"):
        huggingface.write(checkpoint, tmp_path / "new")
    assert not (tmp_path / "new").exists()
