"""Linear classifiers on TF-IDF features or on means of word vectors: the baselines of every study.

N rows, F features, C classes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from filbert.compare.costs import Effort, Watch
from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.texts import text_of
from filbert.errors import ConfigError, InputError
from filbert.tasks.base import Prediction, Task, task_class, task_from_dict, task_to_dict

if TYPE_CHECKING:
    from filbert.text.clean import Cleaning

# Inverse regularisation strengths; the best on dev is chosen.
STRENGTHS = (1.0, 10.0, 100.0)
_WORD = re.compile(r"(?u)\b\w\w+\b")
# Rows per batch in prediction.
_CHUNK = 512


class Features(Protocol):
    """Converts texts to a feature matrix."""

    def of(self, texts: Sequence[str]) -> Any:
        """Return a SciPy matrix or an array, float (N, F)."""
        ...

    def save(self, facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        """Add the content that `load_linear` reads."""
        ...


class WordCounts:
    """TF-IDF of words and word n-grams.

    Args:
        texts: Training texts; None if `vocabulary` and `idf` are given.
        ngrams: Longest n-gram.
        min_df: Texts that an n-gram must occur in.
        vocabulary: N-grams in the order of the features.
        idf: Their weights, float (F,).
    """

    def __init__(
        self,
        texts: Sequence[str] | None,
        *,
        ngrams: int = 2,
        min_df: int = 2,
        vocabulary: Sequence[str] | None = None,
        idf: np.ndarray | None = None,
    ) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.ngrams, self.min_df = ngrams, min_df
        self._vectorizer = TfidfVectorizer(
            lowercase=True,
            ngram_range=(1, ngrams),
            min_df=min_df,
            sublinear_tf=True,
            strip_accents="unicode",
            vocabulary=None if vocabulary is None else list(vocabulary),
        )
        if texts is None:
            self._vectorizer.idf_ = idf
            return
        try:
            self._vectorizer.fit(texts)
        except ValueError as error:
            raise ConfigError(
                f"No word stands in {min_df} of the {len(texts)} training texts, so there is "
                f"nothing to count. Give more rows, or a smaller min_df."
            ) from error

    def of(self, texts: Sequence[str]) -> Any:
        """Return rows of unit length."""
        return self._vectorizer.transform(texts)

    def save(self, facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        """Add the vocabulary to the JSON and the weights to the tensors."""
        facts |= {"features": "tfidf", "ngrams": self.ngrams, "min_df": self.min_df}
        facts["vocabulary"] = [str(name) for name in self._vectorizer.get_feature_names_out()]
        tensors["idf"] = np.asarray(self._vectorizer.idf_, dtype=np.float64)


class WordMeans:
    """Mean of the vectors of a text's words, each feature scaled to mean 0 and deviation 1.

    Args:
        words: In the order of the table.
        table: float32 (words, F).
        mean, deviation: Of the features in training, float64 (F,).
    """

    def __init__(
        self,
        words: Sequence[str],
        table: np.ndarray,
        mean: np.ndarray | None = None,
        deviation: np.ndarray | None = None,
    ) -> None:
        self.words, self.table = list(words), table
        self._rows = {word: at for at, word in enumerate(self.words)}
        self.mean = np.zeros(table.shape[1]) if mean is None else mean
        self.deviation = np.ones(table.shape[1]) if deviation is None else deviation

    def fitted(self, texts: Sequence[str]) -> WordMeans:
        """Return the same features, scaled by these texts."""
        raw = self._raw(texts)
        deviation = raw.std(0)
        return WordMeans(self.words, self.table, raw.mean(0), np.where(deviation, deviation, 1.0))

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """Return scaled means; a text without a known word has 0 before scaling."""
        scaled: np.ndarray = (self._raw(texts) - self.mean) / self.deviation
        return scaled

    def save(self, facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        """Add the words to the JSON and the vectors to the tensors."""
        facts |= {"features": "word means", "words": self.words}
        tensors |= {"table": self.table, "mean": self.mean, "deviation": self.deviation}

    def _raw(self, texts: Sequence[str]) -> np.ndarray:
        raw = np.zeros((len(texts), self.table.shape[1]))
        for at, text in enumerate(texts):
            known = [self._rows[w] for w in words_of(text) if w in self._rows]
            if known:
                raw[at] = self.table[known].mean(0)
        return raw


@dataclass(frozen=True)
class Linear:
    """A fitted linear classifier.

    Attributes:
        task: With labels and, after `calibrated`, threshold and temperature.
        features: Converts texts.
        weights: float64 (C, F).
        bias: float64 (C,).
        strength: Inverse regularisation strength.
        cleaning: Applied to texts first.
    """

    task: Task
    features: Features
    weights: np.ndarray
    bias: np.ndarray
    strength: float
    cleaning: Cleaning | None = None

    @property
    def num_parameters(self) -> int:
        """Number of learned weights and of values in the table of vectors."""
        table = self.features.table.size if isinstance(self.features, WordMeans) else 0
        # For two classes the first row is all zeros.
        rows = self.weights[1:] if len(self.weights) == 2 else self.weights
        return int(rows.size + len(rows) + table)

    def predict_rows(self, rows: Sequence[Row]) -> list[Prediction]:
        """Return predictions in the shape of all tasks, in order."""
        found: list[Prediction] = []
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            texts = [joined(row, self.cleaning) for row in part]
            found += self.task.decode(self._logits(self.features.of(texts)), _examples(texts))
        return found

    def calibrated(self, rows: Sequence[Row]) -> Linear:
        """Return the same model with temperature and threshold fitted on dev rows."""
        texts = [joined(row, self.cleaning) for row in rows]
        gold = [self.task.gold(row) for row in rows]
        logits = self._logits(self.features.of(texts))
        return replace(self, task=self.task.calibrate(gold, logits, _examples(texts)))

    def save(self, folder: Path) -> None:
        """Write linear.json and linear.safetensors, which contain no code."""
        from safetensors.numpy import save_file

        tensors = {"weights": self.weights, "bias": self.bias}
        facts: dict[str, Any] = {
            "task": task_to_dict(self.task),
            "C": self.strength,
            "cleaning": None if self.cleaning is None else self.cleaning.names,
        }
        self.features.save(facts, tensors)
        folder.mkdir(parents=True, exist_ok=True)
        contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        save_file(contiguous, folder / "linear.safetensors")
        (folder / "linear.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")

    def _logits(self, features: Any) -> list[torch.Tensor]:
        scores = features @ self.weights.T + self.bias
        return list(torch.from_numpy(np.asarray(scores, dtype=np.float64)))


def load_linear(folder: Path) -> Linear:
    """Read the folder of `Linear.save`."""
    from safetensors.numpy import load_file

    from filbert.text.clean import Cleaning

    facts = json.loads((folder / "linear.json").read_text(encoding="utf-8"))
    tensors = load_file(folder / "linear.safetensors")
    features: Features
    if facts["features"] == "tfidf":
        features = WordCounts(
            None,
            ngrams=facts["ngrams"],
            min_df=facts["min_df"],
            vocabulary=facts["vocabulary"],
            idf=tensors["idf"],
        )
    else:
        features = WordMeans(
            facts["words"], tensors["table"], tensors["mean"], tensors["deviation"]
        )
    cleaning = Cleaning.parse(facts["cleaning"])
    task = task_from_dict(task_class("classification"), facts["task"])
    return Linear(task, features, tensors["weights"], tensors["bias"], facts["C"], cleaning)


def fit_linear(
    task: Task,
    features: Features,
    train: tuple[Sequence[str], Sequence[Row]],
    dev: Sequence[Row],
    *,
    strength: float | None = None,
    cleaning: Cleaning | None = None,
    watch: Watch | None = None,
) -> tuple[Linear, Effort]:
    """Fit on train; choose the strength (unless given), the temperature and threshold on dev.

    Args:
        task: Has the labels.
        features: Fitted on `train`.
        train: Cleaned texts and their labelled rows.
        dev: Labelled rows.
        strength: scikit-learn's C; None tries `STRENGTHS` and takes the best by the task's
            selection metric on dev.
        cleaning: Applied to all texts.
        watch: Started before training was prepared.

    Returns:
        The classifier, and the effort of the preparation and of its own fit, without the other
        strengths and without dev.
    """
    from sklearn.linear_model import LogisticRegression

    watch = watch or Watch()
    texts, rows = train
    matrix = features.of(texts)
    gold = [task.gold(row) for row in rows]
    preparing = watch.so_far()
    wanted = [task.gold(row) for row in dev]
    best: tuple[float, Linear, Effort] | None = None
    for tried in STRENGTHS if strength is None else (strength,):
        watch = Watch()
        classifier = LogisticRegression(C=tried, max_iter=1000)
        classifier.fit(matrix, gold)
        weights, bias = _full(classifier, task.spec.num_labels or 0)
        effort = preparing + watch.so_far()
        fitted = Linear(task, features, weights, bias, tried, cleaning)
        if strength is not None:
            return fitted.calibrated(dev), effort
        found = task.metrics(wanted, fitted.predict_rows(dev))[task.spec.selection_metric]
        value = -math.inf if found is None else float(found)
        if best is None or value > best[0]:
            best = (value, fitted, effort)
    assert best is not None
    return best[1].calibrated(dev), best[2]


def _full(classifier: Any, num_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (C, F) and bias (C,); a label without a training row is never predicted."""
    weights = np.zeros((num_labels, classifier.coef_.shape[1]))
    bias = np.full(num_labels, -30.0)
    known = classifier.classes_
    if len(known) == 2:
        weights[known[1]], bias[known] = classifier.coef_[0], (0.0, classifier.intercept_[0])
    else:
        weights[known], bias[known] = classifier.coef_, classifier.intercept_
    return weights, bias


def words_of(text: str) -> list[str]:
    """Return the words of two letters or more, in lower case."""
    return _WORD.findall(text.lower())


def joined(row: Row, cleaning: Cleaning | None = None) -> str:
    """Return a row's text, or its two texts joined."""
    given = text_of(row)
    text = given if isinstance(given, str) else " ".join(given)
    return text if cleaning is None else cleaning(text)


def _examples(texts: Sequence[str]) -> list[Example]:
    """Return examples that hold the number of words of each text, all of them read."""
    counts = [len(_WORD.findall(text)) for text in texts]
    return [Example(at, np.zeros(n), np.zeros(n), n) for at, n in enumerate(counts)]


def word_table(
    texts: Sequence[str], *, vectors: str | None, model: str | None, others: Sequence[str] = ()
) -> WordMeans:
    """Return the vectors of the words of texts, from a file or from an encoder.

    Args:
        texts: Cleaned training texts.
        vectors: A GloVe or word2vec text file.
        model: Without a file, an encoder; a word's vector is the mean of its tokens' rows in the
            embedding table.
        others: Cleaned dev and test texts, whose words are looked up in the file too.

    Raises:
        InputError: The file has none of the words of the training texts.
        FormatError: The file or the model is damaged.
    """
    words = sorted({word for text in texts for word in words_of(text)})
    if vectors is None:
        assert model is not None
        return WordMeans(words, _of_model(words, model))

    from filbert.data.word_vectors import read_vectors

    found = read_vectors(Path(vectors), {*words, *(w for text in others for w in words_of(text))})
    if set(words).isdisjoint(found.words):
        raise InputError(
            f"{vectors} has none of the {len(words):,} words of the training texts. Is it of this "
            f"language, and in lower case?"
        )
    return WordMeans(found.words, np.asarray(found.table, dtype=np.float32))


def _of_model(words: Sequence[str], model: str) -> np.ndarray:
    """Return float32 (words, embedding size)."""
    from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer

    place = find_model(model)
    table = read_checkpoint(place).tensors["encoder.embeddings.word.weight"].float().numpy()
    tokenizer = read_tokenizer(place)
    ids = tokenizer.encode(list(words), max_length=64)
    vectors = np.zeros((len(words), table.shape[1]), dtype=np.float32)
    for at, encoding in enumerate(ids):
        # Without the special tokens at both ends.
        pieces = encoding.input_ids[1:-1]
        if len(pieces):
            vectors[at] = table[pieces].mean(0)
    return vectors
