"""Compares two models: every value that describes them, and their weights part by part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.checkpoints.sentence_transformers import read_sentence_vectors
from filbert.errors import FormatError

Pair = tuple[Any, Any]

_LAYER = re.compile(r"encoder\.layers\.(\d+)\.")
# First words of the values on which predictions depend.
_DECIDING = (
    "head", "problem_type", "labels", "max_length", "sentence_vectors", "config", "tokenizer",
    "task",
)  # fmt: skip
# Entries of filbert.json that are not compared: hashes of the files are those of the weights.
_OMITTED = ("files", "name", "started", "finished", "seconds")


@dataclass(frozen=True)
class PartDifference:
    """The tensors of one part of the model: embeddings, a layer, the pooler or the head.

    Attributes:
        name: Name of the part.
        equal: Number of tensors with the same values, whatever their dtypes.
        different: Names of tensors with other values, other shapes, or in one model only.
        largest: Largest absolute difference of two values of tensors with the same shape.
    """

    name: str
    equal: int
    different: tuple[str, ...]
    largest: float


@dataclass(frozen=True)
class ModelDifferences:
    """Two models compared; every pair is (first, second), with None for a missing value.

    Attributes:
        names: The names that the user gave.
        values: The values that differ, by name: "config hidden_size", "options lr".
        metrics: All metrics by name, "test roc_auc".
        parts: Differences of the tensors.
    """

    names: tuple[str, str]
    values: dict[str, Pair]
    metrics: dict[str, Pair]
    parts: list[PartDifference]

    @property
    def same_weights(self) -> bool:
        """Whether both have the same tensors with the same values."""
        return not any(part.different for part in self.parts)

    @property
    def same_answers(self) -> bool:
        """Whether both give the same predictions: weights and everything else they depend on."""
        return self.same_weights and not any(n.split()[0] in _DECIDING for n in self.values)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        verdicts = {"same_weights": self.same_weights, "same_answers": self.same_answers}
        content = asdict(self)
        return {**verdicts, "tensors": content.pop("parts"), **content}


def differences(names: tuple[str, str], places: tuple[Path, Path]) -> ModelDifferences:
    """Read two models, both into memory, and compare them.

    Args:
        names: The names that the user gave.
        places: As `find_model` returns them.

    Raises:
        FormatError: One of them is damaged.
    """
    first, second = (read_checkpoint(place) for place in places)
    values = _pairs(*(_described(*model) for model in zip((first, second), places, strict=True)))
    metrics = _pairs(*(_flat((one.filbert or {}).get("metrics"), "") for one in (first, second)))
    return ModelDifferences(
        names=names,
        values={name: pair for name, pair in values.items() if pair[0] != pair[1]},
        metrics=metrics,
        parts=tensor_differences(first.tensors, second.tensors),
    )


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
    recorded = {
        name: value
        for name, value in (checkpoint.filbert or {}).items()
        if name not in (*_OMITTED, "tokenizer", "metrics")
    }
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


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Pair]:
    return {n: (first.get(n), second.get(n)) for n in dict.fromkeys([*first, *second])}


def part_of(name: str) -> str:
    """Return the part of the model that a tensor belongs to: embeddings, layer 0, pooler, head."""
    if (match := _LAYER.match(name)) is not None:
        return f"layer {match[1]}"
    parts = name.split(".")
    return parts[1] if parts[0] == "encoder" and len(parts) > 2 else parts[0]


def tensor_differences(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor]
) -> list[PartDifference]:
    """Compare the tensors of two models by filbert's names, in their order."""
    parts: dict[str, list[str]] = {}
    for name in dict.fromkeys([*first, *second]):
        parts.setdefault(part_of(name), []).append(name)
    found = []
    for part, names in parts.items():
        different, largest = [], 0.0
        for name in names:
            ours, theirs = first.get(name), second.get(name)
            if ours is None or theirs is None or ours.shape != theirs.shape:
                different.append(name)
            elif not torch.equal(ours.double(), theirs.double()):
                different.append(name)
                largest = max(largest, float((ours.double() - theirs.double()).abs().max()))
        found.append(PartDifference(part, len(names) - len(different), tuple(different), largest))
    return found
