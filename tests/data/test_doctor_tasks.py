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
CUTTING = ["classification", "multiple_choice"]
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

CASES = {
    "tags that break BIO and are mended": Case(
        "tagging", "train.conll", "he O\n\nthe O\nfilm I-film\n", "warning", "broken_bio",
        "Tags that break BIO; they are repaired: train.conll:4.", ("--repair-tags",),
    ),
    "a span of white space": Case(
        "tagging", "train.jsonl", lines(spanned("the film", (4, 8)), spanned("the film a", (3, 4))),
        "warning", "lost_span",
        "Spans without a word of their own; they are not used for training: "
        "train.jsonl:2, characters 3 to 4.",
    ),
    "an answer that is not at its offset, a row each": Case(
        "span_qa", "train.jsonl", lines(PAIR, MOVED), "error", "answer_offset",
        "Answers that are not in the context at their answer_start: "
        "train.jsonl:2: question q2.",
    ),
    "an answer that is not at its offset, SQuAD's format": Case(
        "span_qa", "train.json", squad(PAIR, MOVED), "error", "answer_offset",
        "Answers that are not in the context at their answer_start: "
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
    "an empty choice": Case(
        "multiple_choice", "train.jsonl", lines(choices("a", "it"), choices("a", " ")),
        "warning", "empty_choice", "Rows with an empty choice: train.jsonl:2.",
    ),
    "a pair of a text with itself": Case(
        "embedding", "train.csv", "text,text_pair\nthe,a\nthe,the\n", "warning", "identical_pair",
        "Pairs of a text with itself; their cosine is always 1: train.csv:3.",
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
        "warning dev: rows whose text is also in train; they inflate the metrics: dev.jsonl",
        "warning Rows whose text is empty: train.jsonl:4.",
    ):
        assert sentence in seen.text
    assert seen.status == 0 and [split["rows"] for split in seen.splits] == [5, 3]


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


def test_questions_on_one_line_of_json_are_told_apart_by_their_number(look, tmp_path):
    content = json.dumps(json.loads(squad(PAIR, PAIR | {"id": "q5"}, PAIR | {"id": "q6"})))
    seen = look("span_qa", {"train.json": content})
    assert places(seen, "duplicate", tmp_path) == [
        "train.json:1, row 2 repeats train.json:1, row 1",
        "train.json:1, row 3 repeats train.json:1, row 1",
    ]
