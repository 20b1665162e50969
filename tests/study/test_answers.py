from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from filbert.errors import FormatError, InputError
from filbert.study.answers import prepared_rows, read_answers

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


def prepare(study: Path, gold: list[str]) -> None:
    (study / "data").mkdir(exist_ok=True)
    with gzip.open(study / "data" / "test.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": "a b", "label": label}) + "\n" for label in gold)


def test_gold_and_probabilities_stand_in_the_order_of_the_labels(tmp_path):
    found = read_answers("test", two_runs(tmp_path, lines_of()), LABELS)
    assert found.gold.tolist() == [0, 0, 1, 0, 0, 1, 0, 1]
    np.testing.assert_allclose(found.probabilities["two"][4][:, 1], np.arange(8) / 10)


def other_gold(lines):
    lines[5]["gold"] = "ok"
    return lines


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_gold, "the gold label of row 5 is 'rude' and 'ok'"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 1 is of row 0 and of row 1"),
        (lambda lines: lines[:-1], "8 against 7 rows"),
    ],
)
def test_runs_of_other_rows_are_not_compared(tmp_path, change, said):
    runs = two_runs(tmp_path, change(lines_of()))
    both = r"one \(seed 0\) and two \(seed 4\) were not judged on the same test rows: "
    with pytest.raises(InputError, match=both + said):
        read_answers("test", runs, LABELS)


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
        (without_a_score, r"test\.jsonl:3: a prediction needs row, gold and a number"),
        (not_a_number, r"test\.jsonl: a score of row 3 is nan"),
        (strange_gold, r"test\.jsonl:3: gold label 'odd' is not one of ok, rude"),
    ],
)
def test_a_damaged_prediction_is_named_by_file_and_line(tmp_path, change, said):
    with pytest.raises(FormatError, match=said):
        read_answers("test", two_runs(tmp_path, change(lines_of())), LABELS)


def test_a_run_without_predictions_is_named(tmp_path):
    with pytest.raises(InputError, match=r"two \(seed 4\): .* is missing or empty"):
        read_answers("test", two_runs(tmp_path, []), LABELS)


def test_prepared_rows_are_given_when_they_are_the_judged_ones(tmp_path):
    gold = np.array([LABELS.index(label) for label in GOLD])
    assert prepared_rows(tmp_path, "test", gold, LABELS) is None
    prepare(tmp_path, GOLD)
    rows = prepared_rows(tmp_path, "test", gold, LABELS)
    assert rows is not None and [row["label"] for row in rows] == GOLD


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        (GOLD[1:], "holds 7 rows, the predictions are of 8"),
        (["rude", *GOLD[1:]], r"test\.jsonl\.gz:1: label 'rude', but .* against 'ok'"),
    ],
)
def test_data_prepared_anew_does_not_pass_for_the_judged_rows(tmp_path, gold, said):
    prepare(tmp_path, gold)
    with pytest.raises(InputError, match=said):
        prepared_rows(tmp_path, "test", np.array([LABELS.index(x) for x in GOLD]), LABELS)
