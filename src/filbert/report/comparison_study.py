"""Reads a study back for its report: results.json and the test predictions of the best seeds.

All statistics are those of results.json; predictions are only used for curves and counts.

N rows, C labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from filbert.errors import FilbertError, InputError
from filbert.report import canvas
from filbert.report.folder import read_object, read_scores

Columns = tuple[tuple[str, str], ...]

BINARY: Columns = (
    ("pr_auc", "PR AUC"),
    ("roc_auc", "ROC AUC"),
    ("f1", "F1, tuned threshold"),
    ("f1_at_half", "F1 at 0.5"),
    ("ece", "calibration error"),
    ("precision_at_recall_50", "precision at recall 50 %"),
    ("precision_at_recall_80", "precision at recall 80 %"),
    ("precision_at_recall_90", "precision at recall 90 %"),
    ("precision_at_recall_95", "precision at recall 95 %"),
)
MULTICLASS: Columns = (
    ("macro_f1", "macro F1"),
    ("accuracy", "accuracy"),
    ("weighted_f1", "weighted F1"),
    ("ece", "calibration error"),
    ("loss", "loss"),
)
FALLING = frozenset({"ece", "brier", "loss"})  # less is better
ALPHA = 0.05
COLORS = (*canvas.SERIES, canvas.INK, "#8A939C")
MARKERS = "os^DvPX*"


@dataclass(frozen=True, slots=True)
class ContestantEntry:
    """A contestant's entry in results.json, and how it is drawn.

    Attributes:
        name: As in results.json.
        entry: Its entry in results.json.
        place: Its number, which selects colour, line and marker.
    """

    name: str
    entry: dict[str, Any]
    place: int = 0

    @property
    def color(self) -> str:
        """Colour of lines and markers."""
        return COLORS[self.place % len(COLORS)]

    @property
    def marker(self) -> str:
        """Matplotlib's letter of the marker; it differs when a colour is used again."""
        return MARKERS[(self.place + self.place // len(COLORS)) % len(MARKERS)]

    @property
    def line(self) -> Any:
        """Matplotlib's line style: a dot for every reuse of a colour."""
        dots = (1.0, 1.6) * (self.place // len(COLORS))
        return (0, (9.0, 1.6, *dots)) if dots else "-"

    def figure(self, metric: str) -> dict[str, Any]:
        """value, low, high, interval_of, deviation and seeds of a metric; empty if not measured."""
        return (self.entry.get("test") or {}).get(metric) or {}

    def interval(self, metric: str) -> tuple[float | None, float | None]:
        """The interval of the mean, over rows and seeds; of a single seed, over rows."""
        figure = self.figure(metric).get("over_seeds") or self.figure(metric)
        return figure.get("low"), figure.get("high")

    def value(self, metric: str) -> float | None:
        """The mean over the seeds."""
        return self.figure(metric).get("value")

    def cost(self, name: str) -> float | None:
        """A cost: the median over the seeds."""
        return (self.entry.get("costs") or {}).get(name)

    @property
    def seeds(self) -> list[dict[str, Any]]:
        """Its runs."""
        return list(self.entry.get("seeds") or ())


@dataclass(frozen=True, slots=True)
class PredictionArrays:
    """Test predictions of a run: rows, gold and predicted label ids, int64 (N,); scores (N, C)."""

    rows: np.ndarray
    gold: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray


@dataclass(frozen=True, slots=True)
class Pair:
    """A metric's difference `one` minus `other` of two contestants, with the seeds best on dev.

    `over_seeds` is the interval of the difference of the means over several seeds.
    """

    one: str
    other: str
    difference: float
    low: float
    high: float
    p: float | None
    p_holm: float | None
    over_seeds: tuple[float, float] | None = None

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes zero, p_holm is below 0.05, and the seeds agree.

        The seeds agree if the interval of the means is on the same side of zero.
        """
        side = 1 if self.low > 0 else -1 if self.high < 0 else 0
        if side == 0 or (self.p_holm is not None and self.p_holm >= ALPHA):
            return False
        return self.over_seeds is None or min(side * end for end in self.over_seeds) > 0


@dataclass
class StudyFiles:
    """The files of a study.

    Attributes:
        path: Its folder.
        results: Content of results.json.
        contestants: The measured ones first, the best of them first.
        answers: Predictions of the seed that is best on dev, by contestant.
        notes: Sentences about missing parts.
    """

    path: Path
    results: dict[str, Any]
    contestants: list[ContestantEntry]
    answers: dict[str, PredictionArrays] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def measured(self) -> list[ContestantEntry]:
        """Contestants with test metrics, the best first."""
        return [one for one in self.contestants if one.entry.get("test")]

    @cached_property
    def answered(self) -> list[ContestantEntry]:
        """Contestants with test metrics and predictions."""
        return [one for one in self.measured if one.name in self.answers]

    @property
    def labels(self) -> list[str]:
        """Label names in the order of their ids."""
        return [str(label) for label in self.results.get("labels") or ()]

    @property
    def positive(self) -> int | None:
        """The id of the positive one of two labels; None for more labels."""
        return positive_of(self.results)

    @property
    def metrics(self) -> list[tuple[str, str]]:
        """(key, heading) of the measured metrics; the first one decides the ranking."""
        return metrics_of(self.results)

    @property
    def decisive(self) -> tuple[str, str]:
        """The metric of the ranking: PR AUC of two classes, macro F1 of more."""
        return self.metrics[0] if self.metrics else BINARY[0]

    @cached_property
    def tested(self) -> list[tuple[str, str]]:
        """(key, heading) of the metrics whose differences were tested, the decisive one first."""
        found = {key for pair in self.results.get("pairs") or () for key in pair}
        return [(key, heading) for key, heading in self.metrics if key in found]

    @cached_property
    def digits(self) -> int:
        """Decimals: the last one is about a tenth of the decisive metric's uncertainty."""
        values = [one.figure(self.decisive[0]) for one in self.measured]
        widths = [one["high"] - one["low"] for one in values if one.get("low") is not None]
        half = median(widths or [0.02]) / 2
        return 3 if half <= 0 else min(max(math.ceil(-math.log10(half)) + 1, 3), 4)

    @property
    def num_seeds(self) -> list[int]:
        """The different numbers of seeds of the measured contestants, ascending."""
        key = self.decisive[0]
        return sorted({len(one.figure(key).get("seeds") or ()) for one in self.measured} - {0})

    @property
    def level(self) -> str:
        """The confidence level, "95 %" with a no-break space."""
        level = (self.results.get("statistics") or {}).get("level") or 0.95
        return f"{100 * level:g}\N{NO-BREAK SPACE}%"

    @cached_property
    def _pairs(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(p["one"], p["other"]): p for p in self.results.get("pairs") or ()}

    def pair(self, one: str, other: str, metric: str) -> Pair | None:
        """`one` minus `other` in a metric; None if it was not tested."""
        sign = -1 if (other, one) in self._pairs else 1
        key = (one, other) if sign == 1 else (other, one)
        entry = (self._pairs.get(key) or {}).get(metric) or {}
        if entry.get("difference") is None or entry.get("low") is None:
            return None
        p, p_holm, over = entry.get("p"), entry.get("p_holm"), entry.get("over_seeds") or {}
        low, high = sorted((sign * entry["low"], sign * entry["high"]))
        means = None
        if over.get("low") is not None:
            means = sign * over["low"], sign * over["high"]
        return Pair(one, other, sign * entry["difference"], low, high, p, p_holm, means)

    def mcnemar(self, one: str, other: str) -> dict[str, Any]:
        """p, p_holm, only_one, only_other seen from `one`; empty if it was not tested."""
        if (other, one) not in self._pairs:
            return dict((self._pairs.get((one, other)) or {}).get("mcnemar") or {})
        found = self.mcnemar(other, one)
        names = {"only_one": "only_other", "only_other": "only_one"}
        return {names.get(key, key): value for key, value in found.items()}

    def not_significant(self, first: ContestantEntry) -> list[ContestantEntry]:
        """Contestants without a significant difference from `first` on the decisive metric."""
        key = self.decisive[0]
        pairs = [(one, self.pair(first.name, one.name, key)) for one in self.measured]
        return [one for one, pair in pairs if pair is not None and not pair.is_significant]


def positive_of(results: dict[str, Any]) -> int | None:
    """The id of the positive one of two labels, by default the second; None for more labels."""
    labels = [str(label) for label in results.get("labels") or ()]
    if len(labels) != 2:
        return None
    positive = str(results.get("positive"))
    return labels.index(positive) if positive in labels else 1


def metrics_of(results: dict[str, Any]) -> list[tuple[str, str]]:
    """(key, heading) of the metrics that some contestant has, the decisive one first."""
    known = {
        key
        for entry in results.get("contestants") or ()
        for key, figure in (entry.get("test") or {}).items()
        if isinstance(figure, dict) and figure.get("value") is not None
    }
    columns = BINARY if "pr_auc" in known or positive_of(results) is not None else MULTICLASS
    return [column for column in columns if column[0] in known]


def read_study(folder: Path) -> StudyFiles:
    """Read results.json and the test predictions of every contestant's best seed on dev.

    Raises:
        InputError: There is no results.json.
        FormatError: It is damaged.
    """
    path = folder / "results.json"
    if not path.is_file():
        raise InputError(
            f"{folder} holds no results.json. Give the folder that `filbert compare --out` wrote."
        )
    results = read_object(path, "a study")
    study = StudyFiles(folder, results, ranked(results), notes=[*(results.get("notes") or ())])
    for one in study.measured:
        try:
            study.answers[one.name] = _answers(study, one)
        except FilbertError as error:
            study.notes.append(f"{one.name}: {error} Its curves are left out.")
    return study


def ranked(results: dict[str, Any]) -> list[ContestantEntry]:
    """Contestants in the order of the decisive metric; those without a value last."""
    entries = results.get("contestants") or ()
    contestants = [ContestantEntry(str(e["name"]), e, place) for place, e in enumerate(entries)]
    metrics = metrics_of(results)
    if metrics:
        key = metrics[0][0]
        contestants.sort(key=lambda one: (one.value(key) is None, -(one.value(key) or 0)))
    return contestants


def _answers(study: StudyFiles, one: ContestantEntry) -> PredictionArrays:
    """Predictions of the best seed on dev, with the threshold of the metrics."""
    run = next(seed for seed in one.seeds if seed["seed"] == one.entry["best_seed"])
    path = study.path / run["folder"] / "predictions" / "test.jsonl"
    scores = read_scores(path, study.labels)
    predicted, at = scores.probabilities.argmax(1), study.positive
    if at is not None:
        threshold = run["test"]["threshold"]
        predicted = np.where(scores.probabilities[:, at] >= threshold, at, 1 - at)
    return PredictionArrays(scores.rows, scores.gold, predicted, scores.probabilities)
