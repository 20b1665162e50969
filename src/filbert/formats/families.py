"""The families as tables. A family name stands only in this room.

Sources: transformers 5, models/*/configuration_*.py and modeling_*.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from filbert.formats.layouts import REQUIRED, Family, HeadLayout, PoolerSlot


def _embeddings(prefix: str) -> dict[str, str]:
    return {
        "word": f"{prefix}.embeddings.word_embeddings",
        "position": f"{prefix}.embeddings.position_embeddings",
        "token_type": f"{prefix}.embeddings.token_type_embeddings",
        "norm": f"{prefix}.embeddings.LayerNorm",
    }


_BERT_QKV = ("attention.self.query", "attention.self.key", "attention.self.value")
_BERT_LAYER = (
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
_KEYS: dict[str, tuple[str, Any]] = {
    "vocab_size": ("vocab_size", REQUIRED),
    "hidden_size": ("hidden_size", REQUIRED),
    "num_hidden_layers": ("num_hidden_layers", REQUIRED),
    "num_attention_heads": ("num_attention_heads", REQUIRED),
    "intermediate_size": ("intermediate_size", REQUIRED),
    "max_position_embeddings": ("max_position_embeddings", 512),
    "type_vocab_size": ("type_vocab_size", 2),
    "hidden_act": ("hidden_act", "gelu"),
    "layer_norm_eps": ("layer_norm_eps", 1e-12),
    "hidden_dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "initializer_range": ("initializer_range", 0.02),
}
_MUST: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
_CLASSIFIER_DROPOUT = ("classifier_dropout", None)


def _tied(table: str, projection: str, bias: str | None = None) -> dict[str, str]:
    tied = {f"{projection}.weight": f"{table}.weight"}
    return tied if bias is None else {**tied, f"{projection}.bias": bias}


def _head(suffix: str, modules: dict[str, str] | None = None, **rest: Any) -> HeadLayout:
    return HeadLayout(
        suffix=suffix, modules=modules or {}, **{"dropout": _CLASSIFIER_DROPOUT, **rest}
    )


def _bert() -> Family:
    pooler = PoolerSlot(name="bert.pooler.dense", activation="tanh")
    optional = replace(pooler, required=False)
    words = "bert.embeddings.word_embeddings"
    tied = _tied(words, "cls.predictions.decoder", "cls.predictions.bias")
    transform = "cls.predictions.transform"
    pretraining = {
        "head.masked_lm": "cls.predictions",
        "head.masked_lm.transform": f"{transform}.dense",
        "head.masked_lm.norm": f"{transform}.LayerNorm",
        "head.pair.out": "cls.seq_relationship",
    }
    masked_lm = {
        "head": "cls.predictions",
        "head.transform": f"{transform}.dense",
        "head.norm": f"{transform}.LayerNorm",
    }
    classifier = {"head.out": "classifier"}
    return Family(
        model_type="bert",
        class_prefix="Bert",
        prefix="bert.",
        embeddings=_embeddings("bert"),
        layer="bert.encoder.layer.{}",
        qkv=_BERT_QKV,
        layer_modules=_BERT_LAYER,
        keys=_KEYS,
        must=_MUST,
        heads={
            None: _head("Model", pooler=optional),
            "masked_lm": _head("ForMaskedLM", masked_lm, pooler=optional, tied=tied),
            "pretraining": _head("ForPreTraining", pretraining, pooler=pooler, tied=tied),
            "pair": _head(
                "ForNextSentencePrediction", {"head.out": "cls.seq_relationship"}, pooler=pooler
            ),
            "sequence": _head("ForSequenceClassification", classifier, pooler=pooler),
            "choices": _head("ForMultipleChoice", classifier, pooler=pooler),
            "tokens": _head("ForTokenClassification", classifier),
            "spans": _head("ForQuestionAnswering", {"head.out": "qa_outputs"}),
        },
    )


def _roberta(model_type: str, class_prefix: str) -> Family:
    pooler = PoolerSlot(name="roberta.pooler.dense", activation="tanh")
    optional = replace(pooler, required=False)
    first_token = PoolerSlot(name="classifier.dense", activation="tanh", dropout_before=True)
    masked_lm = {
        "head": "lm_head",
        "head.transform": "lm_head.dense",
        "head.norm": "lm_head.layer_norm",
    }
    classifier = {"head.out": "classifier"}
    out_proj = {"head.out": "classifier.out_proj"}
    tied = _tied("roberta.embeddings.word_embeddings", "lm_head.decoder", "lm_head.bias")
    return Family(
        model_type=model_type,
        class_prefix=class_prefix,
        prefix="roberta.",
        embeddings=_embeddings("roberta"),
        layer="roberta.encoder.layer.{}",
        qkv=_BERT_QKV,
        layer_modules=_BERT_LAYER,
        keys=_KEYS,
        must=_MUST,
        offset_by_pad=True,
        heads={
            None: _head("Model", pooler=optional),
            # transformers' RobertaLMHead is always erf-gelu, whatever hidden_act says.
            "masked_lm": _head(
                "ForMaskedLM", masked_lm, pooler=optional, tied=tied, activation="gelu"
            ),
            "sequence": _head("ForSequenceClassification", out_proj, pooler=first_token),
            "choices": _head("ForMultipleChoice", classifier, pooler=pooler, dropout=(None, None)),
            "tokens": _head("ForTokenClassification", classifier),
            "spans": _head("ForQuestionAnswering", {"head.out": "qa_outputs"}),
        },
    )


def _distilbert() -> Family:
    pooler = PoolerSlot(name="pre_classifier", activation="relu")
    words = "distilbert.embeddings.word_embeddings"
    embeddings = _embeddings("distilbert")
    del embeddings["token_type"]
    masked_lm = {
        "head": "vocab_projector",
        "head.transform": "vocab_transform",
        "head.norm": "vocab_layer_norm",
    }
    classifier = {"head.out": "classifier"}
    dropout = ("seq_classif_dropout", 0.2)
    keys = {
        name: key
        for name, key in _KEYS.items()
        if name not in ("type_vocab_size", "layer_norm_eps")
    }
    return Family(
        model_type="distilbert",
        class_prefix="DistilBert",
        prefix="distilbert.",
        embeddings=embeddings,
        layer="distilbert.transformer.layer.{}",
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        layer_modules=(
            "attention.out_lin",
            "sa_layer_norm",
            "ffn.lin1",
            "ffn.lin2",
            "output_layer_norm",
        ),
        keys={
            **keys,
            "hidden_size": ("dim", REQUIRED),
            "num_hidden_layers": ("n_layers", REQUIRED),
            "num_attention_heads": ("n_heads", REQUIRED),
            "intermediate_size": ("hidden_dim", REQUIRED),
            "hidden_act": ("activation", "gelu"),
            "hidden_dropout": ("dropout", 0.1),
            "attention_dropout": ("attention_dropout", 0.1),
        },
        constants={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
        must=_MUST,
        written={"sinusoidal_pos_embds": False},
        heads={
            None: _head("Model", dropout=dropout),
            "masked_lm": _head(
                "ForMaskedLM", masked_lm, tied=_tied(words, "vocab_projector"), dropout=dropout
            ),
            "sequence": _head(
                "ForSequenceClassification", classifier, pooler=pooler, dropout=dropout
            ),
            "choices": _head("ForMultipleChoice", classifier, pooler=pooler, dropout=dropout),
            "tokens": _head("ForTokenClassification", classifier, dropout=(None, None)),
            "spans": _head("ForQuestionAnswering", {"head.out": "qa_outputs"}, dropout=dropout),
        },
    )


def _albert() -> Family:
    pooler = PoolerSlot(name="albert.pooler", activation="tanh")
    optional = replace(pooler, required=False)
    tied = _tied("albert.embeddings.word_embeddings", "predictions.decoder", "predictions.bias")
    modules = {
        "": "predictions",
        ".transform": "predictions.dense",
        ".norm": "predictions.LayerNorm",
    }
    masked_lm = {f"head{part}": name for part, name in modules.items()}
    pretraining = {f"head.masked_lm{part}": name for part, name in modules.items()}
    pretraining["head.pair.out"] = "sop_classifier.classifier"
    classifier = {"head.out": "classifier"}
    dropout = ("classifier_dropout_prob", 0.1)
    return Family(
        model_type="albert",
        class_prefix="Albert",
        prefix="albert.",
        embeddings={
            **_embeddings("albert"),
            "project": "albert.encoder.embedding_hidden_mapping_in",
        },
        layer="albert.encoder.albert_layer_groups.{}.albert_layers.0",
        qkv=("attention.query", "attention.key", "attention.value"),
        layer_modules=(
            "attention.dense",
            "attention.LayerNorm",
            "ffn",
            "ffn_output",
            "full_layer_layer_norm",
        ),
        keys={
            **_KEYS,
            "embedding_size": ("embedding_size", REQUIRED),
            "num_hidden_groups": ("num_hidden_groups", 1),
            "hidden_act": ("hidden_act", "gelu_new"),
            "hidden_dropout": ("hidden_dropout_prob", 0.0),
            "attention_dropout": ("attention_probs_dropout_prob", 0.0),
        },
        must={**_MUST, "inner_group_num": (1,)},
        always_projects=True,
        written={"inner_group_num": 1},
        heads={
            None: _head("Model", pooler=optional, dropout=dropout),
            "masked_lm": _head(
                "ForMaskedLM", masked_lm, pooler=optional, tied=tied, dropout=dropout
            ),
            "pretraining": _head(
                "ForPreTraining", pretraining, pooler=pooler, tied=tied, dropout=dropout
            ),
            "sequence": _head(
                "ForSequenceClassification", classifier, pooler=pooler, dropout=dropout
            ),
            "choices": _head("ForMultipleChoice", classifier, pooler=pooler, dropout=dropout),
            "tokens": _head("ForTokenClassification", classifier, dropout=dropout),
            "spans": _head("ForQuestionAnswering", {"head.out": "qa_outputs"}, dropout=dropout),
        },
    )


def _electra() -> Family:
    first_token = PoolerSlot(name="classifier.dense", activation="gelu", dropout_before=True)
    summary = PoolerSlot(name="sequence_summary.summary", activation="gelu")
    masked_lm = {
        "head": "generator_lm_head",
        "head.transform": "generator_predictions.dense",
        "head.norm": "generator_predictions.LayerNorm",
    }
    discriminator = {
        "head.dense": "discriminator_predictions.dense",
        "head.out": "discriminator_predictions.dense_prediction",
    }
    classifier = {"head.out": "classifier"}
    out_proj = {"head.out": "classifier.out_proj"}
    return Family(
        model_type="electra",
        class_prefix="Electra",
        prefix="electra.",
        embeddings={**_embeddings("electra"), "project": "electra.embeddings_project"},
        layer="electra.encoder.layer.{}",
        qkv=_BERT_QKV,
        layer_modules=_BERT_LAYER,
        keys={**_KEYS, "embedding_size": ("embedding_size", 128)},
        must=_MUST,
        heads={
            None: _head("Model"),
            # transformers' ElectraGeneratorPredictions is always erf-gelu too.
            "masked_lm": _head(
                "ForMaskedLM",
                masked_lm,
                tied=_tied("electra.embeddings.word_embeddings", "generator_lm_head"),
                activation="gelu",
            ),
            "discriminator": _head("ForPreTraining", discriminator),
            "sequence": _head("ForSequenceClassification", out_proj, pooler=first_token),
            "choices": _head(
                "ForMultipleChoice",
                classifier,
                pooler=summary,
                dropout=("summary_last_dropout", 0.1),
                must={
                    "summary_type": ("first",),
                    "summary_use_proj": (True,),
                    "summary_activation": ("gelu",),
                },
            ),
            "tokens": _head("ForTokenClassification", classifier),
            "spans": _head("ForQuestionAnswering", {"head.out": "qa_outputs"}),
        },
    )


FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        _bert(),
        _roberta("roberta", "Roberta"),
        _roberta("xlm-roberta", "XLMRoberta"),
        _roberta("camembert", "Camembert"),
        _distilbert(),
        _albert(),
        _electra(),
    )
}
