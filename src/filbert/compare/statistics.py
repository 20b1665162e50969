"""Metrics, intervals and tests of a study, from the predictions of its runs.

Test rows are resampled, the same for all runs; thresholds come from dev and stay fixed. An
interval therefore covers the choice of test rows for *this trained model*. The choice of the seed
is shown by `seeds` and `deviation` of each metric, and, with two seeds or more, by `over_seeds`, an
interval for the mean over seeds from rows and seeds resampled together. Neither covers other
training rows, another split or other options. Tests between pairs are of the seed that is best on
dev, and say nothing about other seeds. More: docs/statistics.md.

N rows, C labels, F metrics, B resamples, S seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from filbert.errors import InputError, printable
from filbert.metrics import calibration, ranking
from filbert.metrics.bootstrap import (
    Form,
    binary_form,
    class_form,
    confusion_form,
    difference,
    ends,
    holm,
    mcnemar,
    rates_of,
    resampled,
)
from filbert.metrics.classification import binary_metrics, losses, multiclass_metrics
from filbert.report.folder import Scores, read_scores

LEVEL = 0.95
SEED = 0  # of the resampling
RECALLS = {f"precision_at_recall_{round(100 * r)}": r for r in (0.5, 0.8, 0.9, 0.95)}
# Metrics that pairs are tested by.
TESTED_BINARY, TESTED_CLASSES = ("roc_auc", "pr_auc", "f1"), ("accuracy", "macro_f1")
# A difference must be able to reach this corrected p-value, and is significant below the other.
SMALLEST_P_HOLM, ALPHA = 0.01, 0.05
# Below this many rows of a class the percentile intervals are too narrow: docs/statistics.md.
FEW_ROWS = 50
# Further values of a slice column are one slice.
MOST_SLICES, NOT_STATED, OTHER_VALUES = 20, "not stated", "other values"
# Ranges of metrics that are not in [0, 1].
RANGES = {"mcc": (-1.0, 1.0), "loss": (0.0, math.inf)}


def metrics_of(scores: Scores) -> dict[str, Any]:
    """Compute every metric; floats, None where undefined."""
    if scores.positive is None:
        metrics = multiclass_metrics(scores.gold, scores.probabilities)
        del metrics["per_label"]
        is_right, confidence = scores.predicted == scores.gold, scores.probabilities.max(1)
        error = calibration.expected_calibration_error(is_right, confidence.clip(0, 1))
        return metrics | {"ece": error}
    gold, shares = scores.gold == scores.positive, scores.probabilities[:, scores.positive]
    once = form_of(scores)(np.ones((len(gold), 1), dtype=np.int64))
    extra = {name: float(once[name][0]) for name in ("f1_at_half", *RECALLS, "brier")}
    return (
        binary_metrics(gold, shares, scores.threshold)
        | {name: None if math.isnan(value) else value for name, value in extra.items()}
        | {"ece": calibration.expected_calibration_error(gold, shares)}
    )


def form_of(scores: Scores, *, tested: bool = False) -> Form:
    """Return all metrics with an interval, or those that pairs are tested by and a few more.

    The calibration error has no interval: resampled bins are noisier than those of the rows, so its
    resamples are too high.
    """
    loss = losses(scores.probabilities[np.arange(len(scores.gold)), scores.gold])
    if scores.positive is None:
        form = class_form(scores.gold, scores.predicted, scores.probabilities.shape[1])
        return form if tested else _with_means(form, {"loss": loss})
    gold, shares = scores.gold == scores.positive, scores.probabilities[:, scores.positive]
    called = scores.predicted == scores.positive
    form = binary_form(gold, shares, called, recalls=None if tested else RECALLS)
    if tested:
        return form
    half = confusion_form(gold, shares >= 0.5, 2)

    def at_half(weights: np.ndarray) -> dict[str, np.ndarray]:
        return form(weights) | {"f1_at_half": rates_of(half(weights))["f1"]}

    return _with_means(at_half, {"brier": (shares - gold) ** 2, "loss": loss})


def _with_means(form: Form, values: Mapping[str, np.ndarray]) -> Form:
    """Return a form that also has the weighted means of values of the rows, float64 (N,) each."""
    table = np.stack([*values.values()])

    def of(weights: np.ndarray) -> dict[str, np.ndarray]:
        means = table @ weights.astype(np.float64) / weights.sum(0)
        return form(weights) | dict(zip(values, means, strict=True))

    return of


Runs = Mapping[str, Mapping[int, Path]]


def read_predictions(
    split: str, folders: Runs, labels: Sequence[str], positive: str | None
) -> dict[tuple[str, int], Scores]:
    """Return predictions/SPLIT.jsonl by (contestant, seed).

    Raises:
        InputError: Two runs have different rows or gold labels.
        FormatError: A file is missing or damaged.
    """
    found: dict[tuple[str, int], Scores] = {}
    for name, seeds in folders.items():
        for seed, folder in seeds.items():
            one = read_scores(folder / "predictions" / f"{split}.jsonl", labels, positive)
            first = next(iter(found.values()), one)
            if not np.array_equal(one.rows, first.rows) or not np.array_equal(one.gold, first.gold):
                raise InputError(
                    f"{printable(name)}, seed {seed}: its {split} predictions are of other rows "
                    "than those of the first contestant. Run it again."
                )
            found[name, seed] = one
    return found


@dataclass(frozen=True)
class Measured:
    """The runs of one contestant, measured on test.

    Attributes:
        dev: Dev metrics by seed.
        test: Test metrics by seed.
        best: The seed that is best on dev.
        scores: Test predictions of that seed, at the threshold of the best F1 on dev.
        drawn: Test metrics of that seed on the resamples, float64 (B,) by metric.
        over_seeds: Their mean over several seeds on resampled rows and seeds; {} for one seed.
    """

    dev: dict[int, dict[str, Any]]
    test: dict[int, dict[str, Any]]
    best: int
    scores: Scores
    drawn: dict[str, np.ndarray]
    over_seeds: dict[str, np.ndarray]

    def value(self, metric: str) -> float | None:
        """Return the mean of a test metric over the seeds."""
        known = [one[metric] for one in self.test.values() if one[metric] is not None]
        return float(np.mean(known)) if known else None

    def estimate(self, metric: str) -> dict[str, Any]:
        """Return a test metric with interval, seeds and their deviation."""
        values = [one[metric] for one in self.test.values()]
        known = [value for value in values if value is not None]
        low, high = ends(self.drawn[metric], LEVEL) if metric in self.drawn else (None, None)
        estimate: dict[str, Any] = {
            "value": self.value(metric),
            "low": low,
            "high": high,
            "interval_of": self.test[self.best][metric],
            "deviation": float(np.std(known, ddof=1)) if len(known) > 1 else None,
            "seeds": values,
        }
        if metric in self.over_seeds:
            # The scaling gives negative weights on some draws, so the mean can leave the range.
            least, most = RANGES.get(metric, (0.0, 1.0))
            low, high = (
                None if end is None else min(max(end, least), most)
                for end in ends(self.over_seeds[metric], LEVEL)
            )
            estimate["over_seeds"] = {"low": low, "high": high}
        return estimate


def compute_statistics(
    entries: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    labels: Sequence[str],
    positive: str | None,
    slices: Sequence[str] | None = None,
    resamples: int = 2000,
) -> dict[str, Any]:
    """Compute the statistics of results.json: contestants, pairs, slices and statistics.

    Args:
        entries: The contestants; at least one is finished. Those get their metrics.
        folder: Of the study, with the folders of the seeds.
        labels: In the order of their numbers.
        positive: The positive one of two labels; None for more labels.
        slices: The value of the slice column of each test row.
        resamples: B. Pairs get at least enough for a difference to reach p_holm 0.01.

    Raises:
        InputError, FormatError: Predictions are wrong.
    """
    metric = "macro_f1" if positive is None else "pr_auc"
    folders = {
        entry["name"]: {
            seed["seed"]: folder / seed["folder"]
            for seed in entry["seeds"]
            if seed["status"] == "finished"
        }
        for entry in entries
        if entry["status"] == "finished"
    }
    measured = _measured(folders, labels, positive, metric=metric, resamples=resamples)
    best = {name: one.scores for name, one in measured.items()}
    gold = next(iter(best.values())).gold
    for_pairs = _enough(resamples, math.comb(len(folders), 2))
    return {
        "contestants": [
            _with_metrics(entry, measured[entry["name"]]) if entry["name"] in measured else entry
            for entry in entries
        ],
        "pairs": pairs_of(measured, resamples=for_pairs),
        "slices": [] if slices is None else slice_entries(best, slices),
        "statistics": {
            "resamples": resamples,
            "resamples_for_pairs": for_pairs,
            "level": LEVEL,
            "seed": SEED,
            "best_seed_by": f"dev {metric}",
            "notes": _notes(gold, labels, best),
        },
    }


def _with_metrics(entry: Mapping[str, Any], one: Measured) -> dict[str, Any]:
    metrics = {number: {"dev": one.dev[number], "test": one.test[number]} for number in one.dev}
    seeds = [seed | metrics.get(seed["seed"], {}) for seed in entry["seeds"]]
    test = {key: one.estimate(key) for key in one.test[one.best]}
    return {**entry, "seeds": seeds, "best_seed": one.best, "test": test}


def _enough(resamples: int, num_pairs: int) -> int:
    """Return B for the pairs: the least p-value, 2 / (B + 1), times their number is at most 0.01.

    B + 1 is a multiple of 200, so that the ends of a 95 % interval are whole ranks, and interval
    and p-value always agree.
    """
    wanted = max(resamples + 1, 2 * num_pairs / SMALLEST_P_HOLM)
    return math.ceil(wanted / 200) * 200 - 1


def _measured(
    folders: Runs,
    labels: Sequence[str],
    positive: str | None,
    *,
    metric: str,
    resamples: int,
) -> dict[str, Measured]:
    """Measure all runs on dev, on test and on its resamples, which are the same for all.

    `metric` chooses the best seed on dev; the lowest seed of equal ones.
    """
    dev = read_predictions("dev", folders, labels, positive)
    test = read_predictions("test", folders, labels, positive)
    if positive is not None:
        for run, one in dev.items():
            shares = one.probabilities[:, one.positive]
            threshold = ranking.best_f1_threshold(one.gold == one.positive, shares)
            dev[run] = replace(one, threshold=threshold)
            test[run] = replace(test[run], threshold=threshold)
    forms = [form_of(one) for one in test.values()]
    gold = next(iter(test.values())).gold
    tables = resampled(forms, gold, resamples=resamples, seed=SEED)
    drawn = dict(zip(test, tables, strict=True))
    measured = {}
    for name, seeds in folders.items():
        on_dev = {s: metrics_of(dev[name, s]) for s in seeds}
        best = max(sorted(on_dev), key=lambda s: on_dev[s][metric] or 0.0)
        measured[name] = Measured(
            dev=on_dev,
            test={s: metrics_of(test[name, s]) for s in seeds},
            best=best,
            scores=test[name, best],
            drawn=drawn[name, best],
            over_seeds=mean_over_seeds(
                [drawn[name, s] for s in seeds], [SEED, crc32(name.encode())]
            ),
        )
    return measured


def mean_over_seeds(
    drawn: Sequence[Mapping[str, np.ndarray]], seed: Sequence[int]
) -> dict[str, np.ndarray]:
    """Return the mean over S seeds on each resample, with seeds resampled too; {} for one seed.

    The variation by seeds is scaled by sqrt(S / (S - 1)), because S values drawn with replacement
    vary less than they should by that factor: by a fifth for three seeds. Source: the
    Multi-Bootstrap of Sellam et al. 2022, "The MultiBERTs", without the scaling.

    Args:
        drawn: Of each seed, float64 (B,) by metric, on the same resamples of rows.
        seed: Of the draws of seeds.
    """
    num_seeds = len(drawn)
    if num_seeds < 2:
        return {}
    num_draws = len(next(iter(drawn[0].values())))
    picks = np.random.default_rng(seed).integers(0, num_seeds, size=(num_seeds, num_draws))
    shares = np.stack([(picks == s).mean(0) for s in range(num_seeds)])
    stretched = 1 / num_seeds + math.sqrt(num_seeds / (num_seeds - 1)) * (shares - 1 / num_seeds)
    return {name: (np.stack([one[name] for one in drawn]) * stretched).sum(0) for name in drawn[0]}


def _notes(gold: np.ndarray, labels: Sequence[str], best: Mapping[str, Scores]) -> list[str]:
    counts = np.bincount(gold, minlength=len(labels))
    rarest = int(counts.argmin())
    notes = [
        f"Labels with under {FEW_ROWS} test rows: {(counts < FEW_ROWS).sum()} of {len(labels)}; "
        f"{labels[rarest]!r} has {counts[rarest]}. With so few, intervals are too narrow and "
        "p-values too small."
    ] * bool(counts[rarest] < FEW_ROWS)
    return notes + [
        f"{name} makes no error on the test rows. Its interval for rates has no width, which means "
        "that the rows are too few, not that it never errs."
        for name, one in best.items()
        if (one.predicted == one.gold).all()
    ]


def pairs_of(measured: Mapping[str, Measured], *, resamples: int) -> list[dict[str, Any]]:
    """Test every two contestants: differences of metrics, McNemar's test, and Holm's correction.

    The tests are of the seeds that are best on dev; `over_seeds` is the interval of the difference
    of the means, where one side has several seeds. A difference is `significant` if its interval
    excludes zero, p_holm is below 0.05, and the interval of the means is on the same side of zero.
    The resamples are the same for all contestants.
    """
    gold = next(iter(measured.values())).scores.gold
    forms = [form_of(one.scores, tested=True) for one in measured.values()]
    tables = resampled(forms, gold, resamples=resamples, seed=SEED)
    drawn = dict(zip(measured, tables, strict=True))
    tested = TESTED_BINARY if "roc_auc" in tables[0] else TESTED_CLASSES
    pairs: list[dict[str, Any]] = []
    for (name, one), (rival, other) in combinations(measured.items(), 2):
        pair: dict[str, Any] = {"one": name, "other": rival}
        for metric in tested:
            mine, theirs = one.test[one.best][metric], other.test[other.best][metric]
            pair[metric] = {"difference": _less(mine, theirs)}
            pair[metric] |= difference(drawn[name][metric], drawn[rival][metric], level=LEVEL)
            if one.over_seeds or other.over_seeds:
                means = [(side.over_seeds or side.drawn)[metric] for side in (one, other)]
                low, high = ends(means[0] - means[1], LEVEL)
                value = _less(one.value(metric), other.value(metric))
                pair[metric]["over_seeds"] = {"difference": value, "low": low, "high": high}
        pair["mcnemar"] = mcnemar(gold, one.scores.predicted, other.scores.predicted)._asdict()
        pairs.append(pair)
    for test in (*tested, "mcnemar"):
        known = [pair[test] for pair in pairs if pair[test]["p"] is not None]
        for entry, p_holm in zip(known, holm([entry["p"] for entry in known]), strict=True):
            entry["p_holm"] = p_holm
        for pair in pairs:
            pair[test].setdefault("p_holm", None)
            if test != "mcnemar":
                pair[test]["significant"] = _is_significant(pair[test])
    return pairs


def _less(mine: float | None, theirs: float | None) -> float | None:
    return None if mine is None or theirs is None else mine - theirs


def _is_significant(entry: Mapping[str, Any]) -> bool:
    if entry["low"] is None or entry["p_holm"] >= ALPHA:
        return False
    intervals = [entry, entry["over_seeds"]] if "over_seeds" in entry else [entry]
    above = all(one["low"] > 0 for one in intervals)
    return above or all(one["high"] < 0 for one in intervals)


def slice_entries(runs: Mapping[str, Scores], values: Sequence[str]) -> list[dict[str, Any]]:
    """Compute metrics of every contestant on the rows of each value of a column.

    Args:
        runs: Predictions for all rows, by contestant.
        values: Of the column, one for each row; empty where a row has none.

    Returns:
        {slice, rows, contestants: {name: metrics}}, the most frequent value first. Two labels:
        f1, false_positive_rate, roc_auc, pr_auc, accuracy; None where undefined. More labels:
        accuracy, macro_f1.
    """
    names = [printable(value) or NOT_STATED for value in values]
    frequent = [name for name, _ in Counter(names).most_common(MOST_SLICES)]
    names = [name if name in frequent else OTHER_VALUES for name in names]
    entries = []
    for name in dict.fromkeys([*frequent, *names]):
        at = np.flatnonzero(np.array(names, dtype=object) == name)
        parts = {
            who: replace(one, gold=one.gold[at], probabilities=one.probabilities[at])
            for who, one in runs.items()
        }
        metrics = {who: _slice_metrics(part) for who, part in parts.items()}
        entries.append({"slice": name, "rows": len(at), "contestants": metrics})
    return entries


def _slice_metrics(scores: Scores) -> dict[str, float | None]:
    metrics = metrics_of(scores)
    if scores.positive is None:
        return {key: metrics[key] for key in ("accuracy", "macro_f1")}
    is_positive = scores.gold == scores.positive
    false_positives = scores.predicted[~is_positive] == scores.positive
    return {
        "f1": metrics["f1"] if is_positive.any() else None,
        "false_positive_rate": float(false_positives.mean()) if len(false_positives) else None,
        **{key: metrics[key] for key in ("roc_auc", "pr_auc", "accuracy")},
    }
