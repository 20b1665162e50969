"""Translates config.json into EncoderConfig, kind of head and labels, and back."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any

from filbert.checkpoints.families import (
    CAUSAL_CLASS,
    CAUSAL_KEY,
    CAUSAL_TYPE,
    FAMILIES,
    FAR,
    NEAR,
    REQUIRED,
    UNREAD,
    WHY_ONLY,
    Family,
    Key,
)
from filbert.errors import ConfigError, FormatError, printable
from filbert.model.config import EncoderConfig

_NONE_ALLOWED = ("num_key_value_heads", "head_size")
# (model_type, key, value) of config.json files that are of another family than their model_type.
_ALIASES = {
    ("xlm-roberta", "position_embedding_type", "rotary"): "jina_embeddings_v3",
    ("bert", "position_embedding_type", "alibi"): "jina_bert",
    ("t5", "feed_forward_proj", "gated-gelu"): "t5_gated",
}

# The families that are recognised by their tensors; config.json has to name the others.
RECOGNISED = (
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "albert", "electra", "modernbert",
)  # fmt: skip

# Suffixes of transformers' classes whose head predicts the next token.
_NEXT_TOKEN = ("LMHeadModel", "ForCausalLM")
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
# Kinds of heads with one output per label.
LABELLED = ("sequence", "tokens")


def check_expressible(raw: dict[str, Any], must: Mapping[str, tuple[Any, ...]], path: Path) -> None:
    """Raise a FormatError unless each key of `must` is absent or has one of the values there."""
    for key, allowed in must.items():
        if key in raw and raw[key] not in allowed:
            only = f"filbert supports only {short(allowed[0])}."
            why = f" {WHY_ONLY[key]}" if key in WHY_ONLY else ""
            raise FormatError(f"{path}: {key} is {short(raw[key])}; {only}{why}")


def _number(raw: dict[str, Any], key: Key, path: Path, *, real: bool) -> Any:
    value = raw.get(key.name, key.default)
    if value is REQUIRED:
        raise FormatError(f"{path} has no {key.name}.")
    is_number = isinstance(value, (int, float) if real else int) and not isinstance(value, bool)
    if not is_number or not abs(value) <= 2**31:  # so also NaN
        kind = "number" if real else "whole number"
        raise FormatError(f"{path}: {key.name} is {short(value)}; it must be a {kind} up to 2**31.")
    return float(value) if real else value


# Key of config.json: layer to its removed heads. transformers 4 reads it; 5 has no pruning.
_PRUNED_HEADS = "pruned_heads"


def _heads_per_layer(
    raw: dict[str, Any], values: dict[str, Any], path: Path
) -> tuple[int, ...] | None:
    """Return the number of heads of each layer; None if no head was removed."""
    pruned, heads = raw.get(_PRUNED_HEADS), values["num_attention_heads"]
    if not pruned:
        return None
    # EncoderConfig refuses more layers than this.
    layers = min(values["num_hidden_layers"], 512)
    counts = [heads] * layers
    try:
        for layer, numbers in pruned.items():
            if not set(numbers) < set(range(min(heads, 1024))) or not layer.isdecimal():
                raise ValueError
            counts[int(layer)] -= len(set(numbers))
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        raise FormatError(
            f"{path}: {_PRUNED_HEADS} is {short(pruned)}; it must map layers (0 to "
            f"{layers - 1}) to removed heads (0 to {heads - 1}), and leave each layer one head."
        ) from error
    return tuple(counts) if set(counts) != {heads} else None


def stated_causal(raw: dict[str, Any], family: Family) -> bool:
    """Return whether config.json describes an encoder with causal attention."""
    by_key = family.has_causal_key and bool(raw.get(CAUSAL_KEY))
    by_name = raw.get("model_type") == CAUSAL_TYPE + family.model_type
    return family.always_causal or by_key or by_name


def encoder_config(
    raw: dict[str, Any], family: Family, kind: str | None, *, has_pooler: bool, path: Path
) -> EncoderConfig:
    """Return the EncoderConfig that config.json describes, for a model with or without a pooler.

    Raises:
        FormatError: A value that is missing, of the wrong type, out of range or contradictory, or
            that the encoder cannot express.
    """
    head = family.heads[kind]
    pooler = family.pooler_of(kind) if has_pooler else None
    check_expressible(raw, head.must, path)
    if family.has_causal_key and raw.get(CAUSAL_KEY):
        _check_causal(raw, family, kind, has_pooler=pooler is not None, path=path)
    values = {"causal": stated_causal(raw, family), **family.constants}
    raw = {**raw, **{key: raw[old] for old, key in family.aliases.items() if old in raw}}
    if family.flattened is not None:
        raw = family.flattened(raw, path)
    raw = _with_rotary_bases(_with_layer_kinds(raw, family, path), family, path)
    for name, key in family.keys.items():
        values[name] = _setting(raw, name, key, path)
    if head.activation not in (None, values["hidden_act"]):
        raise FormatError(
            f"{path}: {family.keys['hidden_act'].name} is {values['hidden_act']}; a "
            f"{family.class_name(kind)} has {head.activation} in its head, and filbert requires "
            "the same in both."
        )
    if values.get("embedding_size") == values["hidden_size"] and not family.always_projects:
        values["embedding_size"] = None
    values["head_dropout"] = values["hidden_dropout"]
    dropout = family.dropout_key(kind)
    if raw.get(dropout.name, dropout.default) is not None:
        values["head_dropout"] = _number(raw, dropout, path, real=True)
    values["heads_per_layer"] = _heads_per_layer(raw, values, path)
    values["pooler"] = pooler.activation if pooler else None
    values["pooler_dropout"] = pooler is not None and pooler.dropout_before
    try:
        return EncoderConfig.of(**values)
    except ConfigError as error:
        text = str(error)
        for name, key in family.keys.items():
            text = text.replace(name, key.name)
        raise FormatError(f"{path}: {text}") from error


def _setting(raw: dict[str, Any], name: str, key: Key, path: Path) -> Any:
    """Return the value of one setting of EncoderConfig."""
    given = raw.get(key.name, key.default)
    if given is None and name in _NONE_ALLOWED:
        return None
    if key.values is None:
        return key.read(_number(raw, key, path, real=isinstance(key.default, float)))
    if not isinstance(given, str) or given not in key.values:
        names = ", ".join(key.values)
        raise FormatError(f"{path}: {key.name} is {short(given)}, not one of {names}.")
    return key.values[given]


def _with_rotary_bases(raw: dict[str, Any], family: Family, path: Path) -> dict[str, Any]:
    """Return config.json with the bases that transformers 5 nests as the flat keys of version 4."""
    kinds = {"rotary_base": FAR, "local_rotary_base": NEAR}
    nested = {family.keys[name].name: kind for name, kind in kinds.items() if name in family.keys}
    parameters, flat = raw.get("rope_parameters") or {}, dict(raw)
    if nested and not isinstance(parameters, dict):
        raise FormatError(f"{path}: rope_parameters is {short(parameters)}; it must be a map.")
    has_kinds = len(nested) > 1
    if has_kinds and (unknown := [name for name in parameters if name not in nested.values()]):
        raise FormatError(
            f"{path}: rope_parameters has {short(unknown[0])}; filbert reads {FAR} and {NEAR} "
            "there."
        )
    for key, kind in nested.items():
        given = (parameters.get(kind) or {}) if has_kinds else parameters
        if not isinstance(given, dict) or given.keys() - {"rope_type", "rope_theta"}:
            raise FormatError(
                f"{path}: rope_parameters is {short(given)}; filbert reads a rope_theta there."
            )
        if given.get("rope_type", "default") != "default":
            raise FormatError(
                f"{path}: rope_type is {short(given['rope_type'])}; filbert reads only default."
            )
        if "rope_theta" in given:
            flat[key] = given["rope_theta"]
    # The oldest files of ModernBERT may leave the second out.
    if (near := family.keys.get("local_rotary_base")) and flat.get(near.name, 0) is None:
        base = family.keys["rotary_base"]
        flat[near.name] = flat.get(base.name, base.default)
    return flat


def _with_layer_kinds(raw: dict[str, Any], family: Family, path: Path) -> dict[str, Any]:
    """Return config.json with the distance between global layers, and the first, as flat keys."""
    every, first = family.keys.get("global_every"), family.keys.get("global_first")
    kinds, layers = raw.get("layer_types"), raw.get("num_hidden_layers")
    if every is None or (kinds is None and every.default is not REQUIRED):
        return raw
    if (
        isinstance(kinds, list)
        and len(kinds) == layers
        and all(kind in (FAR, NEAR) for kind in kinds)
    ):
        far = [index for index, kind in enumerate(kinds) if kind == FAR] or [len(kinds)]
        distance = far[1] - far[0] if len(far) > 1 else max(len(kinds), far[0] + 1)
        expected = list(range(far[0], max(len(kinds), far[0] + 1), distance))
        if far == expected and far[0] < distance and (first or far[0] == 0):
            return {**raw, every.name: distance, **({first.name: far[0]} if first else {})}
    begins = "" if first else f"beginning with {FAR} and "
    raise FormatError(
        f"{path}: layer_types is {short(kinds)}; it must name {FAR} or {NEAR} for each of the "
        f"{short(layers)} layers, {begins}repeating {'it' if begins else FAR} at equal distances."
    )


def default_settings(family: Family) -> dict[str, Any]:
    """Return the settings of a family that config.json need not name, if defaults are read."""
    given = {
        name: key.read(key.default) if key.values is None else key.values[key.default]
        for name, key in family.keys.items()
        if key.default not in (None, REQUIRED) and (key.values is None or key.default in key.values)
    }
    return {**family.constants, **given}


def _check_causal(
    raw: dict[str, Any], family: Family, kind: str | None, *, has_pooler: bool, path: Path
) -> None:
    """Refuse transformers' causal models that read the first token or predict the next."""
    name = stated_class(raw, path)
    if name is not None and name.endswith(_NEXT_TOKEN):
        raise FormatError(
            f"{path} describes a {short(name)}, which predicts the next token; "
            "filbert has no such head."
        )
    if not family.says_causal(kind, has_pooler=has_pooler):
        raise FormatError(
            f"{path}: {CAUSAL_KEY} is True, and a {family.class_name(kind)} reads the first "
            "token, which attends to no other token; filbert's causal encoders read the last."
        )


def label_names(raw: dict[str, Any], path: Path) -> tuple[str, ...] | None:
    """Return the labels by id; LABEL_0, LABEL_1 ... if only their number is given, else None.

    Raises:
        FormatError: Ids other than 0 to n-1, a repeated label, or one that cannot be printed.
    """
    given = raw.get("id2label")
    if given is None:
        given = _inverted(raw.get("label2id"))
    if given is None:
        return _numbered_labels(raw, path)
    ids = [str(i) for i in range(len(given))] if isinstance(given, dict) else []
    nested = ids and any(isinstance(name, list | dict) for name in given.values())
    if not ids or set(given) != set(ids) or nested:
        raise FormatError(
            f'{path}: id2label is {short(given)}; it must give a name to "0", "1", ... .'
        )
    names = tuple(str(given[id_]) for id_ in ids)
    for name, count in Counter(names).items():
        if count > 1:
            raise FormatError(
                f"{path}: id2label gives the label {short(name)} to two ids; rename one of them."
            )
        if unprintable(name):
            raise FormatError(
                f"{path}: id2label has the label {printable(ascii(name))}, which holds a control "
                "character or half a surrogate pair; rename it."
            )
    return names


def _numbered_labels(raw: dict[str, Any], path: Path) -> tuple[str, ...] | None:
    """Return LABEL_0, LABEL_1 ... if config.json gives their number."""
    # transformers sometimes wrote its internal name, the second, until 2020.
    names = ("num_labels", "_num_labels")
    key = next((Key(name) for name in names if raw.get(name) is not None), None)
    if key is None:
        return None
    count = _number(raw, key, path, real=False)
    if not 1 <= count <= 1_000_000:
        raise FormatError(f"{path}: {key.name} is {count}; it must be 1 to 1000000.")
    return tuple(f"LABEL_{i}" for i in range(count))


def _inverted(label2id: Any) -> dict[str, Any] | None:
    """Return `id2label` for a `label2id`; None if its ids are not 0 to n-1."""
    if not isinstance(label2id, dict) or not label2id:
        return None
    given = {str(id_): name for name, id_ in label2id.items()}
    return given if set(given) == {str(i) for i in range(len(label2id))} else None


def unprintable(label: str) -> bool:
    """Return whether a label holds control characters or what UTF-8 cannot store."""
    return any(unicodedata.category(character) in ("Cc", "Cs") for character in label)


def problem_type(raw: dict[str, Any], path: Path) -> str | None:
    """Return `problem_type` of config.json, or None."""
    value = raw.get("problem_type")
    if value is not None and value not in PROBLEM_TYPES:
        raise FormatError(
            f"{path}: problem_type is {short(value)}, not one of {', '.join(PROBLEM_TYPES)}."
        )
    return value


def check_head(family: Family, kind: str | None) -> None:
    """Raise a ConfigError unless the family has a class for a kind of head."""
    if kind not in family.heads:
        known = ", ".join(name for name in family.heads if name)
        raise ConfigError(
            f"A {family.model_type} model has no {kind!r} head; it can have {known or 'none'}."
        )


def config_values(config: EncoderConfig, family: Family, kind: str | None) -> dict[str, Any]:
    """Return the entries of config.json for an encoder and the kind of its head.

    Raises:
        ConfigError: The family's config.json cannot express one of the fields.
    """
    head, has_pooler = family.heads[kind], config.pooling.activation is not None
    made_causal = config.attention.causal and not family.always_causal
    by_key = made_causal and family.says_causal(kind, has_pooler=has_pooler)
    ours = (CAUSAL_CLASS, CAUSAL_TYPE) if made_causal and not by_key else ("", "")
    raw: dict[str, Any] = {
        "architectures": [ours[0] + family.class_name(kind)],
        "model_type": ours[1] + family.model_type,
        **family.written,
        **{key: allowed[0] for key, allowed in head.must.items()},
    }
    settings = config.settings()
    for name, key in family.keys.items():
        value, names = settings[name], (key.values or {}).items()
        raw[key.name] = next((theirs for theirs, ours in names if ours == value), key.write(value))
        if key.repeated is not None:
            raw[key.repeated] = value
    if by_key:
        raw[CAUSAL_KEY] = True
    if "embedding_size" in raw and config.embeddings.width is None and not family.always_projects:
        raw["embedding_size"] = config.hidden_size
    if dropout := family.dropout_key(kind).name:
        raw[dropout] = config.dropout.head
    if config.attention.heads_per_layer is not None:
        # The remaining heads are numbered from 0, so the last ones count as removed.
        raw[_PRUNED_HEADS] = {
            str(layer): list(range(count, config.attention.heads))
            for layer, count in enumerate(config.attention.heads_per_layer)
            if count < config.attention.heads
        }
    if family.nested is not None:
        raw = family.nested(raw)
    check_written(raw, config, family, kind, what=f"A {family.class_name(kind)}")
    return raw


def check_written(
    raw: dict[str, Any], config: EncoderConfig, family: Family, kind: str | None, *, what: str
) -> None:
    """Raise a ConfigError, about `what`, unless reading gives the same configuration again.

    A head's dropout may differ: some classes and all of Google's scripts have no key for it.
    """
    has_pooler, path = config.pooling.activation is not None, Path("config.json")
    try:
        back = encoder_config(raw, family, kind, has_pooler=has_pooler, path=path)
    except FormatError as error:
        raise ConfigError(f"{what} cannot be written: {error}") from error
    settings, others = config.settings(), back.settings()
    for name in config.differing(back):
        if name != "head_dropout":
            raise ConfigError(
                f"{what} cannot express {name} {settings[name]!r}; it would be read as "
                f"{others[name]!r}."
            )


# Which family and head a folder holds.


def named_family(raw: dict[str, Any], path: Path) -> Family | None:
    """Return the family that config.json names in `model_type`; None if it names none.

    Raises:
        FormatError: A family that filbert does not read, or a setting that the encoder cannot
            express.
    """
    if "model_type" not in raw:
        return None
    model_type = raw["model_type"]
    name = model_type.removeprefix(CAUSAL_TYPE) if isinstance(model_type, str) else ""
    for (stated, key, value), other in _ALIASES.items():
        name = other if (stated, value) == (name, raw.get(key)) else name
    family = FAMILIES.get(name)
    if family is None:
        why, nearest = UNREAD.get(name, ("", ""))
        raise FormatError(
            f"{path} names model_type {short(model_type)}{why and f', {why}'}; filbert reads "
            f"{nearest and f'{nearest}, and '}{', '.join(FAMILIES)}. "
            "Other encoders compute something else, even if their names are similar."
        )
    check_expressible(raw, family.must, path)
    return family


def family_of(raw: dict[str, Any], names: Collection[str], path: Path, notes: list[str]) -> Family:
    """Return the family of `model_type`, or that of the tensors, with a note, if there is none.

    Raises:
        FormatError: As `named_family`, or tensors of another family or of none.
    """
    family = named_family(raw, path)
    if family is None:
        family = _inferred(raw, names, path)
        check_expressible(raw, family.must, path)
        notes.append(
            f"read as {family.model_type}: config.json names no model_type, and the tensors are "
            f"those of {family.model_type}."
        )
        return family
    owners = _with_tensors(names)
    if owners and not _owns(names, family):
        raise FormatError(
            f"{path} says model_type {short(family.model_type)}, but the tensors are "
            f"those of a {owners[0].model_type}. Correct model_type."
        )
    return family


def _with_tensors(names: Collection[str], *, bare: bool = False) -> list[Family]:
    """Return the families of which a word table and layer occur, if `bare` without the prefix.

    Dialects share their names.
    """
    found = []
    for family in map(FAMILIES.__getitem__, RECOGNISED):
        prefix = family.prefix if bare else ""
        table = family.word_table.removeprefix(prefix)
        layer = f"{family.prefix}{family.layer.format(0)}".removeprefix(prefix)
        if table in names and any(name.startswith(layer) for name in names):
            found.append(family)
    return found


def _owns(names: Collection[str], family: Family) -> bool:
    """Return whether the family's word table occurs, with or without its prefix."""
    table = family.word_table
    return table in names or table.removeprefix(family.prefix) in names


def _inferred(raw: dict[str, Any], names: Collection[str], path: Path) -> Family:
    owners, name = _with_tensors(names), stated_class(raw, path) or ""
    named = next((f for f in FAMILIES.values() if name.startswith(f.class_prefix)), None)
    if named and (_owns(names, named) or named.prefix in {owner.prefix for owner in owners}):
        return named
    # Without a prefix, a few families have the same names. Those that count positions from the
    # padding id have one token type.
    bare = _with_tensors(names, bare=True)
    fitting = [
        family
        for family in bare
        if ("position_offset" in family.keys) == (raw.get("type_vocab_size") == 1)
        and ("embedding_size" in family.keys) == ("embedding_size" in raw)
    ]
    if found := owners or fitting or bare:
        return found[0]
    raise FormatError(
        f"{path} names no model_type, and the tensors do not identify one. "
        f'Add "model_type": "..." to it, one of {", ".join(FAMILIES)}.'
    )


def _modules(family: Family, kind: str | None) -> set[str]:
    """Return the modules of a kind of head whose names are outside the encoder's prefix."""
    wanted, pooler = set(family.heads[kind].modules.values()), family.pooler_of(kind)
    if pooler is not None and not pooler.name.startswith(family.prefix):
        wanted.add(pooler.name)
    return wanted


def stated_class(raw: dict[str, Any], path: Path) -> str | None:
    """Return the first of `architectures` in config.json; None if it names no class."""
    names = raw.get("architectures")
    if not names:
        return None
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise FormatError(
            f"{path}: architectures is {short(names)}; it must be a list of one class name."
        )
    return names[0]


def declared_kinds(raw: dict[str, Any], family: Family, path: Path) -> tuple[str | None, ...]:
    """Return the kind of head of the first of `architectures`, in a tuple; () if unknown."""
    name = stated_class(raw, path)
    if name is None:
        return ()
    # Dialects of one family are often saved under each other's class names.
    prefixes = {other.class_prefix for other in FAMILIES.values() if other.prefix == family.prefix}
    name = name.removeprefix("TF").removeprefix("Flax").removeprefix(CAUSAL_CLASS)
    return tuple(
        kind
        for kind in family.heads
        if name in {prefix + family.class_suffix(kind) for prefix in prefixes}
    )


def _present(family: Family, found: Collection[str]) -> tuple[set[str], list[str | None]]:
    """Return the modules outside the encoder, and the kinds of heads that use most of them."""
    ties = [family.tied(kind) for kind in family.heads]
    names = {tied.get(name, name) for tied in ties for name in found}
    modules = {name.rpartition(".")[0] for name in names}
    outside = {name for name in modules if not name.startswith(family.prefix)}
    fitting = {
        kind: len(_modules(family, kind))
        for kind in family.heads
        if _modules(family, kind) <= outside
        and ((slot := family.required_pooler(kind)) is None or slot.name in modules)
    }
    most = max(fitting.values(), default=0)
    return outside, [kind for kind, count in fitting.items() if count == most]


def kind_of(
    raw: dict[str, Any], family: Family, found: Collection[str], path: Path, notes: list[str]
) -> str | None:
    """Return the kind of head that `architectures` names, or else the one that the tensors fit.

    `found` are the file's tensors by the family's names. A kind that is not the one in config.json
    is noted.

    Raises:
        FormatError: The tensors fit several kinds.
    """
    outside, best = _present(family, found)
    name, says = stated_class(raw, path), "config.json names no class"
    declared = declared_kinds(raw, family, path)
    if declared:
        kind, wanted = declared[0], _modules(family, declared[0])
        # Many checkpoints of 2019 name one of these two classes and hold the other's tensors.
        if (kind, best) in (("masked_lm", ["pretraining"]), ("pretraining", ["masked_lm"])):
            what = "also holds the" if kind == "masked_lm" else "has no"
            says = f"config.json says {name}, but the file {what} head for sentence pairs"
        # A file with a part of the head is damaged, and the missing tensors are to be named.
        elif not wanted or wanted & outside or len(best) != 1:
            return kind
        else:
            says = f"config.json says {name}, but the file has no tensor of its head"
    elif name is not None and name.endswith(_NEXT_TOKEN):
        says = f"config.json says {name}, and filbert has no head that predicts the next token"
    elif name is not None:
        says = f"config.json says {short(name)}, which filbert does not know"
    if len(best) != 1:
        listed = ", ".join(family.class_name(kind) for kind in best) or "none of the known heads"
        lacks = "has no architectures" if name is None else f"names the class {short(name)}"
        raise FormatError(
            f"{path} {lacks}, and the weights fit {listed}. "
            'Set "architectures": ["..."] to say which class they are of.'
        )
    notes.append(f"read as {family.class_name(best[0])}: {says}.")
    return best[0]
