from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from filbert.data.columns import ColumnNames
from filbert.data.records import Finding, Row
from filbert.data.texts import read_texts, text_of
from filbert.errors import InputError
from filbert.tasks import doctor
from filbert.tasks.doctor import Report, check


class Topics:
    """A stand-in for a task: one label for a text or pair; the label "broken" is none."""

    head_kind = "sequence"
    labels_are_classes = True
    windows = False

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


def task_of(rows) -> SimpleNamespace:
    form = SimpleNamespace(
        read=lambda spec, source: rows.read(source.path, source.names, on_error=source.on_error),
        texts=lambda row, clean: rows.sequences(row), labels=lambda task, row: rows.labels_of(row),
        findings=lambda task, *given: rows.findings(*given),
        no_label_columns=None, recognises=None, id_column=None,
    )  # fmt: skip
    rows.row_format, rows.clean = form, None
    return SimpleNamespace(spec=rows)


def look(folder: Path, tokenizer=None, max_length: int = 8, near=False, **contents: str) -> Report:
    files = []
    for split, content in contents.items():
        path = folder / f"{split}.csv"
        path.write_text(content, encoding="utf-8")
        files.append((split, path))
    return check(
        files, task_of(Topics()), ColumnNames(), tokenizer=tokenizer,
        max_length=max_length, near=near,
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


def test_what_to_do_about_bad_rows_is_kept_once(tmp_path):
    class Scores(Topics):
        def labels_of(self, row: Row) -> list[str]:
            raise InputError(f"{row.where}: not a number. Write scores as in 3.5.")

    path = tmp_path / "a.csv"
    path.write_text(rows(("one", "x"), ("two", "y"), ("three", "z")))
    report = check(
        [("train", path)], task_of(Scores()), ColumnNames(), tokenizer=None, max_length=8
    )
    (problem,) = report.problems
    assert problem.where == (
        f"{path}:2: not a number. Write scores as in 3.5.",
        f"{path}:3: not a number",
        f"{path}:4: not a number",
    )


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
    report = check([("train", path)], task_of(Any()), ColumnNames(), tokenizer=None, max_length=8)
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
        check([("train", path)], task_of(Topics()), ColumnNames(), tokenizer=None, max_length=8)
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


def near(folder: Path, train, dev, *, near: bool = True) -> Report:
    return look(folder, near=near, train=rows(*train), dev=rows(*dev))


def where(report: Report, kind: str) -> list[str]:
    return [place for _, places in found(report, kind) for place in places]


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
    assert doctor.check_rows(splits, task_of(Topics())).problems == report.problems
    exact = near(tmp_path, TRAIN, DEV, near=False).problems
    for limit, size in (("NEAR_ROWS", len(TRAIN + DEV)), ("NEAR_CHARACTERS", 500)):
        with monkeypatch.context() as patched:
            patched.setattr(doctor, limit, size - 1)
            assert doctor.check_rows(splits, task_of(Topics())).problems == exact


# Tasks whose rows are not one text with one label


class Plain:
    """A stand-in for a task: texts between bars in column `text`; the labels are words."""

    head_kind = "sequence"
    labels_are_classes = False
    windows = False

    def read(self, path, names, *, labelled=True, on_error=None):
        assert labelled
        return names.read(path, required=("text", "label"), on_error=on_error)

    def sequences(self, row):
        texts = [tuple(text.split("+")) for text in row.values["text"].split("|")]
        return [text[0] if len(text) == 1 else text for text in texts]

    def labels_of(self, row):
        return row.values["label"].split()

    def findings(self, rows, tokenizer, max_length):
        return iter(())


class Words(Plain):
    """Like tagging: labels are of things in the row, and long rows are read in windows."""

    head_kind = "tokens"
    windows = True


class Answers(Words):
    """Like questions: labels are only counted."""

    head_kind = "spans"


def look_at(folder: Path, judge, tokenizer=None, max_length=8, **contents: str) -> Report:
    files = []
    for split, content in contents.items():
        path = folder / f"{split}.csv"
        path.write_text("text,label\n" + content.replace(";", "\n") + "\n", encoding="utf-8")
        files.append((split, path))
    return check(
        files,
        task_of(judge),
        ColumnNames(),
        tokenizer=tokenizer,
        max_length=max_length,
    )


def problems(report: Report) -> list[tuple[str, str, int]]:
    return [(p.level, p.kind, p.count) for p in report.problems]


def test_a_row_is_as_long_as_its_longest_sequence_and_all_of_its_tokens_count(tmp_path, tiny):
    report = look_at(tmp_path, Plain(), tiny, 5, train="the|the a film zyx,;the+a|a,;a+the a film,")
    (train,) = report.splits
    assert train.lengths is not None
    # [CLS] the a film [UNK] [SEP]; [CLS] the [SEP] a [SEP]; [CLS] a [SEP] the a film [SEP]
    assert (train.lengths.p50, train.lengths.max) == (6, 7)
    assert (train.tokens, train.unknown_tokens, train.truncated) == (3 + 6 + 5 + 3 + 7, 1, 2)
    (cut,) = (p for p in report.problems if p.kind == "truncated")
    assert [place.rpartition("/")[2] for place in cut.where] == ["train.csv:2", "train.csv:4"]
    words = look_at(tmp_path, Plain(), train="one two+three|one,;x,").splits[0].lengths
    assert words is not None and (words.unit, words.p50, words.max) == ("words", 1, 3)


def test_nothing_is_cut_where_long_rows_are_read_in_windows(tmp_path, tiny):
    report = look_at(tmp_path, Words(), tiny, 5, train="the a film the a film,x")
    assert report.splits[0].truncated is None and report.problems == ()
    assert report.splits[0].tokens == 8


def test_rows_are_the_same_only_when_all_their_sequences_are(tmp_path):
    report = look_at(tmp_path, Plain(), train="a|b,;a|c,;a|b,;b|a,;a,", dev="a|c,;c|a,")
    assert problems(report) == [("warning", "duplicate", 1), ("warning", "leakage", 1)]
    assert (
        report.problems[0].where[0].endswith("train.csv:4 repeats " + str(tmp_path / "train.csv:2"))
    )


def test_a_row_is_empty_only_when_all_its_texts_are(tmp_path):
    report = look_at(tmp_path, Plain(), train="| ,;a|,;|a,; + | ,;\u00a0,")
    assert problems(report) == [("warning", "empty_text", 3)]
    assert report.splits[0].empty_texts == 3


def test_labels_of_things_in_a_row_are_counted_and_only_new_ones_are_wrong(tmp_path):
    report = look_at(tmp_path, Words(), train="u,per per loc;v,;w,per", dev="u,loc;x,org;y,org org")
    assert report.splits[0].label_counts == {"per": 3, "loc": 1}
    assert report.splits[1].label_counts == {"org": 3, "loc": 1}
    assert problems(report) == [("error", "unseen_label", 3), ("warning", "leakage", 1)]
    unseen = report.problems[0]
    assert unseen.message == 'dev: the label "org", which train does not have.'
    assert unseen.where == (f"{tmp_path / 'dev.csv'}:3",)


def test_labels_that_no_model_puts_out_are_counted_and_not_judged(tmp_path):
    report = look_at(tmp_path, Answers(), train="u,yes;v,yes", dev="w,no")
    assert [split.label_counts for split in report.splits] == [{"yes": 2}, {"no": 1}]
    assert report.problems == ()


def test_what_the_task_finds_is_merged_by_kind_over_all_chunks_and_files(tmp_path):
    sizes = []

    class Sharp(Plain):
        def findings(self, rows, tokenizer, max_length):
            assert (tokenizer, max_length) == (None, 8)
            sizes.append(len(rows))
            for row in rows:
                if int(row.values["text"]) % 1000 == 0:
                    yield Finding("note", "round", "Round numbers", row.where)
                if row.values["text"] == "7":
                    yield Finding("error", "seven", "Sevens.", f"{row.where}, word 1")

        def labels_of(self, row):
            if row.values["text"] == "8":
                raise InputError(f"{row.where}: an eight.")
            return []

    content = ";".join(f"{i}," for i in range(3000))
    report = look_at(tmp_path, Sharp(), train=content, dev="4000,;5000,")
    assert sum(sizes) == 3001 and max(sizes) <= 1024 and len(sizes) >= 4
    assert problems(report) == [
        ("error", "bad_row", 1),
        ("error", "seven", 1),
        ("note", "round", 5),
    ]
    assert report.problems[1].where == (f"{tmp_path / 'train.csv'}:9, word 1",)
    assert report.problems[2].message == "Round numbers."
    assert [place.rpartition(":")[2] for place in report.problems[2].where] == [
        "2", "1002", "2002", "2", "3"
    ]  # fmt: skip


def test_a_chunk_ends_early_where_rows_are_large(tmp_path):
    sizes = []

    class Counting(Plain):
        def findings(self, rows, tokenizer, max_length):
            sizes.append(len(rows))
            return iter(())

    large = "x" * 300_000
    look_at(tmp_path, Counting(), train=";".join(f"{large} {i}," for i in range(9)))
    assert sizes == [4, 4, 1]


def test_a_row_on_which_the_task_gives_up_is_a_bad_one_and_its_neighbours_are_judged(tmp_path):
    class Shy(Plain):
        def findings(self, rows, tokenizer, max_length):
            for row in rows:
                yield Finding("note", "seen", "Seen.", row.where)
                if row.values["text"] == "huge":
                    raise InputError(f"{row.where}: no room.")

    report = look_at(tmp_path, Shy(), train="a,;huge,;b,")
    assert problems(report) == [("error", "bad_row", 1), ("note", "seen", 2)]
    assert report.problems[0].where == (f"{tmp_path / 'train.csv'}:3: no room.",)


def test_a_file_with_more_choices_a_row_than_train_is_wrong(tmp_path):
    report = look_at(tmp_path, Plain(), train="a|b,;c|d,", dev="e|f|g,;h|i|j,", test="k|l,")
    assert problems(report) == [("error", "uneven_rows", 2)]
    assert report.problems[0].message == (
        "dev: rows of 3 choices or texts, where train has 2 a row."
    )
    assert look_at(tmp_path, Plain(), train="a|b,;c,", dev="e|f|g,;h|i|j,").problems == ()
