"""scikit-learn estimators: TextClassifier, TextRegressor, TextTagger and TextEncoder.

They work in Pipeline, cross_val_score, GridSearchCV and clone. X is a list, array or Series of
texts; pairs of texts are tuples or a table of two columns. A fitted estimator is pickled with the
files of its model folder.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_is_fitted, column_or_1d

from filbert.data.labels import label_name
from filbert.data.tables import as_files
from filbert.errors import InputError
from filbert.inference.predictor import Predictor
from filbert.metrics.entities import entity_metrics
from filbert.train.options import FinetuneOptions
from filbert.train.seeds import run

# Arguments of an estimator that are options of `finetune`.
_OPTIONS = ("epochs", "lr", "batch_size", "max_length", "seed", "device")


class InvalidTexts(InputError, ValueError):
    """X or y cannot be used; scikit-learn expects a ValueError."""


class _OfTexts(BaseEstimator):  # type: ignore[misc]
    """An estimator whose X is one array of texts."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        return tags


@dataclass(eq=False, repr=False)
class _TextEstimator(_OfTexts):
    """Fine-tuning behind `fit`, for one task.

    Args:
        model: Model to start from: a folder, a built-in name or a Hub id.
        epochs: Passes over the rows; filbert's default when None, as for the next three.
        lr: Peak learning rate.
        batch_size: Rows per optimizer step.
        max_length: Cut texts to this many tokens.
        seed: Random seed for the new head, shuffling and dropout.
        device: "cpu", "cuda", ...; the first GPU if there is one.
        out: Run folder to keep, which each `fit` replaces; None for a temporary one. Leave it out
            where several fits run at once.
        verbose: Print the progress of `fit` on stderr.
    """

    _task: ClassVar[str]

    model: Any = "minilm"
    _: KW_ONLY
    epochs: float | None = None
    lr: float | None = None
    batch_size: int | None = None
    max_length: int | None = None
    seed: int = 0
    device: str | None = None
    out: Any = None
    verbose: bool = False

    def _fit(self, rows: Sequence[Mapping[str, Any]], **options: Any) -> None:
        given = {"task": self._task, "model": str(self.model), "train": rows, **options}
        given |= {name: getattr(self, name) for name in _OPTIONS if getattr(self, name) is not None}
        given |= {"overwrite": True, "save_every": 0}
        with contextlib.ExitStack() as stack:
            if not self.verbose:
                stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            folder = self.out
            if folder is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()), "run")
            files = stack.enter_context(as_files(given | {"out": folder}, ["train", "out"]))
            run(FinetuneOptions.from_keywords(files))
            self._keep(_contents(Path(folder, "model")))

    def _keep(self, files: Mapping[str, bytes]) -> None:
        """Write a model folder that exists as long as this estimator, and load the model."""
        folder = tempfile.mkdtemp(prefix="filbert-model-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._folder = folder
        self.model_: Predictor = Predictor.load(folder, device=self.device)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if state.pop("model_", None) is not None:
            state["_folder"] = _contents(Path(self._folder))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.get("_folder")
        super().__setstate__({name: v for name, v in state.items() if name != "_folder"})
        if files is not None:
            self._keep(files)

    def _answers(self, X: Any) -> list[dict[str, Any]]:
        check_is_fitted(self, "model_")
        return self.model_.predict(self._items(X))

    @staticmethod
    def _items(X: Any) -> list[Any]:
        return texts_in(X)


class TextClassifier(ClassifierMixin, _TextEstimator):  # type: ignore[misc]
    """Classify texts or pairs of texts.

    Attributes:
        classes_: The labels in the order of the columns of `predict_proba`.
        model_: The trained model, as `filbert.load` returns it.
    """

    _task = "classification"

    def fit(self, X: Any, y: Any) -> TextClassifier:
        """Fine-tune the model on texts and their labels."""
        labels = _column(y)
        check_classification_targets(labels)
        self.classes_ = np.unique(labels)
        names = [label_name(one) for one in self.classes_.tolist()]
        if len(names) < 2:
            raise InvalidTexts(f"All rows have one label, {names[0]!r}; two classes are needed.")
        self._fit(_rows(texts_in(X), map(label_name, labels.tolist())), labels=names)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each text."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each label, (texts, labels)."""
        answers = self._answers(X)
        scores = [[one["scores"][name] for name in self.model_.labels] for one in answers]
        return np.array(scores, np.float64).reshape(-1, len(self.classes_))


class TextRegressor(RegressorMixin, _TextEstimator):  # type: ignore[misc]
    """Predict a number for each text or pair of texts."""

    _task = "regression"

    def fit(self, X: Any, y: Any) -> TextRegressor:
        """Fine-tune the model on texts and their values."""
        values = _column(y, dtype=np.float64)
        self._fit(_rows(texts_in(X), values.tolist()))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return a value for each text."""
        return np.array([one["value"] for one in self._answers(X)], np.float64)


class TextTagger(_TextEstimator):
    """Tag words: X holds lists of words, y lists of tags such as B-PER, I-PER and O."""

    _task = "tagging"

    def fit(self, X: Any, y: Any) -> TextTagger:
        """Fine-tune the model on sentences and their tags."""
        words, tags = _word_lists(X), _word_lists(y)
        if len(words) != len(tags):
            raise InvalidTexts(f"X has {len(words)} rows and y has {len(tags)}; give as many.")
        pairs = zip(words, tags, strict=True)
        self._fit([{"tokens": tokens, "tags": names} for tokens, names in pairs])
        return self

    def predict(self, X: Any) -> list[list[str]]:
        """Return a list of tags for each sentence."""
        return [one["tags"] for one in self._answers(X)]

    @staticmethod
    def _items(X: Any) -> list[Any]:
        return _word_lists(X)

    def score(self, X: Any, y: Any) -> float:
        """Return the F1 of entities, which count if type and both ends are right."""
        return float(entity_metrics([list(tags) for tags in y], self.predict(X))["f1"])


@dataclass(eq=False, repr=False)
class TextEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _OfTexts):  # type: ignore[misc]
    """Turn texts into vectors; nothing is trained.

    Args:
        model: A folder, a built-in name or a Hub id.
        pooling: "mean", "cls", "last" or "max"; as set in the model's folder when None.
        normalize: Scale to unit length; as set in the model's folder when None.
        max_length: Cut texts to this many tokens.
        device: "cpu", "cuda", ...; the first GPU if there is one.
    """

    model: Any = "minilm"
    _: KW_ONLY
    pooling: str | None = None
    normalize: bool | None = None
    max_length: int | None = None
    device: str | None = None

    def fit(self, X: Any, y: Any = None) -> TextEncoder:
        """Load the model; texts and labels are not read."""
        self.model_ = Predictor.load(
            str(self.model), max_length=self.max_length, device=self.device
        )
        self._n_features_out = self.model_.vector_size(pooling=self.pooling)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the vectors of texts, float32 (texts, width)."""
        check_is_fitted(self, "_n_features_out")
        if not hasattr(self, "model_"):
            self.fit(None)
        return np.asarray(
            self.model_.embed(texts_in(X), pooling=self.pooling, normalize=self.normalize)
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: v for name, v in super().__getstate__().items() if name != "model_"}


def texts_in(X: Any) -> list[Any]:
    """Return texts and pairs from a list, array, Series, or table of one or two columns.

    Raises:
        InputError: An item is neither a text nor a pair of texts; with its index.
    """
    values = X.to_numpy() if hasattr(X, "to_numpy") else X
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidTexts(f"X is a {type(X).__name__}; a list of texts is expected.")
    texts: list[Any] = []
    for index, value in enumerate(values):
        parts = tuple(value) if isinstance(value, list | tuple) else (value,)
        if len(parts) not in (1, 2) or not all(isinstance(part, str) for part in parts):
            kind = type(value).__name__
            raise InvalidTexts(f"Item {index} is a {kind}; a text or a pair of texts is expected.")
        texts.append(parts if len(parts) == 2 else parts[0])
    return texts


def _word_lists(lists: Any) -> list[Any]:
    for index, words in enumerate(lists):
        if isinstance(words, str) or not hasattr(words, "__iter__"):
            kind = type(words).__name__
            raise InvalidTexts(f"Item {index} is a {kind}; a list of words or tags is expected.")
    return [list(words) for words in lists]


def _column(y: Any, dtype: Any = None) -> np.ndarray:
    """Return labels or values as an array of one dimension."""
    if y is None:
        raise InvalidTexts("fit requires y to be passed, but the target y is None.")
    column = column_or_1d(y, warn=True, dtype=dtype)
    if column.dtype.kind == "f":
        assert_all_finite(column, input_name="y")
    return np.asarray(column)


def _rows(texts: Sequence[Any], labels: Any) -> list[dict[str, Any]]:
    if not texts:
        raise InvalidTexts("X has 0 samples, and a minimum of 1 is required.")
    if len(texts) != len(labels := list(labels)):
        raise InvalidTexts(f"X has {len(texts)} rows and y has {len(labels)}; give as many.")
    rows = []
    for text, label in zip(texts, labels, strict=True):
        pair = {"text": text} if isinstance(text, str) else {"text": text[0], "text_pair": text[1]}
        rows.append(pair | {"label": label})
    return rows


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
