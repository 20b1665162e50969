"""Which variable of a Google checkpoint is which tensor: compared before anything is read."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, FormatError, printable
from filbert.formats.checkpoint import meta_model
from filbert.formats.config_json import LABELLED, encoder_config
from filbert.formats.families import FAMILIES
from filbert.formats.google_config import (
    config_file,
    decide_gelu,
    inferred_raw,
    read_raw,
)
from filbert.formats.google_names import (
    PARTS,
    NameTable,
    is_transposed,
    name_table,
)
from filbert.formats.google_variables import Variables, float_dtype, variables_of
from filbert.formats.model_files import GOOGLE_CONFIGS
from filbert.formats.tensor_bundle import TensorBundle
from filbert.model.config import EncoderConfig

# Heads of a fine-tuning come before those of the pre-training that it began with.
_FINE_TUNED = ("spans", "sequence")


@dataclass
class Plan:
    """What to read.

    Attributes:
        family: bert, albert or electra.
        kind: of the head.
        config: of the encoder.
        raw: the configuration's content.
        table: the names in use.
        variables: of the checkpoint.
        sources: our tensor to the usual names of its parts; () for a projection that is the
            identity, which Google's code does not store.
        left_out: key in the file to the reason.
        notes: what was decided on the way.
    """

    family: str
    kind: str | None
    config: EncoderConfig
    raw: dict[str, Any]
    table: NameTable
    variables: Variables
    sources: dict[str, tuple[str, ...]]
    left_out: dict[str, str]
    notes: list[str] = field(default_factory=list)


def plan_reading(bundle: TensorBundle, *, hidden_act: str | None, part: str | None) -> Plan:
    """Match a checkpoint's variables with the model that its configuration describes.

    Args:
        bundle: opened; nothing is read but the object graph of TensorFlow 2.
        hidden_act: "gelu" or "gelu_tanh" to overrule what "gelu" usually means in this family.
        part: of ELECTRA's two models: "discriminator" or "generator".

    Raises:
        FormatError: a missing, unexpected or mis-shaped tensor, or anything wrong in the
            configuration.
        ConfigError: an option that does not fit the checkpoint.
    """
    index = Path(f"{bundle.prefix}.index")
    path = config_file(index.parent)
    raw = None if path is None else read_raw(path, "bert")
    is_albert = raw is not None and "num_hidden_groups" in raw
    variables = variables_of(bundle, is_albert=is_albert)
    notes = []
    if variables.object_based:
        notes.append("read as a TensorFlow 2 checkpoint of objects, by its variables' full names.")
    if variables.prefix:
        notes.append(f"read without the prefix {printable(variables.prefix)!r} of its names.")
    family, shapes = variables.family, variables.shapes
    table, both = _table(variables, part, index)
    if both and raw is not None and not _is_as_wide(raw, table, shapes):
        assert path is not None
        notes.append(f"{printable(path.name)} is not used: its hidden_size is not this part's.")
        path = None
    if path is not None:
        raw = read_raw(path, family)
        if family == "electra" and "embedding_size" not in raw:
            word = shapes.get(table.embeddings["word"][0], ())
            raw["embedding_size"] = word[-1] if word else 128
    elif family == "electra":
        raw = inferred_raw(shapes, table, index)
        notes.append(
            f"no configuration: {raw['num_hidden_layers']} layers, width {raw['hidden_size']} and "
            f"the other sizes are those of the tensors; {raw['num_attention_heads']} attention "
            "heads, as all of Google's have width 64; dropout 0.1."
        )
        path = index
    else:
        raise FormatError(
            f"{index.parent} has no {GOOGLE_CONFIGS[1 if family == 'albert' else 0]}; without it "
            "the number of attention heads is not known. Put the model's own beside the checkpoint."
        )
    assert raw is not None and path is not None
    raw = dict(raw)
    raw["hidden_act"], note = decide_gelu(raw, family, hidden_act, path)
    notes += [note] if note else []
    kind, left_heads = _kind(variables, family, table, raw)
    config = _config(raw, family, kind, table, variables, path)
    plan = Plan(family, kind, config, raw, table, variables, {}, dict(variables.left_out), notes)
    _match(plan, bundle, left_heads, (path, index))
    return plan


def _table(variables: Variables, part: str | None, index: Path) -> tuple[NameTable, bool]:
    """The names in use, and whether the file holds both of ELECTRA's models."""
    if part is not None and part not in PARTS:
        raise ConfigError(f"part {part!r} is not one of {', '.join(PARTS)}.")
    if variables.family != "electra":
        if part is not None:
            raise ConfigError(f"{index} is no ELECTRA; only those have a {part}.")
        return name_table(variables.family), False
    has = {
        "discriminator": any(name.startswith("electra/encoder/") for name in variables.found),
        "generator": any(name.startswith("generator/encoder/") for name in variables.found),
    }
    part = part or ("generator" if has == {"discriminator": False, "generator": True} else PARTS[0])
    if not has[part]:
        raise FormatError(f"{index} holds no {part}: there is no layer of it.")
    own = "generator/embeddings/word_embeddings" in variables.found
    return name_table("electra", generator=part == "generator", own_tables=own), all(has.values())


def _is_as_wide(raw: dict[str, Any], table: NameTable, shapes: dict[str, tuple[int, ...]]) -> bool:
    """Whether a configuration's layers are as wide as those of the part that is read."""
    kernel = shapes.get(f"{table.layer.format(0)}/{table.qkv[0]}/kernel", ())
    return raw.get("hidden_size") in kernel[:1]


def _kind(
    variables: Variables, family: str, table: NameTable, raw: dict[str, Any]
) -> tuple[str | None, dict[str, str]]:
    """The head kind of the tensors, and the reason for each head tensor that is left out."""
    shapes = variables.shapes
    width = raw.get("hidden_size")
    chosen: str | None = None
    reasons: dict[str, str] = {}
    for kind in table.heads:
        names = set(table.head_tensors(kind).values())
        present = names & shapes.keys()
        if chosen is not None or not present:
            continue
        slot = FAMILIES[family].heads[kind].pooler
        lacks_pooler = slot is not None and slot.required and f"{table.pooler}/kernel" not in shapes
        if present != names:
            reasons |= dict.fromkeys(present, "incomplete head")
        elif kind in _FINE_TUNED and not _is_linear(shapes, table.head_tensors(kind), kind, width):
            reasons |= dict.fromkeys(present, "head of another shape")
        elif lacks_pooler:
            reasons |= dict.fromkeys(present, "head over a pooler that is not there")
        else:
            chosen = kind
    used = set(table.head_tensors(chosen).values())
    return chosen, {name: reason for name, reason in reasons.items() if name not in used}


def _is_linear(
    shapes: dict[str, tuple[int, ...]], head: dict[str, str], kind: str | None, width: Any
) -> bool:
    weight, bias = shapes[head["head.out.weight"]], shapes[head["head.out.bias"]]
    outputs = weight[0] if weight else 0
    fits = weight == (outputs, width) and bias == (outputs,) and 1 <= outputs <= 1_000_000
    return fits and (kind != "spans" or outputs == 2)


def _config(
    raw: dict[str, Any],
    family: str,
    kind: str | None,
    table: NameTable,
    variables: Variables,
    path: Path,
) -> EncoderConfig:
    slot = FAMILIES[family].heads[kind].pooler
    has_pooler = slot is not None and f"{table.pooler}/kernel" in variables.found
    config = encoder_config(raw, FAMILIES[family], kind, has_pooler=has_pooler, path=path)
    layers, groups = config.num_hidden_layers, config.num_groups
    # Google computes the group in floating point too, but multiplies where Hugging Face divides.
    if any(int(i / layers * groups) != i * groups // layers for i in range(layers)):
        raise FormatError(
            f"{path}: {layers} layers in {groups} groups; use a number of groups that divides the "
            "layers."
        )
    for name, variable in variables.found.items():
        if variable.heads not in (None, config.num_attention_heads):
            raise FormatError(
                f"{path} says num_attention_heads {config.num_attention_heads}, but {name} has the "
                f"shape of {variable.heads} heads."
            )
    return config


def _match(
    plan: Plan, bundle: TensorBundle, left_heads: dict[str, str], paths: tuple[Path, Path]
) -> None:
    """Fill in `sources` and `left_out`, or say what does not fit."""
    config, kind, found = plan.config, plan.kind, plan.variables.found
    num_labels = None
    if kind in LABELLED:
        num_labels = found[plan.table.head_tensors(kind)["head.out.weight"]].shape[0]
    if config.num_groups > len(found):  # even an outline of so many layers takes its time
        raise FormatError(
            f"{paths[0]} describes {config.num_groups} layers, but {paths[1].name} holds only "
            f"{len(found)} tensors."
        )
    wanted: dict[str, tuple[int, ...]] = {}
    for ours, tensor in meta_model(config, kind, num_labels).state_dict().items():
        if _is_left_to_identity(ours, config, found, plan):
            plan.sources[ours] = ()
            continue
        theirs = plan.table.theirs(ours, kind)
        part = (tensor.shape[0] // len(theirs), *tensor.shape[1:])
        wanted |= {name: part[::-1] if is_transposed(name) else part for name in theirs}
        plan.sources[ours] = theirs
    missing = wanted.keys() - found.keys()
    unexpected = set()
    for name in found.keys() - wanted.keys():
        key = found[name].key
        if plan.table.pooler is not None and name.startswith(f"{plan.table.pooler}/"):
            plan.left_out[key] = "pooler, which this head does not read"
        elif name.startswith(plan.table.scopes):
            unexpected.add(key)
        elif name.split("/")[0] in ("electra", "generator", *(f"{p}_predictions" for p in PARTS)):
            other = PARTS[plan.table.scopes == ("electra/",)]
            plan.left_out[key] = f"of the {other} (--part {other})"
        else:
            plan.left_out[key] = left_heads.get(name, "head, or other variable outside the encoder")
    _refuse(plan, missing, unexpected, paths)
    for name, expected in wanted.items():
        if found[name].shape != expected:
            raise FormatError(
                f"{paths[1]}: {printable(found[name].key, 120)} has shape "
                f"{bundle.shapes[found[name].key]}; {paths[0].name} asks for {expected}."
            )
        if (dtype := float_dtype(bundle, found[name].key)) is not None:
            raise FormatError(
                f"{paths[1]}: {printable(found[name].key, 120)} has dtype {dtype}; only floating "
                "point can be read."
            )


def _is_left_to_identity(
    ours: str, config: EncoderConfig, found: Collection[str], plan: Plan
) -> bool:
    """Whether this is a projection between equal widths, which Google's code leaves out."""
    return (
        ours.startswith("encoder.embeddings.project.")
        and config.embedding_size == config.hidden_size
        and plan.table.theirs(ours, plan.kind)[0] not in found
    )


def _refuse(
    plan: Plan, missing: Collection[str], unexpected: Collection[str], paths: tuple[Path, Path]
) -> None:
    if not missing and not unexpected:
        return
    before, after = (re.escape(part) for part in plan.table.layer.split("{}"))
    layers = {
        int(match[1]): variable.key
        for name, variable in sorted(plan.variables.found.items())
        if (match := re.match(rf"{before}(\d{{1,9}}){after}/", name))
    }
    if layers and max(layers) + 1 != plan.config.num_groups:
        groups = "num_hidden_groups" in FAMILIES[plan.family].keys
        raise FormatError(
            f"{paths[0]} says num_hidden_{'groups' if groups else 'layers'} "
            f"{plan.config.num_groups}, but {paths[1].name} holds {max(layers) + 1}, the last with "
            f"{printable(layers[max(layers)], 120)}."
        )
    parts = [f"{len(missing)} missing ({_listed(missing)})"] if missing else []
    parts += [f"{len(unexpected)} unexpected ({_listed(unexpected)})"] if unexpected else []
    raise FormatError(
        f"{paths[1]} does not hold the tensors of the model that {paths[0].name} describes: "
        f"{', '.join(parts)}."
    )


def _listed(names: Collection[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(printable(name, 120) for name in sorted(names)[:3]) + more
