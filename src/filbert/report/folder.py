"""Reads a run folder: run.json, metrics.jsonl and predictions/*.jsonl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from filbert.errors import FormatError, InputError
from filbert.files import read_json
from filbert.metrics.ranking import probabilities

SPLITS = ("test", "dev")
Prediction = dict[str, Any]


class RunFolder:
    """The files of one run, as they are when it is created.

    Attributes:
        run: Content of run.json.
        problem: See `problem_of`.
        labels: Label names in the order of their ids.
        positive: The positive class of a binary run: as declared, otherwise the second label.
        steps: Lines of metrics.jsonl about optimizer steps.
        evaluations: Lines of metrics.jsonl about evaluations on dev.
        split: The split of the plots: that of the headline if its predictions exist, otherwise any.
        rows: Predictions of that split.
        metrics, data: Its metrics, and facts about its rows, in run.json.
        baseline_predictions: Predictions of the baselines for the same rows, by baseline name.

    Raises:
        FormatError: A file is damaged, or there is no run.json.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.run = path, read_json(path / "run.json")
        self.problem = problem_of(self.run)
        self.labels = [str(label) for label in self.run.get("labels") or ()]
        self.positive: str | None = self.run.get("positive")
        if self.positive is None and len(self.labels) == 2:
            self.positive = self.labels[1]
        lines = read_lines(path / "metrics.jsonl")
        self.steps = [line for line in lines if "metrics" not in line]
        evaluations = [line for line in lines if "metrics" in line]
        self.evaluations = [line for line in evaluations if line.get("split", "dev") == "dev"]
        predictions = {s: read_lines(path / "predictions" / f"{s}.jsonl") for s in SPLITS}
        order = [headline_split(self.run), *SPLITS]
        self.split = next((split for split in order if split and predictions[split]), None)
        self.rows = predictions[self.split] if self.split else []
        self.metrics: dict[str, Any] = (self.run.get("metrics") or {}).get(self.split) or {}
        self.data: dict[str, Any] = (self.run.get("data") or {}).get(self.split) or {}
        self.baseline_predictions = {
            str(baseline["name"]): read_lines(path / baseline["predictions"])
            for baseline in self.run.get("baselines") or ()
            if baseline.get("predictions")
        }


def problem_of(run: dict[str, Any]) -> str | None:
    """Return binary, multiclass or multilabel; otherwise the name of the task, if it is known.

    `filbert pretrain` and distillation on raw text have the problem "pretraining".
    """
    task = run.get("task")
    if task is None and run.get("command") in ("pretrain", "distill"):
        return "pretraining"
    return run.get("problem") or (None if task == "classification" else task)


def headline_split(run: dict[str, Any]) -> str | None:
    """Return the split of the headline metrics: test if it was measured, otherwise dev, or None."""
    metrics = run.get("metrics") or {}
    return next((split for split in SPLITS if metrics.get(split)), None)


def predicted_labels(row: Prediction) -> list[str]:
    """Return the labels predicted for a row; one unless the problem is multi-label."""
    return list(row["labels"]) if "labels" in row else [row["label"]]


def gold_labels(row: Prediction) -> list[str]:
    """Return the gold labels of a row; one unless the problem is multi-label."""
    return list(row["gold"]) if isinstance(row["gold"], list) else [row["gold"]]


def scores_of(label: str, rows: Sequence[Prediction]) -> np.ndarray:
    """Return the probability of one label, float64 (rows,)."""
    return np.array([float(row["scores"][label]) for row in rows])


def gold_is(label: str, rows: Sequence[Prediction]) -> np.ndarray:
    """Return whether a row has the gold label, bool (rows,)."""
    return np.array([label in gold_labels(row) for row in rows], dtype=bool)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file, none without the file; other lines are a FormatError.

    A last line without a line break is left out, as an interrupted run may have cut it.
    """
    if not path.is_file():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise FormatError(f"{path} is damaged: {error}.") from None


@dataclass(frozen=True, eq=False)
class Scores:
    """Predictions of N rows for C labels, one of which is predicted.

    Attributes:
        rows: Row numbers, int64 (N,).
        gold: Label ids, int64 (N,).
        probabilities: float64 (N, C).
        tokens: Number of tokens before truncation, int64 (N,); num_cut rows were truncated.
        positive: Id of the positive one of two labels; None for more labels.
        threshold: Of the positive label's probability; without effect for more labels.
    """

    rows: np.ndarray
    gold: np.ndarray
    probabilities: np.ndarray
    tokens: np.ndarray
    num_cut: int
    positive: int | None
    threshold: float = 0.0

    @cached_property
    def predicted(self) -> np.ndarray:
        """Label ids, int64 (N,)."""
        if self.positive is None:
            return np.asarray(self.probabilities.argmax(1))
        is_positive = self.probabilities[:, self.positive] >= self.threshold
        return np.where(is_positive, self.positive, 1 - self.positive)


def read_scores(path: Path, labels: Sequence[str], positive: str | None) -> Scores:
    """Read the predictions of a classifier with one label a row.

    `path` is predictions/SPLIT.jsonl of a run folder, `labels` are the names in the order of their
    ids, and `positive` is one of two. A file that is missing, empty or damaged is a FormatError.
    """
    lines = read_lines(path)
    try:
        if not lines:
            raise ValueError("it is missing or empty.")
        rows = np.array([int(line["row"]) for line in lines])
        gold = np.array([labels.index(line["gold"]) for line in lines])
        table = [[float(line["scores"][label]) for label in labels] for line in lines]
        scores = probabilities(table)
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise FormatError(f"{path} holds no predictions for {list(labels)}: {error}") from None
    tokens = np.array([line.get("num_tokens") or 0 for line in lines])
    num_cut = sum(bool(line.get("truncated")) for line in lines)
    number = None if positive is None else labels.index(positive)
    return Scores(rows, gold, scores, tokens, num_cut, number)
