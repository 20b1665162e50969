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
_POOLED = {"cls": "cls", "mean": "mean"}

# Kinds of heads that read a pooled vector. The others can do without a pooler.
POOLED_KINDS = ("pair", "pretraining", "sequence", "choices")


class Key(NamedTuple):
    """The key of config.json that holds one setting of EncoderConfig.

    Attributes:
        name: The key.
        default: Its value if config.json does not have it; REQUIRED for no default. Numbers are
            whole ones unless the default is a float.
        values: Names of values, theirs to ours, for a setting that is no number. Of several names
            for one value, the first is written.
        repeated: A further key that holds the value again.
    """

    name: str
    default: Any = REQUIRED
    values: Mapping[str, str] | None = None
    repeated: str | None = None


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


@dataclass(frozen=True)
class HeadLayout:
    """One of Hugging Face's classes: which tensors its head has and which config keys it reads.

    Attributes:
        suffix: the class name without the family, "ForMaskedLM".
        modules: our module ("head.out") to theirs ("classifier").
        pooler: the pooler that goes with this head, None for none.
        decoder: their module that repeats the word table, and the bias of the scores.
        dropout: Of the setting `head_dropout`, whose value of None means the hidden dropout.
        activation: the only `hidden_act` with which this head is what transformers runs, None for
            any.
        must: config keys and the values this head can express; an absent key is fine.
    """

    suffix: str
    modules: dict[str, str] = field(default_factory=dict)
    _: KW_ONLY
    pooler: PoolerSlot | None = None
    decoder: str | None = None
    dropout: Key = Key("classifier_dropout", None)
    activation: str | None = None
    must: dict[str, tuple[Any, ...]] = field(default_factory=dict)


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
        written: further keys for config.json.
        must: config keys and the values that the encoder can express; an absent key is fine.
        offset_by_pad: positions start at `pad_token_id` + 1.
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
    heads: dict[str | None, HeadLayout]
    written: dict[str, Any] = field(default_factory=dict)
    must: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    offset_by_pad: bool = False
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
            assert head.pooler is not None
            return (f"{head.pooler.name}.{leaf}",)
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

    def required_pooler(self, kind: str | None) -> PoolerSlot | None:
        """Return the pooler without which a kind of head cannot run; None for none."""
        return self.heads[kind].pooler if kind in POOLED_KINDS else None

    def says_causal(self, kind: str | None, *, has_pooler: bool) -> bool:
        """Return whether CAUSAL_KEY describes a causal model: nothing reads the first token."""
        return self.has_causal_key and not has_pooler and self.required_pooler(kind) is None

    def class_name(self, kind: str | None) -> str:
        """Return Hugging Face's class for a kind of head, as in `architectures`."""
        return self.class_prefix + self.heads[kind].suffix


# Entries that several families share with BERT.


_SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
)  # fmt: skip
KEYS = {
    **{name: Key(name) for name in _SIZES},
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


MUST: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "quantization_config": (None,),
}
_NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
# Of the families whose encoders become causal by CAUSAL_KEY.
CAUSAL_MUST: dict[str, tuple[Any, ...]] = {**MUST, CAUSAL_KEY: (False, True, None)}
_LAST_DROPOUT = Key("summary_last_dropout", 0.1)
_SUMMARY: dict[str, tuple[Any, ...]] = {"summary_use_proj": (True,)}
OUT = {"head.out": "classifier"}
SPANS = {"head.out": "qa_outputs"}


def masked_lm(scores: str, transform: str, norm: str, **rest: Any) -> HeadLayout:
    """Return the class of a masked-LM head, with further fields of its HeadLayout.

    The names are those of the scores' bias, and of the dense layer and the norm before the scores.
    """
    modules = {"head": scores, "head.transform": transform, "head.norm": norm}
    return HeadLayout("ForMaskedLM", modules, **rest)


def pretraining(words: HeadLayout, pair: str) -> HeadLayout:
    """Return the class of a masked-LM head together with a module `pair` for pairs of texts."""
    modules = {
        ours.replace("head", "head.masked_lm"): theirs for ours, theirs in words.modules.items()
    }
    return replace(words, suffix="ForPreTraining", modules={**modules, "head.pair.out": pair})


def task_heads(
    *kinds: str, pooler: PoolerSlot | None = None, classifier: str | None = None, **common: Any
) -> dict[str | None, HeadLayout]:
    """Return the classes for some kinds of tasks, by default all, with `common` fields.

    Sequences and multiple choice read the pooler. With `classifier`, an activation, sequences have
    a dense layer of their own instead.
    """
    sequence = HeadLayout("ForSequenceClassification", OUT, pooler=pooler, **common)
    if classifier is not None:
        first_token = PoolerSlot("classifier.dense", classifier, dropout_before=True)
        out = {"head.out": "classifier.out_proj"}
        sequence = replace(sequence, modules=out, pooler=first_token)
    heads = {
        "sequence": sequence,
        "choices": HeadLayout("ForMultipleChoice", OUT, pooler=pooler, **common),
        "tokens": HeadLayout("ForTokenClassification", OUT, **common),
        "spans": HeadLayout("ForQuestionAnswering", SPANS, **common),
    }
    return {kind: heads[kind] for kind in kinds or heads}


# ModernBERT.

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
    # Ours has one activation for layers and heads.
    common: dict[str, Any] = {
        "dropout": Key("classifier_dropout", 0.0),
        "activation": "gelu",
        "must": {"classifier_activation": ("gelu",)},
    }
    return Family(
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
            "pooled": Key("classifier_pooling", "cls", _POOLED),
        },
        constants=dict(
            type_vocab_size=0, gated=True, norm_place="before", biases=False, head_transform=True
        ),
        must={
            # Many releases have this key, which transformers does not read.
            **without(MUST, "position_embedding_type"),
            **{key: (value,) for key, value in _MODERNBERT_FLAGS.items()},
            **dict.fromkeys(("causal_mask", "is_causal"), (False,)),
            "rope_scaling": (None,),
        },
        written=_MODERNBERT_FLAGS,
        heads={
            None: HeadLayout("Model", dropout=common["dropout"]),
            "masked_lm": masked_lm(
                "decoder", "head.dense", "head.norm", decoder="decoder", **common
            ),
            **{
                kind: replace(layout, modules={**transform, **OUT})
                for kind, layout in task_heads(**common).items()
            },
        },
    )


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


# The families.


def _bert() -> Family:
    pooler = PoolerSlot("bert.pooler.dense", "tanh")
    lm, pair = "cls.predictions", "cls.seq_relationship"
    transform = (f"{lm}.transform.dense", f"{lm}.transform.LayerNorm")
    words = masked_lm(lm, *transform, pooler=pooler, decoder=f"{lm}.decoder")
    return Family(
        model_type="bert",
        class_prefix="Bert",
        prefix="bert.",
        modules=TABLES,
        keys=KEYS,
        must=CAUSAL_MUST,
        heads={
            None: HeadLayout("Model", pooler=pooler),
            "masked_lm": words,
            "pretraining": pretraining(words, pair),
            "pair": HeadLayout("ForNextSentencePrediction", {"head.out": pair}, pooler=pooler),
            **task_heads(pooler=pooler),
        },
    )


def _roberta(model_type: str, class_prefix: str, root: str = "roberta") -> Family:
    pooler = PoolerSlot(f"{root}.pooler.dense", "tanh")
    tasks = task_heads(pooler=pooler, classifier="tanh")
    return Family(
        model_type=model_type,
        class_prefix=class_prefix,
        prefix=f"{root}.",
        modules=TABLES,
        keys=KEYS,
        must=CAUSAL_MUST,
        offset_by_pad=True,
        heads={
            None: HeadLayout("Model", pooler=pooler),
            "masked_lm": masked_lm(
                *("lm_head", "lm_head.dense", "lm_head.layer_norm"),
                pooler=pooler,
                decoder="lm_head.decoder",
                # transformers' RobertaLMHead is always erf-gelu, whatever hidden_act is.
                activation="gelu",
            ),
            **tasks,
            "choices": replace(tasks["choices"], dropout=HIDDEN),
        },
    )


def _distilbert() -> Family:
    pooler = PoolerSlot("pre_classifier", "relu")
    dropout = Key("seq_classif_dropout", 0.2)
    tasks = task_heads(pooler=pooler, dropout=dropout)
    return Family(
        model_type="distilbert",
        class_prefix="DistilBert",
        prefix="distilbert.",
        modules=TABLES,
        layer="transformer.layer.{}",
        layer_modules=(
            ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            "attention.out_lin",
            "sa_layer_norm",
            "ffn.lin1",
            "ffn.lin2",
            "output_layer_norm",
        ),
        keys={
            **without(KEYS, "type_vocab_size", "layer_norm_eps"),
            "hidden_size": Key("dim"),
            "num_hidden_layers": Key("n_layers"),
            "num_attention_heads": Key("n_heads"),
            "intermediate_size": Key("hidden_dim"),
            "hidden_act": Key("activation", "gelu", ACTIVATIONS),
            "hidden_dropout": Key("dropout", 0.1),
            "attention_dropout": Key("attention_dropout", 0.1),
        },
        constants={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
        must=MUST,
        written={"sinusoidal_pos_embds": False},
        heads={
            None: HeadLayout("Model", dropout=dropout),
            "masked_lm": masked_lm(
                *("vocab_projector", "vocab_transform", "vocab_layer_norm"),
                decoder="vocab_projector",
                dropout=dropout,
            ),
            **tasks,
            "tokens": replace(tasks["tokens"], dropout=HIDDEN),
        },
    )


def _albert() -> Family:
    pooler = PoolerSlot("albert.pooler", "tanh")
    dropout = Key("classifier_dropout_prob", 0.1)
    words = masked_lm(
        *("predictions", "predictions.dense", "predictions.LayerNorm"),
        pooler=pooler,
        decoder="predictions.decoder",
        dropout=dropout,
    )
    return Family(
        model_type="albert",
        class_prefix="Albert",
        prefix="albert.",
        modules={**TABLES, "embeddings.project": "encoder.embedding_hidden_mapping_in"},
        layer="encoder.albert_layer_groups.{}.albert_layers.0",
        layer_modules=(
            ("attention.query", "attention.key", "attention.value"),
            "attention.dense",
            "attention.LayerNorm",
            "ffn",
            "ffn_output",
            "full_layer_layer_norm",
        ),
        keys={
            **with_defaults(KEYS, hidden_act="gelu_new", **_NO_DROPOUT),
            "embedding_size": Key("embedding_size"),
            "num_hidden_groups": Key("num_hidden_groups", 1),
        },
        must={**MUST, "inner_group_num": (1,)},
        always_projects=True,
        written={"inner_group_num": 1},
        heads={
            None: HeadLayout("Model", pooler=pooler, dropout=dropout),
            "masked_lm": words,
            "pretraining": pretraining(words, "sop_classifier.classifier"),
            **task_heads(pooler=pooler, dropout=dropout),
        },
    )


def _electra() -> Family:
    pooler = PoolerSlot("sequence_summary.summary", "gelu")
    tasks = task_heads(pooler=pooler, classifier="gelu")
    lm, detection = "generator_predictions", "discriminator_predictions"
    discriminator = {
        "head.dense": f"{detection}.dense",
        "head.out": f"{detection}.dense_prediction",
    }
    return Family(
        model_type="electra",
        class_prefix="Electra",
        prefix="electra.",
        modules={**TABLES, "embeddings.project": "embeddings_project"},
        keys={**KEYS, "embedding_size": Key("embedding_size", 128)},
        must=CAUSAL_MUST,
        heads={
            None: HeadLayout("Model"),
            "masked_lm": masked_lm(
                *("generator_lm_head", f"{lm}.dense", f"{lm}.LayerNorm"),
                decoder="generator_lm_head",
                # transformers' ElectraGeneratorPredictions is always erf-gelu too.
                activation="gelu",
            ),
            "discriminator": HeadLayout("ForPreTraining", discriminator),
            **tasks,
            "choices": replace(
                tasks["choices"],
                dropout=_LAST_DROPOUT,
                must={**_SUMMARY, "summary_type": ("first",), "summary_activation": ("gelu",)},
            ),
        },
    )


# Rotary families with LayerNorm after each sum. Sources: their authors' modelling code, and
# transformers 5, which reads and writes the same tensor names.


_ROTARY_KEYS = {**KEYS, "rotary_base": Key("rope_theta")}
_ROTARY_MUST = {**MUST, "position_embedding_type": ("rope", "rotary", "absolute", None)}
_UNSCALED: dict[str, tuple[Any, ...]] = {"rope_scaling": (None,)}

_NOMIC_KEYS = {
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
}
# Of the authors' configuration. The number of experts is above zero in the second version only.
_NOMIC_MUST: dict[str, tuple[Any, ...]] = {
    "num_experts": (0, None),
    "rotary_scaling_factor": (None,),
    "rotary_emb_fraction": (1.0,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (None,),
    **dict.fromkeys(("prenorm", "use_rms_norm", "causal", "parallel_block"), (False,)),
    **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), (False,)),
}


def _nomic_bert() -> Family:
    pooler, up = PoolerSlot("nomic_bert.pooler.dense", "tanh"), ("mlp.fc12", "mlp.fc11")
    lm = "cls.predictions"
    transform = (f"{lm}.transform.dense", f"{lm}.transform.layer_norm")
    return Family(
        model_type="nomic_bert",
        class_prefix="NomicBert",
        prefix="nomic_bert.",
        modules={**TABLES, "embeddings.norm": "emb_ln"},
        layer="encoder.layers.{}",
        layer_modules=("attn.Wqkv", "attn.out_proj", "norm1", up, "mlp.fc2", "norm2"),
        renamed=((r"^bert\.", "nomic_bert."),),
        zeros=(f"{lm}.bias", f"{lm}.transform.dense.bias"),
        keys={
            **with_defaults(
                _ROTARY_KEYS, rotary_base=1000.0, max_position_embeddings=2048, **_NO_DROPOUT
            ),
            "hidden_act": Key("hidden_act", "silu", {"silu": "silu", "swiglu": "silu"}),
        },
        aliases=_NOMIC_KEYS,
        constants=dict(gated=True, attention_bias=False, mlp_bias=False, up_bias=False),
        must={**_ROTARY_MUST, **_UNSCALED, **_NOMIC_MUST},
        heads={
            None: HeadLayout("Model"),
            "masked_lm": masked_lm(lm, *transform, decoder=f"{lm}.decoder"),
            **task_heads("sequence", "tokens", pooler=pooler),
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


def _gte(model_type: str, class_prefix: str, theta: float) -> Family:
    """Return the table of GTE, under transformers' name or under that of its authors ("new").

    Only the authors' code scales rotary positions.
    """
    prefix, scales = f"{model_type}.", model_type == "new"
    keys = with_defaults(
        _ROTARY_KEYS,
        rotary_base=theta,
        max_position_embeddings=8192,
        type_vocab_size=1,
        attention_dropout=0.0,
    )
    pooler = PoolerSlot(f"{prefix}pooler.dense", "tanh")
    return Family(
        model_type=model_type,
        class_prefix=class_prefix,
        prefix=prefix,
        modules=TABLES,
        layer_modules=(
            "attention.qkv_proj",
            "attention.o_proj",
            "attn_ln",
            "mlp.up_gate_proj",
            "mlp.down_proj",
            "mlp_ln",
        ),
        forms={"up": "halves"},
        renamed=((r"^new\.", prefix), (r"^(lm_head)\.layer_norm\.", r"\1.norm.")),
        keys={**keys, **({"rotary_scaling": Key("rope_factor", 1.0)} if scales else {})},
        flattened=_new_flattened if scales else None,
        nested=_new_nested if scales else None,
        constants=dict(gated=True, up_bias=False),
        must={
            **_ROTARY_MUST,
            **({} if scales else _UNSCALED),
            "layer_norm_type": ("layer_norm",),
            "pack_qkv": (True,),
            "logn_attention_scale": (False,),
        },
        heads={
            None: HeadLayout("Model"),
            "masked_lm": masked_lm(
                *("lm_head.decoder", "lm_head.dense", "lm_head.norm"),
                decoder="lm_head.decoder",
                activation="gelu",
            ),
            **task_heads("sequence", "tokens", pooler=pooler),
        },
    )


def _jina_v3() -> Family:
    """Return the table of jina-embeddings-v3: RoBERTa's heads over rotary layers.

    Its task adapters are left out: without a task, its authors' code uses the base weights too.
    """
    roberta = _roberta("xlm-roberta", "XLMRoberta")
    return replace(
        roberta,
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
        offset_by_pad=False,
        heads=without(roberta.heads, "choices"),
    )


# Families with RMSNorm before each sublayer. Sources: as above, and for NeoBERT its authors' code.

_LLAMA_LAYER = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.o_proj",
    "input_layernorm",
    ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down_proj",
    "post_attention_layernorm",
)
_LLAMA_KEYS = {
    **{name: KEYS[name] for name in (*_SIZES, "initializer_range")},
    "max_position_embeddings": Key("max_position_embeddings"),
    "num_key_value_heads": Key("num_key_value_heads", None),
    "head_size": Key("head_dim", None),
    "hidden_act": Key("hidden_act", "silu", ACTIVATIONS),
    "layer_norm_eps": Key("rms_norm_eps", 1e-6),
    "attention_dropout": Key("attention_dropout", 0.0),
    "rotary_base": Key("rope_theta", 10_000.0),
}
_RMS: dict[str, Any] = dict(
    type_vocab_size=0,
    gated=True,
    biases=False,
    rms_norm=True,
    norm_place="before",
    embedding_norm=False,
    hidden_dropout=0.0,
)
# Heads of transformers' generic classes; the classifier of sequences has no bias.
_SCORE = {"head.out": "score"}
_SCORE_HEADS: dict[str | None, HeadLayout] = {
    None: HeadLayout("Model", dropout=HIDDEN),
    "sequence": HeadLayout("ForSequenceClassification", _SCORE, dropout=HIDDEN),
    "tokens": HeadLayout("ForTokenClassification", _SCORE, dropout=Key("classifier_dropout", 0.1)),
}
_SCORED = {**_RMS, "out_bias": False}


def _llama(model_type: str, class_prefix: str, **rest: Any) -> Family:
    """Return a table with the tensor names of Llama."""
    table: dict[str, Any] = {
        "prefix": "model.",
        "modules": {"embeddings.word": "embed_tokens", "final_norm": "norm"},
        "layer": "layers.{}",
        "layer_modules": _LLAMA_LAYER,
        "heads": _SCORE_HEADS,
    }
    must: dict[str, tuple[Any, ...]] = {
        "quantization_config": (None,),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        **_UNSCALED,
        **rest.pop("must", {}),
    }
    return Family(model_type=model_type, class_prefix=class_prefix, must=must, **{**table, **rest})


def _eurobert() -> Family:
    pooler = PoolerSlot("dense", "gelu")
    return _llama(
        "eurobert",
        "EuroBert",
        keys={
            **with_defaults(_LLAMA_KEYS, max_position_embeddings=8192, layer_norm_eps=1e-5),
            "pooled": Key(
                "classifier_pooling", "late", {"late": "late", "mean": "mean", "bos": "cls"}
            ),
        },
        aliases={"clf_pooling": "classifier_pooling"},
        constants={**_RMS, "lm_transform": False, "lm_tied": False, "lm_bias": False},
        must={"tie_word_embeddings": (False,)},
        written=dict.fromkeys(("attention_bias", "mlp_bias", "tie_word_embeddings"), False),
        heads={
            None: HeadLayout("Model", dropout=HIDDEN),
            "masked_lm": HeadLayout("ForMaskedLM", {"head.scores": "lm_head"}, dropout=HIDDEN),
            **task_heads("sequence", "tokens", pooler=pooler, dropout=HIDDEN),
        },
    )


def _qwen3() -> Family:
    return _llama(
        "qwen3",
        "Qwen3",
        layer_modules=(*_LLAMA_LAYER, "self_attn.q_norm", "self_attn.k_norm"),
        keys=with_defaults(
            _LLAMA_KEYS, max_position_embeddings=32768, num_key_value_heads=32, head_size=128
        ),
        constants={**_SCORED, "qk_norm": True, "causal": True},
        must={"use_sliding_window": (False, None)},
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


def _gemma3() -> Family:
    return _llama(
        "gemma3_text",
        "Gemma3Text",
        layer_modules=(
            *_LLAMA_LAYER[:5],
            "pre_feedforward_layernorm",
            *("self_attn.q_norm", "self_attn.k_norm"),
            *("post_attention_layernorm", "post_feedforward_layernorm"),
        ),
        keys={
            **with_defaults(
                _LLAMA_KEYS,
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
            **_SCORED,
            "qk_norm": True,
            "norm_place": "both",
            "norm_from_one": True,
            "embedding_scaled": True,
            "pooled": "last",
        },
        must={"attn_logit_softcapping": (None,)},
        heads=without(_SCORE_HEADS, "tokens"),
        written={"attention_bias": False, "use_bidirectional_attention": True},
    )


def _neobert_flattened(raw: dict[str, Any], path: Path) -> dict[str, Any]:
    wide = raw.get("intermediate_size", 3072)
    # Two thirds, as for a gate of the same number of weights, to the next multiple of eight.
    wide = -(-(2 * wide // 3) // 8) * 8 if isinstance(wide, int) else wide
    return {**raw, "intermediate_size": wide}


def _neobert_nested(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "intermediate_size": 3 * raw["intermediate_size"] // 2}


def _neobert() -> Family:
    first_token = PoolerSlot("dense", "tanh", dropout_before=True)
    dropout = Key("classifier_dropout", 0.1)
    left_out = ("num_key_value_heads", "head_size", "attention_dropout", "rotary_base")
    return Family(
        model_type="neobert",
        class_prefix="NeoBERT",
        prefix="model.",
        modules={"embeddings.word": "encoder", "final_norm": "layer_norm"},
        layer="transformer_encoder.{}",
        layer_modules=("qkv", "wo", "attention_norm", "ffn.w12", "ffn.w3", "ffn_norm"),
        forms={"qkv": "interleaved"},
        keys={
            **without(_LLAMA_KEYS, *left_out),
            "max_position_embeddings": Key("max_length", 1024),
            "hidden_act": Key("hidden_act", "SwiGLU", {"SwiGLU": "silu"}),
            "layer_norm_eps": Key("norm_eps", 1e-6),
            "initializer_range": Key("decoder_init_range", 0.02),
        },
        flattened=_neobert_flattened,
        nested=_neobert_nested,
        constants={
            **_RMS,
            "attention_dropout": 0.0,
            "rotary_base": 10_000.0,
            "lm_transform": False,
            "lm_tied": False,
        },
        must={"rms_norm": (True,), "rope": (True,), "ngpt": (False,)},
        heads={
            None: HeadLayout("", dropout=dropout),
            "masked_lm": HeadLayout("LMHead", {"head.scores": "decoder"}, dropout=dropout),
            "sequence": HeadLayout(
                "ForSequenceClassification", OUT, pooler=first_token, dropout=dropout
            ),
        },
    )


def _gpt2_flattened(raw: dict[str, Any], path: Path) -> dict[str, Any]:
    width = raw.get("n_embd")
    if raw.get("n_inner") is None and isinstance(width, int):
        return {**raw, "n_inner": 4 * width}
    return raw


def _gpt2() -> Family:
    heads = dict(_SCORE_HEADS)
    heads["tokens"] = replace(heads["tokens"], modules=OUT)
    heads["sequence"] = replace(heads["sequence"], dropout=Key("classifier_dropout", 0.0))
    return Family(
        model_type="gpt2",
        class_prefix="GPT2",
        prefix="transformer.",
        modules={"embeddings.word": "wte", "embeddings.position": "wpe", "final_norm": "ln_f"},
        layer="h.{}",
        layer_modules=("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2"),
        forms=dict.fromkeys(("qkv", "attention_out", "up", "down"), "transposed"),
        keys={
            "vocab_size": Key("vocab_size", 50257),
            "hidden_size": Key("n_embd"),
            "num_hidden_layers": Key("n_layer"),
            "num_attention_heads": Key("n_head"),
            "intermediate_size": Key("n_inner"),
            "max_position_embeddings": Key("n_positions", 1024),
            "hidden_act": Key("activation_function", "gelu_new", ACTIVATIONS),
            "layer_norm_eps": Key("layer_norm_epsilon", 1e-5),
            "hidden_dropout": Key("resid_pdrop", 0.1, repeated="embd_pdrop"),
            "attention_dropout": Key("attn_pdrop", 0.1),
            "initializer_range": Key("initializer_range", 0.02),
        },
        flattened=_gpt2_flattened,
        constants=dict(
            type_vocab_size=0,
            norm_place="before",
            embedding_norm=False,
            causal=True,
            out_bias=False,
        ),
        must={
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False, None),
        },
        heads=heads,
    )


# Families whose scores depend on the distance of two tokens. Sources: transformers 5, and for jina
# the authors' code.


def _mpnet() -> Family:
    """Return the table of MPNet: RoBERTa's heads, without keys for their dropout."""
    roberta = _roberta("mpnet", "MPNet", "mpnet")
    qkv = tuple(f"attention.attn.{part}" for part in "qkv")
    return replace(
        roberta,
        modules={**TABLES, "distances.table": "encoder.relative_attention_bias"},
        layer_modules=(qkv, "attention.attn.o", "attention.LayerNorm", *LAYER[3:]),
        keys=without(KEYS, "type_vocab_size"),
        # transformers counts from row 2, whatever `pad_token_id` is.
        constants=dict(
            type_vocab_size=0, position_kind="buckets", absolute_positions=True, position_offset=2
        ),
        # transformers computes 32 buckets, whatever this key is.
        must={**MUST, "relative_attention_num_buckets": (32,)},
        written={"relative_attention_num_buckets": 32},
        offset_by_pad=False,
        heads={kind: replace(head, dropout=HIDDEN) for kind, head in roberta.heads.items()},
    )


# What the releases of versions 2 and 3 have in common; other values compute something else.
_DEBERTA_VALUES: dict[str, tuple[Any, ...]] = {
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


def _deberta_v2() -> Family:
    pooler = PoolerSlot("pooler.dense", "gelu")
    pooling = {"pooler_hidden_act": ("gelu",), "pooler_dropout": (0, 0.0)}
    lm, own_head = "cls.predictions", r"^lm_predictions\.lm_head\."
    transform = (f"{lm}.transform.dense", f"{lm}.transform.LayerNorm")
    qkv = tuple(f"attention.self.{part}_proj" for part in ("query", "key", "value"))
    return Family(
        model_type="deberta-v2",
        class_prefix="DebertaV2",
        prefix="deberta.",
        modules={
            **TABLES,
            "distances.table": "encoder.rel_embeddings",
            "distances.norm": "encoder.LayerNorm",
        },
        layer_modules=(qkv, *LAYER[1:]),
        # The head of releases of version 3, which computes the same.
        renamed=(
            (rf"{own_head}(dense|LayerNorm)\.", rf"{lm}.transform.\1."),
            (own_head, f"{lm}."),
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
        heads={
            None: HeadLayout("Model", dropout=HIDDEN),
            "masked_lm": masked_lm(lm, *transform, decoder=f"{lm}.decoder", dropout=HIDDEN),
            **task_heads(
                "sequence", "choices", pooler=pooler, dropout=Key("cls_dropout", None), must=pooling
            ),
            **task_heads("tokens", "spans", dropout=HIDDEN),
        },
    )


def _t5(model_type: str, class_prefix: str, *, gated: bool) -> Family:
    """Return the table of T5's encoder; a decoder in the file is left out.

    Version 1.1, with gated layers, is a family of its own: its first product is two modules.
    """
    layer, attention, forward = "encoder.block.{}.layer", "0.SelfAttention", "1.DenseReluDense"
    qkv = tuple(f"{attention}.{part}" for part in "qkv")
    up = (f"{forward}.wi_0", f"{forward}.wi_1") if gated else f"{forward}.wi"
    # The gated form has always had the other form of GELU.
    theirs, ours = ("gated-gelu", "gelu_tanh") if gated else ("relu", "relu")
    words = "transformer.encoder.embed_tokens"
    return Family(
        model_type=model_type,
        class_prefix=class_prefix,
        prefix="transformer.",
        modules={
            "embeddings.word": "shared",
            "distances.table": f"{layer.format(0)}.{attention}.relative_attention_bias",
            "final_norm": "encoder.final_layer_norm",
        },
        layer=layer,
        layer_modules=(qkv, f"{attention}.o", "0.layer_norm", up, f"{forward}.wo", "1.layer_norm"),
        keys={
            "vocab_size": Key("vocab_size"),
            "hidden_size": Key("d_model"),
            "num_hidden_layers": Key("num_layers"),
            "num_attention_heads": Key("num_heads"),
            "head_size": Key("d_kv", 64),
            "intermediate_size": Key("d_ff"),
            "max_position_embeddings": Key("n_positions", 512),
            "distance_buckets": Key("relative_attention_num_buckets", 32),
            "max_distance": Key("relative_attention_max_distance", 128),
            "hidden_act": Key("feed_forward_proj", theirs, {theirs: ours}),
            "layer_norm_eps": Key("layer_norm_epsilon", 1e-6),
            "hidden_dropout": Key("dropout_rate", 0.1),
            "attention_dropout": Key("dropout_rate", 0.1),
        },
        constants={
            **_RMS,
            "gated": gated,
            "position_kind": "buckets",
            "attention_scale": 1.0,
            "pooled": "mean",
        },
        must={"quantization_config": (None,), "is_decoder": (False, None)},
        written={"model_type": model_type.removesuffix("_gated")},
        heads={
            None: HeadLayout("EncoderModel", decoder=words, dropout=HIDDEN),
            "tokens": HeadLayout(
                "ForTokenClassification", OUT, decoder=words, dropout=Key("classifier_dropout", 0.0)
            ),
        },
    )


def _xlnet() -> Family:
    """Return the table of XLNet, as it is fine-tuned: with one stream, without memory."""
    summary, out = PoolerSlot("sequence_summary.summary", "tanh"), {"head.out": "logits_proj"}
    last: dict[str, Any] = {"pooler": summary, "dropout": _LAST_DROPOUT}
    last["must"] = {**_SUMMARY, "summary_type": ("last",), "summary_activation": ("tanh",)}
    relative = {"content_bias": "r_w_bias", "position_bias": "r_r_bias", "type_bias": "r_s_bias"}
    relative |= {"type_vectors": "seg_embed", "project.weight": "r"}
    return Family(
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
            **{f"relative.{ours}": (f"rel_attn.{name}",) for ours, name in relative.items()},
        },
        forms={
            **dict.fromkeys(("qkv", "relative.project"), "outputs_by_head"),
            "attention_out": "inputs_by_head",
        },
        renamed=((r"^mask_emb$", "transformer.mask_emb"),),
        keys={
            "vocab_size": Key("vocab_size", 32000),
            "hidden_size": Key("d_model"),
            "num_hidden_layers": Key("n_layer"),
            "num_attention_heads": Key("n_head"),
            "head_size": Key("d_head", None),
            "intermediate_size": Key("d_inner"),
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
        heads={
            None: HeadLayout("Model", dropout=HIDDEN),
            "sequence": HeadLayout("ForSequenceClassification", out, **last),
            "choices": HeadLayout("ForMultipleChoice", out, **last),
            "tokens": HeadLayout("ForTokenClassification", OUT, dropout=HIDDEN),
            "spans": HeadLayout("ForQuestionAnsweringSimple", SPANS, dropout=HIDDEN),
        },
    )


_JINA_CODE = "jinaai/jina-bert-implementation--"


def _jina_v2() -> Family:
    """Return the table of jina-embeddings-v2: BERT's heads over gated layers with ALiBi.

    Other tools run its authors' code, which the folder names in `auto_map`.
    """
    bert = _bert()
    classes = {"AutoModel": "Model", "AutoModelForMaskedLM": "ForMaskedLM"}
    code = {auto: f"{_JINA_CODE}modeling_bert.JinaBert{name}" for auto, name in classes.items()}
    code["AutoConfig"] = f"{_JINA_CODE}configuration_bert.JinaBertConfig"
    return replace(
        bert,
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
            "auto_map": code,
        },
        heads={
            **{k: bert.heads[k] for k in (None, "sequence", "tokens", "spans", "choices")},
            "masked_lm": replace(bert.heads["masked_lm"], activation="gelu"),
        },
    )


def _static() -> Family:
    """Return a StaticEmbedding model (or model2vec): texts are means of word vectors.

    A text without tokens is read as one more row, of zeros, which files do not have.
    """
    return Family(
        model_type=STATIC,
        class_prefix="Static",
        prefix="",
        modules={"embeddings.word": "embedding"},
        layer="layers.{}",
        renamed=(("^embeddings$", "embedding.weight"),),
        keys={
            **{name: KEYS[name] for name in ("vocab_size", "hidden_size")},
            "num_hidden_layers": Key("num_hidden_layers", 0),
        },
        constants=dict(
            **dict(num_attention_heads=1, intermediate_size=1, type_vocab_size=0),
            **dict(hidden_act="gelu", hidden_dropout=0.0),
            # No text is cut.
            **dict(position_kind="alibi", max_position_embeddings=2**20, embedding_norm=False),
        ),
        heads={None: HeadLayout("Embedding")},
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
        _nomic_bert(),
        _gte("gte", "Gte", 160_000.0),
        _gte("new", "New", 10_000.0),
        _jina_v3(),
        _neobert(),
        _eurobert(),
        _qwen3(),
        _gemma3(),
        _gpt2(),
        _mpnet(),
        _deberta_v2(),
        _t5("t5", "T5", gated=False),
        _t5("t5_gated", "T5", gated=True),
        _t5("mt5", "MT5", gated=True),
        _xlnet(),
        _jina_v2(),
        _static(),
    )
}
