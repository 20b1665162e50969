"""Question answering: the span of a context that answers a question, or that there is none.

T tokens in the batch, S sequences (windows), L the longest, Q questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data import squad as spans
from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.findings import Finding
from filbert.data.records import Row
from filbert.data.squad import question_place, question_row, read_questions
from filbert.data.streams import OnError
from filbert.data.texts import Text
from filbert.errors import ConfigError, InputError
from filbert.metrics import squad
from filbert.model.config import EncoderConfig
from filbert.model.heads import Head, new_head
from filbert.tasks.base import Column, Prediction, Targets, TaskOptions, refuse_cleaning
from filbert.text.tokenizer import Tokenizer

COLUMNS = (
    Column("id", False, "names the question in files of predictions; its number when not given"),
    Column("question", True, "the question"),
    Column("context", True, "the text that answers it"),
    Column("answers", True, 'a list of {"text", "answer_start"}; empty: there is no answer'),
)

_COUNTS = ("stride", "max_question_length", "max_answer_length", "n_best")


class Gold(NamedTuple):
    """The wanted answers of a question: their texts, none where the context holds no answer."""

    id: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class SpanQA:
    """Answers cut out of the context.

    Attributes:
        stride: tokens from the start of one window over a long context to the next.
        max_question_length: tokens that are kept of a question.
        max_answer_length: longest answer, in tokens.
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
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is {value!r}, not a whole number")
            if value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} is {value}; give at least 1.")
        if not isinstance(self.has_unanswerable, bool):
            raise TypeError(f"has_unanswerable is {self.has_unanswerable!r}")
        if not isinstance(self.null_threshold, int | float) or not np.isfinite(self.null_threshold):
            raise ValueError(f"null_threshold is {self.null_threshold!r}, not a finite number")

    name = "span_qa"
    columns = COLUMNS
    head_kind = "spans"
    num_labels = None
    labels = None
    problem_type = None
    labels_are_classes = False
    windows = True
    id_column = "id"
    selection_metric = "f1"
    loss_names = ("loss",)
    metric_whole = 100.0
    whole_batch = False

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The figures that a best step can be chosen by, in percent."""
        return ("exact_match", "f1", *(["best_f1"] if self.has_unanswerable else []))

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> SpanQA:
        """A task that knows what the user said and no row yet."""
        refuse_cleaning(options, "answers are places in the text as it stands")
        return cls(**{name: getattr(options, name) for name in _COUNTS}).reading(names)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> SpanQA:
        """The task that filbert.json describes.

        Raises:
            ValueError, TypeError, ConfigError: it cannot be one.
        """
        return cls(**{f: content[f] for f in cls.__dataclass_fields__ if f in content})

    def to_dict(self) -> dict[str, Any]:
        """For filbert.json."""
        return {"name": self.name, **asdict(self)}

    # Rows

    def read(
        self,
        path: str | Path,
        names: ColumnNames,
        *,
        labelled: bool = True,
        on_error: OnError | None = None,
    ) -> Iterator[Row]:
        """The questions of a SQuAD file, or of rows with these columns; see `data.squad`."""
        return read_questions(path, names, labelled=labelled, on_error=on_error)

    def row(self, item: Any, index: int) -> Row:
        """From a (question, context) pair, or a mapping with both and maybe `id`."""
        return question_row(item, index)

    def sequences(self, row: Row) -> list[Text]:
        """One pair: the question and the whole context."""
        return [(row.values["question"], row.values["context"])]

    def fit_labels(self, rows: Iterable[Row]) -> SpanQA:
        """See whether there are questions without answer."""
        found = {label for row in rows for label in self.labels_of(row)}
        return replace(self, has_unanswerable="unanswerable" in found)

    def labels_of(self, row: Row) -> list[str]:
        """Whether the question is answerable; for counting only."""
        return ["answerable" if self._answers(row) else "unanswerable"]

    def gold(self, row: Row) -> Gold:
        """Id and answers."""
        return Gold(row.values["id"], tuple(answer["text"] for answer in self._answers(row)))

    def gold_json(self, gold: Any) -> list[str]:
        """The answers."""
        return list(gold.answers)

    def _answers(self, row: Row) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] | None = row.values.get("answers")
        if found is None:
            raise InputError(f"{question_place(row)}: no answers. Give a list, maybe empty.")
        return found

    def findings(
        self, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """Answers that are not at their offset or out of reach, and long questions."""
        cutting = None if tokenizer is None else self._cutting(tokenizer, max_length)
        return spans.question_findings(rows, cutting, self.max_answer_length)

    def _cutting(self, tokenizer: Tokenizer, max_length: int) -> spans.Cutting:
        return spans.Cutting(tokenizer, max_length, self.stride, self.max_question_length)

    # Training

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """One sequence a window; its target is (start, end), places in the sequence.

        The target is the shortest run of tokens that holds the first answer's characters; (0, 0)
        where there is no answer, or the window does not hold all of it.

        Raises:
            InputError: a question leaves no room for its context, or (with targets) an answer is
                not at its offset; with file, line and id.
        """
        made = []
        encoded = spans.cut_up(rows, self._cutting(tokenizer, max_length))
        for index, (row, encodings, windows) in enumerate(encoded):
            tokens = None
            if with_targets and self._answers(row):
                tokens = spans.wanted_tokens(row, windows[0].question)
            for window, encoding in zip(windows, encodings, strict=True):
                target = spans.place_in(window, tokens) if with_targets else None
                made.append(
                    Example(
                        row=index,
                        input_ids=encoding.input_ids,
                        token_type_ids=encoding.token_type_ids,
                        num_tokens=encoding.num_tokens,
                        target=target,
                        source=window,
                        row_tokens=window.question.num_tokens,
                    )
                )
        return made

    def head(self, config: EncoderConfig) -> Head:
        """A fresh start and end score per token."""
        return new_head(self.head_kind, config)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """int64 (S, 2), places of start and end; groups are the sequences' lengths."""
        values = torch.tensor([example.target for example in examples], dtype=torch.int64)
        lengths = tuple(len(example.input_ids) for example in examples)
        return Targets(values.reshape(len(examples), 2), groups=lengths)

    def count(self, targets: Targets) -> float:
        """S: every window is a loss of its own."""
        return float(len(targets.values))

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Sum over windows of the mean of two cross-entropies, of start and of end.

        Args:
            output: logits (T, 2), the sequences end to end.
            targets: see `targets`.
        """
        assert targets.groups is not None
        lengths = np.asarray(targets.groups)
        count, longest = len(lengths), int(lengths.max())
        # Places beyond a sequence's own tokens have the probability exp(-inf) = 0 and no gradient.
        skipped = np.arange(count) * longest - (np.cumsum(lengths) - lengths)
        places = np.arange(lengths.sum()) + np.repeat(skipped, lengths)
        at = torch.from_numpy(places).to(output.device, non_blocking=True)
        logits = output.new_full((count * longest, 2), -torch.inf, dtype=torch.float32)
        logits = logits.index_copy(0, at, output.float()).view(count, longest, 2)
        return F.cross_entropy(logits, targets.values, reduction="sum") / 2

    # Prediction

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """One answer a question, cut out of its context, with what else came into question.

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
        question = windows[0].question
        candidates = spans.best_spans(
            windows, logits, n_best=self.n_best, max_length=self.max_answer_length
        )
        entries = spans.different_texts(question, candidates, self.n_best)
        null = spans.Answer("", None, None, *spans.null_logits(logits))
        best = chosen = entries[0] if entries else null
        null_score = null.total - (0.0 if best is null else best.total)
        if self.has_unanswerable:
            entries = spans.with_null(entries, null, self.n_best)
            if null_score > self.null_threshold:
                chosen = null
        shares = spans.shares(entries)
        score = next((s for e, s in zip(entries, shares, strict=True) if e is chosen), 0.0)
        return {
            "id": question.id,
            "answer": chosen.text,
            "start": chosen.start,
            "end": chosen.end,
            "score": score,
            "null_score": null_score,
            "nbest": [
                entry._asdict() | {"score": share}
                for entry, share in zip(entries, shares, strict=True)
            ],
            "truncated": any(example.truncated for example in examples),
            "num_tokens": question.num_tokens,
        }

    def calibrate(
        self, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
    ) -> SpanQA:
        """The threshold on `null_score` that maximises F1; nothing where all have an answer."""
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
        """The figures of INTERFACE, in percent; those of v2.0 if a question has no answer."""
        scores: list[Any] = [prediction.get("null_score") for prediction in predictions]
        found = squad.squad_metrics(
            [g.answers for g in gold],
            [prediction["answer"] for prediction in predictions],
            None if None in scores else scores,
        )
        # Rows that can all be answered have no other best.
        return found | {k: found.get(k, found["f1"]) for k in self.metric_names[2:]}

    def metrics_by_id(
        self,
        gold: Sequence[Gold],
        answers: Mapping[str, str],
        no_answer: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """The same from SQuAD's own files; a question without prediction scores 0.

        Raises:
            InputError: no prediction is for any of the questions, or a no-answer score is missing.
        """
        index = {g.id: i for i, g in enumerate(gold)}
        if not any(id in index for id in answers):
            raise InputError(
                f"None of the {len(answers)} predictions is for one of the {len(gold)} questions: "
                "no id is in both files. Do they belong together?"
            )
        lacking = [id for id in answers if id in index and id not in (no_answer or answers)]
        if lacking:
            raise InputError(
                f"{len(lacking)} predictions have no no-answer score, first {lacking[0]!r}."
            )
        return squad.squad_metrics(
            [g.answers for g in gold],
            [answers.get(g.id) for g in gold],
            None if no_answer is None else [no_answer.get(g.id, 0.0) for g in gold],
            order=[index[id] for id in no_answer or answers if id in index],
            limit=squad.SCRIPT_LIMIT,
        )

    def files(
        self, gold: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, dict[str, Any]]:
        """What run_squad.py leaves, as far as the predictions say it."""
        pairs = [(g.id, p) for g, p in zip(gold, predictions, strict=True)]
        return {
            "predictions.json": {key: p["answer"] for key, p in pairs},
            "nbest_predictions.json": {
                key: _published(p["nbest"]) for key, p in pairs if "nbest" in p
            },
            "null_odds.json": {
                key: p["null_score"] for key, p in pairs if p.get("null_score") is not None
            },
        }

    # Evaluation of rows and predictions from elsewhere

    def reading(self, names: ColumnNames) -> SpanQA:
        """The same."""
        names.refuse_label_columns("a question is answered by a place in a text")
        return self

    def with_labels_of(
        self, rows: Iterable[Row], predictions: Iterable[Mapping[str, Any]]
    ) -> SpanQA:
        """The same: answers are no labels."""
        return self

    def check_prediction(self, prediction: Mapping[str, Any], where: str) -> Prediction:
        """A prediction with `answer` (or `prediction_text`) and maybe `null_score`.

        `no_answer_probability` serves as `null_score`.
        """
        found = dict(prediction)
        answer = found.get("answer", found.pop("prediction_text", None))
        if not isinstance(answer, str):
            raise InputError(
                f'{where}: a prediction needs "answer" (or "prediction_text"), a text; "" says '
                "that there is no answer."
            )
        score = found.get("null_score", found.pop("no_answer_probability", None))
        if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
            raise InputError(f'{where}: "null_score" is not a number.')
        if score is not None and not np.isfinite(score):
            raise InputError(f'{where}: "null_score" is {score}; give a finite number.')
        return found | {"answer": answer} | ({} if score is None else {"null_score": float(score)})


def _published(nbest: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Under run_squad.py's keys."""
    kept = ("text", "start_logit", "end_logit")
    return [{key: e[key] for key in kept} | {"probability": e["score"]} for e in nbest]


TASK = SpanQA
