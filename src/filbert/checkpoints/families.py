"""Tables of the model families, and of the files that a model consists of.

A family is a row over the grammar of EncoderConfig: config.json's keys to its flat settings, and
tensor names to filbert's. Families are named here and in the tokenizers' conventions only.
Sources: transformers 5, models/*/configuration_*.py and modeling_*.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

from filbert.errors import FormatError

SAFETENSORS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json")
PICKLES = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin|pytorch_model\.bin\.index\.json")
GOOGLE_CONFIGS = ("bert_config.json", "albert_config.json", "electra_config.json")
# macOS writes a file ._NAME of metadata next to a file, also into archives.
TENSOR_BUNDLE = re.compile(r"(?!\._)(?P<prefix>.+)\.(index|data-\d{5}-of-\d{5})")
# Configuration and vocabulary of a tensor bundle, under any name.
BUNDLE_CONFIG = re.compile(r"(?!\._)[^/]*config[^/]*\.json")
BUNDLE_VOCABULARY = re.compile(r"(?!\._)[^/]*(vocab[^/]*\.txt|\.model)")
# The maximum length of sentence-transformers: until 2020 each family had its own file name.
SENTENCE_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "albert", "camembert", "xlm-roberta")
)

REQUIRED: Any = ...

# Prefixes for causal encoders that no class of transformers computes. Other tools refuse such names
# instead of pooling the first token or ignoring the causal mask.
CAUSAL_TYPE, CAUSAL_CLASS = "filbert_causal_", "FilbertCausal"

# Modules of a layer, in the order of the tables below.
LAYER_MODULES = ("attention_out", "attention_norm", "up", "down", "norm")

_LAYER_NAME = re.compile(r"encoder\.layers\.(\d+)\.(\w+)")


@dataclass(frozen=True, kw_only=True)
class PoolerSlot:
    """Where a family keeps the dense layer over the first token for one kind of head.

    Attributes:
        name: Hugging Face's module.
        activation: The setting `pooler`.
        dropout_before: The setting `pooler_dropout`.
        required: whether the head cannot run without it.
    """

    name: str
    activation: str
    dropout_before: bool = False
    required: bool = True


@dataclass(frozen=True, kw_only=True)
class HeadLayout:
    """One of Hugging Face's classes: which tensors its head has and which config keys it reads.

    Attributes:
        suffix: the class name without the family, "ForMaskedLM".
        modules: our module ("head.out") to theirs ("classifier").
        pooler: the pooler that goes with this head, None for none.
        tied: their tensors that repeat another of theirs.
        dropout: (config key, default) of the setting `head_dropout`; a key of None, or a value of
            None, means the hidden dropout.
        activation: the only `hidden_act` with which this head is what transformers runs, None for
            any.
        must: config keys and the values this head can express; an absent key is fine.
    """

    suffix: str
    modules: dict[str, str] = field(default_factory=dict)
    pooler: PoolerSlot | None = None
    tied: dict[str, str] = field(default_factory=dict)
    dropout: tuple[str | None, float | None] = (None, None)
    activation: str | None = None
    must: dict[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family, or one dialect of it under another `model_type`.

    Attributes:
        model_type: as in config.json, and Checkpoint.family.
        class_prefix: of Hugging Face's class names.
        prefix: of the encoder's tensors in a model with a head; a bare encoder may go without.
        embeddings: our modules under "encoder.embeddings." to theirs.
        layer: their name of layer i (of parameter group i), with {} for i.
        qkv: their three modules of our fused one, or theirs where it is fused too.
        layer_modules: theirs, in the order of LAYER_MODULES.
        final_norm: their LayerNorm after the last layer, where there is one.
        keys: Setting of EncoderConfig to (config key, default); REQUIRED for no default.
        repeated: further keys that hold such a setting's value again.
        flattened: takes a config.json and its path, for messages, and gives one in which `keys`
            are found, for those that are nested in newer versions; None where all are flat.
        constants: Settings for which there is no key.
        heads: head kind to layout; None is the bare encoder.
        written: further keys for config.json.
        must: config keys and the values that the encoder can express; an absent key is fine.
        causal_key: key whose value true makes all of the family's classes attend causally, where
            there is one.
        offset_by_pad: positions start at `pad_token_id` + 1.
        always_projects: has the projection after the tables even when they are as wide as the
            layers.
    """

    model_type: str
    class_prefix: str
    prefix: str
    embeddings: dict[str, str]
    layer: str
    qkv: tuple[str, ...]
    layer_modules: tuple[str, str, str, str, str]
    final_norm: str | None = None
    keys: dict[str, tuple[str, Any]]
    repeated: dict[str, str] = field(default_factory=dict)
    flattened: Callable[[dict[str, Any], Path], dict[str, Any]] | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    heads: dict[str | None, HeadLayout]
    written: dict[str, Any] = field(default_factory=dict)
    must: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    causal_key: str | None = None
    offset_by_pad: bool = False
    always_projects: bool = False

    def theirs(self, ours: str, kind: str | None) -> tuple[str, ...]:
        """Return Hugging Face's names of a tensor of filbert: three if only filbert's is fused."""
        module, _, leaf = ours.rpartition(".")
        head = self.heads[kind]
        if module == "encoder.pooler":
            assert head.pooler is not None
            return (f"{head.pooler.name}.{leaf}",)
        if module == "encoder.final_norm":
            return (f"{self.final_norm}.{leaf}",)
        if module.startswith("encoder.embeddings."):
            return (f"{self.embeddings[module.removeprefix('encoder.embeddings.')]}.{leaf}",)
        if (match := _LAYER_NAME.fullmatch(module)) is None:
            return (f"{head.modules[module]}.{leaf}",)
        layer, part = self.layer.format(match[1]), match[2]
        modules = self.qkv if part == "qkv" else (self.own_module(part),)
        return tuple(f"{layer}.{name}.{leaf}" for name in modules)

    def own_module(self, part: str) -> str:
        """Return Hugging Face's name of a module of a layer."""
        return dict(zip(LAYER_MODULES, self.layer_modules, strict=True)).get(part, part)

    def says_causal(self, kind: str | None, *, has_pooler: bool) -> bool:
        """Return whether `causal_key` describes a causal model: nothing reads the first token."""
        slot = self.heads[kind].pooler
        reads_first = slot is not None and (slot.required or has_pooler)
        return self.causal_key is not None and not reads_first

    def class_name(self, kind: str | None) -> str:
        """Return Hugging Face's class for a kind of head, as in `architectures`."""
        return self.class_prefix + self.heads[kind].suffix


# Entries that several families share with BERT.


def table_names(prefix: str) -> dict[str, str]:
    """Return the names of embedding tables and their LayerNorm, ours to theirs."""
    return {
        "word": f"{prefix}.embeddings.word_embeddings",
        "position": f"{prefix}.embeddings.position_embeddings",
        "token_type": f"{prefix}.embeddings.token_type_embeddings",
        "norm": f"{prefix}.embeddings.LayerNorm",
    }


QKV = ("attention.self.query", "attention.self.key", "attention.self.value")
LAYER = (
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
KEYS: dict[str, tuple[str, Any]] = {
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
MUST: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "quantization_config": (None,),
}
# Of the families whose encoders become causal by a key.
CAUSAL_KEY = "is_decoder"
CAUSAL_MUST: dict[str, tuple[Any, ...]] = {**MUST, CAUSAL_KEY: (False, True, None)}
CLASSIFIER_DROPOUT = ("classifier_dropout", None)
OUT = {"head.out": "classifier"}
OUT_PROJECTION = {"head.out": "classifier.out_proj"}
SPANS = {"head.out": "qa_outputs"}


def masked_lm_names(head: str, transform: str, norm: str, *, part: str = "head") -> dict[str, str]:
    """Return the modules of a masked-LM head, ours to theirs."""
    return {part: head, f"{part}.transform": transform, f"{part}.norm": norm}


def tied_names(table: str, projection: str, bias: str | None = None) -> dict[str, str]:
    """Return tied tensors of a masked-LM head: the word table and a second name of its bias."""
    tied = {f"{projection}.weight": f"{table}.weight"}
    return tied if bias is None else {**tied, f"{projection}.bias": bias}


def head_layout(suffix: str, modules: dict[str, str] | None = None, **rest: Any) -> HeadLayout:
    """Return a HeadLayout with `classifier_dropout` as the default key of the dropout."""
    return HeadLayout(
        suffix=suffix, modules=modules or {}, **{"dropout": CLASSIFIER_DROPOUT, **rest}
    )


def task_heads(
    *,
    sequence: tuple[dict[str, str], PoolerSlot | None] = (OUT, None),
    choices: PoolerSlot | None = None,
    **common: Any,
) -> dict[str | None, HeadLayout]:
    """Return the classes that every family has for the tasks.

    Args:
        sequence: Modules and pooler of the classifier of sequences.
        choices: Pooler of the multiple-choice class.
        common: Further fields of each HeadLayout.
    """
    modules, pooler = sequence
    return {
        "sequence": head_layout("ForSequenceClassification", modules, pooler=pooler, **common),
        "choices": head_layout("ForMultipleChoice", OUT, pooler=choices, **common),
        "tokens": head_layout("ForTokenClassification", OUT, **common),
        "spans": head_layout("ForQuestionAnswering", SPANS, **common),
    }


# ModernBERT.


_FAR, _NEAR = "full_attention", "sliding_attention"
_THETAS = {_FAR: "global_rope_theta", _NEAR: "local_rope_theta"}
_FAR_THETA, _NEAR_THETA = 160_000.0, 10_000.0


# No release has other values.
_MODERNBERT_FLAGS = {
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "tie_word_embeddings": True,
}


def modernbert() -> Family:
    """Return the table of ModernBERT."""
    transform = {"head.transform": "head.dense", "head.norm": "head.norm"}
    words = "model.embeddings.tok_embeddings"
    # Ours has one activation for layers and heads.
    common: dict[str, Any] = {
        "dropout": ("classifier_dropout", 0.0),
        "activation": "gelu",
        "must": {"classifier_activation": ("gelu",)},
    }
    same = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    # Many releases have a `position_embedding_type`, which transformers does not read.
    must = {key: value for key, value in MUST.items() if key != "position_embedding_type"}
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
            **{name: KEYS[name] for name in (*same, "intermediate_size", "initializer_range")},
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
        constants=dict(
            type_vocab_size=0,
            gated=True,
            norm_place="before",
            biases=False,
            head_transform=True,
        ),
        must={
            **must,
            **{key: (value,) for key, value in _MODERNBERT_FLAGS.items()},
            "rope_scaling": (None,),
        },
        written=_MODERNBERT_FLAGS,
        heads={
            None: head_layout("Model", dropout=common["dropout"]),
            "masked_lm": head_layout(
                "ForMaskedLM",
                {**transform, "head": "decoder"},
                tied=tied_names(words, "decoder"),
                **common,
            ),
            **{
                kind: replace(layout, modules={**transform, **OUT})
                for kind, layout in task_heads(**common).items()
            },
        },
    )


def _flattened(raw: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return config.json with transformers 5's nested keys as the flat keys of version 4.

    Raises:
        FormatError: Global layers at unequal distances, or scaled rotary positions.
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
    """Return the distance between global layers."""
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


# The families.


def _bert() -> Family:
    pooler = PoolerSlot(name="bert.pooler.dense", activation="tanh")
    optional = replace(pooler, required=False)
    lm = "cls.predictions"
    names = (lm, f"{lm}.transform.dense", f"{lm}.transform.LayerNorm")
    tied = tied_names("bert.embeddings.word_embeddings", f"{lm}.decoder", f"{lm}.bias")
    pair = "cls.seq_relationship"
    pretraining = {**masked_lm_names(*names, part="head.masked_lm"), "head.pair.out": pair}
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
            "masked_lm": head_layout(
                "ForMaskedLM", masked_lm_names(*names), pooler=optional, tied=tied
            ),
            "pretraining": head_layout("ForPreTraining", pretraining, pooler=pooler, tied=tied),
            "pair": head_layout("ForNextSentencePrediction", {"head.out": pair}, pooler=pooler),
            **task_heads(sequence=(OUT, pooler), choices=pooler),
        },
    )


def _roberta(model_type: str, class_prefix: str) -> Family:
    pooler = PoolerSlot(name="roberta.pooler.dense", activation="tanh")
    optional = replace(pooler, required=False)
    first_token = PoolerSlot(name="classifier.dense", activation="tanh", dropout_before=True)
    tasks = task_heads(sequence=(OUT_PROJECTION, first_token), choices=pooler)
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
            "masked_lm": head_layout(
                "ForMaskedLM",
                masked_lm_names("lm_head", "lm_head.dense", "lm_head.layer_norm"),
                pooler=optional,
                tied=tied_names(
                    "roberta.embeddings.word_embeddings", "lm_head.decoder", "lm_head.bias"
                ),
                # transformers' RobertaLMHead is always erf-gelu, whatever hidden_act says.
                activation="gelu",
            ),
            **tasks,
            "choices": replace(tasks["choices"], dropout=(None, None)),
        },
    )


def _distilbert() -> Family:
    pooler = PoolerSlot(name="pre_classifier", activation="relu")
    embeddings = table_names("distilbert")
    del embeddings["token_type"]
    keys = {
        name: key for name, key in KEYS.items() if name not in ("type_vocab_size", "layer_norm_eps")
    }
    dropout = ("seq_classif_dropout", 0.2)
    tasks = task_heads(sequence=(OUT, pooler), choices=pooler, dropout=dropout)
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
                "ForMaskedLM",
                masked_lm_names("vocab_projector", "vocab_transform", "vocab_layer_norm"),
                tied=tied_names("distilbert.embeddings.word_embeddings", "vocab_projector"),
                dropout=dropout,
            ),
            **tasks,
            "tokens": replace(tasks["tokens"], dropout=(None, None)),
        },
    )


def _albert() -> Family:
    pooler = PoolerSlot(name="albert.pooler", activation="tanh")
    optional = replace(pooler, required=False)
    names = ("predictions", "predictions.dense", "predictions.LayerNorm")
    tied = tied_names(
        "albert.embeddings.word_embeddings", "predictions.decoder", "predictions.bias"
    )
    pair = {"head.pair.out": "sop_classifier.classifier"}
    pretraining = {**masked_lm_names(*names, part="head.masked_lm"), **pair}
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
                "ForMaskedLM", masked_lm_names(*names), pooler=optional, tied=tied, dropout=dropout
            ),
            "pretraining": head_layout(
                "ForPreTraining", pretraining, pooler=pooler, tied=tied, dropout=dropout
            ),
            **task_heads(sequence=(OUT, pooler), choices=pooler, dropout=dropout),
        },
    )


def _electra() -> Family:
    first_token = PoolerSlot(name="classifier.dense", activation="gelu", dropout_before=True)
    summary = PoolerSlot(name="sequence_summary.summary", activation="gelu")
    tasks = task_heads(sequence=(OUT_PROJECTION, first_token), choices=summary)
    predictions = "generator_predictions"
    discriminator = {
        "head.dense": "discriminator_predictions.dense",
        "head.out": "discriminator_predictions.dense_prediction",
    }
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
            "masked_lm": head_layout(
                "ForMaskedLM",
                masked_lm_names(
                    "generator_lm_head", f"{predictions}.dense", f"{predictions}.LayerNorm"
                ),
                tied=tied_names("electra.embeddings.word_embeddings", "generator_lm_head"),
                # transformers' ElectraGeneratorPredictions is always erf-gelu too.
                activation="gelu",
            ),
            "discriminator": head_layout("ForPreTraining", discriminator),
            **tasks,
            "choices": replace(
                tasks["choices"],
                dropout=("summary_last_dropout", 0.1),
                must={
                    "summary_type": ("first",),
                    "summary_use_proj": (True,),
                    "summary_activation": ("gelu",),
                },
            ),
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
