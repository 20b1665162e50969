"""Answers as spans of tokens: windows over a context, and the best spans by start and end scores.

N tokens in the context, W windows, n tokens in a window with its question and special tokens, K
candidates. Windows of one context overlap; a token is looked at in the window that shows most
around it.

Source: google-research/bert, run_squad.py; Devlin et al. 2019, section 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from filbert.data.findings import Finding
from filbert.data.records import Row
from filbert.data.squad import at_its_offset, question_place
from filbert.errors import InputError
from filbert.text.tokenizer import Encoding, Tokenizer

# Enough rows to keep the tokenizer's threads busy; few enough that long contexts do not add up.
_ROWS_AT_ONCE = 64

# A long context has hundreds of thousands of candidates, and the first few hundred decide.
_CANDIDATES_AT_ONCE = 128


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One question and its context as tokens; all windows share it.

    Attributes:
        id: of the question.
        context: the text that answers are cut from.
        offsets: int32 (N, 2), the characters of the context's tokens.
        num_tokens: of the question, the whole context and the special tokens, before cutting.
    """

    id: str
    context: str
    offsets: np.ndarray
    num_tokens: int


class Window(NamedTuple):
    """A piece of a question's context inside one sequence.

    Attributes:
        question: whose context it is.
        begin: place of its first context token in the sequence.
        start: number of that token within the context.
        length: context tokens.
    """

    question: Question
    begin: int
    start: int
    length: int


class Spans(NamedTuple):
    """K candidates, best first: their tokens within the context, and what the model gave them.

    `first` and `last` are int64 (K,), both inclusive; `start_logits` and `end_logits` float64 (K,).
    """

    first: np.ndarray
    last: np.ndarray
    start_logits: np.ndarray
    end_logits: np.ndarray


class Answer(NamedTuple):
    """A text, its characters [start, end) in the context (None for "no answer") and its logits."""

    text: str
    start: int | None
    end: int | None
    start_logit: float
    end_logit: float

    @property
    def total(self) -> float:
        """What answers are ranked by."""
        return self.start_logit + self.end_logit


class Cutting(NamedTuple):
    """How contexts are cut into windows; see `Tokenizer.windows`."""

    tokenizer: Tokenizer
    max_length: int
    stride: int
    max_question_length: int

    def __call__(self, rows: Sequence[Row]) -> list[list[Encoding]]:
        """The windows of each row's question and context."""
        return self.tokenizer.windows(
            [(row.values["question"], row.values["context"]) for row in rows],
            max_length=self.max_length,
            stride=self.stride,
            max_first=self.max_question_length,
        )


def cut_up(
    rows: Sequence[Row], cutting: Cutting
) -> Iterator[tuple[Row, list[Encoding], list[Window]]]:
    """Every row with its windows, as token ids and as places in the context.

    Raises:
        InputError: a question leaves no room for its context; with file, line and id.
    """
    last: Question | None = None
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[begin : begin + _ROWS_AT_ONCE]
        try:
            found = cutting(some)
        except InputError as error:
            raise _without_room(some, cutting, error) from error
        for row, encodings in zip(some, found, strict=True):
            context: str = row.values["context"]
            # Questions on one paragraph follow each other and share its offsets.
            shared = last.offsets if last is not None and last.context == context else None
            windows = windows_of(row.values["id"], context, encodings, shared)
            last = windows[0].question
            yield row, encodings, windows


def _without_room(rows: Sequence[Row], cutting: Cutting, error: InputError) -> InputError:
    for row in rows:
        try:
            cutting([row])
        except InputError:
            return InputError(
                f"{question_place(row)}: the question leaves no room for its context in "
                f"{cutting.max_length} tokens. Lower --max-question-length, which is "
                f"{cutting.max_question_length}, or raise --max-length."
            )
    return error


def windows_of(
    id: str, context: str, encodings: Sequence[Encoding], known: np.ndarray | None = None
) -> list[Window]:
    """The windows of one question, from what `Tokenizer.windows` made of (question, context).

    Args:
        id: of the question.
        context: the second text.
        encodings: one per window.
        known: the offsets of the same context, when an earlier question had it.
    """
    places = []
    for encoding in encodings:
        assert encoding.sequence is not None
        inside = np.flatnonzero(encoding.sequence == 1)
        begin = int(inside[0]) if len(inside) else len(encoding.input_ids)
        places.append((begin, encoding.start, len(inside)))
    _, start, length = places[-1]
    offsets = known
    if offsets is None:
        offsets = np.zeros((start + length, 2), dtype=np.int32)
        for encoding, (b, s, n) in zip(encodings, places, strict=True):
            assert encoding.offsets is not None
            offsets[s : s + n] = encoding.offsets[b : b + n]
    question = Question(id, context, offsets, encodings[-1].num_tokens + start)
    return [Window(question, *place) for place in places]


def tokens_of(offsets: np.ndarray, begin: int, end: int) -> tuple[int, int] | None:
    """First and last token that hold any of the characters [begin, end); None if none does.

    Args:
        offsets: int32 (N, 2).
    """
    inside = np.flatnonzero((offsets[:, 1] > begin) & (offsets[:, 0] < end))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def wanted_tokens(row: Row, question: Question) -> tuple[int, int] | None:
    """First and last context token of the answer that is learnt: the first one, without spaces
    around it.

    Raises:
        InputError: it is not at its offset; with file, line and id.
    """
    answer = row.values["answers"][0]
    if not at_its_offset(answer, question.context):
        raise InputError(
            f"{question_place(row)}: the answer does not stand in the context at its answer_start "
            f"{answer['answer_start']}, counted in characters. Fix or remove the question; "
            "filbert check lists all of the kind."
        )
    text: str = answer["text"]
    begin = answer["answer_start"] + len(text) - len(text.lstrip())
    return tokens_of(question.offsets, begin, begin + len(text.strip()))


def place_in(window: Window, tokens: tuple[int, int] | None) -> tuple[int, int]:
    """Places in the window's sequence of the first and last token; (0, 0) unless all are in it."""
    if tokens is None:
        return (0, 0)
    first, last = tokens
    if first < window.start or last >= window.start + window.length:
        return (0, 0)
    shift = window.begin - window.start
    return (first + shift, last + shift)


def best_windows(spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """Which window each token belongs to: int64 (N,).

    The one that maximises min(tokens to the left, tokens to the right) + 0.01 * window length; the
    first of equals.

    Args:
        spans: start and length of every window, in order, covering the context.
    """
    size = max(start + length for start, length in spans)
    owner = np.zeros(size, dtype=np.int64)
    if len(spans) == 1:
        return owner
    best = np.full(size, -1.0)
    for number, (start, length) in enumerate(spans):
        place = np.arange(length)
        score = np.minimum(place, place[::-1]) + 0.01 * length
        here = slice(start, start + length)
        better = score > best[here]
        best[here][better] = score[better]
        owner[here][better] = number
    return owner


def best_spans(
    windows: Sequence[Window], outputs: Sequence[np.ndarray], *, n_best: int, max_length: int
) -> Spans:
    """Candidates of one question: of every window the `n_best` best starts with as many best ends.

    The best are taken among all tokens of the sequence; then those are left out that are no token
    of the context, whose start belongs to another window, that end before they start or are longer
    than `max_length` tokens. Best sum of logits first, equal ones in order of window, start, end.

    Args:
        windows: of one question, in order.
        outputs: float (n, 2) for each, start and end logits.
    """
    owner = best_windows([(window.start, window.length) for window in windows])
    found = []
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
        found.append((first + shift, last + shift, output[first, 0], output[last, 1]))
    first, last, start_logits, end_logits = (
        np.concatenate([part[k] for part in found]) for k in range(4)
    )
    start_logits, end_logits = start_logits.astype(np.float64), end_logits.astype(np.float64)
    best = np.argsort(-(start_logits + end_logits), kind="stable")
    return Spans(first[best], last[best], start_logits[best], end_logits[best])


def null_logits(outputs: Sequence[np.ndarray]) -> tuple[float, float]:
    """Start and end logit of "no answer": of each window's first token, the least sum."""
    pairs = [(float(output[0, 0]), float(output[0, 1])) for output in outputs]
    return min(pairs, key=sum)


def different_texts(question: Question, candidates: Spans, count: int) -> list[Answer]:
    """The first `count` candidates with different texts, cut from the context.

    Spaces at its ends, which some vocabularies count to a token, are left out of a text.
    """
    found: dict[str, Answer] = {}
    context, offsets = question.context, question.offsets
    for begin in range(0, len(candidates.first), _CANDIDATES_AT_ONCE):
        part = [array[begin : begin + _CANDIDATES_AT_ONCE] for array in candidates]
        starts, ends = offsets[part[0], 0].tolist(), offsets[part[1], 1].tolist()
        for start, end, *logits in zip(
            starts, ends, part[2].tolist(), part[3].tolist(), strict=True
        ):
            raw = context[start:end]
            text = raw.strip()
            if text and text not in found:
                start += len(raw) - len(raw.lstrip())
                found[text] = Answer(text, start, start + len(text), *logits)
                if len(found) == count:
                    return list(found.values())
    return list(found.values())


def with_null(answers: list[Answer], null: Answer, count: int) -> list[Answer]:
    """The same list with "no answer" at its rank, `count` in all; behind them if it ranks lower.

    The best answer stays in it even where `count` is 1.
    """
    place = sum(answer.total >= null.total for answer in answers)
    size = max(count, 2) if place < count else len(answers) + 1
    return [*answers[:place], null, *answers[place:]][:size]


def shares(answers: Sequence[Answer]) -> list[float]:
    """Softmax over the sums of logits; [] of none."""
    if not answers:
        return []
    totals = np.array([answer.total for answer in answers])
    weights = np.exp(totals - totals.max())
    found: list[float] = (weights / weights.sum()).tolist()
    return found


def question_findings(
    rows: Sequence[Row], cutting: Cutting | None, max_answer_length: int
) -> Iterator[Finding]:
    """What is wrong with questions that can be read.

    Args:
        rows: questions, with `answers` where they are known.
        cutting: without it nothing is said about lengths.
        max_answer_length: in tokens.
    """
    sound = []
    for row in rows:
        answers = row.values.get("answers") or []
        if all(at_its_offset(answer, row.values["context"]) for answer in answers):
            sound.append(row)
        else:
            message = "Answers that do not stand in the context at their answer_start."
            yield Finding("error", "answer_offset", message, question_place(row))
    if cutting is None:
        return
    for row, encodings, windows in cut_up(sound, cutting):
        if encodings[0].truncated:
            message = f"Questions longer than {cutting.max_question_length} tokens; cut there."
            yield Finding("warning", "question_cut", message, question_place(row))
        if not row.values.get("answers"):
            continue
        tokens = wanted_tokens(row, windows[0].question)
        whole = any(place_in(window, tokens) != (0, 0) for window in windows)
        if tokens is None or not whole or tokens[1] - tokens[0] >= max_answer_length:
            message = (
                f"Answers that no window of {cutting.max_length} tokens holds whole, or that are "
                f"longer than {max_answer_length} tokens."
            )
            yield Finding("warning", "answer_lost", message, question_place(row))
