"""The baseline that every fine-tuned classifier has to beat: TF-IDF and logistic regression."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.tasks.classification import Classification


def tfidf_baseline(
    task: Classification, train: Sequence[Row], dev: Sequence[Row], test: Sequence[Row]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Fit on train, tune the threshold on dev, measure on test, as the model beside it.

    Words and word pairs, at least twice in train, sublinear counts; scikit-learn's logistic
    regression.

    Returns:
        What run.json lists under "baselines", and the predictions for `test`.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    started = time.perf_counter()
    vectorizer = TfidfVectorizer(
        lowercase=True, ngram_range=(1, 2), min_df=2, sublinear_tf=True, strip_accents="unicode"
    )
    features = vectorizer.fit_transform([_joined(row) for row in train])
    classifier = LogisticRegression(C=10.0, max_iter=1000)
    classifier.fit(features, [task.gold(row) for row in train])
    trained = time.perf_counter() - started

    def logits(rows: Sequence[Row]) -> list[torch.Tensor]:
        probabilities = classifier.predict_log_proba(
            vectorizer.transform([_joined(row) for row in rows])
        )
        # A label that no training row has would lack its column.
        full = np.full((len(rows), task.num_labels or 0), -30.0)
        full[:, classifier.classes_] = probabilities
        return list(torch.from_numpy(full))

    def stand_ins(rows: Sequence[Row]) -> list[Example]:
        return [Example(i, np.zeros(0), np.zeros(0), 0) for i in range(len(rows))]

    fitted = task.calibrate([task.gold(row) for row in dev], logits(dev), stand_ins(dev))
    predictions = fitted.decode(logits(test), stand_ins(test))
    facts = {
        "name": "TF-IDF + logistic regression",
        "metrics": fitted.metrics([task.gold(row) for row in test], predictions),
        "seconds": trained,
        "parameters": int(classifier.coef_.size + classifier.intercept_.size),
    }
    return facts, predictions


def _joined(row: Row) -> str:
    pair = row.values.get("text_pair")
    text: str = row.values["text"]
    return text + (f" {pair}" if pair else "")
