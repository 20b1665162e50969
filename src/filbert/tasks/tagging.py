"""Tagging: one tag for every word of a sentence, and the entities that the tags make.

T tokens in the batch, K words in it, C tags. A word is judged by its first token (Devlin et al.
2019, section 5.3). A sentence that is too long is read in overlapping windows, and every word is
judged in the window that shows the most around it; so nothing is cut, and no word counts twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data import tags as schemes
from filbert.data.columns import ColumnNames
from filbert.data.conll import Window, place_of, read_sentences, sentence_of, spread, stride_of
from filbert.data.examples import Example
from filbert.data.findings import Finding
from filbert.data.labels import listed
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.data.tags import Gold
from filbert.data.texts import Text
from filbert.errors import ConfigError, InputError
from filbert.metrics.entities import entities_of, entity_metrics
from filbert.model.config import EncoderConfig
from filbert.model.heads import Head, new_head
from filbert.tasks.base import Column, Prediction, Targets, TaskOptions, refuse_cleaning
from filbert.text.tokenizer import Tokenizer

COLUMNS = (
    Column("tokens", False, "the words of a sentence: a list of texts"),
    Column("tags", False, "one tag for every word: O, B-TYPE or I-TYPE, or plain ones: NOUN"),
    Column("text", False, "or the sentence as one text"),
    Column("spans", False, "with its labelled characters: [{start, end, label}]"),
)

_TAGS = "a sentence has a tag for every word"
# A word without any letter, digit or printable ASCII: only such ones may vanish in a tokenizer.
_VANISHING = re.compile(r"[^\w!-~]*")


@dataclass(frozen=True)
class Tagging:
    """A tag for every word.

    Attributes:
        labels: the tags by id; None until `fit_labels`.
        repair_tags: read IOB1 and IOBES tags, and mend broken ones, instead of refusing them.
        declared: whether the labels were given by the user rather than found in the rows.
    """

    labels: tuple[str, ...] | None = None
    repair_tags: bool = False
    declared: bool = False

    def __post_init__(self) -> None:
        if self.labels is not None:
            kinds = [schemes.split_tag(label) for label in self.labels]
            if len(set(kinds)) < len(kinds):
                raise ValueError(f"the labels {listed(self.labels)} name one tag twice")

    name = "tagging"
    columns = COLUMNS
    head_kind = "tokens"
    problem_type = None
    labels_are_classes = False
    windows = True
    selection_metric = "f1"
    metric_names = ("f1", "precision", "recall", "accuracy")
    loss_names = ("loss",)
    whole_batch = False

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> Tagging:
        """A task that has seen no row; the user's labels may be entity types or tags."""
        refuse_cleaning(options, "tags are for the words as they stand")
        names.refuse_label_columns(_TAGS)
        labels = options.labels
        if not labels:
            return cls(repair_tags=options.repair_tags)
        are_tags = any(label == "O" or label.startswith(("B-", "I-")) for label in labels)
        try:
            if are_tags:
                schemes.check_tag_names(labels)
            return cls(
                labels if are_tags else schemes.tag_names(labels),
                repair_tags=options.repair_tags,
                declared=True,
            )
        except ValueError as error:
            raise ConfigError(
                f"--labels: {error}. Name the entity types, as in person,place, or all tags, "
                "as in O,B-person,I-person."
            ) from error

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Tagging:
        """The task that filbert.json describes.

        Raises:
            ValueError, TypeError: it cannot be one.
        """
        labels = content.get("labels")
        return cls(
            None if labels is None else tuple(labels),
            bool(content.get("repair_tags", False)),
            bool(content.get("declared", False)),
        )

    def to_dict(self) -> dict[str, Any]:
        """For filbert.json."""
        return {"name": self.name, **asdict(self)}

    @property
    def num_labels(self) -> int | None:
        """C; None until `fit_labels`."""
        return len(self.labels) if self.labels else None

    @property
    def types(self) -> list[str]:
        """The entity types of the labels, in order."""
        kinds = (schemes.split_tag(label)[1] for label in self.labels or ())
        return [kind for kind in dict.fromkeys(kinds) if kind]

    # Rows

    def read(
        self,
        path: str | Path,
        names: ColumnNames,
        *,
        labelled: bool = True,
        on_error: OnError | None = None,
    ) -> Iterator[Row]:
        """CoNLL columns, or rows with tokens or a text."""
        return read_sentences(path, names, labelled=labelled, on_error=on_error)

    def row(self, item: Any, index: int) -> Row:
        """The row of a text, of a list of words, or of a mapping with `text` or `tokens`."""
        if isinstance(item, str):
            item = {"text": item}
        elif isinstance(item, list | tuple):
            item = {"tokens": list(item)}
        if not isinstance(item, Mapping):
            kind = type(item).__name__
            raise InputError(f"Item {index} is a {kind}; a text or a list of words is wanted.")
        values = {column.name: item[column.name] for column in COLUMNS if column.name in item}
        row = Row(values, "texts", index + 1)
        sentence_of(row)
        return row

    def sequences(self, row: Row) -> list[Text]:
        """The text, or the words joined by spaces."""
        tokens, text = row.values.get("tokens"), row.values.get("text")
        # Without finding the words, which takes ten times as long.
        if isinstance(tokens, list) and all(isinstance(word, str) for word in tokens):
            return [" ".join(tokens)]
        return [text if tokens is None and isinstance(text, str) else sentence_of(row).text]

    def labels_of(self, row: Row) -> list[str]:
        """The type of every entity in the row."""
        return [kind for kind, _, _ in entities_of(self.gold(row).tags)]

    def gold(self, row: Row) -> Gold:
        """The wanted tags of a row, in BIO."""
        sentence = sentence_of(row)
        found = schemes.tags_of(row, sentence, repair=self.repair_tags)
        if self.labels is not None:
            known = set(map(schemes.form_of, self.labels))
            for index, tag in enumerate(found):
                alone, kind = schemes.form_of(tag)
                if (alone, kind) not in known:
                    named = f"entity type {kind!r}" if kind and not alone else f"tag {tag!r}"
                    raise InputError(
                        f"{place_of(row, index)}: {named} is not one of {listed(self.types)}. Fix "
                        "the row; when training, --labels declares one that no row has."
                    )
        return Gold(found, sentence, row.where)

    def gold_json(self, gold: Gold) -> list[str]:
        """The tags."""
        return gold.tags

    def fit_labels(self, rows: Iterable[Row]) -> Tagging:
        """The tags of all entity types in the rows, unless they were declared."""
        rows = list(rows)
        found, alone = schemes.kinds_in(map(replace(self, labels=None).gold, rows))
        if not found:
            raise InputError("The training rows hold no entity at all; every tag is O.")
        kinds = self.types if self.declared else sorted(found)
        names = schemes.tag_names(kinds, alone=alone)
        fitted = self if self.declared and not alone else replace(self, labels=names)
        for row in rows if self.declared else ():
            fitted.gold(row)
        return fitted

    def findings(
        self, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """Tags that break BIO, spans that get no word, and words that get no token."""
        suspects = []
        for row in rows:
            try:
                sentence = sentence_of(row)
                yield from schemes.tag_findings(row, sentence, repair=self.repair_tags)
            except InputError:
                continue  # a bad row, and counted as one
            if any(map(_VANISHING.fullmatch, sentence.words)):
                suspects.append((row, sentence))
        if tokenizer is None or not suspects:
            return
        found = tokenizer.windows(
            [s.text for _, s in suspects], max_length=max_length, stride=stride_of(max_length)
        )
        for (row, sentence), encodings in zip(suspects, found, strict=True):
            for index in np.flatnonzero(spread(sentence, encodings)[0].leaders < 0).tolist():
                message = "Words that the tokenizer drops; their tag is always O."
                place = place_of(row, index)
                yield Finding("note", "word_without_token", message, place)

    # Training

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """The windows of every sentence; the target is an id for each word that a window judges."""
        sentences = [sentence_of(row) for row in rows]
        texts = [sentence.text for sentence in sentences]
        found = tokenizer.windows(texts, max_length=max_length, stride=stride_of(max_length))
        examples = []
        for index, (row, sentence, encodings) in enumerate(
            zip(rows, sentences, found, strict=True)
        ):
            wanted = self._ids(row) if with_targets else None
            for encoding, window in zip(encodings, spread(sentence, encodings), strict=True):
                example = Example(
                    index,
                    encoding.input_ids,
                    encoding.token_type_ids,
                    len(encoding.input_ids),
                    None if wanted is None else wanted[window.words],
                    window,
                    window.num_tokens,
                )
                examples.append(example)
        return examples

    def _ids(self, row: Row) -> np.ndarray:
        """Ids of the tags of a row's words, int64 (n,)."""
        assert self.labels is not None
        ids = {label: number for number, label in enumerate(self.labels)}
        tags = self.gold(row).tags
        for index, tag in enumerate(tags):
            if tag not in ids:
                raise InputError(
                    f"{place_of(row, index)}: tag {tag!r} is not one of "
                    f"{listed(self.labels)}. Fix the row; when training, --labels declares one "
                    "that no row has."
                )
        return np.array([ids[tag] for tag in tags], dtype=np.int64)

    def head(self, config: EncoderConfig) -> Head:
        """A fresh linear layer on every token."""
        return new_head(self.head_kind, config, self.num_labels)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Ids of the tags, int64 (K,), and the tokens that shall say them, int64 (K,)."""
        starts = accumulate((len(e.input_ids) for e in examples), initial=0)
        at = [start + e.source.rows for start, e in zip(starts, examples, strict=False)]
        values = np.concatenate([e.target for e in examples])
        return Targets(torch.from_numpy(values), torch.from_numpy(np.concatenate(at)))

    def count(self, targets: Targets) -> float:
        """K: every word is a loss of its own."""
        return float(targets.values.numel())

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Sum of the cross-entropies of logits (K, C)."""
        return F.cross_entropy(output.float(), targets.values, reduction="sum")

    # Prediction

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """Words, their tags in BIO, and entities, of every sentence; outputs are (n, C).

        The likeliest tag of each word, with I-X read as B-X where it continues nothing. An entity's
        score is the mean probability of its words' tags, and its text goes from the first character
        of its first word to the last of its last.
        """
        predictions = []
        pairs = zip(outputs, examples, strict=True)
        for _, windows in groupby(pairs, key=lambda pair: pair[1].row):
            predictions.append(self._answer(list(windows)))
        return predictions

    def _answer(self, windows: Sequence[tuple[Tensor, Example]]) -> Prediction:
        assert self.labels is not None
        source: Window = windows[0][1].source
        sentence = source.sentence
        chosen = np.zeros(len(sentence.words), dtype=np.int64)
        sure = np.ones(len(sentence.words))
        for output, example in windows:
            shown: Window = example.source
            logits = output[torch.from_numpy(shown.rows)].double()
            best, ids = torch.softmax(logits, -1).max(-1)
            chosen[shown.words] = ids.cpu().numpy()
            sure[shown.words] = best.cpu().numpy()
        alone = source.leaders == np.arange(len(chosen))
        found = schemes.to_bio([self.labels[number] for number in chosen[alone].tolist()])
        tags = schemes.spread_tags(found, source.leaders.tolist())
        for index in np.flatnonzero(~alone):
            leader = source.leaders[index]
            sure[index] = sure[leader] if leader >= 0 else sure[max(0, index - 1)]
        entities = []
        for kind, first, behind in entities_of(tags):
            start, end = int(sentence.starts[first]), int(sentence.ends[behind - 1])
            entities.append(
                {
                    "label": kind,
                    "start": start,
                    "end": end,
                    "text": sentence.text[start:end],
                    "score": float(sure[first:behind].mean()),
                }
            )
        return {
            "tokens": sentence.words,
            "tags": tags,
            "entities": entities,
            "truncated": any(example.truncated for _, example in windows),
            "num_tokens": source.num_tokens,
        }

    def calibrate(
        self, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
    ) -> Tagging:
        """The same task: it has no thresholds."""
        return self

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """The figures of `entity_metrics`.

        Raises:
            InputError: a prediction from elsewhere does not fit the words of its row.
        """
        given = [schemes.answered_tags(g, p) for g, p in zip(gold, predictions, strict=True)]
        return entity_metrics([wanted.tags for wanted in gold], given)

    def files(
        self, gold: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, dict[str, Any]]:
        """None."""
        return {}

    # Evaluation of rows and predictions from elsewhere

    def reading(self, names: ColumnNames) -> Tagging:
        """The same task: rows say by their columns what they hold."""
        names.refuse_label_columns(_TAGS)
        return self

    def with_labels_of(
        self, rows: Iterable[Row], predictions: Iterable[Mapping[str, Any]]
    ) -> Tagging:
        """The tags of all types in either, unless they were declared."""
        if self.declared:
            return self
        fresh = replace(self, labels=None)
        found, alone = schemes.kinds_in(map(fresh.gold, rows))
        for index, prediction in enumerate(predictions):
            answer = fresh.check_prediction(prediction, f"prediction {index + 1}")
            found |= schemes.types_in(answer)
        return replace(self, labels=schemes.tag_names(sorted(found), alone=alone))

    def check_prediction(self, prediction: Mapping[str, Any], where: str) -> Prediction:
        """A prediction with `tags` (of any scheme), or with `entities` by offsets."""
        answer = schemes.check_answer(prediction, where)
        unknown = (
            sorted(schemes.types_in(answer) - set(self.types)) if self.labels is not None else []
        )
        if unknown:
            raise InputError(
                f"{where}: entity type {unknown[0]!r} is not one of {listed(self.types)}."
            )
        return answer


TASK = Tagging
