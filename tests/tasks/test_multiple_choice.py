"""Multiple choice: reading, uneven lists, the softmax over a row, CODAH."""

import json

import numpy as np
import pytest
import torch

from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.errors import InputError
from filbert.tasks.base import Targets, TaskOptions
from filbert.tasks.multiple_choice import CHOICES, MultipleChoice
from filbert.tasks.rows import read_task_rows, row_labels, row_of_value

CODAH = ColumnNames(
    context_column="prompt", choice_columns=("ending0", "ending1", "ending2", "ending3")
)


def row(label, choices=("a play", "the film", "he"), line=2) -> Row:
    values = {"context": "she was", "choices": list(choices), "label": label}
    return Row(values, "train.jsonl", line)


def write(path, *lines):
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def line(label, *choices, context="she was"):
    return {"context": context, "choices": list(choices), "label": label}


@pytest.mark.parametrize("label", [1, 1.0, "1", "the film", np.int64(1)])
def test_a_label_is_the_number_of_a_choice_or_its_text(label):
    assert MultipleChoice().gold(row(label)) == 1


@pytest.mark.parametrize("label", [3, -1, "3", 1.5, True, "a film", "-1", ["a play"]])
def test_a_label_that_is_no_choice_is_refused_with_file_and_line(label):
    with pytest.raises(InputError, match=r"train.jsonl:5: label .* neither a number from 0 to 2"):
        row_labels(MultipleChoice(), row(label, line=5))


@pytest.mark.parametrize("label", [None, ""])
def test_a_missing_label_is_refused_with_file_and_line(label):
    with pytest.raises(InputError, match="train.jsonl:5: label .* neither a number"):
        MultipleChoice().gold(row(label, line=5))


def test_empty_and_repeated_choices_are_found_where_they_stand():
    rows = [row(0), row(0, ("a", " "), 3), row(0, ("a", "a"), 4)]
    found = list(CHOICES.findings(MultipleChoice(), rows, None, 128))
    assert [(f.level, f.kind, f.where) for f in found] == [
        ("warning", "empty_choice", "train.jsonl:3"),
        ("warning", "repeated_choice", "train.jsonl:4"),
    ]


def test_the_first_row_sets_the_number_of_choices_and_uneven_rows_are_refused():
    task = MultipleChoice().fit([row(0), row(1)])
    assert task.num_choices == 3
    uneven = row(0, ("a", "b"), 9)
    for check in (task.gold, lambda r: MultipleChoice().fit([row(0), r])):
        with pytest.raises(InputError, match="train.jsonl:9: 2 choices; the training rows have 3"):
            check(uneven)


def test_reading_hands_over_each_row_that_cannot_be_used_and_goes_on(tmp_path):
    path = write(
        tmp_path / "c.jsonl",
        line(0, "a", "b"),
        line(0, "a", "b", "c"),
        line(0, "a"),
        line(0, "a", 7),
        {"context": 3, "choices": ["a", "b"], "label": 0},
        {"context": "x", "choices": "ab", "label": 0},
        line(1, "c", "d"),
    )
    bad: list[str] = []
    task = MultipleChoice()
    rows = list(read_task_rows(task, path, ColumnNames(), on_error=lambda e: bad.append(str(e))))
    assert [r.line for r in rows] == [1, 7]
    sentences = [
        "c.jsonl:2: 3 choices; the first row has 2",
        *(f"c.jsonl:{n}: expected a context, a text, and a list of two" for n in (3, 4, 5, 6)),
    ]
    assert len(bad) == len(sentences)
    assert all(sentence in found for sentence, found in zip(sentences, bad, strict=True))
    with pytest.raises(InputError, match="c.jsonl:2: 3 choices"):
        list(read_task_rows(task, path, ColumnNames()))


def test_rows_to_predict_need_no_label_and_may_differ_in_choices(tmp_path):
    path = write(
        tmp_path / "c.jsonl",
        {"context": "x", "choices": ["a", "b"]},
        {"context": "y", "choices": ["a", "b", "c"]},
    )
    rows = list(read_task_rows(MultipleChoice(num_choices=4), path, ColumnNames(), labelled=False))
    assert [len(r.values["choices"]) for r in rows] == [2, 3]


def test_lists_and_columns_and_parquet_give_the_same_rows(tmp_path):
    import pyarrow
    from pyarrow import parquet

    lists = write(tmp_path / "a.jsonl", line("1", "a", "b"), line("0", "c", "d"))
    table = tmp_path / "a.csv"
    table.write_text('ctx,one,two,label\nshe was,a,b,1\nshe was,c,"d",0\n')
    columns = {
        "context": ["she was"] * 2,
        "choices": [["a", "b"], ["c", "d"]],
        "label": ["1", "0"],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    names = ColumnNames(context_column="ctx", choice_columns=("one", "two"))
    task = MultipleChoice()
    wanted = [r.values for r in read_task_rows(task, lists, ColumnNames())]
    assert [r.values for r in read_task_rows(task, table, names)] == wanted
    assert [r.values for r in read_task_rows(task, tmp_path / "a.parquet", ColumnNames())] == wanted
    assert [r.line for r in read_task_rows(task, table, names)] == [2, 3]


def test_a_table_without_named_choice_columns_says_what_to_pass(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("context,choices,label\nx,y,0\n")
    with pytest.raises(InputError, match="Pass --choice-columns"):
        read_task_rows(MultipleChoice(), path, ColumnNames())


def test_the_longest_sequence_counts_and_any_cut_one_marks_the_row(tiny):
    task = MultipleChoice()
    rows = [row(0), row(1, ("a", "the film was not very good", "he"))]
    examples = task.examples(rows, tiny, max_length=8, with_targets=True)
    assert [e.row for e in examples] == [0, 0, 0, 1, 1, 1]
    found = task.decode([torch.zeros(())] * 6, examples)
    assert [(f["truncated"], f["num_tokens"]) for f in found] == [(False, 7), (True, 11)]


def test_uneven_rows_are_decoded_each_by_its_own_choices(tiny):
    task = MultipleChoice()
    rows = [row_of_value(task, {"context": "x", "choices": ["a"] * count}, 0) for count in (2, 3)]
    examples = task.examples(rows, tiny, max_length=8, with_targets=False)
    outputs = [torch.tensor(score) for score in (0.0, 1.0, 2.0, 0.0, 0.0)]
    found = task.decode(outputs, examples)
    assert [f["choice"] for f in found] == [1, 0]
    assert found[0]["scores"] == pytest.approx([1 / (1 + np.e), np.e / (1 + np.e)])
    assert len(found[1]["scores"]) == 3 and sum(found[1]["scores"]) == pytest.approx(1)


def test_the_loss_does_not_depend_on_how_rows_fall_into_micro_batches():
    task = MultipleChoice()
    torch.manual_seed(0)
    output = torch.randn(12)
    values = torch.tensor([0, 3, 1])
    whole = task.loss(output, Targets(values, groups=(4, 4, 4)))
    parts = [
        task.loss(output[4 * i : 4 * i + 4], Targets(values[i : i + 1], groups=(4,)))
        for i in range(3)
    ]
    torch.testing.assert_close(whole, sum(parts))


def test_accuracy_and_loss_are_those_of_a_hand_computed_table():
    task = MultipleChoice(num_choices=2)
    given = [{"scores": [0.75, 0.25]}, {"choice": 0, "scores": [0.4, 0.6]}, {"scores": [0.2, 0.8]}]
    predictions = [{"choice": int(np.argmax(p["scores"]))} | p for p in given]
    assert [p["choice"] for p in predictions] == [0, 0, 1]
    found = task.metrics([0, 1, 1], predictions)
    assert found == {
        "accuracy": pytest.approx(2 / 3),
        "loss": pytest.approx(-np.log([0.75, 0.6, 0.8]).mean()),
    }
    sure = [{"choice": c} for c in (0, 1, 0)]
    assert task.metrics([0, 1, 1], sure) == {"accuracy": pytest.approx(2 / 3), "loss": None}


def test_codah_is_read_as_published(shared_data):
    task = MultipleChoice.from_options(TaskOptions(), CODAH)
    rows = list(read_task_rows(task, shared_data / "codah" / "full_data.tsv.gz", CODAH))
    fitted = task.fit(rows)
    assert fitted.num_choices == 4
    assert np.bincount([fitted.gold(row) for row in rows]).tolist() == [689, 684, 697, 706]
    kinds = [f.kind for f in CHOICES.findings(fitted, rows, None, 128)]
    assert kinds.count("repeated_choice") == 3
