"""Builds an ONNX graph: padded, of any batch size and length, in standard operators only.

It is built node by node, so that every weight keeps its name and the file has no other content.
Shapes: B sequences, L positions, H hidden size, A heads, D head size, C classes, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.sentence_transformers import SentenceVectors
from filbert.errors import ConfigError
from filbert.model.config import (
    Alibi,
    Buckets,
    Disentangled,
    EncoderConfig,
    LayerNorm,
    RelativeSinusoid,
    RMSNorm,
    RotaryPositions,
)
from filbert.model.distances import alibi_slopes, bucket_of, row_of_distance
from filbert.model.int8 import InputRange
from filbert.model.pooling import VectorModule
from filbert.model.positions import rotary_frequencies

# The first with attention as one operator; onnxruntime has it since 1.23 (2025).
OPSET = 23
# The version of the file format of that release; older runtimes refuse later ones.
_IR_VERSION = 11
# Added to the scores of masked positions. A softmax over infinities only would be NaN, which would
# spread from padding to other positions.
_UNSEEN = -1e9
# Operators whose names are not those of the activations with a capital.
_OPERATORS = {"leakyrelu": "LeakyRelu"}

Value = str
"""The name of a value in a graph."""


class _Graph:
    """Nodes and initializers under construction.

    Operators take names of values, or Python numbers and lists, which become initializers.
    """

    def __init__(self, tensors: Mapping[str, Tensor], int8: Mapping[str, InputRange]) -> None:
        self.tensors, self.int8 = tensors, int8
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, TensorProto] = {}

    def op(self, kind: str, *inputs: Any, **settings: Any) -> Value:
        """Add a node with one output, and return it."""
        return self.ops(kind, *inputs, outputs=1, **settings)[0]

    def ops(
        self, kind: str, *inputs: Any, outputs: int, name: str = "", **settings: Any
    ) -> list[Value]:
        """Add a node with several outputs, and return them."""
        name = name or f"{kind}_{len(self.nodes)}"
        values = [name] if outputs == 1 else [f"{name}:{i}" for i in range(outputs)]
        names = [i if isinstance(i, str) else self._constant(i) for i in inputs]
        self.nodes.append(helper.make_node(kind, names, values, name, **settings))
        return values

    def _constant(self, value: Any) -> Value:
        if isinstance(value, np.ndarray):
            return self._initializer(f"array {len(self.initializers)}", value)
        array = np.array(value)
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        return self._initializer(f"constant {value}", array)

    def _initializer(self, name: str, array: np.ndarray) -> Value:
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def weight(self, name: str, *, transposed: bool = False) -> Value:
        """Return a tensor of the checkpoint as float32, transposed for products of rows with it."""
        array = self.tensors[name].detach().cpu().float().numpy()
        return self._initializer(name, array.T if transposed else array)

    def dense(self, rows: Value, name: str, activation: str | None = None, at: str = "") -> Value:
        """Return activation(rows @ weight.T + bias) of rows (..., K).

        Args:
            at: Name of a product inside the encoder's layers, whose weight may have another's name.
        """
        product = f"{at or name}.product"
        if name in self.int8:
            out = self._int8_product(rows, name, product)
        else:
            out = self.op("MatMul", rows, self.weight(f"{name}.weight", transposed=True),
                          name=product)  # fmt: skip
        if f"{name}.bias" in self.tensors:
            out = self.op("Add", out, self.weight(f"{name}.bias"))
        apart = list(self.int8[name].apart) if name in self.int8 else []
        if apart:
            columns = self.tensors[f"{name}.weight"][:, apart].float().numpy()
            exact = self.op("MatMul", self.op("Gather", rows, apart, axis=-1), columns.T)
            out = self.op("Add", out, exact)
        return self.activate(out, activation)

    def _int8_product(self, rows: Value, layer: str, name: str) -> Value:
        """Return quantized rows @ weight.T: one scale per call for the rows, one per output."""
        weight, inputs = f"{layer}.weight", self.int8[layer]
        apart = list(inputs.apart)
        values_NK = self.tensors[weight].detach().cpu().float()
        shares_K = torch.ones(values_NK.shape[1])
        if inputs.factors is not None:
            shares_K = inputs.factors.reciprocal()
        if f"{weight}_quantized" not in self.initializers:
            scaled_NK = values_NK / shares_K
            scaled_NK[:, apart] = 0
            codes_KN, scale_N = pair_safe_codes(scaled_NK.numpy())
            self._initializer(f"{weight}_quantized", codes_KN)
            self._initializer(f"{weight}_scale", scale_N)
        shares_K[apart] = 0
        is_scaled = bool((shares_K != 1).any())
        scaled = self.op("Mul", rows, shares_K.numpy()) if is_scaled else rows
        codes, scale, zero = self.ops("DynamicQuantizeLinear", scaled, outputs=3)
        sums = self.op("MatMulInteger", codes, f"{weight}_quantized", zero)
        scales = self.op("Mul", scale, f"{weight}_scale")
        return self.op("Mul", self.op("Cast", sums, to=TensorProto.FLOAT), scales, name=name)

    def activate(self, value: Value, activation: str | None) -> Value:
        """Apply the activation of that name, as in `model.cpu.activate`."""
        if activation is None or activation == "identity":
            return value
        if activation.startswith("gelu"):
            form = "tanh" if activation == "gelu_tanh" else "none"
            return self.op("Gelu", value, approximate=form)
        if activation == "silu":
            return self.op("Mul", value, self.op("Sigmoid", value))
        return self.op(_OPERATORS.get(activation, activation.capitalize()), value)

    def norm(self, value: Value, name: str, norm: LayerNorm | RMSNorm) -> Value:
        """Apply the norm over the last axis, if the checkpoint has one of that name."""
        if f"{name}.weight" not in self.tensors:
            return value
        weight = self.weight(f"{name}.weight")
        if isinstance(norm, LayerNorm):
            bias = [self.weight(f"{name}.bias")] if f"{name}.bias" in self.tensors else []
            return self.op("LayerNormalization", value, weight, *bias, axis=-1, epsilon=norm.eps)
        if norm.from_one:
            weight = self.op("Add", weight, 1.0)
        return self.op("RMSNormalization", value, weight, axis=-1, epsilon=norm.eps)


def pair_safe_codes(weight_NK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantize a weight so that its products with uint8 codes are exact on every CPU.

    Without VNNI, x86 sums two adjacent products in 16 bits, which saturate above 32,767. So each
    output's scale makes the largest sum of two adjacent weights of one sign 128 or less
    (255 x 128 = 32,640). Full range saturates; 7 bits would do, with a larger error (docs/log.md).

    Returns:
        int8 codes (K, N) and float32 scales (N,).
    """
    padded_NK = np.pad(weight_NK, ((0, 0), (0, 1)))
    signs = (np.maximum(sign * padded_NK, 0) for sign in (1, -1))
    largest_N = np.maximum(*((part[:, 1:] + part[:, :-1]).max(1) for part in signs))
    # Rounding may add a half to each of the two: 127 becomes 128.
    scale_N = np.where(largest_N > 0, largest_N / 127, 1).astype(np.float32)
    return np.rint(weight_NK.T / scale_N).astype(np.int8), scale_N


class _Padded:
    """The encoder over (B, L) inputs, with the values that several of its parts use."""

    def __init__(self, graph: _Graph, config: EncoderConfig) -> None:
        self.graph, self.config = graph, config
        self.shapes: dict[Value, tuple[Any, ...]] = {}  # of the outputs
        op = graph.op
        self.mask = op("Cast", "attention_mask", to=TensorProto.FLOAT, name="mask_BL")
        self.mask_BL1 = op("Unsqueeze", self.mask, [2])
        self.length = op("Gather", op("Shape", "input_ids"), 1)
        self.places = op("Range", 0, self.length, 1, name="places_L")
        # Position of each key less that of each query, (L, L).
        self.ahead = op("Sub", self.places, op("Unsqueeze", self.places, [1]))

    def encoder(self) -> Value:
        """Return the last hidden states, (B, L, H)."""
        config, graph = self.config, self.graph
        hidden = self._embeddings()
        kinds = {config.is_local(index) for index in range(config.num_hidden_layers)}
        seen = {local: self._biased(self._seen(local=local)) for local in kinds}
        turns = {local: self._turns(local=local) for local in kinds}
        for index in range(config.num_hidden_layers):
            local = config.is_local(index)
            hidden = self._layer(index, hidden, seen[local], turns[local])
        return graph.norm(hidden, "encoder.final_norm", config.norm)

    def add_output(self, name: Value, value: Value, *shape: Any) -> None:
        """Make a value an output, of the shape (B, *shape)."""
        self.graph.op("Identity", value, name=name)
        self.shapes[name] = ("batch", *shape)

    def _embeddings(self) -> Value:
        config, graph, op = self.config, self.graph, self.graph.op
        name = "encoder.embeddings"
        total = op("Gather", graph.weight(f"{name}.word.weight"), "input_ids")
        if config.embeddings.scaled:
            total = op("Mul", total, math.sqrt(config.hidden_size))
        if config.embeddings.token_types:
            types = graph.weight(f"{name}.token_type.weight")
            ids = "token_type_ids" if config.embeddings.token_types > 1 else 0
            total = op("Add", total, op("Gather", types, ids))
        if config.positions.absolute:
            rows = self.places
            if config.positions.offset:
                rows = op("Add", rows, config.positions.offset)
            table = graph.weight(f"{name}.position.weight")
            total = op("Add", total, op("Gather", table, rows))
        normed = graph.norm(total, f"{name}.norm", config.norm)
        return graph.dense(normed, f"{name}.project") if config.embeddings.width else normed

    def _seen(self, *, local: bool) -> Value:
        """Return what is added to the scores: (B, 1, L, L)."""
        op, attention = self.graph.op, self.config.attention
        if attention.causal:
            near = op("LessOrEqual", self.ahead, 0)
        else:
            window = attention.window if local else None
            width = window // 2 if window else self.config.max_tokens_per_sequence
            near = op("LessOrEqual", op("Abs", self.ahead), width)
        real = op("Cast", op("Unsqueeze", "attention_mask", [1, 2]), to=TensorProto.BOOL)
        return op("Where", op("And", real, near), 0.0, _UNSEEN)

    def _biased(self, seen: Value) -> Value:
        """Add the bias by distance, if the model has one: (B, A, L, L); see `Distances`."""
        positions, op = self.config.positions, self.graph.op
        if not isinstance(positions, Buckets | Alibi):
            return seen
        longest = self.config.max_tokens_per_sequence
        ahead_P = torch.arange(1 - longest, longest)
        if isinstance(positions, Buckets):
            buckets = bucket_of(ahead_P, positions.count, positions.max_distance)
            table = self.graph.weight("encoder.distances.table.weight")
            bias_PA = op("Gather", table, buckets.numpy())
        else:
            slopes = torch.tensor(alibi_slopes(self.config.attention.heads))
            bias_PA = op("Identity", (-slopes * ahead_P.abs()[:, None]).numpy())
        bias_LLA = op("Gather", bias_PA, op("Add", self.ahead, longest - 1))
        return op("Add", op("Transpose", bias_LLA, perm=[2, 0, 1]), seen)

    def _by_position(self, query: Value, key: Value, name: str, at: str) -> Value:
        """Return the scores of queries and keys with vectors of distances, (B, A, L, L)."""
        positions, graph, op = self.config.positions, self.graph, self.graph.op
        assert isinstance(positions, Disentangled)
        longest = self.config.max_tokens_per_sequence
        behind_P = -torch.arange(1 - longest, longest)
        rows_P = row_of_distance(behind_P, positions.count, positions.max_distance).numpy()
        rows_LL = op("Gather", rows_P, op("Add", self.ahead, longest - 1))
        table = graph.weight("encoder.distances.table.weight")
        table = graph.norm(table, "encoder.distances.norm", self.config.norm)
        fused = graph.dense(table, f"{name}.qkv", at=f"{at}.distances")
        ours, theirs, _ = graph.ops("Split", fused, axis=-1, num_outputs=3, outputs=3)
        by_side = []
        for rows, vectors, index in (
            (query, theirs, rows_LL),
            (key, ours, op("Transpose", rows_LL, perm=[1, 0])),
        ):
            rows_BALD = op("Transpose", self._by_head(rows), perm=[0, 2, 1, 3])
            shape = [0, -1, self.config.head_size]
            vectors_ADR = op("Transpose", op("Reshape", vectors, shape), perm=[1, 2, 0])
            every = op("MatMul", rows_BALD, vectors_ADR)
            lengths = op("Slice", op("Shape", every), [0], [3])
            wide = op(
                "Expand", index, op("Concat", lengths, op("Unsqueeze", self.length, [0]), axis=0)
            )
            by_side.append(op("GatherElements", every, wide, axis=3))
        return op("Add", by_side[0], op("Transpose", by_side[1], perm=[0, 1, 3, 2]))

    def _turns(self, *, local: bool) -> tuple[Value, Value] | None:
        """Return cosine and sine of the angles, (L, 1, D / 2) each; see `model.positions`."""
        config, op = self.config, self.graph.op
        if not isinstance(config.positions, RotaryPositions):
            return None
        base = (config.positions.local_base if local else None) or config.positions.base
        scaling = config.positions.scaling
        frequencies = rotary_frequencies(config.head_size, base, scaling).numpy()
        places = op("Cast", op("Unsqueeze", self.places, [1, 2]), to=TensorProto.FLOAT)
        angles = op("Mul", places, frequencies)
        return op("Cos", angles), op("Sin", angles)

    def _layer(
        self, index: int, hidden: Value, seen: Value, turns: tuple[Value, Value] | None
    ) -> Value:
        """Apply a layer, (B, L, H) to (B, L, H); see `model.encoder.Layer`."""
        config, graph = self.config, self.graph
        group = index * config.num_groups // config.num_hidden_layers
        name, at, norm = f"encoder.layers.{group}", f"layer.{index}", config.norm
        if config.pre_norm:
            normed = graph.norm(hidden, f"{name}.attention_norm", norm)
            mixed = self._attention(normed, name, at, seen, turns)
            hidden = graph.op(
                "Add", hidden, graph.norm(mixed, f"{name}.attention_norm_after", norm)
            )
            wide = self._feed_forward(graph.norm(hidden, f"{name}.norm", norm), name, at)
            return graph.op("Add", hidden, graph.norm(wide, f"{name}.norm_after", norm))
        total = graph.op("Add", hidden, self._attention(hidden, name, at, seen, turns))
        hidden = graph.norm(total, f"{name}.attention_norm", norm)
        total = graph.op("Add", hidden, self._feed_forward(hidden, name, at))
        return graph.norm(total, f"{name}.norm", norm)

    def _attention(
        self, hidden: Value, name: str, at: str, seen: Value, turns: tuple[Value, Value] | None
    ) -> Value:
        graph, op, attention = self.graph, self.graph.op, self.config.attention
        fused = graph.dense(hidden, f"{name}.qkv", at=f"{at}.qkv")
        shared = attention.key_value_heads or attention.heads
        widths = np.array([attention.heads, shared, shared], np.int64) * self.config.head_size
        query, key, value = graph.ops("Split", fused, widths, axis=-1, outputs=3)
        if attention.normed or turns is not None:
            query = self._placed(query, f"{name}.heads.query_norm", turns)
            key = self._placed(key, f"{name}.heads.key_norm", turns)
        scale = self.config.score_scale or 1 / math.sqrt(self.config.head_size)
        if isinstance(self.config.positions, Disentangled):
            by_position = self._by_position(query, key, name, at)
            seen = op("Add", op("Mul", by_position, scale), seen)
        counts = {"q_num_heads": attention.heads, "kv_num_heads": shared}
        mixed = op("Attention", query, key, value, seen, scale=scale, **counts)
        return graph.dense(mixed, f"{name}.attention_out", at=f"{at}.attention_out")

    def _by_head(self, rows: Value) -> Value:
        """Return (B, L, A, D) for (B, L, A * D)."""
        return self.graph.op("Reshape", rows, [0, 0, -1, self.config.head_size])

    def _placed(self, rows: Value, norm: str, turns: tuple[Value, Value] | None) -> Value:
        """Return queries or keys normalized and turned, where the model does so."""
        op, heads = self.graph.op, self.graph.norm(self._by_head(rows), norm, self.config.norm)
        if turns is not None:
            cos, sin = turns
            first, second = self.graph.ops("Split", heads, axis=-1, num_outputs=2, outputs=2)
            heads = op(
                "Concat",
                op("Sub", op("Mul", first, cos), op("Mul", second, sin)),
                op("Add", op("Mul", second, cos), op("Mul", first, sin)),
                axis=-1,
            )
        return op("Reshape", heads, [0, 0, -1])

    def _feed_forward(self, hidden: Value, name: str, at: str) -> Value:
        config, graph, op = self.config, self.graph, self.graph.op
        wide = graph.dense(hidden, f"{name}.up", at=f"{at}.up")
        if config.feed_forward.gated:
            wide, gate = self.graph.ops("Split", wide, axis=-1, num_outputs=2, outputs=2)
            wide = op("Mul", graph.activate(wide, config.feed_forward.activation), gate)
        else:
            wide = graph.activate(wide, config.feed_forward.activation)
        return graph.dense(wide, f"{name}.down", at=f"{at}.down")

    def pooled(self, hidden: Value, pooling: str) -> Value:
        """Return vectors (B, H * poolings) of all real positions; see `model.pooling.pool`."""
        op = self.graph.op
        parts = pooling.split("+")
        if len(parts) > 1:
            return op("Concat", *[self.pooled(hidden, part) for part in parts], axis=-1)
        if pooling == "last" or (pooling == "cls" and self.config.attention.causal):
            last = op("Sub", op("ReduceSum", "attention_mask", [1], keepdims=1), 1)
            return op("GatherND", hidden, last, batch_dims=1)
        if pooling == "cls":
            return op("Gather", hidden, 0, axis=1)
        if pooling == "max":
            real = op("Cast", op("Unsqueeze", "attention_mask", [2]), to=TensorProto.BOOL)
            return op("ReduceMax", op("Where", real, hidden, _UNSEEN), [1], keepdims=0)
        mask, mask_BL1 = self.mask, self.mask_BL1
        if pooling == "weightedmean":
            mask = op("Mul", mask, op("CumSum", mask, 1))
            mask_BL1 = op("Unsqueeze", mask, [2])
        total = op("ReduceSum", op("Mul", hidden, mask_BL1), [1], keepdims=0)
        count = op("ReduceSum", mask, [1], keepdims=1)
        if pooling == "mean_sqrt_len":
            count = op("Sqrt", count)
        return op("Div", total, count)

    def sentence_embedding(self, hidden: Value, way: SentenceVectors) -> Value:
        """Return sentence vectors: pooled, between the modules, normalized if requested."""
        op = self.graph.op
        for module in way.before:
            hidden = self._vector_module(hidden, module)
        out = self.pooled(hidden, way.pooling)
        for module in way.modules:
            out = self._vector_module(out, module)
        if way.dimensions is not None:
            out = op("Slice", out, [0], [way.dimensions], [-1])
        if way.normalize:
            out = self._vector_module(out, VectorModule("Normalize"))
        return out

    def _vector_module(self, out: Value, module: VectorModule) -> Value:
        graph, op = self.graph, self.graph.op
        if module.kind == "Normalize":
            norm = op("ReduceL2", out, [-1], keepdims=1)
            return op("Div", out, op("Max", norm, 1e-12))
        weight, *bias = (tensor.float().numpy() for tensor in module.tensors.values())
        if module.kind == "LayerNorm":
            return op("LayerNormalization", out, weight, *bias, axis=-1, epsilon=1e-5)
        out = op("MatMul", out, weight.T)
        return graph.activate(op("Add", out, *bias) if bias else out, module.activation.lower())

    def add_logits(self, kind: str, hidden: Value) -> None:
        """Add the outputs of a head."""
        config, graph, op = self.config, self.graph, self.graph.op
        if kind in ("masked_lm", "pretraining"):
            head = "head.masked_lm" if kind == "pretraining" else "head"
            scores = self._vocabulary_scores(hidden, head)
            self.add_output("logits", scores, "length", config.vocab_size)
            if kind == "pretraining":
                pair = graph.dense(self._pooler(hidden), "head.pair.out")
                self.add_output("seq_relationship_logits", pair, 2)
            return
        if kind == "discriminator":
            hidden = graph.dense(hidden, "head.dense", config.feed_forward.activation)
            out = op("Squeeze", graph.dense(hidden, "head.out"), [-1])
            self.add_output("logits", out, "length")
            return
        places = ("length",) if kind in ("tokens", "spans") else ()
        rows = hidden if places else self._pooler(hidden)
        out = graph.dense(self._transformed(rows, "head"), "head.out")
        if kind == "spans":
            start, end = graph.ops("Split", out, axis=-1, num_outputs=2, outputs=2)
            self.add_output("start_logits", op("Squeeze", start, [-1]), *places)
            self.add_output("end_logits", op("Squeeze", end, [-1]), *places)
        elif kind == "choices":
            self.add_output("logits", op("Squeeze", out, [-1]))
        else:
            count = int(graph.tensors["head.out.weight"].shape[0])
            self.add_output("logits", out, *places, count)

    def _pooler(self, hidden: Value) -> Value:
        pooling = self.config.pooling
        late = pooling.token == "late"
        pooled = hidden if late else self.pooled(hidden, pooling.token)
        if pooling.activation is not None:
            pooled = self.graph.dense(pooled, "encoder.pooler", pooling.activation)
        return self.pooled(pooled, "mean") if late else pooled

    def _transformed(self, rows: Value, head: str) -> Value:
        if f"{head}.transform.weight" not in self.graph.tensors:
            return rows
        rows = self.graph.dense(rows, f"{head}.transform", self.config.feed_forward.activation)
        return self.graph.norm(rows, f"{head}.norm", self.config.norm)

    def _vocabulary_scores(self, hidden: Value, head: str) -> Value:
        graph, op = self.graph, self.graph.op
        rows = self._transformed(hidden, head)
        if not self.config.word_scores.tied:
            return graph.dense(rows, f"{head}.scores")
        # The same word table, so that it is in the file once.
        table = op("Transpose", graph.weight("encoder.embeddings.word.weight"), perm=[1, 0])
        scores = op("MatMul", rows, table)
        has_bias = self.config.word_scores.bias
        return op("Add", scores, graph.weight(f"{head}.bias")) if has_bias else scores


def input_names(config: EncoderConfig) -> tuple[str, ...]:
    """Return the names of the inputs, each int64 (B, L), padded on the right."""
    names = ("input_ids", "attention_mask")
    return (*names, "token_type_ids") if config.embeddings.token_types > 1 else names


def build_graph(
    checkpoint: Checkpoint,
    vectors: SentenceVectors | None = None,
    *,
    int8: Mapping[str, InputRange] | None = None,
    hidden_too: bool = False,
) -> onnx.ModelProto:
    """Return the graph of the whole model.

    Args:
        vectors: How a bare encoder computes `sentence_embedding`; None for no such output.
        int8: Dense layers whose products are quantized, with the factors of their inputs' columns
            and those that stay float32; all other layers are float32.
        hidden_too: Output the hidden states of a model with a head, too.

    Raises:
        ConfigError: The positions of XLNet, for which there are no operators here.
    """
    config = checkpoint.config
    if isinstance(config.positions, RelativeSinusoid):
        raise ConfigError(f"A {checkpoint.family} model is not exported to ONNX; filbert runs it.")
    graph = _Graph(checkpoint.tensors, int8 or {})
    padded = _Padded(graph, config)
    hidden = padded.encoder()
    if checkpoint.head is not None:
        padded.add_logits(checkpoint.head, hidden)
    if checkpoint.head is None or hidden_too:
        padded.add_output("last_hidden_state", hidden, "length", config.hidden_size)
    if checkpoint.head is None and vectors is not None:
        embedding = padded.sentence_embedding(hidden, vectors)
        width = vectors.dimension(config.hidden_size)
        padded.add_output("sentence_embedding", embedding, width)
    content = helper.make_graph(
        graph.nodes,
        checkpoint.family,
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ("batch", "length"))
            for name in input_names(config)
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in padded.shapes.items()
        ],
        list(graph.initializers.values()),
    )
    return helper.make_model(
        content,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="filbert",
    )
