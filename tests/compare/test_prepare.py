"""The rows that all contestants share."""

from __future__ import annotations

import csv
import json
import random

import pytest
from pyarrow import Table, parquet

from filbert.compare.study import prepare
from filbert.data.records import read_rows
from filbert.errors import ConfigError, InputError


def write(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


WORDS = ["apple", "bread", "cloud", "drum", "eagle", "flute", "grape", "house", "iron", "jelly"]


def sentence(i: int) -> str:
    draw = random.Random(i)
    return " ".join(draw.choices(WORDS, k=12)) + f" number {i}"


@pytest.fixture
def whole(recipe):
    """A recipe of one file that is split."""

    def make(path, **more):
        plain = {k: v for k, v in recipe.items() if k not in ("train", "dev", "test", "positive")}
        return plain | {"data": path} | more

    return make


def test_every_row_lands_in_one_split_and_the_same_seed_gives_the_same_bytes(whole, read, tmp_path):
    rows = [[sentence(i), i % 3 == 0] for i in range(60)]
    path = write(tmp_path / "a.csv", ["text", "label"], [[t, int(y)] for t, y in rows])
    one = prepare(read(whole(path)), tmp_path / "one")
    same = prepare(read(whole(path)), tmp_path / "same")
    other = prepare(read(whole(path, seed=1)), tmp_path / "other")
    texts = [
        row.values["text"]
        for name in ("train", "dev", "test")
        for row in read_rows(tmp_path / "one" / f"{name}.jsonl.gz")
    ]
    assert sorted(texts) == sorted(text for text, _ in rows)
    assert one["train"]["sha256"] == same["train"]["sha256"] != other["train"]["sha256"]
    assert one["labels"] == ["0", "1"] and one["positive"] == "1"


def test_the_slice_column_is_kept_for_the_test_rows(whole, read, tmp_path):
    rows = [[sentence(i), i % 2, f"group of {sentence(i)}"] for i in range(60)]
    path = write(tmp_path / "a.csv", ["text", "label", "group"], rows)
    prepare(read(whole(path, slice_column="group")), tmp_path / "one")
    texts = [row.values["text"] for row in read_rows(tmp_path / "one" / "test.jsonl.gz")]
    slices = json.loads((tmp_path / "one" / "slices.json").read_text())["values"]
    assert slices == [f"group of {text}" for text in texts]


def test_any_text_that_is_read_is_written_too(whole, read, tmp_path):
    rows = [{"text": sentence(i), "label": i % 3 == 0} for i in range(60)]
    parquet.write_table(Table.from_pylist(rows), tmp_path / "a.parquet")
    made = prepare(read(whole(str(tmp_path / "a.parquet"))), tmp_path / "p")
    assert made["train"]["rows"] > 30
    # Half of an emoji, as where a text was cut.
    half = [{"text": f"{sentence(i)} \ud83d", "label": i % 3 == 0} for i in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in half))
    prepare(read(whole(str(tmp_path / "a.jsonl"))), tmp_path / "j")
    assert next(read_rows(tmp_path / "j/train.jsonl.gz")).values["text"].endswith(" \ud83d")


def test_several_columns_become_one_label(whole, read, tmp_path):
    rows = [[sentence(i), int(i % 4 == 0), int(i % 6 == 0)] for i in range(60)]
    path = write(tmp_path / "a.csv", ["text", "loud", "rude"], rows)
    facts = prepare(
        read(whole(path, merge_labels=["loud", "rude"], merge_as="bad")), tmp_path / "m"
    )
    assert facts["positive"] == "bad"
    total = sum(facts[name]["label_counts"]["bad"] for name in ("train", "dev", "test"))
    assert total == sum(a or b for _, a, b in rows)
    (row, *_) = read_rows(tmp_path / "m" / "train.jsonl.gz")
    assert set(row.values) == {"text", "label"}


def test_a_part_of_one_class_is_refused(whole, read, tmp_path):
    rows = [["a b", 0]] * 20 + [["c d", 1]]
    path = write(tmp_path / "a.csv", ["text", "label"], rows)
    with pytest.raises(InputError, match="No row of dev has the label '1'"):
        prepare(read(whole(path)), tmp_path / "out")


def test_the_positive_label_is_one_of_two(whole, read, tmp_path):
    rows = [["x", 0], ["y", 1], ["z", 1], ["w", 2]] * 9
    path = write(tmp_path / "a.csv", ["text", "label"], rows)
    with pytest.raises(ConfigError, match="positive '1'"):
        prepare(read(whole(path, positive="1")), tmp_path / "out")


def test_a_given_split_that_lacks_a_class_is_refused(recipe, read, tmp_path):
    recipe["test"] = write(tmp_path / "t.csv", ["text", "label"], [["the film", "neg"]] * 3)
    with pytest.raises(InputError, match="No row of test has the label 'pos'"):
        prepare(read(recipe), tmp_path / "out")


def test_dev_is_a_part_of_train_when_only_train_and_test_are_given(recipe, read, tmp_path):
    del recipe["dev"]
    facts = prepare(read(recipe), tmp_path / "out")
    assert facts["train"]["rows"] + facts["dev"]["rows"] == 256
    assert facts["test"]["rows"] == 64


def test_test_rows_that_repeat_dev_rows_are_counted_too(recipe, read, tmp_path):
    for at, name in enumerate(("train", "dev", "test")):
        # Test holds ten rows of dev, two of them with the other label.
        rows = [[sentence(1000 * at + i), i % 2] for i in range(20)]
        if name == "test":
            rows += [[sentence(1000 + i), (i + (i < 2)) % 2] for i in range(10)]
        recipe[name] = write(tmp_path / f"{name}.csv", ["text", "label"], rows)
    recipe |= {"positive": "1"}
    found = prepare(read(recipe), tmp_path / "out")["near_duplicates"]
    assert found["test_like_train"] == 0
    assert found["test_like_dev"] == 10
