"""What the user may say about a study: the keys of a recipe, flags and keywords."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from filbert.errors import ConfigError
from filbert.train.options import from_flat

# Options of `finetune` that a study may set for all its contestants at once.
SHARED = (
    "max_length", "batch_size", "max_tokens", "epochs", "steps", "save_every", "precision",
    "device",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StudyFlags:
    """What may be said about a study, all of it optional: a flag wins over the recipe.

    Attributes:
        data: labelled rows that are split into train, dev and test.
        train: training rows, instead of `data`.
        dev: rows to choose steps, thresholds and temperatures on; a part of `train` when not given.
        test: rows that everybody is measured on, at the end.
        text_column: name of the column with the text.
        text_pair_column: name of the column with the second text.
        label_column: name of the column with the label.
        separator: character between the fields of CSV and TSV files, such as ";".
        merge_labels: 0/1 columns that become one label: is any of them 1?
        merge_as: the name of that label.
        positive: the positive class of two; the second label when not given.
        split: shares of train, dev and test.
        near_duplicates: what happens to rows of `data` that nearly repeat each other: together
            (they stay in one split), report (they are only counted) or ignore.
        keep_columns: further columns, by whose values the report shows slices of the test rows.
        seed: of the split, and of the first training.
        seeds: trainings of each contestant, with seeds that follow each other.
        cleaning: how texts are cleaned: none, study, or names of steps between +; each contestant
            runs once with each.
        resamples: of the bootstrap.
        target_quality: the cheapest contestant is chosen that has this share of another's figure,
            such as 0.97.
        target_of: whose figure; the teacher's of all students when not given.
        target_latency: the best contestant is chosen that answers a single text within this time,
            such as 5ms; with target_quality the cheapest that does both.
        name: what the report calls the study.
        max_length: for all contestants: cut texts to this many tokens.
        batch_size: for all contestants: rows per optimiser step.
        max_tokens: for all contestants: tokens per micro-batch.
        epochs: for all contestants: passes over the training rows.
        steps: for all contestants: optimiser steps.
        save_every: for all contestants: optimiser steps between saved states.
        precision: for all contestants: auto, float32 or bf16.
        device: for all contestants: cpu, cuda, ...
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
    near_duplicates: str | None = None
    keep_columns: tuple[str, ...] | None = None
    seed: int | None = None
    seeds: int | None = None
    cleaning: tuple[str, ...] | None = None
    resamples: int | None = None
    target_quality: float | None = None
    target_of: str | None = None
    target_latency: str | None = None
    name: str | None = None
    max_length: int | None = None
    batch_size: int | None = None
    max_tokens: int | None = None
    epochs: float | None = None
    steps: int | None = None
    save_every: int | None = None
    precision: str | None = None
    device: str | None = None

    @classmethod
    def from_keywords(cls, given: Mapping[str, Any]) -> StudyFlags:
        """Flags from keyword arguments.

        Raises:
            ConfigError: an unknown name (the nearest one is given), a wrong type or value.
        """
        shares = given.get("split")
        if isinstance(shares, str):
            given = {**given, "split": shares.split(",")}
        flags = from_flat(cls, {k: v for k, v in given.items() if k != "split"})
        return replace(flags, split=_shares(given.get("split")))._sound()

    def given(self) -> dict[str, Any]:
        """What was said, by name."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def _sound(self) -> StudyFlags:
        for name in ("seed", "seeds", "resamples"):
            value = getattr(self, name)
            least = 0 if name == "seed" else 1
            if value is not None and (type(value) is not int or value < least):
                raise ConfigError(f"{name} is {value!r}; it must be a whole number from {least}.")
        if (self.merge_labels is None) != (self.merge_as is None):
            raise ConfigError("merge_labels and merge_as go together; give both.")
        if self.merge_labels is not None and self.label_column is not None:
            raise ConfigError("merge_labels and label_column both name the label; give one.")
        self._check_kept()
        kinds = ("together", "report", "ignore")
        if self.near_duplicates is not None and self.near_duplicates not in kinds:
            raise ConfigError(
                f"near_duplicates is {self.near_duplicates!r}; it must be one of {list(kinds)}."
            )
        return self

    def _check_kept(self) -> None:
        texts = {self.text_column, self.text_pair_column, "text", "text_pair"}
        for column in self.keep_columns or ():
            if column in texts:
                raise ConfigError(
                    f"keep_columns: the column {column!r} is a text, and what is in kept columns "
                    "stands in the report. Leave it out."
                )
            if column == "length":
                raise ConfigError(
                    "keep_columns: the slices by the number of words are called 'length' already. "
                    "Rename the column."
                )


def _shares(given: Any) -> tuple[float, ...] | None:
    """Three shares above zero that add up to 1.

    Raises:
        ConfigError: they do not.
    """
    if given is None:
        return None
    try:
        shares = tuple(float(share) for share in given)
    except (TypeError, ValueError):
        shares = ()
    if len(shares) != 3 or not all(s > 0 for s in shares) or not math.isclose(sum(shares), 1.0):
        raise ConfigError(
            f"split is {given!r}; give the shares of train, dev and test, three numbers above zero "
            f"that add up to 1, such as [0.7, 0.15, 0.15]."
        )
    return shares
