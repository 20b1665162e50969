"""Exported graphs against our own packed outputs: every family and head, tiny, padded, float32."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.conftest import sizes

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from filbert.batch import pack
from filbert.checkpoints.checkpoint import Checkpoint, as_causal, meta_model, with_new_head
from filbert.checkpoints.families import FAMILIES
from filbert.checkpoints.fresh import fresh_checkpoint
from filbert.checkpoints.onnx_folder import MODEL_FILE, WEIGHTS_FILE, save_graph
from filbert.checkpoints.onnx_graph import build_graph
from filbert.checkpoints.sentence_transformers import SentenceVectors
from filbert.errors import ConfigError
from filbert.inference.int8 import dense_layers
from filbert.inference.onnx_session import SessionModel
from filbert.model.encoder import Encoder
from filbert.model.heads import Model, new_head
from filbert.model.int8 import InputRange
from filbert.model.pooling import ACTIVATIONS, VectorModule, pool

VOCAB = 97
LENGTHS = (9, 3, 17, 1, 12, 40)
# Products one after another: six in each of four layers, three in the longest head.
NUM_PRODUCTS = 6 * 4 + 3
MOST_TERMS = 48


def made(family: str, kind: str | None, **fields: object) -> Checkpoint:
    """A tiny model whose biases and LayerNorms are drawn too, so that none can be left out."""
    torch.manual_seed(3)
    rows = 43 if family == "roberta" else 41
    checkpoint = fresh_checkpoint(
        family,
        **sizes(vocab_size=VOCAB, layers=4, width=32, heads=4, inner=48, positions=rows),
        head="masked_lm",
    )
    if family == "modernbert":
        fields = {"local_window": 6, **fields}
    checkpoint = replace(checkpoint, config=checkpoint.config.changed(**fields))
    if kind != "masked_lm":
        count = 3 if kind in ("sequence", "tokens") else None
        checkpoint = with_new_head(checkpoint, kind, count)
    drawn = {n: t + 0.2 * torch.randn(t.shape) for n, t in checkpoint.tensors.items()}
    return replace(checkpoint, tensors=drawn)


def batch_of(checkpoint: Checkpoint, lengths: tuple[int, ...] = LENGTHS):
    draw = np.random.default_rng(0)
    types = max(1, checkpoint.config.embeddings.token_types)
    return pack(
        [draw.integers(0, VOCAB, n) for n in lengths],
        [draw.integers(0, types, n) for n in lengths],
    )


def saved(checkpoint, tmp_path, vectors=None):
    save_graph(build_graph(checkpoint, vectors), tmp_path / MODEL_FILE)
    return SessionModel(tmp_path, checkpoint)


def assert_rounding_apart(found, exact) -> None:
    """Assert that two float32 computations differ only in the order of their sums.

    Rounding errors have random signs: a sum of K terms differs by about sqrt(K) eps, P products in
    sequence by sqrt(P K) eps, here 36 eps = 4.3e-6. The unit is the largest output, or 1, since
    the terms of a small output are that large before they cancel. Measured with AVX2: 14 eps at
    most.
    """
    exact = np.asarray(exact)
    eps = np.finfo(np.float32).eps
    tolerance = eps * np.sqrt(NUM_PRODUCTS * MOST_TERMS) * max(1, np.abs(exact).max())
    np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance)


def int8_weights(graph):
    """The quantised weights of a graph by name, int8 (K, N)."""
    tensors = [t for t in graph.graph.initializer if t.data_type == onnx.TensorProto.INT8]
    return {t.name: numpy_helper.to_array(t) for t in tensors if len(t.dims) == 2}


def outputs(value):
    return value if isinstance(value, tuple) else (value,)


# Families under other names (CamemBERT, XLM-R) are these in all numbers.
OWN = (
    *("bert", "roberta", "distilbert", "albert", "electra", "modernbert"),
    *("nomic_bert", "gte", "neobert", "eurobert"),
)
HEADS = [(family, kind) for family in OWN for kind in FAMILIES[family].heads]


# Families without new models, as changes of a tiny ModernBERT: its names do not matter to a graph.
FURTHER = {
    "qwen3": {"num_key_value_heads": 2, "head_size": 10, "layer_norm_eps": 1e-3},
    "gemma3_text": {"num_key_value_heads": 2, "head_size": 10, "local_window": 6},
    "gpt2": {"rotary_base": None, "local_rotary_base": None},
    "new": {"rotary_scaling": 3.0, "local_window": None, "norm_place": "after"},
}


@pytest.mark.parametrize("name", FURTHER)
@pytest.mark.parametrize("kind", [None, "sequence"])
def test_a_padded_graph_has_every_axis_of_the_grammar(name, kind, tmp_path):
    changes = {**FAMILIES[name].constants, **FURTHER[name]}
    if changes.get("causal"):
        changes |= {"local_window": None}
    config = made("modernbert", None).config.changed(head_transform=False, **changes)
    torch.manual_seed(4)
    model = Model(Encoder(config), None if kind is None else new_head(kind, config, 3)).eval()
    with torch.no_grad():
        tensors = {n: t + 0.2 * torch.randn(t.shape) for n, t in model.state_dict().items()}
    checkpoint = Checkpoint(config, name, tensors, kind, ("a", "b", "c") if kind else None)
    batch = batch_of(checkpoint)
    with torch.inference_mode():
        wanted = checkpoint.build()(batch)
    assert_rounding_apart(saved(checkpoint, tmp_path)(batch), wanted)


@pytest.mark.parametrize(("family", "kind"), HEADS)
def test_a_padded_graph_gives_what_the_packed_model_gives(family, kind, tmp_path):
    checkpoint = made(family, kind)
    model = saved(checkpoint, tmp_path)
    batch = batch_of(checkpoint)
    with torch.inference_mode():
        wanted = outputs(checkpoint.build()(batch))
        grouped = outputs(model(batch))
    padded = model.session.padded(batch, model.session.outputs)
    if kind == "spans":
        padded = [np.stack(padded, -1)]
    assert len(wanted) == len(grouped) == len(padded)
    for exact, by_length, at_once in zip(wanted, grouped, padded, strict=True):
        assert exact.shape == by_length.shape == at_once.shape
        assert float(exact.std()) > 0.01, "outputs that differ from each other"
        assert_rounding_apart(at_once, exact)
        assert_rounding_apart(by_length, exact)


@pytest.mark.parametrize(
    "fields",
    [{"pooled": "mean"}, {"hidden_act": "relu"}, {"hidden_act": "gelu_tanh"}],
    ids=lambda fields: str(fields),
)
def test_a_graph_follows_the_fields_of_the_config(fields, tmp_path):
    checkpoint = made("bert", "sequence", **fields)
    batch = batch_of(checkpoint)
    with torch.inference_mode():
        wanted = checkpoint.build()(batch)
    assert_rounding_apart(saved(checkpoint, tmp_path)(batch), wanted)


BY_DISTANCE = {
    "buckets and a table": {
        "position_kind": "buckets",
        "distance_buckets": 8,
        "max_distance": 11,
        "absolute_positions": True,
    },
    "alibi": {"position_kind": "alibi", "attention_scale": 1.0},
    "disentangled": {"position_kind": "disentangled", "distance_buckets": 6, "max_distance": 12},
}


@pytest.mark.parametrize("fields", BY_DISTANCE.values(), ids=BY_DISTANCE)
def test_scores_by_distance_are_in_the_graph(fields, tmp_path):
    checkpoint = made("bert", None)
    config = checkpoint.config.changed(**fields)
    torch.manual_seed(4)
    tensors = {
        name: checkpoint.tensors.get(name, torch.randn(tensor.shape))
        for name, tensor in meta_model(config, None).state_dict().items()
    }
    checkpoint = replace(checkpoint, config=config, tensors=tensors)
    batch = batch_of(checkpoint)
    with torch.inference_mode():
        wanted = checkpoint.build()(batch)
    assert_rounding_apart(saved(checkpoint, tmp_path)(batch), wanted)


def test_xlnet_has_no_graph():
    config = made("bert", None).config.changed(position_kind="sinusoid", type_vocab_size=3)
    with pytest.raises(ConfigError, match="xlnet model is not exported to ONNX"):
        build_graph(Checkpoint(config, "xlnet", {}))


@pytest.mark.parametrize("kind", [None, "sequence"])
def test_a_causal_model_sees_nothing_ahead_in_the_graph_either(kind, tmp_path):
    checkpoint = as_causal(made("bert", kind))
    batch = batch_of(checkpoint)
    with torch.inference_mode():
        wanted = checkpoint.build()(batch)
    assert_rounding_apart(saved(checkpoint, tmp_path)(batch), wanted)


POOLINGS = ("mean", "cls", "last", "max", "mean_sqrt_len", "weightedmean", "max+cls")


@pytest.mark.parametrize(
    ("pooling", "activation"),
    [*((one, None) for one in POOLINGS), *(("max+cls", one) for one in ACTIVATIONS)],
)
def test_sentence_vectors_of_the_graph_are_those_of_the_folder(pooling, activation, tmp_path):
    checkpoint = made("bert", None)
    way = SentenceVectors(pooling)
    if activation is not None:
        width = 16 * len(pooling.split("+"))
        norm = {"norm.weight": torch.randn(24), "norm.bias": torch.randn(24)}
        way = SentenceVectors(
            pooling,
            normalize=True,
            before=(linear(32, 16, "Identity"), VectorModule("Normalize")),
            modules=(linear(width, 24, activation), VectorModule("LayerNorm", norm)),
            dimensions=20,
        )
    model = saved(checkpoint, tmp_path, way)
    batch = batch_of(checkpoint)
    (found,) = model.session.padded(batch, ("sentence_embedding",))
    with torch.inference_mode():
        wanted = checkpoint.build()(batch)
        for module in way.before:
            wanted = module(wanted)
        wanted = pool(wanted, batch, pooling)
        for module in way.modules:
            wanted = module(wanted)
        if way.normalize:
            wanted = torch.nn.functional.normalize(wanted[:, :20], dim=-1)
    assert_rounding_apart(found, wanted)


def linear(inputs, outputs, activation):
    tensors = {"linear.weight": torch.randn(outputs, inputs) / 6, "linear.bias": torch.randn(24)}
    tensors["linear.bias"] = tensors["linear.bias"][:outputs]
    return VectorModule("Dense", tensors, activation)


def test_shared_weights_are_stored_once():
    checkpoint = made("albert", "masked_lm")
    graph = build_graph(checkpoint).graph
    numbers = sum(int(np.prod(tensor.dims)) for tensor in graph.initializer)
    own = sum(tensor.numel() for tensor in checkpoint.tensors.values())
    assert own <= numbers < own + 100, "the weights and some constants"


def test_large_weights_lie_in_a_file_of_their_own(tmp_path):
    checkpoint = made("bert", "tokens")
    batch = batch_of(checkpoint)
    with torch.inference_mode():
        wanted = checkpoint.build()(batch)
    path = tmp_path / MODEL_FILE
    save_graph(build_graph(checkpoint), path, most_inside=1000)
    assert (tmp_path / WEIGHTS_FILE).stat().st_size > path.stat().st_size
    assert_rounding_apart(SessionModel(tmp_path, checkpoint)(batch), wanted)


def test_int8_weights_are_those_of_the_layers_per_channel(tmp_path):
    checkpoint = made("bert", "sequence")
    ranges = dict.fromkeys(dense_layers(checkpoint.build()), InputRange(0, 0))
    del ranges["encoder.layers.1.up"]
    ranges["encoder.layers.0.up"] = InputRange(0, 0, torch.linspace(0.25, 4, 32), (3, 7))
    graph = build_graph(checkpoint, int8=ranges)
    weights = int8_weights(graph)
    assert len(weights) == 4 * 4 - 1, "four products in each of four layers but for one"
    codes_KN = weights["encoder.layers.0.up.weight_quantized"]
    assert codes_KN.shape == (32, 48)
    assert codes_KN[2].any() and not codes_KN[[3, 7]].any(), "columns apart have no codes"
    scales = {t.name: t for t in graph.graph.initializer if t.name.endswith("_scale")}
    assert list(scales["encoder.layers.0.up.weight_scale"].dims) == [48]
    save_graph(graph, tmp_path / MODEL_FILE)
    batch = batch_of(checkpoint)
    with torch.inference_mode():
        exact = checkpoint.build()(batch)
    found = SessionModel(tmp_path, checkpoint)(batch)
    # Rows span about 6 standard deviations in 255 steps, weights 5 in 127: rounding adds about
    # 1.3 % a product, 5 % in 15 products. The largest of 18 errors is about three times that.
    assert 0 < float((found - exact).abs().max()) < 0.15 * float(exact.abs().max())


def test_columns_apart_are_multiplied_in_float32(tmp_path):
    checkpoint = made("bert", "sequence")
    model, batch = checkpoint.build(), batch_of(checkpoint)
    widths = {name: model.get_submodule(name).in_features for name in dense_layers(model)}
    ranges = {name: InputRange(0, 0, apart=tuple(range(width))) for name, width in widths.items()}
    save_graph(build_graph(checkpoint, int8=ranges), tmp_path / MODEL_FILE)
    with torch.inference_mode():
        assert_rounding_apart(SessionModel(tmp_path, checkpoint)(batch), model(batch))


def integer_product(codes_TK: np.ndarray, weight_KN: np.ndarray) -> np.ndarray:
    """Multiply uint8 codes by an int8 weight in onnxruntime: int32 (T, N), as int8 exports do."""
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["codes", "weight"], ["sums"])],
        "product",
        [helper.make_tensor_value_info("codes", TensorProto.UINT8, codes_TK.shape)],
        [helper.make_tensor_value_info("sums", TensorProto.INT32, None)],
        [numpy_helper.from_array(weight_KN, "weight")],
    )
    opset = helper.make_opsetid("", 20)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"codes": codes_TK})[0]


def test_int8_products_of_extreme_values_are_exact_on_every_cpu():
    """Without VNNI, x86 sums pairs of products in 16 bits, which end at 32,767."""
    checkpoint = made("bert", "sequence")
    checkpoint.tensors.update(
        {n: t.sign() for n, t in checkpoint.tensors.items() if n.startswith("encoder.layers.0")}
    )
    ranges = dict.fromkeys(dense_layers(checkpoint.build()), InputRange(0, 0))
    for weight_KN in int8_weights(build_graph(checkpoint, int8=ranges)).values():
        # Every output's largest and smallest sum.
        codes_TK = np.concatenate([weight_KN.T > 0, weight_KN.T < 0]).astype(np.uint8) * 255
        exact = codes_TK.astype(np.int64) @ weight_KN.astype(np.int64)
        np.testing.assert_array_equal(integer_product(codes_TK, weight_KN), exact)
        weight_KN = weight_KN.astype(np.int64)
        for sign in (1, -1):
            positive = np.maximum(sign * weight_KN, 0)
            assert 255 * (positive[1:] + positive[:-1]).max() <= 2**15 - 1
