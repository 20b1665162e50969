"""TensorFlow 2's checkpoints of objects hold the same variables under other names and shapes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from filbert.errors import FormatError
from filbert.formats import google
from filbert.formats.google_names import name_table
from filbert.formats.google_objects import by_first_names, full_names
from filbert.protobuf import encode_field

_spec = importlib.util.spec_from_file_location(
    "google_samples", Path(__file__).with_name("google_samples.py")
)
samples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(samples)
drawn, save = samples.drawn, samples.save


SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
SIZE = samples.WIDTH // samples.HEADS

# Paths of attributes within a layer, as the published checkpoints of the Model Garden have them.
BY_ATTRIBUTES = {
    "attention/self/query": "_attention_layer/_query_dense",
    "attention/self/key": "_attention_layer/_key_dense",
    "attention/self/value": "_attention_layer/_value_dense",
    "attention/output/dense": "_attention_layer/_output_dense",
    "attention/output/LayerNorm": "_attention_layer_norm",
    "intermediate/dense": "_intermediate_dense",
    "output/dense": "_output_dense",
    "output/LayerNorm": "_output_layer_norm",
}
OLDER = {**BY_ATTRIBUTES, "attention/output/dense": "_attention_output_dense"}
BY_FULL_NAME = {
    "attention/self/query": "self_attention/query",
    "attention/self/key": "self_attention/key",
    "attention/self/value": "self_attention/value",
    "attention/output/dense": "self_attention/attention_output",
    "attention/output/LayerNorm": "self_attention_layer_norm",
    "intermediate/dense": "intermediate",
    "output/dense": "output",
    "output/LayerNorm": "output_layer_norm",
}
ALBERT_PARTS = {
    "attention_1/self/query": "attention/self/query",
    "attention_1/self/key": "attention/self/key",
    "attention_1/self/value": "attention/self/value",
    "attention_1/output/dense": "attention/output/dense",
    "ffn_1/intermediate/output/dense": "output/dense",
    "ffn_1/intermediate/dense": "intermediate/dense",
    "LayerNorm_1": "output/LayerNorm",
    "LayerNorm": "attention/output/LayerNorm",
}


def in_heads(name: str, value: np.ndarray) -> np.ndarray:
    """As Keras' MultiHeadAttention stores it."""
    if "/self/" in name:
        shape = (
            (samples.WIDTH, samples.HEADS, SIZE)
            if name.endswith("kernel")
            else (samples.HEADS, SIZE)
        )
        return value.reshape(shape)
    if "attention" in name and name.endswith("output/dense/kernel"):
        return value.reshape(samples.HEADS, SIZE, samples.WIDTH)
    return value


def numbered(variables: dict[str, np.ndarray], outer: str, parts: dict[str, str]) -> dict:
    """ "layer_with_weights-N": three tables, LayerNorm, [projection], layers, pooler."""
    has_projection = "bert/encoder/embedding_hidden_mapping_in/kernel" in variables
    first = 4 + has_projection
    is_albert = any("group_0" in name for name in variables)
    count = 1 if is_albert else samples.LAYERS
    found = {}
    for name, value in variables.items():
        _, _, rest = name.partition("/")
        module, _, leaf = rest.rpartition("/")
        if rest.startswith("embeddings/LayerNorm"):
            place = f"3/{leaf}"
        elif module == "embeddings":
            order = ("word_embeddings", "position_embeddings", "token_type_embeddings")
            place = f"{order.index(leaf)}/embeddings"
        elif module == "pooler/dense":
            place = f"{first + count}/{leaf}"
        elif "mapping_in" in module:
            place = f"4/{leaf}"
        else:
            tail = module.split("inner_group_0/")[-1] if is_albert else module.split("/", 2)[2]
            tail = ALBERT_PARTS.get(tail, tail)
            number = 0 if is_albert else int(module.split("layer_")[1].split("/")[0])
            place = f"{first + number}/{parts[tail]}/{leaf}"
        found[f"{outer}layer_with_weights-{place}{SUFFIX}"] = in_heads(name, value)
    return found


def named(variables: dict[str, np.ndarray], parts: dict[str, str], layer: str) -> dict:
    """Names of modules: of attributes, or full names."""
    by_attributes = parts is not BY_FULL_NAME
    modules = {
        "bert/embeddings/word_embeddings": ("_embedding_layer", "word_embeddings"),
        "bert/embeddings/position_embeddings": ("_position_embedding_layer", "position_embedding"),
        "bert/embeddings/token_type_embeddings": ("_type_embedding_layer", "type_embeddings"),
        "bert/embeddings/LayerNorm": ("_embedding_norm_layer", "embeddings/layer_norm"),
        "bert/pooler/dense": ("_pooler_layer", "pooler_transform"),
        "cls/predictions/transform/dense": ("masked_lm/dense", "cls/predictions/transform/dense"),
        "cls/predictions/transform/LayerNorm": (
            "masked_lm/layer_norm",
            "cls/predictions/transform/LayerNorm",
        ),
        "cls/predictions": ("masked_lm/output_bias.S", "cls/predictions/output_bias"),
    }
    found = {}
    for name, value in variables.items():
        module, _, leaf = name.rpartition("/")
        if name in modules:
            key = f"{modules[name][not by_attributes]}/embeddings"
        elif name == "cls/predictions/output_bias":
            key = "masked_lm/output_bias.Sbias" if by_attributes else f"{name}/bias"
        elif module in modules:
            key = f"{modules[module][not by_attributes]}/{leaf}"
        else:
            number, _, tail = module.split("layer_")[1].partition("/")
            key = f"{layer.format(number)}/{parts[tail]}/{leaf}"
        found[key] = in_heads(name, value)
    return found


def same(left: google.Checkpoint, right: google.Checkpoint) -> bool:
    assert left.tensors.keys() == right.tensors.keys()
    return left.config == right.config and all(
        torch.equal(left.tensors[name], value) for name, value in right.tensors.items()
    )


@pytest.mark.parametrize("outer", ["model/", "encoder/", "", "model/layer_with_weights-0/"])
@pytest.mark.parametrize("parts", [BY_ATTRIBUTES, OLDER])
def test_numbered_layers_are_read_in_their_order(
    outer: str, parts: dict[str, str], tmp_path: Path, vocab: Path
) -> None:
    variables = drawn(samples.BERT_ENCODER)
    plain = google.read(save(tmp_path / "a", variables, vocab))
    objects = numbered(variables, outer, parts)
    checkpoint = google.read(save(tmp_path / "b", objects, vocab))
    assert same(checkpoint, plain)
    assert any("TensorFlow 2" in note for note in checkpoint.notes)


def test_albert_is_told_by_its_configuration(tmp_path: Path, vocab: Path) -> None:
    variables = drawn(samples.albert_encoder())
    config = samples.CONFIGS["albert"]
    assert config[1] == samples.ALBERT_CONFIG
    plain = google.read(save(tmp_path / "a", variables, vocab, config))
    objects = numbered(variables, "encoder/", BY_ATTRIBUTES)
    assert same(google.read(save(tmp_path / "b", objects, vocab, config)), plain)


def test_named_layers_and_the_masked_lm_head_are_read(tmp_path: Path, vocab: Path) -> None:
    variables = drawn(
        {name: shape for name, shape in samples.BERT.items() if name not in samples.PAIR}
    )
    plain = google.read(save(tmp_path / "a", variables, vocab))
    objects = {
        ("" if key.startswith("masked_lm") else "encoder/") + key + SUFFIX: value
        for key, value in named(variables, BY_ATTRIBUTES, "_transformer_layers/{}").items()
    }
    checkpoint = google.read(save(tmp_path / "b", objects, vocab))
    assert checkpoint.head == "masked_lm"
    assert same(checkpoint, plain)


def test_slots_and_counters_are_left_out(tmp_path: Path, vocab: Path) -> None:
    variables = drawn(samples.BERT_ENCODER)
    objects = numbered(variables, "model/", BY_ATTRIBUTES)
    key = f"model/layer_with_weights-0/embeddings/.OPTIMIZER_SLOT/optimizer/m{SUFFIX}"
    objects |= {
        key: variables["bert/embeddings/word_embeddings"],
        f"optimizer/learning_rate{SUFFIX}": np.array(0.1, np.float32),
        f"save_counter{SUFFIX}": np.array(1, np.int64),
    }
    checkpoint = google.read(save(tmp_path / "b", objects, vocab))
    note = next(note for note in checkpoint.notes if "left out" in note)
    assert all(f"1 x {kind}" in note for kind in ("optimizer slot", "optimizer state", "bookkeep"))


def test_another_number_of_heads_shows_in_the_shapes(tmp_path: Path, vocab: Path) -> None:
    objects = numbered(drawn(samples.BERT_ENCODER), "model/", BY_ATTRIBUTES)
    config = ("bert_config.json", {**samples.BERT_CONFIG, "num_attention_heads": 8})
    with pytest.raises(FormatError, match=r"num_attention_heads 8, but .* shape of 4 heads"):
        google.read(save(tmp_path, objects, vocab, config))


def test_an_object_that_is_not_known_is_named(tmp_path: Path, vocab: Path) -> None:
    objects = numbered(drawn(samples.BERT_ENCODER), "model/", BY_ATTRIBUTES)
    objects[f"classifier/adapter/kernel{SUFFIX}"] = np.zeros((3, 3), np.float32)
    checkpoint = google.read(save(tmp_path, objects, vocab))
    assert any("(classifier/adapter/kernel" in note for note in checkpoint.notes)


# The object graph.


def graph(names: dict[str, str]) -> bytes:
    """A TrackableObjectGraph with one node a variable: attributes {1 name, 2 full, 3 key}."""
    nodes = []
    for key, full in names.items():
        attribute = encode_field(1, "VARIABLE_VALUE") + encode_field(2, full) + encode_field(3, key)
        child = encode_field(1, encode_field(1, 3) + encode_field(2, "kernel"))
        nodes.append(encode_field(1, child + encode_field(2, attribute)))
    return b"".join(nodes)


def test_full_names_are_read_from_the_object_graph(tmp_path: Path) -> None:
    names = {f"a/{i}{SUFFIX}": f"transformer/layer_{i}/output/bias" for i in range(20)}
    assert full_names(graph(names), tmp_path) == names


@pytest.mark.parametrize("cut", [1, 7, 30])
def test_a_damaged_object_graph_is_refused(cut: int, tmp_path: Path) -> None:
    whole = graph({f"a{SUFFIX}": "pooler_transform/bias"})
    with pytest.raises(FormatError, match="object graph"):
        full_names(whole[:-cut], tmp_path)


def test_full_names_go_before_paths_that_say_nothing(tmp_path: Path) -> None:
    variables = drawn(
        {name: shape for name, shape in samples.BERT.items() if name not in samples.PAIR}
    )
    full = named(variables, BY_FULL_NAME, "transformer/layer_{}")
    full["predictions/transform/logits/kernel"] = np.zeros((samples.WIDTH, 2), np.float32)
    keys = {f"v/{number}{SUFFIX}": name for number, name in enumerate(full)}
    shapes = {key: full[name].shape for key, name in keys.items()}
    found = by_first_names(shapes, list(keys), keys, name_table("bert"), tmp_path)
    assert {name: v.shape for name, v in found.items()} == {
        **{name: value.shape for name, value in variables.items()},
        "cls/seq_relationship/output_weights": (2, samples.WIDTH),
    }
    assert all(
        keys[variable.key] in full and variable.swapped == name.endswith("output_weights")
        for name, variable in found.items()
    )


def test_one_tensor_under_two_keys_is_refused(tmp_path: Path) -> None:
    keys = {f"a{SUFFIX}": "word_embeddings/embeddings", f"b{SUFFIX}": "word_embeddings/embeddings"}
    with pytest.raises(FormatError, match="both mean bert/embeddings/word_embeddings"):
        by_first_names(dict.fromkeys(keys, (3, 2)), list(keys), keys, name_table("bert"), tmp_path)
