"""What a precision costs is said metric by metric, and held to a limit."""

import pytest

from filbert.errors import ConfigError
from filbert.inference.precision import precision_loss
from filbert.tasks.classification import Classification
from filbert.tasks.span_qa import SpanQA

EXACT = {"accuracy": 0.9, "f1": 0.8, "loss": 0.3, "roc_auc": None}


def test_each_metric_says_by_how_much_it_is_worse():
    found = precision_loss(EXACT, EXACT | {"accuracy": 0.91, "f1": 0.79, "loss": 0.9}, list(EXACT))
    assert {c.name: round(c.loss, 6) for c in found.changes} == {
        "accuracy": -0.01,
        "f1": 0.01,
        "loss": 0.6,
    }
    assert found.worst is not None and found.worst.name == "f1"


def test_a_fall_beyond_the_limit_is_refused_with_the_numbers_and_one_within_is_not():
    found = precision_loss(EXACT, EXACT | {"f1": 0.78}, ["accuracy", "f1"])
    found.check(0.021, "m")
    with pytest.raises(ConfigError, match=r"m: f1 falls from 0.8000 to 0.7800, by 0.0200"):
        found.check(0.019, "m")


def test_a_limit_is_about_shares_also_where_a_task_counts_in_percent():
    """One answer lost of 10,570, as exact match has it."""
    task = SpanQA()
    exact, other = {"exact_match": 90.5393}, {"exact_match": 90.5298}
    found = precision_loss(exact, other, ["exact_match"], whole=task.spec.metric_scale)
    assert found.worst is not None
    assert found.worst.loss == pytest.approx(0.0095)
    assert found.worst.share == pytest.approx(0.000095)
    found.check(0.0001, "m")
    with pytest.raises(ConfigError, match="from 90.5393 to 90.5298, by 0.0095 of 100"):
        found.check(0.00005, "m")
    assert Classification(labels=("a", "b")).spec.metric_scale == 1.0


@pytest.mark.parametrize("exact", [{"loss": 1.0}, {"loss": 1.0, "f1": None}])
def test_a_limit_that_nothing_can_be_held_to_is_refused(exact):
    found = precision_loss(exact, exact | {"loss": 9.0}, ["loss", "f1"])
    assert found.worst is None
    with pytest.raises(ConfigError, match="There is no metric that --max-loss could hold to 0.5"):
        found.check(0.5, "m")


def test_a_metric_that_is_no_longer_defined_is_no_small_loss():
    names = ["pearson", "spearman", "mse"]
    exact = {"pearson": 0.9, "spearman": 0.8, "mse": 0.1}
    found = precision_loss(exact, exact | {"pearson": None}, names)
    assert found.lost == ("pearson",)
    with pytest.raises(ConfigError, match="pearson is no longer defined"):
        found.check(1.0, "m")
    # The other way round nothing was lost.
    precision_loss(exact | {"pearson": None}, exact, names).check(0.0, "m")
