"""What the runs of a study said about its dev and test rows, checked to speak of the same rows.

N rows, C labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from filbert.data.records import read_rows
from filbert.errors import FormatError, InputError, printable
from filbert.metrics import ranking
from filbert.report.folder import read_lines


@dataclass(frozen=True)
class SplitAnswers:
    """The answers of all runs for one split.

    Attributes:
        gold: label numbers, int64 (N,), the same for all runs.
        probabilities: float64 (N, C) by contestant and seed.
    """

    gold: np.ndarray
    probabilities: dict[str, dict[int, np.ndarray]]


def read_answers(
    split: str, seeds_of: Mapping[str, Mapping[int, Path]], labels: Sequence[str]
) -> SplitAnswers:
    """Read predictions/SPLIT.jsonl of every run.

    Args:
        split: "dev" or "test".
        seeds_of: run folder by contestant and seed; at least one run.
        labels: C names, in the order of their numbers.

    Raises:
        InputError: a file is missing or empty, or two runs speak of different rows, of another
            order, or of other gold labels.
        FormatError: a line is damaged, or lacks a field or a label's probability.
    """
    first: tuple[str, list[Any], list[str]] | None = None
    gold = np.empty(0, dtype=np.int64)
    found: dict[str, dict[int, np.ndarray]] = {}
    for name, seeds in seeds_of.items():
        found[name] = {}
        for seed, folder in seeds.items():
            place = folder / "predictions" / f"{split}.jsonl"
            who = f"{printable(name)} (seed {seed})"
            lines = read_lines(place, [])
            if not lines:
                raise InputError(
                    f"{who}: {place} is missing or empty, so its {split} figures cannot be "
                    "measured. Run this contestant again."
                )
            numbers, said, found[name][seed] = _table(place, lines, labels)
            if first is None:
                first = (who, numbers, said)
                known = {label: number for number, label in enumerate(labels)}
                gold = np.array([known[label] for label in said], dtype=np.int64)
            else:
                _refuse_other_rows(split, first, (who, numbers, said))
    if first is None:
        raise InputError("The study has no finished contestant to judge.")
    return SplitAnswers(gold, found)


def _table(
    place: Path, lines: Sequence[Mapping[str, Any]], labels: Sequence[str]
) -> tuple[list[Any], list[str], np.ndarray]:
    """Row numbers, gold labels and probabilities (N, C) of a file of predictions."""
    numbers, said, table = [], [], []
    for at, line in enumerate(lines, start=1):
        try:
            scores = line["scores"]
            table.append([float(scores[label]) for label in labels])
            numbers.append(line["row"])
            said.append(str(line["gold"]))
        except (KeyError, TypeError, ValueError):
            raise FormatError(
                f"{place}:{at}: a prediction needs row, gold and a number in scores for each of "
                f"{_listed(labels)}."
            ) from None
        if said[-1] not in labels:
            raise FormatError(
                f"{place}:{at}: gold label {printable(said[-1])!r} is not one of {_listed(labels)}."
            )
    try:
        return numbers, said, ranking.probabilities(table)
    except InputError as error:
        raise FormatError(f"{place}: {error}") from None


def _refuse_other_rows(
    split: str, first: tuple[str, list[Any], list[str]], other: tuple[str, list[Any], list[str]]
) -> None:
    what = f"{first[0]} and {other[0]} were not judged on the same {split} rows"
    cure = "Only runs of the same prepared data can be compared; run one of them again."
    if len(first[1]) != len(other[1]):
        raise InputError(f"{what}: {len(first[1]):,} against {len(other[1]):,} rows. {cure}")
    for at, (mine, theirs) in enumerate(zip(first[1], other[1], strict=True), start=1):
        if mine != theirs:
            raise InputError(f"{what}: line {at} is of row {mine} and of row {theirs}. {cure}")
    for row, mine, theirs in zip(first[1], first[2], other[2], strict=True):
        if mine != theirs:
            raise InputError(
                f"{what}: the gold label of row {row} is {printable(mine)!r} and "
                f"{printable(theirs)!r}. {cure}"
            )


def prepared_rows(
    study: Path, split: str, gold: np.ndarray, labels: Sequence[str]
) -> list[dict[str, Any]] | None:
    """The values of data/SPLIT.jsonl.gz, which must be the rows that were judged; None of no file.

    Args:
        study: its folder.
        split: "dev" or "test".
        gold: label numbers of the predictions, int64 (N,).
        labels: C names.

    Raises InputError when number or labels differ.
    """
    place = study / "data" / f"{split}.jsonl.gz"
    if not place.is_file():
        return None
    rows = [row.values for row in read_rows(place)]
    cure = "The data was prepared anew after these runs; run the contestants again."
    if len(rows) != len(gold):
        raise InputError(
            f"{place} holds {len(rows):,} rows, the predictions are of {len(gold):,}. {cure}"
        )
    for at, (row, number) in enumerate(zip(rows, gold, strict=True), start=1):
        if str(row.get("label")) != labels[number]:
            raise InputError(
                f"{place}:{at}: label {printable(str(row.get('label')))!r}, but the predictions "
                f"were judged against {printable(labels[number])!r}. {cure}"
            )
    return rows


def _listed(names: Iterable[str]) -> str:
    return ", ".join(printable(name) for name in names)
