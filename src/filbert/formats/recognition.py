"""What a folder holds when its config.json does not say, or says what the tensors do not bear out.

The tensors decide: they are what will be computed with. Every such decision is a note.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from reprlib import repr as short
from typing import Any

from filbert.errors import FormatError
from filbert.formats.config_json import check_expressible
from filbert.formats.families import FAMILIES
from filbert.formats.layouts import CAUSAL_CLASS, CAUSAL_TYPE, REQUIRED, Family, HeadLayout

# Encoders that people take for relatives of this family, and what filbert's encoder has not.
_NO_RELATIVES = {
    "mpnet": "adds relative position biases inside attention",
    "deberta": "has attention over relative positions",
    "deberta-v2": "has attention over relative positions",
    "big_bird": "has sparse attention over blocks",
    "longformer": "has attention over windows, with further weights for global tokens",
    "xlnet": "reads in permuted orders, with relative positions",
    "t5": "has relative position biases and a decoder",
    "gpt2": "is a decoder, which reads from left to right",
    "nystromformer": "approximates attention by landmarks",
    "convbert": "has convolutions inside attention",
    "mobilebert": "has bottlenecks around every layer",
    "funnel": "shortens the sequence between its layers",
    "ernie": "adds a table of task types to its embeddings",
}


def named_family(raw: dict[str, Any], path: Path) -> Family | None:
    """The family that config.json names in `model_type`, None when it names none.

    Raises:
        FormatError: it names one that filbert does not read, or a setting that the encoder cannot
            express.
    """
    if "model_type" not in raw:
        return None
    model_type = raw["model_type"]
    name = model_type.removeprefix(CAUSAL_TYPE) if isinstance(model_type, str) else ""
    family = FAMILIES.get(name)
    if family is None:
        raise FormatError(_unknown(model_type, path))
    check_expressible(raw, family.must, path)
    return family


def family_of(raw: dict[str, Any], names: Collection[str], path: Path, notes: list[str]) -> Family:
    """The family of `model_type`, else the one whose tensors these are.

    Args:
        raw: content of config.json.
        names: of the file's tensors.
        path: of config.json, for messages.
        notes: gets a sentence when the tensors had to decide.

    Raises:
        FormatError: as `named_family`, or tensors that belong to another family or to several.
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
    owners = _by_prefix(names)
    if owners and not _owns(names, family):
        raise FormatError(
            f"{path} says model_type {short(family.model_type)}, but the tensors beside it are "
            f"those of {owners[0].model_type}. Correct model_type."
        )
    return family


def _unknown(model_type: Any, path: Path) -> str:
    text = f"{path} names model_type {short(model_type)}; filbert reads {', '.join(FAMILIES)}."
    reason = _NO_RELATIVES.get(model_type) if isinstance(model_type, str) else None
    if reason is not None:
        text += f" This one {reason}, so it is no BERT-family encoder that filbert can express."
    return text


def _named(raw: dict[str, Any]) -> list[Family]:
    """The family of the first class in `architectures`, the longest of the prefixes that fit."""
    names = raw.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        return []
    fitting = [f for f in FAMILIES.values() if names[0].startswith(f.class_prefix)]
    return sorted(fitting, key=lambda family: -len(family.class_prefix))[:1]


def _by_prefix(names: Collection[str]) -> list[Family]:
    """Families with a tensor of theirs, prefix and all; dialects share theirs."""
    return [
        family
        for family in FAMILIES.values()
        if f"{family.embeddings['word']}.weight" in names
        and any(name.startswith(family.layer.format(0)) for name in names)
    ]


def _owns(names: Collection[str], family: Family) -> bool:
    """Whether the file holds the family's word table, with or without its prefix."""
    table = f"{family.embeddings['word']}.weight"
    return table in names or table.removeprefix(family.prefix) in names


def _inferred(raw: dict[str, Any], names: Collection[str], path: Path) -> Family:
    owners = _by_prefix(names)
    named = _named(raw)
    if named and (_owns(names, named[0]) or named[0].prefix in {f.prefix for f in owners}):
        return named[0]
    if owners:
        return owners[0]
    # Names without a prefix: the families' layers differ, but a few are called alike.
    bare = [
        family
        for family in FAMILIES.values()
        if _owns(names, family)
        and any(
            name.startswith(family.layer.format(0).removeprefix(family.prefix)) for name in names
        )
        and all(key in raw for key, default in family.keys.values() if default is REQUIRED)
    ]
    distinct = {family.prefix: family for family in reversed(bare)}
    if len(distinct) > 1:
        # Those that project their tables have a tensor that the others lack; those that count
        # positions from the padding id have one token type.
        projects = [f for f in distinct.values() if _has_projection(names, f)]
        plain = [f for f in distinct.values() if "embedding_size" not in f.keys]
        offset = raw.get("type_vocab_size") == 1
        plain = [f for f in plain if f.offset_by_pad == offset]
        distinct = {f.prefix: f for f in (projects or plain)}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    raise FormatError(
        f'{path} names no model_type, and the tensors do not tell one. Add "model_type": "..." to '
        f"it, one of {', '.join(FAMILIES)}."
    )


def _has_projection(names: Collection[str], family: Family) -> bool:
    module = family.embeddings.get("project")
    return module is not None and f"{module}.weight".removeprefix(family.prefix) in names


def _modules(head: HeadLayout, family: Family) -> set[str]:
    """The modules of a head that lie outside the encoder's names."""
    wanted = set(head.modules.values())
    if head.pooler is not None and not head.pooler.name.startswith(family.prefix):
        wanted.add(head.pooler.name)
    return wanted


def _declared(raw: dict[str, Any], family: Family, path: Path) -> tuple[str | None, ...]:
    """The head kind of the first of `architectures`; empty for none or one that is not known."""
    names = raw.get("architectures")
    if not names:
        return ()
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise FormatError(
            f"{path}: architectures is {short(names)}; it must be a list of one class name."
        )
    # Dialects of one family are often saved under each other's class names.
    prefixes = {other.class_prefix for other in FAMILIES.values() if other.prefix == family.prefix}
    name = names[0].removeprefix("TF").removeprefix("Flax").removeprefix(CAUSAL_CLASS)
    return tuple(
        kind
        for kind, head in family.heads.items()
        if name in {prefix + head.suffix for prefix in prefixes}
    )


def _present(family: Family, found: Collection[str]) -> tuple[set[str], list[str | None]]:
    """The modules outside the encoder, and the head kinds that take up the most of them."""
    names = {head.tied.get(name, name) for head in family.heads.values() for name in found}
    modules = {name.rpartition(".")[0] for name in names}
    outside = {name for name in modules if not name.startswith(family.prefix)}
    fitting = {
        kind: len(_modules(head, family))
        for kind, head in family.heads.items()
        if _modules(head, family) <= outside
        and (head.pooler is None or not head.pooler.required or head.pooler.name in modules)
    }
    most = max(fitting.values(), default=0)
    return outside, [kind for kind, count in fitting.items() if count == most]


def kind_of(
    raw: dict[str, Any], family: Family, found: Collection[str], path: Path, notes: list[str]
) -> str | None:
    """The head kind: the one `architectures` names if its tensors are there, else what is there.

    Args:
        raw: content of config.json.
        family: of `raw`.
        found: the file's tensors by the table's names.
        path: of config.json, for messages.
        notes: gets a sentence when it is not what config.json says.

    Raises:
        FormatError: the tensors do not tell one kind from another.
    """
    outside, best = _present(family, found)
    declared = _declared(raw, family, path)
    name = raw["architectures"][0] if raw.get("architectures") else None
    says = "config.json names no class"
    for kind in declared:
        # The one mix-up that is the rule rather than the exception, in the oldest checkpoints.
        if (kind, best) == ("masked_lm", ["pretraining"]):
            says = f"config.json says {name}, but the file also holds the head for sentence pairs"
            break
        if (kind, best) == ("pretraining", ["masked_lm"]):
            says = f"config.json says {name}, but the file has no head for sentence pairs"
            break
        wanted = _modules(family.heads[kind], family)
        # A part of a head is a damaged file; what is missing is to be named.
        if not wanted or wanted & outside or len(best) != 1:
            return kind
        says = f"config.json says {name}, but the file has no tensor of its head"
    if name is not None and not declared:
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
