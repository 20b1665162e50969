"""What is wrong with a data set, before anything is trained: found in one pass, by file and line.

Nothing that is reported holds any text of the data, only places, counts and label names. A row
costs 32 bytes of memory while reading (a digest of its text, its line, its labels' number, its
length) and some 50 more for the moment in which all rows are compared.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from filbert.data.findings import Findings, Lengths, Level, Report, Split
from filbert.data.records import Row, read_rows
from filbert.data.streams import shown
from filbert.errors import InputError, printable
from filbert.text.tokenizer import Text, Tokenizer

# A class below this share of the rows, and below half of an even share where there are many, is
# called rare: a classifier that never says it still looks good in accuracy (USERS section 1, row
# 25). A class with fewer rows than the second number is noted, since figures on it are luck.
RARE_SHARE = 0.05
FEW_ROWS = 10

# Shares from which cutting and unknown tokens are a warning and no longer a note.
TRUNCATED_SHARE = 0.05
UNKNOWN_SHARE = 0.01

_CHUNK = 1024
_QUANTILES = (50, 90, 95, 99)
_NAMES_SHOWN = 8


def check(
    files: Sequence[tuple[str, str | Path]],
    *,
    columns: Mapping[str, str] | None,
    label_of: Callable[[Row], list[str]],
    tokenizer: Tokenizer | None,
    max_length: int,
    max_findings_shown: int = 5,
    progress: Callable[[int], None] | None = None,
    required: Sequence[str] = ("text",),
    optional: Sequence[str] | None = None,
    extra: Sequence[str] = (),
) -> Report:
    """Look through classification data.

    Args:
        files: (split, path); the split named "train" is what the others are compared with.
        columns, required, optional, extra: as for `read_rows`; the text stands in `text`
            [`text_pair`].
        label_of: the labels of a row. An InputError from it makes the row a bad one.
        tokenizer: without it lengths are counted in words, and nothing is said about cutting.
        max_length: in tokens, specials included.
        progress: is told how many further rows were read, now and then.

    Raises:
        InputError: a file that is not there, has no such column, or holds no row at all.
    """
    found = Findings(max_findings_shown)
    scans = []
    for split, path in files:
        scan = _Scan(split, path, tokenizer, max_length, found)
        rows = read_rows(
            path,
            columns=columns,
            required=required,
            optional=optional,
            extra=extra,
            on_error=scan.bad,
        )
        scan.run(rows, label_of, progress)
        scans.append(scan)
    _compare(scans, found)
    for scan in scans:
        scan.judge_lengths()
    _judge_labels(scans, found)
    return Report(tuple(scan.split() for scan in scans), found.problems(), max_length)


@dataclass
class _Scan:
    """What is kept of one file while it is read."""

    name: str
    path: str | Path
    tokenizer: Tokenizer | None
    max_length: int
    found: Findings
    digests: bytearray = field(default_factory=bytearray)  # 16 bytes a row
    lines: array[int] = field(default_factory=lambda: array("q"))
    label_sets: array[int] = field(default_factory=lambda: array("i"))
    lengths: array[int] = field(default_factory=lambda: array("i"))
    sets: dict[tuple[str, ...], int] = field(default_factory=dict)
    bad_rows: int = 0
    empty: int = 0
    unknown: int = 0

    def bad(self, error: InputError) -> None:
        self.bad_rows += 1
        self.found.add("error", "bad_row", "Rows that cannot be used.", str(error))

    def run(
        self,
        rows: Iterator[Row],
        label_of: Callable[[Row], list[str]],
        progress: Callable[[int], None] | None,
    ) -> None:
        pending: list[Text] = []
        characters = seen = 0
        for row in rows:
            seen += 1
            try:
                labels = tuple(sorted(label_of(row)))
            except InputError as error:
                self.bad(error)
                continue
            values = row.values
            text, pair = values["text"], values.get("text_pair")
            self.lines.append(row.line)
            self.label_sets.append(self.sets.setdefault(labels, len(self.sets)))
            if text.isspace() or not text:
                self.empty += 1
                self.found.add("warning", "empty_text", "Rows whose text is empty.", row.where)
                self.digests += _EMPTY
            else:
                whole = text if pair is None else f"{text}\0{pair}"
                data = whole.encode("utf-8", "surrogatepass")
                self.digests += hashlib.blake2b(data, digest_size=16).digest()
            pending.append(text if pair is None else (text, pair))
            characters += len(text)
            if len(pending) == _CHUNK or characters > 2**20:
                self.measure(pending)
                pending, characters = [], 0
            if seen == _CHUNK:
                if progress:
                    progress(seen)
                seen = 0
        self.measure(pending)
        if progress and seen:
            progress(seen)

    def measure(self, texts: list[Text]) -> None:
        if self.tokenizer is None:
            self.lengths.extend(
                len(text.split()) if isinstance(text, str) else sum(len(t.split()) for t in text)
                for text in texts
            )
            return
        unknown = self.tokenizer.unk_id
        for encoding in self.tokenizer.encode(texts):
            self.lengths.append(encoding.num_tokens)
            if unknown is not None:
                self.unknown += int(np.count_nonzero(encoding.input_ids == unknown))

    def where(self, index: int) -> str:
        return f"{shown(self.path)}:{self.lines[index]}"

    def first_with(self, label: str) -> str:
        numbers = {number for labels, number in self.sets.items() if label in labels}
        return next(self.where(i) for i, number in enumerate(self.label_sets) if number in numbers)

    def truncated(self) -> int:
        return int(np.count_nonzero(np.asarray(self.lengths) > self.max_length))

    def label_counts(self) -> dict[str, int]:
        per_set = np.bincount(np.asarray(self.label_sets), minlength=len(self.sets))
        counts: Counter[str] = Counter()
        for labels, number in self.sets.items():
            for label in labels:
                counts[label] += int(per_set[number])
        return dict(counts.most_common())

    def judge_lengths(self) -> None:
        rows = len(self.lines)
        if self.tokenizer is None or not rows:
            return
        cut = self.truncated()
        if cut:
            long = [i for i, length in enumerate(self.lengths) if length > self.max_length]
            level: Level = "warning" if cut > TRUNCATED_SHARE * rows else "note"
            message = f"{self.name}: rows longer than {self.max_length} tokens ({cut / rows:.1%})."
            for index in long[: self.found.shown_at_most]:
                self.found.add(level, "truncated", message, self.where(index), 0)
            self.found.add(level, "truncated", message, count=cut)
        tokens = sum(self.lengths)
        if self.unknown:
            level = "warning" if self.unknown > UNKNOWN_SHARE * tokens else "note"
            message = f"{self.name}: tokens that are unknown ({self.unknown / tokens:.2%})."
            self.found.add(level, "unknown_tokens", message, count=self.unknown)

    def split(self) -> Split:
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
            truncated=self.truncated() if with_tokens else None,
            unknown_tokens=self.unknown if with_tokens else None,
            tokens=int(lengths.sum()) if with_tokens else None,
        )


# Empty texts are counted by themselves and are no duplicates of each other.
_EMPTY = bytes(16)


def _compare(scans: list[_Scan], found: Findings) -> None:
    """Duplicates, texts on both sides of a split, and contradictory labels, from the digests
    alone.
    """
    if not any(scan.lines for scan in scans):
        return
    sets: dict[tuple[str, ...], int] = {}
    digests = np.concatenate(
        [np.frombuffer(bytes(scan.digests), dtype=np.uint64).reshape(-1, 2) for scan in scans]
    )
    file_of = np.repeat(np.arange(len(scans)), [len(scan.lines) for scan in scans])
    row_of = np.concatenate([np.arange(len(scan.lines)) for scan in scans])
    labels = np.concatenate([_shared_numbers(scan, sets) for scan in scans])
    order = np.lexsort(
        (digests[:, 1], digests[:, 0])
    )  # stable, so the first of a group comes first
    ranked = digests[order]
    same = (ranked[1:] == ranked[:-1]).all(axis=1) & ranked[1:].any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same.astype(np.int8), [0]])))
    groups = [order[begin : end + 1] for begin, end in edges.reshape(-1, 2)]
    for group in sorted(groups, key=lambda group: int(group[1])):
        _compare_group(group, scans, file_of, row_of, labels, found)


def _compare_group(
    group: np.ndarray,
    scans: list[_Scan],
    file_of: np.ndarray,
    row_of: np.ndarray,
    labels: np.ndarray,
    found: Findings,
) -> None:
    """`group` holds the numbers of all rows with one text, in order."""

    def place(index: int) -> str:
        return scans[int(file_of[index])].where(int(row_of[index]))

    first_in: dict[str, int] = {}
    for index in map(int, group):
        split = scans[file_of[index]].name
        before = first_in.setdefault(split, index)
        if before != index:
            message = f"{split}: rows that repeat an earlier one."
            where = partial(_joined, place, index, "repeats", before)
            found.add("warning", "duplicate", message, where)
    source = first_in.get("train")
    for index in map(int, group):
        split = scans[file_of[index]].name
        if source is not None and split != "train":
            message = f"{split}: rows whose text stands in train too; they make the score too good."
            found.add("warning", "leakage", message, partial(_joined, place, index, "is", source))
    first = int(group[0])
    other = next((int(i) for i in group if labels[i] != labels[first]), None)
    if other is not None:
        message = "Texts that carry different labels in different rows."
        where = partial(_joined, place, other, "contradicts", first)
        found.add("warning", "contradiction", message, where)


def _joined(place: Callable[[int], str], one: int, verb: str, other: int) -> str:
    return f"{place(one)} {verb} {place(other)}"


def _shared_numbers(scan: _Scan, sets: dict[tuple[str, ...], int]) -> np.ndarray:
    numbers = [sets.setdefault(labels, len(sets)) for labels in scan.sets]
    return np.asarray(numbers, dtype=np.int32)[np.asarray(scan.label_sets, dtype=np.int32)]


def _judge_labels(scans: list[_Scan], found: Findings) -> None:
    train = [scan for scan in scans if scan.name == "train"]
    known: Counter[str] = Counter()
    for scan in train or scans:
        known.update(scan.label_counts())
    rows = sum(len(scan.lines) for scan in train or scans)
    if train:
        for scan in scans:
            if scan.name != "train":
                for label, count in scan.label_counts().items():
                    if label not in known:
                        message = (
                            f'{scan.name}: rows with the label "{printable(label)}", '
                            "which train has not."
                        )
                        found.add(
                            "error", "unseen_label", message, partial(scan.first_with, label), count
                        )
    if not known:
        return
    if len(known) == 1:
        only = printable(next(iter(known)))
        found.add("error", "one_label", f'All rows have the same label, "{only}".')
        return
    share = min(RARE_SHARE, 0.5 / len(known))
    ranked = sorted(known.items(), key=lambda item: item[1])
    rare = [item for item in ranked if item[1] < share * rows]
    few = [item for item in ranked if item[1] < FEW_ROWS and item not in rare]
    if rare:
        message = f"Rare labels, below {share:.1%} of {rows:,} rows: {_counted(rare)}."
        found.add("warning", "imbalance", f"{message} Look at F1 and PR AUC, not at accuracy.")
    if few:
        message = f"Labels with fewer than {FEW_ROWS} rows: {_counted(few)}."
        found.add("note", "few_rows", f"{message} Their figures will be rough.")


def _counted(labels: list[tuple[str, int]]) -> str:
    listed = ", ".join(f'"{printable(label)}" ({n:,})' for label, n in labels[:_NAMES_SHOWN])
    more = len(labels) - _NAMES_SHOWN
    return listed + (f" and {more:,} more" if more > 0 else "")
