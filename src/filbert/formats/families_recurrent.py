"""The recurrent family, filbert's own: no other tool has its class, and none reads the folder."""

from __future__ import annotations

from filbert.formats.conventions import head_layout
from filbert.formats.layouts import REQUIRED, Family

_DROPOUT = ("classifier_dropout", 0.1)


def bigru() -> Family:
    """Word vectors under bidirectional GRU layers; see model/bigru.py."""
    classifier = {"head.out": "classifier"}
    return Family(
        model_type="bigru",
        class_prefix="BiGRU",
        prefix="bigru.",
        embeddings={"word": "bigru.word_embeddings"},
        layer="bigru.layers.{}",
        qkv=("qkv",),
        layer_modules=("attention_out", "attention_norm", "up", "down", "norm"),
        keys={
            "vocab_size": ("vocab_size", REQUIRED),
            "embedding_size": ("embedding_size", REQUIRED),
            "hidden_size": ("hidden_size", REQUIRED),
            "num_hidden_layers": ("num_hidden_layers", 1),
            # No table ends there; it keeps a damaged file from holding up everything.
            "max_position_embeddings": ("max_length", 65_536),
            "pooled": ("pooling", "mean+max"),
            "hidden_dropout": ("hidden_dropout_prob", 0.2),
            "initializer_range": ("initializer_range", 0.02),
        },
        constants={
            "recurrent": True,
            "num_attention_heads": 0,
            "intermediate_size": 0,
            "type_vocab_size": 0,
            "attention_dropout": 0.0,
            "hidden_act": "gelu",
        },
        always_projects=True,
        heads={
            None: head_layout("Model", dropout=_DROPOUT),
            "sequence": head_layout("ForSequenceClassification", classifier, dropout=_DROPOUT),
            "tokens": head_layout("ForTokenClassification", classifier, dropout=_DROPOUT),
        },
    )
