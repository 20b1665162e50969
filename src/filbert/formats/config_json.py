"""config.json <-> EncoderConfig, head kind and labels, by the families' tables."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from reprlib import repr as short
from typing import Any

from filbert.errors import ConfigError, FormatError, printable
from filbert.formats.layouts import CAUSAL_CLASS, CAUSAL_TYPE, REQUIRED, Family
from filbert.model.config import POOLED, EncoderConfig

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
}
_WRITTEN_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
_FLOATS = frozenset(
    (
        "layer_norm_eps",
        "hidden_dropout",
        "attention_dropout",
        "head_dropout",
        "initializer_range",
        "rotary_base",
        "local_rotary_base",
    )
)
# How transformers ends the names of classes whose head predicts the next token.
_NEXT_TOKEN = ("LMHeadModel", "ForCausalLM")
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
# Kinds with as many outputs as there are labels.
LABELLED = ("sequence", "tokens")


def check_expressible(raw: dict[str, Any], must: Mapping[str, tuple[Any, ...]], path: Path) -> None:
    """Refuse settings that the encoder, or a head, cannot express.

    Raises:
        FormatError: a key of `must` with a value that is not one of its values.
    """
    for key, allowed in must.items():
        if key in raw and raw[key] not in allowed:
            raise FormatError(
                f"{path}: {key} is {short(raw[key])}; filbert's encoder has only "
                f"{short(allowed[0])}."
            )


def _number(raw: dict[str, Any], key: str, default: Any, path: Path, *, real: bool) -> Any:
    value = raw.get(key, default)
    if value is REQUIRED:
        raise FormatError(f"{path} has no {key}.")
    is_number = isinstance(value, (int, float) if real else int) and not isinstance(value, bool)
    if not is_number or not abs(value) <= 2**31:  # so also NaN
        kind = "number" if real else "whole number"
        raise FormatError(f"{path}: {key} is {short(value)}; it must be a {kind} of sensible size.")
    return float(value) if real else value


# Of config.json: layer to the heads that it has lost. transformers 4 reads it, 5 has no pruning.
_PRUNED_HEADS = "pruned_heads"
_MOST_LAYERS = 9999


def _heads_per_layer(
    raw: dict[str, Any], layers: int, heads: int, path: Path
) -> tuple[int, ...] | None:
    """How many heads each layer has left; None where none has lost any."""
    pruned = raw.get(_PRUNED_HEADS)
    if not pruned:
        return None

    def is_loss(layer: str, numbers: Any) -> bool:
        return (
            layer.isdecimal()
            and len(layer) < 5
            and int(layer) < min(layers, _MOST_LAYERS)
            and isinstance(numbers, list)
            and all(type(number) is int and 0 <= number < heads for number in numbers)
            and len(set(numbers)) == len(numbers) < heads
        )

    if not isinstance(pruned, dict) or not all(is_loss(*entry) for entry in pruned.items()):
        raise FormatError(
            f"{path}: {_PRUNED_HEADS} is {short(pruned)}; it must give each layer, of 0 to "
            f"{layers - 1}, the heads that it has lost, of 0 to {heads - 1}, and leave it one."
        )
    left = {int(key): heads - len(numbers) for key, numbers in pruned.items()}
    found = tuple(left.get(layer, heads) for layer in range(min(layers, _MOST_LAYERS)))
    return found if set(found) != {heads} else None


def stated_causal(raw: dict[str, Any], family: Family) -> bool:
    """Whether config.json describes an encoder that attends causally."""
    by_key = family.causal_key is not None and bool(raw.get(family.causal_key))
    return by_key or raw.get("model_type") == CAUSAL_TYPE + family.model_type


def encoder_config(
    raw: dict[str, Any], family: Family, kind: str | None, *, has_pooler: bool, path: Path
) -> EncoderConfig:
    """The EncoderConfig that config.json describes.

    Args:
        raw: content of config.json.
        family: of `raw`.
        kind: of the head.
        has_pooler: whether the weights hold the pooler that goes with this kind.
        path: of config.json, for messages.

    Raises:
        FormatError: a missing, mistyped, absurd or contradictory value, or one that the encoder
            cannot express.
    """
    head = family.heads[kind]
    check_expressible(raw, head.must, path)
    causal = stated_causal(raw, family)
    by_key = causal and raw.get("model_type") != CAUSAL_TYPE + family.model_type
    if by_key and str((raw.get("architectures") or [""])[0]).endswith(_NEXT_TOKEN):
        raise FormatError(
            f"{path} describes a {short(raw['architectures'][0])}, which predicts the next token; "
            "filbert has no such head."
        )
    if by_key and not family.says_causal(kind, has_pooler=has_pooler):
        raise FormatError(
            f"{path}: {family.causal_key} is True, and a {family.class_name(kind)} reads the first "
            "token, which then sees no other; filbert's causal encoders read the last."
        )
    if family.flattened is not None:
        raw = family.flattened(raw, path)
    values: dict[str, Any] = dict(family.constants)
    for name, (key, default) in family.keys.items():
        if name == "hidden_act":
            given = raw.get(key, default)
            if not isinstance(given, str) or given not in _ACTIVATIONS:
                raise FormatError(
                    f"{path}: {key} is {short(given)}, not one of {', '.join(_ACTIVATIONS)}."
                )
            values[name] = _ACTIVATIONS[given]
        elif name == "pooled":
            values[name] = raw.get(key, default)
            if values[name] not in POOLED:
                raise FormatError(
                    f"{path}: {key} is {short(values[name])}, not one of {', '.join(POOLED)}."
                )
        else:
            values[name] = _number(raw, key, default, path, real=name in _FLOATS)
    if head.activation not in (None, values["hidden_act"]):
        raise FormatError(
            f"{path}: {family.keys['hidden_act'][0]} is {values['hidden_act']}; a "
            f"{family.class_name(kind)} has {head.activation} in its head, and filbert can express "
            "only both alike."
        )
    if values.get("embedding_size") == values["hidden_size"] and not family.always_projects:
        values["embedding_size"] = None
    if family.offset_by_pad:
        values["position_offset"] = _number(raw, "pad_token_id", 1, path, real=False) + 1
    values["head_dropout"] = values["hidden_dropout"]
    dropout_key, default = head.dropout
    if dropout_key is not None and raw.get(dropout_key, default) is not None:
        values["head_dropout"] = _number(raw, dropout_key, default, path, real=True)
    slot = head.pooler if has_pooler else None
    layers, heads = values["num_hidden_layers"], values["num_attention_heads"]
    values["heads_per_layer"] = _heads_per_layer(raw, layers, heads, path)
    values["causal"] = causal
    values["pooler"] = slot.activation if slot else None
    values["pooler_dropout"] = slot is not None and slot.dropout_before
    try:
        config = EncoderConfig(**values)
    except ConfigError as error:
        text = str(error)
        for name, (key, _) in family.keys.items():
            text = text.replace(name, key)
        raise FormatError(f"{path}: {text}") from error
    layers, groups = config.num_hidden_layers, config.num_groups
    # transformers computes the group in floating point, which for a few odd pairs (18 layers, 14
    # groups) rounds to another group.
    if any(int(i / (layers / groups)) != i * groups // layers for i in range(layers)):
        raise FormatError(
            f"{path}: {layers} layers in {groups} groups; "
            "use a number of groups that divides the layers."
        )
    return config


def label_names(raw: dict[str, Any], path: Path) -> tuple[str, ...] | None:
    """The labels by id; LABEL_0, LABEL_1 ... for a number without names; None for neither.

    Raises:
        FormatError: ids that are not 0..n-1, a label twice, or one that cannot be printed.
    """
    given = raw.get("id2label")
    if given is None:
        given = _inverted(raw.get("label2id"))
    if given is None:
        # The second is how transformers called it inside, and sometimes wrote it, until 2020.
        key = next((k for k in ("num_labels", "_num_labels") if raw.get(k) is not None), None)
        if key is None:
            return None
        count = _number(raw, key, 2, path, real=False)
        if not 1 <= count <= 1_000_000:
            raise FormatError(f"{path}: {key} is {count}; it must be 1 to 1000000.")
        return tuple(f"LABEL_{i}" for i in range(count))
    if (
        not isinstance(given, dict)
        or not given
        or set(given) != {str(i) for i in range(len(given))}
        or any(isinstance(name, list | dict) for name in given.values())
    ):
        raise FormatError(
            f'{path}: id2label is {short(given)}; it must give a name to "0", "1", ... .'
        )
    names = tuple(str(given[str(i)]) for i in range(len(given)))
    if len(set(names)) < len(names):
        counts = Counter(names)
        twice = next(name for name in names if counts[name] > 1)
        raise FormatError(
            f"{path}: id2label gives the label {short(twice)} to two ids; rename one of them."
        )
    for name in names:
        if unprintable(name):
            raise FormatError(
                f"{path}: id2label has the label {printable(ascii(name))}, which holds a control "
                "character or half a surrogate pair; rename it."
            )
    return names


def _inverted(label2id: Any) -> dict[str, Any] | None:
    """`id2label` from `label2id` where only that is given; None if it does not count its ids."""
    if not isinstance(label2id, dict) or not label2id:
        return None
    given = {str(id_): name for name, id_ in label2id.items()}
    return given if set(given) == {str(i) for i in range(len(label2id))} else None


def unprintable(label: str) -> bool:
    """Whether a label holds what cannot be stored as UTF-8 or steers a terminal."""
    return any(unicodedata.category(character) in ("Cc", "Cs") for character in label)


def problem_type(raw: dict[str, Any], path: Path) -> str | None:
    """`problem_type` of config.json, or None."""
    value = raw.get("problem_type")
    if value is not None and value not in PROBLEM_TYPES:
        raise FormatError(
            f"{path}: problem_type is {short(value)}, not one of {', '.join(PROBLEM_TYPES)}."
        )
    return value


def check_head(family: Family, kind: str | None) -> None:
    """Refuse a head kind for which the family has no class.

    Raises:
        ConfigError: the family has no such head.
    """
    if kind not in family.heads:
        known = ", ".join(name for name in family.heads if name)
        raise ConfigError(f"A {family.model_type} model has no {kind!r} head; it can have {known}.")


def config_values(config: EncoderConfig, family: Family, kind: str | None) -> dict[str, Any]:
    """What config.json says about an encoder and its head kind.

    Raises:
        ConfigError: the family's layout has no place for one of the fields.
    """
    head, has_pooler = family.heads[kind], config.pooler is not None
    by_key = config.causal and family.says_causal(kind, has_pooler=has_pooler)
    ours = (CAUSAL_CLASS, CAUSAL_TYPE) if config.causal and not by_key else ("", "")
    raw: dict[str, Any] = {
        "architectures": [ours[0] + family.class_name(kind)],
        "model_type": ours[1] + family.model_type,
        **family.written,
        **{key: allowed[0] for key, allowed in head.must.items()},
    }
    for name, (key, _) in family.keys.items():
        raw[key] = getattr(config, name)
    for key, name in family.repeated.items():
        raw[key] = getattr(config, name)
    if by_key and family.causal_key is not None:
        raw[family.causal_key] = True
    if "hidden_act" in family.keys:
        raw[family.keys["hidden_act"][0]] = _WRITTEN_ACTIVATIONS[config.hidden_act]
    if "embedding_size" in raw and config.embedding_size is None and not family.always_projects:
        raw["embedding_size"] = config.hidden_size
    if family.offset_by_pad:
        raw["pad_token_id"] = config.position_offset - 1
    if head.dropout[0] is not None:
        raw[head.dropout[0]] = config.head_dropout
    if config.heads_per_layer is not None:
        # Those that are left have been counted anew from 0, so the last ones are those missing.
        raw[_PRUNED_HEADS] = {
            str(layer): list(range(count, config.num_attention_heads))
            for layer, count in enumerate(config.heads_per_layer)
            if count < config.num_attention_heads
        }
    path = Path("config.json")
    try:
        back = encoder_config(raw, family, kind, has_pooler=has_pooler, path=path)
    except FormatError as error:
        raise ConfigError(f"A {family.class_name(kind)} cannot be written: {error}") from error
    # Where a class has no key of its own for its head's dropout, the hidden dropout stands in.
    lost = [
        field.name
        for field in fields(config)
        if field.name != "head_dropout" and getattr(config, field.name) != getattr(back, field.name)
    ]
    if lost:
        found = ", ".join(f"{name} {getattr(config, name)!r}" for name in lost)
        raise ConfigError(f"A {family.class_name(kind)} has no way to say {found}.")
    return raw
