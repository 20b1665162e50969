"""Predictions of runs: reading, slices and the comparison of two models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from filbert.compare.predictions import (
    Predicted,
    by_column,
    read_predictions,
    side_by_side,
    slice_entry,
)
from filbert.errors import FormatError, InputError

LABELS = ["ok", "rude"]
GOLD = ["ok", "ok", "rude", "ok", "ok", "rude", "ok", "rude"]


def lines_of(gold: list[str] = GOLD) -> list[dict]:
    return [
        {"row": row, "gold": label, "scores": {"rude": row / 10, "ok": 1 - row / 10}}
        for row, label in enumerate(gold)
    ]


def run(folder: Path, lines: list[dict]) -> Path:
    place = folder / "predictions" / "test.jsonl"
    place.parent.mkdir(parents=True)
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def two_runs(folder: Path, lines: list[dict]) -> dict[str, dict[int, Path]]:
    return {
        "one": {0: run(folder / "one", lines_of())},
        "two": {4: run(folder / "two", lines)},
    }


def test_gold_and_probabilities_stand_in_the_order_of_the_labels(tmp_path):
    found = read_predictions("test", two_runs(tmp_path, lines_of()), LABELS)
    assert found.gold.tolist() == [0, 0, 1, 0, 0, 1, 0, 1]
    np.testing.assert_allclose(found.probabilities["two"][4][:, 1], np.arange(8) / 10)


def other_gold(lines):
    lines[5]["gold"] = "ok"
    return lines


@pytest.mark.parametrize(
    "change",
    [
        other_gold,
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: lines[:-1],
    ],
)
def test_runs_of_other_rows_are_not_compared(tmp_path, change):
    runs = two_runs(tmp_path, change(lines_of()))
    with pytest.raises(InputError, match="two, seed 4: its test predictions are of other rows"):
        read_predictions("test", runs, LABELS)


def without_a_score(lines):
    del lines[2]["scores"]["rude"]
    return lines


def not_a_number(lines):
    lines[2]["scores"]["rude"] = float("nan")
    return lines


def strange_gold(lines):
    lines[2]["gold"] = "odd"
    return lines


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_a_score, r"test\.jsonl:3: a prediction needs row, a gold label"),
        (not_a_number, r"test\.jsonl: a score of row 3 is nan"),
        (strange_gold, r"test\.jsonl:3: a prediction needs row, a gold label"),
    ],
)
def test_a_damaged_prediction_is_named_by_file_and_line(tmp_path, change, said):
    with pytest.raises(FormatError, match=said):
        read_predictions("test", two_runs(tmp_path, change(lines_of())), LABELS)


def test_a_run_without_predictions_is_named(tmp_path):
    with pytest.raises(InputError, match=r"two.*test.jsonl is missing or empty"):
        read_predictions("test", two_runs(tmp_path, []), LABELS)


def named(parts) -> list[tuple[str, list[int]]]:
    return [(name, at.tolist()) for name, at in parts]


def values(*given) -> list[dict]:
    return [{"text": "a", "group": value} for value in given]


@pytest.mark.parametrize(
    ("given", "yes", "no"),
    [
        (("1", "0", "1"), [0, 2], [1]),
        ((0.5, 0.499, "0.8333"), [0, 2], [1]),
        ((True, False, False), [0], [1, 2]),
        (("true", "False", "0"), [0], [1, 2]),
    ],
)
def test_shares_and_truth_values_become_yes_and_no(given, yes, no):
    assert named(by_column(values(*given), "group")) == [("yes", yes), ("no", no)]


@pytest.mark.parametrize("gone", ["nan", "NA", " null ", "None", float("nan")])
def test_a_word_for_nothing_in_a_column_of_shares_is_a_missing_value(gone):
    found = named(by_column(values("0.1", "0.7", gone, 0.2), "group"))
    assert found == [("yes", [1]), ("no", [0, 3]), ("not stated", [2])]


def test_rare_values_share_a_slice():
    found = by_column(values(*(["often"] * 3), *(f"v{n:02}" for n in range(30))), "group")
    assert len(found) == 20
    assert (found[0][0], found[-1][0]) == ("often", "12 other values")
    assert sum(len(at) for _, at in found) == 33


def sliced(gold, scores):
    """The entry of a slice with all rows of one contestant."""
    table = np.stack([1 - np.array(scores), np.array(scores)], axis=1)
    predicted = Predicted(np.array(gold), table, 1, 0.5)
    return slice_entry({"one": predicted}, "all", np.arange(len(gold)))


def test_a_slice_without_positives_has_only_what_negatives_tell():
    found = sliced([0, 0, 0, 0], [0.1, 0.6, 0.2, 0.3])["contestants"]["one"]
    assert found["false_positive_rate"] == 0.25 and found["accuracy"] == 0.75
    missing = {key for key, value in found.items() if value is None}
    assert missing == {"roc_auc", "pr_auc", "f1", "precision", "recall"}


def answers(scores):
    return [{"scores": {"neg": 1 - s, "pos": s}} for s in scores]


def compared(first, second, gold):
    return side_by_side(
        ["pos" if g else "neg" for g in gold],
        {"a": answers(first), "b": answers(second)},
        {"a": 0.5, "b": 0.5},
        positive="pos",
        resamples=199,
    )


def test_a_model_is_not_told_from_itself():
    draw = np.random.default_rng(1)
    gold, scores = draw.random(200) < 0.4, draw.random(200)
    pair = compared(scores, scores, gold)["pair"]
    for metric in ("roc_auc", "pr_auc", "f1"):
        assert (pair[metric]["low"], pair[metric]["high"], pair[metric]["p"]) == (0, 0, 1)
    assert pair["mcnemar"]["p"] == 1
