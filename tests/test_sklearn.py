"""The scikit-learn estimators."""

import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from filbert.errors import InputError
from filbert.sklearn import TextClassifier, TextEncoder, TextRegressor, TextTagger, texts_in

from .conftest import film_rows

TEXTS, LABELS = (list(column) for column in zip(*film_rows(48, 5), strict=True))


@pytest.fixture(scope="module")
def settings(tiny_model):
    return {"model": str(tiny_model), "epochs": 4, "lr": 3e-3, "batch_size": 8, "device": "cpu"}


@pytest.fixture(scope="module")
def classifier(settings):
    return TextClassifier(**settings).fit(TEXTS, LABELS)


def test_a_classifier_learns_and_its_columns_are_its_classes(classifier, capsys):
    shares = classifier.predict_proba(TEXTS)
    assert list(classifier.classes_) == ["neg", "pos"] and shares.shape == (48, 2)
    # float32 probabilities.
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-6)
    assert list(classifier.predict(TEXTS)) == [["neg", "pos"][row.argmax()] for row in shares]
    assert classifier.score(TEXTS, LABELS) > 0.6
    assert capsys.readouterr() == ("", "")


def test_the_labels_of_predictions_have_the_type_of_y(settings):
    numbers = np.array([7 if label == "pos" else -1 for label in LABELS])
    fitted = TextClassifier(**settings | {"epochs": 1}).fit(np.array(TEXTS), numbers)
    assert fitted.predict(TEXTS[:3]).dtype == numbers.dtype
    assert set(fitted.classes_) == {7, -1}


def test_a_pickled_classifier_needs_no_folder(classifier, settings):
    copied = pickle.loads(pickle.dumps(classifier))
    assert copied._folder != classifier._folder
    np.testing.assert_array_equal(copied.predict_proba(TEXTS), classifier.predict_proba(TEXTS))
    with pytest.raises(Exception, match="not fitted"):
        clone(classifier).predict(TEXTS)
    assert clone(classifier).get_params() == TextClassifier(**settings).get_params()


def test_a_grid_searches_options_within_a_pipeline(settings):
    steps = make_pipeline(TextClassifier(**settings))
    search = GridSearchCV(steps, {"textclassifier__epochs": [1, 2]}, cv=2, error_score="raise")
    search.fit(TEXTS, LABELS)
    assert search.best_params_["textclassifier__epochs"] in (1, 2)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_the_vectors_of_an_encoder_feed_other_estimators(tiny_model):
    steps = make_pipeline(TextEncoder(str(tiny_model)), LogisticRegression())
    steps.fit(TEXTS, LABELS)
    copied = pickle.loads(pickle.dumps(steps))
    np.testing.assert_array_equal(copied.predict(TEXTS), steps.predict(TEXTS))
    assert steps[0].transform(TEXTS[:2]).shape == (2, 32)
    assert len(steps[0].get_feature_names_out()) == 32


def test_a_regressor_learns_numbers_of_pairs(settings):
    pairs = [(text, "a film") for text in TEXTS]
    values = [float(label == "pos") for label in LABELS]
    fitted = TextRegressor(**settings).fit(pairs, values)
    assert fitted.predict(pairs).shape == (48,)
    assert np.isfinite(fitted.score(pairs, values))


def test_a_tagger_gives_a_tag_to_each_word(settings):
    words = [text.split() for text in TEXTS]
    tags = [["B-X" if word in ("good", "great") else "O" for word in one] for one in words]
    fitted = TextTagger(**settings).fit(words, tags)
    assert [len(one) for one in fitted.predict(words)] == [len(one) for one in words]
    assert 0 <= fitted.score(words, tags) <= 1


class Table:
    """The part of a pandas or polars table that is used."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return np.array(self.values, object)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        (["a", "b"], ["a", "b"]),
        (np.array(["a", "b"]), ["a", "b"]),
        (Table(["a", "b"]), ["a", "b"]),
        (Table([["a"], ["b"]]), ["a", "b"]),
        (Table([["a", "b"]]), [("a", "b")]),
        ([("a", "b")], [("a", "b")]),
    ],
)
def test_texts_and_pairs_are_read_from_lists_arrays_and_tables(given, texts):
    assert texts_in(given) == texts


def test_what_holds_no_texts_is_refused():
    for wrong in ("one text", 5, [1], [("a", "b", "c")]):
        with pytest.raises(InputError, match="expected"):
            texts_in(wrong)


def test_scikit_learn_finds_no_fault_but_the_numbers_that_it_fits_on(tiny_model):
    page = Path(__file__).parents[1] / "docs" / "howto-python.md"
    expected = set(re.findall(r"`(check_\w+)`", page.read_text("utf-8")))
    failed, names = set(), set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in (TextClassifier, TextRegressor, TextTagger, TextEncoder):
            for one in check_estimator(kind(str(tiny_model)), on_fail=None, on_skip=None):
                names.add(one["check_name"])
                if one["status"] == "failed":
                    failed.add(one["check_name"])
    assert failed == expected
    assert {"check_requires_y_none", "check_classifiers_regression_target"} <= names - failed
