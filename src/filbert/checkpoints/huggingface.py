"""The Hugging Face folder: config.json and model.safetensors; strict to read, atomic to write."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as short
from typing import Any

import torch
from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint, meta_model
from filbert.checkpoints.config_json import (
    LABELLED,
    check_head,
    config_values,
    encoder_config,
    family_of,
    kind_of,
    label_names,
    named_family,
    problem_type,
    stated_causal,
    unprintable,
)
from filbert.checkpoints.families import FAMILIES, Family
from filbert.checkpoints.sentence_transformers import ModelFolder, opened
from filbert.checkpoints.weights import (
    MAX_SHARD_BYTES,
    open_weights,
    remove_others,
    save_tensors,
    weight_files,
)
from filbert.errors import ConfigError, FormatError, printable, unreadable_as
from filbert.files import MAX_JSON_BYTES, read_json, replace_files, sha256_of
from filbert.model.config import EncoderConfig
from filbert.text.tokenizer import Tokenizer

_BUFFERS = re.compile(r"(.*\.)?embeddings\.(position_ids|token_type_ids)")
_LEGACY = {"gamma": "weight", "beta": "bias"}

# EncoderConfig's field behind each axis of a module's weight; hidden_size where nothing is said.
_AXES = {
    "embeddings.word": ("vocab_size", "embedding_size"),
    "embeddings.position": ("max_position_embeddings", "embedding_size"),
    "embeddings.token_type": ("type_vocab_size", "embedding_size"),
    "embeddings.norm": ("embedding_size",),
    "embeddings.project": ("hidden_size", "embedding_size"),
    "up": ("intermediate_size", "hidden_size"),
    "down": ("hidden_size", "intermediate_size"),
    "head": ("vocab_size",),
    "head.masked_lm": ("vocab_size",),
    "transform": ("embedding_size", "hidden_size"),
    "head.norm": ("embedding_size",),
    "masked_lm.norm": ("embedding_size",),
    "head.out": ("id2label", "hidden_size"),
}


@dataclass
class Plan:
    """What to read from a file whose names and shapes fit its config.

    Attributes:
        kind: of the head.
        config: of the encoder.
        sources: our tensor to the file's names of its parts, in the order in which they are joined.
        repeats: the file's names that must equal another of its tensors.
        num_labels: outputs of the heads that have labels; None for the others.
        notes: what was left out or read otherwise than config.json says.
    """

    kind: str | None
    config: EncoderConfig
    sources: dict[str, tuple[str, ...]]
    repeats: dict[str, str]
    num_labels: int | None = None
    notes: list[str] = field(default_factory=list)


def _canonical(names: Collection[str], family: Family, path: Path) -> dict[str, str]:
    """The table's names to the file's: prefix added, LayerNorm's old names renewed."""
    bare = family.heads[None].pooler
    encoder = [*family.embeddings.values(), family.layer, *([bare.name] if bare else [])]
    encoder += [family.final_norm] if family.final_norm else []
    roots = {name.removeprefix(family.prefix).partition(".")[0] for name in encoder}
    found: dict[str, str] = {}
    for name in names:
        if _BUFFERS.fullmatch(name):
            continue
        module, _, leaf = name.rpartition(".")
        canonical = f"{module}.{_LEGACY.get(leaf, leaf)}"
        if canonical.partition(".")[0] in roots:
            canonical = family.prefix + canonical
        if canonical in found:
            raise FormatError(
                f"{path}: {printable(found[canonical])} and {printable(name)} are the same tensor "
                "under two names."
            )
        found[canonical] = name
    return found


def _split_tied(found: dict[str, str], tied: Mapping[str, str]) -> dict[str, str]:
    """Take tensors that repeat another out of `found`; the file's names of the pairs."""
    repeats = {}
    for repeated, original in tied.items():
        if repeated in found and original in found:
            repeats[found.pop(repeated)] = found[original]
        elif repeated in found:
            found[original] = found.pop(repeated)
    return repeats


def _listed(names: Collection[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(printable(name) for name in sorted(names)[:3]) + more


def _check_layers(
    found: Mapping[str, str], family: Family, config: EncoderConfig, paths: tuple[Path, Path]
) -> None:
    """Say it plainly when the file simply has another number of layers than config.json."""
    before, after = (re.escape(part) for part in family.layer.split("{}"))
    layers = {
        int(match[1]): name
        for name in sorted(found)
        if (match := re.match(rf"{before}(\d{{1,9}}){after}\.", name))
    }
    if layers and max(layers) + 1 != config.num_groups:
        last = max(layers)
        field_ = "num_hidden_groups" if "num_hidden_groups" in family.keys else "num_hidden_layers"
        raise FormatError(
            f"{paths[0]} says {family.keys[field_][0]} {config.num_groups}, but {paths[1].name} "
            f"holds {last + 1}, the last with {printable(found[layers[last]])}."
        )


def _outputs(module: str, found: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> int:
    """How many labels the weights of a head have, where config.json does not say."""
    shape = shapes.get(found.get(f"{module}.weight", ""), ())
    return shape[0] if len(shape) == 2 and 1 <= shape[0] <= 1_000_000 else 2


def _check_shape(
    ours: str,
    theirs: str,
    expected: tuple[int, ...],
    actual: tuple[int, ...],
    family: Family,
    config: EncoderConfig,
    kind: str | None,
    paths: tuple[Path, Path],
) -> None:
    if expected == actual:
        return
    field_ = None
    if len(expected) == len(actual):
        axis = next(i for i, size in enumerate(expected) if size != actual[i])
        module = ours.rpartition(".")[0]
        fields = next(
            (axes for end, axes in _AXES.items() if module == end or module.endswith(f".{end}")),
            ("hidden_size",) * 2,
        )
        field_ = fields[axis]
        if field_ == "embedding_size" and "embedding_size" not in family.keys:
            field_ = "hidden_size"
        if field_ == "id2label" and kind not in LABELLED:
            field_ = None
    if field_ is None:
        raise FormatError(
            f"{paths[1]}: {theirs} has shape {short(actual)}; {paths[0].name} asks for {expected}."
        )
    size = expected[axis]
    if config.gated and field_ == "intermediate_size" and module.endswith(".up"):
        size //= 2
    key = "id2label" if field_ == "id2label" else family.keys[field_][0]
    value = f"{size} labels (id2label)" if key == "id2label" else f"{key} {size}"
    raise FormatError(
        f"{paths[0]} says {value}, but {theirs} in {paths[1].name} has shape {actual} instead of "
        f"{expected}."
    )


def plan_reading(
    raw: dict[str, Any],
    family: Family,
    shapes: Mapping[str, tuple[int, ...]],
    num_labels: int | None,
    *,
    paths: tuple[Path, Path],
) -> Plan:
    """Match a file's tensors with the model that config.json describes.

    Args:
        raw: content of config.json.
        family: of `raw`.
        shapes: of the file's tensors, by the file's names.
        num_labels: that config.json names, for heads that have labels; None if it names none, and
            the weights tell.
        paths: config.json and the file, for messages.

    Raises:
        FormatError: a missing or mis-shaped tensor, one that the encoder does not have, or anything
            wrong in config.json. What lies outside of the encoder and is of no use is left out,
            with a note.
    """
    notes: list[str] = []
    found = _canonical(shapes, family, paths[1])
    kind = kind_of(raw, family, found, paths[0], notes)
    head = family.heads[kind]
    repeats = _split_tied(found, head.tied)
    slot, bare = head.pooler, family.heads[None].pooler
    adjective = ""
    if slot is not None and not slot.required and stated_causal(raw, family):
        # Over the first token, which sees no other.
        slot, adjective = None, "causal "
    if bare is not None and (slot is None or slot.name != bare.name):
        stale = [name for name in found if name.rpartition(".")[0] == bare.name]
        for name in stale:
            del found[name]
        if stale:
            notes.append(
                f"pooler left out: the file's {bare.name} is not used by a "
                f"{adjective}{family.class_name(kind)}."
            )
    present = slot is not None and any(name.rpartition(".")[0] == slot.name for name in found)
    has_pooler = slot is not None and (present or slot.required)
    config = encoder_config(raw, family, kind, has_pooler=has_pooler, path=paths[0])

    count = None
    if kind in LABELLED:
        count = (
            _outputs(head.modules["head.out"], found, shapes) if num_labels is None else num_labels
        )
    if config.num_groups > len(found):  # even an outline of so many layers takes its time
        _check_layers(found, family, config, paths)
        raise FormatError(
            f"{paths[0]} describes {config.num_groups} layers, but {paths[1].name} holds only "
            f"{len(found)} tensors."
        )
    model = meta_model(config, kind, count)
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {}
    sources = {}
    for ours, tensor in model.state_dict().items():
        theirs = family.theirs(ours, kind)
        part = (tensor.shape[0] // len(theirs), *tensor.shape[1:])
        wanted |= {name: (ours, part) for name in theirs}
        sources[ours] = theirs
    missing, unexpected = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    outside = {name for name in unexpected if not name.startswith(family.prefix)}
    if not missing and outside == unexpected and outside:
        listed = _listed([found[name] for name in outside])
        number = "1 tensor" if len(outside) == 1 else f"{len(outside)} tensors"
        notes.append(
            f"left out: {number} for which a {family.class_name(kind)} has no place ({listed})."
        )
        unexpected = set()
    if missing or unexpected:
        _check_layers(found, family, config, paths)
        parts = [f"{len(missing)} missing ({_listed(missing)})"] if missing else []
        if unexpected:
            listed = _listed([found[name] for name in unexpected])
            parts.append(f"{len(unexpected)} unexpected ({listed})")
        raise FormatError(
            f"{paths[1]} does not hold the tensors of the {family.class_name(kind)} that "
            f"{paths[0].name} describes: {', '.join(parts)}."
        )
    for name, (ours, expected) in wanted.items():
        actual = shapes[found[name]]
        _check_shape(ours, found[name], expected, actual, family, config, kind, paths)
    for key, field_ in family.repeated.items():
        if key in raw and raw[key] != getattr(config, field_):
            notes.append(
                f"{key} {short(raw[key])} left out: {family.keys[field_][0]} "
                f"{getattr(config, field_)} serves for both."
            )
    file_names = {ours: tuple(found[name] for name in theirs) for ours, theirs in sources.items()}
    return Plan(kind, config, file_names, repeats, count, notes)


# Entries of config.json that say nothing about the encoder, but other tools' tokenizers need them.
_TOKENIZER_KEYS = (
    "pad_token_id",
    "bos_token_id",
    "cls_token_id",
    "eos_token_id",
    "sep_token_id",
    "mask_token_id",
    "tokenizer_class",
)


@unreadable_as(FormatError)
def read(place: Path | ModelFolder) -> Checkpoint:
    """The checkpoint in a folder; every tensor has its place, and every place its tensor.

    Nothing is allocated before the names and shapes in the files' headers fit config.json.

    Raises:
        FormatError: no model, a damaged or unreadable file, a file that is not the one
            filbert.json lists, weights that do not fit config.json, values that are not finite, or
            something the encoder cannot express.
    """
    place = opened(place)
    folder = place.encoder
    config_path = folder / "config.json"
    if not config_path.is_file():
        found = sorted(path.name for path in folder.iterdir())[:8] if folder.is_dir() else []
        raise FormatError(
            f"{folder} is no model: no config.json (found: {', '.join(found) or 'nothing'}). "
            "Name the folder that holds one."
        )
    filbert = read_json(folder / "filbert.json") if (folder / "filbert.json").is_file() else None
    if filbert is not None:
        check_digests(folder, filbert, [config_path, *weight_files(folder)])
    raw = place.config
    assert raw is not None
    named_family(raw, config_path)  # before the weights: what it refuses may have none that open
    weights = open_weights(folder)
    notes: list[str] = []
    family = family_of(raw, weights.shapes, config_path, notes)
    labels = label_names(raw, config_path)
    plan = plan_reading(
        raw,
        family,
        weights.shapes,
        None if labels is None else len(labels),
        paths=(config_path, weight_files(folder)[0]),
    )
    if plan.kind in LABELLED and labels is None:
        labels = tuple(f"LABEL_{i}" for i in range(plan.num_labels or 0))
        if len(labels) != 2:  # two without names are what transformers means by saying nothing
            notes.append(f"{len(labels)} labels without names: config.json says nothing of them.")

    tensors: dict[str, Tensor] = {}
    for ours, theirs in plan.sources.items():
        parts = [weights.read(name) for name in theirs]
        tensors[ours] = parts[0] if len(parts) == 1 else torch.cat(parts)
    for repeated, original in plan.repeats.items():
        if not torch.equal(weights.read(repeated), weights.read(original)):
            raise FormatError(
                f"{weights.files[repeated]}: {printable(repeated, 120)} differs from "
                f"{printable(original, 120)}; filbert shares "
                "the two, as the families' own checkpoints do."
            )
    return Checkpoint(
        config=plan.config,
        family=family.model_type,
        tensors=tensors,
        head=plan.kind,
        labels=labels if plan.kind in LABELLED else None,
        problem_type=problem_type(raw, config_path),
        source=folder,
        notes=(*notes, *plan.notes),
        filbert=filbert,
        extra={key: raw[key] for key in _TOKENIZER_KEYS if key in raw},
    )


def write(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    extra: Mapping[str, Any] | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> dict[str, str]:
    """Write config.json and model.safetensors into a folder; other files there stay.

    All files are whole on the disk before any is put in place. A writer of filbert.json should
    list the result there as files[name]["sha256"], and `read` will compare.

    Args:
        checkpoint: its tensors keep their dtype.
        folder: made when missing.
        extra: further entries for config.json, such as the tokenizer's `pad_token_id`.
        max_shard_bytes: a model with more gets several files and an index of them.

    Returns:
        SHA-256 by file name.

    Raises:
        ConfigError: the family's layout cannot say what the checkpoint is.
        InputError: the disk is full, or the folder may not be written to; the old files are as
            they were.
    """
    family, kind = FAMILIES[checkpoint.family], checkpoint.head
    config = config_text(checkpoint, extra)
    tensors = {}
    for ours, tensor in checkpoint.tensors.items():
        theirs = family.theirs(ours, kind)
        # safetensors refuses tensors that share memory, so the parts of a fused one are copied.
        parts = (
            [tensor] if len(theirs) == 1 else [part.clone() for part in tensor.chunk(len(theirs))]
        )
        for name, part in zip(theirs, parts, strict=True):
            bare_name = name.removeprefix(family.prefix) if kind is None else name
            tensors[bare_name] = part.detach().cpu().contiguous()
    with replace_files(folder) as staging:
        (staging / "config.json").write_text(config, encoding="utf-8")
        save_tensors(tensors, staging, max_shard_bytes=max_shard_bytes)
        # safetensors makes files that only their owner may read.
        for path in staging.glob("*.safetensors"):
            path.chmod((staging / "config.json").stat().st_mode)
        digests = {path.name: sha256_of(path) for path in sorted(staging.iterdir())}
    remove_others(folder, digests)
    return digests


def config_text(checkpoint: Checkpoint, extra: Mapping[str, Any] | None = None) -> str:
    """The content of config.json for a checkpoint; the arguments are those of `write`.

    Raises:
        ConfigError: as `write`.
    """
    family, kind = FAMILIES[checkpoint.family], checkpoint.head
    check_head(family, kind)
    checkpoint.check()
    raw = {**checkpoint.extra, **(extra or {}), **config_values(checkpoint.config, family, kind)}
    if kind in LABELLED:
        names = checkpoint.labels or [f"LABEL_{i}" for i in range(checkpoint.num_labels or 0)]
        if len(set(names)) < len(names):
            raise ConfigError("Two labels have the same name; config.json cannot tell them apart.")
        for name in names:
            if unprintable(name):
                raise ConfigError(f"The label {name!a} holds a control character. Rename it.")
        raw["id2label"] = {str(i): name for i, name in enumerate(names)}
        raw["label2id"] = {name: i for i, name in enumerate(names)}
    if checkpoint.problem_type is not None:
        raw["problem_type"] = checkpoint.problem_type
    dtypes = {tensor.dtype for tensor in checkpoint.tensors.values()}
    if len(dtypes) == 1:
        raw["dtype"] = str(dtypes.pop()).removeprefix("torch.")
    text = json.dumps(raw, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    if len(text.encode()) > MAX_JSON_BYTES:
        raise ConfigError(
            f"The names of {len(raw.get('id2label', ()))} labels make a config.json larger "
            f"than {MAX_JSON_BYTES // 2**20} MiB, which would not be read again. Shorten them."
        )
    return text


def check_digests(folder: Path, filbert: dict[str, Any], paths: list[Path]) -> None:
    """Compare files with the hashes in filbert.json: a flipped bit in a tensor shows nowhere else.

    Raises:
        FormatError: a file is another than the one that is listed.
    """
    listed = filbert.get("files", {})
    for path in paths:
        entry = (
            listed.get(path.relative_to(folder).as_posix(), {})
            if isinstance(listed, dict)
            else None
        )
        expected = entry.get("sha256") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(expected, str | None):
            raise FormatError(
                f"{folder / 'filbert.json'}: files does not list a sha256 for {path.name}."
            )
        if expected is not None and sha256_of(path) != expected:
            raise FormatError(
                f"{path} is damaged or was changed: its sha256 is not the one in filbert.json. "
                "Restore it; if you changed it on purpose, remove its entry there."
            )


def write_tokenizer(tokenizer: Tokenizer, checkpoint: Checkpoint, folder: Path) -> None:
    """Save a tokenizer beside its model: other tools pass token types only where it has any.

    A model without such a table takes none, whatever the tokenizer's pairs have.
    """
    has_none = checkpoint.config.type_vocab_size == 0
    tokenizer.save(folder, token_type_ids=False if has_none else None)
