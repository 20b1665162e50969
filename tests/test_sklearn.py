"""The scikit-learn estimators."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

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


# Why checks of scikit-learn do not apply.
EXPECTED_FAILURES = dict.fromkeys(
    (
        "check_array_api_input", "check_classifier_data_not_an_array", "check_classifiers_classes",
        "check_classifiers_one_label", "check_classifiers_regression_target",
        "check_classifiers_train", "check_complex_data", "check_dict_unchanged",
        "check_dont_overwrite_parameters", "check_dtype_object",
        "check_estimator_sparse_array", "check_estimator_sparse_matrix",
        "check_estimator_sparse_tag", "check_estimators_dtypes",
        "check_estimators_empty_data_messages", "check_estimators_fit_returns_self",
        "check_estimators_nan_inf", "check_estimators_overwrite_params", "check_estimators_pickle",
        "check_f_contiguous_array_estimator", "check_fit1d", "check_fit2d_1feature",
        "check_fit2d_1sample", "check_fit2d_predict1d", "check_fit_check_is_fitted",
        "check_fit_idempotent", "check_fit_score_takes_y", "check_methods_sample_order_invariance",
        "check_methods_subset_invariance", "check_pipeline_consistency",
        "check_positive_only_tag_during_fit", "check_readonly_memmap_input",
        "check_regressor_data_not_an_array", "check_regressors_int",
        "check_regressors_no_decision_function", "check_regressors_train",
        "check_requires_y_none", "check_supervised_y_2d", "check_supervised_y_no_nan",
        "check_transformer_data_not_an_array", "check_transformer_general",
        "check_transformer_preserve_dtypes",
    ),
    "X of this check has numbers; texts are expected",
) | dict.fromkeys(
    ("check_n_features_in", "check_n_features_in_after_fitting"),
    "a text has no number of features",
)  # fmt: skip


@pytest.mark.parametrize("kind", [TextClassifier, TextRegressor, TextTagger, TextEncoder])
def test_scikit_learn_finds_no_fault_but_the_numbers_that_it_fits_on(kind, tiny_model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks = estimator_checks_generator(kind(str(tiny_model)))
        names = [check.func.__name__ for estimator, check in checks if run(estimator, check)]
    assert {"check_get_params_invariance", "check_estimators_unfitted"} <= {*names}


def run(estimator, check):
    if check.func.__name__ in EXPECTED_FAILURES:
        return False
    check(estimator)
    return True
