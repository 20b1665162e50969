"""Logistic regression on words: fitted, saved, read back."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.compare.classifiers import WordMeans
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError
from filbert.tasks.base import TaskOptions
from filbert.tasks.classification import Classification
from filbert.tasks.rows import read_task_rows
from filbert.text.clean import Cleaning
from filbert.train.linear import WordCounts, fit_linear, joined


@pytest.fixture(scope="module")
def rows(films):
    task = Classification.from_options(TaskOptions(positive="pos"), ColumnNames())
    return {
        n: list(read_task_rows(task, films / f"{n}.csv", ColumnNames()))
        for n in ("train", "dev", "test")
    }


@pytest.fixture(scope="module")
def task(rows):
    options = TaskOptions(positive="pos")
    return Classification.from_options(options, ColumnNames()).fit(rows["train"])


def features(kind, rows):
    texts = [joined(row) for row in rows["train"]]
    if kind == "counts":
        return WordCounts(texts)
    words = sorted({word for text in texts for word in text.split() if len(word) > 1})
    table = np.random.default_rng(0).normal(size=(len(words), 24)).astype(np.float32)
    return WordMeans(texts, words, table)


def fit(task, counts, rows, **options):
    """The classifier alone."""
    texts = [joined(row, options.get("cleaning")) for row in rows["train"]]
    return fit_linear(task, counts, train=(texts, rows["train"]), dev=rows["dev"], **options)[0]


@pytest.mark.parametrize("kind", ["counts", "means"])
def test_a_classifier_is_saved_without_code(kind, rows, task, tmp_path):
    cleaner = Cleaning.parse("lowercase,non-alphanumerics")
    fitted = fit(task, features(kind, rows), rows, strength=10.0, cleaning=cleaner)
    fitted.save(tmp_path / "model")
    assert {p.suffix for p in (tmp_path / "model").iterdir()} == {".json", ".safetensors"}
    gold = [task.gold(row) for row in rows["test"]]
    assert fitted.task.metrics(gold, fitted.predict_rows(rows["test"]))["roc_auc"] > 0.95


def test_the_strength_is_the_best_of_those_tried_on_dev(rows, task):
    counts = features("counts", rows)
    tuned = fit(task, counts, rows)
    gold = [task.gold(row) for row in rows["dev"]]

    def value(strength):
        fitted = fit(task, counts, rows, strength=strength)
        return fitted.task.metrics(gold, fitted.predict_rows(rows["dev"]))["roc_auc"]

    assert value(tuned.strength) == max(map(value, (1.0, 10.0, 100.0)))


def test_the_classifier_is_scikit_learns(rows, task):
    from sklearn.linear_model import LogisticRegression

    counts = features("counts", rows)
    fitted = fit(task, counts, rows, strength=10.0)
    matrix = counts.of([joined(row) for row in rows["train"]])
    judge = LogisticRegression(C=10.0, max_iter=1000)
    judge.fit(matrix, [task.gold(row) for row in rows["train"]])
    logits = matrix @ fitted.weights.T + fitted.bias
    odds = np.exp(logits)
    # Rounding only: both are the same solution in float64.
    assert np.allclose(
        odds / odds.sum(1, keepdims=True), judge.predict_proba(matrix), rtol=0, atol=1e-12
    )


def test_a_text_without_a_known_word_has_an_answer(rows, task):
    from filbert.data.records import Row

    for kind in ("counts", "means"):
        fitted = fit(task, features(kind, rows), rows, strength=1.0)
        (answer,) = fitted.predict_rows([Row({"text": "zzz"}, "x", 1)])
        assert 0 <= answer["score"] <= 1 and answer["num_tokens"] == 1
        assert answer["truncated"] is False


def test_training_texts_without_a_repeated_word_are_refused():
    with pytest.raises(ConfigError, match="No word occurs in 2 of the 2 training texts"):
        WordCounts(["one two", "three four"], min_df=2)


def test_the_search_for_a_strength_is_no_part_of_the_training_time(rows, task, monkeypatch):
    """Time stands still but for a second in each fit."""
    from sklearn.linear_model import LogisticRegression

    from filbert.train import linear

    now = [0.0]
    monkeypatch.setattr(linear.time, "perf_counter", lambda: now[0])
    real = LogisticRegression.fit

    def slow(self, *given):
        now[0] += 1.0
        return real(self, *given)

    monkeypatch.setattr(LogisticRegression, "fit", slow)
    # The last one tried is the best.
    monkeypatch.setattr(
        Classification, "metrics", lambda self, *_: {self.spec.selection_metric: now[0]}
    )
    texts = [joined(row) for row in rows["train"]]
    counts = WordCounts(texts)
    _, seconds = fit_linear(task, counts, train=(texts, rows["train"]), dev=rows["dev"])
    assert now[0] == 3.0
    assert seconds == 1.0
