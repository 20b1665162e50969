"""Questions about a context: SQuAD's JSON as published, or one JSON object (or Parquet row) each.

Every row holds `id`, `question`, `context` and, when labelled, `answers`: a list of {"text": str,
"answer_start": int}, empty where the context holds no answer. `answer_start` counts Python
characters of the context.

Source: Rajpurkar et al. 2016 (v1.1) and 2018 (v2.0); the shape of the files on the SQuAD page.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from filbert.data.columns import ColumnNames
from filbert.data.records import Row, read_rows
from filbert.data.streams import MAX_FIELD, Lines, OnError, Report, kind_of, require_file, shown
from filbert.errors import InputError, printable

# A SQuAD file is one JSON value, so it is read whole; the largest published one has 50 MB.
MAX_FILE = 2**30

_COLUMNS = {".csv", ".tsv", ".parquet"}
_SQUAD = re.compile(rb'\s*\{\s*(?:"version"\s*:\s*"[^"]*"\s*,\s*)?"data"\s*:\s*\[')
_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)')


def read_questions(
    path: str | Path,
    names: ColumnNames,
    *,
    labelled: bool = True,
    on_error: OnError | None = None,
) -> Iterator[Row]:
    """The questions of a file, in order.

    A file that is one JSON object with "data" is SQuAD's own format, whatever its name; all else is
    read as rows with the columns `question`, `context`, `answers` and maybe `id` and
    `is_impossible`. A question without id gets its number in the file, from 1.

    Args:
        path: may be compressed; "-" is standard input (JSON Lines only).
        names: the user's names of the columns; SQuAD's own format has none.
        labelled: whether `answers` must be there. If not, they are kept where they are.
        on_error: is given what is wrong with one question instead of it being raised.

    Raises:
        InputError: file, line and question id of what is wrong.
    """
    report = Report(on_error)
    source = _squad_rows(path, labelled, report) if _is_squad(path) else None
    if source is None:
        wanted = ["question", "context", *(["answers"] if labelled else [])]
        others = ["id"] if labelled else ["id", "answers"]
        wanted += [name for name in others if getattr(names, f"{name}_column") is not None]
        found = read_rows(
            path,
            columns={name: names.own(name) for name in wanted},
            required=[name for name in wanted if name != "id"],
            optional=[*(name for name in others if name not in wanted), "is_impossible"],
            separator=names.separator,
            on_error=on_error,
        )
        source = _checked(found, labelled, report)
    return source


def question_row(item: Any, index: int) -> Row:
    """The row of a mapping with `question` and `context`, or of a (question, context) pair.

    Raises:
        InputError: it is neither; with its index.
    """
    if isinstance(item, list | tuple) and len(item) == 2:
        item = {"question": item[0], "context": item[1]}
    if not isinstance(item, Mapping) or not {"question", "context"} <= set(item):
        kind = type(item).__name__
        raise InputError(
            f"Item {index} is a {kind}; a (question, context) pair or a mapping with both is "
            "wanted."
        )
    return _checked_row(dict(item), "questions", index + 1, index + 1, labelled=False)


def question_place(row: Row) -> str:
    """Where a question stands, for messages: file, line and its id."""
    return f"{row.where}: question {printable(str(row.values['id']), 80)}"


def at_its_offset(answer: Mapping[str, Any], context: str) -> bool:
    """Whether an answer's words stand in the context where it says; case and spaces may differ."""
    begin: int = answer["answer_start"]
    text: str = answer["text"]
    found = context[begin : begin + len(text)] if begin >= 0 else ""
    return found == text or found.casefold().split() == text.casefold().split() != []


def read_predictions(path: str | Path) -> dict[str, str] | None:
    """Answers in SQuAD's prediction format, one JSON object {id: text}; None for other files.

    Args:
        path: may be compressed.

    Raises:
        InputError: the file cannot be read, or one of its values is no text.
    """
    found = _table(path)
    if found is None or any(isinstance(value, dict | list) for value in found.values()):
        return None
    if not any(isinstance(value, str) for value in found.values()):
        return None
    # One line of JSON Lines is an object of texts too, but it names its answer.
    if {"answer", "prediction_text"} & set(found):
        return None
    for key, value in found.items():
        if not isinstance(value, str):
            raise InputError(f"{path}: the answer to {printable(key)} is not a text.")
    return found


def read_no_answer_scores(path: str | Path) -> dict[str, float]:
    """SQuAD's other file, {id: number}: how sure the model is that there is no answer.

    The official script's --na-prob-file, and null_odds.json.

    Raises:
        InputError: the file is not one.
    """
    found = _table(path)
    if found is None or not all(_is_number(value) for value in found.values()):
        raise InputError(f'{path}: not one JSON object with a number for each id, {{"id": 0.5}}.')
    return {key: float(value) for key, value in found.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _table(path: str | Path) -> dict[str, Any] | None:
    """The file's single JSON object, or None when it is anything else."""
    if str(path) == "-" or kind_of(path)[0] in _COLUMNS:
        return None
    require_file(path)
    try:
        found = json.loads(_text(path))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# SQuAD's own format


def _is_squad(path: str | Path) -> bool:
    """Whether the file is one JSON object with "data" rather than an object a line."""
    if str(path) == "-" or kind_of(path)[0] in _COLUMNS:
        return False
    require_file(path)
    head = b""
    for block in _blocks(path):
        head += block
        if _SQUAD.match(head):
            return True
        if b"\n" in head.lstrip() or len(head) > 4 * MAX_FIELD:
            break
    line, newline, _ = head.lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return False
    try:
        first = json.loads(line)
    except ValueError:
        # The object goes on behind this line, or beyond what was read of it.
        return line.strip() == b"{" or b'"data"' in line or len(line) > 4 * MAX_FIELD
    except RecursionError:
        return False
    return isinstance(first.get("data"), list) and "question" not in first


def _squad_rows(path: str | Path, labelled: bool, report: Report) -> Iterator[Row]:
    name = shown(path)
    text = _text(path)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name}:{error.lineno}: broken JSON at column {error.colno}: {error.msg}. "
            "Fetch or make the file again."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: JSON that cannot be read: {error}.") from error
    if not isinstance(content, dict) or "data" not in content:
        raise InputError(
            f'{name}: one JSON object without "data". SQuAD\'s format is {{"data": '
            '[{"paragraphs": [{"context": ..., "qas": [...]}]}]}; JSON Lines holds one object a '
            "line."
        )
    lines = _id_lines(text)
    del text
    line = next(lines)  # starts the generator, which then holds the only reference
    number = 0
    for place, paragraph in _paragraphs(content, name, report):
        for index, question in enumerate(_listed(paragraph, "qas", f"{name}: {place}", report)):
            number += 1
            if not isinstance(question, dict):
                report(InputError(f"{name}: {place}.qas[{index}]: not an object."))
                continue
            if question.get("id") is not None:
                line = lines.send(question["id"])
            values = {key: question[key] for key in _KEPT if key in question}
            values["context"] = paragraph.get("context")
            try:
                row = _checked_row(values, str(path), line, number, labelled=labelled)
            except InputError as error:
                report(error)
                continue
            yield row
    if not number:
        raise InputError(f"{name}: no question in it.")


_KEPT = ("id", "question", "answers", "is_impossible")


def _paragraphs(
    content: dict[str, Any], name: str, report: Report
) -> Iterator[tuple[str, dict[str, Any]]]:
    for a, article in enumerate(_listed(content, "data", name, report)):
        if not isinstance(article, dict):
            report(InputError(f"{name}: data[{a}]: not an object."))
            continue
        where = f"{name}: data[{a}]"
        for p, paragraph in enumerate(_listed(article, "paragraphs", where, report)):
            place = f"data[{a}].paragraphs[{p}]"
            if isinstance(paragraph, dict):
                yield place, paragraph
            else:
                report(InputError(f"{name}: {place}: not an object."))


def _listed(parent: dict[str, Any], key: str, where: str, report: Report) -> list[Any]:
    found = parent.get(key)
    if isinstance(found, list):
        return found
    report(InputError(f'{where}: "{key}" is {"missing" if found is None else "not a list"}.'))
    return []


def _id_lines(text: str) -> Generator[int, Any, None]:
    """A generator that is sent the ids in the file's order and gives the line of each.

    A quote inside of a JSON string is always escaped, so only a real key can match.
    """
    line = 1
    wanted: Any = yield line
    at = 0
    if "\n" not in text:
        while True:
            yield 1
    for match in itertools.chain(_ID.finditer(text), itertools.repeat(None)):
        # Behind the last match: an id of a kind that is refused anyway; keep its neighbour's line.
        if match is None or json.loads(match[1]) == wanted:
            if match is not None:
                line += text.count("\n", at, match.start())
                at = match.start()
            wanted = yield line


def _blocks(path: str | Path) -> Iterator[bytes]:
    return Lines(path).blocks()


def _text(path: str | Path) -> str:
    """All of a file, decompressed.

    Raises:
        InputError: it is too large, not UTF-8, or cannot be read.
    """
    held: list[bytes] = []
    size = 0
    for block in _blocks(path):
        size += len(block)
        if size > MAX_FILE:
            raise InputError(
                f"{shown(path)}: more than {MAX_FILE:,} bytes in one JSON value. "
                "Write one question a line (JSON Lines) instead."
            )
        held.append(block)
    try:
        return b"".join(held).decode("utf-8")
    except UnicodeDecodeError as error:
        line = b"".join(held)[: error.start].count(b"\n") + 1
        raise InputError(
            f"{shown(path)}:{line}: byte {error.start} of the file (from 0) is not UTF-8. "
            "Convert the file, for example with iconv -f latin1 -t utf-8."
        ) from error


# One question


def _checked(rows: Iterator[Row], labelled: bool, report: Report) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        try:
            found = _checked_row(row.values, row.path, row.line, number, labelled=labelled)
        except InputError as error:
            report(error)
            continue
        yield found


def _checked_row(
    values: dict[str, Any], path: str, line: int, number: int, *, labelled: bool
) -> Row:
    """The row of a question's values, in the one shape that tasks know."""
    given = values.get("id")
    if given is not None and (isinstance(given, bool) or not isinstance(given, str | int)):
        raise InputError(f"{shown(path)}:{line}: the id of a question is neither text nor number.")
    kept: dict[str, Any] = {"id": str(number) if given is None else str(given)}
    row = Row(kept, path, line)
    for key in ("question", "context"):
        value = values.get(key)
        if not isinstance(value, str):
            wrong = (
                "is missing"
                if value is None
                else f"holds a value of type {type(value).__name__}, not text"
            )
            raise InputError(f'{question_place(row)}: "{key}" {wrong}.')
        kept[key] = value
    answers = values.get("answers")
    if answers is None:
        if labelled:
            raise InputError(
                f'{question_place(row)}: "answers" is missing. An empty list says that there is '
                "no answer."
            )
        return row
    kept["answers"] = _answers(answers, row)
    impossible = values.get("is_impossible")
    if impossible is not None and not isinstance(impossible, bool):
        raise InputError(f'{question_place(row)}: "is_impossible" is neither true nor false.')
    if impossible and kept["answers"]:
        raise InputError(
            f'{question_place(row)}: "is_impossible" is true, yet there are answers. Change one.'
        )
    return row


def _answers(value: Any, row: Row) -> list[dict[str, Any]]:
    """The answers as a list of {"text", "answer_start"}; Hugging Face keeps two lists instead."""
    if isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
        if not (isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts)):
            raise InputError(
                f'{question_place(row)}: "answers" needs as many "answer_start" as "text", in two '
                "lists."
            )
        value = [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]
    if not isinstance(value, list):
        raise InputError(
            f'{question_place(row)}: "answers" is a {type(value).__name__}; expected a list of '
            '{"text": ..., "answer_start": ...}.'
        )
    found = []
    for answer in value:
        text = answer.get("text") if isinstance(answer, dict) else None
        start = answer.get("answer_start") if isinstance(answer, dict) else None
        if not isinstance(text, str) or isinstance(start, bool) or not isinstance(start, int):
            raise InputError(
                f'{question_place(row)}: an answer needs "text" (a text) and "answer_start" (a '
                "whole number)."
            )
        # Some exports write "no answer" so.
        if text.strip():
            found.append({"text": text, "answer_start": start})
    return found
