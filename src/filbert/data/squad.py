"""Questions about a context: SQuAD's JSON as published, or one JSON object (or Parquet row) each.

Every row holds `id`, `question`, `context` and, when labelled, `answers`: a list of {"text": str,
"answer_start": int}, empty if the context holds no answer. `answer_start` counts Python characters
of the context.

Source: Rajpurkar et al. 2016 (v1.1) and 2018 (v2.0); the format of the files on the SQuAD page.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from filbert.data.columns import ColumnNames
from filbert.data.records import Row, guarded
from filbert.data.streams import (
    BOM,
    OnError,
    check_each,
    name_of,
    open_text,
    raised,
    read_text,
    require_file,
    suffix_of,
)
from filbert.errors import InputError, printable
from filbert.text.tokenizer import Encoding, Tokenizer

# Files

_COLUMNS = (".csv", ".tsv", ".parquet")
# The beginning of a SQuAD file: "data", perhaps after other keys with simple values.
_SQUAD = re.compile(r'\s*\{\s*(?:"\w+"\s*:\s*(?:"[^"]*"|[\d.]+)\s*,\s*)*"data"\s*:\s*[^,}]')
_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)')


def read_questions(
    path: str | Path,
    names: ColumnNames,
    *,
    labelled: bool = True,
    on_error: OnError = raised,
) -> Iterator[Row]:
    """Return the questions of a file, in order.

    A file that is one JSON object with "data" has SQuAD's own format, whatever its name; all others
    are read as rows with the columns `question`, `context`, `answers` and maybe `id` and
    `is_impossible`. A question without id gets its number in the file, from 1.

    Args:
        labelled: Whether `answers` must be there. If not, they are kept if they are there.
        on_error: As for `read_rows`, which raises the same errors; here with the question's id.
    """
    if _is_squad(path):
        read = partial(_checked_rows, _squad_questions(path), labelled)
        return guarded(read, on_error, f"{name_of(path)}: no question in it.")
    required = ("question", "context", *(["answers"] if labelled else []))
    optional = ("id", "is_impossible", *([] if labelled else ["answers"]))
    rows = names.read(path, required=required, optional=optional, on_error=on_error)
    return _checked_rows(rows, labelled, on_error)


def question_row(item: Any, index: int) -> Row:
    """Return the row of a (question, context) pair or such a mapping, or raise an InputError."""
    if isinstance(item, list | tuple) and len(item) == 2:
        item = {"question": item[0], "context": item[1]}
    if not isinstance(item, Mapping):
        raise InputError(
            f"Item {index} is a {type(item).__name__}; a (question, context) pair or a mapping "
            "with both is expected."
        )
    return _checked_row(Row(dict(item), "questions", index + 1), index + 1, labelled=False)


def question_place(row: Row) -> str:
    """Return the place of a question, for messages: file, line and its id."""
    return f"{row.where}: question {printable(str(row.values['id']), 80)}"


def at_its_offset(answer: Mapping[str, Any], context: str) -> bool:
    """Return whether the context has the answer at its offset; case and spaces may differ."""
    begin: int = answer["answer_start"]
    text: str = answer["text"]
    there = context[begin : begin + len(text)] if begin >= 0 else ""
    return there == text or there.casefold().split() == text.casefold().split() != []


def read_predictions(path: str | Path) -> dict[str, str] | None:
    """Return answers in SQuAD's prediction format, one JSON object {id: text}; None for others.

    Raises:
        InputError: The file cannot be read, or one of its values is no text.
    """
    table = _object_in(path) or {}
    # One line of JSON Lines is an object of texts too, but it names its answer.
    kinds = set(map(type, table.values()))
    if {"answer", "prediction_text"} & set(table) or kinds & {dict, list} or str not in kinds:
        return None
    for key, value in table.items():
        if not isinstance(value, str):
            raise InputError(f"{path}: the answer to {printable(key)} is not a text.")
    return table


def read_no_answer_scores(path: str | Path) -> dict[str, float]:
    """Return SQuAD's other file, {id: number}: how sure the model is that there is no answer.

    That is the official script's --na-prob-file, or null_odds.json; others are an InputError.
    """
    table = _object_in(path)
    if table is None or not all(
        type(value) in (int, float) and math.isfinite(value) for value in table.values()
    ):
        raise InputError(f'{path}: not one JSON object with a number for each id, {{"id": 0.5}}.')
    return {key: float(value) for key, value in table.items()}


def _object_in(path: str | Path) -> dict[str, Any] | None:
    """Return the file's single JSON object, or None if it is anything else."""
    if str(path) == "-" or suffix_of(path) in _COLUMNS:
        return None
    require_file(path)
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


# SQuAD's own format


def _is_squad(path: str | Path) -> bool:
    """Return whether the file is one JSON object with "data" rather than an object a line."""
    if str(path) == "-" or suffix_of(path) in _COLUMNS:
        return False
    require_file(path)
    with open_text(path) as file:
        return _SQUAD.match(file.read(2**20).removeprefix(BOM)) is not None


def _squad_questions(path: str | Path) -> Iterator[Row]:
    """Yield every question, as it is in the file."""
    name, text = name_of(path), read_text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(f"{name}:{line}: broken JSON: {error}. Make the file again.") from error
    lines: dict[Any, deque[int]] = defaultdict(deque)
    line, at = 1, 0
    # A quote inside a JSON string is always escaped, so only a real key can match.
    for match in _ID.finditer(text):
        line, at = line + text.count("\n", at, match.start()), match.start()
        lines[json.loads(match[1])].append(line)
    del text
    line = 1
    for a, article in enumerate(_items(content, "data", name)):
        place = f"{name}: data[{a}]"
        for p, paragraph in enumerate(_items(article, "paragraphs", place)):
            place = f"{name}: data[{a}].paragraphs[{p}]"
            for q, question in enumerate(_items(paragraph, "qas", place)):
                if not isinstance(question, dict):
                    raise InputError(f"{place}.qas[{q}]: not an object.")
                id = question.get("id")
                if isinstance(id, str | int) and lines.get(id):
                    line = lines[id].popleft()
                yield Row(question | {"context": paragraph.get("context")}, str(path), line)


def _items(parent: Any, key: str, place: str) -> list[Any]:
    items = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(items, list):
        raise InputError(
            f'{place}: no list "{key}". SQuAD\'s format is {{"data": [{{"paragraphs": '
            '[{"context": ..., "qas": [...]}]}]}; JSON Lines holds one object a line.'
        )
    return items


# One question


def _checked_rows(rows: Iterator[Row], labelled: bool, on_error: OnError) -> Iterator[Row]:
    numbers = count(1)
    return check_each(
        rows, lambda row: _checked_row(row, next(numbers), labelled=labelled), on_error
    )


def _checked_row(given: Row, number: int, *, labelled: bool) -> Row:
    """Return a question in the form that tasks expect; `number` is its id if it has none."""
    values = given.values
    id = number if values.get("id") is None else values["id"]
    if type(id) not in (str, int):
        raise InputError(f"{given.where}: the id of a question is neither text nor number.")
    row = Row({"id": str(id)}, given.path, given.line)
    place = question_place(row)
    for key in ("question", "context"):
        value = values.get(key)
        if not isinstance(value, str):
            kind = "is missing" if value is None else f"is a {type(value).__name__}, not a text"
            raise InputError(f'{place}: "{key}" {kind}.')
        row.values[key] = value
    if values.get("answers") is None:
        if labelled:
            raise InputError(f'{place}: "answers" is missing; an empty list means no answer.')
        return row
    row.values["answers"] = _answers(values["answers"], place)
    if values.get("is_impossible") not in (None, False, not row.values["answers"]):
        raise InputError(f'{place}: "is_impossible" is true, yet there are answers. Change one.')
    return row


def _answers(value: Any, place: str) -> list[dict[str, Any]]:
    """Return the answers as a list of {"text", "answer_start"}; Hugging Face has two lists."""
    if isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            pairs = zip(texts, starts, strict=True)
            value = [{"text": text, "answer_start": start} for text, start in pairs]
    answers = []
    for item in value if isinstance(value, list) else [None]:
        answer = item if isinstance(item, dict) else {}
        text, start = answer.get("text"), answer.get("answer_start")
        if not isinstance(text, str) or type(start) is not int:
            raise InputError(
                f'{place}: an answer needs "text" (a text) and "answer_start" (a whole number), in '
                '"answers": [{"text": ..., "answer_start": ...}].'
            )
        # Some exports write "no answer" as an empty text.
        if text.strip():
            answers.append({"text": text, "answer_start": start})
    return answers


# Windows and answers

# Enough rows to keep the tokenizer's threads busy; few enough that long contexts do not add up.
_ROWS_AT_ONCE = 64


class Window(NamedTuple):
    """A piece of a question's context inside one sequence.

    Attributes:
        id: of the question.
        context: the text that answers are cut from.
        offsets: int32 (N, 2), the characters of the context's tokens; all windows share them.
        begin: place of its first context token in the sequence.
        start: number of that token within the context.
    """

    id: str
    context: str
    offsets: np.ndarray
    begin: int
    start: int
    length: int


class SpanAnswer(NamedTuple):
    """A text, its characters [start, end) in the context (None for "no answer") and its logits."""

    text: str
    start: int | None
    end: int | None
    start_logit: float
    end_logit: float

    @property
    def total(self) -> float:
        """The sum of both logits, by which answers are ranked."""
        return self.start_logit + self.end_logit


def cut_up(
    rows: Sequence[Row], tokenizer: Tokenizer, **lengths: int
) -> Iterator[tuple[Row, list[Encoding], list[Window]]]:
    """Yield every row with its windows, as token ids and as places in the context.

    The lengths are keywords of `Tokenizer.windows`. A question that is too long to add its context
    is an InputError with file, line and id.
    """
    last: Window | None = None
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[begin : begin + _ROWS_AT_ONCE]
        try:
            pieces = tokenizer.windows(
                [(row.values["question"], row.values["context"]) for row in some],
                place=lambda index, some=some: question_place(some[index]),  # type: ignore[misc]
                **lengths,
            )
        except InputError as error:
            raise InputError(f"{error} Or lower --max-question-length.") from error
        for row, encodings in zip(some, pieces, strict=True):
            windows = _windows_of(row, encodings, last)
            last = windows[0]
            yield row, encodings, windows


def _windows_of(row: Row, encodings: Sequence[Encoding], before: Window | None) -> list[Window]:
    """Return the windows of a question; the question before it often has the same context."""
    context: str = row.values["context"]
    places = []
    for encoding in encodings:
        assert encoding.sequence is not None
        inside = np.flatnonzero(encoding.sequence == 1)
        begin = int(inside[0]) if len(inside) else len(encoding.input_ids)
        places.append((begin, encoding.start, len(inside)))
    _, start, length = places[-1]
    if before is not None and before.context == context:
        offsets = before.offsets
    else:
        offsets = np.zeros((start + length, 2), dtype=np.int32)
        for encoding, (b, s, n) in zip(encodings, places, strict=True):
            assert encoding.offsets is not None
            offsets[s : s + n] = encoding.offsets[b : b + n]
    return [Window(row.values["id"], context, offsets, *place) for place in places]


def wanted_tokens(row: Row, window: Window) -> tuple[int, int] | None:
    """Return the first and last token of the first answer, without spaces around it, or None.

    They are numbers of tokens of the context, the same from each window of the question.

    Raises:
        InputError: it is not at its offset; with file, line and id.
    """
    answer = row.values["answers"][0]
    if not at_its_offset(answer, window.context):
        raise InputError(
            f"{question_place(row)}: the answer is not in the context at its answer_start "
            f"{answer['answer_start']}, counted in characters. Fix or remove the question; "
            "filbert check lists all of the kind."
        )
    text: str = answer["text"]
    begin = answer["answer_start"] + len(text) - len(text.lstrip())
    starts, ends = window.offsets.T
    inside = np.flatnonzero((ends > begin) & (starts < begin + len(text.strip())))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def place_in(window: Window, tokens: tuple[int, int] | None) -> tuple[int, int]:
    """Return the places of a first and last token in a window; (0, 0) unless it holds all."""
    if tokens is None or tokens[0] < window.start or tokens[1] >= window.start + window.length:
        return (0, 0)
    shift = window.begin - window.start
    return (tokens[0] + shift, tokens[1] + shift)


def best_windows(spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the window that predicts each token: int64 (N,); the first of equally good ones.

    It maximises min(tokens to the left, tokens to the right) + 0.01 * window length. `spans` are
    the start and length of every window, in order, covering the context.
    """
    size = max(start + length for start, length in spans)
    owner = np.zeros(size, dtype=np.int64)
    best = np.full(size, -1.0)
    for number, (start, length) in enumerate(spans):
        place = np.arange(length)
        score = np.minimum(place, place[::-1]) + 0.01 * length
        here = slice(start, start + length)
        owner[here] = np.where(score > best[here], number, owner[here])
        best[here] = np.maximum(score, best[here])
    return owner


def best_answers(
    windows: Sequence[Window], outputs: Sequence[np.ndarray], *, n_best: int, max_length: int
) -> list[SpanAnswer]:
    """Return the `n_best` best different texts of a question, without spaces at their ends.

    Of every window the `n_best` best starts and ends are taken among all tokens of the sequence;
    then those are left out that are no token of the context, whose start belongs to another window,
    that end before they start or are longer than `max_length` tokens. Best sum of logits first,
    equal ones in order of window, start, end.

    Args:
        windows: of one question, in order.
        outputs: float (n, 2) for each, start and end logits.
    """
    owner = best_windows([(window.start, window.length) for window in windows])
    parts = []
    for number, (window, output) in enumerate(zip(windows, outputs, strict=True)):
        order = np.argsort(-output, axis=0, kind="stable")[:n_best]
        place = order - window.begin
        inside = (place >= 0) & (place < window.length)
        starts, ends = order[inside[:, 0], 0], order[inside[:, 1], 1]
        if len(windows) > 1:
            starts = starts[owner[starts + (window.start - window.begin)] == number]
        length = ends[None, :] - starts[:, None]
        i, j = np.nonzero((length >= 0) & (length < max_length))
        first, last = starts[i], ends[j]
        shift = window.start - window.begin
        parts.append((first + shift, last + shift, output[first, 0], output[last, 1]))
    first, last, start_logits, end_logits = (
        np.concatenate([part[k] for part in parts]) for k in range(4)
    )
    start_logits, end_logits = start_logits.astype(np.float64), end_logits.astype(np.float64)
    context, offsets = windows[0].context, windows[0].offsets
    answers: dict[str, SpanAnswer] = {}
    for k in np.argsort(-(start_logits + end_logits), kind="stable"):
        start, end = int(offsets[first[k], 0]), int(offsets[last[k], 1])
        raw = context[start:end]
        text = raw.strip()
        if text and text not in answers:
            start += len(raw) - len(raw.lstrip())
            logits = float(start_logits[k]), float(end_logits[k])
            answers[text] = SpanAnswer(text, start, start + len(text), *logits)
            if len(answers) == n_best:
                break
    return list(answers.values())


def with_null(answers: list[SpanAnswer], null: SpanAnswer, count: int) -> list[SpanAnswer]:
    """Return the list with "no answer" at its rank, `count` in all; after them if it ranks lower.

    The best answer stays in it even where `count` is 1.
    """
    place = sum(answer.total >= null.total for answer in answers)
    size = max(count, 2) if place < count else len(answers) + 1
    return [*answers[:place], null, *answers[place:]][:size]
