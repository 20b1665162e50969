"""The official scripts' figures on published predictions."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from filbert.data.columns import ColumnNames
from filbert.data.squad import read_predictions
from filbert.metrics.squad import metrics_by_id
from filbert.tasks.rows import read_task_rows
from filbert.tasks.span_qa import GoldAnswers, SpanQA


def gold_of(folder: Path, name: str) -> list[GoldAnswers]:
    task = SpanQA()
    return [task.gold(row) for row in read_task_rows(task, folder / name, ColumnNames())]


def answers_of(folder: Path, name: str) -> dict[str, str]:
    found = read_predictions(folder / name)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "squad"


def test_the_scores_of_version_1_are_those_published(folder):
    wanted = json.loads((folder / "expected_scores.json").read_text())["pred-v1.1-logreg"]
    gold = gold_of(folder, "dev-v1.1.json.gz")
    figures = metrics_by_id(gold, answers_of(folder, "pred-v1.1-logreg.json.gz"))
    assert len(gold) == wanted.pop("total")
    assert figures == pytest.approx(wanted, abs=1e-9)


def test_the_scores_of_version_2_are_those_of_the_official_script(folder):
    wanted = json.loads((folder / "expected_scores.json").read_text())["pred-v2.0-nlnet"]
    gold = gold_of(folder, "dev-v2.0.json.gz")
    figures = metrics_by_id(gold, answers_of(folder, "pred-v2.0-nlnet.json.gz"))
    assert len(gold) == wanted.pop("total")
    wanted["exact_match"] = wanted.pop("exact")
    assert {key: figures[key] for key in wanted} == pytest.approx(wanted, abs=1e-9)


# Worked out once by find_all_best_thresh's rules, typed anew outside this tree: without
# no-answer scores, and with made-up ones.
WITHOUT_SCORES = {
    "best_exact": 75.82750779078582,
    "best_exact_thresh": 0.0,
    "best_f1": 78.77776770381439,
    "best_f1_thresh": 0.0,
}
WITH_SCORES = {
    "best_exact": 80.39248715573149,
    "best_exact_thresh": 0.9996500795241445,
    "best_f1": 83.34274706875989,
    "best_f1_thresh": 0.9996500795241445,
}


def test_the_best_thresholds_are_those_of_the_official_script(folder):
    gold = gold_of(folder, "dev-v2.0.json.gz")
    answers = answers_of(folder, "pred-v2.0-nlnet.json.gz")
    figures = metrics_by_id(gold, answers)
    assert {key: figures[key] for key in WITHOUT_SCORES} == pytest.approx(WITHOUT_SCORES, abs=1e-9)
    # Scores that know a little: right answers come early more often.
    truth = {g.id: g.answers for g in gold}
    scores = {
        id: zlib.crc32(id.encode()) / 2**32 + 0.5 * (not truth[id]) * bool(text)
        for id, text in answers.items()
    }
    figures = metrics_by_id(gold, answers, scores)
    assert {key: figures[key] for key in WITH_SCORES} == pytest.approx(WITH_SCORES, abs=1e-9)
