"""The Hugging Face folder: config.json and model.safetensors; strict to read, atomic to write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert.errors import ConfigError, FormatError, printable, unreadable_as
from filbert.formats.checkpoint import Checkpoint
from filbert.formats.config_json import (
    LABELLED,
    check_head,
    config_values,
    label_names,
    problem_type,
    unprintable,
)
from filbert.formats.families import FAMILIES
from filbert.formats.files import replace_files, sha256_of
from filbert.formats.names import plan_reading
from filbert.formats.recognition import family_of, named_family
from filbert.formats.saved_weights import MAX_SHARD_BYTES, remove_others, save_tensors
from filbert.formats.sentence_transformers import transformer_folder
from filbert.formats.weights import MAX_JSON_BYTES, open_weights, read_json, weight_files
from filbert.text.tokenizer import Tokenizer

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
def read(folder: Path) -> Checkpoint:
    """The checkpoint in a folder; every tensor has its place, and every place its tensor.

    Nothing is allocated before the names and shapes in the files' headers fit config.json.

    Raises:
        FormatError: no model, a damaged or unreadable file, a file that is not the one
            filbert.json lists, weights that do not fit config.json, values that are not finite, or
            something the encoder cannot express.
    """
    folder = transformer_folder(folder)
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
    raw = read_json(config_path)
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
        entry = listed.get(path.name, {}) if isinstance(listed, dict) else None
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
