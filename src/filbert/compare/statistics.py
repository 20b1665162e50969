"""Metrics, intervals and tests of a study, from the predictions of its runs.

Test rows are resampled, the same for all runs; thresholds come from dev and stay fixed. An
interval therefore covers the choice of test rows for *this trained model*. The choice of the seed
is shown by `seeds` and `deviation` of each metric, and, with two seeds or more, by `over_seeds`, an
interval for the mean over seeds from rows and seeds resampled together. Neither covers other
training rows, another split or other options. Tests between pairs are of the seed that is best on
dev, and say nothing about other seeds. More: docs/statistics.md.

N rows, F metrics, B resamples, S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from filbert.compare.predictions import (
    Predicted,
    SplitPredictions,
    by_column,
    read_predictions,
    slice_entry,
)
from filbert.data.records import read_rows
from filbert.errors import ConfigError
from filbert.metrics.bootstrap import check, ends, holm, mcnemar, resampled, two_sided_p

# A difference must be able to reach this corrected p-value.
SMALLEST_P_HOLM = 0.01
# Below this many rows of a class the percentile intervals are too narrow: docs/statistics.md.
FEW_ROWS = 50
# Ranges of metrics that are not in [0, 1].
RANGES = {"mcc": (-1.0, 1.0), "loss": (0.0, math.inf)}


@dataclass(frozen=True)
class Measured:
    """The runs of one contestant, measured on test.

    Attributes:
        seeds: Test predictions by seed, with the threshold that was tuned on dev.
        dev: Dev metrics by seed.
        test: Test metrics by seed.
        best: The seed that is best on dev.
        drawn: Test metrics of that seed on the resamples, float64 (B,) by metric.
        over_seeds: Their mean over several seeds on resampled rows and seeds; {} for one seed.
    """

    seeds: dict[int, Predicted]
    dev: dict[int, dict[str, Any]]
    test: dict[int, dict[str, Any]]
    best: int
    drawn: dict[str, np.ndarray]
    over_seeds: dict[str, np.ndarray]

    @property
    def champion(self) -> Predicted:
        """Test predictions of the seed that is best on dev."""
        return self.seeds[self.best]

    @property
    def mean_drawn(self) -> dict[str, np.ndarray]:
        """The mean over seeds on the resamples; of a single seed, rows only."""
        return self.over_seeds or self.drawn

    def value(self, metric: str) -> float | None:
        """Return the mean of a test metric over the seeds."""
        known = [one[metric] for one in self.test.values() if one[metric] is not None]
        return float(np.mean(known)) if known else None

    def summary(self, level: float) -> dict[str, dict[str, Any]]:
        """Return the test metrics with interval, seeds and their deviation."""
        return {metric: self._figure(metric, level) for metric in self.test[self.best]}

    def _figure(self, metric: str, level: float) -> dict[str, Any]:
        values = [one[metric] for one in self.test.values()]
        known = [value for value in values if value is not None]
        low, high = ends(self.drawn[metric], level) if metric in self.drawn else (None, None)
        figure: dict[str, Any] = {
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
                for end in ends(self.over_seeds[metric], level)
            )
            figure["over_seeds"] = {"low": low, "high": high}
        return figure


def compute_statistics(
    study: Path,
    seeds_of: Mapping[str, Mapping[int, Path]],
    *,
    labels: Sequence[str],
    positive: str | None,
    slice_column: str | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Compute the statistics of results.json.

    Args:
        study: Its folder, with data/test.jsonl.gz for the slices.
        seeds_of: Folders of the finished runs, by contestant and seed.
        labels, positive: Labels in the order of their numbers; the positive one of two.
        slice_column: Column of the prepared rows to make slices by.
        resamples: B. Pairs get at least enough for a difference to reach p_holm 0.01.
        level, seed: Of the intervals, and of the resampling.

    Raises:
        InputError, FormatError, ConfigError: Predictions or options are wrong.
    """
    check(resamples, level)
    positive_id = _positive_id(labels, positive)
    metric = "macro_f1" if positive_id is None else "pr_auc"
    given = {name: dict(sorted(runs.items())) for name, runs in seeds_of.items() if runs}
    dev, test = (read_predictions(split, given, labels) for split in ("dev", "test"))
    measured = _measured(
        dev, test, positive=positive_id, metric=metric, resamples=resamples, seed=seed
    )
    champions = {name: one.champion for name, one in measured.items()}
    has_seeds = any(one.over_seeds for one in measured.values())
    for_pairs = _enough(resamples, math.comb(len(given), 2))
    return {
        "contestants": [
            _entry(name, one, folders=given[name], study=study, level=level)
            for name, one in measured.items()
        ],
        "pairs": pairs_of(measured, test.gold, resamples=for_pairs, level=level, seed=seed),
        "pairs_use": "best seed on dev" if has_seeds else "the only seed",
        "slices": [] if slice_column is None else _slices(study, slice_column, champions),
        "statistics": {
            "resamples": resamples,
            "resamples_for_pairs": for_pairs,
            "level": level,
            "seed": seed,
            **_method(metric, math.comb(len(given), 2)),
            "notes": _notes(test.gold, labels, champions, has_seeds),
        },
    }


def _method(metric: str, num_pairs: int) -> dict[str, Any]:
    return {
        "interval": "bootstrap percentile, test rows resampled within their class",
        "best_seed_by": f"dev {metric}",
        "threshold": "best F1 on dev, by run" if metric == "pr_auc" else None,
        "holm_over": f"{num_pairs} pairs, for each metric by itself",
    }


def _entry(
    name: str, one: Measured, *, folders: Mapping[int, Path], study: Path, level: float
) -> dict[str, Any]:
    """Return what results.json says of a contestant's metrics."""
    seeds = []
    for seed, folder in folders.items():
        path = folder.relative_to(study) if folder.is_relative_to(study) else folder
        seeds.append(
            {
                "seed": seed,
                "folder": path.as_posix(),
                "dev": one.dev[seed],
                "test": one.test[seed],
            }
        )
    return {"name": name, "seeds": seeds, "best_seed": one.best, "test": one.summary(level)}


def _positive_id(labels: Sequence[str], positive: str | None) -> int | None:
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise ConfigError(f"A study needs two different labels or more, not {list(labels)}.")
    if len(labels) > 2:
        return None
    if positive is not None and positive not in labels:
        raise ConfigError(f"positive is {positive!r}; the labels are {list(labels)}.")
    return 1 if positive is None else list(labels).index(positive)


def _enough(resamples: int, num_pairs: int) -> int:
    """Return B for the pairs: the least p-value, 2 / (B + 1), times their number is at most 0.01.

    B + 1 is a multiple of 200, so that the ends of a 95 or 99 % interval are whole ranks, and
    interval and p-value always agree.
    """
    wanted = max(resamples + 1, 2 * num_pairs / SMALLEST_P_HOLM)
    return math.ceil(wanted / 200) * 200 - 1


def _measured(
    dev: SplitPredictions,
    test: SplitPredictions,
    *,
    positive: int | None,
    metric: str,
    resamples: int,
    seed: int,
) -> dict[str, Measured]:
    """Measure all runs on dev and test, and on the same resamples of the test rows.

    Args:
        dev: Predictions that the thresholds are tuned on.
        test: Predictions of the same runs.
        positive: Number of the positive label of two.
        metric: Chooses the best seed on dev; the lowest seed of equal ones.
        resamples: B.
        seed: Of the resampling.
    """
    tuned = {
        (name, s): Predicted.tuned(dev.gold, probabilities, positive)
        for name, seeds in dev.probabilities.items()
        for s, probabilities in seeds.items()
    }
    runs = {
        (name, s): Predicted(test.gold, test.probabilities[name][s], positive, one.threshold)
        for (name, s), one in tuned.items()
    }
    forms = [one.form() for one in runs.values()]
    table = resampled([form for _, form in forms], test.gold, resamples=resamples, seed=seed)
    names, values = forms[0][0], dict(zip(runs, table, strict=True))
    found = {}
    for name, seeds in test.probabilities.items():
        on_dev = {s: tuned[name, s].metrics() for s in seeds}
        scores = {s: -math.inf if one[metric] is None else one[metric] for s, one in on_dev.items()}
        best = max(sorted(scores), key=lambda s: scores[s])
        over_seeds = mean_over_seeds(
            names, [values[name, s] for s in seeds], [seed, crc32(name.encode())]
        )
        found[name] = Measured(
            seeds={s: runs[name, s] for s in seeds},
            dev=on_dev,
            test={s: runs[name, s].metrics() for s in seeds},
            best=best,
            drawn=dict(zip(names, values[name, best], strict=True)),
            over_seeds=over_seeds,
        )
    return found


def mean_over_seeds(
    names: Sequence[str], values: Sequence[np.ndarray], seed: Sequence[int]
) -> dict[str, np.ndarray]:
    """Return the mean over S seeds on each resample, with seeds resampled too; {} for one seed.

    The variation by seeds is scaled by sqrt(S / (S - 1)), because S values drawn with replacement
    vary less than they should by that factor: by a fifth for three seeds. Source: the
    Multi-Bootstrap of Sellam et al. 2022, "The MultiBERTs", without the scaling.

    Args:
        names: F metrics.
        values: Of each seed, float64 (F, B), on the same resamples of rows.
        seed: Of the draws of seeds.
    """
    num_seeds = len(values)
    if num_seeds < 2:
        return {}
    table = np.stack(values)
    picks = np.random.default_rng(seed).integers(0, num_seeds, size=(num_seeds, table.shape[-1]))
    shares = np.stack([(picks == s).mean(0) for s in range(num_seeds)])
    stretched = 1 / num_seeds + math.sqrt(num_seeds / (num_seeds - 1)) * (shares - 1 / num_seeds)
    return dict(zip(names, (table * stretched[:, None, :]).sum(0), strict=True))


def _slices(study: Path, column: str, champions: Mapping[str, Predicted]) -> list[dict[str, Any]]:
    rows = [row.values for row in read_rows(study / "data" / "test.jsonl.gz")]
    return [slice_entry(champions, name, at) for name, at in by_column(rows, column)]


def _notes(
    gold: np.ndarray,
    labels: Sequence[str],
    champions: Mapping[str, Predicted],
    has_seeds: bool,
) -> list[str]:
    notes = []
    for number, label in enumerate(labels):
        count = int(np.sum(gold == number))
        if count < FEW_ROWS:
            notes.append(
                f"Only {count:,} of {len(gold):,} test rows are {label!r}: with so few the "
                "intervals are too narrow and the p-values too small."
            )
    for name, one in champions.items():
        if (one.called == one.wanted).all():
            notes.append(
                f"{name} makes no error on the test rows. Its interval for rates has no width, "
                "which means that the rows are too few, not that it never errs."
            )
    if not has_seeds:
        notes.append("One seed for each contestant: the variation between seeds is not measured.")
    return notes


def pairs_of(
    measured: Mapping[str, Measured], gold: np.ndarray, *, resamples: int, level: float, seed: int
) -> list[dict[str, Any]]:
    """Test every two contestants: differences of metrics, McNemar's test, and Holm's correction.

    The tests are of the seeds that are best on dev; `over_seeds` is the interval of the difference
    of the means, where one side has several seeds.

    Args:
        measured: Runs by contestant.
        gold: Test labels, int64 (N,).
        resamples: Of these tests, the same for all contestants.
        level: Of the intervals.
        seed: Of the resampling.
    """
    forms = [one.champion.tested_form() for one in measured.values()]
    table = resampled([form for _, form in forms], gold, resamples=resamples, seed=seed)
    drawn = dict(zip(measured, table, strict=True))
    pairs: list[dict[str, Any]] = []
    for (name, one), (rival, other) in combinations(measured.items(), 2):
        pair: dict[str, Any] = {"one": name, "other": rival}
        for row, metric in enumerate(forms[0][0]):
            values = one.test[one.best][metric], other.test[other.best][metric]
            differences = drawn[name][row] - drawn[rival][row]
            pair[metric] = _difference(*values, differences, level=level)
            pair[metric]["p"] = two_sided_p(differences)
            if one.over_seeds or other.over_seeds:
                means = one.mean_drawn[metric] - other.mean_drawn[metric]
                values = one.value(metric), other.value(metric)
                pair[metric]["over_seeds"] = _difference(*values, means, level=level)
        counts = mcnemar(one.champion.wanted, one.champion.called, other.champion.called)
        pair["mcnemar"] = {
            "p": counts.p,
            "only_one": counts.only_one_right,
            "only_other": counts.only_other_right,
        }
        pairs.append(pair)
    for test in (*forms[0][0], "mcnemar"):
        known = [pair[test] for pair in pairs if pair[test]["p"] is not None]
        corrected = holm([entry["p"] for entry in known])
        for pair in pairs:
            pair[test]["p_holm"] = None
        for entry, p_holm in zip(known, corrected, strict=True):
            entry["p_holm"] = p_holm
    return pairs


def _difference(
    mine: float | None, theirs: float | None, drawn: np.ndarray, *, level: float
) -> dict[str, Any]:
    low, high = ends(drawn, level)
    difference = None if mine is None or theirs is None else mine - theirs
    return {"difference": difference, "low": low, "high": high}
