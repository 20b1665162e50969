"""Metrics, intervals and tests of a study, from the predictions of its runs.

N rows, F metrics, B resamples, S seeds. What the statistics mean: docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from filbert.compare.predictions import (
    Judged,
    prepared_rows,
    read_predictions,
    slice_figures,
    slice_intervals,
    slices_of,
)
from filbert.errors import ConfigError, InputError
from filbert.metrics.bootstrap import check, ends, holm, mcnemar, resampled, two_sided_p

# A difference must be able to reach this corrected p-value.
SMALLEST_P_HOLM = 0.01
# Below this many rows of a class the percentile intervals are too narrow: docs/statistics.md.
FEW_ROWS = 50
# Ranges of metrics that are not in [0, 1].
RANGES = {"mcc": (-1.0, 1.0), "loss": (0.0, math.inf)}

Runs = dict[str, dict[int, Judged]]


def judge(
    study: Path,
    seeds_of: Mapping[str, Mapping[int, Path]],
    *,
    labels: Sequence[str],
    positive: str | None,
    slices: Sequence[str] = (),
    references: Mapping[str, str] | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Compute the statistics of results.json.

    Test rows are resampled, the same for all runs; thresholds come from dev and stay fixed. An
    interval therefore covers the choice of test rows for *this trained model*. The choice of the
    seed is shown by `seeds` and `deviation` of each metric, and, with two seeds or more, by
    `over_seeds`, an interval for the mean over seeds from rows and seeds resampled together.
    Neither covers other training rows, another split or other options. Tests between pairs are of
    the seed that is best on dev, and say nothing about other seeds.

    Args:
        study: Its folder, with data/test.jsonl.gz for the slices.
        seeds_of: Folders of the finished runs, by contestant and seed.
        labels: Label names in the order of their numbers.
        positive: Positive label of two (None: the second).
        slices: Columns of the prepared rows to make slices by.
        references: By contestant, the one that its metric is shown as a share of.
        resamples: B. Pairs get at least enough for a difference to reach p_holm 0.01.
        level: Of the intervals.
        seed: Of the resampling.

    Returns:
        contestants (name, seeds, best_seed, test), shares, pairs, pairs_use, agreement, slices, and
        statistics: the method, with notes for the reader.

    Raises:
        InputError, FormatError: Predictions are missing or damaged, or runs have different rows.
        ConfigError: An option is out of range.
    """
    check(resamples, level)
    positive_id = _positive_id(labels, positive)
    given = {name: dict(sorted(runs.items())) for name, runs in seeds_of.items() if runs}
    dev, test = (read_predictions(split, given, labels) for split in ("dev", "test"))
    rows = prepared_rows(study, "test", test.gold, labels)
    dev_runs: Runs = {}
    test_runs: Runs = {}
    for name, seeds in given.items():
        dev_runs[name] = {
            s: Judged.tuned(dev.gold, dev.probabilities[name][s], positive_id) for s in seeds
        }
        test_runs[name] = {
            s: Judged(test.gold, test.probabilities[name][s], positive_id, one.threshold)
            for s, one in dev_runs[name].items()
        }
    chosen_by = "macro_f1" if positive_id is None else "pr_auc"
    names, drawn = _resampled(test_runs, test.gold, resamples, seed)
    figures = {n: {s: one.metrics() for s, one in runs.items()} for n, runs in test_runs.items()}
    contestants: list[dict[str, Any]] = []
    best: dict[str, int] = {}
    means: dict[str, dict[str, np.ndarray]] = {}
    summaries: dict[str, dict[str, dict[str, Any]]] = {}
    for name, runs in test_runs.items():
        dev_figures = {s: one.metrics() for s, one in dev_runs[name].items()}
        best[name] = _best_seed(dev_figures, chosen_by)
        of_best = dict(zip(names, drawn[name][best[name]], strict=True))
        over_seeds = mean_over_seeds(
            names, list(drawn[name].values()), [seed, crc32(name.encode())]
        )
        means[name] = over_seeds or of_best
        summaries[name] = _summary(
            figures[name],
            best[name],
            of_best,
            over_seeds,
            level,
        )
        contestants.append(
            {
                "name": name,
                "seeds": [
                    {
                        "seed": s,
                        "folder": _relative(given[name][s], study),
                        "dev": dev_figures[s],
                        "test": figures[name][s],
                    }
                    for s in runs
                ],
                "best_seed": best[name],
                "test": summaries[name],
            }
        )
    champions = {name: runs[best[name]] for name, runs in test_runs.items()}
    for_pairs = _enough(resamples, math.comb(len(given), 2))
    forms = [one.tested_form() for one in champions.values()]
    tested = resampled([f for _, f in forms], test.gold, resamples=for_pairs, seed=seed)
    tests = {
        name: dict(zip(forms[0][0], rows_of, strict=True))
        for name, rows_of in zip(champions, tested, strict=True)
    }
    has_seeds = {name for name, runs in test_runs.items() if len(runs) > 1}
    return {
        "contestants": contestants,
        "shares": shares_of(summaries, means, references or {}, chosen_by, level),
        "pairs": pairs_of(champions, summaries, tests, means, has_seeds, level),
        "pairs_use": "best seed on dev" if has_seeds else "the only seed",
        "agreement": agreement_of(champions),
        "slices": [
            _slice(by, name, at, champions, resamples, level, seed)
            for by, name, at in _parts(study, rows, slices)
        ],
        "statistics": {
            "resamples": resamples,
            "resamples_for_pairs": for_pairs,
            "level": level,
            "seed": seed,
            "interval": "bootstrap percentile, test rows resampled within their class",
            "best_seed_by": f"dev {chosen_by}",
            "threshold": None if positive_id is None else "best F1 on dev, by run",
            "holm_over": f"{math.comb(len(given), 2)} pairs, for each metric by itself",
            "notes": _notes(test.gold, labels, champions, bool(has_seeds), rows is None),
        },
    }


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


def _resampled(
    runs: Runs, gold: np.ndarray, resamples: int, seed: int
) -> tuple[tuple[str, ...], dict[str, dict[int, np.ndarray]]]:
    """Return F names, and their values (F, B) on the same resamples for every run."""
    forms = {(name, s): one.form() for name, seeds in runs.items() for s, one in seeds.items()}
    values = resampled([form for _, form in forms.values()], gold, resamples=resamples, seed=seed)
    found: dict[str, dict[int, np.ndarray]] = {name: {} for name in runs}
    for (name, s), drawn in zip(forms, values, strict=True):
        found[name][s] = drawn
    names, _ = next(iter(forms.values()))
    return names, found


def _best_seed(dev: Mapping[int, Mapping[str, Any]], metric: str) -> int:
    """Return the seed with the highest dev metric, the lowest seed of equal ones."""
    scores = {s: figures[metric] for s, figures in dev.items()}
    return max(sorted(scores), key=lambda s: -math.inf if scores[s] is None else scores[s])


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


def _summary(
    figures: Mapping[int, Mapping[str, Any]],
    best: int,
    drawn: Mapping[str, np.ndarray],
    over_seeds: Mapping[str, np.ndarray],
    level: float,
) -> dict[str, dict[str, Any]]:
    """Return a contestant's test metrics: mean, interval, seeds and their deviation."""
    found: dict[str, dict[str, Any]] = {}
    for metric in figures[best]:
        values = [one[metric] for one in figures.values()]
        known = [value for value in values if value is not None]
        low, high = ends(drawn[metric], level) if metric in drawn else (None, None)
        found[metric] = {
            "value": float(np.mean(known)) if known else None,
            "low": low,
            "high": high,
            "interval_of": figures[best][metric],
            "deviation": float(np.std(known, ddof=1)) if len(known) > 1 else None,
            "seeds": values,
        }
        if metric in over_seeds:
            # The scaling gives negative weights on some draws, so the mean can leave the range.
            least, most = RANGES.get(metric, (0.0, 1.0))
            low, high = (
                None if end is None else min(max(end, least), most)
                for end in ends(over_seeds[metric], level)
            )
            found[metric]["over_seeds"] = {"low": low, "high": high}
    return found


def _parts(
    study: Path, rows: Sequence[Mapping[str, Any]] | None, columns: Sequence[str]
) -> list[tuple[str, str, np.ndarray]]:
    if rows is not None:
        return slices_of(rows, columns)
    if columns:
        raise InputError(
            f"{study / 'data' / 'test.jsonl.gz'} is missing, so there are no columns to make "
            "slices by. Prepare the study again."
        )
    return []


def _slice(
    by: str,
    name: str,
    at: np.ndarray,
    champions: Mapping[str, Judged],
    resamples: int,
    level: float,
    seed: int,
) -> dict[str, Any]:
    parts = {who: one.of(at) for who, one in champions.items()}
    first = next(iter(parts.values()))
    return {
        "by": by,
        "slice": name,
        "rows": len(at),
        "positives": None if first.positive is None else int(first.is_positive.sum()),
        "contestants": {who: slice_figures(one) for who, one in parts.items()},
        "intervals": slice_intervals(parts, resamples=resamples, level=level, seed=seed),
    }


def _relative(folder: Path, study: Path) -> str:
    return folder.relative_to(study).as_posix() if folder.is_relative_to(study) else str(folder)


def _notes(
    gold: np.ndarray,
    labels: Sequence[str],
    champions: Mapping[str, Judged],
    has_seeds: bool,
    lacks_data: bool,
) -> list[str]:
    found = []
    for number, label in enumerate(labels):
        count = int(np.sum(gold == number))
        if count < FEW_ROWS:
            found.append(
                f"Only {count:,} of {len(gold):,} test rows are {label!r}: with so few the "
                "intervals are too narrow and the p-values too small."
            )
    for name, one in champions.items():
        if (one.called == one.wanted).all():
            found.append(
                f"{name} makes no error on the test rows. Its interval for rates has no width, "
                "which means that the rows are too few, not that it never errs."
            )
    if not has_seeds:
        found.append("One seed for each contestant: the variation between seeds is not measured.")
    if lacks_data:
        found.append("The prepared test rows are missing, so there are no slices.")
    return found


def pairs_of(
    champions: Mapping[str, Judged],
    summaries: Mapping[str, Mapping[str, Mapping[str, Any]]],
    tests: Mapping[str, Mapping[str, np.ndarray]],
    over_seeds: Mapping[str, Mapping[str, np.ndarray]],
    has_seeds: Collection[str],
    level: float,
) -> list[dict[str, Any]]:
    """Test every two contestants: differences of metrics, McNemar's test, and Holm's correction.

    Args:
        champions: Predictions of each contestant's best seed on dev.
        summaries: Test metrics, with `interval_of` (that seed's) and `value` (mean of seeds).
        tests: That seed's tested metrics on the same resamples for all, float64 (B,).
        over_seeds: Mean of seeds on resampled rows and seeds; for a single seed, rows only.
        has_seeds: Contestants with several seeds.
        level: Of the intervals.
    """
    found: list[dict[str, Any]] = []
    for one, other in combinations(champions, 2):
        pair: dict[str, Any] = {"one": one, "other": other}
        for metric, drawn in tests[one].items():
            mine, theirs = summaries[one][metric], summaries[other][metric]
            differences = drawn - tests[other][metric]
            pair[metric] = _difference(
                mine["interval_of"], theirs["interval_of"], differences, level
            )
            pair[metric]["p"] = two_sided_p(differences)
            if one in has_seeds or other in has_seeds:
                means = over_seeds[one][metric] - over_seeds[other][metric]
                of_seeds = _difference(mine["value"], theirs["value"], means, level)
                pair[metric]["over_seeds"] = of_seeds
        counts = mcnemar(champions[one].wanted, champions[one].called, champions[other].called)
        pair["mcnemar"] = {
            "p": counts.p,
            "only_one": counts.only_one_right,
            "only_other": counts.only_other_right,
        }
        found.append(pair)
    for test in (*next(iter(tests.values())), "mcnemar"):
        entries = [pair[test] for pair in found]
        known = [entry for entry in entries if entry["p"] is not None]
        corrected = dict(zip(map(id, known), holm([entry["p"] for entry in known]), strict=True))
        for entry in entries:
            entry["p_holm"] = corrected.get(id(entry))
    return found


def _difference(
    mine: float | None, theirs: float | None, drawn: np.ndarray, level: float
) -> dict[str, Any]:
    low, high = ends(drawn, level)
    difference = None if mine is None or theirs is None else mine - theirs
    return {"difference": difference, "low": low, "high": high}


def shares_of(
    summaries: Mapping[str, Mapping[str, Mapping[str, Any]]],
    over_seeds: Mapping[str, Mapping[str, np.ndarray]],
    references: Mapping[str, str],
    metric: str,
    level: float,
) -> dict[str, dict[str, Any]]:
    """Return each contestant's share of its reference's metric: of, value, low, high.

    Rows are resampled together, seeds separately, although a student depends on its teacher's seed:
    with several seeds the interval is too wide rather than too narrow. Arguments as for `pairs_of`;
    references without results are left out.
    """
    found = {}
    for name, other in references.items():
        if name not in summaries or other not in summaries:
            continue
        mine, theirs = (summaries[one][metric]["value"] for one in (name, other))
        if mine is None or not theirs:
            continue
        drawn = over_seeds[name][metric] / over_seeds[other][metric]
        low, high = ends(drawn, level)
        found[name] = {"of": other, "value": mine / theirs, "low": low, "high": high}
    return found


def agreement_of(champions: Mapping[str, Judged]) -> dict[str, Any]:
    """Return the share of equal decisions of every two contestants, and Cohen's kappa.

    With 10 % positives two models that predict at random at that rate agree on 82 %; kappa is then
    0. It is None if both predict one class only.
    """
    calls = {name: one.called for name, one in champions.items()}
    shares = [[float(np.mean(a == b)) for b in calls.values()] for a in calls.values()]
    kappa: list[list[float | None]] = []
    for a, row in zip(calls.values(), shares, strict=True):
        kappa.append([])
        for b, share in zip(calls.values(), row, strict=True):
            classes = np.union1d(a, b)
            chance = float(sum(np.mean(a == c) * np.mean(b == c) for c in classes))
            kappa[-1].append((share - chance) / (1 - chance) if len(classes) > 1 else None)
    return {"names": list(calls), "matrix": shares, "kappa": kappa}
