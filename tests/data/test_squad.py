"""Questions from SQuAD's JSON and from rows: what is read, where it stands, what is refused."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.data.squad import (
    at_its_offset,
    question_row,
    read_no_answer_scores,
    read_predictions,
    read_questions,
)
from filbert.errors import InputError

CONTEXT = "He was very good."
ANSWER = {"text": "very good", "answer_start": 7}


def published(*questions: dict[str, Any]) -> dict[str, Any]:
    return {"version": "x", "data": [{"paragraphs": [{"context": CONTEXT, "qas": [*questions]}]}]}


def asked(id: Any, answers: Any = (ANSWER,), **more: Any) -> dict[str, Any]:
    return {"id": id, "question": "How was he?", "answers": list(answers), **more}


def write(path: Path, content: Any, **options: Any) -> Path:
    text = content if isinstance(content, str) else json.dumps(content, **options)
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, **options: Any) -> list[Row]:
    return list(read_questions(path, ColumnNames(), **options))


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as error:
        read(path)
    return str(error.value)


WANTED = {"id": "a", "question": "How was he?", "context": CONTEXT, "answers": [ANSWER]}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x"])
def test_a_squad_file_is_known_by_its_content(tmp_path, name, indent):
    path = write(tmp_path / name, published(asked("a")), indent=indent)
    assert [row.values for row in read(path)] == [WANTED]


def test_rows_of_json_lines_are_questions_too(tmp_path):
    lines = [{"question": "q", "context": CONTEXT, "answers": [ANSWER]}, WANTED]
    lines.append({**WANTED, "id": 7, "answers": [], "is_impossible": True})
    path = write(tmp_path / "x.jsonl", "\n".join(json.dumps(line) for line in lines))
    rows = read(path)
    assert [row.values["id"] for row in rows] == ["1", "a", "7"]
    assert [row.line for row in rows] == [1, 2, 3]
    assert rows[2].values["answers"] == []


def test_columns_can_be_mapped(tmp_path):
    line = {"q": "q", "c": CONTEXT, "a": [ANSWER], "key": "k"}
    names = ColumnNames(
        question_column="q", context_column="c", answers_column="a", id_column="key"
    )
    (row,) = read_questions(write(tmp_path / "x.jsonl", line), names)
    assert row.values == {"question": "q", "context": CONTEXT, "answers": [ANSWER], "id": "k"}


def test_answers_in_two_lists_are_the_same_answers(tmp_path):
    two = {"text": ["very good"], "answer_start": [7]}
    path = write(tmp_path / "x.jsonl", {**WANTED, "answers": two})
    assert read(path)[0].values == WANTED


@pytest.mark.parametrize("start", [-1, 0, 5])
def test_an_answer_without_text_is_no_answer(tmp_path, start):
    path = write(
        tmp_path / "x.jsonl", {**WANTED, "answers": [{"text": " ", "answer_start": start}]}
    )
    assert read(path)[0].values["answers"] == []


def test_a_parquet_file_of_hugging_face_is_read(tmp_path):
    import pyarrow
    from pyarrow import parquet

    two = {"text": ["very good"], "answer_start": [7]}
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([{**WANTED, "answers": two}]), path)
    assert read(path)[0].values == WANTED


def test_answers_may_be_missing_where_none_are_needed(tmp_path):
    line = {"question": "q", "context": CONTEXT}
    path = write(tmp_path / "x.jsonl", line)
    assert read(path, labelled=False)[0].values == {"id": "1", **line}
    path = write(tmp_path / "x.json", published({"id": "a", "question": "q"}))
    assert "answers" not in read(path, labelled=False)[0].values
    assert 'question a: "answers" is missing' in refusal(path)


def test_the_line_of_a_question_is_that_of_its_id(tmp_path):
    # Ids elsewhere, in escaped quotes, and spelt with escapes.
    first = asked('q"1', question='is "id": "b" here?')
    content = published(first, asked("b"), asked("ü"), asked(5))
    content["data"][0]["id"] = "article"
    for ascii_only in (True, False):
        path = write(tmp_path / "x.json", content, indent=1, ensure_ascii=ascii_only)
        lines = path.read_text(encoding="utf-8").splitlines()
        asked_for = content["data"][0]["paragraphs"][0]["qas"]
        for row, question in zip(read(path), asked_for, strict=True):
            spelt = json.dumps(question["id"], ensure_ascii=ascii_only)
            assert re.fullmatch(rf'\s*"id": {re.escape(spelt)},', lines[row.line - 1])


BROKEN = {
    'data[0].paragraphs[0]: no list "qas"': {"data": [{"paragraphs": [{"context": "x"}]}]},
    "no question in it": {"data": []},
    "data[0].paragraphs[0].qas[0]: not an object": published(1),  # type: ignore[arg-type]
    'question a: "question" is missing': published({"id": "a", "answers": []}),
    'question a: "question" is a int, not a text': published(asked("a", question=3)),
    "neither text nor number": published(asked(True)),
    'question a: an answer needs "text"': published(asked("a", [{"text": "x"}])),
    'question a: "is_impossible" is true, yet': published(asked("a", is_impossible=True)),
}


@pytest.mark.parametrize("message", BROKEN)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path, message):
    path = write(tmp_path / "x.json", BROKEN[message])
    found = refusal(path)
    assert message in found and found.startswith(str(path))


def test_a_bad_question_is_handed_over_and_the_others_are_read(tmp_path):
    bad: list[InputError] = []
    content = published(asked("a"), asked("b", question=None), asked("c"))
    path = write(tmp_path / "x.json", content, indent=1)
    assert [row.values["id"] for row in read(path, on_error=bad.append)] == ["a", "c"]
    assert len(bad) == 1 and "question b" in str(bad[0])


def test_rows_of_python_are_pairs_or_mappings():
    wanted = {"question": "q", "context": "c"}
    assert question_row(("q", "c"), 4).values == {"id": "5", **wanted}
    assert question_row({"id": "x", **wanted}, 0).values == {"id": "x", **wanted}
    for wrong in ("q", ("q", 1), {"question": "q"}, ("a", "b", "c")):
        with pytest.raises(InputError, match="Item 3|questions:4"):
            question_row(wrong, 3)


def test_an_answer_may_differ_from_the_context_in_case_and_spaces_only():
    context = "A  very Good one"
    for text in ("very Good", "very good"):
        assert at_its_offset({"text": text, "answer_start": 3}, context)
    assert not at_its_offset({"text": "very Good", "answer_start": 4}, context)
    assert not at_its_offset({"text": "one", "answer_start": -3}, context)
    assert not at_its_offset({"text": "  ", "answer_start": 40}, context)


def test_predictions_of_squad_are_one_object_of_texts(tmp_path):
    path = write(tmp_path / "p.json", {"a": "x", "b": ""}, indent=1)
    assert read_predictions(path) == {"a": "x", "b": ""}
    packed = tmp_path / "p.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_predictions(packed) == {"a": "x", "b": ""}
    assert read_predictions(write(tmp_path / "p.jsonl", {"id": "a", "answer": "x"})) is None
    two = '{"id": "a", "answer": "x"}\n{"id": "b", "answer": "x"}\n'
    assert read_predictions(write(tmp_path / "p.jsonl", two)) is None
    with pytest.raises(InputError, match="the answer to b"):
        read_predictions(write(tmp_path / "p.json", {"a": "x", "b": None}))


def test_no_answer_scores_are_one_object_of_numbers(tmp_path):
    assert read_no_answer_scores(write(tmp_path / "p.json", {"a": -1, "b": 0.5})) == {
        "a": -1.0,
        "b": 0.5,
    }
    for wrong in ({"a": "1"}, [1], {"a": True}, {"a": float("nan")}):
        with pytest.raises(InputError, match="a number for each id"):
            read_no_answer_scores(write(tmp_path / "p.json", wrong))
