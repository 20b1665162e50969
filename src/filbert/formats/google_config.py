"""Google's bert_config.json and albert_config.json <-> EncoderConfig, and which GELU is meant.

The files have the keys of Hugging Face's config.json, which took them over, without those for what
Google's code fixes: the LayerNorm epsilon (1e-12) and the class.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from reprlib import repr as short
from typing import Any

from filbert.errors import ConfigError, FormatError
from filbert.formats.config_json import check_expressible, config_values, encoder_config
from filbert.formats.families import FAMILIES
from filbert.formats.google_names import NameTable
from filbert.formats.model_files import BUNDLE_CONFIG, GOOGLE_CONFIGS, matching
from filbert.formats.weights import read_json
from filbert.model.config import EncoderConfig

HIDDEN_ACTS = ("gelu", "gelu_tanh")

# Hugging Face's names, which encoder_config reads.
_FORMS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}
# What "gelu" computes, and why. Google's own code knows no other name for either form.
_MEANING = {
    "bert": (
        "gelu",
        "erf form, as the checkpoints of 2018 mean it; google-research/bert computes the tanh form "
        "since 2019-02-07, and so do the TensorFlow models of the Model Garden",
    ),
    "albert": ("gelu_tanh", "tanh form, which google-research/albert computes"),
    "electra": ("gelu", "erf form, which google-research/electra computes"),
}
_FORM_NAMES = {"gelu": "erf form", "gelu_tanh": "tanh form"}
# Our own key, for a model whose "gelu" is not what its family's usually is. Google's code carries
# keys that it does not know along without reading them.
_FORM_KEY = "gelu_form"
_FORM_VALUES = {"gelu": "erf", "gelu_tanh": "tanh"}

_KEYS = (
    "attention_probs_dropout_prob",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "type_vocab_size",
    "vocab_size",
)
_FURTHER_KEYS: dict[str, dict[str, Any]] = {
    "bert": {},
    "electra": {"embedding_size": ...},
    "albert": {
        "embedding_size": ...,
        "num_hidden_groups": ...,
        "inner_group_num": ...,
        "down_scale_factor": 1,
        "gap_size": 0,
        "net_structure_type": 0,
        "num_memory_blocks": 0,
    },
}
_MUST = {"down_scale_factor": (1,), "net_structure_type": (0,), "num_memory_blocks": (0,)}
# All of Google's published models have attention heads of this width.
_HEAD_SIZE = 64


def config_file(folder: Path) -> Path | None:
    """The configuration beside a checkpoint, None when there is none.

    Raises:
        FormatError: several, under names of which none is the usual one.
    """
    for name in GOOGLE_CONFIGS:
        if (folder / name).is_file():
            return folder / name
    found = [path for path in matching(folder, BUNDLE_CONFIG) if "token" not in path.name]
    if len(found) > 1:
        listed = ", ".join(path.name for path in found)
        raise FormatError(f"{folder} holds {listed}; rename the right one to {GOOGLE_CONFIGS[0]}.")
    return found[0] if found else None


def read_raw(path: Path, family: str) -> dict[str, Any]:
    """The content of a configuration file.

    Raises:
        FormatError: damaged, or with a setting that the encoder cannot express.
    """
    raw = read_json(path)
    check_expressible(raw, {**FAMILIES[family].must, **_MUST}, path)
    return raw


def inferred_raw(
    shapes: Mapping[str, tuple[int, ...]], table: NameTable, where: Path
) -> dict[str, Any]:
    """What the tensors' shapes tell, for checkpoints that were published without configuration.

    Raises:
        FormatError: the tensors do not tell, or the width is no multiple of the usual head's.
    """
    layer = table.layer.format(0)
    axes = {
        "vocab_size": (table.embeddings["word"][0], 0),
        "embedding_size": (table.embeddings["word"][0], 1),
        "max_position_embeddings": (table.embeddings["position"][0], 0),
        "type_vocab_size": (table.embeddings["token_type"][0], 0),
        "hidden_size": (f"{layer}/{table.qkv[0]}/kernel", 0),
        "intermediate_size": (f"{layer}/{table.layer_modules['up'][0]}/kernel", 1),
    }
    raw: dict[str, Any] = {"hidden_act": "gelu"}
    for key, (name, axis) in axes.items():
        if len(shapes.get(name, ())) != 2:
            raise FormatError(
                f"{where} has no {name} of two axes, which would tell its {key}, and there is no "
                f"{GOOGLE_CONFIGS[0]} beside it."
            )
        raw[key] = shapes[name][axis]
    before, after = map(re.escape, table.layer.split("{}"))
    numbers = [
        int(match[1])
        for name in shapes
        if (match := re.match(rf"{before}(\d{{1,9}}){after}/", name))
    ]
    raw["num_hidden_layers"] = max(numbers) + 1
    width = raw["hidden_size"]
    if width > _HEAD_SIZE and width % _HEAD_SIZE:
        raise FormatError(
            f"{where}: hidden_size {width} is no multiple of {_HEAD_SIZE}, the usual width of an "
            f"attention head. Say num_attention_heads in a {GOOGLE_CONFIGS[0]} beside it."
        )
    raw["num_attention_heads"] = max(1, width // _HEAD_SIZE)
    return raw


def decide_gelu(
    raw: dict[str, Any], family: str, asked: str | None, path: Path
) -> tuple[str, str | None]:
    """Which activation a configuration means.

    Args:
        raw: its content.
        family: bert, albert or electra.
        asked: "gelu" (erf) or "gelu_tanh", to overrule what the family usually means.
        path: of the configuration, for messages.

    Returns:
        Hugging Face's name of it, and a sentence on the decision where there was one.

    Raises:
        ConfigError: `asked` is neither, or the model has no GELU.
        FormatError: an activation that the encoder does not have.
    """
    if asked is not None and asked not in HIDDEN_ACTS:
        raise ConfigError(f"hidden_act {asked!r} is not one of {', '.join(HIDDEN_ACTS)}.")
    given = raw.get("hidden_act", "gelu")
    if given != "gelu":
        if asked is not None:
            raise ConfigError(
                f"{path} says hidden_act {short(given)}; hidden_act can only choose between the "
                'two forms of "gelu".'
            )
        if not isinstance(given, str):
            raise FormatError(f"{path}: hidden_act is {short(given)}; it must be a name.")
        return given, None
    stated = raw.get(_FORM_KEY)
    forms = {value: name for name, value in _FORM_VALUES.items()}
    if stated is not None and (not isinstance(stated, str) or stated not in forms):
        raise FormatError(f"{path}: {_FORM_KEY} is {short(stated)}, not one of {', '.join(forms)}.")
    usual, why = _MEANING[family]
    form = asked or (forms[stated] if stated else usual)
    if asked is not None:
        why = f"{_FORM_NAMES[form]}, as asked"
    elif stated is not None:
        why = f"{_FORM_NAMES[form]}, as {_FORM_KEY} in {path.name} says"
    other = next(name for name in HIDDEN_ACTS if name != form)
    hint = f"(else: filbert convert --hidden-act {other})"
    return _FORMS[form], f'hidden_act "gelu" is read as the {why} {hint}.'


def write_config(
    config: EncoderConfig, family: str, kind: str | None, folder: Path, extra: Mapping[str, Any]
) -> Path:
    """Write the configuration in Google's way; its path.

    Args:
        config: of the encoder.
        family: bert, albert or electra.
        kind: of the head.
        folder: to write into.
        extra: keys of our own, which Google's code carries along without reading them.

    Raises:
        ConfigError: something that the file cannot say.
    """
    values = config_values(config, FAMILIES[family], kind)
    if family != "bert" and "embedding_size" not in values:
        values["embedding_size"] = config.hidden_size
    raw = {key: values[key] for key in _KEYS}
    for key, fixed in _FURTHER_KEYS[family].items():
        raw[key] = values[key] if fixed is ... else fixed
    if config.hidden_act in HIDDEN_ACTS:
        raw["hidden_act"] = "gelu"
        if config.hidden_act != _MEANING[family][0]:
            raw[_FORM_KEY] = _FORM_VALUES[config.hidden_act]
    path = folder / GOOGLE_CONFIGS[1 if family == "albert" else 0]
    read_as = {**raw, "hidden_act": decide_gelu(raw, family, None, path)[0]}
    back = encoder_config(
        read_as, FAMILIES[family], kind, has_pooler=config.pooler is not None, path=path
    )
    lost = [
        field.name
        for field in fields(config)
        if getattr(config, field.name) != getattr(back, field.name)
        # A rate for training only, which Google's scripts fix, each to its own.
        and field.name != "head_dropout"
    ]
    if lost:
        found = ", ".join(f"{name} {getattr(config, name)!r}" for name in lost)
        raise ConfigError(
            f"Google's {path.name} has no way to say {found}; its code would compute with "
            + ", ".join(repr(getattr(back, name)) for name in lost)
            + "."
        )
    text = json.dumps({**raw, **extra}, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path
