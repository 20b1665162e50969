"""One file, as the data doctor reads it: rows go by, and only numbers stay."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from filbert.data.findings import Finding, Findings, Lengths, Level, Split
from filbert.data.judge import Judge
from filbert.data.records import Row
from filbert.data.squad import question_place
from filbert.data.streams import shown
from filbert.data.texts import Text, holds_text
from filbert.errors import InputError
from filbert.text.tokenizer import Tokenizer

# Shares from which cutting and unknown tokens are a warning and no longer a note.
TRUNCATED_SHARE = 0.05
UNKNOWN_SHARE = 0.01

# Rows that are tokenised and judged at once.
_CHUNK_ROWS = 1024
_CHUNK_CHARACTERS = 2**20

_QUANTILES = (50, 90, 95, 99)

_NO_TEXT = ("empty_text", "Rows whose text is empty.")
_EMPTIED = ("emptied_text", "Rows of whose text cleaning leaves nothing.")

# Empty texts are counted by themselves and are no duplicates of each other.
_EMPTY = bytes(16)


@dataclass
class Scan:
    """What is kept of one file while it is read.

    Attributes:
        name, path: of the split.
        judge: the task.
        tokenizer: None counts words.
        max_length: in tokens.
        found: takes the findings.
        digests: 16 bytes for each good row, of all its texts; zeros where they are empty.
        lines: of the good rows.
        lengths: of the good rows' longest sequences, in tokens or words.
        label_sets: for classes, the number of each good row's labels in `sets`.
        sets: sorted labels of a row -> number.
        labels: how often each label was seen.
        label_rows: the first good row that has each label.
        num_sequences: the numbers of sequences that good rows have.
        texts: all texts of each good row, joined by newlines; None where they need not be kept.
        ids: of the good rows, where the judge names a column of them.
        bad_rows, empty: how many rows.
        tokens, unknown: how many tokens, of all sequences.
    """

    name: str
    path: str | Path
    judge: Judge
    tokenizer: Tokenizer | None
    max_length: int
    found: Findings
    digests: bytearray = field(default_factory=bytearray)
    lines: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("i"))
    label_sets: array[int] = field(default_factory=lambda: array("i"))
    sets: dict[tuple[str, ...], int] = field(default_factory=dict)
    labels: Counter[str] = field(default_factory=Counter)
    label_rows: dict[str, int] = field(default_factory=dict)
    num_sequences: set[int] = field(default_factory=set)
    texts: list[str] | None = None
    ids: set[str] = field(default_factory=set)
    bad_rows: int = 0
    empty: int = 0
    tokens: int = 0
    unknown: int = 0

    def bad(self, error: InputError) -> None:
        """Count a row that cannot be used."""
        self.bad_rows += 1
        text = str(error)
        variant = f"{self.name} {_shape(text)}"
        self.found.add("error", "bad_row", "Rows that cannot be used.", text, variant=variant)

    def run(self, found: Iterable[Row], progress: Callable[[int], None] | None = None) -> None:
        """Look at all rows of the file.

        Raises:
            InputError: what reading them raises.
        """
        rows: list[Row] = []
        sequences: list[list[Text]] = []
        characters = seen = 0
        for row in found:
            seen += 1
            try:
                labels = self.judge.labels_of(row)
                texts = self.judge.sequences(row)
            except InputError as error:
                self.bad(error)
            else:
                self.keep_labels(labels)
                characters += self.keep(row, texts)
                rows.append(row)
                sequences.append(texts)
            if seen == _CHUNK_ROWS or characters > _CHUNK_CHARACTERS:
                self.judge_chunk(rows, sequences)
                if progress:
                    progress(seen)
                rows, sequences, characters, seen = [], [], 0, 0
        self.judge_chunk(rows, sequences)
        if progress and seen:
            progress(seen)

    def keep(self, row: Row, texts: list[Text]) -> int:
        """Note the place and the digest of a good row; returns the size of its texts."""
        self.lines.append(row.line)
        self.keep_id(row)
        self.num_sequences.add(len(texts))
        whole = "\0".join([text if isinstance(text, str) else "\0".join(text) for text in texts])
        if self.texts is not None:
            self.texts.append(whole.replace("\0", "\n"))
        # Most texts begin with a word; only the others are looked through.
        if whole[:1].isalnum() or whole.replace("\0", "").strip():
            data = whole.encode("utf-8", "surrogatepass")
            self.digests += hashlib.blake2b(data, digest_size=16).digest()
        else:
            self.empty += 1
            is_emptied = getattr(self.judge, "clean", None) is not None and holds_text(row)
            kind, message = _EMPTIED if is_emptied else _NO_TEXT
            self.found.add("warning", kind, message, row.where)
            self.digests += _EMPTY
        return len(whole)

    def keep_id(self, row: Row) -> None:
        """Note the id by which a row's answer will be known, where there is one."""
        column = getattr(self.judge, "id_column", None)
        if column is None:
            return
        id = row.values[column]
        if id in self.ids:
            message = "Questions with an id that another one has."
            self.found.add("warning", "duplicate_id", message, question_place(row))
        self.ids.add(id)

    def keep_labels(self, labels: list[str]) -> None:
        """Note the labels of the row that is about to be kept."""
        if not self.judge.labels_are_classes:
            # Sentences can hold as many combinations as there are rows: do not keep those.
            for label in labels:
                self.labels[label] += 1
                self.label_rows.setdefault(label, len(self.lines))
            return
        names = tuple(labels) if len(labels) < 2 else tuple(sorted(labels))
        number = self.sets.get(names)
        if number is None:
            number = self.sets[names] = len(self.sets)
            for label in labels:
                self.label_rows.setdefault(label, len(self.lines))
        self.label_sets.append(number)

    def judge_chunk(self, rows: list[Row], sequences: list[list[Text]]) -> None:
        """Measure some good rows, and let the task say what it sees in them."""
        if not rows:
            return
        self.measure(sequences)
        for finding in self.asked(rows):
            self.found.add(*finding)

    def measure(self, sequences: list[list[Text]]) -> None:
        """Note the length of each row's longest sequence."""
        flat = list(chain.from_iterable(sequences))
        if self.tokenizer is None:
            sizes = [
                len(text.split()) if isinstance(text, str) else sum(len(t.split()) for t in text)
                for text in flat
            ]
        else:
            sizes = []
            unknown = self.tokenizer.unk_id
            for encoding in self.tokenizer.encode(flat):
                sizes.append(encoding.num_tokens)
                if unknown is not None:
                    self.unknown += int(np.count_nonzero(encoding.input_ids == unknown))
        self.tokens += sum(sizes)
        if len(sizes) == len(sequences):
            self.lengths.extend(sizes)
            return
        start = 0
        for texts in sequences:
            self.lengths.append(max(sizes[start : start + len(texts)]))
            start += len(texts)

    def asked(self, rows: list[Row]) -> list[Finding]:
        """What the task finds; a row on which it gives up is counted as a bad one too."""
        try:
            return list(self.judge.findings(rows, self.tokenizer, self.max_length))
        except InputError as error:
            if len(rows) == 1:
                self.bad(error)
                return []
        return [finding for row in rows for finding in self.asked([row])]

    def where(self, index: int) -> str:
        """File and line of a good row; and its number among them where several share a line."""
        line = self.lines[index]
        place = f"{shown(self.path)}:{line}"
        alone = line not in (
            *self.lines[max(0, index - 1) : index],
            *self.lines[index + 1 : index + 2],
        )
        return place if alone else f"{place}, row {index + 1}"

    def first_with(self, label: str) -> str:
        """File and line of the first good row with this label."""
        return self.where(self.label_rows[label])

    def truncated(self) -> int | None:
        """How many good rows will be cut; None where that is not known, or none ever is."""
        if self.tokenizer is None or self.judge.windows:
            return None
        return int(np.count_nonzero(np.asarray(self.lengths) > self.max_length))

    def label_counts(self) -> dict[str, int]:
        """How often each label was seen, the most frequent first."""
        counts = self.labels.copy()
        if self.sets:
            per_set = np.bincount(np.asarray(self.label_sets), minlength=len(self.sets))
            for labels, number in self.sets.items():
                for label in labels:
                    counts[label] += int(per_set[number])
        return dict(counts.most_common())

    def judge_lengths(self) -> None:
        """Say how much will be cut, and how much the vocabulary does not know."""
        rows = len(self.lines)
        cut = self.truncated()
        if cut:
            long = np.flatnonzero(np.asarray(self.lengths) > self.max_length)
            level: Level = "warning" if cut > TRUNCATED_SHARE * rows else "note"
            message = f"{self.name}: rows longer than {self.max_length} tokens ({cut / rows:.1%})."
            for index in long[: self.found.shown_at_most].tolist():
                self.found.add(level, "truncated", message, self.where(index), 0)
            self.found.add(level, "truncated", message, count=cut)
        if self.unknown:
            level = "warning" if self.unknown > UNKNOWN_SHARE * self.tokens else "note"
            message = f"{self.name}: tokens that are unknown ({self.unknown / self.tokens:.2%})."
            self.found.add(level, "unknown_tokens", message, count=self.unknown)

    def split(self) -> Split:
        """The figures of the file."""
        lengths = np.asarray(self.lengths)
        measured = None
        if len(lengths):
            # An observed length, so that p95 is one that a row really has.
            cuts = np.percentile(lengths, _QUANTILES, method="inverted_cdf")
            unit = "words" if self.tokenizer is None else "tokens"
            p50, p90, p95, p99 = (int(cut) for cut in cuts)
            measured = Lengths(unit, p50, p90, p95, p99, int(lengths.max()))
        with_tokens = self.tokenizer is not None
        return Split(
            name=self.name,
            path=str(self.path),
            rows=len(self.lines),
            bad_rows=self.bad_rows,
            empty_texts=self.empty,
            label_counts=self.label_counts(),
            lengths=measured,
            truncated=self.truncated(),
            unknown_tokens=self.unknown if with_tokens else None,
            tokens=self.tokens if with_tokens else None,
        )


def _shape(sentence: str) -> str:
    """What two errors of one sort share: their plain words, without places, names and numbers."""
    return " ".join(word for word in sentence.split() if word.isalpha() and word.islower())
