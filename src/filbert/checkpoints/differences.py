"""Compares two models: description, tokenizer, task, training run, metrics and weights."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.checkpoints.sentence_transformers import read_sentence_vectors
from filbert.errors import FormatError
from filbert.text.tokenizer import Tokenizer

Pair = tuple[Any, Any]

# Values that are compared at a time, in float64.
_BLOCK = 2**22
_LAYER = re.compile(r"encoder\.layers\.(\d+)\.")
# How many vocabulary entries are named.
_NAMED = 8
# Entries of `ModelDifferences.about` on which predictions depend.
_DECIDING = ("head", "problem_type", "labels", "max_length", "sentence_vectors")
# Entries of filbert.json about the training run.
_RUN = ("filbert", "commit", "command", "started", "steps", "tokens", "precision")


@dataclass
class GroupDifference:
    """The tensors of one part of the model: embeddings, a layer, the pooler or the head.

    Attributes:
        name: Name of the part.
        equal: Number of tensors with the same values, whatever their dtypes.
        different: Names of tensors of the same shape with other values.
        shapes: The two shapes of each tensor whose shape differs.
        only: Names of tensors that only the first and only the second model has.
        largest: Largest absolute difference of two values.
        relative: Norm of the difference divided by the norm of the first model's tensors; None if
            that is 0.
    """

    name: str
    equal: int = 0
    different: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    only: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    largest: float = 0.0
    relative: float | None = 0.0

    @property
    def is_same(self) -> bool:
        """Whether nothing in it differs."""
        return not (self.different or self.shapes or any(self.only))


def group_of(name: str) -> str:
    """Return the part of the model that a tensor belongs to: embeddings, layer 0, pooler, head."""
    if (match := _LAYER.match(name)) is not None:
        return f"layer {match[1]}"
    parts = name.split(".")
    return parts[1] if parts[0] == "encoder" and len(parts) > 2 else parts[0]


def tensor_differences(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor]
) -> list[GroupDifference]:
    """Compare the tensors of two models by filbert's names, from the embeddings to the head."""
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys([*first, *second]):
        names.setdefault(group_of(name), []).append(name)
    order = {"embeddings": -1, "pooler": 10**6, "head": 10**7}

    def place(group: str) -> int:
        return int(group[6:]) if group.startswith("layer ") else order.get(group, 10**5)

    return [_compared(group, names[group], first, second) for group in sorted(names, key=place)]


def _compared(
    group: str, names: list[str], first: Mapping[str, Tensor], second: Mapping[str, Tensor]
) -> GroupDifference:
    result = GroupDifference(group)
    squares = norm = 0.0
    for name in names:
        if name not in first or name not in second:
            result.only[name not in first].append(name)
            continue
        ours, theirs = first[name], second[name]
        if ours.shape != theirs.shape:
            result.shapes[name] = (tuple(ours.shape), tuple(theirs.shape))
            continue
        largest = 0.0
        flat, others = ours.reshape(-1), theirs.reshape(-1)
        for begin in range(0, flat.numel(), _BLOCK):
            one = flat[begin : begin + _BLOCK].double()
            difference = one - others[begin : begin + _BLOCK].double()
            largest = max(largest, float(difference.abs().max()))
            squares += float(difference.square().sum())
            norm += float(one.square().sum())
        if largest == 0.0:
            result.equal += 1
        else:
            result.different.append(name)
        result.largest = max(result.largest, largest)
    result.relative = 0.0 if squares == 0 else math.sqrt(squares / norm) if norm else None
    return result


@dataclass(frozen=True)
class ModelDifferences:
    """Two models compared; every pair is (first, second).

    Attributes:
        names: The names that the user gave.
        about: Family, head, labels, parameters, dtype ...: all, whether they differ or not.
        config: The fields of `EncoderConfig` that differ.
        tokenizer: Kind, size, casing ... that differ, and entries of only one vocabulary.
        task: Entries of the stored task that differ: labels, thresholds, temperature ...
        run: Facts of the training runs that differ: dates, versions, base models.
        options: Options of the runs that differ.
        data: Facts of the data files that differ, as "train sha256".
        metrics: Split to metric to the two values; all.
        groups: Differences of the tensors.
    """

    names: tuple[str, str]
    about: dict[str, Pair]
    config: dict[str, Pair]
    tokenizer: dict[str, Pair]
    task: dict[str, Pair]
    run: dict[str, Pair]
    options: dict[str, Pair]
    data: dict[str, Pair]
    metrics: dict[str, dict[str, Pair]]
    groups: list[GroupDifference]

    @property
    def same_weights(self) -> bool:
        """Whether both have the same tensors with the same values."""
        return all(group.is_same for group in self.groups)

    @property
    def unlike(self) -> tuple[str, ...]:
        """The entries of `about` that differ and on which predictions depend."""
        return tuple(name for name in _DECIDING if self.about[name][0] != self.about[name][1])

    @property
    def same_answers(self) -> bool:
        """Whether both give the same predictions: weights and everything else they depend on."""
        return self.same_weights and not (self.config or self.tokenizer or self.task or self.unlike)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        content = asdict(self)
        return {
            "same_weights": self.same_weights,
            "same_answers": self.same_answers,
            **{name: value for name, value in content.items() if name != "groups"},
            "tensors": content["groups"],
        }


def differences(names: tuple[str, str], places: tuple[Path, Path]) -> ModelDifferences:
    """Read two models, both into memory, and compare them.

    Args:
        names: The names that the user gave.
        places: As `find_model` returns them.

    Raises:
        FormatError: One of them is damaged.
    """
    first, second = (read_checkpoint(place) for place in places)
    one, two = first.filbert or {}, second.filbert or {}
    about = [_about(*model) for model in zip((first, second), places, strict=True)]
    options = [_mapping(one, "options"), _mapping(two, "options")]
    metrics = [_mapping(one, "metrics"), _mapping(two, "metrics")]
    return ModelDifferences(
        names=names,
        about={name: (about[0][name], about[1][name]) for name in about[0]},
        config=_differing(first.config.settings(), second.config.settings()),
        tokenizer=_tokenizers(*map(_tokenizer_of, places)),
        task=_differing(_mapping(one, "task"), _mapping(two, "task")),
        run=_differing(_run(one), _run(two)),
        # Without options of one run, all options of the other would be listed.
        options=_differing(*options) if all(options) else {},
        data=_differing(_data(one), _data(two)),
        metrics={
            split: _pairs(_mapping(metrics[0], split), _mapping(metrics[1], split))
            for split in dict.fromkeys([*metrics[0], *metrics[1]])
        },
        groups=tensor_differences(first.tensors, second.tensors),
    )


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Pair]:
    return {n: (first.get(n), second.get(n)) for n in dict.fromkeys([*first, *second])}


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Pair]:
    """Return the entries that are not the same in both; None represents a missing one."""
    return {name: pair for name, pair in _pairs(first, second).items() if pair[0] != pair[1]}


def _mapping(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an object of filbert.json; {} if the entry is not an object."""
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def _about(checkpoint: Checkpoint, place: Path) -> dict[str, Any]:
    dtypes = sorted({str(one.dtype).removeprefix("torch.") for one in checkpoint.tensors.values()})
    sizes = {name: tensor.numel() for name, tensor in checkpoint.tensors.items()}
    vectors = read_sentence_vectors(place, checkpoint.config.hidden_size).facts()
    return {
        "family": checkpoint.family,
        "parameters": sum(sizes.values()),
        "encoder_parameters": sum(n for name, n in sizes.items() if name.startswith("encoder.")),
        "dtype": ", ".join(dtypes),
        "head": checkpoint.head,
        "problem_type": checkpoint.problem_type,
        "labels": list(checkpoint.labels or ()),
        "max_length": (checkpoint.filbert or {}).get("max_length"),
        "sentence_vectors": ", ".join(
            f"{name} {value}" for name, value in vectors.items() if value
        ),
    }


def _run(filbert: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: filbert[name] for name in _RUN if name in filbert}
    facts |= {f"version of {name}": value for name, value in _mapping(filbert, "versions").items()}
    device = _mapping(filbert, "device")
    names = {"name": "device", "threads": "threads", "processes": "processes"}
    facts |= {names[name]: device[name] for name in names if name in device}
    if base := _mapping(filbert, "base_model"):
        facts["base model"] = base.get("name")
        for name, entry in _mapping(base, "files").items():
            if isinstance(entry, dict) and "sha256" in entry:
                facts[f"sha256 of the base model's {name}"] = entry["sha256"]
    return facts


def _data(filbert: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{split} {name}": value
        for split, facts in _mapping(filbert, "data").items()
        if isinstance(facts, dict)
        for name, value in facts.items()
        if isinstance(value, int | str)
    }


def _tokenizer_of(place: Path) -> Tokenizer | None:
    try:
        return read_tokenizer(place)
    except FormatError:  # the weights can be compared without it
        return None


def _tokenizers(first: Tokenizer | None, second: Tokenizer | None) -> dict[str, Pair]:
    if first is None or second is None:
        kinds = (first.kind if first else None, second.kind if second else None)
        return {} if kinds == (None, None) else {"kind": kinds}
    if first.fingerprint == second.fingerprint:
        return _differing({"max_length": first.max_length}, {"max_length": second.max_length})
    facts = [
        {
            "kind": one.kind,
            "entries": one.vocab_size,
            "lowercase": one.lowercase,
            "max_length": one.max_length,
            "special tokens": dict(sorted(one.specials.items())),
        }
        for one in (first, second)
    ]
    pairs = _differing(*facts)
    ours, theirs = (one.backend.get_vocab(with_added_tokens=True) for one in (first, second))
    only = [sorted(one.keys() - other.keys()) for one, other in ((ours, theirs), (theirs, ours))]
    if any(only):
        pairs["entries of its own"] = (len(only[0]), len(only[1]))
        pairs["such as"] = (only[0][:_NAMED], only[1][:_NAMED])
    # The same vocabulary, but texts are normalised or split by other rules.
    return pairs or {"rules (sha256)": (first.fingerprint, second.fingerprint)}
