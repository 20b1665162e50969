"""The data doctor and tasks whose rows are not one text with one label."""

from __future__ import annotations

from pathlib import Path

from filbert.data.columns import ColumnNames
from filbert.data.doctor import check
from filbert.data.findings import Finding, Report
from filbert.errors import InputError


class Plain:
    """A stand-in for a task: texts between bars in column `text`; the labels are words."""

    head_kind = "sequence"
    labels_are_classes = False
    windows = False
    clean = None
    id_column = None

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


def look(folder: Path, judge, tokenizer=None, max_length=8, shown=5, **contents: str) -> Report:
    files = []
    for split, content in contents.items():
        path = folder / f"{split}.csv"
        path.write_text("text,label\n" + content.replace(";", "\n") + "\n", encoding="utf-8")
        files.append((split, path))
    return check(
        files,
        judge,
        ColumnNames(),
        tokenizer=tokenizer,
        max_length=max_length,
        max_findings_shown=shown,
    )


def problems(report: Report) -> list[tuple[str, str, int]]:
    return [(p.level, p.kind, p.count) for p in report.problems]


def test_a_row_is_as_long_as_its_longest_sequence_and_all_of_its_tokens_count(tmp_path, tiny):
    report = look(tmp_path, Plain(), tiny, 5, train="the|the a film zyx,;the+a|a,;a+the a film,")
    (train,) = report.splits
    assert train.lengths is not None
    # [CLS] the a film [UNK] [SEP]; [CLS] the [SEP] a [SEP]; [CLS] a [SEP] the a film [SEP]
    assert (train.lengths.p50, train.lengths.max) == (6, 7)
    assert (train.tokens, train.unknown_tokens, train.truncated) == (3 + 6 + 5 + 3 + 7, 1, 2)
    (cut,) = (p for p in report.problems if p.kind == "truncated")
    assert [place.rpartition("/")[2] for place in cut.where] == ["train.csv:2", "train.csv:4"]
    words = look(tmp_path, Plain(), train="one two+three|one,;x,").splits[0].lengths
    assert words is not None and (words.unit, words.p50, words.max) == ("words", 1, 3)


def test_nothing_is_cut_where_long_rows_are_read_in_windows(tmp_path, tiny):
    report = look(tmp_path, Words(), tiny, 5, train="the a film the a film,x")
    assert report.splits[0].truncated is None and report.problems == ()
    assert report.splits[0].tokens == 8


def test_rows_are_the_same_only_when_all_their_sequences_are(tmp_path):
    report = look(tmp_path, Plain(), train="a|b,;a|c,;a|b,;b|a,;a,", dev="a|c,;c|a,")
    assert problems(report) == [("warning", "duplicate", 1), ("warning", "leakage", 1)]
    assert (
        report.problems[0].where[0].endswith("train.csv:4 repeats " + str(tmp_path / "train.csv:2"))
    )


def test_a_row_is_empty_only_when_all_its_texts_are(tmp_path):
    report = look(tmp_path, Plain(), train="| ,;a|,;|a,; + | ,;\u00a0,")
    assert problems(report) == [("warning", "empty_text", 3)]
    assert report.splits[0].empty_texts == 3


def test_labels_of_things_in_a_row_are_counted_and_only_new_ones_are_wrong(tmp_path):
    report = look(tmp_path, Words(), train="u,per per loc;v,;w,per", dev="u,loc;x,org;y,org org")
    assert report.splits[0].label_counts == {"per": 3, "loc": 1}
    assert report.splits[1].label_counts == {"org": 3, "loc": 1}
    assert problems(report) == [("error", "unseen_label", 3), ("warning", "leakage", 1)]
    unseen = report.problems[0]
    assert unseen.message == 'dev: the label "org", which train does not have.'
    assert unseen.where == (f"{tmp_path / 'dev.csv'}:3",)


def test_labels_that_no_model_puts_out_are_counted_and_not_judged(tmp_path):
    report = look(tmp_path, Answers(), train="u,yes;v,yes", dev="w,no")
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
    report = look(tmp_path, Sharp(), shown=3, train=content, dev="4000,;5000,")
    assert sum(sizes) == 3001 and max(sizes) <= 1024 and len(sizes) >= 4
    assert problems(report) == [
        ("error", "bad_row", 1),
        ("error", "seven", 1),
        ("note", "round", 5),
    ]
    assert report.problems[1].where == (f"{tmp_path / 'train.csv'}:9, word 1",)
    assert report.problems[2].message == "Round numbers."
    assert [place.rpartition(":")[2] for place in report.problems[2].where] == ["2", "1002", "2002"]


def test_a_chunk_ends_early_where_rows_are_large(tmp_path):
    sizes = []

    class Counting(Plain):
        def findings(self, rows, tokenizer, max_length):
            sizes.append(len(rows))
            return iter(())

    large = "x" * 300_000
    look(tmp_path, Counting(), train=";".join(f"{large} {i}," for i in range(9)))
    assert sizes == [4, 4, 1]


def test_a_row_on_which_the_task_gives_up_is_a_bad_one_and_its_neighbours_are_judged(tmp_path):
    class Shy(Plain):
        def findings(self, rows, tokenizer, max_length):
            for row in rows:
                yield Finding("note", "seen", "Seen.", row.where)
                if row.values["text"] == "huge":
                    raise InputError(f"{row.where}: no room.")

    report = look(tmp_path, Shy(), train="a,;huge,;b,")
    assert problems(report) == [("error", "bad_row", 1), ("note", "seen", 2)]
    assert report.problems[0].where == (f"{tmp_path / 'train.csv'}:3: no room.",)


def test_a_file_with_more_choices_a_row_than_train_is_wrong(tmp_path):
    report = look(tmp_path, Plain(), train="a|b,;c|d,", dev="e|f|g,;h|i|j,", test="k|l,")
    assert problems(report) == [("error", "uneven_rows", 2)]
    assert report.problems[0].message == (
        "dev: rows of 3 choices or texts, where train has 2 a row."
    )
    assert look(tmp_path, Plain(), train="a|b,;c,", dev="e|f|g,;h|i|j,").problems == ()
