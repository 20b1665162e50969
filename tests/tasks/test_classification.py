"""Classification: labels, weights, losses, decisions."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.errors import ConfigError, InputError
from filbert.tasks.base import (
    Targets,
    TaskOptions,
    task_class,
)
from filbert.tasks.classification import Classification
from filbert.tasks.rows import read_task_rows


def rows(*labels, key="label"):
    return [Row({"text": "x", key: label}, "train.csv", i + 2) for i, label in enumerate(labels)]


def example(target=None, row=0) -> Example:
    return Example(row, np.zeros(3, np.int32), np.zeros(3, np.uint8), 3, target)


def examples(count: int) -> list[Example]:
    return [example(row=i) for i in range(count)]


def new(**options) -> Classification:
    return Classification.from_options(TaskOptions(**options), ColumnNames())


def fitted(*labels, **options) -> Classification:
    return new(**options).fit(rows(*labels))


def test_labels_are_found_in_the_rows_and_sorted_numbers_by_value():
    assert fitted("10", "9", "1").labels == ("1", "9", "10")
    assert fitted("b", "a", "b").labels == ("a", "b")


def test_declared_labels_keep_their_order_and_refuse_others_with_file_and_line():
    task = fitted("no", "yes", labels=("yes", "no"))
    assert task.labels == ("yes", "no")
    with pytest.raises(
        InputError, match=r"train.csv:4: label 'maybe' is not one of \['yes', 'no'\]"
    ):
        fitted("yes", "no", "maybe", labels=("yes", "no"))


@pytest.mark.parametrize("label", [None, "", " "])
def test_a_missing_label_is_refused_with_file_and_line(label):
    with pytest.raises(InputError, match=r"train.csv:3: no label"):
        fitted("a", label, "b")


def test_one_label_alone_cannot_be_learned():
    with pytest.raises(InputError, match="at least two"):
        fitted("a", "a")


def test_blanks_around_a_label_are_no_part_of_it_and_one_number_has_one_name():
    assert fitted("a", " b", "b ", "b").labels == ("a", "b")
    with pytest.raises(InputError, match=r"labels '1' and '1\.0' are one number"):
        fitted("1", "1.0", "0")


def test_balanced_weights_are_those_of_scikit_learn():
    found = ["a"] * 9 + ["b"] * 3 + ["c"]
    task = fitted(*found, class_weights="balanced")
    judge = compute_class_weight("balanced", classes=np.array(["a", "b", "c"]), y=np.array(found))
    np.testing.assert_allclose(task.loss_weights, judge)


def test_given_weights_must_be_as_many_as_the_labels():
    assert fitted("a", "b", class_weights="1,5").loss_weights == (1.0, 5.0)
    with pytest.raises(ConfigError, match="2 numbers"):
        fitted("a", "b", class_weights="1,2,3")


def test_the_loss_is_a_sum_so_that_any_split_into_micro_batches_adds_up():
    torch.manual_seed(0)
    task = fitted("a", "b", "c", class_weights="1,2,3")
    logits, ids = torch.randn(7, 3), torch.tensor([0, 1, 2, 2, 1, 0, 1])
    whole = task.loss(logits, Targets(ids))
    parts = [task.loss(logits[a:b], Targets(ids[a:b])) for a, b in ((0, 1), (1, 5), (5, 7))]
    torch.testing.assert_close(whole, sum(parts))
    by_hand = -(torch.log_softmax(logits, -1)[range(7), ids] * torch.tensor([1.0, 2, 3])[ids]).sum()
    torch.testing.assert_close(whole, by_hand)
    assert task.count(Targets(ids)) == 7


def multi(*labels, **options) -> Classification:
    return new(multilabel=True, **options).fit(rows(*labels, key="labels"))


def test_multilabel_rows_give_lists_or_names_between_commas():
    task = multi(["a", "b"], "c, a", [], "")
    assert task.labels == ("a", "b", "c")
    golds = [task.gold(row).tolist() for row in rows(["a", "b"], "c, a", [], "", key="labels")]
    assert golds == [[True, True, False], [True, False, True], [False] * 3, [False] * 3]


def test_a_json_list_in_a_csv_field_is_a_list():
    task = multi('["a", "b, c"]', " []", "a")
    assert task.labels == ("a", "b, c")
    with pytest.raises(InputError, match="no labels. Give a list"):
        multi("[a, b]")


def test_label_columns_hold_zero_or_one():
    task = Classification.from_options(TaskOptions(), ColumnNames(label_columns=("x", "y")))
    good = Row({"text": "t", "x": "1", "y": "0"}, "a.csv", 2)
    task = task.fit([good])
    assert task.gold(good).tolist() == [True, False]
    with pytest.raises(InputError, match=r"a.csv:3: column 'y' holds '2'"):
        task.gold(Row({"text": "t", "x": "1", "y": "2"}, "a.csv", 3))


def test_multilabel_loss_counts_every_label_of_every_row():
    task = multi(["a"], ["b"])
    targets = task.targets([example(np.array([True, False])), example(np.array([True, True]), 1)])
    logits = torch.tensor([[2.0, -1.0], [0.0, 3.0]])
    assert task.count(targets) == 4
    p = torch.sigmoid(logits)
    wanted = targets.values
    by_hand = -(wanted * p.log() + (1 - wanted) * (1 - p).log()).sum()
    torch.testing.assert_close(task.loss(logits, targets), by_hand)


def test_a_stored_threshold_decides_and_not_the_likelier_half():
    task = Classification(labels=("ok", "bad"), thresholds=(0.2,), declared=True)
    logits = torch.tensor([[1.0, 0.0], [3.0, 0.0]])  # p(bad) = 0.269, 0.047
    answers = task.decode(logits, examples(2))
    assert [a["label"] for a in answers] == ["bad", "ok"]
    assert answers[0]["score"] == pytest.approx(0.26894, abs=1e-5)
    assert sum(answers[0]["scores"].values()) == pytest.approx(1)
    assert answers[0]["truncated"] is False
    assert answers[0]["num_tokens"] == 3


def test_temperature_divides_the_logits():
    task = Classification(labels=("a", "b"), temperature=2.0, declared=True)
    answer = task.decode(torch.tensor([[0.0, 2.0]]), [example()])[0]
    assert answer["scores"]["b"] == pytest.approx(1 / (1 + np.exp(-1.0)))


def test_the_positive_class_may_be_the_first_label():
    gold, logits = [0, 0, 1, 1], torch.tensor([[2.0, 0], [1.0, 0], [0.0, 1], [0.5, 0]])
    for positive, auc in (("a", 1.0), ("b", 1.0)):
        task = fitted("a", "b", positive=positive).calibrate(gold, logits, examples(4))
        figures = task.metrics(gold, task.decode(logits, examples(4)))
        assert figures["roc_auc"] == auc
        assert figures["f1"] == 1.0, (
            "a threshold that separates the classes exists and must be found"
        )
    with pytest.raises(ConfigError, match="--positive 'z'"):
        fitted("a", "b", positive="z")


def test_multilabel_thresholds_are_tuned_per_label():
    task = multi(["a"], ["b"])
    gold = [np.array(g, bool) for g in ([1, 0], [1, 1], [0, 1], [0, 0])]
    logits = torch.tensor([[-1.0, 0.5], [-1.5, 3.0], [-3.0, 2.0], [-4.0, 1.0]])
    tuned = task.calibrate(gold, logits, examples(4))
    answers = tuned.decode(logits, examples(4))
    assert [a["labels"] for a in answers] == [["a"], ["a", "b"], ["b"], []]
    assert tuned.metrics(gold, answers)["macro_f1"] == 1.0


def test_a_task_from_outside_loads_by_module_and_class():
    assert task_class("filbert.tasks.classification:Classification") is Classification
    with pytest.raises(ConfigError, match="cannot be imported"):
        task_class("no.such.module:Task")


@pytest.mark.parametrize(
    "value", [["x", "y"], {"q": 1}, float("nan"), float("inf"), "a\x00b", "x" * 500]
)
def test_what_is_no_label_is_refused_with_file_and_line(value):
    with pytest.raises(InputError, match=r"train.csv:3: a label must be"):
        fitted("a", value)


def test_multilabel_rows_may_be_read_from_columns_or_lists_whatever_training_read(tmp_path):
    task = Classification(
        labels=("x", "y"), multilabel=True, label_columns=("x", "y"), declared=True
    )
    path = tmp_path / "rows.csv"
    path.write_text("text,x,a,b\ngood,1,0,1\n")
    with pytest.raises(ConfigError, match="the labels are"):
        read_task_rows(task, path, ColumnNames(label_columns=("x",)))
    with pytest.raises(ConfigError, match="multi-label models"):
        read_task_rows(fitted("a", "b"), path, ColumnNames(label_columns=("a", "b")))
    (tmp_path / "lists.jsonl").write_text('{"text": "t", "labels": ["y"]}\n')
    (tmp_path / "both.jsonl").write_text('{"text": "t", "labels": ["y"], "x": 1, "y": 0}\n')
    for name, wanted in (("lists", [False, True]), ("both", [True, False])):
        (row,) = read_task_rows(task, tmp_path / f"{name}.jsonl", ColumnNames())
        assert task.gold(row).tolist() == wanted, name
