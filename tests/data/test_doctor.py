from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from filbert.data import doctor
from filbert.data.columns import ColumnNames
from filbert.data.doctor import Report, check
from filbert.data.records import Row
from filbert.data.texts import read_texts, text_of
from filbert.errors import InputError


class Topics:
    """A stand-in for a task: one label for a text or pair; the label "broken" is none."""

    head_kind = "sequence"
    labels_are_classes = True
    windows = False
    clean = None
    id_column = None

    def read(self, path, names, *, labelled=True, on_error=None):
        return read_texts(path, names, "label", on_error=on_error)

    def sequences(self, row: Row):
        return [text_of(row)]

    def labels_of(self, row: Row) -> list[str]:
        if row.values["label"] == "broken":
            raise InputError(f"{row.where}: no such label.")
        return [row.values["label"]]

    def findings(self, rows, tokenizer, max_length):
        return iter(())


def look(
    folder: Path, tokenizer=None, max_length: int = 8, near_threshold=None, **contents: str
) -> Report:
    files = []
    for split, content in contents.items():
        path = folder / f"{split}.csv"
        path.write_text(content, encoding="utf-8")
        files.append((split, path))
    return check(
        files, Topics(), ColumnNames(), tokenizer=tokenizer,
        max_length=max_length, near_threshold=near_threshold,
    )  # fmt: skip


def rows(*pairs: tuple[str, str]) -> str:
    return "text,label\n" + "".join(f"{text},{label}\n" for text, label in pairs)


def found(report: Report, kind: str) -> list[tuple[int, list[str]]]:
    """Count and places (file:line without the folder) of each problem of a kind."""
    return [
        (
            problem.count,
            [
                " ".join(word.rsplit("/", 1)[-1] for word in place.split())
                for place in problem.where
            ],
        )
        for problem in report.problems
        if problem.kind == kind
    ]


BALANCED = [(f"text {i}", "ab"[i % 2]) for i in range(40)]


def test_a_clean_data_set_has_no_problems(tmp_path):
    report = look(tmp_path, train=rows(*BALANCED), dev=rows(("other", "a"), ("another", "b")))
    assert report.problems == () and report.worst is None
    train = report.splits[0]
    assert (train.rows, train.bad_rows, train.empty_texts) == (40, 0, 0)
    assert train.label_counts == {"a": 20, "b": 20}
    assert train.truncated is None and train.lengths is not None
    assert (train.lengths.unit, train.lengths.p50, train.lengths.max) == ("words", 2, 2)


def test_bad_rows_are_counted_and_reading_goes_on(tmp_path):
    content = rows(*BALANCED) + "too,many,fields\nx,broken\nlast,a\n"
    report = look(tmp_path, train=content)
    ((count, places),) = found(report, "bad_row")
    assert count == 2 and report.worst == "error"
    assert places[0].startswith("train.csv:42: 3 fields")
    assert places[1] == "train.csv:43: no such label."
    assert report.splits[0].rows == 41 and report.splits[0].bad_rows == 2


def test_empty_texts_are_counted_and_are_no_duplicates(tmp_path):
    report = look(tmp_path, train=rows(*BALANCED, ("", "a"), ("  ", "b"), ("", "b")))
    assert found(report, "empty_text") == [(3, ["train.csv:42", "train.csv:43", "train.csv:44"])]
    assert not found(report, "duplicate") and not found(report, "contradiction")
    assert report.splits[0].empty_texts == 3


def test_duplicates_name_the_row_they_repeat(tmp_path):
    content = rows(*BALANCED, ("text 3", "b"), ("text 3", "b"), ("Text 3", "b"))
    report = look(tmp_path, train=content)
    assert found(report, "duplicate") == [
        (2, ["train.csv:42 repeats train.csv:5", "train.csv:43 repeats train.csv:5"])
    ]
    assert not found(report, "contradiction") and not found(report, "leakage")


def test_texts_of_train_in_dev_and_test_are_found(tmp_path):
    report = look(
        tmp_path,
        train=rows(*BALANCED),
        dev=rows(("text 7", "b"), ("fresh", "a")),
        test=rows(("fresh", "a"), ("text 0", "a")),
    )
    assert found(report, "leakage") == [
        (1, ["dev.csv:2 is train.csv:9"]),
        (1, ["test.csv:3 is train.csv:2"]),
    ]
    assert not found(report, "duplicate")


def test_one_text_with_two_labels_is_a_contradiction_across_files_too(tmp_path):
    report = look(
        tmp_path,
        train=rows(*BALANCED, ("text 2", "b")),
        dev=rows(("text 3", "b"), ("text 1", "a")),
    )
    assert found(report, "contradiction") == [
        (2, ["train.csv:42 contradicts train.csv:4", "dev.csv:3 contradicts train.csv:3"])
    ]


def test_a_label_that_train_lacks_is_an_error(tmp_path):
    report = look(tmp_path, train=rows(*BALANCED), dev=rows(("x", "a"), ("y", "c"), ("z", "c")))
    assert found(report, "unseen_label") == [(2, ["dev.csv:3"])]
    assert report.worst == "error"


@pytest.mark.parametrize(
    ("common", "rare", "warned"),
    [(9, 9, False), (190, 10, False), (191, 10, True), (2000, 90, True), (1000, 60, False)],
)
def test_a_rare_label_is_warned_about(tmp_path, common, rare, warned):
    content = rows(
        *((f"text {i}", "a") for i in range(common)), *((f"more {i}", "b") for i in range(rare))
    )
    report = look(tmp_path, train=content)
    assert bool(found(report, "imbalance")) is warned
    assert report.splits[0].label_counts == {"a": common, "b": rare}


def message(report: Report, kind: str) -> tuple[str, str]:
    (problem,) = (problem for problem in report.problems if problem.kind == kind)
    return problem.level, problem.message


def test_few_rows_of_a_balanced_set_are_a_note_and_many_equal_labels_are_not_rare(tmp_path):
    report = look(tmp_path, train=rows(*((f"t {i}", "ab"[i % 2]) for i in range(18))))
    assert message(report, "few_rows") == (
        "note",
        'Labels with fewer than 10 rows: "a" (9), "b" (9). Their metrics will be noisy.',
    )
    many = rows(*((f"t {i}", f"l{i % 50}") for i in range(1000)))
    assert look(tmp_path, train=many).problems == ()


def test_a_single_label_is_an_error(tmp_path):
    assert found(look(tmp_path, train=rows(("x", "a"), ("y", "a"))), "one_label") == [(1, [])]


def test_one_of_several_labels_that_not_all_rows_have_is_not_the_same_for_all(tmp_path):
    class Any(Topics):
        def labels_of(self, row):
            return row.values["label"].split()

    path = tmp_path / "train.csv"
    path.write_text(rows(*((f"t {i}", "a" if i % 2 else "") for i in range(30))))
    report = check([("train", path)], Any(), ColumnNames(), tokenizer=None, max_length=8)
    assert report.problems == () and report.splits[0].label_counts == {"a": 15}


def test_lengths_cuts_and_unknown_tokens_are_measured(tmp_path, tiny):
    texts = [("the " * (n % 10 + 1) + f"w{n}", "ab"[n % 2]) for n in range(100)]
    report = look(tmp_path, tokenizer=tiny, max_length=12, train=rows(*texts))
    train = report.splits[0]
    # n % 10 + 1 words, one unknown, two specials: 4 to 13 tokens, ten rows of each.
    assert train.lengths is not None
    lengths = train.lengths
    assert (lengths.unit, lengths.p50, lengths.p90, lengths.p95, lengths.max) == (
        "tokens",
        8,
        12,
        13,
        13,
    )
    assert (train.truncated, train.unknown_tokens, train.tokens) == (10, 100, 850)
    ((count, places),) = found(report, "truncated")
    assert count == 10 and places[:2] == ["train.csv:11", "train.csv:21"] and len(places) == 5
    assert {p.kind: p.level for p in report.problems} == {
        "truncated": "warning",
        "unknown_tokens": "warning",
    }


def test_no_text_of_the_data_is_in_the_report(tmp_path, tiny):
    secret = "zebrafish"
    content = rows(
        *((f"{secret} {i % 3} {'x ' * i}", "ab"[i % 2]) for i in range(30)),
        (secret, "a"),
        (secret, "b"),
        (secret, "b"),
    )
    content += f"{secret},{secret},{secret}\n" + f'"{secret}" {secret},a\n'
    report = look(tmp_path, tokenizer=tiny, train=content, dev=rows((secret, "a"), ("x", "b")))
    kinds = {problem.kind for problem in report.problems}
    assert {"bad_row", "duplicate", "leakage", "contradiction", "truncated"} <= kinds
    assert secret not in json.dumps(report.to_dict())


def test_a_row_costs_little_memory(tmp_path):
    def peak(count: int) -> int:
        path = tmp_path / "train.csv"
        path.write_text(rows(*((f"some text with number {i}", "ab"[i % 2]) for i in range(count))))
        tracemalloc.start()
        check([("train", path)], Topics(), ColumnNames(), tokenizer=None, max_length=8)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    # 32 bytes kept and some 50 for the comparison; without digests the texts alone would be 80.
    assert peak(60_000) - peak(30_000) < 30_000 * 100


# Near-duplicates

BASE = "the orchard behind the copper bridge was quiet all winter and full of silver lanterns"
OTHER = "a violin in the window of a market by the harbour plays for nobody but the autumn rain"
TRAIN = [(BASE, "a"), (OTHER, "b"), (BASE + " and kettles", "b"), ("alone", "a"), (BASE, "a")]
DEV = [(OTHER + "!", "b"), (OTHER[:-5], "a"), ("new", "a"), (BASE, "a")]


def near(folder: Path, train, dev, threshold: float | None = 0.8) -> Report:
    return look(folder, near_threshold=threshold, train=rows(*train), dev=rows(*dev))


def where(report: Report, kind: str) -> list[str]:
    return [place for _, places in found(report, kind) for place in places]


def test_near_duplicates_are_counted_within_files_and_between_them(tmp_path):
    report = near(tmp_path, TRAIN, DEV).near_duplicates
    assert report is not None
    assert [(file.name, file.repeats, file.near) for file in report.files] == [
        ("train", 2, {}),
        ("dev", 1, {"train": 3}),
    ]
    assert report.num_pairs == len(report.pairs)
    assert {
        (p.one.rsplit("/")[-1], p.other.rsplit("/")[-1], p.labels_differ) for p in report.pairs
    } == {
        ("train.csv:2", "train.csv:4", True),
        ("train.csv:2", "train.csv:6", False),
        ("train.csv:2", "dev.csv:5", False),
        ("train.csv:3", "dev.csv:2", False),
        ("train.csv:3", "dev.csv:3", True),
    }


def test_findings_name_the_places_and_leave_equal_texts_to_the_exact_comparison(tmp_path):
    report = near(tmp_path, TRAIN, DEV)
    assert where(report, "near_leakage") == [
        "dev.csv:2 is almost train.csv:3",
        "dev.csv:3 is almost train.csv:3",
    ]
    assert where(report, "leakage") == ["dev.csv:5 is train.csv:2"]
    assert where(report, "near_duplicate") == ["train.csv:4 is almost train.csv:2"]
    assert sorted(where(report, "near_contradiction")) == [
        "dev.csv:3 contradicts train.csv:3",
        "train.csv:4 contradicts train.csv:2",
    ]


def test_rows_that_were_read_have_the_findings_of_their_files_near_ones_up_to_a_size(
    tmp_path, monkeypatch
):
    report = near(tmp_path, TRAIN, DEV)
    files = {name: tmp_path / f"{name}.csv" for name in ("train", "dev")}
    splits = {
        name: (str(path), list(Topics().read(path, ColumnNames()))) for name, path in files.items()
    }
    assert doctor.check_rows(splits, Topics()).problems == report.problems
    exact = near(tmp_path, TRAIN, DEV, None).problems
    for limit, size in (("NEAR_ROWS", len(TRAIN + DEV)), ("NEAR_CHARACTERS", 500)):
        with monkeypatch.context() as patched:
            patched.setattr(doctor, limit, size - 1)
            assert doctor.check_rows(splits, Topics()).problems == exact
