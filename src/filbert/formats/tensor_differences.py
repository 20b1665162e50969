"""How the weights of two checkpoints differ, group by group, in the memory of the two."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

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
