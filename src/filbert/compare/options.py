"""The options of a study: keys of a recipe, flags and keywords."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from filbert.errors import ConfigError
from filbert.train.options import changed, flat, from_flat


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """The rows of a study.

    Attributes:
        data: labelled rows that are split into train, dev and test.
        train: training rows, instead of `data`.
        dev: rows to choose steps, thresholds and temperatures on; by default a part of `train`.
        test: rows that all contestants are measured on.
        text_column: name of the column with the text.
        text_pair_column: name of the column with the second text.
        label_column: name of the column with the label.
        separator: character between the fields of CSV and TSV files, such as ";".
        merge_labels: 0/1 columns that become one label: is any of them 1?
        merge_as: the name of that label.
        positive: the positive class of two; by default the second label.
        split: shares of train, dev and test.
        slice_column: a further column; the report shows metrics of the test rows by its values.
    """

    data: str | None = None
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    separator: str | None = None
    merge_labels: tuple[str, ...] | None = None
    merge_as: str | None = None
    positive: str | None = None
    split: tuple[float, ...] | None = None
    slice_column: str | None = None

    def __post_init__(self) -> None:
        if (self.merge_labels is None) != (self.merge_as is None):
            raise ConfigError("merge_labels and merge_as go together; give both.")
        if self.merge_labels is not None and self.label_column is not None:
            raise ConfigError("merge_labels and label_column both name the label; give one.")


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options of `finetune` that a study may set for all its contestants at once.

    Attributes:
        max_length: for all contestants: cut texts to this many tokens.
        batch_size: for all contestants: rows per optimiser step.
        max_tokens: for all contestants: tokens per micro-batch.
        epochs: for all contestants: passes over the training rows.
        steps: for all contestants: optimiser steps.
        save_every: for all contestants: optimiser steps between saved states.
        precision: for all contestants: auto, float32 or bf16.
        device: for all contestants: cpu, cuda, ...
    """

    max_length: int | None = None
    batch_size: int | None = None
    max_tokens: int | None = None
    epochs: float | None = None
    steps: int | None = None
    save_every: int | None = None
    precision: str | None = None
    device: str | None = None


SHARED = tuple(part.name for part in fields(CommonOptions))


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """All options of a study, none of them required; a flag takes precedence over the recipe.

    Attributes:
        rows: The rows.
        common: Options of all contestants.
        seed: random seed for the split and for the first training.
        seeds: trainings of each contestant, with consecutive seeds.
        cleaning: how texts are cleaned: none, study, or names of steps between +.
        resamples: number of bootstrap resamples.
        name: title of the report.
    """

    rows: RowOptions = RowOptions()
    common: CommonOptions = CommonOptions()
    seed: int | None = None
    seeds: int | None = None
    cleaning: str | None = None
    resamples: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for name in ("seed", "seeds", "resamples"):
            value, least = getattr(self, name), 0 if name == "seed" else 1
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value!r}; it must be a whole number from {least}.")

    @classmethod
    def from_keywords(cls, given: Mapping[str, Any]) -> StudyOptions:
        """Return the options for flat names; see `from_flat`.

        Raises:
            ConfigError: A name is unknown, or a value is wrong.
        """
        options = from_flat(cls, {k: v for k, v in given.items() if k != "split"})
        return changed(options, split=_shares(given.get("split")))

    def given(self) -> dict[str, Any]:
        """Return the options that were given, by flat name."""
        return {name: value for name, value in flat(self).items() if value is not None}


def _shares(given: Any) -> tuple[float, ...] | None:
    """Return three shares above zero that add up to 1.

    Raises:
        ConfigError: They do not.
    """
    if given is None:
        return None
    try:
        parts = given.split(",") if isinstance(given, str) else given
        shares = tuple(float(share) for share in parts)
    except (TypeError, ValueError):
        shares = ()
    if len(shares) != 3 or not all(s > 0 for s in shares) or not math.isclose(sum(shares), 1.0):
        raise ConfigError(
            f"split is {given!r}; give the shares of train, dev and test, three numbers above zero "
            "that add up to 1, such as [0.7, 0.15, 0.15]."
        )
    return shares
