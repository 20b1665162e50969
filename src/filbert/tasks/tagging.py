"""Tagging: one tag for every word of a sentence, and the entities that the tags make.

T tokens in the batch, K words in it, C tags. The first token of a word predicts its tag (Devlin et
al. 2019, section 5.3). A sentence that is too long is read in overlapping windows, and every word
is predicted in the window with the most context around it; nothing is cut, and no word counts
twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data import tags as schemes
from filbert.data.columns import ColumnNames
from filbert.data.conll import (
    SentenceWindow,
    place_of,
    read_sentences,
    sentence_of,
    spread,
    stride_of,
)
from filbert.data.examples import Example, lengths_of
from filbert.data.labels import listed
from filbert.data.records import Finding, Row
from filbert.data.tags import GoldTags
from filbert.errors import ConfigError, InputError
from filbert.metrics.entities import entities_of, entity_metrics
from filbert.tasks.base import (
    Prediction,
    RowFormat,
    RowSource,
    Targets,
    Task,
    TaskOptions,
    TaskSpec,
    changed,
    refuse_cleaning,
    uncalibrated,
)
from filbert.tasks.rows import packed_rows
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Text, Tokenizer

# A word without any letter, digit or printable ASCII: only such ones may vanish in a tokenizer.
_VANISHING = re.compile(r"[^\w!-~]*")


def entity_types(spec: TaskSpec) -> list[str]:
    """Return the entity types among the labels, each once."""
    kinds = (schemes.split_tag(label)[1] for label in spec.labels or ())
    return [kind for kind in dict.fromkeys(kinds) if kind]


class Sentences(RowFormat):
    """Sentences with a tag for every word, or with spans of characters."""

    name = "sentences"
    no_label_columns = "a sentence has a tag for every word"

    def read(self, spec: TaskSpec, source: RowSource) -> Iterator[Row]:
        """Yield sentences of a CoNLL file, or one in each row."""
        path, names, labelled, on_error = source
        return read_sentences(path, names, labelled=labelled, on_error=on_error)

    def from_value(self, value: Any, index: int) -> Row:
        """Return the row of a text, of a list of words, or of a mapping with `text` or `tokens`."""
        if isinstance(value, str):
            value = {"text": value}
        elif isinstance(value, list | tuple):
            value = {"tokens": list(value)}
        if not isinstance(value, Mapping):
            kind = type(value).__name__
            raise InputError(f"Item {index} is a {kind}; a text or a list of words is expected.")
        columns = ("tokens", "tags", "text", "spans")
        row = Row({name: value[name] for name in columns if name in value}, "texts", index + 1)
        sentence_of(row)
        return row

    def texts(self, row: Row, clean: Cleaning | None) -> list[Text]:
        """Return the text, or the words joined by spaces."""
        tokens, text = row.values.get("tokens"), row.values.get("text")
        # Without splitting into words, which takes ten times as long.
        if isinstance(tokens, list) and all(isinstance(word, str) for word in tokens):
            return [" ".join(tokens)]
        return [text if tokens is None and isinstance(text, str) else sentence_of(row).text]

    def labels(self, task: Task, row: Row) -> list[str]:
        """Return the type of each entity in the sentence."""
        return [kind for kind, _, _ in entities_of(task.gold(row).tags)]

    def gold_json(self, spec: TaskSpec, gold: GoldTags) -> Any:
        """Return the tags."""
        return gold.tags

    def with_labels(self, task: Task, rows: Sequence[Row], answers: Sequence[Row]) -> Task:
        """Return the task with the entity types of rows and predictions."""
        if task.spec.labels is not None:
            return task
        types, alone = schemes.kinds_in(map(task.gold, rows))
        for answer in answers:
            types |= schemes.types_in(schemes.check_answer(answer.values, answer.where))
        return changed(task, labels=schemes.tag_names(sorted(types), alone=alone))

    def complete(self, spec: TaskSpec, row: Row, answer: Row) -> Prediction:
        """Return `tags` (of any scheme), or `entities` by offsets."""
        prediction = schemes.check_answer(answer.values, answer.where)
        types = entity_types(spec)
        unknown = sorted(schemes.types_in(prediction) - set(types))
        if unknown:
            kind = f"entity type {unknown[0]!r}"
            raise InputError(f"{answer.where}: {kind} is not one of {listed(types)}.")
        return prediction

    def findings(
        self, task: Task, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """Yield tags that break BIO, spans that get no word, and words that get no token."""
        suspects = []
        for row in rows:
            sentence = sentence_of(row)
            yield from schemes.tag_findings(row, sentence)
            if any(map(_VANISHING.fullmatch, sentence.words)):
                suspects.append((row, sentence))
        if tokenizer is None or not suspects:
            return
        texts = [sentence.text for _, sentence in suspects]
        pieces = tokenizer.windows(texts, max_length=max_length, stride=stride_of(max_length))
        for (row, sentence), encodings in zip(suspects, pieces, strict=True):
            for index in np.flatnonzero(spread(sentence, encodings)[0].leaders < 0).tolist():
                message = "Words that the tokenizer drops; their tag is always O."
                yield Finding("note", "word_without_token", message, place_of(row, index))


SENTENCES = Sentences()


@dataclass(frozen=True)
class Tagging:
    """A tag for every word.

    Attributes:
        labels: the tags by id; None until `fit`.
        repair_tags: read IOB1 and IOBES tags, and repair broken ones, instead of refusing them.
        declared: whether the labels were given by the user rather than read from the rows.
    """

    labels: tuple[str, ...] | None = None
    repair_tags: bool = False
    declared: bool = False

    def __post_init__(self) -> None:
        if self.labels is not None:
            kinds = [schemes.split_tag(label) for label in self.labels]
            if len(set(kinds)) < len(kinds):
                raise ValueError(f"the labels {listed(self.labels)} name one tag twice")

    @cached_property
    def spec(self) -> TaskSpec:
        """The best step is chosen by the F1 of whole entities."""
        return TaskSpec(
            name="tagging",
            row_format=SENTENCES,
            head_kind="tokens",
            metric_names=("f1", "precision", "recall", "accuracy"),
            selection_metric="f1",
            num_labels=len(self.labels) if self.labels else None,
            labels=self.labels,
            on_overflow="window",
        )

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> Tagging:
        """Create a task from options, before any row is read."""
        refuse_cleaning(options, "tags are for the words as written")
        labels = options.labels
        if not labels:
            return cls(repair_tags=options.repair_tags)
        are_tags = any(label == "O" or label.startswith(("B-", "I-")) for label in labels)
        try:
            if are_tags:
                schemes.check_tag_names(labels)
            tags = labels if are_tags else schemes.tag_names(labels)
            return cls(tags, repair_tags=options.repair_tags, declared=True)
        except ValueError as error:
            raise ConfigError(
                f"--labels: {error}. Name the entity types, as in person,place, or all tags, "
                "as in O,B-person,I-person."
            ) from error

    def fit(self, rows: Iterable[Row]) -> Tagging:
        """Take the tags of all entity types in the rows, unless they were declared."""
        rows = list(rows)
        types, alone = schemes.kinds_in(map(replace(self, labels=None).gold, rows))
        if not types:
            raise InputError("The training rows hold no entity at all; every tag is O.")
        kinds = entity_types(self.spec) if self.declared else sorted(types)
        names = schemes.tag_names(kinds, alone=alone)
        fitted = self if self.declared and not alone else replace(self, labels=names)
        for row in rows if self.declared else ():
            fitted.gold(row)
        return fitted

    def gold(self, row: Row) -> GoldTags:
        """Return the expected tags of a row, in BIO."""
        sentence = sentence_of(row)
        tags = schemes.tags_of(row, sentence, repair=self.repair_tags)
        for index, tag in enumerate(tags):
            if self.labels is not None and tag not in self.labels:
                raise InputError(
                    f"{place_of(row, index)}: tag {tag!r} is not one of {listed(self.labels)}. "
                    "Fix the row, or train a model with it: finetune --labels declares tags."
                )
        return GoldTags(tags, sentence, row.where)

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """Return the windows of every sentence; targets are the ids of the words it predicts.

        The target of a window is int64 (n,).
        """
        sentences = [sentence_of(row) for row in rows]
        texts = [sentence.text for sentence in sentences]
        pieces = tokenizer.windows(texts, max_length=max_length, stride=stride_of(max_length))
        numbers = {label: number for number, label in enumerate(self.labels or ())}
        examples = []
        for i, (row, sentence, encodings) in enumerate(zip(rows, sentences, pieces, strict=True)):
            tags = self.gold(row).tags if with_targets else []
            ids = np.array([numbers[tag] for tag in tags], dtype=np.int64)
            whole = encodings[-1].start + encodings[-1].num_tokens
            for encoding, window in zip(encodings, spread(sentence, encodings), strict=True):
                target = ids[window.words] if with_targets else None
                example = Example.of(i, encoding, target=target, source=window, row_tokens=whole)
                examples.append(example)
        return examples

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return ids of the tags, int64 (K,), and the tokens that predict them, int64 (K,)."""
        values = np.concatenate([e.target for e in examples])
        at = packed_rows(examples, (e.source.rows for e in examples))
        return Targets(torch.from_numpy(values), at)

    def count(self, targets: Targets) -> float:
        """Return K: every word is a loss of its own."""
        return float(targets.values.numel())

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Return the sum of the cross-entropies of logits (K, C)."""
        return F.cross_entropy(output.float(), targets.values, reduction="sum")

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """Return words, their tags in BIO, and entities, of every sentence; outputs are (n, C).

        The likeliest tag of each word, with I-X read as B-X where it continues nothing. An entity's
        score is the mean probability of its words' tags, and its text goes from the first character
        of its first word to the last of its last.
        """
        pairs = zip(outputs, examples, strict=True)
        rows = groupby(pairs, key=lambda pair: pair[1].row)
        return [self._answer(list(windows)) for _, windows in rows]

    def _answer(self, windows: Sequence[tuple[Tensor, Example]]) -> Prediction:
        source: SentenceWindow = windows[0][1].source
        sentence = source.sentence
        tags, probabilities = self._tags(windows)
        entities = []
        for kind, first, behind in entities_of(tags):
            start, end = int(sentence.starts[first]), int(sentence.ends[behind - 1])
            entities.append(
                {
                    "label": kind,
                    "start": start,
                    "end": end,
                    "text": sentence.text[start:end],
                    "score": float(probabilities[first:behind].mean()),
                }
            )
        return {
            "tokens": sentence.words,
            "tags": tags,
            "entities": entities,
        } | lengths_of([example for _, example in windows])[0]

    def _tags(self, windows: Sequence[tuple[Tensor, Example]]) -> tuple[list[str], np.ndarray]:
        """Return the tag of every word of a sentence, and its probability."""
        assert self.labels is not None
        source: SentenceWindow = windows[0][1].source
        ids = np.zeros(len(source.sentence.words), dtype=np.int64)
        probabilities = np.ones(len(ids))
        for output, example in windows:
            window: SentenceWindow = example.source
            logits = output[torch.from_numpy(window.rows)].double()
            best, best_ids = torch.softmax(logits, -1).max(-1)
            ids[window.words] = best_ids.cpu().numpy()
            probabilities[window.words] = best.cpu().numpy()
        # Words without a token of their own follow their leader.
        alone = source.leaders == np.arange(len(ids))
        led = schemes.to_bio([self.labels[number] for number in ids[alone].tolist()])
        for index in np.flatnonzero(~alone):
            leader = source.leaders[index]
            probabilities[index] = probabilities[leader if leader >= 0 else max(0, index - 1)]
        return schemes.spread_tags(led, source.leaders.tolist()), probabilities

    calibrate = uncalibrated

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Return the metrics of `entity_metrics`."""
        given = [schemes.answered_tags(g, p) for g, p in zip(gold, predictions, strict=True)]
        return entity_metrics([expected.tags for expected in gold], given)


TASK = Tagging
