"""Every finding that `filbert check` promises: a broken file goes in, sentence and place come out.

The files are read by the real tasks, through the command line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from filbert.cli.main import run

TASKS = ["classification", "regression", "tagging", "span_qa", "multiple_choice", "embedding"]
CUTTING = ["classification", "regression", "multiple_choice", "embedding"]
WINDOWING = ["tagging", "span_qa"]


class Seen(NamedTuple):
    """What `filbert check` said: exit status, text for people, JSON's problems."""

    status: int
    text: str
    problems: list[dict[str, Any]]
    splits: list[dict[str, Any]]

    def problem(self, kind: str) -> dict[str, Any]:
        (found,) = (problem for problem in self.problems if problem["kind"] == kind)
        return found

    @property
    def kinds(self) -> set[str]:
        return {problem["kind"] for problem in self.problems}


@pytest.fixture
def look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Seen]:
    """`look("tagging", {"train.conll": "a O"}, "--repair-tags")`: both ways of `filbert check`."""

    def go(task: str, files: dict[str, str], *flags: object) -> Seen:
        for name, content in files.items():
            (tmp_path / name).write_text(content, encoding="utf-8")
        paths = [str(tmp_path / name) for name in files]
        arguments = ["check", "--task", task, *paths, *map(str, flags)]
        status = run(arguments)
        text = capsys.readouterr().out
        assert run([*arguments, "--json"]) == status
        content = json.loads(capsys.readouterr().out)
        return Seen(status, text, content["problems"], content["splits"])

    return go


def lines(*rows: dict[str, Any] | str) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def tagged(words: str, tags: str) -> dict[str, Any]:
    return {"tokens": words.split(), "tags": tags.split()}


def spanned(text: str, *spans: tuple[int, int]) -> dict[str, Any]:
    return {"text": text, "spans": [{"start": s, "end": e, "label": "film"} for s, e in spans]}


def asked(id: str, answer: str, start: int, context: str = "the film was good") -> dict[str, Any]:
    answers = [{"text": answer, "answer_start": start}]
    return {"id": id, "question": f"was it {id}", "context": context, "answers": answers}


def squad(*questions: dict[str, Any]) -> str:
    """SQuAD's own format, many lines."""
    paragraphs = [{"context": q.pop("context"), "qas": [q]} for q in map(dict, questions)]
    return json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]}, indent=1)


def choices(*texts: str, label: Any = 0, context: str = "the film") -> dict[str, Any]:
    return {"context": context, "choices": list(texts), "label": label}


class Case(NamedTuple):
    """A broken file, the finding's level and kind, and what people read, with the place."""

    task: str
    file: str
    content: str
    level: str
    kind: str
    sentence: str
    flags: tuple[str, ...] = ()


PAIR = asked("q1", "good", 13)
MOVED = asked("q2", "good", 12)
MOVED_LINE = squad(PAIR, MOVED).split('"q2"')[0].count("\n") + 1
LONG = "the film was not very good and he was not very good to see it run "
COLUMNS = "context,a,b,label\n"

CASES = {
    "tags that break BIO, in columns": Case(
        "tagging", "train.conll", "he O\n\nthe B-film\nplay I-film\nwas I-play\n",
        "error", "bad_row",
        "train.conll:5: the tag I-play follows I-film, but in BIO an entity begins with B-play",
    ),
    "tags that break BIO, in a list": Case(
        "tagging", "train.jsonl", lines(tagged("he", "B-x"), tagged("the film", "O I-film")),
        "error", "bad_row", "train.jsonl:2, word 2: the tag I-film follows O",
    ),
    "a tag of another scheme": Case(
        "tagging", "train.conll", "he S-x\n", "error", "bad_row",
        "train.conll:1: the tag S-x is not of BIO",
    ),
    "tags that break BIO and are mended": Case(
        "tagging", "train.conll", "he O\n\nthe O\nfilm I-film\n", "warning", "broken_bio",
        "Tags that break BIO; they are mended: train.conll:4.", ("--repair-tags",),
    ),
    "a tag that is none": Case(
        "tagging", "train.conll", "he O\nfilm film\n", "error", "bad_row",
        'train.conll:2: the tag "film" is neither O nor a prefix and a type',
    ),
    "more tokens than tags": Case(
        "tagging", "train.jsonl", lines(tagged("he", "B-x"), tagged("the film", "O")),
        "error", "bad_row", "train.jsonl:2: 2 tokens, but 1 tags",
    ),
    "more tags than tokens": Case(
        "tagging", "train.jsonl", lines(tagged("he", "O O"), tagged("she", "B-x")),
        "error", "bad_row", "train.jsonl:1: 1 tokens, but 2 tags",
    ),
    "a word without tag": Case(
        "tagging", "train.conll", "he B-x\n\nthe O\nfilm\n", "error", "bad_row",
        "train.conll:4: one column only; a word and its tag are wanted",
    ),
    "a span beyond its text": Case(
        "tagging", "train.jsonl", lines(spanned("film", (0, 4)), spanned("film", (0, 5))),
        "error", "bad_row", "train.jsonl:2: span 1 is characters 0 to 5 of the 4 of its text",
    ),
    "a span of white space": Case(
        "tagging", "train.jsonl", lines(spanned("the film", (4, 8)), spanned("the film a", (3, 4))),
        "warning", "lost_span",
        "Spans without a word of their own; nothing is learnt from them: "
        "train.jsonl:2, characters 3 to 4.",
    ),
    "an answer that is not at its offset, a row each": Case(
        "span_qa", "train.jsonl", lines(PAIR, MOVED), "error", "answer_offset",
        "Answers that do not stand in the context at their answer_start: "
        "train.jsonl:2: question q2.",
    ),
    "an answer that is not at its offset, SQuAD's format": Case(
        "span_qa", "train.json", squad(PAIR, MOVED), "error", "answer_offset",
        "Answers that do not stand in the context at their answer_start: "
        f"train.json:{MOVED_LINE}: question q2.",
    ),
    "an answer lost because no window holds it": Case(
        "span_qa", "train.jsonl", lines(PAIR, asked("q3", LONG.strip(), 0, LONG)),
        "warning", "answer_lost",
        "Answers that no window of 12 tokens holds whole, or that are longer than 30 tokens: "
        "train.jsonl:2: question q3.", ("--max-length", "12"),
    ),
    "an answer lost because it is longer than any answer": Case(
        "span_qa", "train.jsonl", lines(PAIR, asked("q3", "film was good", 4)),
        "warning", "answer_lost", "or that are longer than 2 tokens: train.jsonl:2: question q3.",
        ("--max-length", "32", "--max-answer-length", "2"),
    ),
    "a question that is cut": Case(
        "span_qa", "train.jsonl", lines(PAIR | {"question": LONG}, asked("q2", "good", 13)),
        "warning", "question_cut",
        "Questions longer than 4 tokens; cut there: train.jsonl:1: question q1.",
        ("--max-length", "32", "--max-question-length", "4"),
    ),
    "an impossible question with an answer": Case(
        "span_qa", "train.jsonl", lines(PAIR, MOVED | {"is_impossible": True}),
        "error", "bad_row", 'train.jsonl:2: question q2: "is_impossible" is true, yet there are',
    ),
    "a choice list of uneven length": Case(
        "multiple_choice", "train.jsonl", lines(choices("a", "it"), choices("a", "it", "he")),
        "error", "bad_row", "train.jsonl:2: 3 choices",
    ),
    "a table row with a choice too many": Case(
        "multiple_choice", "train.csv", f"{COLUMNS}the,a,it,1\nthe,a,it,he,1\n", "error", "bad_row",
        "train.csv:3: 5 fields, but the header names 4", ("--choice-columns", "a,b"),
    ),
    "a label that is no choice": Case(
        "multiple_choice", "train.jsonl", lines(choices("a", "it"), choices("a", "it", label=2)),
        "error", "bad_row", "train.jsonl:2: label 2 is neither a number from 0 to 1 nor the text",
    ),
    "an empty choice": Case(
        "multiple_choice", "train.jsonl", lines(choices("a", "it"), choices("a", " ")),
        "warning", "empty_choice", "Rows with an empty choice: train.jsonl:2.",
    ),
    "a score that is not a number": Case(
        "regression", "train.csv", 'text,label\nthe film,2.5\nthe play,"two"\n', "error", "bad_row",
        "train.csv:3: label 'two' is not a number",
    ),
    "a score that is missing": Case(
        "regression", "train.csv", "text,label\nthe film,2.5\nthe play,\n", "error", "bad_row",
        "train.csv:3: no label",
    ),
    "a pair's score that is not a number": Case(
        "embedding", "train.csv", "text,text_pair,label\nthe,a,2\nthe,it,good\n",
        "error", "bad_row",
        "train.csv:3: label 'good' is not a number", ("--loss", "cosine"),
    ),
    "a pair without a second text": Case(
        "embedding", "train.csv", "text,text_pair\nthe,a\nthe,\n", "error", "bad_row",
        "train.csv:3: no second text",
    ),
    "a pair of a text with itself": Case(
        "embedding", "train.csv", "text,text_pair\nthe,a\nthe,the\n", "warning", "identical_pair",
        "Pairs of a text with itself; their cosine is 1 whatever is learnt: train.csv:3.",
    ),
    "a label that was not declared": Case(
        "classification", "train.csv", "text,label\nthe,a\nit,b\nhe,c\n", "error", "bad_row",
        "train.csv:4: label 'c' is not one of ['a', 'b']", ("--labels", "a,b"),
    ),
}  # fmt: skip


def test_an_id_given_twice_is_found_at_any_distance(look):
    rows = [PAIR | {"id": f"q{number % 1500}"} for number in range(1501)]
    (place,) = look("span_qa", {"train.jsonl": lines(*rows)}).problem("duplicate_id")["where"]
    assert place.endswith("train.jsonl:1501: question q0")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_broken_row_is_named_with_file_and_line_and_no_other_row_is(
    look, case, tiny_model, tmp_path
):
    flags = [*case.flags, *(["--model", tiny_model] if "--max-length" in case.flags else [])]
    flags += ["--model", tiny_model] if case.task == "span_qa" and not case.flags else []
    seen = look(case.task, {case.file: case.content}, *flags)
    assert case.sentence in seen.text
    assert str(tmp_path) not in seen.text
    problem = seen.problem(case.kind)
    assert (problem["level"], problem["count"]) == (case.level, 1)
    (place,) = problem["where"]
    assert place.startswith(f"{tmp_path / case.file}:")
    assert place.removeprefix(f"{tmp_path}/").split(": ")[0] in case.sentence
    assert seen.status == (2 if case.level == "error" else 0)
    assert seen.kinds <= {case.kind, "unknown_tokens", "few_rows"}


# What step 1 finds, for every task


def row(task: str, text: str, label: str = "b") -> dict[str, Any]:
    """A sound row of `text`; an empty text makes all of its texts empty."""
    words = text.split()
    return {
        "classification": {"text": text, "label": label},
        "regression": {"text": text, "label": 1.5},
        "tagging": {"tokens": words, "tags": [f"B-{label}" for _ in words]},
        "span_qa": {"question": text, "context": text, "answers": []},
        "multiple_choice": choices(text, f"{text} ", context=text, label=1),
        "embedding": {"text": text, "text_pair": f"{text} it" if text else " ", "label": 1},
    }[task]


def places(seen: Seen, kind: str, folder: Path) -> list[str]:
    return [place.replace(f"{folder}/", "") for place in seen.problem(kind)["where"]]


@pytest.mark.parametrize("task", TASKS)
def test_repeated_and_leaked_and_empty_rows_are_found_for_every_task(look, tmp_path, task):
    one, two, three, four = (row(task, text) for text in ("the film", "it", "a play", "he run"))
    train = lines(one, row(task, "the bad", "a"), two, row(task, ""), one)
    seen = look(task, {"train.jsonl": train, "dev.jsonl": lines(three, two, four)})
    assert places(seen, "duplicate", tmp_path) == ["train.jsonl:5 repeats train.jsonl:1"]
    assert places(seen, "leakage", tmp_path) == ["dev.jsonl:2 is train.jsonl:3"]
    assert places(seen, "empty_text", tmp_path) == ["train.jsonl:4"]
    for sentence in (
        "warning train: rows that repeat an earlier one: train.jsonl:5 repeats train.jsonl:1.",
        "warning dev: rows whose text stands in train too; they make the score too good: dev.jsonl",
        "warning Rows whose text is empty: train.jsonl:4.",
    ):
        assert sentence in seen.text
    assert seen.status == 0 and [split["rows"] for split in seen.splits] == [5, 3]


@pytest.mark.parametrize("task", TASKS)
def test_broken_lines_and_missing_values_are_found_for_every_task(look, tmp_path, task):
    missing = dict.fromkeys(row(task, "the film"))
    content = lines(row(task, "the film"), '{"text": "the', missing, row(task, "a play", "a"))
    seen = look(task, {"train.jsonl": content})
    assert seen.status == 2 and seen.problem("bad_row")["count"] == 2
    first, second = places(seen, "bad_row", tmp_path)
    assert first.startswith("train.jsonl:2: ") and "JSON" in first
    assert second.startswith("train.jsonl:3: ")
    assert "error Rows that cannot be used (2 times): train.jsonl:2: " in seen.text
    assert (seen.splits[0]["rows"], seen.splits[0]["bad_rows"]) == (2, 2)


@pytest.mark.parametrize("task", CUTTING)
def test_rows_that_will_be_cut_are_found_where_tasks_cut(look, tmp_path, tiny_model, task):
    content = lines(row(task, "film"), row(task, LONG), row(task, "play", "a"))
    seen = look(task, {"train.jsonl": content}, "--model", tiny_model, "--max-length", 12)
    assert places(seen, "truncated", tmp_path) == ["train.jsonl:2"]
    assert "train: rows longer than 12 tokens (33.3%): train.jsonl:2." in seen.text
    assert "Lengths are in tokens; cut at 12." in seen.text and seen.splits[0]["truncated"] == 1


@pytest.mark.parametrize("task", WINDOWING)
def test_long_rows_are_no_finding_where_tasks_read_windows(look, tiny_model, task):
    content = lines(row(task, "film"), row(task, LONG) | {"question": "film"})
    seen = look(task, {"train.jsonl": content}, "--model", tiny_model, "--max-length", 12)
    assert not seen.problems and seen.splits[0]["truncated"] is None
    assert "Lengths are in tokens; longer rows are read in windows of 12." in seen.text
    assert "cut" not in seen.text and "%" not in seen.text.replace("95 %", "")


@pytest.mark.parametrize("task", TASKS)
def test_unknown_tokens_are_counted_for_every_task(look, tiny_model, task):
    content = lines(row(task, "film xyzzy"), row(task, "play", "a"))
    seen = look(task, {"train.jsonl": content}, "--model", tiny_model)
    # A question and its context, two pairs of context and choice, both texts of a pair.
    times = {"span_qa": 2, "multiple_choice": 4, "embedding": 2}.get(task, 1)
    assert seen.splits[0]["unknown_tokens"] == seen.problem("unknown_tokens")["count"] == times
    assert "train: tokens that are unknown" in seen.text


@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_a_label_that_train_lacks_is_an_error(look, tmp_path, task):
    train = lines(row(task, "the film", "a"), row(task, "a play", "b"))
    dev = lines(row(task, "it", "a"), row(task, "he run", "c"))
    seen = look(task, {"train.jsonl": train, "dev.jsonl": dev})
    assert places(seen, "unseen_label", tmp_path) == ["dev.jsonl:2"] and seen.status == 2
    assert 'the label "c", which train has not' in seen.text


def test_labels_of_classes_are_judged(look, tmp_path):
    many = [row("classification", f"film {i}", "a") for i in range(300)]
    train = lines(*many, row("classification", "film 7", "b"), row("classification", "x", "b"))
    seen = look("classification", {"train.jsonl": train})
    assert {"imbalance", "contradiction", "duplicate"} == seen.kinds
    assert 'Rare labels, below 5.0% of 302 rows: "b" (2).' in seen.text
    assert places(seen, "contradiction", tmp_path) == ["train.jsonl:301 contradicts train.jsonl:8"]
    seen = look("classification", {"train.jsonl": lines(*many)})
    assert 'error All rows have the same label, "a".' in seen.text and seen.status == 2
    seen = look("classification", {"train.jsonl": lines(*many[:9], row("classification", "x"))})
    assert seen.kinds == {"few_rows"} and 'Labels with fewer than 10 rows: "b" (1), "a" (9).' in (
        seen.text
    )


@pytest.mark.parametrize("task", [task for task in TASKS if task != "classification"])
def test_one_label_or_another_for_one_text_is_no_finding_of_other_tasks(look, task):
    rows = [row(task, f"film {i}", "a") for i in range(60)]
    seen = look(task, {"train.jsonl": lines(*rows, row(task, "film 7", "b"))})
    assert seen.kinds == {"duplicate"}


def test_labels_of_several_columns_are_classes_too(look, tmp_path):
    content = "text,a,b\n" + "".join(f"film {i},{i % 2},0\n" for i in range(30)) + "it,2,0\n"
    seen = look("classification", {"train.csv": content}, "--label-columns", "a,b")
    assert places(seen, "bad_row", tmp_path)[0].startswith("train.csv:32: column 'a' holds '2'")
    assert seen.splits[0]["label_counts"] == {"a": 15}


def test_questions_with_and_without_answer_are_counted(look):
    content = lines(PAIR, asked("q4", "film", 4), row("span_qa", "he"))
    seen = look("span_qa", {"train.jsonl": content})
    assert seen.splits[0]["label_counts"] == {"answerable": 2, "unanswerable": 1}
    assert "answerable 2, unanswerable 1" in seen.text and not seen.problems


@pytest.mark.parametrize("task", ["regression", "multiple_choice", "embedding"])
def test_the_report_has_no_column_for_labels_where_there_are_none(look, task):
    seen = look(task, {"train.jsonl": lines(row(task, "film"), row(task, "play"))})
    assert seen.text.splitlines()[0].split() == ["rows", "length:", "half", "95", "%", "longest"]
    assert seen.text.splitlines()[-1] == "Nothing is wrong with it."


def test_a_file_with_other_numbers_of_choices_than_train_is_an_error(look, tmp_path):
    train, dev = lines(choices("a", "it"), choices("he", "it")), lines(choices("a", "he", "see"))
    seen = look("multiple_choice", {"train.jsonl": train, "dev.jsonl": dev})
    assert (
        "error dev: rows of 3 choices or texts, where train has 2 a row: dev.jsonl:1." in seen.text
    )
    assert seen.status == 2


def test_files_of_one_name_keep_their_folders_in_the_report(tmp_path, capsys):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows.csv").write_text("text,label\nthe film,1\n")
    run(
        ["check", "--task", "regression", *(f"{tmp_path / f / 'rows.csv'}" for f in ("one", "two"))]
    )
    assert f"{tmp_path}/two/rows.csv:2 is {tmp_path}/one/rows.csv:2" in capsys.readouterr().out


def test_questions_on_one_line_of_json_are_told_apart_by_their_number(look, tmp_path):
    content = json.dumps(json.loads(squad(PAIR, PAIR | {"id": "q5"}, PAIR | {"id": "q6"})))
    seen = look("span_qa", {"train.json": content})
    assert places(seen, "duplicate", tmp_path) == [
        "train.json:1, row 2 repeats train.json:1, row 1",
        "train.json:1, row 3 repeats train.json:1, row 1",
    ]
