"""Every two contestants side by side: tests of their differences, and how often they decide alike.

N rows, B resamples.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from filbert.metrics.bootstrap import ends, holm, mcnemar, two_sided_p
from filbert.study.predictions import Judged


def pairs_of(
    champions: Mapping[str, Judged],
    summaries: Mapping[str, Mapping[str, Mapping[str, Any]]],
    tests: Mapping[str, Mapping[str, np.ndarray]],
    over_seeds: Mapping[str, Mapping[str, np.ndarray]],
    has_seeds: Collection[str],
    level: float,
) -> list[dict[str, Any]]:
    """Every two contestants: differences of the tested metrics, McNemar, Holm for each of them.

    Args:
        champions: each contestant's seed that is best on dev.
        summaries: its test figures, with `interval_of` (that seed's) and `value` (mean of seeds).
        tests: that seed's tested metrics on the same resamples for all, float64 (B,).
        over_seeds: the mean of seeds, of resampled rows and seeds; of a single seed, which counts
            as constant, of resampled rows.
        has_seeds: those with several seeds.
        level: of the intervals.
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
    """What share of another contestant's figure each one has: of, value, low, high.

    Teacher and student are resampled by the same rows, but their seeds apart, though a student's
    seed hangs on its teacher's: with several seeds the interval is rather too wide.

    Args:
        summaries: test figures of every contestant, with `value` (mean of seeds).
        over_seeds: see `pairs_of`.
        references: by contestant, the other one; those that were not judged are left out.
        metric: a tested one.
        level: of the intervals.
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
    """Share of equal decisions of every two, and Cohen's kappa: what is left of it above chance.

    With 10 % positives two models that call rows at random at that rate agree on 82 %; kappa is
    then 0. It is None where both call all rows the same class.
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
