"""Logistic regression on words: fitted, saved, read back."""

import numpy as np
import pytest

from filbert.errors import ConfigError
from filbert.lineage.words import WordMeans
from filbert.tasks.classification import Classification
from filbert.text.clean import Cleaning
from filbert.train.linear import WordCounts, fit_linear, joined


def features(kind, film_splits):
    texts = [joined(row) for row in film_splits["train"]]
    if kind == "counts":
        return WordCounts(texts)
    words = sorted({word for text in texts for word in text.split() if len(word) > 1})
    table = np.random.default_rng(0).normal(size=(len(words), 24)).astype(np.float32)
    return WordMeans(texts, words, table)


def fit(film_task, counts, film_splits, **options):
    """The classifier alone."""
    texts = [joined(row, options.get("cleaning")) for row in film_splits["train"]]
    return fit_linear(
        film_task, counts, train=(texts, film_splits["train"]), dev=film_splits["dev"], **options
    )[0]


@pytest.mark.parametrize("kind", ["counts", "means"])
def test_both_kinds_of_features_classify_cleaned_texts(kind, film_splits, film_task):
    cleaner = Cleaning.parse("lowercase,non-alphanumerics")
    fitted = fit(
        film_task, features(kind, film_splits), film_splits, strength=10.0, cleaning=cleaner
    )
    gold = [film_task.gold(row) for row in film_splits["test"]]
    assert fitted.task.metrics(gold, fitted.predict_rows(film_splits["test"]))["roc_auc"] > 0.95


def test_the_strength_is_the_best_of_those_tried_on_dev(film_splits, film_task):
    counts = features("counts", film_splits)
    tuned = fit(film_task, counts, film_splits)
    gold = [film_task.gold(row) for row in film_splits["dev"]]

    def value(strength):
        fitted = fit(film_task, counts, film_splits, strength=strength)
        return fitted.task.metrics(gold, fitted.predict_rows(film_splits["dev"]))["roc_auc"]

    assert value(tuned.strength) == max(map(value, (1.0, 10.0, 100.0)))


def test_the_classifier_is_scikit_learns(film_splits, film_task):
    from sklearn.linear_model import LogisticRegression

    counts = features("counts", film_splits)
    fitted = fit(film_task, counts, film_splits, strength=10.0)
    matrix = counts.of([joined(row) for row in film_splits["train"]])
    judge = LogisticRegression(C=10.0, max_iter=1000)
    judge.fit(matrix, [film_task.gold(row) for row in film_splits["train"]])
    logits = matrix @ fitted.weights.T + fitted.bias
    odds = np.exp(logits)
    # Rounding only: both are the same solution in float64.
    assert np.allclose(
        odds / odds.sum(1, keepdims=True), judge.predict_proba(matrix), rtol=0, atol=1e-12
    )


def test_a_text_without_a_known_word_has_an_answer(film_splits, film_task):
    from filbert.data.records import Row

    for kind in ("counts", "means"):
        fitted = fit(film_task, features(kind, film_splits), film_splits, strength=1.0)
        (answer,) = fitted.predict_rows([Row({"text": "zzz"}, "x", 1)])
        assert 0 <= answer["score"] <= 1 and answer["num_tokens"] == 1
        assert answer["truncated"] is False


def test_training_texts_without_a_repeated_word_are_refused():
    with pytest.raises(ConfigError, match="No word occurs in 2 of the 2 training texts"):
        WordCounts(["one two", "three four"], min_df=2)


def test_the_search_for_a_strength_is_no_part_of_the_training_time(
    film_splits, film_task, monkeypatch
):
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
    texts = [joined(row) for row in film_splits["train"]]
    counts = WordCounts(texts)
    _, seconds = fit_linear(
        film_task, counts, train=(texts, film_splits["train"]), dev=film_splits["dev"]
    )
    assert now[0] == 3.0
    assert seconds == 1.0
