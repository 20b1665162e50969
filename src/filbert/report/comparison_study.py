"""A study read back for its report: results.json, and the test predictions of the runs shown.

N rows, C labels. Every statistic is taken from results.json as it stands; predictions are only read
to draw curves and to count calls.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from filbert.errors import FormatError, InputError
from filbert.report.comparison_contestant import Contestant
from filbert.report.folder import read_lines

BINARY = (
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
MULTICLASS = (
    ("macro_f1", "macro F1"),
    ("accuracy", "accuracy"),
    ("weighted_f1", "weighted F1"),
    ("ece", "calibration error"),
    ("loss", "loss"),
)
# Less is better.
FALLING = frozenset({"ece", "brier", "loss"})
PROVEN = 0.05


@dataclass(frozen=True, slots=True)
class Answers:
    """What one run said about the test rows.

    Attributes:
        rows: row numbers, int64 (N,), rising.
        gold: label numbers, int64 (N,).
        called: label numbers, int64 (N,).
        probabilities: float64 (N, C).
    """

    rows: np.ndarray
    gold: np.ndarray
    called: np.ndarray
    probabilities: np.ndarray


@dataclass(frozen=True, slots=True)
class Pair:
    """One metric's difference between two contestants, seen from `one`.

    Both with the seed that is best on dev; `over_seeds` holds difference, low and high of the means
    over the seeds, where there are several.
    """

    one: str
    other: str
    difference: float
    low: float
    high: float
    p: float | None
    p_holm: float | None
    over_seeds: tuple[float, float, float] | None = None

    @property
    def is_told(self) -> bool:
        """Whether one side may be called ahead.

        The interval leaves zero out, the corrected p is below 0.05 where there is one, and with
        several seeds the interval of their means lies on the same side of zero.
        """
        side = 1 if self.low > 0 else -1 if self.high < 0 else 0
        if side == 0 or (self.p_holm is not None and self.p_holm >= PROVEN):
            return False
        return self.over_seeds is None or min(side * end for end in self.over_seeds[1:]) > 0

    @property
    def swapped(self) -> Pair:
        """The same, seen from the other side."""
        over = self.over_seeds and (-self.over_seeds[0], -self.over_seeds[2], -self.over_seeds[1])
        return Pair(
            self.other, self.one, -self.difference, -self.high, -self.low, self.p, self.p_holm, over
        )


@dataclass
class Study:
    """The files of a study.

    Attributes:
        path: its folder.
        results: content of results.json.
        contestants: those with test figures first, the best first; then the others as listed.
        answers: of the seed that is best on dev, by contestant.
        notes: sentences for the reader about what was missing.
        notes_on_texts: why texts that were asked for are not shown.
    """

    path: Path
    results: dict[str, Any]
    contestants: list[Contestant]
    answers: dict[str, Answers] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    notes_on_texts: str = ""

    @cached_property
    def measured(self) -> list[Contestant]:
        """Contestants with test figures, the best first."""
        return [one for one in self.contestants if one.is_measured]

    @cached_property
    def answered(self) -> list[Contestant]:
        """Those of them whose predictions are there too."""
        return [one for one in self.measured if one.name in self.answers]

    @property
    def labels(self) -> list[str]:
        """Label names in the order of their numbers."""
        return labels_of(self.results)

    @property
    def positive(self) -> int | None:
        """The number of the positive label of two; None for more."""
        return positive_of(self.results)

    @property
    def metrics(self) -> list[tuple[str, str]]:
        """(key, heading) of the metrics that somebody has, the first decides the ranking."""
        return metrics_of(self.results)

    @property
    def decisive(self) -> tuple[str, str]:
        """The metric that ranks: PR AUC of two classes, macro F1 of more."""
        return self.metrics[0] if self.metrics else ("pr_auc", "PR AUC")

    @cached_property
    def tested(self) -> list[tuple[str, str]]:
        """(key, heading) of the metrics whose differences were tested, the decisive one first."""
        found = {key for pair in self.results.get("pairs") or () for key in pair}
        return [(key, heading) for key, heading in self.metrics if key in found]

    @cached_property
    def digits(self) -> int:
        """Decimals: the last one is about a tenth of the decisive metric's uncertainty."""
        widths = []
        for one in self.measured:
            figure = one.figure(self.decisive[0])
            if figure.get("low") is not None and figure.get("high") is not None:
                widths.append((figure["high"] - figure["low"]) / 2)
        middle = sorted(widths)[len(widths) // 2] if widths else 0.01
        return 3 if middle <= 0 else min(max(math.ceil(-math.log10(middle)) + 1, 3), 4)

    @property
    def level(self) -> str:
        """How sure the intervals are: "95 %", with a space that no line breaks at."""
        level = (self.results.get("statistics") or {}).get("level") or 0.95
        return f"{100 * level:g}\N{NO-BREAK SPACE}%"

    @cached_property
    def _pairs(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(p["one"], p["other"]): p for p in self.results.get("pairs") or ()}

    def pair(self, one: str, other: str, metric: str) -> Pair | None:
        """`one` minus `other` in a metric; None if that was not tested."""
        if (one, other) not in self._pairs:
            if (other, one) not in self._pairs:
                return None
            seen = self.pair(other, one, metric)
            return seen and seen.swapped
        found: dict[str, Any] = self._pairs[one, other].get(metric) or {}
        values = _three(found)
        if values is None:
            return None
        over = _three(found.get("over_seeds") or {})
        return Pair(one, other, *values, found.get("p"), found.get("p_holm"), over)

    def mcnemar(self, one: str, other: str) -> dict[str, Any] | None:
        """p, p_holm, only_one, only_other, seen from `one`; None if that was not tested."""
        if found := (self._pairs.get((one, other)) or {}).get("mcnemar"):
            return dict(found)
        if found := (self._pairs.get((other, one)) or {}).get("mcnemar"):
            return {
                **found,
                "only_one": found.get("only_other"),
                "only_other": found.get("only_one"),
            }
        return None

    @cached_property
    def cleaned_pairs(self) -> list[tuple[Contestant, Contestant]]:
        """(without, with cleaning) of every contestant that was measured both ways."""
        plain = {one.name: one for one in self.measured if not one.is_cleaned}
        return [(plain[one.base], one) for one in self.measured
                if one.is_cleaned and one.base in plain]  # fmt: skip

    def cleaned_name(self, cleaned: Contestant) -> str:
        """That of the model; with several cleanings of it, of this one."""
        bases = [one.base for _, one in self.cleaned_pairs]
        return cleaned.base if bases.count(cleaned.base) == 1 else cleaned.name


def _three(found: dict[str, Any]) -> tuple[float, float, float] | None:
    values = [found.get(key) for key in ("difference", "low", "high")]
    known = [float(value) for value in values if value is not None]
    return (known[0], known[1], known[2]) if len(known) == 3 else None


def labels_of(results: dict[str, Any]) -> list[str]:
    """Label names in the order of their numbers."""
    return [str(label) for label in results.get("labels") or ()]


def positive_of(results: dict[str, Any]) -> int | None:
    """The number of the positive label of two, the second if none is named; None for more."""
    labels = labels_of(results)
    if len(labels) != 2:
        return None
    named = results.get("positive")
    return labels.index(str(named)) if str(named) in labels else 1


def metrics_of(results: dict[str, Any]) -> list[tuple[str, str]]:
    """(key, heading) of the metrics that some contestant has, the one that ranks first."""
    entries = results.get("contestants") or ()
    known = {
        key
        for entry in entries
        for key, figure in (entry.get("test") or {}).items()
        if isinstance(figure, dict) and figure.get("value") is not None
    }
    columns = BINARY if "pr_auc" in known or positive_of(results) is not None else MULTICLASS
    return [column for column in columns if column[0] in known]


def read_study(folder: Path) -> Study:
    """Read results.json and the test predictions of every contestant's seed that is best on dev.

    Raises InputError when there is no results.json, FormatError when it is damaged.
    """
    path = folder / "results.json"
    if not path.is_file():
        raise InputError(
            f"{folder} holds no results.json. Give the folder that `filbert compare --out` wrote."
        )
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(f"{path} is not JSON: {error}.") from None
    if not isinstance(results, dict):
        raise FormatError(f"{path} holds a {type(results).__name__}; a study is a JSON object.")
    study = Study(folder, results, ranked(results), notes=[*(results.get("notes") or ())])
    for one in study.measured:
        answers = _answers(study, one)
        if answers is not None:
            study.answers[one.name] = answers
    return study


def ranked(results: dict[str, Any]) -> list[Contestant]:
    """Contestants in the order of the decisive metric; those without a figure last."""
    entries = list(results.get("contestants") or ())
    names = [str(entry["name"]) for entry in entries]
    plain = [name for name, e in zip(names, entries, strict=True) if not e.get("cleaning")]
    bases = {
        name: _base(name, plain) if entry.get("cleaning") else name
        for name, entry in zip(names, entries, strict=True)
    }
    places = {base: place for place, base in enumerate(dict.fromkeys(bases.values()))}
    variants: dict[str, list[str]] = {base: [] for base in places}
    for name, base in bases.items():
        if name != base:
            variants[base].append(name)
    found = [
        Contestant(
            name,
            entry,
            bases[name],
            places[bases[name]],
            variants[bases[name]].index(name) if name != bases[name] else 0,
        )
        for name, entry in zip(names, entries, strict=True)
    ]
    metrics = metrics_of(results)
    if metrics:
        key = metrics[0][0]
        found.sort(key=lambda one: (one.value(key) is None, -(one.value(key) or 0)))
    return found


def _base(name: str, plain: Sequence[str]) -> str:
    """The contestant that `name` is a cleaned variant of: "minilm" of "minilm, cleaned"."""
    fitting = [other for other in plain if name.startswith(f"{other},")]
    return max(fitting, key=len, default=name)


def _answers(study: Study, one: Contestant) -> Answers | None:
    chosen = next((s for s in one.seeds if s.get("seed") == one.entry.get("best_seed")), None)
    if chosen is None or not chosen.get("folder"):
        study.notes.append(f"{one.name}: no seed is named the best, so its curves are left out.")
        return None
    place = study.path / str(chosen["folder"]) / "predictions" / "test.jsonl"
    rows = read_lines(place, [])
    if not rows:
        study.notes.append(
            f"{one.name}: its test predictions are gone, so its curves are left out."
        )
        return None
    numbers = {label: number for number, label in enumerate(study.labels)}
    # The threshold that the figures were made with, so that calls and F1 belong together.
    threshold, at = (chosen.get("test") or {}).get("threshold"), study.positive
    rows.sort(key=lambda row: row["row"])
    try:
        probabilities = np.array([[float(r["scores"][n]) for n in study.labels] for r in rows])
        called = np.array([numbers[str(row["label"])] for row in rows], dtype=np.int64)
        if threshold is not None and at is not None:
            called = np.where(probabilities[:, at] >= threshold, at, 1 - at)
        return Answers(
            np.array([row["row"] for row in rows], dtype=np.int64),
            np.array([numbers[str(row["gold"])] for row in rows], dtype=np.int64),
            called,
            probabilities,
        )
    except (KeyError, TypeError, ValueError) as error:
        study.notes.append(
            f"{one.name}: a row of its test predictions lacks gold, label or scores of the labels "
            f"{', '.join(study.labels)} ({error}), so its curves are left out."
        )
        return None
