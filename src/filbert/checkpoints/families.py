"""Tables of the model families, and of the files that a model consists of.

A family is a row over the grammar of EncoderConfig: config.json's keys to its flat settings, and
tensor names to filbert's. Families are named here and in the tokenizers' conventions only.
Sources: transformers 5, models/*/configuration_*.py and modeling_*.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

from filbert.errors import FormatError

SAFETENSORS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json")
# Settings and tensors of a low-rank adapter, as PEFT writes them.
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")
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

# The family of tables of word vectors without layers.
STATIC = "static_embedding"

# Prefixes for causal encoders that no class of transformers computes. Other tools refuse such names
# instead of pooling the first token or ignoring the causal mask.
CAUSAL_TYPE, CAUSAL_CLASS = "filbert_causal_", "FilbertCausal"
# Makes all of transformers' classes of some families attend causally.
CAUSAL_KEY = "is_decoder"

# Kinds of layers in transformers 5's config.json.
FAR, NEAR = "full_attention", "sliding_attention"

# Modules of a layer, in the order of the tables below; only a few families have the last four.
LAYER_MODULES = (
    *("qkv", "attention_out", "attention_norm", "up", "down", "norm"),
    *("heads.query_norm", "heads.key_norm", "attention_norm_after", "norm_after"),
)

_LAYER_NAME = re.compile(r"encoder\.layers\.(\d+)\.([\w.]+)")

# BERT's modules: outside the layers, ours under "encoder." to theirs, and those of a layer.
TABLES = {
    "embeddings.word": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.token_type": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
}
LAYER = (
    ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)

# Names of the values of two settings in config.json: theirs to ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

# Kinds of heads that read a pooled vector. The others can do without a pooler.
POOLED_KINDS = ("pair", "pretraining", "sequence", "choices")


def _same(value: Any) -> Any:
    return value


class Key(NamedTuple):
    """The key of config.json that holds one setting of EncoderConfig.

    Attributes:
        name: The key.
        default: Its value if config.json does not have it; REQUIRED for no default. Numbers are
            whole ones unless the default is a float.
        values: Names of values, theirs to ours, for a setting that is no number. Of several names
            for one value, the first is written.
        repeated: A further key that holds the value again.
        read, write: From the number under the key to that of the setting, and back.
    """

    name: str
    default: Any = REQUIRED
    values: Mapping[str, str] | None = None
    repeated: str | None = None
    read: Callable[[Any], Any] = _same
    write: Callable[[Any], Any] = _same


# The dropout of a head without a key of its own: that of the hidden states.
HIDDEN = Key("", None)


@dataclass(frozen=True)
class PoolerSlot:
    """Where a family keeps the dense layer over the first token for one kind of head.

    Attributes:
        name: Hugging Face's module.
        activation: The setting `pooler`.
        dropout_before: The setting `pooler_dropout`.
    """

    name: str
    activation: str
    dropout_before: bool = False


# Suffixes of Hugging Face's class names by kind of head; None is the bare encoder.
CLASSES = {
    None: "Model",
    "masked_lm": "ForMaskedLM",
    "pretraining": "ForPreTraining",
    "pair": "ForNextSentencePrediction",
    "discriminator": "ForPreTraining",
    "sequence": "ForSequenceClassification",
    "choices": "ForMultipleChoice",
    "tokens": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
}


@dataclass(frozen=True)
class HeadLayout:
    """One of Hugging Face's classes: which tensors its head has and which config keys it reads.

    Attributes:
        modules: our module ("head.out") to theirs ("classifier").
        pooler: A dense layer of its own, instead of the family's pooler.
        decoder: their module that repeats the word table, and the bias of the scores.
        dropout: Of the setting `head_dropout`; None for the family's.
        activation: the only `hidden_act` with which this head is what transformers runs, None for
            any.
        must: config keys and the values this head can express; an absent key is fine.
        suffix: the class name without the family, if it is not that of CLASSES.
    """

    modules: dict[str, str] = field(default_factory=dict)
    _: KW_ONLY
    pooler: PoolerSlot | None = None
    decoder: str | None = None
    dropout: Key | None = None
    activation: str | None = None
    must: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    suffix: str | None = None


Heads = dict[str | None, HeadLayout]


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family, or one variant of it under another `model_type`.

    Attributes:
        model_type: as in config.json, and Checkpoint.family.
        class_prefix: of Hugging Face's class names.
        prefix: of the encoder's tensors in a model with a head; a bare encoder may go without.
        modules: Those outside the layers, ours under "encoder." to theirs without the prefix.
        layer: their name of layer i (of parameter group i), with {} for i, without the prefix.
        layer_modules: theirs, in the order of LAYER_MODULES; several where only ours is fused.
        whole_names: Our tensor ("encoder.embeddings.unseen") or tensor of a layer ("qkv.weight") to
            theirs, where it belongs to no module of theirs.
        forms: Our module of a layer to the form of its weight in files, where it is not ours:
            "transposed", as (inputs, outputs); "outputs_by_head", as (inputs, heads, head size);
            "inputs_by_head", as (outputs, heads, head size); or with another order of rows:
            "halves" (the two halves are swapped) or "interleaved" (queries, keys and values take
            turns head by head, and the two elements of each rotated pair are neighbours).
        renamed: Patterns of names in older files, and their replacements, applied in order.
        zeros: Biases that older files lack; they are zeros then.
        keys: Setting of EncoderConfig to its key.
        aliases: Config keys of some versions to those of `keys`.
        flattened: takes a config.json and its path, for messages, and gives one in which `keys`
            are found; None where all are there. Those that transformers 5 nests in the same way for
            all families, `rope_parameters` and `layer_types`, are found without it.
        nested: The inverse, applied to what is written.
        constants: Settings for which there is no key; `keys` take precedence.
        heads: head kind to layout; None is the bare encoder.
        dropout: Of the setting `head_dropout`, whose value of None means the hidden dropout.
        pooler: The pooler that heads over a pooled vector read; None for none.
        bare_has_pooler: Whether the bare encoder and the masked-LM class may have it too.
        written: further keys for config.json.
        must: config keys and the values that the encoder can express; an absent key is fine.
        always_projects: has the projection after the tables even when they are as wide as the
            layers.
    """

    model_type: str
    class_prefix: str
    prefix: str
    modules: dict[str, str]
    layer: str = "encoder.layer.{}"
    layer_modules: tuple[str | tuple[str, ...], ...] = LAYER
    whole_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    forms: dict[str, str] = field(default_factory=dict)
    renamed: tuple[tuple[str, str], ...] = ()
    zeros: tuple[str, ...] = ()
    keys: dict[str, Key]
    aliases: dict[str, str] = field(default_factory=dict)
    flattened: Callable[[dict[str, Any], Path], dict[str, Any]] | None = None
    nested: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    heads: Heads
    dropout: Key = Key("classifier_dropout", None)
    pooler: PoolerSlot | None = None
    bare_has_pooler: bool = False
    written: dict[str, Any] = field(default_factory=dict)
    must: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    always_projects: bool = False

    @property
    def always_causal(self) -> bool:
        """Whether every model of the family attends causally."""
        return bool(self.constants.get("causal"))

    @property
    def has_causal_key(self) -> bool:
        """Whether CAUSAL_KEY with the value true makes all classes attend causally."""
        return True in self.must.get(CAUSAL_KEY, ())

    @property
    def word_table(self) -> str:
        """Their name of the word table, with the prefix."""
        return f"{self.prefix}{self.modules['embeddings.word']}.weight"

    def theirs(self, ours: str, kind: str | None) -> tuple[str, ...]:
        """Return Hugging Face's names of a tensor of filbert: several if only filbert's is fused.

        A head's own parameter, such as the bias of scores, is in the module of the head.
        """
        module, _, leaf = ours.rpartition(".")
        head = self.heads[kind]
        if ours in self.whole_names:
            return self.whole_names[ours]
        if module == "encoder.pooler":
            pooler = self.pooler_of(kind)
            assert pooler is not None
            return (f"{pooler.name}.{leaf}",)
        if module in head.modules:
            return (f"{head.modules[module]}.{leaf}",)
        if (match := _LAYER_NAME.fullmatch(module)) is None:
            return (f"{self.prefix}{self.modules[module.removeprefix('encoder.')]}.{leaf}",)
        layer, part = self.prefix + self.layer.format(match[1]), match[2]
        if names := self.whole_names.get(f"{part}.{leaf}"):
            return tuple(f"{layer}.{name}" for name in names)
        own = dict(zip(LAYER_MODULES, self.layer_modules, strict=False))[part]
        names = (own,) if isinstance(own, str) else own
        return tuple(f"{layer}.{name}.{leaf}" for name in names)

    def form(self, ours: str) -> str | None:
        """Return the form of a tensor in files, a value of `forms`; None if it is ours."""
        module, _, leaf = ours.rpartition(".")
        match = _LAYER_NAME.fullmatch(module)
        form = self.forms.get(match[2]) if match else None
        # A bias is in the order of the rows, too.
        return form if leaf == "weight" or form in ("halves", "interleaved") else None

    def tied(self, kind: str | None) -> dict[str, str]:
        """Return the tensors of a kind of head that repeat another of theirs, to the other."""
        head = self.heads[kind]
        if head.decoder is None:
            return {}
        tied = {f"{head.decoder}.weight": self.word_table}
        scores = head.modules.get("head") or head.modules.get("head.masked_lm")
        if scores not in (None, head.decoder):
            tied[f"{head.decoder}.bias"] = f"{scores}.bias"
        return tied

    def pooler_of(self, kind: str | None) -> PoolerSlot | None:
        """Return the pooler that goes with a kind of head; None for none."""
        kinds = (*POOLED_KINDS, None, "masked_lm") if self.bare_has_pooler else POOLED_KINDS
        return self.heads[kind].pooler or (self.pooler if kind in kinds else None)

    def required_pooler(self, kind: str | None) -> PoolerSlot | None:
        """Return the pooler without which a kind of head cannot run; None for none."""
        return self.pooler_of(kind) if kind in POOLED_KINDS else None

    def says_causal(self, kind: str | None, *, has_pooler: bool) -> bool:
        """Return whether CAUSAL_KEY describes a causal model: nothing reads the first token."""
        return self.has_causal_key and not has_pooler and self.required_pooler(kind) is None

    def class_name(self, kind: str | None) -> str:
        """Return Hugging Face's class for a kind of head, as in `architectures`."""
        return self.class_prefix + self.class_suffix(kind)

    def class_suffix(self, kind: str | None) -> str:
        """Return the name of that class without the family."""
        suffix = self.heads[kind].suffix
        return CLASSES[kind] if suffix is None else suffix

    def dropout_key(self, kind: str | None) -> Key:
        """Return the key of the setting `head_dropout`."""
        return self.heads[kind].dropout or self.dropout


# Entries that several families share.


Allowed = dict[str, tuple[Any, ...]]

_SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
)  # fmt: skip


def sizes(hidden: str, layers: str, heads: str, width: str) -> dict[str, Key]:
    """Return the keys of the sizes that every family has, and of the vocabulary's."""
    return dict(zip(_SIZES, map(Key, ("vocab_size", hidden, layers, heads, width)), strict=True))


KEYS = {
    **sizes(*_SIZES[1:]),
    "max_position_embeddings": Key("max_position_embeddings", 512),
    "type_vocab_size": Key("type_vocab_size", 2),
    "hidden_act": Key("hidden_act", "gelu", ACTIVATIONS),
    "layer_norm_eps": Key("layer_norm_eps", 1e-12),
    "hidden_dropout": Key("hidden_dropout_prob", 0.1),
    "attention_dropout": Key("attention_probs_dropout_prob", 0.1),
    "initializer_range": Key("initializer_range", 0.02),
}


def without(table: dict[Any, Any], *names: str) -> dict[Any, Any]:
    """Return a table without some of its entries."""
    return {name: value for name, value in table.items() if name not in names}


def with_defaults(keys: dict[str, Key], **values: Any) -> dict[str, Key]:
    """Return keys with other defaults, by setting."""
    return keys | {name: keys[name]._replace(default=value) for name, value in values.items()}


MUST: Allowed = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "quantization_config": (None,),
}
# Of the families whose encoders become causal by CAUSAL_KEY.
CAUSAL_MUST: Allowed = {**MUST, CAUSAL_KEY: (False, True, None)}
_NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
_UNSCALED: Allowed = {"rope_scaling": (None,)}
OUT = {"head.out": "classifier"}
SPANS = {"head.out": "qa_outputs"}


def masked_lm(scores: str, transform: str, norm: str, **rest: Any) -> HeadLayout:
    """Return the class of a masked-LM head, with further fields of its HeadLayout.

    The names are those of the scores' bias, and of the dense layer and the norm before the scores.
    The decoder is in the module of the scores, unless `rest` names it.
    """
    modules = {"head": scores, "head.transform": transform, "head.norm": norm}
    return HeadLayout(modules, **{"decoder": f"{scores}.decoder", **rest})


_LM = "cls.predictions"
BERT_LM = masked_lm(_LM, f"{_LM}.transform.dense", f"{_LM}.transform.LayerNorm")


def summary(modules: dict[str, str], token: str, activation: str) -> HeadLayout:
    """Return a class whose pooler has keys of its own, for the token that it reads."""
    must = {"use_proj": True, "type": token, "activation": activation}
    return HeadLayout(
        modules,
        dropout=Key("summary_last_dropout", 0.1),
        must={f"summary_{key}": (value,) for key, value in must.items()},
    )


def pretraining(words: HeadLayout, pair: str) -> HeadLayout:
    """Return the class of a masked-LM head together with a module `pair` for pairs of texts."""
    modules = {
        ours.replace("head", "head.masked_lm"): theirs for ours, theirs in words.modules.items()
    }
    return replace(words, modules={**modules, "head.pair.out": pair})


def task_heads(*kinds: str, dense: str | None = None, **common: Any) -> Heads:
    """Return the classes for some kinds of tasks, by default all, with `common` fields.

    With `dense`, an activation, sequences have a dense layer of their own instead of the pooler.
    """
    task = HeadLayout(OUT, **common)
    heads = {
        "sequence": task,
        "choices": task,
        "tokens": task,
        "spans": replace(task, modules=SPANS),
    }
    if dense is not None:
        pooler = PoolerSlot("classifier.dense", dense, dropout_before=True)
        heads["sequence"] = replace(
            task, modules={"head.out": "classifier.out_proj"}, pooler=pooler
        )
    return {kind: heads[kind] for kind in kinds or heads}


# BERT and the families with its layers.


_BERT = Family(
    model_type="bert",
    class_prefix="Bert",
    prefix="bert.",
    modules=TABLES,
    keys=KEYS,
    must=CAUSAL_MUST,
    pooler=PoolerSlot("bert.pooler.dense", "tanh"),
    bare_has_pooler=True,
    heads={
        None: HeadLayout(),
        "masked_lm": BERT_LM,
        "pretraining": pretraining(BERT_LM, "cls.seq_relationship"),
        "pair": HeadLayout({"head.out": "cls.seq_relationship"}),
        **task_heads(),
    },
)

_ROBERTA = replace(
    _BERT,
    model_type="roberta",
    class_prefix="Roberta",
    prefix="roberta.",
    # Positions are counted from the row after the padding id.
    keys={
        **KEYS,
        "position_offset": Key(
            "pad_token_id", 1, read=lambda pad: pad + 1, write=lambda row: row - 1
        ),
    },
    pooler=PoolerSlot("roberta.pooler.dense", "tanh"),
    heads={
        None: HeadLayout(),
        "masked_lm": masked_lm(
            "lm_head",
            "lm_head.dense",
            "lm_head.layer_norm",
            # transformers' RobertaLMHead is always erf-gelu, whatever hidden_act is.
            activation="gelu",
        ),
        **task_heads(dense="tanh"),
        "choices": HeadLayout(OUT, dropout=HIDDEN),
    },
)

_XLM_ROBERTA = replace(_ROBERTA, model_type="xlm-roberta", class_prefix="XLMRoberta")
_CAMEMBERT = replace(_ROBERTA, model_type="camembert", class_prefix="Camembert")

_DISTILBERT = Family(
    model_type="distilbert",
    class_prefix="DistilBert",
    prefix="distilbert.",
    modules=TABLES,
    layer="transformer.layer.{}",
    layer_modules=(
        ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        *("attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
    ),
    keys={
        **without(KEYS, "type_vocab_size", "layer_norm_eps"),
        **sizes("dim", "n_layers", "n_heads", "hidden_dim"),
        "hidden_act": Key("activation", "gelu", ACTIVATIONS),
        "hidden_dropout": Key("dropout", 0.1),
        "attention_dropout": Key("attention_dropout", 0.1),
    },
    constants={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
    must=MUST,
    written={"sinusoidal_pos_embds": False},
    dropout=Key("seq_classif_dropout", 0.2),
    pooler=PoolerSlot("pre_classifier", "relu"),
    heads={
        None: HeadLayout(),
        "masked_lm": masked_lm(
            "vocab_projector", "vocab_transform", "vocab_layer_norm", decoder="vocab_projector"
        ),
        **task_heads(),
        "tokens": HeadLayout(OUT, dropout=HIDDEN),
    },
)

_ALBERT_WORDS = masked_lm("predictions", "predictions.dense", "predictions.LayerNorm")
_ALBERT = Family(
    model_type="albert",
    class_prefix="Albert",
    prefix="albert.",
    modules={**TABLES, "embeddings.project": "encoder.embedding_hidden_mapping_in"},
    layer="encoder.albert_layer_groups.{}.albert_layers.0",
    layer_modules=(
        ("attention.query", "attention.key", "attention.value"),
        *("attention.dense", "attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm"),
    ),
    keys={
        **with_defaults(KEYS, hidden_act="gelu_new", **_NO_DROPOUT),
        "embedding_size": Key("embedding_size"),
        "num_hidden_groups": Key("num_hidden_groups", 1),
    },
    must={**MUST, "inner_group_num": (1,)},
    always_projects=True,
    written={"inner_group_num": 1},
    dropout=Key("classifier_dropout_prob", 0.1),
    pooler=PoolerSlot("albert.pooler", "tanh"),
    bare_has_pooler=True,
    heads={
        None: HeadLayout(),
        "masked_lm": _ALBERT_WORDS,
        "pretraining": pretraining(_ALBERT_WORDS, "sop_classifier.classifier"),
        **task_heads(),
    },
)

_ELECTRA = Family(
    model_type="electra",
    class_prefix="Electra",
    prefix="electra.",
    modules={**TABLES, "embeddings.project": "embeddings_project"},
    keys={**KEYS, "embedding_size": Key("embedding_size", 128)},
    must=CAUSAL_MUST,
    pooler=PoolerSlot("sequence_summary.summary", "gelu"),
    heads={
        None: HeadLayout(),
        "masked_lm": masked_lm(
            "generator_lm_head",
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            decoder="generator_lm_head",
            # transformers' ElectraGeneratorPredictions is always erf-gelu too.
            activation="gelu",
        ),
        "discriminator": HeadLayout(
            {
                "head.dense": "discriminator_predictions.dense",
                "head.out": "discriminator_predictions.dense_prediction",
            }
        ),
        **task_heads(dense="gelu"),
        "choices": summary(OUT, "first", "gelu"),
    },
)

# No release of ModernBERT has other values.
_MODERNBERT_FLAGS = {
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "tie_word_embeddings": True,
}
# Ours has one activation for layers and heads.
_MODERNBERT_HEADS: dict[str, Any] = {
    "activation": "gelu",
    "must": {"classifier_activation": ("gelu",)},
}
_MODERNBERT_TASK = {"head.transform": "head.dense", "head.norm": "head.norm", **OUT}
_MODERNBERT = Family(
    model_type="modernbert",
    class_prefix="ModernBert",
    prefix="model.",
    modules={
        "embeddings.word": "embeddings.tok_embeddings",
        "embeddings.norm": "embeddings.norm",
        "final_norm": "final_norm",
    },
    layer="layers.{}",
    layer_modules=("attn.Wqkv", "attn.Wo", "attn_norm", "mlp.Wi", "mlp.Wo", "mlp_norm"),
    keys={
        **{name: KEYS[name] for name in (*_SIZES, "initializer_range")},
        "max_position_embeddings": Key("max_position_embeddings", 8192),
        "hidden_act": Key("hidden_activation", "gelu", ACTIVATIONS),
        "layer_norm_eps": Key("norm_eps", 1e-5),
        "hidden_dropout": Key("mlp_dropout", 0.0, repeated="embedding_dropout"),
        "attention_dropout": Key("attention_dropout", 0.0),
        "rotary_base": Key("global_rope_theta", 160_000.0),
        "local_rotary_base": Key("local_rope_theta", 10_000.0),
        "local_window": Key("local_attention", 128),
        "global_every": Key("global_attn_every_n_layers", 3),
        "pooled": Key("classifier_pooling", "cls", {"cls": "cls", "mean": "mean"}),
    },
    constants=dict(
        type_vocab_size=0, gated=True, norm_place="before", biases=False, head_transform=True
    ),
    must={
        # Many releases have this key, which transformers does not read.
        **without(MUST, "position_embedding_type"),
        **{key: (value,) for key, value in _MODERNBERT_FLAGS.items()},
        **dict.fromkeys(("causal_mask", "is_causal"), (False,)),
        **_UNSCALED,
    },
    written=_MODERNBERT_FLAGS,
    dropout=Key("classifier_dropout", 0.0),
    heads={
        None: HeadLayout(),
        "masked_lm": masked_lm(
            "decoder", "head.dense", "head.norm", decoder="decoder", **_MODERNBERT_HEADS
        ),
        **dict.fromkeys(
            ("sequence", "choices", "tokens", "spans"),
            HeadLayout(_MODERNBERT_TASK, **_MODERNBERT_HEADS),
        ),
    },
)


# Rotary families with LayerNorm after each sum. Sources: their authors' modelling code, and
# transformers 5, which reads and writes the same tensor names.


_ROTARY_KEYS = {**KEYS, "rotary_base": Key("rope_theta")}
_ROTARY_MUST = {**MUST, "position_embedding_type": ("rope", "rotary", "absolute", None)}

_NOMIC_BERT = Family(
    model_type="nomic_bert",
    class_prefix="NomicBert",
    prefix="nomic_bert.",
    modules={**TABLES, "embeddings.norm": "emb_ln"},
    layer="encoder.layers.{}",
    layer_modules=(
        *("attn.Wqkv", "attn.out_proj", "norm1"),
        *(("mlp.fc12", "mlp.fc11"), "mlp.fc2", "norm2"),
    ),
    renamed=((r"^bert\.", "nomic_bert."),),
    zeros=("cls.predictions.bias", "cls.predictions.transform.dense.bias"),
    keys={
        **with_defaults(
            _ROTARY_KEYS, rotary_base=1000.0, max_position_embeddings=2048, **_NO_DROPOUT
        ),
        "hidden_act": Key("hidden_act", "silu", {"silu": "silu", "swiglu": "silu"}),
    },
    aliases={
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_inner": "intermediate_size",
        "n_positions": "max_position_embeddings",
        "activation_function": "hidden_act",
        "layer_norm_epsilon": "layer_norm_eps",
        "resid_pdrop": "hidden_dropout_prob",
        "attn_pdrop": "attention_probs_dropout_prob",
        "rotary_emb_base": "rope_theta",
    },
    constants=dict(gated=True, attention_bias=False, mlp_bias=False, up_bias=False),
    must={
        **_ROTARY_MUST,
        **_UNSCALED,
        # Of the authors' configuration. The second version alone has experts.
        "num_experts": (0, None),
        "rotary_scaling_factor": (None,),
        "rotary_emb_fraction": (1.0,),
        "rotary_emb_interleaved": (False,),
        "rotary_emb_scale_base": (None,),
        **dict.fromkeys(("prenorm", "use_rms_norm", "causal", "parallel_block"), (False,)),
        **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), (False,)),
    },
    pooler=PoolerSlot("nomic_bert.pooler.dense", "tanh"),
    heads={
        None: HeadLayout(),
        "masked_lm": masked_lm(_LM, f"{_LM}.transform.dense", f"{_LM}.transform.layer_norm"),
        **task_heads("sequence", "tokens"),
    },
)

_GTE = Family(
    model_type="gte",
    class_prefix="Gte",
    prefix="gte.",
    modules=TABLES,
    layer_modules=(
        *("attention.qkv_proj", "attention.o_proj", "attn_ln"),
        *("mlp.up_gate_proj", "mlp.down_proj", "mlp_ln"),
    ),
    forms={"up": "halves"},
    renamed=((r"^new\.", "gte."), (r"^(lm_head)\.layer_norm\.", r"\1.norm.")),
    keys=with_defaults(
        _ROTARY_KEYS,
        rotary_base=160_000.0,
        max_position_embeddings=8192,
        type_vocab_size=1,
        attention_dropout=0.0,
    ),
    constants=dict(gated=True, up_bias=False),
    must={
        **_ROTARY_MUST,
        **_UNSCALED,
        "layer_norm_type": ("layer_norm",),
        "pack_qkv": (True,),
        "logn_attention_scale": (False,),
    },
    pooler=PoolerSlot("gte.pooler.dense", "tanh"),
    heads={
        None: HeadLayout(),
        "masked_lm": masked_lm(
            "lm_head.decoder",
            "lm_head.dense",
            "lm_head.norm",
            decoder="lm_head.decoder",
            activation="gelu",
        ),
        **task_heads("sequence", "tokens"),
    },
)


def _new_flattened(raw: dict[str, Any], path: Path) -> dict[str, Any]:
    scaling = raw.get("rope_scaling") or {"type": "ntk", "factor": 1.0}
    if not isinstance(scaling, dict) or scaling.get("type") != "ntk" or len(scaling) > 2:
        raise FormatError(
            f"{path}: rope_scaling is {short(scaling)}; filbert reads type ntk with a factor."
        )
    return {**raw, "rope_factor": scaling.get("factor")}


def _new_nested(raw: dict[str, Any]) -> dict[str, Any]:
    factor = raw.pop("rope_factor")
    return {**raw, "rope_scaling": None if factor == 1.0 else {"type": "ntk", "factor": factor}}


# GTE under the name of its authors, whose code alone scales rotary positions.
_NEW = replace(
    _GTE,
    model_type="new",
    class_prefix="New",
    prefix="new.",
    renamed=_GTE.renamed[1:],
    keys={
        **with_defaults(_GTE.keys, rotary_base=10_000.0),
        "rotary_scaling": Key("rope_factor", 1.0),
    },
    flattened=_new_flattened,
    nested=_new_nested,
    must=without(_GTE.must, *_UNSCALED),
    pooler=PoolerSlot("new.pooler.dense", "tanh"),
)

# RoBERTa's heads over rotary layers. Its task adapters are left out: without a task, its authors'
# code uses the base weights too.
_JINA_V3 = replace(
    _ROBERTA,
    model_type="jina_embeddings_v3",
    class_prefix="JinaEmbeddingsV3",
    modules={**TABLES, "embeddings.norm": "emb_ln"},
    layer="encoder.layers.{}",
    layer_modules=("mixer.Wqkv", "mixer.out_proj", "norm1", "mlp.fc1", "mlp.fc2", "norm2"),
    renamed=((r"\.parametrizations\.weight\.original$", ".weight"),),
    keys=with_defaults(
        _ROTARY_KEYS,
        rotary_base=20000.0,
        max_position_embeddings=8194,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    ),
    aliases={"rotary_emb_base": "rope_theta"},
    must={**_ROTARY_MUST, **_UNSCALED},
    heads=without(_ROBERTA.heads, "choices"),
)


# Families with RMSNorm before each sublayer. Sources: as above, and for NeoBERT its authors' code.

_RMS: dict[str, Any] = dict(
    type_vocab_size=0,
    gated=True,
    biases=False,
    rms_norm=True,
    norm_place="before",
    embedding_norm=False,
    hidden_dropout=0.0,
)
_LLAMA_LAYER = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    *("self_attn.o_proj", "input_layernorm"),
    ("mlp.gate_proj", "mlp.up_proj"),
    *("mlp.down_proj", "post_attention_layernorm"),
)
# What follows has the tensor names of Llama, and the heads of transformers' generic classes; their
# classifier of sequences has no bias.
_LLAMA = Family(
    model_type="",
    class_prefix="",
    prefix="model.",
    modules={"embeddings.word": "embed_tokens", "final_norm": "norm"},
    layer="layers.{}",
    layer_modules=_LLAMA_LAYER,
    keys={
        **{name: KEYS[name] for name in (*_SIZES, "initializer_range")},
        "max_position_embeddings": Key("max_position_embeddings"),
        "num_key_value_heads": Key("num_key_value_heads", None),
        "head_size": Key("head_dim", None),
        "hidden_act": Key("hidden_act", "silu", ACTIVATIONS),
        "layer_norm_eps": Key("rms_norm_eps", 1e-6),
        "attention_dropout": Key("attention_dropout", 0.0),
        "rotary_base": Key("rope_theta", 10_000.0),
    },
    constants={**_RMS, "out_bias": False},
    must={
        "quantization_config": (None,),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        **_UNSCALED,
    },
    dropout=HIDDEN,
    heads={
        None: HeadLayout(),
        "sequence": HeadLayout({"head.out": "score"}),
        "tokens": HeadLayout({"head.out": "score"}, dropout=Key("classifier_dropout", 0.1)),
    },
)
_EUROBERT = replace(
    _LLAMA,
    model_type="eurobert",
    class_prefix="EuroBert",
    keys={
        **with_defaults(_LLAMA.keys, max_position_embeddings=8192, layer_norm_eps=1e-5),
        "pooled": Key("classifier_pooling", "late", {"late": "late", "mean": "mean", "bos": "cls"}),
    },
    aliases={"clf_pooling": "classifier_pooling"},
    constants={**_RMS, "lm_transform": False, "lm_tied": False, "lm_bias": False},
    must={**_LLAMA.must, "tie_word_embeddings": (False,)},
    written=dict.fromkeys(("attention_bias", "mlp_bias", "tie_word_embeddings"), False),
    pooler=PoolerSlot("dense", "gelu"),
    heads={
        None: HeadLayout(),
        "masked_lm": HeadLayout({"head.scores": "lm_head"}),
        **task_heads("sequence", "tokens"),
    },
)
_QWEN3 = replace(
    _LLAMA,
    model_type="qwen3",
    class_prefix="Qwen3",
    layer_modules=(*_LLAMA_LAYER, "self_attn.q_norm", "self_attn.k_norm"),
    keys=with_defaults(
        _LLAMA.keys, max_position_embeddings=32768, num_key_value_heads=32, head_size=128
    ),
    constants={**_LLAMA.constants, "qk_norm": True, "causal": True},
    must={**_LLAMA.must, "use_sliding_window": (False, None)},
    written={"attention_bias": False, "use_sliding_window": False},
)


def _gemma_flattened(raw: dict[str, Any], path: Path) -> dict[str, Any]:
    if raw.get("use_bidirectional_attention") is not True:
        raise FormatError(
            f"{path}: use_bidirectional_attention is not true; this Gemma predicts the next token. "
            "filbert reads Gemma 3 as an encoder only, such as google/embeddinggemma-300m."
        )
    if raw.get("query_pre_attn_scalar", 256) != raw.get("head_dim", 256):
        raise FormatError(
            f"{path}: query_pre_attn_scalar is {short(raw.get('query_pre_attn_scalar', 256))}; "
            f"filbert divides scores by the root of head_dim, {short(raw.get('head_dim', 256))}."
        )
    return raw


def _gemma_nested(raw: dict[str, Any]) -> dict[str, Any]:
    every, first = raw.pop("global_every"), raw.pop("global_first")
    layers = range(raw["num_hidden_layers"])
    raw["layer_types"] = [FAR if index % every == first else NEAR for index in layers]
    return {**raw, "query_pre_attn_scalar": raw["head_dim"]}


_GEMMA3 = replace(
    _LLAMA,
    model_type="gemma3_text",
    class_prefix="Gemma3Text",
    layer_modules=(
        *(*_LLAMA_LAYER[:5], "pre_feedforward_layernorm"),
        *("self_attn.q_norm", "self_attn.k_norm"),
        *("post_attention_layernorm", "post_feedforward_layernorm"),
    ),
    keys={
        **with_defaults(
            _LLAMA.keys,
            max_position_embeddings=131_072,
            num_key_value_heads=4,
            head_size=256,
            rotary_base=1_000_000.0,
        ),
        "hidden_act": Key(
            "hidden_activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh": "gelu_tanh"}
        ),
        "local_window": Key("sliding_window", 4096),
        "local_rotary_base": Key("rope_local_base_freq", 10_000.0),
        "global_every": Key("global_every"),
        "global_first": Key("global_first"),
    },
    flattened=_gemma_flattened,
    nested=_gemma_nested,
    constants={
        **_LLAMA.constants,
        "qk_norm": True,
        "norm_place": "both",
        "norm_from_one": True,
        "embedding_scaled": True,
        "pooled": "last",
    },
    must={**_LLAMA.must, "attn_logit_softcapping": (None,)},
    heads=without(_LLAMA.heads, "tokens"),
    written={"attention_bias": False, "use_bidirectional_attention": True},
)


_NEOBERT = Family(
    model_type="neobert",
    class_prefix="NeoBERT",
    prefix="model.",
    modules={"embeddings.word": "encoder", "final_norm": "layer_norm"},
    layer="transformer_encoder.{}",
    layer_modules=("qkv", "wo", "attention_norm", "ffn.w12", "ffn.w3", "ffn_norm"),
    forms={"qkv": "interleaved"},
    keys={
        **{name: KEYS[name] for name in _SIZES},
        # Two thirds, as for a gate of the same number of weights, to the next multiple of eight.
        "intermediate_size": Key(
            "intermediate_size",
            3072,
            read=lambda wide: -(-(2 * wide // 3) // 8) * 8,
            write=lambda wide: 3 * wide // 2,
        ),
        "max_position_embeddings": Key("max_length", 1024),
        "hidden_act": Key("hidden_act", "SwiGLU", {"SwiGLU": "silu"}),
        "layer_norm_eps": Key("norm_eps", 1e-6),
        "initializer_range": Key("decoder_init_range", 0.02),
    },
    constants={
        **_RMS,
        "attention_dropout": 0.0,
        "rotary_base": 10_000.0,
        "lm_transform": False,
        "lm_tied": False,
    },
    must={"rms_norm": (True,), "rope": (True,), "ngpt": (False,)},
    dropout=Key("classifier_dropout", 0.1),
    pooler=PoolerSlot("dense", "tanh", dropout_before=True),
    heads={
        None: HeadLayout(suffix=""),
        "masked_lm": HeadLayout({"head.scores": "decoder"}, suffix="LMHead"),
        "sequence": HeadLayout(OUT),
    },
)


def _gpt2_flattened(raw: dict[str, Any], path: Path) -> dict[str, Any]:
    width = raw.get("n_embd")
    if raw.get("n_inner") is None and isinstance(width, int):
        return {**raw, "n_inner": 4 * width}
    return raw


_GPT2 = Family(
    model_type="gpt2",
    class_prefix="GPT2",
    prefix="transformer.",
    modules={"embeddings.word": "wte", "embeddings.position": "wpe", "final_norm": "ln_f"},
    layer="h.{}",
    layer_modules=("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2"),
    forms=dict.fromkeys(("qkv", "attention_out", "up", "down"), "transposed"),
    keys={
        **sizes("n_embd", "n_layer", "n_head", "n_inner"),
        "vocab_size": Key("vocab_size", 50257),
        "max_position_embeddings": Key("n_positions", 1024),
        "hidden_act": Key("activation_function", "gelu_new", ACTIVATIONS),
        "layer_norm_eps": Key("layer_norm_epsilon", 1e-5),
        "hidden_dropout": Key("resid_pdrop", 0.1, repeated="embd_pdrop"),
        "attention_dropout": Key("attn_pdrop", 0.1),
        "initializer_range": Key("initializer_range", 0.02),
    },
    flattened=_gpt2_flattened,
    constants=dict(
        type_vocab_size=0, norm_place="before", embedding_norm=False, causal=True, out_bias=False
    ),
    must={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False, None),
    },
    heads={
        None: HeadLayout(dropout=HIDDEN),
        "sequence": HeadLayout({"head.out": "score"}, dropout=Key("classifier_dropout", 0.0)),
        "tokens": HeadLayout(OUT, dropout=Key("classifier_dropout", 0.1)),
    },
)


# Families whose scores depend on the distance of two tokens. Sources: transformers 5, and for jina
# the authors' code.


# RoBERTa's heads, without keys for their dropout.
_MPNET = replace(
    _ROBERTA,
    model_type="mpnet",
    class_prefix="MPNet",
    prefix="mpnet.",
    modules={**TABLES, "distances.table": "encoder.relative_attention_bias"},
    layer_modules=(
        tuple(f"attention.attn.{part}" for part in "qkv"),
        *("attention.attn.o", "attention.LayerNorm", *LAYER[3:]),
    ),
    keys=without(KEYS, "type_vocab_size"),
    # transformers counts from row 2, whatever `pad_token_id` is.
    constants=dict(
        type_vocab_size=0, position_kind="buckets", absolute_positions=True, position_offset=2
    ),
    # transformers computes 32 buckets, whatever this key is.
    must={**MUST, "relative_attention_num_buckets": (32,)},
    written={"relative_attention_num_buckets": 32},
    dropout=HIDDEN,
    pooler=PoolerSlot("mpnet.pooler.dense", "tanh"),
)


# What the releases of versions 2 and 3 have in common; other values compute something else.
_DEBERTA_VALUES: Allowed = {
    "relative_attention": (True,),
    "share_att_key": (True,),
    "norm_rel_ebd": ("layer_norm",),
    "position_biased_input": (False,),
    "pos_att_type": ("p2c|c2p", "c2p|p2c", ["p2c", "c2p"], ["c2p", "p2c"]),
    "conv_kernel_size": (0, None),
}


def _deberta_flattened(raw: dict[str, Any], path: Path) -> dict[str, Any]:
    for key, allowed in _DEBERTA_VALUES.items():
        if raw.get(key) not in allowed:
            raise FormatError(
                f"{path}: {key} is {short(raw.get(key))}; filbert reads DeBERTa with "
                f"{short(allowed[0])} there, such as microsoft/deberta-v3-base."
            )
    longest, farthest = raw.get("max_position_embeddings", 512), raw.get("max_relative_positions")
    limited = isinstance(farthest, int) and farthest > 0
    return {**raw, "max_relative_positions": farthest if limited else longest}


_DEBERTA_V2 = Family(
    model_type="deberta-v2",
    class_prefix="DebertaV2",
    prefix="deberta.",
    modules={
        **TABLES,
        "distances.table": "encoder.rel_embeddings",
        "distances.norm": "encoder.LayerNorm",
    },
    layer_modules=(
        tuple(f"attention.self.{part}_proj" for part in ("query", "key", "value")),
        *LAYER[1:],
    ),
    # The head of releases of version 3, which computes the same.
    renamed=(
        (r"^lm_predictions\.lm_head\.(dense|LayerNorm)\.", r"cls.predictions.transform.\1."),
        (r"^lm_predictions\.lm_head\.", "cls.predictions."),
    ),
    keys={
        **with_defaults(KEYS, type_vocab_size=0, layer_norm_eps=1e-7),
        "distance_buckets": Key("position_buckets"),
        "max_distance": Key("max_relative_positions"),
    },
    flattened=_deberta_flattened,
    constants={"position_kind": "disentangled"},
    must={**MUST, "embedding_size": (None,)},
    written={key: value[0] for key, value in _DEBERTA_VALUES.items()},
    dropout=HIDDEN,
    pooler=PoolerSlot("pooler.dense", "gelu"),
    heads={
        None: HeadLayout(),
        "masked_lm": BERT_LM,
        **task_heads(
            *("sequence", "choices"),
            dropout=Key("cls_dropout", None),
            must={"pooler_hidden_act": ("gelu",), "pooler_dropout": (0, 0.0)},
        ),
        **task_heads("tokens", "spans"),
    },
)

# T5's encoder; a decoder in the file is left out.
_T5_ATTENTION, _T5_FORWARD = "0.SelfAttention", "1.DenseReluDense"
_T5_WORDS = "transformer.encoder.embed_tokens"
_T5 = Family(
    model_type="t5",
    class_prefix="T5",
    prefix="transformer.",
    modules={
        "embeddings.word": "shared",
        "distances.table": f"encoder.block.0.layer.{_T5_ATTENTION}.relative_attention_bias",
        "final_norm": "encoder.final_layer_norm",
    },
    layer="encoder.block.{}.layer",
    layer_modules=(
        tuple(f"{_T5_ATTENTION}.{part}" for part in "qkv"),
        *(f"{_T5_ATTENTION}.o", "0.layer_norm"),
        *(f"{_T5_FORWARD}.wi", f"{_T5_FORWARD}.wo", "1.layer_norm"),
    ),
    keys={
        **sizes("d_model", "num_layers", "num_heads", "d_ff"),
        "head_size": Key("d_kv", 64),
        "max_position_embeddings": Key("n_positions", 512),
        "distance_buckets": Key("relative_attention_num_buckets", 32),
        "max_distance": Key("relative_attention_max_distance", 128),
        "hidden_act": Key("feed_forward_proj", "relu", {"relu": "relu"}),
        "layer_norm_eps": Key("layer_norm_epsilon", 1e-6),
        "hidden_dropout": Key("dropout_rate", 0.1),
        "attention_dropout": Key("dropout_rate", 0.1),
    },
    constants={
        **_RMS,
        "gated": False,
        "position_kind": "buckets",
        "attention_scale": 1.0,
        "pooled": "mean",
    },
    must={"quantization_config": (None,), "is_decoder": (False, None)},
    dropout=HIDDEN,
    heads={
        None: HeadLayout(suffix="EncoderModel", decoder=_T5_WORDS),
        "tokens": HeadLayout(OUT, decoder=_T5_WORDS, dropout=Key("classifier_dropout", 0.0)),
    },
)
# Version 1.1, whose gated layers have two modules for the first product. They have always had the
# other form of GELU.
_T5_GATED = replace(
    _T5,
    model_type="t5_gated",
    layer_modules=(
        *_T5.layer_modules[:3],
        (f"{_T5_FORWARD}.wi_0", f"{_T5_FORWARD}.wi_1"),
        *_T5.layer_modules[4:],
    ),
    keys={
        **_T5.keys,
        "hidden_act": Key("feed_forward_proj", "gated-gelu", {"gated-gelu": "gelu_tanh"}),
    },
    constants={**_T5.constants, "gated": True},
    written={"model_type": "t5"},
)
_MT5 = replace(_T5_GATED, model_type="mt5", class_prefix="MT5", written={})

# XLNet as it is fine-tuned: with one stream, without memory.
_XLNET = Family(
    model_type="xlnet",
    class_prefix="XLNet",
    prefix="transformer.",
    modules={"embeddings.word": "word_embedding"},
    layer="layer.{}",
    layer_modules=("", "", "rel_attn.layer_norm", "ff.layer_1", "ff.layer_2", "ff.layer_norm"),
    whole_names={
        "encoder.embeddings.unseen": ("transformer.mask_emb",),
        "qkv.weight": tuple(f"rel_attn.{part}" for part in "qkv"),
        "attention_out.weight": ("rel_attn.o",),
        "relative.content_bias": ("rel_attn.r_w_bias",),
        "relative.position_bias": ("rel_attn.r_r_bias",),
        "relative.type_bias": ("rel_attn.r_s_bias",),
        "relative.type_vectors": ("rel_attn.seg_embed",),
        "relative.project.weight": ("rel_attn.r",),
    },
    forms={
        **dict.fromkeys(("qkv", "relative.project"), "outputs_by_head"),
        "attention_out": "inputs_by_head",
    },
    renamed=((r"^mask_emb$", "transformer.mask_emb"),),
    keys={
        **sizes("d_model", "n_layer", "n_head", "d_inner"),
        "vocab_size": Key("vocab_size", 32000),
        "head_size": Key("d_head", None),
        "hidden_act": Key("ff_activation", "gelu", ACTIVATIONS),
        "layer_norm_eps": Key("layer_norm_eps", 1e-12),
        "hidden_dropout": Key("dropout", 0.1),
        "attention_dropout": Key("dropout", 0.1),
        "initializer_range": Key("initializer_range", 0.02),
    },
    # Types of the two texts and of CLS. Any length would do; it was trained on 512 tokens.
    constants=dict(
        type_vocab_size=3,
        position_kind="sinusoid",
        embedding_norm=False,
        attention_bias=False,
        pooled="last",
    ),
    must={"attn_type": ("bi",), "bi_data": (False,), "clamp_len": (-1, 0)},
    dropout=HIDDEN,
    pooler=PoolerSlot("sequence_summary.summary", "tanh"),
    heads={
        None: HeadLayout(),
        "sequence": summary({"head.out": "logits_proj"}, "last", "tanh"),
        "choices": summary({"head.out": "logits_proj"}, "last", "tanh"),
        "tokens": HeadLayout(OUT),
        "spans": HeadLayout(SPANS, suffix="ForQuestionAnsweringSimple"),
    },
)

# jina-embeddings-v2: BERT's heads over gated layers with ALiBi. Other tools run its authors' code,
# which the folder names in `auto_map`.
_JINA_CODE = "jinaai/jina-bert-implementation--"
_JINA_V2 = replace(
    _BERT,
    model_type="jina_bert",
    class_prefix="JinaBert",
    layer_modules=(*LAYER[:3], "mlp.gated_layers", "mlp.wo", "mlp.layernorm"),
    keys={
        **with_defaults(KEYS, max_position_embeddings=8192),
        "hidden_act": Key("feed_forward_type", "original", {"geglu": "gelu", "reglu": "relu"}),
    },
    constants=dict(position_kind="alibi", gated=True, up_bias=False),
    must={**MUST, "position_embedding_type": ("alibi",), "hidden_act": ("gelu",)},
    written={
        "model_type": "bert",
        "position_embedding_type": "alibi",
        "hidden_act": "gelu",
        "auto_map": {
            "AutoConfig": f"{_JINA_CODE}configuration_bert.JinaBertConfig",
            "AutoModel": f"{_JINA_CODE}modeling_bert.JinaBertModel",
            "AutoModelForMaskedLM": f"{_JINA_CODE}modeling_bert.JinaBertForMaskedLM",
        },
    },
    heads={
        None: HeadLayout(),
        **{kind: _BERT.heads[kind] for kind in ("sequence", "tokens", "spans", "choices")},
        "masked_lm": replace(BERT_LM, activation="gelu"),
    },
)

# A StaticEmbedding model (or model2vec): texts are means of word vectors. A text without tokens is
# read as one more row, of zeros, which files do not have.
_STATIC = Family(
    model_type=STATIC,
    class_prefix="Static",
    prefix="",
    modules={"embeddings.word": "embedding"},
    layer="layers.{}",
    renamed=(("^embeddings$", "embedding.weight"),),
    keys={
        "vocab_size": Key("vocab_size"),
        "hidden_size": Key("hidden_size"),
        "num_hidden_layers": Key("num_hidden_layers", 0),
    },
    constants=dict(
        **dict(num_attention_heads=1, intermediate_size=1, type_vocab_size=0),
        **dict(hidden_act="gelu", hidden_dropout=0.0),
        # No text is cut.
        **dict(position_kind="alibi", max_position_embeddings=2**20, embedding_norm=False),
    ),
    heads={None: HeadLayout(suffix="Embedding")},
)


_ROWS = (
    _BERT, _ROBERTA, _XLM_ROBERTA, _CAMEMBERT, _DISTILBERT, _ALBERT, _ELECTRA, _MODERNBERT,
    _NOMIC_BERT, _GTE, _NEW, _JINA_V3, _NEOBERT, _EUROBERT, _QWEN3, _GEMMA3, _GPT2, _MPNET,
    _DEBERTA_V2, _T5, _T5_GATED, _MT5, _XLNET, _JINA_V2, _STATIC,
)  # fmt: skip
FAMILIES: dict[str, Family] = {family.model_type: family for family in _ROWS}


# Models that are not read: the reason, and the nearest that are.
_SPARSE = ("whose attention is sparse", "modernbert, for texts of 8,192 tokens")
_DECODER = ("which predicts the next token", "qwen3 and gpt2, which are causal too")
_PAIR = ("which has a decoder", "encoders of the same purpose")
_BOTTLENECK = ("whose layers are of another kind", "distilbert and electra, which are as small")
UNREAD: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("longformer", "big_bird", "nystromformer", "led"), _SPARSE),
    **dict.fromkeys(("llama", "mistral", "qwen2", "gemma", "gemma2", "gpt_neox"), _DECODER),
    "modernbert-decoder": _DECODER,
    **dict.fromkeys(("bart", "mbart", "pegasus", "marian"), _PAIR),
    **dict.fromkeys(("mobilebert", "squeezebert", "convbert", "funnel"), _BOTTLENECK),
    **dict.fromkeys(("vit", "clip", "siglip", "dinov2"), ("which reads images", "")),
    **dict.fromkeys(("whisper", "wav2vec2", "hubert"), ("which reads sound", "")),
    "deberta": ("which projects positions by itself", "deberta-v2, also of version 3"),
    "gemma3": ("which reads images too", "gemma3_text"),
    "ernie": ("which has a table of task types", "bert"),
}
# What is special about a value in config.json that no encoder here can express.
WHY_ONLY = {
    "num_experts": "Mixtures of experts (nomic-embed-text-v2-moe) are not read; "
    "nomic-embed-text-v1.5 is.",
}
