"""Reads and writes Google's original checkpoints of BERT, ALBERT and ELECTRA (TensorFlow 1).

A folder holds bert_config.json (albert_config.json; ELECTRA has none), vocab.txt or a
SentencePiece model, and the tensors in bert_model.ckpt.index and .data-00000-of-00001.

A dense layer's `kernel` has its input axis first, so it is the transpose of filbert's `weight`; the
`output_weights` of the hand-written heads have their output axis first, as in filbert. Sources:
google-research/bert (modeling.py, run_pretraining.py, run_classifier.py, run_squad.py),
google-research/albert (modeling.py, run_pretraining.py, run_squad_v1.py), google-research/electra
(model/modeling.py, run_pretraining.py).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint, meta_model
from filbert.checkpoints.config_json import (
    LABELLED,
    check_expressible,
    check_written,
    config_values,
    encoder_config,
    label_names,
    problem_type,
)
from filbert.checkpoints.families import BUNDLE_CONFIG, BUNDLE_VOCABULARY, FAMILIES, GOOGLE_CONFIGS
from filbert.checkpoints.huggingface import convention_of
from filbert.checkpoints.tensor_bundle import TensorBundle, write_bundle
from filbert.checkpoints.weights import check_finite
from filbert.errors import ConfigError, FormatError, printable, unreadable_as
from filbert.files import read_json, sha256_of
from filbert.text.saving import switches, vocabulary_files
from filbert.text.tokenizer import Tokenizer

PREFIX = "bert_model.ckpt"

# Names of variables. Hugging Face derived its names from Google's, so a few replacements lead back.

_LAYER = (r"encoder/layer/(\d+)", r"encoder/layer_\1")
_HEADS = (("^qa_outputs$", "cls/squad"), ("^classifier$", ""))
_REPLACEMENTS: dict[str, tuple[tuple[str, str], ...]] = {
    "bert": (_LAYER, *_HEADS),
    "albert": (
        ("^albert/", "bert/"),
        (r"albert_layer_groups/(\d+)/albert_layers/0", r"transformer/group_\1/inner_group_0"),
        ("attention/(query|key|value)$", r"attention_1/self/\1"),
        ("attention/dense$", "attention_1/output/dense"),
        ("attention/LayerNorm$", "LayerNorm"),
        ("full_layer_layer_norm$", "LayerNorm_1"),
        ("ffn_output$", "ffn_1/intermediate/output/dense"),
        ("ffn$", "ffn_1/intermediate/dense"),
        ("^bert/pooler$", "bert/pooler/dense"),
        ("^predictions/", "cls/predictions/transform/"),
        ("^predictions$", "cls/predictions"),
        ("^sop_classifier/classifier$", "cls/seq_relationship"),
        *_HEADS,
    ),
    "electra": (
        _LAYER,
        ("dense_prediction$", "dense_1"),
        ("^generator_lm_head$", "generator_predictions"),
    ),
}
_HAND_WRITTEN = (
    "", "cls/squad", "cls/seq_relationship", "cls/predictions", "generator_predictions",
)  # fmt: skip
# Kinds of heads and variables that they have. Heads of fine-tuning come before those of
# pre-training, which such checkpoints may still hold.
_PAIR, _WORDS = "cls/seq_relationship/output_weights", "cls/predictions/output_bias"
_FINE_TUNED: dict[str, tuple[str, ...]] = {
    "spans": ("cls/squad/output_weights", "cls/squad/output_bias"),
    "sequence": ("output_weights", "output_bias"),
}
_PRETRAINED: dict[str, dict[str, tuple[str, ...]]] = {
    "bert": {"pretraining": (_WORDS, _PAIR), "masked_lm": (_WORDS,), "pair": (_PAIR,)},
    "albert": {"pretraining": (_WORDS, _PAIR), "masked_lm": (_WORDS,)},
    "electra": {
        "discriminator": ("discriminator_predictions/dense/kernel",),
        "masked_lm": ("generator_predictions/output_bias",),
    },
}


def _variables(tensor: str, family: str, kind: str | None) -> tuple[str, ...]:
    """Return Google's names of one of filbert's tensors: three for the fused qkv."""
    names = []
    for theirs in FAMILIES[family].theirs(tensor, kind):
        module, _, leaf = theirs.replace(".", "/").rpartition("/")
        for pattern, replacement in _REPLACEMENTS[family]:
            module = re.sub(pattern, replacement, module)
        if (family, kind) == ("electra", "masked_lm"):
            # The generator shares the discriminator's embedding tables.
            module = re.sub("^electra/(?!embeddings/)", "generator/", module)
        last = module.rpartition("/")[2]
        if last.endswith("_embeddings"):
            names.append(module)
        elif last.startswith("LayerNorm"):
            names.append(f"{module}/{'gamma' if leaf == 'weight' else 'beta'}")
        elif module in _HAND_WRITTEN:
            own = "weights" if leaf == "weight" else leaf
            names.append(f"{module}/output_{own}".lstrip("/"))
        else:
            names.append(f"{module}/{'kernel' if leaf == 'weight' else leaf}")
    return tuple(names)


def _is_transposed(variable: str) -> bool:
    return variable.endswith("/kernel")


# Reading.


@unreadable_as(FormatError)
def read(prefix: Path) -> Checkpoint:
    """Read the checkpoint at a prefix; its notes describe what was decided and left out.

    Names and shapes are compared with those that the configuration implies before any tensor is
    read.

    Raises:
        FormatError: A damaged file, or tensors that do not fit the configuration.
    """
    bundle = TensorBundle.open(prefix)
    checkpoint, sources, _ = _matched(bundle)
    tensors = {ours: _read_tensor(bundle, keys) for ours, keys in sources.items()}
    return replace(checkpoint, tensors=tensors)


@unreadable_as(FormatError)
def tensor_report(prefix: Path) -> list[dict[str, Any]]:
    """Describe each tensor of a checkpoint: name, shape, dtype, becomes, file.

    `becomes` is filbert's name, or "left out: ..." with the reason. Errors are those of `read`.
    """
    bundle = TensorBundle.open(prefix)
    _, sources, left_out = _matched(bundle)
    becomes = {key: f"left out: {reason}" for key, reason in left_out.items()}
    for tensor, keys in sources.items():
        for number, key in enumerate(keys, 1):
            becomes[key] = tensor + (f", part {number} of {len(keys)}" if len(keys) > 1 else "")
    return [
        {
            "name": key,
            "shape": list(entry.shape),
            "dtype": entry.dtype,
            "becomes": becomes[key],
            "file": entry.path.name,
        }
        for key, entry in bundle.entries.items()
    ]


def _matched(
    bundle: TensorBundle,
) -> tuple[Checkpoint, dict[str, tuple[str, ...]], dict[str, str]]:
    """Match a checkpoint's variables with its configuration; no tensor is read.

    Returns:
        The checkpoint without tensors; keys in the file of the parts of each of filbert's tensors;
        and why a key is left out.
    """
    index = bundle.index
    notes: list[str] = []
    family, keys, left_out = _usual_names(bundle.entries, index, notes)
    shapes = {name: bundle.entries[key].shape for name, key in keys.items()}
    root = "electra" if family == "electra" else "bert"
    if family == "electra" and not _num_layers(shapes, root):
        root = "generator"
    path, raw = _configuration(index, family, root, shapes, notes)
    raw["hidden_act"], note = _activation(raw, family)
    notes += [note] if note else []
    kind = _kind(shapes, family, root, raw.get("hidden_size"))
    has_pooler = f"{root}/pooler/dense/kernel" in shapes
    config = encoder_config(raw, FAMILIES[family], kind, has_pooler=has_pooler, path=path)
    # The outline of a model with very many layers would take long.
    if (count := _num_layers(shapes, root)) != config.num_groups:
        raise FormatError(
            f"{path} says num_hidden_{'groups' if family == 'albert' else 'layers'} "
            f"{config.num_groups}, but {index.name} holds {count}."
        )
    checkpoint = Checkpoint(config, family, {}, kind, source=index.parent)
    if kind in LABELLED:
        count = shapes["output_bias"][0]
        checkpoint.problem_type = problem_type(raw, path)
        checkpoint.labels = label_names(raw, path)
        if checkpoint.labels is None or len(checkpoint.labels) != count:
            checkpoint.labels = tuple(f"LABEL_{i}" for i in range(count))
            notes.append(
                f"output_weights is read as a text classifier with {count} labels; the format does "
                "not keep their names."
            )
    sources = _sources(checkpoint, bundle, keys=keys, left_out=left_out, root=root, path=path)
    checkpoint.notes = (*notes, *_summary(left_out))
    return checkpoint, sources, left_out


_ROOT = re.compile(r"(?P<prefix>.*?)(?P<root>bert|electra|generator)/embeddings/word_embeddings")
_SLOTS = ("adam_m", "adam_v", "lamb_m", "lamb_v", "Adam", "Adam_1", "Momentum")
_COUNTERS = (
    "global_step", "save_counter", "beta1_power", "beta2_power", "learning_rate", "loss_scale",
    "current_loss_scale", "good_steps", "num_good_steps",
)  # fmt: skip


def _usual_names(
    names: Collection[str], index: Path, notes: list[str]
) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return the family, the key of each variable by its usual name, and what is left out.

    All variables may have a further prefix ("module/bert/..."). A checkpoint of a training run
    also holds the optimizer's slots and counters.
    """
    keys, left_out = {}, {}
    matches = [match for key in names if (match := _ROOT.fullmatch(key))]
    prefixes = sorted({match["prefix"] for match in matches})
    if len(prefixes) != 1:
        listed = ", ".join(map(printable, prefixes or list(names)[:3])) or "nothing"
        raise FormatError(
            f"{index} holds no BERT, ALBERT or ELECTRA, or several: {len(prefixes)} of its "
            f"{len(names)} tensors are the word_embeddings of an encoder ({listed})."
        )
    for key in names:
        parent, _, leaf = key.rpartition("/")
        # TensorFlow 1 names a slot after its variable, and never one variable after another.
        if parent in names or leaf in _SLOTS:
            left_out[key] = f"optimizer slot {leaf}"
        elif leaf in _COUNTERS:
            left_out[key] = "counter"
        else:
            # A head may be outside the encoder's prefix.
            keys[key.removeprefix(prefixes[0])] = key
    if len(keys) + len(left_out) < len(names):
        raise FormatError(f"{index}: two tensors have one name without {printable(prefixes[0])!r}.")
    if prefixes[0]:
        notes.append(f"read without the prefix {printable(prefixes[0])!r} of its names.")
    if any(match["root"] != "bert" for match in matches):
        return "electra", keys, left_out
    is_albert = any("/encoder/transformer/group_" in name for name in keys)
    return "albert" if is_albert else "bert", keys, left_out


def _num_layers(shapes: Mapping[str, Any], root: str) -> int:
    """Return one more than the largest number of a layer, or of ALBERT's groups."""
    pattern = re.compile(rf"{root}/encoder/(?:layer_|transformer/group_)(\d{{1,9}})/")
    return 1 + max((int(m[1]) for m in map(pattern.match, shapes) if m), default=-1)


def _kind(shapes: Mapping[str, tuple[int, ...]], family: str, root: str, width: Any) -> str | None:
    """Return the first kind of head whose variables, and its pooler, are all there."""
    has_pooler = f"{root}/pooler/dense/kernel" in shapes
    for kind, names in (_FINE_TUNED | _PRETRAINED[family]).items():
        if not all(name in shapes for name in names):
            continue
        if FAMILIES[family].required_pooler(kind) is not None and not has_pooler:
            continue
        if kind in _FINE_TUNED:
            weight, bias = (shapes[name] for name in names)
            is_matrix = len(bias) == 1 and bias[0] > 0 and weight == (*bias, width)
            if not is_matrix or (kind == "spans" and bias != (2,)):
                continue
        if family != "electra" or (kind == "masked_lm") == (root == "generator"):
            return kind
    return None


def _sources(
    checkpoint: Checkpoint,
    bundle: TensorBundle,
    *,
    keys: Mapping[str, str],
    left_out: dict[str, str],
    root: str,
    path: Path,
) -> dict[str, tuple[str, ...]]:
    """Return the keys of each of filbert's tensors; add to `left_out`, and refuse what is wrong."""
    kind, index, num_labels = checkpoint.head, bundle.index, len(checkpoint.labels or ()) or None
    sources: dict[str, tuple[str, ...]] = {}
    expected: dict[str, tuple[int, ...]] = {}
    for ours, tensor in meta_model(checkpoint.config, kind, num_labels).state_dict().items():
        names = _variables(ours, checkpoint.family, kind)
        shape = (tensor.shape[0] // len(names), *tensor.shape[1:])
        expected |= {name: shape[::-1] if _is_transposed(name) else shape for name in names}
        sources[ours] = tuple(keys.get(name, name) for name in names)
    unexpected = []
    for name in keys.keys() - expected.keys():
        if name.startswith(f"{root}/pooler/"):
            left_out[keys[name]] = "pooler, which this head does not read"
        elif name.startswith(f"{root}/"):
            unexpected.append(keys[name])
        elif name.startswith("generator"):
            left_out[keys[name]] = "of ELECTRA's generator"
        else:
            left_out[keys[name]] = "another head, or other variable outside the encoder"
    for odd, what in ((expected.keys() - keys.keys(), "missing"), (unexpected, "unexpected")):
        if odd:
            listed = ", ".join(printable(name, 120) for name in sorted(odd)[:3])
            raise FormatError(
                f"{index} does not hold the tensors of the model that {path.name} describes: "
                f"{len(odd)} {what} ({listed})."
            )
    for name, shape in expected.items():
        entry = bundle.entries[keys[name]]
        if entry.shape != shape or "float" not in entry.dtype:
            raise FormatError(
                f"{index}: {printable(keys[name], 120)} has shape {entry.shape} and dtype "
                f"{entry.dtype}; {path.name} requires {shape} in floating point."
            )
    return sources


def _read_tensor(bundle: TensorBundle, keys: tuple[str, ...]) -> Tensor:
    parts = [bundle.read(key).T if _is_transposed(key) else bundle.read(key) for key in keys]
    # A copy in any case: the bundle's arrays are read-only views of its files.
    whole = np.concatenate(parts) if len(parts) > 1 else np.array(parts[0], order="C")
    tensor = torch.from_numpy(whole)
    check_finite(tensor, f"{bundle.entries[keys[0]].path}: {printable(keys[0], 120)}")
    return tensor


def _summary(left_out: Mapping[str, str]) -> list[str]:
    """Return one sentence on everything that was left out, by reason; none if nothing was."""
    parts = []
    for reason, count in sorted(Counter(left_out.values()).items(), key=lambda i: (-i[1], i[0])):
        names = [printable(name, 80) for name, why in left_out.items() if why == reason]
        parts.append(f"{count} x {reason} ({', '.join(names[:2])}{', ...' if count > 2 else ''})")
    return [f"left out of the checkpoint: {'; '.join(parts)}."] if parts else []


# Configuration. The files have the keys of Hugging Face's config.json, which took them over,
# without those that Google's code fixes: the LayerNorm epsilon (1e-12) and the class.

# What "gelu" computes, and why. Google's code has no other name for either form.
_MEANING = {
    "bert": (
        "gelu",
        "erf form, as the checkpoints of 2018 mean it; google-research/bert computes the tanh form "
        "since 2019-02-07",
    ),
    "albert": ("gelu_tanh", "tanh form, which google-research/albert computes"),
    "electra": ("gelu", "erf form, which google-research/electra computes"),
}
# Hugging Face's names, which have one meaning each. Google's code refuses them.
_FORMS = {"gelu": "gelu_python", "gelu_tanh": "gelu_new"}
# Keys of ALBERT whose value is fixed.
_FIXED = {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0}
# Attention heads of all of Google's published models have this width.
_HEAD_SIZE = 64


def _config_file(folder: Path) -> Path | None:
    """Return the configuration in a checkpoint's folder, or None; several are a FormatError."""
    for name in GOOGLE_CONFIGS:
        if (folder / name).is_file():
            return folder / name
    paths = [path for path in _matching(folder, BUNDLE_CONFIG) if "token" not in path.name]
    if len(paths) > 1:
        listed = ", ".join(path.name for path in paths)
        raise FormatError(f"{folder} holds {listed}; rename the right one to {GOOGLE_CONFIGS[0]}.")
    return paths[0] if paths else None


def _matching(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    return sorted(path for path in folder.glob("*") if pattern.fullmatch(path.name))


def _configuration(
    index: Path,
    family: str,
    root: str,
    shapes: Mapping[str, tuple[int, ...]],
    notes: list[str],
) -> tuple[Path, dict[str, Any]]:
    """Return the configuration's path and content; inferred from the shapes for ELECTRA."""
    path = _config_file(index.parent)
    if path is None and family != "electra":
        raise FormatError(
            f"{index.parent} has no {GOOGLE_CONFIGS[family == 'albert']}, without which the number "
            "of attention heads is unknown. Put the model's own next to the checkpoint."
        )
    if path is not None:
        raw = read_json(path)
        must = {key: (value,) for key, value in _FIXED.items() if key != "gap_size"}
        check_expressible(raw, {**FAMILIES[family].must, **must}, path)
        if family != "electra":
            return path, raw
        # The file may describe the other one of ELECTRA's two models.
        kernel = shapes.get(f"{root}/encoder/layer_0/attention/self/query/kernel", ())
        if raw.get("hidden_size") in kernel[:1]:
            word = shapes.get("electra/embeddings/word_embeddings", ())
            raw.setdefault("embedding_size", word[-1] if word else 128)
            return path, raw
        notes.append(f"{printable(path.name)} is not used: its hidden_size is not this part's.")
    raw = _inferred(shapes, root, index)
    notes.append(
        f"no configuration: {raw['num_hidden_layers']} layers, width {raw['hidden_size']} and the "
        f"other sizes are those of the tensors; {raw['num_attention_heads']} attention heads, "
        f"because all of Google's have width {_HEAD_SIZE}; dropout 0.1."
    )
    return index, raw


def _inferred(shapes: Mapping[str, tuple[int, ...]], root: str, index: Path) -> dict[str, Any]:
    """Return the configuration that the shapes of ELECTRA's tensors imply."""
    tables, layer = "electra/embeddings", f"{root}/encoder/layer_0"
    axes = {
        "vocab_size": (f"{tables}/word_embeddings", 0),
        "embedding_size": (f"{tables}/word_embeddings", 1),
        "max_position_embeddings": (f"{tables}/position_embeddings", 0),
        "type_vocab_size": (f"{tables}/token_type_embeddings", 0),
        "hidden_size": (f"{layer}/attention/self/query/kernel", 0),
        "intermediate_size": (f"{layer}/intermediate/dense/kernel", 1),
    }
    raw: dict[str, Any] = {"hidden_act": "gelu", "num_hidden_layers": _num_layers(shapes, root)}
    for key, (name, axis) in axes.items():
        if len(shapes.get(name, ())) != 2:
            raise FormatError(f"{index} has no matrix {name}, which would give its {key}.")
        raw[key] = shapes[name][axis]
    width = raw["hidden_size"]
    if width > _HEAD_SIZE and width % _HEAD_SIZE:
        raise FormatError(
            f"{index}: hidden_size {width} is no multiple of {_HEAD_SIZE}, the usual width of an "
            f"attention head. Give num_attention_heads in a {GOOGLE_CONFIGS[0]} next to it."
        )
    raw["num_attention_heads"] = max(1, width // _HEAD_SIZE)
    return raw


def _activation(raw: dict[str, Any], family: str) -> tuple[Any, str | None]:
    """Return a name of the activation, and a note if "gelu" had to be interpreted."""
    given = raw.get("hidden_act", "gelu")
    if given != "gelu":
        return given, None
    form, why = _MEANING[family]
    other = next(name for act, name in _FORMS.items() if act != form)
    note = f'hidden_act "gelu" is read as the {why}. Write "{other}" instead for the other form.'
    return _FORMS[form], note


# Vocabulary. Google's format does not state the case: its scripts take it as a flag. Without a
# tokenizer_config.json, a vocabulary with no upper-case entry is lower-cased.

_WORDPIECE, _UNIGRAM = "vocab.txt", "spiece.model"
_SWITCHES = ("strip_accents", "tokenize_chinese_chars", "keep_accents")
# Where tokenizers differ: case, accents, Chinese, punctuation, blanks, numbers, special tokens.
_PROBES = (
    "The Film was GOOD, wasn't it? (ÉCOLE naïve Straße İstanbul Ångström)",
    "東京 は 日本の首都です。 数字 1,234.56 x² 3½ ﬁne",
    "  tabs\tand\nlines\u00a0and\u200bzero\u0000width  `` quoted '' unaffableness-es",
    "[MASK] of [SEP] [UNK] [CLS] <unk> [mask] e\u0301 \u1100\u1161",
)


def read_google_tokenizer(folder: Path) -> Tokenizer:
    """Read the tokenizer of a Google checkpoint, by the rules of Google's own code."""
    usual = [folder / name for name in (_WORDPIECE, _UNIGRAM) if (folder / name).is_file()]
    paths = usual[:1] or _matching(folder, BUNDLE_VOCABULARY)
    if len(paths) != 1:
        listed = ", ".join(printable(path.name) for path in paths[:5])
        raise FormatError(
            f"{folder} holds {len(paths)} vocabularies ({listed}); rename the right one to "
            f"{_WORDPIECE} or {_UNIGRAM}."
            if paths
            else f"{folder} has no vocabulary: no {_WORDPIECE} and no SentencePiece model "
            "(*.model). Google's archives hold it next to the checkpoint."
        )
    family = "albert" if paths[0].suffix == ".model" else "bert"
    return Tokenizer.load(paths[0], as_google=True, convention=convention_of(folder, family))


# Writing.


def write(checkpoint: Checkpoint, tokenizer: Tokenizer, folder: Path) -> dict[str, str]:
    """Write a checkpoint as Google's code would have, into a folder; not atomic.

    Returns:
        SHA-256 by file name.

    Raises:
        ConfigError: Another family, head or kind of tokenizer than Google's code has, or something
            else that the format cannot express.
    """
    family, kind = checkpoint.family, checkpoint.head
    if family not in _REPLACEMENTS:
        raise ConfigError(
            f"Google's format exists for {', '.join(_REPLACEMENTS)}; it has no names for the "
            f"tensors of a {family}. Keep Hugging Face's layout."
        )
    known = [*({} if family == "electra" else _FINE_TUNED), *_PRETRAINED[family]]
    if kind not in (None, *known):
        raise ConfigError(
            f"Google's code for {family} has no {kind!r} head; it has {', '.join(known)}. "
            "Keep Hugging Face's layout."
        )
    if checkpoint.config.embeddings.width == checkpoint.config.hidden_size:
        raise ConfigError(
            "Google's code has no projection between embeddings and layers of the same width "
            f"({checkpoint.config.hidden_size}), and this model has one."
        )
    checkpoint.check()
    arrays: dict[str, np.ndarray] = {}
    for ours, tensor in checkpoint.tensors.items():
        values = tensor.detach().cpu().to(torch.float32)
        if tensor.dtype == torch.float64 and not torch.equal(values.double(), tensor.cpu()):
            raise ConfigError(f"{ours} is float64, and Google's variables are float32.")
        names = _variables(ours, family, kind)
        for name, chunk in zip(names, values.chunk(len(names)), strict=True):
            arrays[name] = (chunk.T if _is_transposed(name) else chunk).numpy()
    folder.mkdir(parents=True, exist_ok=True)
    _write_config(checkpoint, folder)
    _write_vocabulary(tokenizer, family, folder)
    write_bundle(folder / PREFIX, arrays)
    return {path.name: sha256_of(path) for path in sorted(folder.iterdir())}


def _write_config(checkpoint: Checkpoint, folder: Path) -> None:
    """Write the configuration; refuse values that reading it would not give back."""
    config, family, kind = checkpoint.config, checkpoint.family, checkpoint.head
    table = FAMILIES[family]
    values = config_values(config, table, kind)
    raw = {name: values[name] for name, *_ in table.keys.values() if name != "layer_norm_eps"}
    raw |= {**_FIXED, "inner_group_num": 1} if family == "albert" else {}
    activation = config.feed_forward.activation
    if activation in _FORMS:
        raw["hidden_act"] = "gelu" if activation == _MEANING[family][0] else _FORMS[activation]
    path = folder / GOOGLE_CONFIGS[family == "albert"]
    meant = {**raw, "hidden_act": _activation(raw, family)[0]}
    check_written(meant, config, table, kind, what=f"Google's {path.name}")
    # Google's code keeps unknown keys without reading them.
    labels = checkpoint.labels or ()
    if labels != tuple(f"LABEL_{i}" for i in range(len(labels))):
        raw["id2label"] = {str(i): name for i, name in enumerate(labels)}
    if checkpoint.problem_type is not None:
        raw["problem_type"] = checkpoint.problem_type
    text = json.dumps(raw, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _write_vocabulary(tokenizer: Tokenizer, family: str, folder: Path) -> None:
    """Write the vocabulary, and a tokenizer_config.json if the file alone would be misread."""
    name = {"wordpiece": _WORDPIECE, "unigram": _UNIGRAM}.get(tokenizer.kind)
    if name is None or (name == _UNIGRAM and family != "albert"):
        allowed = "WordPiece or unigram" if family == "albert" else "WordPiece"
        raise ConfigError(
            f"Google's code for {family} reads {allowed} vocabularies; this tokenizer is "
            f"{tokenizer.kind}. Keep Hugging Face's layout."
        )
    try:
        data = vocabulary_files(tokenizer.vocabulary)[name]
    except (FormatError, KeyError) as error:
        raise ConfigError(
            f"This tokenizer cannot be written as a {name}. Keep Hugging Face's layout."
        ) from error
    (folder / name).write_bytes(data)
    if _reads_alike(tokenizer, read_google_tokenizer(folder)):
        return
    stated = {
        key: value for key, value in switches(tokenizer.vocabulary).items() if key in _SWITCHES
    }
    text = json.dumps({"do_lower_case": tokenizer.lowercase, **stated}, indent=2)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
    if not _reads_alike(tokenizer, read_google_tokenizer(folder)):
        raise ConfigError(f"A {name} cannot express this tokenizer. Keep Hugging Face's layout.")


def _reads_alike(left: Tokenizer, right: Tokenizer) -> bool:
    """Return whether two tokenizers read the probes, and their added tokens, the same way."""
    added = [token.content for token in left.backend.get_added_tokens_decoder().values()]
    probes = [*_PROBES, *(f"a {content} b" for content in added[:100])]
    pairs = zip(probes, [*probes[1:], probes[0]], strict=True)
    texts: list[str | tuple[str, str]] = [*probes, *pairs]
    return all(
        one.input_ids.tolist() == two.input_ids.tolist()
        and one.token_type_ids.tolist() == two.token_type_ids.tolist()
        for one, two in zip(left.encode(texts), right.encode(texts), strict=True)
    )
