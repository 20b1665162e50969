from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from filbert.compare import statistics
from filbert.compare.statistics import compute_statistics, form_of, metrics_of, read_predictions
from filbert.errors import FormatError, InputError
from filbert.metrics import ranking
from filbert.metrics.bootstrap import draws, ends, holm, two_sided_p
from filbert.metrics.classification import binary_metrics
from filbert.report.folder import Scores

LABELS = ["ok", "rude"]
THREE = ["apple", "pear", "plum"]
NUM_ROWS = 120


def f1_at(gold, scores, threshold: float) -> float:
    called = scores >= threshold
    return 2 * (gold & called).sum() / (gold.sum() + called.sum())


def resampled_slowly(metric, gold, scores, resamples: int) -> np.ndarray:
    """The metric of the rows of each resample, repeated as they were drawn."""
    weights = np.concatenate([*draws(gold, resamples=resamples, seed=0)], axis=1)
    rows = [np.repeat(np.arange(len(gold)), column) for column in weights.T]
    return np.array([metric(gold[at], scores[at]) for at in rows])


def gold_of(split: str, labels=LABELS) -> list[str]:
    chance = np.random.default_rng([7, split == "test"])
    shares = [0.7, 0.3] if len(labels) == 2 else [0.5, 0.3, 0.2]
    return list(chance.choice(labels, size=NUM_ROWS, p=shares))


def predicted(gold: list[str], strength: float, seed: int, labels=LABELS) -> np.ndarray:
    chance = np.random.default_rng(seed)
    logits = chance.normal(size=(len(gold), len(labels)))
    logits[np.arange(len(gold)), [labels.index(g) for g in gold]] += strength
    powers = np.exp(logits)
    return powers / powers.sum(1, keepdims=True)


def lines_of(gold: list[str], table: np.ndarray, labels=LABELS) -> list[dict]:
    return [
        {
            "row": row,
            "line": row + 2,
            "gold": label,
            "label": labels[int(scores.argmax())],
            "score": float(scores.max()),
            "scores": dict(zip(labels, scores.tolist(), strict=True)),
        }
        for row, (label, scores) in enumerate(zip(gold, table, strict=True))
    ]


def write(folder: Path, split: str, lines: list[dict]) -> None:
    place = folder / "predictions" / f"{split}.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(study: Path, name: str, seed: int, strength: float, labels=LABELS) -> Path:
    folder = study / "contestants" / name / f"seed-{seed}"
    for number, split in enumerate(("dev", "test")):
        gold = gold_of(split, labels)
        draws = sum(map(ord, name)) * 100 + seed * 10 + number
        write(folder, split, lines_of(gold, predicted(gold, strength, draws, labels), labels))
    return folder


@pytest.fixture(scope="module")
def seeds_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    strengths = {"good": 2.0, "fair": 1.2, "poor": 0.3}
    return {
        name: {seed: run(folder, name, seed, strength) for seed in range(2)}
        for name, strength in strengths.items()
    }


def judged(seeds_of, **options):
    options = {"labels": LABELS, "positive": "rude", "resamples": 199} | options
    entries = []
    for name, runs in seeds_of.items():
        seeds = [{"seed": s, "folder": str(f), "status": "finished"} for s, f in runs.items()]
        entries.append({"name": name, "status": "finished", "seeds": seeds})
    return compute_statistics(entries, Path(), **options)


@pytest.fixture(scope="module")
def results(seeds_of):
    return judged(seeds_of, slices=[["sea", "hills", ""][row % 3] for row in range(NUM_ROWS)])


def scores_of(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    text = (folder / "predictions" / f"{split}.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    gold = np.array([line["gold"] == "rude" for line in lines])
    return gold, np.array([line["scores"]["rude"] for line in lines])


def test_all_of_it_is_json_without_nan(results):
    json.dumps(results, allow_nan=False)


def test_test_figures_stand_at_the_threshold_that_was_best_on_dev(results, seeds_of):
    for contestant in results["contestants"]:
        for one in contestant["seeds"]:
            folder = seeds_of[contestant["name"]][one["seed"]]
            threshold = ranking.best_f1_threshold(*scores_of(folder, "dev"))
            wanted = binary_metrics(*scores_of(folder, "test"), threshold)
            assert {key: one["test"][key] for key in wanted} == pytest.approx(wanted, abs=1e-12)
            assert one["dev"]["threshold"] == threshold


def test_intervals_are_those_of_the_seed_that_is_best_on_dev(results, seeds_of):
    for contestant in results["contestants"]:
        dev = {one["seed"]: one["dev"]["pr_auc"] for one in contestant["seeds"]}
        assert contestant["best_seed"] == max(dev, key=dev.get)
        folder = seeds_of[contestant["name"]][contestant["best_seed"]]
        gold, scores = scores_of(folder, "test")
        wanted = ends(resampled_slowly(ranking.roc_auc, gold, scores, 199), 0.95)
        found = contestant["test"]["roc_auc"]
        assert found["interval_of"] == pytest.approx(ranking.roc_auc(gold, scores), abs=1e-12)
        assert (found["low"], found["high"]) == pytest.approx(wanted, abs=1e-12)


def test_every_figure_lies_within_its_interval(results):
    for contestant in results["contestants"]:
        for metric, found in contestant["test"].items():
            if metric not in ("ece", "threshold"):
                assert found["low"] <= found["interval_of"] <= found["high"], metric


def test_a_form_of_rows_that_count_once_gives_the_figures_themselves(seeds_of):
    gold, scores = scores_of(seeds_of["fair"][0], "test")
    table = np.stack([1 - scores, scores], axis=1)
    rows = np.arange(len(gold))
    judged = Scores(rows, gold.astype(int), table, rows, 0, positive=1, threshold=0.4)
    wanted = metrics_of(judged)
    for tested in (False, True):
        once = form_of(judged, tested=tested)(np.ones((len(gold), 1), dtype=np.int32))
        found = {name: values[0] for name, values in once.items()}
        assert found == pytest.approx({name: wanted[name] for name in found}, abs=1e-12)


def test_a_pair_is_tested_as_paired_bootstrap_does_it(seeds_of):
    # With 3 pairs at least 599 resamples are needed for p_holm to reach 0.01.
    found = judged(seeds_of, resamples=199)
    assert found["statistics"]["resamples_for_pairs"] == 599
    best = {c["name"]: c for c in found["contestants"]}
    pair = found["pairs"][0]
    gold, one = scores_of(seeds_of["good"][best["good"]["best_seed"]], "test")
    _, other = scores_of(seeds_of["fair"][best["fair"]["best_seed"]], "test")
    metrics = []
    for name in ("good", "fair"):
        chosen = best[name]["best_seed"]
        dev = next(s["dev"] for s in best[name]["seeds"] if s["seed"] == chosen)
        cut = dev["threshold"]
        metrics.append(lambda gold, scores, cut=cut: f1_at(gold, scores, cut))
    for key, mine, theirs in [
        ("roc_auc", ranking.roc_auc, ranking.roc_auc),
        ("pr_auc", ranking.pr_auc, ranking.pr_auc),
        ("f1", *metrics),
    ]:
        drawn = resampled_slowly(mine, gold, one, 599) - resampled_slowly(theirs, gold, other, 599)
        wanted = [mine(gold, one) - theirs(gold, other), *ends(drawn, 0.95), two_sided_p(drawn)]
        got = [pair[key][part] for part in ("difference", "low", "high", "p")]
        assert got == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("num_contestants", [2, 5])
def test_interval_and_p_of_a_pair_never_contradict_each_other(tmp_path, num_contestants):
    # Strengths so near that some differences lie at the edge.
    runs = {f"m{n}": {0: run(tmp_path, f"m{n}", 0, 1.0 + 0.2 * n)} for n in range(num_contestants)}
    for pair in judged(runs, resamples=2000)["pairs"]:
        for metric in ("roc_auc", "pr_auc", "f1"):
            found = pair[metric]
            assert (found["p"] <= 0.05) == (found["low"] > 0 or found["high"] < 0)


def test_many_pairs_get_so_many_resamples_that_a_difference_can_be_found(tmp_path):
    runs = {f"m{n:02}": {0: run(tmp_path, f"m{n:02}", 0, 0.1)} for n in range(11)}
    runs["best"] = {0: run(tmp_path, "best", 0, 9.0)}
    found = judged(runs, resamples=199)
    assert found["statistics"]["resamples_for_pairs"] == 66 * 200 - 1
    with_best = [pair for pair in found["pairs"] if pair["other"] == "best"]
    assert max(pair["roc_auc"]["p_holm"] for pair in with_best) <= 0.01


def test_all_pairs_are_there_and_holm_is_taken_over_all_of_them_metric_by_metric(results):
    pairs = results["pairs"]
    names = [(pair["one"], pair["other"]) for pair in pairs]
    assert names == list(itertools.combinations(["good", "fair", "poor"], 2))
    for test in ("roc_auc", "pr_auc", "f1", "mcnemar"):
        wanted = holm([pair[test]["p"] for pair in pairs])
        assert [pair[test]["p_holm"] for pair in pairs] == wanted
    assert pairs[1]["roc_auc"]["p_holm"] < 0.05


def test_the_interval_over_seeds_widens_with_their_spread(tmp_path):
    steady = {seed: run(tmp_path, "steady", seed, 1.2) for seed in range(3)}
    shaky = {seed: run(tmp_path, "shaky", seed, 0.2 + 1.5 * seed) for seed in range(3)}
    found = judged({"steady": steady, "shaky": shaky}, resamples=499)
    widths = []
    for contestant in found["contestants"]:
        over = contestant["test"]["roc_auc"]["over_seeds"]
        widths.append(over["high"] - over["low"])
        value = contestant["test"]["roc_auc"]["value"]
        assert over["low"] < value < over["high"]
    assert widths[1] > 2 * widths[0]
    over = found["pairs"][0]["roc_auc"]["over_seeds"]
    values = [c["test"]["roc_auc"]["value"] for c in found["contestants"]]
    assert over["difference"] == pytest.approx(values[0] - values[1], abs=1e-12)
    assert over["low"] < over["difference"] < over["high"]


def test_the_interval_over_seeds_stays_within_what_a_figure_can_be(tmp_path):
    seeds = {0: run(tmp_path, "one", 0, 9.0), 1: run(tmp_path, "one", 1, -0.5)}
    (one,) = judged({"one": seeds}, resamples=499)["contestants"]
    found = {m: f["over_seeds"] for m, f in one["test"].items() if "over_seeds" in f}
    assert found["roc_auc"]["high"] == 1.0
    for metric, over in found.items():
        least = -1 if metric == "mcc" else 0
        assert least <= over["low"] <= over["high"]
        assert over["high"] <= 1 or metric == "loss"
    assert found["mcc"]["low"] < 0
    assert found["loss"]["high"] > 1


def test_more_labels_get_accuracy_and_macro_f1_with_tests_and_no_ranking(tmp_path):
    runs = {
        name: {seed: run(tmp_path, name, seed, strength, THREE) for seed in range(2)}
        for name, strength in (("good", 2.5), ("poor", 0.2))
    }
    found = judged(runs, labels=THREE, positive=None)
    json.dumps(found, allow_nan=False)
    (pair,) = found["pairs"]
    assert set(pair) == {"one", "other", "accuracy", "macro_f1", "mcnemar"}
    assert pair["macro_f1"]["low"] > 0 and pair["accuracy"]["p_holm"] < 0.05
    figures = found["contestants"][0]["test"]
    assert set(figures) == {"accuracy", "macro_f1", "weighted_f1", "loss", "ece"}
    assert figures["macro_f1"]["low"] < figures["macro_f1"]["interval_of"]


def test_a_contestant_that_joins_changes_no_interval_of_the_others(results, seeds_of):
    fewer = judged({name: seeds_of[name] for name in ("fair", "good")})
    mine = {c["name"]: c["test"] for c in fewer["contestants"]}
    assert mine["good"] == results["contestants"][0]["test"]


@pytest.mark.parametrize(
    ("change", "is_significant"),
    [
        ({"low": 0.01, "high": 0.05, "p_holm": 0.01}, True),
        ({"low": -0.05, "high": -0.01, "p_holm": 0.01}, True),
        ({"low": -0.01, "high": 0.05, "p_holm": 0.01}, False),
        ({"low": 0.01, "high": 0.05, "p_holm": 0.05}, False),
        ({"low": None, "high": None, "p_holm": None}, False),
        ({"low": 0.01, "high": 0.05, "p_holm": 0.01, "over_seeds": (-0.01, 0.05)}, False),
        ({"low": 0.01, "high": 0.05, "p_holm": 0.01, "over_seeds": (0.01, 0.05)}, True),
    ],
)
def test_a_difference_is_significant_if_all_its_intervals_and_holm_agree(change, is_significant):
    if "over_seeds" in change:
        change["over_seeds"] = dict(zip(("low", "high"), change["over_seeds"], strict=True))
    assert statistics._is_significant(change) == is_significant


# Predictions


def test_runs_of_other_rows_are_not_compared_and_damaged_ones_are_named(tmp_path):
    gold = gold_of("test")
    lines = lines_of(gold, predicted(gold, 1.0, 0))
    write(tmp_path / "one", "test", lines)
    for number, changed in enumerate(
        (lines[:-1], [lines[1], lines[0], *lines[2:]], [lines[0] | {"gold": "x"}, *lines[1:]], [])
    ):
        write(tmp_path / f"two-{number}", "test", changed)
        runs = {"one": {0: tmp_path / "one"}, "two": {4: tmp_path / f"two-{number}"}}
        error, words = [
            (InputError, "two, seed 4: its test predictions are of other rows"),
            (InputError, "two, seed 4: its test predictions are of other rows"),
            (FormatError, r"test\.jsonl holds no predictions for"),
            (FormatError, "it is missing or empty"),
        ][number]
        with pytest.raises(error, match=words):
            read_predictions("test", runs, LABELS, "rude")


def test_slices_cover_each_row_once_and_have_metrics_of_their_own_rows(results, seeds_of):
    names = [(part["slice"], part["rows"]) for part in results["slices"]]
    assert names == [("sea", 40), ("hills", 40), ("not stated", 40)]
    contestant = results["contestants"][1]
    seed = contestant["best_seed"]
    gold, scores = scores_of(seeds_of["fair"][seed], "test")
    threshold = next(s for s in contestant["seeds"] if s["seed"] == seed)["dev"]["threshold"]
    gold, scores = gold[1::3], scores[1::3]
    wanted = binary_metrics(gold, scores, threshold)
    expected = {key: wanted[key] for key in ("roc_auc", "pr_auc", "f1", "accuracy")}
    expected["false_positive_rate"] = float(np.mean(scores[~gold] >= threshold))
    found = results["slices"][1]["contestants"]["fair"]
    assert found == pytest.approx(expected, abs=1e-12)


def test_labels_with_few_rows_are_one_note():
    (note,) = statistics._notes(np.repeat([0, 1, 2], [60, 30, 20]), "abc", {})
    assert "2 of 3; 'c' has 20" in note
