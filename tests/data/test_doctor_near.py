from __future__ import annotations

import json

from filbert.data import doctor
from filbert.data.columns import ColumnNames
from filbert.data.doctor import Report, check
from filbert.data.records import Row
from filbert.data.texts import read_texts, text_of

BASE = "the orchard behind the copper bridge was quiet all winter and full of silver lanterns"
OTHER = "a violin in the window of a market by the harbour plays for nobody but the autumn rain"
TRAIN = [(BASE, "a"), (OTHER, "b"), (BASE + " and kettles", "b"), ("alone", "a"), (BASE, "a")]
DEV = [(OTHER + "!", "b"), (OTHER[:-5], "a"), ("new", "a"), (BASE, "a")]


class Topics:
    head_kind = "sequence"
    labels_are_classes = True
    windows = False

    def read(self, path, names, *, labelled=True, on_error=None):
        return read_texts(path, names, "label", on_error=on_error)

    def sequences(self, row: Row):
        return [text_of(row)]

    def labels_of(self, row: Row) -> list[str]:
        return [row.values["label"]]

    def findings(self, rows, tokenizer, max_length):
        return iter(())


def look(folder, near_threshold: float | None = 0.8, **splits) -> Report:
    files = []
    for split, rows in splits.items():
        path = folder / f"{split}.csv"
        path.write_text(
            "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8"
        )
        files.append((split, path))
    return check(
        files, Topics(), ColumnNames(), tokenizer=None, max_length=512,
        near_threshold=near_threshold,
    )  # fmt: skip


def places(report: Report, kind: str) -> list[str]:
    return [
        " ".join(word.rsplit("/", 1)[-1] for word in place.split())
        for problem in report.problems
        if problem.kind == kind
        for place in problem.where
    ]


def test_near_duplicates_are_counted_within_files_and_between_them(tmp_path):
    near = look(tmp_path, train=TRAIN, dev=DEV).near_duplicates
    assert near is not None
    assert [(file.name, file.repeats, file.near) for file in near.files] == [
        ("train", 2, {}),
        ("dev", 1, {"train": 3}),
    ]
    assert near.num_pairs == len(near.pairs)
    assert {
        (p.one.rsplit("/")[-1], p.other.rsplit("/")[-1], p.labels_differ) for p in near.pairs
    } == {
        ("train.csv:2", "train.csv:4", True),
        ("train.csv:2", "train.csv:6", False),
        ("train.csv:2", "dev.csv:5", False),
        ("train.csv:3", "dev.csv:2", False),
        ("train.csv:3", "dev.csv:3", True),
    }


def test_findings_name_the_places_and_leave_equal_texts_to_the_exact_comparison(tmp_path):
    report = look(tmp_path, train=TRAIN, dev=DEV)
    assert places(report, "near_leakage") == [
        "dev.csv:2 is almost train.csv:3",
        "dev.csv:3 is almost train.csv:3",
    ]
    assert places(report, "leakage") == ["dev.csv:5 is train.csv:2"]
    assert places(report, "near_duplicate") == ["train.csv:4 is almost train.csv:2"]
    assert sorted(places(report, "near_contradiction")) == [
        "dev.csv:3 contradicts train.csv:3",
        "train.csv:4 contradicts train.csv:2",
    ]


def test_a_doctor_that_was_not_asked_keeps_no_texts_and_says_nothing_of_it(tmp_path):
    report = look(tmp_path, None, train=TRAIN, dev=DEV)
    assert report.near_duplicates is None
    assert not places(report, "near_leakage")
    asked = look(tmp_path, train=TRAIN, dev=DEV)
    assert {problem for problem in asked.problems if "near" not in problem.kind} == set(
        report.problems
    )


def test_no_text_of_the_data_is_in_the_report(tmp_path):
    content = json.dumps(look(tmp_path, train=TRAIN, dev=DEV).to_dict())
    for word in (BASE + " " + OTHER).split():
        if len(word) > 4:
            assert word not in content, word


def test_a_row_that_also_stands_in_train_as_it_is_leaks_once(tmp_path):
    report = look(tmp_path, train=[("Hello!", "a"), ("hello", "a")], dev=[("hello", "a")])
    assert places(report, "leakage") == ["dev.csv:2 is train.csv:3"]
    assert places(report, "near_leakage") == []


def test_the_texts_of_a_pair_are_joined_as_lines_are(tmp_path):
    (tmp_path / "train.csv").write_text("text,text_pair,label\na film,bad,a\na,film bad,a\n")
    names = ColumnNames(text_pair_column="text_pair")
    report = check(
        [("train", tmp_path / "train.csv")], Topics(), names, tokenizer=None, max_length=9,
        near_threshold=0.8,
    )  # fmt: skip
    assert report.near_duplicates.files[0].repeats == 1


def test_all_findings_are_counted_and_a_few_are_named(tmp_path):
    rows = [(f"{BASE} {n}", "ab"[n % 2]) for n in range(12)]
    report = look(tmp_path, train=rows, dev=[(text + " x", label) for text, label in rows])
    counts = {problem.kind: problem.count for problem in report.problems}
    assert counts["near_leakage"] == 12
    assert counts["near_contradiction"] > counts["near_duplicate"] / 2 > 12
    assert all(len(problem.where) <= 5 for problem in report.problems)
    near = report.near_duplicates
    assert [(file.repeats, file.near) for file in near.files] == [(11, {}), (11, {"train": 12})]


def test_rows_that_were_read_have_the_findings_of_their_files_near_ones_up_to_a_size(
    tmp_path, monkeypatch
):
    report = look(tmp_path, train=TRAIN, dev=DEV)
    files = {name: tmp_path / f"{name}.csv" for name in ("train", "dev")}
    rows = {
        name: (str(path), list(Topics().read(path, ColumnNames()))) for name, path in files.items()
    }
    assert doctor.check_rows(rows, Topics()).problems == report.problems
    exact = look(tmp_path, None, train=TRAIN, dev=DEV).problems
    for limit, size in (("NEAR_ROWS", len(TRAIN + DEV)), ("NEAR_CHARACTERS", 500)):
        with monkeypatch.context() as patched:
            patched.setattr(doctor, limit, size - 1)
            assert doctor.check_rows(rows, Topics()).problems == exact
