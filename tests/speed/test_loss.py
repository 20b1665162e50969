"""What a precision costs is said metric by metric, and held to a limit."""

import pytest

from filbert.errors import ConfigError
from filbert.speed.loss import precision_loss, whole_of
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
    found = precision_loss(exact, other, ["exact_match"], whole=whole_of(task))
    assert found.worst is not None
    assert found.worst.loss == pytest.approx(0.0095)
    assert found.worst.share == pytest.approx(0.000095)
    found.check(0.0001, "m")
    with pytest.raises(ConfigError, match="from 90.5393 to 90.5298, by 0.0095 of 100"):
        found.check(0.00005, "m")
    assert whole_of(Classification(labels=("a", "b"))) == 1.0


def test_without_a_share_there_is_nothing_to_hold_to_a_limit():
    found = precision_loss({"loss": 1.0}, {"loss": 9.0}, ["loss"])
    assert found.worst is None
    found.check(0.0, "m")
