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


def places(seen: Seen, kind: str, folder: Path) -> list[str]:
    return [place.replace(f"{folder}/", "") for place in seen.problem(kind)["where"]]


def test_questions_on_one_line_of_json_are_told_apart_by_their_number(look, tmp_path):
    content = json.dumps(json.loads(squad(PAIR, PAIR | {"id": "q5"}, PAIR | {"id": "q6"})))
    seen = look("span_qa", {"train.json": content})
    assert places(seen, "duplicate", tmp_path) == [
        "train.json:1, row 2 repeats train.json:1, row 1",
        "train.json:1, row 3 repeats train.json:1, row 1",
    ]
