from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from filbert.checkpoints.opening import read_checkpoint
from filbert.checkpoints.sentence_transformers import (
    ModelFolder,
    SentenceVectors,
    read_sentence_vectors,
    write_sentence_vectors,
)
from filbert.errors import FormatError
from filbert.model.pooling import ACTIVATIONS, VectorModule

TRANSFORMER = {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}


def put(folder: Path, modules: object, pooling: object = None) -> Path:
    (folder / "modules.json").write_text(
        modules if isinstance(modules, str) else json.dumps(modules)
    )
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


def test_pooling_and_normalising_are_read(tmp_path):
    normalize = {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
    put(tmp_path, [TRANSFORMER, POOLING, normalize], {"pooling_mode_cls_token": True})
    assert read_sentence_vectors(tmp_path, 8) == SentenceVectors("cls", True, similarity=None)


@pytest.mark.parametrize(
    "modules",
    [
        {},
        3,
        "null",
        ["Transformer"],
        [None],
        [{"path": ""}],
        [{"type": 5}],
        [{"type": "x.Pooling"}],
        [{"type": "x.Pooling", "path": 1}],
        "[" * 100_000,
        "[{",
    ],
)
def test_a_list_of_modules_of_another_shape_is_refused(tmp_path, modules):
    with pytest.raises(FormatError, match=r"modules\.json") as caught:
        read_sentence_vectors(put(tmp_path, modules), 8)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("path", ["../other", "/etc", "a/../../b", "x" * 5000])
def test_a_module_lies_inside_the_folder(tmp_path, path):
    with pytest.raises(FormatError) as caught:
        read_sentence_vectors(put(tmp_path, [TRANSFORMER, {**POOLING, "path": path}]), 8)
    assert ("path" in str(caught.value)) or "File name too long" in str(caught.value)
    assert len(str(caught.value)) < 500 and "missing" not in str(caught.value)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    "pooling", ["mean", "cls", "max", "mean_sqrt_len", "mean+cls", "cls+max+mean"]
)
def test_what_is_written_is_read_again(tmp_path, pooling, normalize):
    vectors = SentenceVectors(
        pooling,
        normalize,
        max_length=64,
        prompts={"query": "Query: "},
        default_prompt="query" if normalize else None,
        similarity="dot",
    )
    write_sentence_vectors(tmp_path, vectors, 32)
    assert read_sentence_vectors(tmp_path, 32) == vectors


def test_several_poolings_are_joined_in_the_order_of_sentence_transformers(tmp_path):
    on = {f"pooling_mode_{name}": True for name in ("mean_tokens", "cls_token", "max_tokens")}
    vectors = read_sentence_vectors(put(tmp_path, [TRANSFORMER, POOLING], on), 8)
    assert (vectors.pooling, vectors.dimension(32)) == ("cls+max+mean", 96)


def dense(inputs: int, outputs: int, activation: str = "Tanh", bias: bool = True) -> VectorModule:
    torch.manual_seed(inputs)
    tensors = {"linear.weight": torch.randn(outputs, inputs)}
    tensors |= {"linear.bias": torch.randn(outputs)} if bias else {}
    module = "linear" if activation == "Identity" else "activation"
    config = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": bias,
        "activation_function": f"torch.nn.modules.{module}.{activation}",
    }
    return VectorModule("Dense", tensors, activation, config)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_dense_layers_are_written_and_read_bit_for_bit(tmp_path, activation):
    layers = (dense(8, 6, activation), dense(6, 4, activation, bias=False))
    write_sentence_vectors(tmp_path, SentenceVectors("cls", modules=layers), 8)
    found = read_sentence_vectors(tmp_path, 8)
    assert found.dimension(8) == 4
    assert [layer.activation for layer in found.modules] == [activation] * 2
    for ours, theirs in zip(layers, found.modules, strict=True):
        assert ours.tensors.keys() == theirs.tensors.keys()
        assert all(torch.equal(ours.tensors[name], theirs.tensors[name]) for name in ours.tensors)


def test_a_dense_layer_of_another_width_than_the_vectors_is_refused(tmp_path):
    write_sentence_vectors(tmp_path, SentenceVectors("cls+mean", modules=(dense(8, 6),)), 4)
    assert read_sentence_vectors(tmp_path, 4).dimension(4) == 6
    with pytest.raises(FormatError, match="over vectors of 8, but those before it have 16"):
        read_sentence_vectors(tmp_path, 8)


NORMALIZE = {"idx": 1, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ([TRANSFORMER, NORMALIZE, POOLING], "here filbert runs those that change token_embeddings"),
        ([TRANSFORMER, POOLING, POOLING], "no vectors of tokens left to pool"),
        ([POOLING], "Transformer, StaticEmbedding are, as the first"),
    ],
)
def test_modules_that_do_not_fit_together_are_refused(tmp_path, modules, reason):
    put(tmp_path, modules, {"pooling_mode": "mean"})
    with pytest.raises(FormatError, match=reason):
        read_sentence_vectors(tmp_path, 8)


@pytest.mark.parametrize(
    ("kind", "why", "nearest"),
    [
        ("CLIPModel", "reads images", "clip-ViT-B-32-multilingual-v1"),
        ("WordEmbeddings", "splits words", "StaticEmbedding"),
        ("BoW", "counts words", "TF-IDF"),
        ("CNN", "convolution", "begins with Transformer"),
        ("LSTM", "recurrent", "begins with Transformer"),
    ],
)
def test_a_module_that_is_not_read_is_refused_with_the_nearest_that_is(
    tmp_path, kind, why, nearest
):
    put(tmp_path, [{**TRANSFORMER, "type": f"sentence_transformers.models.{kind}"}, POOLING])
    with pytest.raises(FormatError, match=f"'{kind}' is not supported.*{why}.*{nearest}"):
        read_sentence_vectors(tmp_path, 8)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"types": {}, "structure": {}},
        {"types": {"a": "x.Pooling"}, "structure": {"query": ["b"]}},
        {
            "types": {"a": "x.Transformer"},
            "structure": {"query": ["a"]},
            "parameters": {"default_route": "image"},
        },
        {
            "types": {"a": "x.Transformer"},
            "structure": {"text": ["a"]},
            "parameters": {"route_mappings": {"(None, 'text')": "text"}},
        },
    ],
)
def test_a_router_without_routes_by_task_is_refused(tmp_path, config):
    put(tmp_path, [{**TRANSFORMER, "type": "sentence_transformers.models.Router"}])
    (tmp_path / "router_config.json").write_text(json.dumps(config))
    with pytest.raises(FormatError, match="the Router cannot be read"):
        read_sentence_vectors(tmp_path, 8)


def test_a_quantised_table_of_word_vectors_is_refused_with_the_way_out(tmp_path):
    put(tmp_path, [{**TRANSFORMER, "type": "x.StaticEmbedding"}])
    tables = {"embeddings": torch.zeros(4, 2), "mapping": torch.zeros(9), "weights": torch.ones(9)}
    save_file(tables, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match="Load a quantised model2vec with sentence-transformers"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("length", "found"), [(128, 128), (None, None), (10**30, None), (0, None), (2, None)]
)
def test_a_longest_length_is_read_and_one_that_is_none_is_none(tmp_path, length, found):
    put(tmp_path, [TRANSFORMER])
    path = tmp_path / "sentence_roberta_config.json"
    path.write_text(json.dumps({"max_seq_length": length}))
    assert read_sentence_vectors(tmp_path, 8).max_length == found
    path.write_text(json.dumps({"max_seq_length": "long"}))
    with pytest.raises(FormatError, match="max_seq_length is 'long'"):
        read_sentence_vectors(tmp_path, 8)


def test_the_encoder_of_an_old_folder_lies_below_it(tmp_path):
    assert ModelFolder(tmp_path).encoder == tmp_path
    put(tmp_path, [{**TRANSFORMER, "path": "0_BERT", "type": "sentence_transformers.models.BERT"}])
    assert ModelFolder(tmp_path).encoder == tmp_path / "0_BERT"
