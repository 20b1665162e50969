"""Question answering: the span of a context that answers a question, or that there is none.

T tokens in the batch, S sequences (windows), L the longest, Q questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data import squad as spans
from filbert.data.columns import ColumnNames
from filbert.data.examples import Example, lengths_of
from filbert.data.records import Finding, Row
from filbert.errors import ConfigError, InputError
from filbert.metrics import squad
from filbert.model.pooling import table_of_groups
from filbert.tasks.base import (
    Prediction,
    RowFormat,
    RowSource,
    Targets,
    Task,
    TaskOptions,
    TaskSpec,
    refuse_cleaning,
)
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Text, Tokenizer

_COUNTS = ("stride", "max_question_length", "max_answer_length", "n_best")


class GoldAnswers(NamedTuple):
    """The gold answers of a question: their texts, none where the context holds no answer."""

    id: str
    answers: tuple[str, ...]


class Questions(RowFormat):
    """Questions about a context, with the places of their answers."""

    name = "questions"
    no_label_columns = "a question is answered by a place in a text"
    id_column = "id"

    def read(self, spec: TaskSpec, source: RowSource) -> Iterator[Row]:
        """Yield questions of SQuAD's JSON, or one in each row."""
        path, names, labelled, on_error = source
        return spans.read_questions(path, names, labelled=labelled, on_error=on_error)

    def from_value(self, value: Any, index: int) -> Row:
        """Return the row of a mapping with `question` and `context`."""
        return spans.question_row(value, index)

    def texts(self, row: Row, clean: Cleaning | None) -> list[Text]:
        """Return the question with its context."""
        return [(row.values["question"], row.values["context"])]

    def labels(self, task: Task, row: Row) -> list[str]:
        """Return whether the question has an answer."""
        return ["answerable" if task.gold(row).answers else "unanswerable"]

    def gold_json(self, spec: TaskSpec, gold: GoldAnswers) -> list[str]:
        """Return the texts of the answers."""
        return list(gold.answers)

    def official_files(
        self, gold: Sequence[GoldAnswers], predictions: Sequence[Prediction]
    ) -> dict[str, dict[str, Any]]:
        """Return the files of run_squad.py, as far as they are known."""
        pairs = [(g.id, p) for g, p in zip(gold, predictions, strict=True)]
        logits = ("text", "start_logit", "end_logit")
        return {
            "predictions.json": {id: p["answer"] for id, p in pairs},
            "nbest_predictions.json": {
                id: [{k: e[k] for k in logits} | {"probability": e["score"]} for e in p["nbest"]]
                for id, p in pairs
                if "nbest" in p
            },
            "null_odds.json": {
                id: p["null_score"] for id, p in pairs if p.get("null_score") is not None
            },
        }

    def complete(self, spec: TaskSpec, row: Row, answer: Row) -> Prediction:
        """Return `answer` (or `prediction_text`), maybe `null_score` (or its probability)."""
        prediction, where = answer.values, answer.where
        text = prediction.get("answer", prediction.get("prediction_text"))
        if not isinstance(text, str):
            raise InputError(
                f'{where}: a prediction needs "answer" (or "prediction_text"), a text; "" says '
                "that there is no answer."
            )
        score = prediction.get("null_score", prediction.get("no_answer_probability"))
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if score is not None and not (is_number and np.isfinite(score)):
            raise InputError(f'{where}: "null_score" is not a finite number.')
        known = {"answer": text} | ({} if score is None else {"null_score": float(score)})
        return {**prediction, **known}

    def findings(
        self, task: Task, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """Yield answers that are not at their offset or in no window, and long questions."""
        assert isinstance(task, SpanQA)
        sound = []
        for row in rows:
            answers, context = row.values.get("answers") or [], row.values["context"]
            if all(spans.at_its_offset(answer, context) for answer in answers):
                sound.append(row)
            else:
                message = "Answers that are not in the context at their answer_start."
                yield Finding("error", "answer_offset", message, spans.question_place(row))
        if tokenizer is None:
            return
        longest, lengths = task.max_question_length, _lengths(task, max_length)
        for row, encodings, windows in spans.cut_up(sound, tokenizer, **lengths):
            place = spans.question_place(row)
            if encodings[0].truncated:
                message = f"Questions longer than {longest} tokens; cut there."
                yield Finding("warning", "question_cut", message, place)
            if not row.values.get("answers"):
                continue
            tokens = spans.wanted_tokens(row, windows[0])
            whole = any(spans.place_in(window, tokens) != (0, 0) for window in windows)
            if tokens is None or not whole or tokens[1] - tokens[0] >= task.max_answer_length:
                message = (
                    f"Answers that no window of {max_length} tokens holds whole, or that are "
                    f"longer than {task.max_answer_length} tokens."
                )
                yield Finding("warning", "answer_lost", message, place)


QUESTIONS = Questions()


@dataclass(frozen=True)
class SpanQA:
    """Answers cut out of the context.

    Attributes:
        stride: tokens from the start of one window over a long context to the next.
        max_question_length: tokens that are kept of a question.
        n_best: starts and ends that are tried in each window, and answers that are listed.
        has_unanswerable: whether the training rows had questions without answer (SQuAD v2.0), so
            that "" may be an answer.
        null_threshold: the answer is "" when "no answer" (start and end logit of the first token,
            the least over the windows) beats the best span by more than this.
    """

    stride: int = 128
    max_question_length: int = 64
    max_answer_length: int = 30
    n_best: int = 20
    has_unanswerable: bool = False
    null_threshold: float = 0.0

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} is {value!r}; give at least 1.")
        if not isinstance(self.null_threshold, int | float) or not np.isfinite(self.null_threshold):
            raise ValueError(f"null_threshold is {self.null_threshold!r}, not a finite number")

    @cached_property
    def spec(self) -> TaskSpec:
        """Metrics are in percent."""
        return TaskSpec(
            name="span_qa",
            row_format=QUESTIONS,
            head_kind="spans",
            metric_names=("exact_match", "f1", *(["best_f1"] if self.has_unanswerable else [])),
            selection_metric="f1",
            metric_scale=100.0,
            on_overflow="window",
            always_answers=not self.has_unanswerable,
        )

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> SpanQA:
        """Create a task from options, before any row is read."""
        refuse_cleaning(options, "answers are positions in the original text")
        return cls(**{name: getattr(options, name) for name in _COUNTS})

    def fit(self, rows: Iterable[Row]) -> SpanQA:
        """See whether there are questions without answer."""
        return replace(self, has_unanswerable=not all(row.values["answers"] for row in rows))

    def gold(self, row: Row) -> GoldAnswers:
        """Return the id and answers."""
        texts = tuple(answer["text"] for answer in row.values["answers"])
        return GoldAnswers(row.values["id"], texts)

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """Return one sequence a window; its target is (start, end), places in the sequence.

        The target is the shortest run of tokens that holds the first answer's characters; (0, 0)
        where there is no answer, or the window does not hold all of it.

        Raises:
            InputError: a question leaves no tokens for its context, or (with targets) an answer is
                not at its offset; with file, line and id.
        """
        examples = []
        cut = spans.cut_up(rows, tokenizer, **_lengths(self, max_length))
        for i, (row, encodings, windows) in enumerate(cut):
            tokens, whole = None, encodings[-1].start + encodings[-1].num_tokens
            if with_targets and row.values["answers"]:
                tokens = spans.wanted_tokens(row, windows[0])
            for window, encoding in zip(windows, encodings, strict=True):
                target = spans.place_in(window, tokens) if with_targets else None
                example = Example.of(i, encoding, target=target, source=window, row_tokens=whole)
                examples.append(example)
        return examples

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return int64 (S, 2), places of start and end; groups are the sequences' lengths."""
        values = torch.tensor([example.target for example in examples], dtype=torch.int64)
        lengths = tuple(len(example.input_ids) for example in examples)
        return Targets(values.reshape(len(examples), 2), groups=lengths)

    def count(self, targets: Targets) -> float:
        """Return S: every window is a loss of its own."""
        return float(len(targets.values))

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Return the sum over windows of the mean of two cross-entropies, of start and of end.

        `output` are logits (T, 2), the sequences end to end.
        """
        assert targets.groups is not None
        sides = zip(output.float().unbind(1), targets.values.unbind(1), strict=True)
        # Places beyond a sequence's own tokens have the probability exp(-inf) = 0 and no gradient.
        losses = [
            F.cross_entropy(table_of_groups(logits, targets.groups), places, reduction="sum")
            for logits, places in sides
        ]
        return (losses[0] + losses[1]) / 2

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """Return one answer a question, cut out of its context, with the other candidates.

        `start` and `end` are characters of the context, None where the answer is "". `null_score`
        is by how much "no answer" beats the best span (null_odds.json). `nbest` lists the best
        different texts; `score` and theirs are shares of a softmax over this list.
        """
        # Every question has one window at the start of its context.
        firsts = [i for i, example in enumerate(examples) if example.source.start == 0]
        return [
            self._answer([o.numpy() for o in outputs[begin:end]], examples[begin:end])
            for begin, end in zip(firsts, [*firsts[1:], len(examples)], strict=True)
        ]

    def _answer(self, logits: list[np.ndarray], examples: Sequence[Example]) -> Prediction:
        windows: list[spans.Window] = [example.source for example in examples]
        entries = spans.best_answers(
            windows, logits, n_best=self.n_best, max_length=self.max_answer_length
        )
        # The first token of each window means "no answer"; the least sum counts.
        firsts = [(float(output[0, 0]), float(output[0, 1])) for output in logits]
        null = spans.SpanAnswer("", None, None, *min(firsts, key=sum))
        best = chosen = entries[0] if entries else null
        null_score = null.total - (0.0 if best is null else best.total)
        if self.has_unanswerable:
            entries = spans.with_null(entries, null, self.n_best)
            if null_score > self.null_threshold:
                chosen = null
        totals = torch.tensor([entry.total for entry in entries], dtype=torch.float64)
        shares = totals.softmax(0).tolist()
        score = next((s for e, s in zip(entries, shares, strict=True) if e is chosen), 0.0)
        return {
            "id": windows[0].id,
            "answer": chosen.text,
            "start": chosen.start,
            "end": chosen.end,
            "score": score,
            "null_score": null_score,
            "nbest": [
                entry._asdict() | {"score": share}
                for entry, share in zip(entries, shares, strict=True)
            ],
        } | lengths_of(examples)[0]

    def calibrate(
        self, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
    ) -> SpanQA:
        """Return the task with the threshold on `null_score` that maximises F1."""
        if not self.has_unanswerable:
            return self
        always = replace(self, has_unanswerable=False).decode(outputs, examples)
        threshold = squad.fit_threshold(
            [g.answers for g in gold],
            [prediction["answer"] for prediction in always],
            [prediction["null_score"] for prediction in always],
        )
        return replace(self, null_threshold=threshold)

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Return the metrics of SQuAD, in percent; those of v2.0 if a question has no answer."""
        scores: list[Any] = [prediction.get("null_score") for prediction in predictions]
        metrics = squad.squad_metrics(
            [g.answers for g in gold],
            [prediction["answer"] for prediction in predictions],
            None if None in scores else scores,
        )
        if self.has_unanswerable:
            # If all rows have an answer, no threshold is better than answering all.
            metrics.setdefault("best_f1", metrics["f1"])
        return metrics


def _lengths(task: SpanQA, max_length: int) -> dict[str, int]:
    """Return the lengths of windows, as `Tokenizer.windows` takes them."""
    return {"max_length": max_length, "stride": task.stride, "max_first": task.max_question_length}


TASK = SpanQA
