"""Narrower embedding tables: what they held, by its largest parts, behind a projection.

V entries, E width of the tables, K the new width, H hidden size.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from filbert.errors import ConfigError
from filbert.formats.checkpoint import Checkpoint, with_new_head
from filbert.formats.families import FAMILIES

_TABLES = "encoder.embeddings."
_SUMMED = ("word", "position", "token_type")
# Their heads multiply by the word table behind a transform of its width, which has an activation
# within: no smaller one says the same.
_READ_THE_TABLE = ("masked_lm", "pretraining")
# A family without a projection, and the one that is the same with it: ALBERT whose layers share
# nothing is BERT.
_SAME_WITH_PROJECTION = {"bert": "albert"}


class Factorised(NamedTuple):
    """What `factorised` gives.

    Attributes:
        checkpoint: with narrower tables.
        kept: share of the tables' variance that is left.
    """

    checkpoint: Checkpoint
    kept: float


def factorised(checkpoint: Checkpoint, size: int) -> Factorised:
    """The checkpoint with tables of width `size`, and a projection to what the layers read.

    The sum of a word's, a place's and a type's row, centred as LayerNorm does, is laid along the
    `size` - 1 axes on which such sums vary most. These axes are turned into the vectors of K
    elements whose mean is zero, so that LayerNorm of the narrow sum finds the mean and the variance
    of the wide one: where the rows span no more than `size` - 1 axes, nothing changes at all. The
    old LayerNorm's gain and bias go into the projection.

    Source: Lan et al. 2020, section 3.1, for the factors, though theirs are trained. That axes,
    turn and scale make it exact at full rank is our own.

    Args:
        checkpoint: stays as it is; the result shares the other tensors.
        size: K, below the tables' present width. A masked-LM head is left out, with a note.

    Raises:
        ConfigError: no such width, or config.json of the family has no place for it.
    """
    config = checkpoint.config
    name = _SAME_WITH_PROJECTION.get(checkpoint.family, checkpoint.family)
    family = FAMILIES[name]
    if "embedding_size" not in family.keys:
        known = [f for f, row in FAMILIES.items() if f in _SAME_WITH_PROJECTION or
                 "embedding_size" in row.keys]  # fmt: skip
        raise ConfigError(
            f"embedding_size {size}: config.json of a {checkpoint.family} model has no place for "
            f"narrower tables before such layers; {', '.join(known)} models can have them."
        )
    if not 2 <= size < config.table_size:
        raise ConfigError(
            f"embedding_size {size}: the tables are {config.table_size} wide; give a smaller "
            "width, at least 2."
        )
    if checkpoint.head in _READ_THE_TABLE:
        checkpoint = with_new_head(checkpoint, None)
    if checkpoint.head not in family.heads:
        raise ConfigError(
            f"embedding_size {size}: the narrower model would be a {name}, which has no "
            f"{checkpoint.head!r} head. Leave the head out first."
        )
    tensors, kept = _narrowed(checkpoint, size)
    groups = config.num_groups if name != checkpoint.family else config.num_hidden_groups
    notes = [*checkpoint.notes, f"embedding tables {size} wide instead of {config.table_size}."]
    if name != checkpoint.family:
        notes.append(f"written as {name}, whose layers share nothing: config.json can say it so.")
    found = replace(
        checkpoint,
        family=name,
        config=replace(checkpoint.config, embedding_size=size, num_hidden_groups=groups),
        tensors=tensors,
        notes=tuple(notes),
        filbert=None,
    )
    return Factorised(found, kept)


def _narrowed(checkpoint: Checkpoint, size: int) -> tuple[dict[str, Tensor], float]:
    tensors = dict(checkpoint.tensors)
    names = [name for part in _SUMMED if (name := f"{_TABLES}{part}.weight") in tensors]
    # Centring makes the mean of every row 0, which is all that LayerNorm does to it but scaling.
    centred = {name: _centred(tensors[name].double()) for name in names}
    width = checkpoint.config.table_size
    moments = torch.zeros(width, width, dtype=torch.float64)
    mean = torch.zeros(width, dtype=torch.float64)
    for table in centred.values():
        moments += torch.cov(table.T, correction=0)
        mean += table.mean(0)
    moments += torch.outer(mean, mean)
    shares, axes = torch.linalg.eigh(moments)
    largest = axes[:, -(size - 1) :]
    turn_EK = largest @ _zero_mean_axes(size).T
    # Of narrower vectors of the same length the elements are larger; this keeps their variance,
    # and with it what LayerNorm's epsilon means.
    scale = math.sqrt(size / width)
    dtype = tensors[names[0]].dtype
    for name, table in centred.items():
        tensors[name] = (table @ turn_EK * scale).to(dtype)
    gain = tensors[f"{_TABLES}norm.weight"].double()
    projection = torch.diag(gain)
    bias = tensors[f"{_TABLES}norm.bias"].double()
    if f"{_TABLES}project.weight" in tensors:
        old = tensors[f"{_TABLES}project.weight"].double()
        projection = old * gain
        bias = old @ bias + tensors[f"{_TABLES}project.bias"].double()
    tensors[f"{_TABLES}project.weight"] = (projection @ turn_EK / scale).to(dtype)
    tensors[f"{_TABLES}project.bias"] = bias.to(dtype)
    tensors[f"{_TABLES}norm.weight"] = torch.ones(size, dtype=dtype)
    tensors[f"{_TABLES}norm.bias"] = torch.zeros(size, dtype=dtype)
    return tensors, float(shares[-(size - 1) :].sum() / shares.sum())


def _centred(rows: Tensor) -> Tensor:
    return rows - rows.mean(1, keepdim=True)


def _zero_mean_axes(size: int) -> Tensor:
    """An orthonormal basis of the vectors whose elements sum to 0: (size, size - 1)."""
    ones = torch.ones(size, 1, dtype=torch.float64)
    rest = torch.eye(size, dtype=torch.float64)[:, 1:]
    basis: Tensor = torch.linalg.qr(torch.cat([ones, rest], 1)).Q
    return basis[:, 1:]
