"""Regression: reading scores, the loss with and without windows, predictions."""

import json
from decimal import Decimal

import numpy as np
import pytest
import torch

from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.errors import ConfigError, InputError
from filbert.tasks.base import TaskOptions
from filbert.tasks.regression import Regression
from filbert.tasks.rows import read_task_rows, row_labels, row_texts

NAMES = ColumnNames()
LONG = " ".join(["a", "film", "was", "not", "very", "bad"] * 5)


def row(label, text="the film", line=2) -> Row:
    return Row({"text": text, "label": label}, "train.csv", line)


@pytest.mark.parametrize(
    "value", ["3.5", " 3.5 ", "3.50", "35e-1", 3.5, np.float32(3.5), Decimal("3.5")]
)
def test_a_score_is_read_however_it_is_written(value):
    assert Regression().gold(row(value)) == 3.5


@pytest.mark.parametrize(
    "value", ["abc", "3,5", "nan", "inf", "1e40", "1_5", float("nan"), True, [3.5], 10**400]
)
def test_a_score_that_is_not_a_number_is_refused_with_file_and_line(value):
    with pytest.raises(InputError, match=r"^train.csv:7: label .* is not a number\. "):
        row_labels(Regression(), row(value, line=7))


@pytest.mark.parametrize("value", ["", "  ", None])
def test_a_missing_score_is_refused_with_file_and_line(value):
    with pytest.raises(InputError, match="train.csv:7: no label"):
        Regression().gold(row(value, line=7))


def test_equal_scores_cannot_be_learnt():
    with pytest.raises(InputError, match="All training rows have the score 2.5"):
        Regression().fit([row("2.5"), row(2.5)])
    assert Regression().fit([row("2.5"), row("2")]) == Regression()


def test_options_that_do_not_go_with_it_are_refused():
    with pytest.raises(ConfigError, match="stride is 0"):
        Regression.from_options(TaskOptions(on_overflow="window", stride=0), NAMES)
    with pytest.raises(ConfigError, match="Did you mean 'window'"):
        Regression.from_options(TaskOptions(on_overflow="windows"), NAMES)


def test_the_loss_is_the_sum_of_squared_errors_of_raw_scores(tiny):
    task = Regression()
    rows = [row("1"), row("4.5", "very good"), row("-2", "a")]
    examples = task.examples(rows, tiny, max_length=16, with_targets=True)
    targets = task.targets(examples)
    assert targets.values.dtype == torch.float32 and task.count(targets) == 3
    output = torch.tensor([[0.5], [4.0], [1.0]])
    assert task.loss(output, targets).item() == pytest.approx(0.25 + 0.25 + 9.0)


def test_windows_of_a_row_give_their_mean_in_training_and_prediction(tiny):
    task = Regression(on_overflow="window", stride=10)
    rows = [row("1"), row("5", LONG), row("2", "a")]
    examples = task.examples(rows, tiny, max_length=12, with_targets=True)
    assert [e.row for e in examples] == [0, 1, 1, 1, 2]
    targets = task.targets(examples)
    assert targets.groups == (1, 3, 1) and targets.values.tolist() == [1, 5, 2]
    output = torch.tensor([[1.0], [3.0], [4.0], [8.0], [0.0]])
    assert task.loss(output, targets).item() == pytest.approx(0 + 0 + 4)
    found = task.decode(list(output), examples)
    assert [answer["value"] for answer in found] == [1, 5, 0]
    assert [answer["num_tokens"] for answer in found] == [4, 32, 3]
    assert not any(answer["truncated"] for answer in found)


def test_bad_rows_of_a_file_are_found_where_they_stand(tmp_path):
    path = tmp_path / "scores.jsonl"
    lines = [{"text": "a", "label": 1.5}, {"text": "b", "label": "much"}, {"text": "c"}]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    bad: list[str] = []
    for found in read_task_rows(Regression(), path, NAMES, on_error=lambda e: bad.append(str(e))):
        try:
            row_labels(Regression(), found)
        except InputError as error:
            bad.append(str(error))
    assert len(bad) == 2
    assert "scores.jsonl:2: label 'much' is not a number" in bad[0]
    assert 'scores.jsonl:3: no column "label"' in bad[1]


@pytest.mark.parametrize(("part", "count", "mean"), [("train", 5749, 2.701), ("dev", 1500, 2.364)])
def test_sts_b_is_read_as_published(shared_data, part, count, mean):
    names = ColumnNames(text_column="sentence1", text_pair_column="sentence2", label_column="score")
    task = Regression.from_options(TaskOptions(), names)
    rows = list(read_task_rows(task, shared_data / "glue" / "STS-B" / f"{part}.tsv.gz", names))
    scores = [task.gold(row) for row in rows]
    assert len(scores) == count
    assert np.mean(scores) == pytest.approx(mean, abs=5e-4)  # the README's three digits
    assert min(scores) == 0 and max(scores) == 5
    assert all(isinstance(row_texts(task, row)[0], tuple) for row in rows)
