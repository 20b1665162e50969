from __future__ import annotations

import pytest

from filbert.cli.output import print_run
from filbert.report import numbers
from filbert.report.table import best_value, result_rows


@pytest.mark.parametrize(
    ("problem", "headings"),
    [
        ("binary", ["model", "ROC AUC", "PR AUC", "F1", "seconds", "parameters"]),
        ("multiclass", ["model", "accuracy", "macro F1", "weighted F1", "seconds", "parameters"]),
        ("multilabel", ["ROC AUC", "PR AUC", "micro F1", "macro F1", "seconds", "parameters"]),
    ],
)
def test_the_table_holds_the_headline_metrics_of_the_problem(
    make_run, problem, headings, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "120")
    _, run = make_run(problem)
    print_run(run)
    text = capsys.readouterr().out
    assert all(heading in text for heading in headings)
    assert "400 test rows" in text and "22.7 M" in text and "95.3" in text
    assert "all-MiniLM-L6-v2" in text and "TF-IDF + logistic regression" in text
    for row in result_rows(run):
        assert numbers.metric(row["metrics"]["f1" if problem == "binary" else "macro_f1"]) in text


def test_the_best_loss_is_the_lowest_and_the_best_score_the_highest():
    assert (best_value([1.0, None, 2.0], "loss"), best_value([1.0, 2.0], "f1")) == (1.0, 2.0)
