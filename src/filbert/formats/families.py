"""The families as tables. A family name stands only in this room.

Sources: transformers 5, models/*/configuration_*.py and modeling_*.py.
"""

from __future__ import annotations

from dataclasses import replace

from filbert.formats.conventions import (
    CAUSAL_KEY,
    CAUSAL_MUST,
    KEYS,
    LAYER,
    MUST,
    QKV,
    head_layout,
    table_names,
    tied_names,
)
from filbert.formats.families_modern import modernbert
from filbert.formats.layouts import REQUIRED, Family, PoolerSlot


def _bert() -> Family:
    pooler = PoolerSlot(name="bert.pooler.dense", activation="tanh")
    optional = replace(pooler, required=False)
    words = "bert.embeddings.word_embeddings"
    tied = tied_names(words, "cls.predictions.decoder", "cls.predictions.bias")
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
        embeddings=table_names("bert"),
        layer="bert.encoder.layer.{}",
        qkv=QKV,
        layer_modules=LAYER,
        keys=KEYS,
        must=CAUSAL_MUST,
        causal_key=CAUSAL_KEY,
        heads={
            None: head_layout("Model", pooler=optional),
            "masked_lm": head_layout("ForMaskedLM", masked_lm, pooler=optional, tied=tied),
            "pretraining": head_layout("ForPreTraining", pretraining, pooler=pooler, tied=tied),
            "pair": head_layout(
                "ForNextSentencePrediction", {"head.out": "cls.seq_relationship"}, pooler=pooler
            ),
            "sequence": head_layout("ForSequenceClassification", classifier, pooler=pooler),
            "choices": head_layout("ForMultipleChoice", classifier, pooler=pooler),
            "tokens": head_layout("ForTokenClassification", classifier),
            "spans": head_layout("ForQuestionAnswering", {"head.out": "qa_outputs"}),
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
    tied = tied_names("roberta.embeddings.word_embeddings", "lm_head.decoder", "lm_head.bias")
    return Family(
        model_type=model_type,
        class_prefix=class_prefix,
        prefix="roberta.",
        embeddings=table_names("roberta"),
        layer="roberta.encoder.layer.{}",
        qkv=QKV,
        layer_modules=LAYER,
        keys=KEYS,
        must=CAUSAL_MUST,
        causal_key=CAUSAL_KEY,
        offset_by_pad=True,
        heads={
            None: head_layout("Model", pooler=optional),
            # transformers' RobertaLMHead is always erf-gelu, whatever hidden_act says.
            "masked_lm": head_layout(
                "ForMaskedLM", masked_lm, pooler=optional, tied=tied, activation="gelu"
            ),
            "sequence": head_layout("ForSequenceClassification", out_proj, pooler=first_token),
            "choices": head_layout(
                "ForMultipleChoice", classifier, pooler=pooler, dropout=(None, None)
            ),
            "tokens": head_layout("ForTokenClassification", classifier),
            "spans": head_layout("ForQuestionAnswering", {"head.out": "qa_outputs"}),
        },
    )


def _distilbert() -> Family:
    pooler = PoolerSlot(name="pre_classifier", activation="relu")
    words = "distilbert.embeddings.word_embeddings"
    embeddings = table_names("distilbert")
    del embeddings["token_type"]
    masked_lm = {
        "head": "vocab_projector",
        "head.transform": "vocab_transform",
        "head.norm": "vocab_layer_norm",
    }
    classifier = {"head.out": "classifier"}
    dropout = ("seq_classif_dropout", 0.2)
    keys = {
        name: key for name, key in KEYS.items() if name not in ("type_vocab_size", "layer_norm_eps")
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
        must=MUST,
        written={"sinusoidal_pos_embds": False},
        heads={
            None: head_layout("Model", dropout=dropout),
            "masked_lm": head_layout(
                "ForMaskedLM", masked_lm, tied=tied_names(words, "vocab_projector"), dropout=dropout
            ),
            "sequence": head_layout(
                "ForSequenceClassification", classifier, pooler=pooler, dropout=dropout
            ),
            "choices": head_layout("ForMultipleChoice", classifier, pooler=pooler, dropout=dropout),
            "tokens": head_layout("ForTokenClassification", classifier, dropout=(None, None)),
            "spans": head_layout(
                "ForQuestionAnswering", {"head.out": "qa_outputs"}, dropout=dropout
            ),
        },
    )


def _albert() -> Family:
    pooler = PoolerSlot(name="albert.pooler", activation="tanh")
    optional = replace(pooler, required=False)
    tied = tied_names(
        "albert.embeddings.word_embeddings", "predictions.decoder", "predictions.bias"
    )
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
            **table_names("albert"),
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
            **KEYS,
            "embedding_size": ("embedding_size", REQUIRED),
            "num_hidden_groups": ("num_hidden_groups", 1),
            "hidden_act": ("hidden_act", "gelu_new"),
            "hidden_dropout": ("hidden_dropout_prob", 0.0),
            "attention_dropout": ("attention_probs_dropout_prob", 0.0),
        },
        must={**MUST, "inner_group_num": (1,)},
        always_projects=True,
        written={"inner_group_num": 1},
        heads={
            None: head_layout("Model", pooler=optional, dropout=dropout),
            "masked_lm": head_layout(
                "ForMaskedLM", masked_lm, pooler=optional, tied=tied, dropout=dropout
            ),
            "pretraining": head_layout(
                "ForPreTraining", pretraining, pooler=pooler, tied=tied, dropout=dropout
            ),
            "sequence": head_layout(
                "ForSequenceClassification", classifier, pooler=pooler, dropout=dropout
            ),
            "choices": head_layout("ForMultipleChoice", classifier, pooler=pooler, dropout=dropout),
            "tokens": head_layout("ForTokenClassification", classifier, dropout=dropout),
            "spans": head_layout(
                "ForQuestionAnswering", {"head.out": "qa_outputs"}, dropout=dropout
            ),
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
        embeddings={**table_names("electra"), "project": "electra.embeddings_project"},
        layer="electra.encoder.layer.{}",
        qkv=QKV,
        layer_modules=LAYER,
        keys={**KEYS, "embedding_size": ("embedding_size", 128)},
        must=CAUSAL_MUST,
        causal_key=CAUSAL_KEY,
        heads={
            None: head_layout("Model"),
            # transformers' ElectraGeneratorPredictions is always erf-gelu too.
            "masked_lm": head_layout(
                "ForMaskedLM",
                masked_lm,
                tied=tied_names("electra.embeddings.word_embeddings", "generator_lm_head"),
                activation="gelu",
            ),
            "discriminator": head_layout("ForPreTraining", discriminator),
            "sequence": head_layout("ForSequenceClassification", out_proj, pooler=first_token),
            "choices": head_layout(
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
            "tokens": head_layout("ForTokenClassification", classifier),
            "spans": head_layout("ForQuestionAnswering", {"head.out": "qa_outputs"}),
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
        modernbert(),
    )
}
