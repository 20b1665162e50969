"""A run folder read back: run.json, metrics.jsonl, predictions/*.jsonl, and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from filbert.errors import FormatError, InputError

SPLITS = ("test", "dev")
CLASSIFICATIONS = ("binary", "multiclass", "multilabel")


@dataclass
class RunFolder:
    """The files of one run.

    Attributes:
        path: the folder.
        run: content of run.json.
        steps: lines of metrics.jsonl written while training.
        evaluations: lines of metrics.jsonl written after an evaluation.
        predictions: rows of predictions/dev.jsonl and test.jsonl, by split; only those that exist.
        baseline_predictions: the same rows scored by a baseline, by its name; for baselines whose
            entry in run.json has `predictions`, a path inside the folder.
        notes: sentences for the reader about what was missing or broken.
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
        """binary, multiclass or multilabel; else the name of the task; None if neither is told."""
        return problem_of(self.run)

    @property
    def is_classification(self) -> bool:
        """Whether every row has labels and their probabilities."""
        return self.problem in CLASSIFICATIONS

    @cached_property
    def labels(self) -> list[str]:
        """Label names in the order of their numbers, or as the predictions name them."""
        declared = self.run.get("labels")
        if not declared and self.is_classification and self.rows:
            declared = self.rows[0]["scores"]
        declared = declared or ()
        return [str(label) for label in declared]

    @cached_property
    def positive(self) -> str | None:
        """The positive class of a binary run: as declared, else the second label."""
        declared = self.run.get("positive")
        if declared is not None:
            return str(declared)
        return self.labels[1] if len(self.labels) == 2 else None

    @cached_property
    def judged_split(self) -> str | None:
        """The split whose numbers count: test, else dev, else none."""
        return judged_split(self.run)

    @cached_property
    def shown_split(self) -> str | None:
        """The split that plots are made of: the judged one if its predictions exist, else any."""
        order = [self.judged_split, *SPLITS]
        return next((split for split in order if split and self.predictions.get(split)), None)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Predictions of the shown split."""
        return self.predictions[self.shown_split] if self.shown_split else []

    def scores_of(self, label: str, rows: list[dict[str, Any]] | None = None) -> np.ndarray:
        """Probability of one label, float64 (rows,)."""
        chosen = self.rows if rows is None else rows
        return np.array([float(row["scores"][label]) for row in chosen])

    def gold_is(self, label: str, rows: list[dict[str, Any]] | None = None) -> np.ndarray:
        """Whether a row carries the label in truth, bool (rows,)."""
        chosen = self.rows if rows is None else rows
        return np.array([label in _as_list(row["gold"]) for row in chosen], dtype=bool)

    def predicted_is(self, label: str) -> np.ndarray:
        """Whether a row was given the label, bool (rows,)."""
        return np.array([label in predicted_labels(row) for row in self.rows], dtype=bool)


def problem_of(run: dict[str, Any]) -> str | None:
    """What a run is shown as: one of CLASSIFICATIONS, or the name of its task."""
    task = run.get("task")
    return run.get("problem") or (None if task == "classification" else task)


def judged_split(run: dict[str, Any]) -> str | None:
    """The split whose numbers count: test if it was measured, else dev, else None."""
    metrics = run.get("metrics") or {}
    return next((split for split in SPLITS if metrics.get(split)), None)


def predicted_labels(row: dict[str, Any]) -> list[str]:
    """The labels given to a row: one, or for multi-label any number."""
    return list(row["labels"]) if "labels" in row else [row["label"]]


def gold_labels(row: dict[str, Any]) -> list[str]:
    """The labels a row has in truth: one, or for multi-label any number."""
    return _as_list(row["gold"])


def read_run_folder(path: Path) -> RunFolder:
    """Read a run folder.

    Raises InputError when there is no run.json, FormatError when a file is damaged. The last line
    of a JSONL file may be cut off, as a killed run leaves it: it is dropped, and `notes` says so.
    """
    description = path / "run.json"
    if not description.is_file():
        raise InputError(
            f"{path} holds no run.json. Give the folder that `filbert finetune --out` wrote."
        )
    try:
        run = json.loads(description.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(f"{description} is not JSON: {error}.") from None
    if not isinstance(run, dict):
        raise FormatError(f"{description} holds a {type(run).__name__}; a run is a JSON object.")
    folder = RunFolder(path, run)
    for line in read_lines(path / "metrics.jsonl", folder.notes):
        (folder.evaluations if "metrics" in line else folder.steps).append(line)
    for split in SPLITS:
        rows = read_lines(path / "predictions" / f"{split}.jsonl", folder.notes)
        if rows:
            folder.predictions[split] = rows
    for baseline in run.get("baselines") or ():
        if baseline.get("predictions"):
            rows = read_lines(path / baseline["predictions"], folder.notes)
            folder.baseline_predictions[str(baseline["name"])] = rows
    return folder


def read_lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The objects of a JSONL file; none if there is no such file."""
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
            # A finished line ends in a line break, so only a cut one is the last piece.
            if number == len(lines):
                notes.append(f"The last line of {path.name} was cut off and is left out.")
                break
            raise FormatError(f"{path}:{number}: not a JSON object.") from None
    return found


def _as_list(gold: Any) -> list[str]:
    return list(gold) if isinstance(gold, list) else [gold]
