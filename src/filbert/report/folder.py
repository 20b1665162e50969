"""Reads a run folder back: run.json, metrics.jsonl and predictions/*.jsonl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from filbert.errors import FormatError, InputError, printable
from filbert.metrics.ranking import probabilities

SPLITS = ("test", "dev")
CLASSIFICATIONS = ("binary", "multiclass", "multilabel")


@dataclass
class RunFolder:
    """The files of one run.

    Attributes:
        path: The folder.
        run: Content of run.json.
        steps: Lines of metrics.jsonl about optimiser steps.
        evaluations: Lines of metrics.jsonl about evaluations.
        predictions: Rows of predictions/dev.jsonl and test.jsonl, by split.
        baseline_predictions: Predictions of the baselines for the same rows, by baseline name.
        notes: Sentences about missing or damaged parts.
    """

    path: Path
    run: dict[str, Any]
    steps: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    predictions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    baseline_predictions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def problem(self) -> str | None:
        """binary, multiclass or multilabel; otherwise the name of the task, if it is known."""
        return problem_of(self.run)

    @property
    def is_pretraining(self) -> bool:
        """Whether the run is of `filbert pretrain`, or a distillation on raw text."""
        command = self.run.get("command")
        return command == "pretrain" or (command == "distill" and self.run.get("task") is None)

    @property
    def dev_evaluations(self) -> list[dict[str, Any]]:
        """Evaluations on dev, in the order of their steps."""
        return [line for line in self.evaluations if line.get("split", "dev") == "dev"]

    @cached_property
    def labels(self) -> list[str]:
        """Label names in the order of their ids, or as the predictions name them."""
        declared = self.run.get("labels")
        if not declared and self.problem in CLASSIFICATIONS and self.rows:
            declared = self.rows[0]["scores"]
        return [str(label) for label in declared or ()]

    @cached_property
    def positive(self) -> str | None:
        """The positive class of a binary run: as declared, otherwise the second label."""
        declared = self.run.get("positive")
        if declared is not None:
            return str(declared)
        return self.labels[1] if len(self.labels) == 2 else None

    @cached_property
    def headline_split(self) -> str | None:
        """The split of the headline metrics: test if it was measured, otherwise dev."""
        return headline_split(self.run)

    @cached_property
    def shown_split(self) -> str | None:
        """The split of the plots: the headline split if its predictions exist, otherwise any."""
        order = [self.headline_split, *SPLITS]
        return next((split for split in order if split and self.predictions.get(split)), None)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Predictions of the shown split."""
        return self.predictions[self.shown_split] if self.shown_split else []

    @property
    def shown_metrics(self) -> dict[str, Any]:
        """Metrics of the shown split in run.json."""
        return (self.run.get("metrics") or {}).get(self.shown_split) or {}

    def scores_of(self, label: str, rows: list[dict[str, Any]] | None = None) -> np.ndarray:
        """Probability of one label, float64 (rows,)."""
        chosen = self.rows if rows is None else rows
        return np.array([float(row["scores"][label]) for row in chosen])

    def gold_is(self, label: str, rows: list[dict[str, Any]] | None = None) -> np.ndarray:
        """Whether a row has the gold label, bool (rows,)."""
        chosen = self.rows if rows is None else rows
        return np.array([label in gold_labels(row) for row in chosen], dtype=bool)

    def predicted_is(self, label: str) -> np.ndarray:
        """Whether the label was predicted for a row, bool (rows,)."""
        return np.array([label in predicted_labels(row) for row in self.rows], dtype=bool)


def problem_of(run: dict[str, Any]) -> str | None:
    """One of CLASSIFICATIONS, or the name of the task."""
    task = run.get("task")
    return run.get("problem") or (None if task == "classification" else task)


def headline_split(run: dict[str, Any]) -> str | None:
    """The split of the headline metrics: test if it was measured, otherwise dev, or None."""
    metrics = run.get("metrics") or {}
    return next((split for split in SPLITS if metrics.get(split)), None)


def predicted_labels(row: dict[str, Any]) -> list[str]:
    """The labels predicted for a row; one unless the problem is multi-label."""
    return list(row["labels"]) if "labels" in row else [row["label"]]


def gold_labels(row: dict[str, Any]) -> list[str]:
    """The gold labels of a row; one unless the problem is multi-label."""
    return list(row["gold"]) if isinstance(row["gold"], list) else [row["gold"]]


def read_object(path: Path, what: str) -> dict[str, Any]:
    """The object of a JSON file.

    Raises:
        FormatError: The file is damaged; `what` names it in the message.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(f"{path} is not JSON: {error}.") from None
    if not isinstance(content, dict):
        raise FormatError(f"{path} holds a {type(content).__name__}; {what} is a JSON object.")
    return content


def read_run_folder(path: Path) -> RunFolder:
    """Read a run folder.

    The last line of a JSONL file may be incomplete after an interrupted run. It is dropped and
    mentioned in `notes`.

    Raises:
        InputError: There is no run.json.
        FormatError: A file is damaged.
    """
    description = path / "run.json"
    if not description.is_file():
        raise InputError(
            f"{path} holds no run.json. Give the folder that `filbert finetune --out` wrote."
        )
    folder = RunFolder(path, read_object(description, "a run"))
    for line in read_lines(path / "metrics.jsonl", folder.notes):
        (folder.evaluations if "metrics" in line else folder.steps).append(line)
    for split in SPLITS:
        rows = read_lines(path / "predictions" / f"{split}.jsonl", folder.notes)
        if rows:
            folder.predictions[split] = rows
    for baseline in folder.run.get("baselines") or ():
        if baseline.get("predictions"):
            rows = read_lines(path / baseline["predictions"], folder.notes)
            folder.baseline_predictions[str(baseline["name"])] = rows
    return folder


@dataclass(frozen=True, slots=True)
class Scores:
    """Predictions of N rows: row numbers and gold label ids, int64 (N,); probabilities (N, C)."""

    rows: np.ndarray
    gold: np.ndarray
    probabilities: np.ndarray


def read_scores(path: Path, labels: Sequence[str]) -> Scores:
    """Read the predictions of a classifier with one label a row.

    Args:
        path: predictions/SPLIT.jsonl of a run folder.
        labels: C names, in the order of their ids.

    Raises:
        InputError: The file is missing or empty.
        FormatError: A line is damaged, or lacks a row number, a gold label or a probability.
    """
    lines = read_lines(path, [])
    if not lines:
        raise InputError(f"{path} is missing or empty.")
    ids = {label: number for number, label in enumerate(labels)}
    rows, gold, table = [], [], []
    for at, line in enumerate(lines, start=1):
        try:
            rows.append(int(line["row"]))
            gold.append(ids[str(line["gold"])])
            table.append([float(line["scores"][label]) for label in labels])
        except (KeyError, TypeError, ValueError):
            known = ", ".join(map(printable, labels))
            raise FormatError(
                f"{path}:{at}: a prediction needs row, a gold label, and a number in scores for "
                f"each of {known}."
            ) from None
    try:
        return Scores(np.array(rows), np.array(gold), probabilities(table))
    except InputError as error:
        raise FormatError(f"{path}: {error}") from None


def read_lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The objects of a JSONL file; empty if there is no such file."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            # A complete line ends in a line break, so only the last piece can be incomplete.
            if number == len(lines):
                notes.append(f"The last line of {path.name} was cut off and is left out.")
                break
            raise FormatError(f"{path}:{number}: not a JSON object.") from None
    return found
