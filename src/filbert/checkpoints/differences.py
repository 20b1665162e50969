"""What differs between two models: description, tokenizer, task, run, figures and weights."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.checkpoints.sentence_transformers import read_sentence_vectors
from filbert.errors import FormatError
from filbert.text.tokenizer import Tokenizer

# Numbers that are compared at a time, in float64.
_BLOCK = 2**22
_LAYER = re.compile(r"encoder\.layers\.(\d+)\.")


@dataclass
class GroupDifference:
    """The tensors of one part of the model: embeddings, a layer, the pooler, the head.

    Attributes:
        name: of the part.
        equal: tensors with the same numbers, whatever their dtypes.
        different: tensors of the same shape with other numbers, by filbert's names.
        shapes: names of tensors with other shapes -> the two shapes.
        only: names that only the first, only the second model has.
        largest: the largest absolute difference of two numbers; over `equal` and `different`.
        relative: norm of the difference over the norm of the first model's; None where that is 0.
    """

    name: str
    equal: int = 0
    different: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    only: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    largest: float = 0.0
    relative: float | None = 0.0
    _squares: tuple[float, float] = (0.0, 0.0)

    @property
    def is_same(self) -> bool:
        """Whether nothing in it differs."""
        return not (self.different or self.shapes or any(self.only))

    def add(self, name: str, first: Tensor, second: Tensor) -> None:
        """Take a pair of tensors of the same shape into account."""
        largest, squares, norm = _distance(first, second)
        if largest == 0.0:
            self.equal += 1
        else:
            self.different.append(name)
        self.largest = max(self.largest, largest)
        self._squares = (self._squares[0] + squares, self._squares[1] + norm)
        difference, base = map(math.sqrt, self._squares)
        self.relative = 0.0 if difference == 0 else difference / base if base else None


def group_of(name: str) -> str:
    """The part of the model that a tensor belongs to: embeddings, layer 0 ..., pooler, head."""
    if (match := _LAYER.match(name)) is not None:
        return f"layer {match[1]}"
    parts = name.split(".")
    return parts[1] if parts[0] == "encoder" and len(parts) > 2 else parts[0]


def tensor_differences(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor]
) -> list[GroupDifference]:
    """Compare tensors name by name, in filbert's names, in the order of the first model.

    Args:
        first: of one model, by name.
        second: of the other; what only it has stands at the end of its group.
    """
    groups: dict[str, GroupDifference] = {}
    for name in dict.fromkeys([*first, *second]):
        group = groups.setdefault(group_of(name), GroupDifference(group_of(name)))
        if name not in first or name not in second:
            group.only[name not in first].append(name)
        elif first[name].shape != second[name].shape:
            group.shapes[name] = (tuple(first[name].shape), tuple(second[name].shape))
        else:
            group.add(name, first[name], second[name])
    order = {"embeddings": -1, "pooler": 10**6, "head": 10**7}
    return sorted(
        groups.values(),
        key=lambda group: (
            int(group.name[6:]) if group.name.startswith("layer ") else order.get(group.name, 10**5)
        ),
    )


def _distance(first: Tensor, second: Tensor) -> tuple[float, float, float]:
    """Largest absolute difference, sum of its squares, sum of the squares of the first."""
    largest = squares = norm = 0.0
    flat, other = first.reshape(-1), second.reshape(-1)
    for begin in range(0, flat.numel(), _BLOCK):
        one = flat[begin : begin + _BLOCK].to(torch.float64)
        difference = one - other[begin : begin + _BLOCK].to(torch.float64)
        largest = max(largest, float(difference.abs().max()))
        squares += float(difference.square().sum())
        norm += float(one.square().sum())
    return largest, squares, norm


# Two models.


Pair = tuple[Any, Any]

# So many vocabulary entries are named.
_NAMED = 8
# Entries of filbert.json that are sections of their own, or tell nothing about the model.
_DECIDING = ("head", "problem_type", "labels", "max_length", "sentence_vectors")
_STORY = ("filbert", "commit", "command", "started", "steps", "tokens", "precision")


@dataclass(frozen=True)
class ModelDifferences:
    """Two models side by side; every pair is (first, second).

    Attributes:
        names: as the user gave them.
        about: family, head, labels, parameters, dtype ...: all, whether they differ or not.
        config: the fields of `EncoderConfig` that differ.
        tokenizer: kind, size, casing ... that differ, and in "only" what vocabularies have alone.
        task: entries of the stored task that differ: labels, thresholds, temperature ...
        run: of the training runs, where both or one is known: dates, versions, base models.
        options: of the runs, those that differ.
        data: "train.sha256" and the like, those that differ.
        metrics: split -> metric -> the two values; all.
        groups: the tensors.
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
        """Whether all tensors are there twice, with the same numbers."""
        return all(group.is_same for group in self.groups)

    @property
    def same_answers(self) -> bool:
        """Whether the two cannot answer differently.

        Weights, tokenizer, sizes and task agree, and what of the description decides answers.
        """
        unlike = self.config or self.tokenizer or self.task or self.unlike
        return self.same_weights and not unlike

    @property
    def unlike(self) -> tuple[str, ...]:
        """What of `about` decides answers and differs: labels, pooling of sentences ..."""
        return tuple(name for name in _DECIDING if self.about[name][0] != self.about[name][1])

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`."""
        content = {
            name: getattr(self, name)
            for name in (
                "names", "about", "config", "tokenizer", "task", "run", "options", "data", "metrics"
            )
        }  # fmt: skip
        groups = [
            {
                name: getattr(group, name)
                for name in ("name", "equal", "different", "shapes", "only", "largest", "relative")
            }
            for group in self.groups
        ]
        return {
            "same_weights": self.same_weights,
            "same_answers": self.same_answers,
            **content,
            "tensors": groups,
        }


def differences(names: tuple[str, str], places: tuple[Path, Path]) -> ModelDifferences:
    """Read two models and compare them; both are in memory at the same time, and no third.

    Args:
        names: for people.
        places: as `find_model` gives them.

    Raises:
        FormatError: one of them is damaged.
    """
    first, second = (read_checkpoint(place) for place in places)
    tokenizers = [_tokenizer_of(place) for place in places]
    stories = [one.filbert or {} for one in (first, second)]
    base, other = (_about(*one) for one in zip((first, second), places, strict=True))
    runs = [_run(story) for story in stories]
    data = [_data(story) for story in stories]
    options = [_mapping(story, "options") for story in stories]
    metrics = [_mapping(story, "metrics") for story in stories]
    return ModelDifferences(
        names,
        {name: (base[name], other[name]) for name in base},
        differing(dataclasses.asdict(first.config), dataclasses.asdict(second.config)),
        _tokenizers(*tokenizers),
        differing(*(_mapping(story, "task") for story in stories)),
        differing(*runs),
        # Where one run is unknown, its options do not differ: there are none.
        differing(*options) if all(options) else {},
        differing(*data),
        {
            split: {
                name: (_mapping(metrics[0], split).get(name), _mapping(metrics[1], split).get(name))
                for name in dict.fromkeys(
                    [*_mapping(metrics[0], split), *_mapping(metrics[1], split)]
                )
            }
            for split in dict.fromkeys([*metrics[0], *metrics[1]])
        },
        tensor_differences(first.tensors, second.tensors),
    )


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Pair]:
    """The entries that are not the same in both; None stands for a missing one."""
    return {
        name: (first.get(name), second.get(name))
        for name in dict.fromkeys([*first, *second])
        if _plain(first.get(name)) != _plain(second.get(name))
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _mapping(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An entry of filbert.json that should be an object; {} when it is none."""
    found = content.get(key)
    return found if isinstance(found, dict) else {}


def _about(checkpoint: Checkpoint, place: Path) -> dict[str, Any]:
    dtypes = sorted({str(one.dtype).removeprefix("torch.") for one in checkpoint.tensors.values()})
    sizes = {name: tensor.numel() for name, tensor in checkpoint.tensors.items()}
    made = read_sentence_vectors(place, checkpoint.config.hidden_size).facts()
    return {
        "family": checkpoint.family,
        "parameters": sum(sizes.values()),
        "encoder_parameters": sum(n for name, n in sizes.items() if name.startswith("encoder.")),
        "dtype": ", ".join(dtypes),
        "head": checkpoint.head,
        "problem_type": checkpoint.problem_type,
        "labels": list(checkpoint.labels or ()),
        "max_length": (checkpoint.filbert or {}).get("max_length"),
        "sentence_vectors": ", ".join(f"{name} {value}" for name, value in made.items() if value),
    }


def _run(story: Mapping[str, Any]) -> dict[str, Any]:
    base = _mapping(story, "base_model")
    device = _mapping(story, "device")
    facts = {name: story[name] for name in _STORY if name in story}
    facts |= {f"version of {name}": value for name, value in _mapping(story, "versions").items()}
    facts |= {
        "device" if name == "name" else name: device[name]
        for name in ("name", "threads", "processes")
        if name in device
    }
    if base:
        facts["base model"] = base.get("name")
        facts |= {
            f"sha256 of the base model's {name}": _mapping(_mapping(base, "files"), name)["sha256"]
            for name in _mapping(base, "files")
            if "sha256" in _mapping(_mapping(base, "files"), name)
        }
    return facts


def _data(story: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{split} {name}": value
        for split, facts in _mapping(story, "data").items()
        if isinstance(facts, dict)
        for name, value in facts.items()
        if isinstance(value, int | str)
    }


def _tokenizer_of(place: Path) -> Tokenizer | None:
    try:
        return read_tokenizer(place)
    except FormatError:  # weights alone can be compared, too
        return None


def _tokenizers(first: Tokenizer | None, second: Tokenizer | None) -> dict[str, Pair]:
    if first is None or second is None:
        there = tuple(None if one is None else one.kind for one in (first, second))
        return {} if there == (None, None) else {"kind": (there[0], there[1])}
    if first.fingerprint == second.fingerprint:
        return differing({"max_length": first.max_length}, {"max_length": second.max_length})
    words = [one.backend.get_vocab(with_added_tokens=True) for one in (first, second)]
    alone = [
        sorted(words[i].keys() - words[1 - i].keys(), key=words[i].__getitem__) for i in (0, 1)
    ]
    moved = sum(words[1].get(word, number) != number for word, number in words[0].items())
    found = differing(
        *(
            {
                "kind": one.kind,
                "entries": one.vocab_size,
                "lowercase": one.lowercase,
                "max_length": one.max_length,
                "special tokens": dict(sorted(one.specials.items())),
            }
            for one in (first, second)
        )
    )
    if any(alone):
        found["entries of its own"] = (len(alone[0]), len(alone[1]))
        found["such as"] = (alone[0][:_NAMED], alone[1][:_NAMED])
    if moved:
        found["shared entries with another id"] = (moved, moved)
    # Same vocabulary, but texts are cut or cleaned by other rules.
    return found or {"rules (sha256)": (first.fingerprint, second.fingerprint)}
