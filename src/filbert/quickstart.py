"""The embedded examples, which need no network: intents, toxic comments, and semantic search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from filbert import samples
from filbert.data.records import read_rows
from filbert.inference.predictor import Predictor
from filbert.metrics.bootstrap import McNemar, mcnemar

# Options of the run by sample. Toxic comments: two passes, which take minutes on two cores. Their
# texts are offensive, so the report does not show them.
OPTIONS: dict[str, dict[str, Any]] = {
    "intents": {},
    "toxic": {"epochs": 2.0, "max_length": 128, "positive": "toxic", "hide_texts": True},
}
# None of them shares a telling word with what a bank's customer is expected to write.
QUESTIONS = (
    "Strangers are buying things with my card!",
    "How much money have I got left?",
    "I forgot the secret number of my card.",
)


def options_of(sample: str) -> dict[str, Any]:
    """Return the options of `filbert.finetune` for the rows of a sample, a key of OPTIONS."""
    paths = {part: str(samples.path(f"{sample}_{part}.csv.gz")) for part in samples.PARTS}
    return {"task": "classification"} | paths | OPTIONS[sample]


class Searched(NamedTuple):
    """What `search` returns.

    Attributes:
        hits: The nearest of `num_texts` sentences for each question, the nearest first, with the
            cosines of their vectors with that of the question.
        num_tested: Labelled questions, all of the sample's test rows.
        shares: Labelled questions whose nearest sentence has the same intent, as a share, by means.
        test: The paired test between the two means.
    """

    hits: list[list[tuple[str, float]]]
    num_texts: int
    num_tested: int
    shares: dict[str, float]
    test: McNemar


def search(model: str, questions: Sequence[str]) -> Searched:
    """Search the sample of intents by the vectors of its sentences, and compare with TF-IDF."""
    rows = {part: _rows(f"intents_{part}.csv.gz") for part in samples.PARTS}
    known, tested = rows["train"] + rows["dev"], rows["test"]
    texts, asked = [text for text, _ in known], [text for text, _ in tested]
    predictor = Predictor.load(model)
    vectors = predictor.embed(texts, normalize=True)
    cosines = np.asarray(predictor.embed(list(questions), normalize=True)) @ np.asarray(vectors).T
    order = np.argsort(-cosines, axis=1)[:, :3]
    hits = [
        [(texts[i], float(own[i])) for i in row] for row, own in zip(order, cosines, strict=True)
    ]
    wanted = np.array([label for _, label in tested])
    labels = np.array([label for _, label in known])
    by_vectors = np.asarray(predictor.embed(asked, normalize=True)) @ np.asarray(vectors).T
    found = {
        "vectors": labels[by_vectors.argmax(1)],
        "TF-IDF": labels[_tfidf_cosines(asked, texts).argmax(1)],
    }
    shares = {name: float(np.mean(answers == wanted)) for name, answers in found.items()}
    return Searched(hits, len(texts), len(asked), shares, mcnemar(wanted, *found.values()))


def _tfidf_cosines(questions: Sequence[str], texts: Sequence[str]) -> np.ndarray:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True).fit(texts)
    cosines = vectorizer.transform(questions) @ vectorizer.transform(texts).T
    return np.asarray(cosines.toarray())


def _rows(name: str) -> list[tuple[str, str]]:
    """Return text and label of the rows of a sample."""
    rows = read_rows(samples.path(name))
    return [(str(row.values["text"]), str(row.values["label"])) for row in rows]
