"""Linear models of texts: TF-IDF with logistic or ridge regression, the baseline of every run.

N rows, F features, C outputs: classes, or labels that a row may have several of.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from filbert.batch import PackedBatch
from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.texts import text_of
from filbert.errors import ConfigError
from filbert.inference.forward import forward, in_order
from filbert.model.heads import Model, SequenceHead
from filbert.model.precision import Precision
from filbert.tasks.base import Prediction, Task, gain
from filbert.tasks.rows import row_outputs

if TYPE_CHECKING:
    from filbert.text.clean import Cleaning

TFIDF, RIDGE = "TF-IDF + logistic regression", "TF-IDF + ridge regression"
# Inverse regularisation strengths; the best on dev is chosen. Without a search the middle one is
# taken.
STRENGTHS = (1.0, 10.0, 100.0)
USUAL_STRENGTH = 10.0
_LONG_WORD = re.compile(r"(?u)\b\w\w+\b")
# The logit of an output that no training row has.
_NEVER = -30.0


class Size(NamedTuple):
    """How large a model is; the values of a table of vectors are parameters too."""

    parameters: int
    num_bytes: int


class FeatureExtractor(Protocol):
    """Converts texts to a feature matrix."""

    @property
    def size(self) -> Size:
        """Its own size, without the weights of a classifier."""
        ...

    def of(self, texts: Sequence[str]) -> Any:
        """Return a SciPy matrix or an array, float (N, F)."""
        ...


class WordCounts:
    """TF-IDF of words and word n-grams.

    Args:
        min_df: Texts that an n-gram must occur in.
        is_symbols: Whether a word is everything between white space, as it is written.
    """

    def __init__(
        self, texts: Sequence[str], *, ngrams: int = 2, min_df: int = 2, is_symbols: bool = False
    ) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectorizer = TfidfVectorizer(
            lowercase=not is_symbols,
            ngram_range=(1, ngrams),
            min_df=min_df,
            sublinear_tf=True,
            strip_accents=None if is_symbols else "unicode",
            token_pattern=r"\S+" if is_symbols else r"(?u)\b\w\w+\b",
        )
        try:
            self._vectorizer.fit(texts)
        except ValueError as error:
            raise ConfigError(
                f"No word occurs in {min_df} of the {len(texts)} training texts. Give more rows or "
                "a smaller min_df."
            ) from error

    def of(self, texts: Sequence[str]) -> Any:
        """Return rows of unit length."""
        return self._vectorizer.transform(texts)

    @property
    def size(self) -> Size:
        """No parameters, and the bytes of the vocabulary and its weights."""
        words = self._vectorizer.get_feature_names_out()
        return Size(0, int(self._vectorizer.idf_.nbytes) + len("".join(words).encode()))


@dataclass(frozen=True)
class Linear:
    """A fitted linear model, created by `fit_linear`.

    Attributes:
        task: With labels and, where there are dev rows, threshold and temperature.
        weights: float64 (C, F).
        bias: float64 (C,).
    """

    task: Task
    features: FeatureExtractor
    weights: np.ndarray
    bias: np.ndarray
    strength: float
    cleaning: Cleaning | None = None

    @property
    def size(self) -> Size:
        """The size of weights, bias and features."""
        # For two classes the first row is all zeros.
        rows = self.weights[1:] if len(self.weights) == 2 else self.weights
        parameters, num_bytes = self.features.size
        num_bytes += self.weights.nbytes + self.bias.nbytes
        return Size(int(rows.size + len(rows) + parameters), num_bytes)

    def predict_rows(self, rows: Sequence[Row]) -> list[Prediction]:
        """Return predictions in the shape of all tasks, in order."""
        return self.task.decode(*self.outputs(rows))

    def outputs(self, rows: Sequence[Row]) -> tuple[list[torch.Tensor], list[Example]]:
        """Return the outputs of rows, and examples with the number of words of each text."""
        texts = [joined(row, self.cleaning) for row in rows]
        scores = self.features.of(texts) @ self.weights.T + self.bias
        outputs = list(torch.from_numpy(np.asarray(scores, dtype=np.float64)))
        counts = [len(_LONG_WORD.findall(text)) for text in texts]
        return outputs, [Example(at, np.zeros(n), np.zeros(n), n) for at, n in enumerate(counts)]


def fit_linear(
    task: Task,
    features: FeatureExtractor,
    *,
    train: tuple[Sequence[str], Sequence[Row]],
    dev: Sequence[Row] = (),
    strength: float | None = None,
    cleaning: Cleaning | None = None,
) -> tuple[Linear, float]:
    """Fit on train; choose the strength (unless given), the temperature and threshold on dev.

    Args:
        task: Has the labels. One with several labels a row gets one model per label, and a
            regression ridge regression.
        features: Fitted on `train`.
        train: Cleaned texts and their labelled rows.
        dev: Labelled rows; without any, `strength` is required.
        strength: scikit-learn's C; None tries `STRENGTHS` and takes the best by the task's
            selection metric on dev.

    Returns:
        The model, and the seconds of the feature matrix and of its own fit, without the other
        strengths and without dev.
    """
    started = time.perf_counter()
    texts, rows = train
    matrix = features.of(texts)
    gold, wanted = ([task.gold(row) for row in part] for part in (rows, dev))
    preparing = time.perf_counter() - started
    best: tuple[float, Linear, float] | None = None
    for tried in STRENGTHS if strength is None else (strength,):
        started = time.perf_counter()
        weights, bias = _solved(task, matrix, gold, tried)
        seconds = preparing + time.perf_counter() - started
        fitted = Linear(task, features, weights, bias, tried, cleaning)
        value = 0.0 if strength else dev_score(task, wanted, fitted.predict_rows(dev))
        if best is None or value > best[0]:
            best = (value, fitted, seconds)
    assert best is not None
    _, model, seconds = best
    if dev:
        model = replace(model, task=task.calibrate(wanted, *model.outputs(dev)))
    return model, seconds


def dev_score(task: Task, gold: Sequence[Any], predictions: Sequence[Prediction]) -> float:
    """Return the `gain` of the metric that models are selected by."""
    metric = task.spec.selection_metric
    return gain(metric, task.metrics(gold, predictions)[metric])


def _solved(
    task: Task, matrix: Any, gold: Sequence[Any], strength: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (C, F) and bias (C,) of the outputs of a task."""
    from sklearn.linear_model import Ridge

    spec = task.spec
    if spec.problem_type == "regression":
        ridge = Ridge().fit(matrix, gold)
        return np.atleast_2d(ridge.coef_), np.atleast_1d(ridge.intercept_)
    if not spec.multilabel:
        return fit_logistic(matrix, np.asarray(gold), spec.num_labels or 0, strength)
    both = [fit_logistic(matrix, column, 2, strength) for column in np.asarray(gold).astype(int).T]
    return np.stack([w[1] - w[0] for w, _ in both]), np.array([b[1] - b[0] for _, b in both])


def fit_logistic(
    matrix: Any, gold: np.ndarray, num_labels: int, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and bias; a label without a training row is never predicted."""
    from sklearn.linear_model import LogisticRegression

    weights = np.zeros((num_labels, matrix.shape[1]))
    bias = np.full(num_labels, _NEVER)
    known = np.unique(gold)
    if len(known) == 1:
        bias[known] = 0.0
        return weights, bias
    classifier = LogisticRegression(C=strength, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # after 1,000 iterations it is near enough
        classifier.fit(matrix, gold)
    if len(known) == 2:
        weights[known[1]], bias[known] = classifier.coef_[0], (0.0, classifier.intercept_[0])
    else:
        weights[known], bias[known] = classifier.coef_, classifier.intercept_
    return weights, bias


def start_head(model: Model, examples: Sequence[Example], labels: Sequence[int]) -> None:
    """Set the head's last layer to a logistic regression on the vectors that it reads.

    Training all weights from there changes the encoder less (Kumar et al. 2022). `labels` are of
    each row, in the order of `examples`.
    """
    head = model.head
    assert isinstance(head, SequenceHead)

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[torch.Tensor, ...]:
        return (head.transformed(model.encoder.pool(model.encoder(batch), batch)),)

    outputs = forward(model, examples, read, precision=Precision("float32", "start of the head"))
    vectors = [vector for (vector,) in in_order(outputs, len(examples), None)]
    vectors_RH = row_outputs(vectors, examples).double().numpy()
    center = vectors_RH.mean(0)
    spread = np.sqrt(vectors_RH.var(0).sum()) or 1.0  # 0 where all rows have one text
    number = head.out.out_features
    scaled = (vectors_RH - center) / spread
    weights, bias = fit_logistic(scaled, np.asarray(labels), number, USUAL_STRENGTH)
    with torch.no_grad():
        head.out.weight.copy_(torch.from_numpy(weights / spread))
        if head.out.bias is not None:
            head.out.bias.copy_(torch.from_numpy(bias - weights @ center / spread))


def words_of(text: str) -> list[str]:
    """Return the words of two letters or more, in lower case."""
    return _LONG_WORD.findall(text.lower())


def joined(row: Row, cleaning: Cleaning | None = None) -> str:
    """Return a row's text, or its two texts joined."""
    given = text_of(row)
    text = given if isinstance(given, str) else " ".join(given)
    return text if cleaning is None else cleaning(text)
