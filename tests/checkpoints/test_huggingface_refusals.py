"""Damaged, contradictory and hostile folders are refused with a sentence that names the thing."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.errors import ConfigError
from filbert.model.encoder import Encoder
from filbert.model.heads import Model

WORDS = "bert.embeddings.word_embeddings.weight"


# Weights that do not fit.


def test_missing_and_unexpected_tensors_are_listed_with_their_number(folder, edit_tensors, refusal):
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
        ({"num_hidden_layers": 3}, "num_hidden_layers 3", "bert.encoder.layer.2."),
        ({"num_hidden_layers": 1}, "num_hidden_layers 1", "bert.encoder.layer.1."),
        ({"id2label": {"0": "a", "1": "b"}}, "2 labels (id2label)", "classifier.weight"),
        (
            {"id2label": ..., "label2id": ..., "num_labels": 2},
            "2 labels (id2label)",
            "classifier.weight",
        ),
        (
            {"architectures": ["BertForQuestionAnswering"]},
            "BertForQuestionAnswering",
            "qa_outputs.weight",
        ),
        ({"num_attention_heads": 3}, "num_attention_heads 3", "hidden_size 16"),
    ],
)
def test_a_config_that_contradicts_the_weights_names_field_and_tensor(
    folder, changes, field, tensor, edit_config, refusal
):
    edit_config(folder, **changes)
    text = refusal(folder)
    assert field in text
    assert tensor in text
    assert "config.json" in text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(folder, value, edit_tensors, refusal):
    edit_tensors(folder, lambda t: t["classifier.weight"].view(-1)[7:8].fill_(value))
    assert "classifier.weight holds values that are not finite" in refusal(folder)


def test_integer_weights_are_refused(folder, edit_tensors, refusal):
    edit_tensors(folder, lambda t: t.update({"classifier.bias": torch.ones(3, dtype=torch.int32)}))
    assert "classifier.bias has dtype I32" in refusal(folder)


# Damaged files.


def test_a_truncated_file_is_refused_wherever_it_ends(folder, refusal):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for length in (0, 3, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "model.safetensors" in refusal(folder)


def list_in_filbert_json(folder: Path, files: Any) -> None:
    (folder / "filbert.json").write_text(json.dumps({"task": "classification", "files": files}))


def test_a_flipped_bit_in_a_tensor_is_found_by_the_hash_in_filbert_json(tmp_path, make, refusal):
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
    "content", [b"", b"{", b"[]", b"\xff{}", b"[" * 100_000, b'{"a": ' + b"9" * 9000 + b"}"]
)
@pytest.mark.parametrize("name", ["config.json", "filbert.json"])
def test_a_damaged_json_file_is_refused_by_name(folder, name, content, refusal):
    (folder / name).write_bytes(content)
    assert name in refusal(folder)


def test_a_folder_that_is_no_model_is_refused(tmp_path, refusal):
    assert "is no model: no config.json" in refusal(tmp_path)
    assert "no config.json" in refusal(tmp_path / "nowhere")


def test_a_folder_without_weights_is_refused(folder, refusal):
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    text = refusal(folder)
    assert "has no weights" in text
    assert "tf_model.h5" in text


# Hostile and inexpressible configs.


@pytest.mark.parametrize(
    "key", ["vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"]
)
@pytest.mark.parametrize("value", [-1, 0, 10**9, "10**400", 1.5, "16", None, True, [], ...])
def test_an_absurd_size_is_refused_fast(folder, key, value, edit_config, refusal):
    edit_config(folder, **{key: 10**400 if value == "10**400" else value})
    start = time.perf_counter()
    assert key in refusal(folder)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "longformer"}, "whose attention is sparse; filbert reads modernbert"),
        ({"model_type": "big_bird"}, "whose attention is sparse; filbert reads modernbert"),
        ({"model_type": "llama"}, "which predicts the next token; filbert reads qwen3 and gpt2"),
        ({"model_type": "vit"}, "which reads images; filbert reads bert, roberta"),
        ({"model_type": "whisper"}, "which reads sound; filbert reads bert, roberta"),
        ({"model_type": "deberta"}, "which projects positions by itself; filbert reads deberta-v2"),
        ({"model_type": "nomic_bert", "num_experts": 8}, "nomic-embed-text-v1.5 is"),
        ({"model_type": "roformer"}, "names model_type 'roformer'; filbert reads bert, roberta"),
        ({"model_type": "roberta"}, "those of a bert. Correct model_type"),
        ({"model_type": ["bert"]}, "model_type ['bert']"),
        ({"architectures": ["BertForPoetry"]}, "BertForPoetry"),
        ({"architectures": "BertModel"}, "architectures"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish'"),
        ({"hidden_act": 3}, "hidden_act is 3"),
        ({"hidden_dropout_prob": "a lot"}, "hidden_dropout_prob is 'a lot'"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps"),
        ({"layer_norm_eps": -1}, "layer_norm_eps"),
        ({"layer_norm_eps": 10**400}, "layer_norm_eps"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label"),
        ({"id2label": ["a"]}, "id2label"),
        ({"id2label": {"0": "a", "1": "b", "2": "a"}}, "label 'a' to two ids"),
        ({"id2label": ..., "label2id": ..., "num_labels": -3}, "num_labels"),
        ({"problem_type": "guessing"}, "problem_type is 'guessing'"),
    ],
)
def test_what_the_encoder_cannot_be_is_refused_by_its_key(
    folder, changes, says, edit_config, refusal
):
    edit_config(folder, **changes)
    text = refusal(folder)
    assert says in text
    assert "config.json" in text


def test_albert_with_layers_inside_its_groups_is_refused(folder, edit_config, refusal):
    edit_config(folder, model_type="albert", inner_group_num=2)
    assert "inner_group_num is 2" in refusal(folder)


def test_a_config_that_the_family_cannot_say_is_not_written(tmp_path, make):
    config = make(None).config.changed(embedding_size=8)
    checkpoint = Checkpoint(config, "bert", Model(Encoder(config)).state_dict())
    with pytest.raises(ConfigError, match="cannot express embedding_size 8"):
        huggingface.write(checkpoint, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_names_of_tensors_cannot_steer_a_terminal(folder, edit_tensors, refusal):
    def add(prefix):
        def change(tensors):
            tensors[prefix + "\x1b[31mred"] = torch.zeros(1)
            tensors[prefix + "y" * 500] = torch.zeros(1)

        return change

    edit_tensors(folder, add(""))
    (note,) = huggingface.read(folder).notes
    assert note.isprintable() and "y" * 61 not in note and "left out: 2 tensors" in note
    edit_tensors(folder, add("bert."))
    sentence = refusal(folder)
    assert sentence.isprintable() and "y" * 61 not in sentence and "4 unexpected" in sentence
