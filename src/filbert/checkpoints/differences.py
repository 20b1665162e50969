"""Compares two models: every value that describes them, and their weights part by part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.checkpoints.sentence_transformers import read_sentence_vectors
from filbert.errors import FormatError

_LAYER = re.compile(r"encoder\.layers\.(\d+)\.")
# First words of the values on which predictions depend.
_DECIDING = (
    "head", "problem_type", "labels", "max_length", "sentence_vectors", "config", "tokenizer",
    "task",
)  # fmt: skip
# Entries of filbert.json that are not compared: hashes of the files are those of the weights.
_OMITTED = ("files", "name", "started", "finished", "seconds", "tokenizer", "metrics")


def differences(names: tuple[str, str], places: tuple[Path, Path]) -> dict[str, Any]:
    """Read two models, both into memory, and compare them; `find_model` returns their places.

    Returns:
        `same_weights`, `same_answers` (weights and everything else that predictions depend on),
        `names`, `values` (those that differ, by name such as "options lr"), `metrics` (all), both
        as pairs with None for a missing value, and `tensors` (see `compare_tensors`).
    """
    first, second = (read_checkpoint(place) for place in places)
    values = _pairs(*(_described(*model) for model in zip((first, second), places, strict=True)))
    values = {name: pair for name, pair in values.items() if pair[0] != pair[1]}
    tensors = compare_tensors(first.tensors, second.tensors)
    same_weights = not any(part["different"] for part in tensors)
    decides = any(name.split()[0] in _DECIDING for name in values)
    return {
        "same_weights": same_weights,
        "same_answers": same_weights and not decides,
        "names": names,
        "values": values,
        "metrics": _pairs(*(_flat((m.filbert or {}).get("metrics"), "") for m in (first, second))),
        "tensors": tensors,
    }


def _described(checkpoint: Checkpoint, place: Path) -> dict[str, Any]:
    """Return everything that describes a model, by name."""
    config = checkpoint.config
    facts: dict[str, Any] = {
        "family": checkpoint.family,
        "dtype": sorted({str(one.dtype) for one in checkpoint.tensors.values()}),
        "head": checkpoint.head,
        "problem_type": checkpoint.problem_type,
        "labels": list(checkpoint.labels or ()),
        "sentence_vectors": read_sentence_vectors(place, config.hidden_size).facts(),
        "config": config.settings(),
    }
    try:
        tokenizer = read_tokenizer(place)
        facts["tokenizer"] = {
            "kind": tokenizer.kind,
            "entries": tokenizer.vocab_size,
            "lowercase": tokenizer.lowercase,
            "max_length": tokenizer.max_length,
            "sha256": tokenizer.fingerprint,
        }
    except FormatError:  # the weights can be compared without it
        pass
    recorded = {k: v for k, v in (checkpoint.filbert or {}).items() if k not in _OMITTED}
    return _flat(recorded | facts, "")


def _flat(value: Any, name: str) -> dict[str, Any]:
    """Return the values inside nested objects by their whole names."""
    if not isinstance(value, Mapping):
        return {name: value} if name else {}
    return {
        whole: inner
        for key, item in value.items()
        for whole, inner in _flat(item, f"{name} {key}".strip()).items()
    }


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {n: (first.get(n), second.get(n)) for n in dict.fromkeys([*first, *second])}


def compare_tensors(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor]
) -> list[dict[str, Any]]:
    """Compare the tensors of two models by filbert's names, in their order.

    Returns:
        For embeddings, each layer, pooler and head: `name`; `equal`, the number of tensors with the
        same values, whatever their dtypes; `different`, the names of the others; `largest`, the
        largest absolute difference of two values of tensors with the same shape.
    """
    parts: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys([*first, *second]):
        words, layer = name.split("."), _LAYER.match(name)
        title = words[1] if words[0] == "encoder" and len(words) > 2 else words[0]
        title = title if layer is None else f"layer {layer[1]}"
        part = parts.setdefault(title, {"name": title, "equal": 0, "different": [], "largest": 0.0})
        one, two = first.get(name), second.get(name)
        if one is None or two is None or one.shape != two.shape:
            part["different"].append(name)
        elif torch.equal(one.double(), two.double()):
            part["equal"] += 1
        else:
            part["different"].append(name)
            gap = float((one.double() - two.double()).abs().max())
            part["largest"] = max(part["largest"], gap)
    return list(parts.values())
