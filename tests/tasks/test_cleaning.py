"""Cleaning as an option of tasks: where it applies, what is kept, who refuses it."""

import numpy as np
import pytest

from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.errors import ConfigError
from filbert.tasks.base import (
    TaskOptions,
    task_class,
    task_from_dict,
    task_names,
    task_to_dict,
)
from filbert.tasks.doctor import check
from filbert.tasks.rows import row_texts
from filbert.text.clean import Cleaning

NAMES = ColumnNames()
RAW = "See https://example.org/a: the FILM wasn't good @ann \U0001f44e"
CLEAN = Cleaning.parse("study")(RAW)
TASKS = ("classification", "regression")


def row(**values) -> Row:
    return Row({"label": "1", **values}, "train.csv", 2)


def made(name: str, clean: str | None, **options):
    task = task_class(name).from_options(TaskOptions(clean=clean, **options), NAMES)
    rows = [row(label="1"), row(label="2")]
    return task.fit(rows)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("rule", ["truncate", "head-tail", "window", "error"])
def test_a_raw_text_makes_the_tokens_of_its_cleaned_form(name, rule, tiny):
    cleaning, plain = (made(name, clean, on_overflow=rule) for clean in ("study", None))
    given = {"max_length": 64, "with_targets": True}
    (one,) = cleaning.examples([row(text=RAW)], tiny, **given)
    (other,) = plain.examples([row(text=CLEAN)], tiny, **given)
    (raw,) = plain.examples([row(text=RAW)], tiny, **given)
    np.testing.assert_array_equal(one.input_ids, other.input_ids)
    assert one.num_tokens == other.num_tokens == len(one.input_ids) < raw.num_tokens
    assert row_texts(cleaning, row(text=RAW)) == [CLEAN]


@pytest.mark.parametrize("name", TASKS)
def test_both_texts_of_a_pair_are_cleaned_and_the_row_stays_raw(name, tiny):
    pair = row(text=RAW, text_pair="The END!")
    cleaning, plain = made(name, "study"), made(name, None)
    assert row_texts(cleaning, pair) == [(CLEAN, "end")]
    given = {"max_length": 64, "with_targets": False}
    (one,) = cleaning.examples([pair], tiny, **given)
    (other,) = plain.examples([row(text=CLEAN, text_pair="end")], tiny, **given)
    np.testing.assert_array_equal(one.input_ids, other.input_ids)
    np.testing.assert_array_equal(one.token_type_ids, other.token_type_ids)
    assert pair.values["text"] == RAW and pair.values["text_pair"] == "The END!"


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("damage", ["urk", ["urls", 5], 5, {"steps": []}])
def test_a_cleaning_that_nobody_knows_is_refused_when_a_folder_is_read(name, damage):
    content = task_to_dict(made(name, None))
    with pytest.raises(ConfigError, match="clean"):
        task_from_dict(task_class(name), {**content, "clean": damage})


@pytest.mark.parametrize("name", sorted(set(task_names()) - set(TASKS)))
def test_tasks_that_read_texts_as_they_stand_refuse_cleaning(name):
    with pytest.raises(ConfigError, match="--clean is for classification and regression"):
        task_class(name).from_options(TaskOptions(clean="study"), NAMES)
    task_class(name).from_options(TaskOptions(clean="none"), NAMES)


def test_the_doctor_names_the_rows_that_cleaning_empties(tmp_path, tiny):
    path = tmp_path / "train.csv"
    path.write_text("text,label\ngood film,1\nThe of!,0\n ,0\nbad film,0\n@ann film,1\n@ann,1\n")
    kind = task_class("classification")
    seen, plain = (
        check(
            [("train", path)],
            kind.from_options(TaskOptions(clean=clean), NAMES),
            NAMES,
            tokenizer=tiny,
            max_length=9,
        )
        for clean in ("study", None)
    )
    found = {p.kind: (p.count, p.where) for p in seen.problems}
    assert found["emptied_text"] == (2, (f"{path}:3", f"{path}:7"))
    assert found["empty_text"] == (1, (f"{path}:4",))
    assert seen.splits[0].empty_texts == 3
    assert {p.kind for p in plain.problems}.isdisjoint({"emptied_text"})
