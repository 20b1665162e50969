"""Tiny checkpoints with the variables that Google's own code creates, written out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from filbert.formats.tensor_bundle import write_bundle

VOCAB, POSITIONS, TYPES = 34, 24, 2
WIDTH, NARROW, INNER, LAYERS, HEADS = 32, 16, 48, 3, 4

BERT_CONFIG: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": WIDTH,
    "initializer_range": 0.02,
    "intermediate_size": INNER,
    "max_position_embeddings": POSITIONS,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "type_vocab_size": TYPES,
    "vocab_size": VOCAB,
}
ALBERT_CONFIG = {
    **BERT_CONFIG,
    "down_scale_factor": 1,
    "embedding_size": NARROW,
    "gap_size": 0,
    "inner_group_num": 1,
    "net_structure_type": 0,
    "num_hidden_groups": 1,
    "num_memory_blocks": 0,
}

Shapes = dict[str, tuple[int, ...]]


def _dense(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}/beta": (width,), f"{name}/gamma": (width,)}


def _tables(scope: str, width: int) -> Shapes:
    return {
        f"{scope}/word_embeddings": (VOCAB, width),
        f"{scope}/token_type_embeddings": (TYPES, width),
        f"{scope}/position_embeddings": (POSITIONS, width),
        **_norm(f"{scope}/LayerNorm", width),
    }


def _layers(scope: str, width: int = WIDTH, inner: int = INNER, count: int = LAYERS) -> Shapes:
    shapes: Shapes = {}
    for i in range(count):
        layer = f"{scope}/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention/self/{part}", width, width)
        shapes |= _dense(f"{layer}/attention/output/dense", width, width)
        shapes |= _norm(f"{layer}/attention/output/LayerNorm", width)
        shapes |= _dense(f"{layer}/intermediate/dense", width, inner)
        shapes |= _dense(f"{layer}/output/dense", inner, width)
        shapes |= _norm(f"{layer}/output/LayerNorm", width)
    return shapes


def _predictions(table_width: int) -> Shapes:
    return {
        **_dense("cls/predictions/transform/dense", WIDTH, table_width),
        **_norm("cls/predictions/transform/LayerNorm", table_width),
        "cls/predictions/output_bias": (VOCAB,),
    }


POOLER = _dense("bert/pooler/dense", WIDTH, WIDTH)
PAIR: Shapes = {
    "cls/seq_relationship/output_weights": (2, WIDTH),
    "cls/seq_relationship/output_bias": (2,),
}
CLASSIFIER: Shapes = {"output_weights": (3, WIDTH), "output_bias": (3,)}
SQUAD: Shapes = {"cls/squad/output_weights": (2, WIDTH), "cls/squad/output_bias": (2,)}

BERT_ENCODER: Shapes = {**_tables("bert/embeddings", WIDTH), **_layers("bert"), **POOLER}
BERT: Shapes = {**BERT_ENCODER, **_predictions(WIDTH), **PAIR}


def albert_encoder(groups: int = 1) -> Shapes:
    """As google-research/albert, modeling.py, names them."""
    shapes = _tables("bert/embeddings", NARROW)
    shapes |= _dense("bert/encoder/embedding_hidden_mapping_in", NARROW, WIDTH)
    for group in range(groups):
        layer = f"bert/encoder/transformer/group_{group}/inner_group_0"
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention_1/self/{part}", WIDTH, WIDTH)
        shapes |= _dense(f"{layer}/attention_1/output/dense", WIDTH, WIDTH)
        shapes |= _dense(f"{layer}/ffn_1/intermediate/dense", WIDTH, INNER)
        shapes |= _dense(f"{layer}/ffn_1/intermediate/output/dense", INNER, WIDTH)
        shapes |= _norm(f"{layer}/LayerNorm", WIDTH) | _norm(f"{layer}/LayerNorm_1", WIDTH)
    return shapes | POOLER


ALBERT: Shapes = {**albert_encoder(), **_predictions(NARROW), **PAIR}

# Heads of width 64, as sizes without a configuration need: one for the generator, two else.
ELECTRA: Shapes = {
    **_tables("electra/embeddings", NARROW),
    **_dense("electra/embeddings_project", NARROW, 128),
    **_layers("electra", 128, 256),
    **_dense("discriminator_predictions/dense", 128, 128),
    **_dense("discriminator_predictions/dense_1", 128, 1),
}
GENERATOR: Shapes = {
    **_dense("generator/embeddings_project", NARROW, 64),
    **_layers("generator", 64, 256, 2),
    **_dense("generator_predictions/dense", 64, NARROW),
    **_norm("generator_predictions/LayerNorm", NARROW),
    "generator_predictions/output_bias": (VOCAB,),
}
CONFIGS = {
    "bert": ("bert_config.json", BERT_CONFIG),
    "albert": ("albert_config.json", ALBERT_CONFIG),
    "electra": (None, {}),
}


def drawn(shapes: Shapes, seed: int = 3) -> dict[str, np.ndarray]:
    """Random variables of these shapes; gammas lie around one."""
    generator = np.random.default_rng(seed)
    return {
        name: (0.1 * generator.standard_normal(shape) + name.endswith("gamma")).astype(np.float32)
        for name, shape in sorted(shapes.items())
    }


def with_slots(variables: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same with Adam's slots and the counter of a training run."""
    slots = {
        f"{name}/{slot}": np.zeros_like(value)
        for name, value in variables.items()
        for slot in ("adam_m", "adam_v")
    }
    return {**variables, **slots, "global_step": np.array(1000, np.int64)}


def save(
    folder: Path,
    variables: dict[str, np.ndarray],
    vocab: Path,
    config: tuple[str | None, dict[str, Any]] = CONFIGS["bert"],
    prefix: str = "bert_model.ckpt",
) -> Path:
    """Write a folder as Google's archives have it; the prefix of its checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    name, raw = config
    if name is not None:
        (folder / name).write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")
    (folder / "vocab.txt").write_bytes((vocab / "vocab.txt").read_bytes())
    write_bundle(folder / prefix, variables)
    return folder / prefix
