"""ModernBERT's table, and its config.json in the old form and the new.

Sources: transformers 5, models/modernbert; Warner et al. 2024 (arXiv 2412.13663), section 2.1.
"""

from __future__ import annotations

from pathlib import Path
from reprlib import repr as short
from typing import Any

from filbert.errors import FormatError
from filbert.formats.conventions import KEYS, MUST, head_layout, tied_names
from filbert.formats.layouts import Family

_FAR, _NEAR = "full_attention", "sliding_attention"
_THETAS = {_FAR: "global_rope_theta", _NEAR: "local_rope_theta"}
_FAR_THETA, _NEAR_THETA = 160_000.0, 10_000.0


def modernbert() -> Family:
    """The family's table."""
    transform = {"head.transform": "head.dense", "head.norm": "head.norm"}
    classifier = {**transform, "head.out": "classifier"}
    masked_lm = {**transform, "head": "decoder"}
    words = "model.embeddings.tok_embeddings"
    common: dict[str, Any] = {
        "dropout": ("classifier_dropout", 0.0),
        # Ours has one activation for layers and heads.
        "activation": "gelu",
        "must": {"classifier_activation": ("gelu",)},
    }
    labelled = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    return Family(
        model_type="modernbert",
        class_prefix="ModernBert",
        prefix="model.",
        embeddings={"word": words, "norm": "model.embeddings.norm"},
        layer="model.layers.{}",
        qkv=("attn.Wqkv",),
        layer_modules=("attn.Wo", "attn_norm", "mlp.Wi", "mlp.Wo", "mlp_norm"),
        final_norm="model.final_norm",
        keys={
            **{name: KEYS[name] for name in (*labelled, "intermediate_size", "initializer_range")},
            "max_position_embeddings": ("max_position_embeddings", 8192),
            "hidden_act": ("hidden_activation", "gelu"),
            "layer_norm_eps": ("norm_eps", 1e-5),
            "hidden_dropout": ("mlp_dropout", 0.0),
            "attention_dropout": ("attention_dropout", 0.0),
            "rotary_base": (_THETAS[_FAR], _FAR_THETA),
            "local_rotary_base": (_THETAS[_NEAR], _NEAR_THETA),
            "local_window": ("local_attention", 128),
            "global_every": ("global_attn_every_n_layers", 3),
            "pooled": ("classifier_pooling", "cls"),
        },
        repeated={"embedding_dropout": "hidden_dropout"},
        flattened=_flattened,
        constants={
            "type_vocab_size": 0,
            "gated": True,
            "pre_norm": True,
            "biases": False,
            "head_transform": True,
        },
        # No release has other values; `position_embedding_type` is written in many, and unread.
        must={
            **{key: value for key, value in MUST.items() if key != "position_embedding_type"},
            "attention_bias": (False,),
            "mlp_bias": (False,),
            "norm_bias": (False,),
            "classifier_bias": (False,),
            "decoder_bias": (True,),
            "tie_word_embeddings": (True,),
            "rope_scaling": (None,),
        },
        written={
            "attention_bias": False,
            "mlp_bias": False,
            "norm_bias": False,
            "classifier_bias": False,
            "decoder_bias": True,
            "tie_word_embeddings": True,
        },
        heads={
            None: head_layout("Model", **{**common, "activation": None, "must": {}}),
            "masked_lm": head_layout(
                "ForMaskedLM", masked_lm, tied=tied_names(words, "decoder"), **common
            ),
            "sequence": head_layout("ForSequenceClassification", classifier, **common),
            "choices": head_layout("ForMultipleChoice", classifier, **common),
            "tokens": head_layout("ForTokenClassification", classifier, **common),
            "spans": head_layout("ForQuestionAnswering", classifier, **common),
        },
    )


def _flattened(raw: dict[str, Any], path: Path) -> dict[str, Any]:
    """Version 5's `layer_types` and `rope_parameters` as version 4's flat keys, over those.

    Raises:
        FormatError: layers in another order than one global layer and then some local ones, or
            scaled rotary positions.
    """
    flat = dict(raw)
    if raw.get("layer_types") is not None:
        flat["global_attn_every_n_layers"] = _every(raw, path)
    parameters = raw.get("rope_parameters")
    if parameters is not None:
        if not isinstance(parameters, dict):
            raise FormatError(f"{path}: rope_parameters is {short(parameters)}; it must be a map.")
        if unknown := [name for name in parameters if name not in _THETAS]:
            raise FormatError(
                f"{path}: rope_parameters has {short(unknown[0])}; filbert reads "
                f"{' and '.join(_THETAS)} there."
            )
        for kind, key in _THETAS.items():
            given = parameters.get(kind)
            if given is None:
                continue
            if (
                not isinstance(given, dict)
                or given.keys() - {"rope_type", "rope_theta"}
                or given.get("rope_type", "default") != "default"
            ):
                raise FormatError(
                    f"{path}: rope_parameters.{kind} is {short(given)}; filbert's encoder has only "
                    "rope_type default, with a rope_theta."
                )
            if "rope_theta" in given:
                flat[key] = given["rope_theta"]
    # The oldest files may leave the second out.
    if "local_rope_theta" in flat and flat["local_rope_theta"] is None:
        flat["local_rope_theta"] = flat.get("global_rope_theta", _FAR_THETA)
    return flat


def _every(raw: dict[str, Any], path: Path) -> int:
    """How far global layers are apart."""
    kinds, layers = raw["layer_types"], raw.get("num_hidden_layers")
    if (
        isinstance(kinds, list)
        and len(kinds) == layers
        and all(kind in (_FAR, _NEAR) for kind in kinds)
    ):
        far = [index for index, kind in enumerate(kinds) if kind == _FAR]
        every = far[1] if len(far) > 1 else len(kinds)
        if far == list(range(0, len(kinds), every)):
            return every
    raise FormatError(
        f"{path}: layer_types is {short(kinds)}; it must name {_FAR} or {_NEAR} for each of the "
        f"{short(layers)} layers, beginning with {_FAR} and repeating it at equal distances."
    )
