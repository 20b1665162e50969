"""Reads and writes low-rank adapters in PEFT's layout, and merges them into their base.

An adapter is a folder with adapter_config.json and adapter_model.safetensors. Its tensors are two
narrow matrices for each adapted one, and the modules that were trained whole, such as the head.
Source: PEFT 0.19, tuners/lora/config.py and utils/save_and_load.py.

R rank, K width in, N width out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from reprlib import repr as short
from typing import Any

from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.config_json import LABELLED, check_expressible, family_of, label_names
from filbert.checkpoints.families import ADAPTER_CONFIG, ADAPTER_FILES, FAMILIES, Family
from filbert.checkpoints.huggingface import (
    Layout,
    canonical_names,
    check_digests,
    read_weights,
    stored_record,
)
from filbert.checkpoints.sentence_transformers import ModelFolder
from filbert.checkpoints.weights import Stored, Weights, open_weights, save_tensors, weight_files
from filbert.errors import ConfigError, FormatError, printable, unreadable_as
from filbert.files import read_json, write_json
from filbert.model.encoder import DENSE
from filbert.model.low_rank import SCALE

# What `write` writes.
FILES = (ADAPTER_CONFIG, ADAPTER_FILES[0])
# Keys of adapter_config.json, and the values with which merging is W + scale B A.
_MUST: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    # Other methods change the base before they train.
    "init_lora_weights": (True, False, "gaussian", "orthogonal", None),
    **dict.fromkeys(("use_dora", "use_qalora", "lora_bias"), (False, None)),
    **dict.fromkeys(("rank_pattern", "alpha_pattern"), ({}, None)),
    **dict.fromkeys(("layer_replication", "trainable_token_indices"), (None, [])),
    **dict.fromkeys(("target_parameters", "arrow_config"), (None, [])),
}
# PEFT's `task_type`, and kinds of heads. It has none for multiple choice.
_TASK_TYPES: dict[str, str | None] = {
    "SEQ_CLS": "sequence",
    "TOKEN_CLS": "tokens",
    "QUESTION_ANS": "spans",
    "FEATURE_EXTRACTION": None,
}
_PREFIX = "base_model.model."
_NARROW = re.compile(r"(.+)\.lora_(A|B)\.weight")


@unreadable_as(FormatError)
def read(place: ModelFolder) -> Checkpoint:
    """Read an adapter, merged into its base.

    Args:
        place: As `open_folder` returns it. Without a config.json in the adapter's folder, that of
            the base describes the encoder, and `task_type` the head.

    Raises:
        FormatError: An adapter of another kind, one that does not fit its base, or a damaged file.
    """
    folder, base = place.path, place.base
    assert base is not None
    settings = read_json(folder / ADAPTER_CONFIG)
    scale = _scale(settings, folder / ADAPTER_CONFIG)
    filbert, _ = stored_record(folder), stored_record(base.encoder)
    if isinstance(known := (filbert or {}).get("base_model"), dict):
        # Of the base at the time of training.
        check_digests(base.encoder, known, weight_files(base.encoder))
    raw, config_path = place.described.config, place.described.encoder / "config.json"
    if raw is None:
        raise FormatError(f"{base.encoder} is no model: no config.json.")
    weights = open_weights(base.encoder)
    family = family_of(raw, weights.tensors, config_path, [])
    is_turned = settings.get("fan_in_fan_out") is True
    weights, own = _merged(weights, open_weights(folder), family, scale, is_turned=is_turned)
    if place.config is None:
        raw = _with_head(raw, settings, family, weights.shapes, config_path)
    checkpoint = read_weights(raw, weights, config_path=config_path, filbert=filbert)
    kind = checkpoint.head
    used = {theirs for ours in checkpoint.tensors for theirs in family.theirs(ours, kind)}
    if lost := sorted(own - used):
        raise FormatError(
            f"{weights.path}: {printable(lost[0])} has no place in a {family.class_name(kind)}. "
            f"Set task_type in {ADAPTER_CONFIG}, one of {', '.join(_TASK_TYPES)}."
        )
    note = f"adapter of rank {settings['r']}, merged into {settings['base_model_name_or_path']}."
    return replace(checkpoint, notes=(*checkpoint.notes, note))


def _scale(settings: dict[str, Any], path: Path) -> float:
    """Return the factor of B A."""
    check_expressible({"peft_type": None, **settings}, _MUST, path)
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if not isinstance(rank, int) or not isinstance(alpha, int | float) or rank < 1:
        raise FormatError(f"{path}: r is {short(rank)}, lora_alpha {short(alpha)}; give numbers.")
    return alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)


def _merged(
    base: Weights, adapter: Weights, family: Family, scale: float, *, is_turned: bool
) -> tuple[Weights, set[str]]:
    """Return the base's tensors with the adapter's in them, and names of those that it replaces.

    If `is_turned`, the base's matrices are stored as (inputs, outputs).
    """
    path = adapter.path
    shapes, files = base.shapes, canonical_names(base.tensors, family, path)
    narrow: dict[str, dict[str, str]] = {}
    own: dict[str, str] = {}
    for name in adapter.tensors:
        theirs = name.removeprefix(_PREFIX)
        match = _NARROW.fullmatch(theirs)
        if theirs == name or (match is None and "lora_" in name):
            raise FormatError(f"{path}: {printable(name)} is no tensor of a LoRA of dense layers.")
        theirs = f"{match[1]}.weight" if match else theirs
        ours = next(iter(canonical_names([theirs], family, path)), theirs)
        if match:
            narrow.setdefault(files.get(ours, ours), {})[match[2]] = name
        else:
            own[ours] = name
    replaced = {files.get(ours, ours): name for ours, name in own.items()}
    for name, pair in narrow.items():
        factors = [adapter.tensors[pair[part]].shape if part in pair else () for part in "BA"]
        wanted = shapes.get(name, ())
        product = (*factors[0][:1], *factors[1][1:])
        fits = len(wanted) == 2 and product == (wanted[::-1] if is_turned else wanted)
        if not fits or factors[0][1:] != factors[1][:1]:
            raise FormatError(
                f"{path}: its matrices for {printable(name)} have shapes {short(factors)}, which "
                f"do not fit that of the base, {short(wanted)}. Is it the adapter of another model?"
            )

    def added(name: str) -> Tensor:
        b_NR, a_RK = (adapter.read(narrow[name][part]).float() for part in "BA")
        product = scale * (b_NR @ a_RK)
        return base.read(name).float() + (product.T if is_turned else product)

    tensors = dict(base.tensors)
    for name in narrow:
        tensors[name] = Stored(tensors[name].shape, "F32", path, partial(added, name))
    tensors |= {name: adapter.tensors[theirs] for name, theirs in replaced.items()}
    return Weights(path, tensors), set(own)


def _with_head(
    raw: dict[str, Any],
    settings: dict[str, Any],
    family: Family,
    shapes: Mapping[str, tuple[int, ...]],
    path: Path,
) -> dict[str, Any]:
    """Return the base's config.json with the adapter's class, and without labels of other heads."""
    task_type = settings.get("task_type")
    if task_type not in _TASK_TYPES:
        return raw
    kind = _TASK_TYPES[task_type]
    if kind not in family.heads:
        raise FormatError(f"{path}: a {family.model_type} has no head for task_type {task_type}.")
    raw = {**raw, "architectures": [family.class_name(kind)]}
    if kind in LABELLED:
        outputs = shapes.get(f"{family.heads[kind].modules['head.out']}.weight", ())
        if outputs[:1] != (len(label_names(raw, path) or ()),):
            names = ("id2label", "label2id", "num_labels", "problem_type")
            raw = {key: value for key, value in raw.items() if key not in names}
    return raw


# Writing.


def rows_of_parts(checkpoint: Checkpoint, layer: str, num_rows: int) -> list[int]:
    """Return the rows of each matrix that a file has for a dense layer of the model."""
    family = FAMILIES[checkpoint.family]
    count = len(family.theirs(f"encoder.layers.0.{layer}.weight", checkpoint.head))
    return Layout(family, checkpoint.config).rows(num_rows, count)


def check_base(checkpoint: Checkpoint) -> None:
    """Check that a model can be the base of an adapter.

    Raises:
        ConfigError: It is not in Hugging Face's layout, itself an adapter, or without dense layers
            of its own in transformers.
    """
    family = FAMILIES[checkpoint.family]
    if family.whole_names or not checkpoint.config.num_hidden_layers:
        raise ConfigError(f"lora: PEFT has no adapters for the matrices of {family.model_type}.")
    try:
        assert checkpoint.source is not None
        is_whole = weight_files(checkpoint.source)[0].name not in ADAPTER_FILES
    except FormatError:  # a TensorFlow checkpoint
        is_whole = False
    if not is_whole:
        raise ConfigError(
            f"lora: {checkpoint.source} is not a whole model in Hugging Face's layout, as an "
            "adapter needs. Convert it first: filbert convert SRC DST --to huggingface"
        )


def write(
    folder: Path, checkpoint: Checkpoint, trained: Mapping[str, Tensor], *, rank: int, name: str
) -> None:
    """Write adapter_config.json and adapter_model.safetensors.

    Args:
        trained: The tensors that learned, by the names of Model.state_dict().
        name: The base as the user named it.
    """
    family, kind = FAMILIES[checkpoint.family], checkpoint.head
    layout = Layout(family, checkpoint.config)
    tensors: dict[str, Tensor] = {}
    whole: set[str] = set()
    for ours, tensor in trained.items():
        module, _, leaf = ours.rpartition(".")
        is_narrow = leaf in ("lora_A", "lora_B")
        names = family.theirs(f"{module}.weight" if is_narrow else ours, kind)
        count = len(names)
        parts = list(tensor.chunk(count)) if leaf == "lora_A" else layout.split(ours, tensor, count)
        for theirs, part in zip(names, parts, strict=True):
            if is_narrow:
                theirs = f"{theirs.removesuffix('weight')}{leaf}.weight"
            else:
                whole.add(_child(theirs, family))
            bare = theirs.removeprefix(family.prefix) if kind is None else theirs
            # safetensors refuses tensors that share memory.
            tensors[_PREFIX + bare] = part.detach().cpu().clone()
    # A local folder is found from everywhere by its absolute path; "@" precedes a revision.
    base, _, revision = name.partition("@")
    if Path(name).expanduser().exists():
        base, revision = str((checkpoint.source or Path(name)).absolute()), ""
    task_types = [task for task, its_kind in _TASK_TYPES.items() if its_kind == kind]
    settings = {
        "peft_type": "LORA",
        "task_type": task_types[0] if task_types else None,
        "base_model_name_or_path": base,
        "revision": revision or None,
        "r": rank,
        "lora_alpha": int(SCALE * rank),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": family.forms.get("qkv") == "transposed",
        "target_modules": _targets(family, kind),
        "modules_to_save": sorted(whole) or None,
        "inference_mode": True,
    }
    write_json(folder / ADAPTER_CONFIG, settings)
    save_tensors(tensors, folder / ADAPTER_FILES[0])


def _child(theirs: str, family: Family) -> str:
    """Return the module that PEFT keeps whole: a child of the model, or of the encoder (pooler)."""
    rest = theirs.removeprefix(family.prefix)
    return theirs[: len(theirs) - len(rest)] + rest.partition(".")[0]


def _targets(family: Family, kind: str | None) -> list[str]:
    """Return the ends of the names of adapted modules."""
    names = [n for part in DENSE for n in family.theirs(f"encoder.layers.0.{part}.weight", kind)]
    layer = f"{family.prefix}{family.layer.format(0)}."
    return [name.removeprefix(layer).removesuffix(".weight") for name in names]
