from __future__ import annotations

import io

import pytest
from rich.console import Console

from filbert.report import numbers
from filbert.report.table import best_values, result_rows, result_table


def printed(run, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(result_table(run))
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("problem", "headings"),
    [
        ("binary", ["model", "ROC AUC", "PR AUC", "F1", "seconds", "parameters"]),
        ("multiclass", ["model", "accuracy", "macro F1", "weighted F1", "seconds", "parameters"]),
        ("multilabel", ["ROC AUC", "PR AUC", "micro F1", "macro F1", "seconds", "parameters"]),
    ],
)
def test_the_table_holds_the_headline_metrics_of_the_problem(make_run, problem, headings):
    _, run = make_run(problem)
    text = printed(run)
    assert all(heading in text for heading in headings)
    assert "400 test rows" in text and "22.7 M" in text and "95.3" in text
    assert "all-MiniLM-L6-v2" in text and "TF-IDF + logistic regression" in text
    for row in result_rows(run):
        assert numbers.metric(row.metrics["f1" if problem == "binary" else "macro_f1"]) in text


def test_a_name_in_square_brackets_is_printed_as_it_is(make_run):
    _, run = make_run()
    run["baselines"][0]["name"] = "[red]odd[/red]"
    assert "[red]odd[/red]" in printed(run)


def test_a_name_of_usual_length_keeps_its_line_beside_intervals_at_80_columns(make_run):
    _, run = make_run()
    run["model"]["source"] = "filbert-mini"
    interval = {"low": 0.657, "high": 0.747}
    run["intervals"] = {"filbert-mini": dict.fromkeys(("roc_auc", "pr_auc", "f1"), interval)}
    text = printed(run, width=80)
    assert "filbert-mini " in text and text.count("0.657–0.747") == 3 and "…" not in text


def test_a_run_without_measurements_still_prints_a_table(make_run):
    _, run = make_run()
    for key in ("metrics", "data", "baselines", "seconds", "model"):
        run.pop(key)
    assert "–" in printed(run)


def test_the_best_loss_is_the_lowest_and_the_best_score_the_highest(make_run):
    _, run = make_run("multiclass")
    model, baseline = (row.metrics for row in result_rows(run))
    assert best_values(run)["loss"] == min(model["loss"], baseline["loss"])
    assert best_values(run)["accuracy"] == max(model["accuracy"], baseline["accuracy"])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.1235"), (None, "–"), (1200, "1,200"), (float("nan"), "nan"), ("x", "x")],
)
def test_a_metric_is_written_with_four_decimals(value, text):
    assert numbers.metric(value) == text


def test_durations_and_sizes_are_written_for_people():
    durations = [numbers.seconds(s) for s in (0.43, 95.3, 305, 12_000, None)]
    assert durations == ["0.4 s", "95 s", "5 min 5 s", "3 h 20 min", "–"]
    sizes = [numbers.parameters(n) for n in (950, 12_345, 22_713_986, None)]
    assert sizes == ["950", "12.3 k", "22.7 M", "–"]
