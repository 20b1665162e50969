"""Checks a data set before training: one pass over the rows, then rules over all of them.

The report holds no text of the data, only places, counts and label names. A row costs about 32
bytes while reading (a digest of its texts, its line, its labels, its length) and about 50 more
while rows are compared. The texts themselves are kept only to look for near-duplicates.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from filbert.data.columns import ColumnNames
from filbert.data.findings import (
    LEVELS,
    CheckableTask,
    Finding,
    Lengths,
    Level,
    NearFile,
    NearPair,
    NearReport,
    Problem,
    Report,
    SplitReport,
)
from filbert.data.near_duplicates import bands_for, between, near_duplicates, repeats_within
from filbert.data.records import Row
from filbert.data.streams import shown
from filbert.data.texts import Text, holds_text
from filbert.errors import InputError, printable
from filbert.text.tokenizer import Tokenizer

# Shares from which cut rows and unknown tokens are a warning, not a note.
TRUNCATED_SHARE = 0.05
UNKNOWN_SHARE = 0.01
# A class below this share of the rows, and below half of an even share, is rare: a classifier that
# never predicts it still has a high accuracy. A class with fewer than FEW_ROWS rows is noted.
RARE_SHARE = 0.05
FEW_ROWS = 10
_LABELS_NAMED = 8

# Places that are named for each problem, and near-duplicate pairs that are listed.
MAX_FINDINGS_SHOWN = 5
MAX_PAIRS = 10_000

# `check_rows` looks for near-duplicates up to these sizes only: 20,000 comments of 400 characters
# take 1.5 s of one core, everything else 0.2 s.
NEAR_THRESHOLD = 0.8
NEAR_ROWS = 20_000
NEAR_CHARACTERS = 10_000_000

# Rows that are tokenised at once.
_CHUNK_ROWS = 1024
_CHUNK_CHARACTERS = 2**20

# The digest of rows without text, which are no duplicates of each other.
_EMPTY = bytes(16)


class Problems:
    """Counts findings by level, kind and message, and keeps the first places of each."""

    def __init__(self, shown_at_most: int) -> None:
        self.shown_at_most = shown_at_most
        self._counts: Counter[tuple[Level, str, str]] = Counter()
        self._places: dict[tuple[Level, str, str], list[str]] = {}

    def add(self, findings: Iterable[Finding]) -> None:
        """Count findings."""
        for level, kind, message, where, times in findings:
            key = (level, kind, message)
            self._counts[key] += times
            places = self._places.setdefault(key, [])
            if where and len(places) < self.shown_at_most:
                places.append(where)

    def ranked(self) -> tuple[Problem, ...]:
        """All problems, the most serious first."""
        problems = [
            Problem(level, kind, message.rstrip(".") + ".", count, tuple(self._places[key]))
            for key, count in self._counts.items()
            for level, kind, message in [key]
        ]
        return tuple(sorted(problems, key=lambda problem: LEVELS.index(problem.level)))


@dataclass
class Scan:
    """The good rows of one file, n of them, without their texts.

    Attributes:
        name, path: of the split.
        task: checks the rows.
        tokenizer: if None, lengths are in words.
        max_length: in tokens.
        problems: counts what is found while reading.
        label_numbers: number of each set of labels, the same dictionary for all files.
        texts: all texts of each row, joined by newlines; None if they are not needed.
        digests: 16 bytes a row, of all its texts; zeros if they are empty.
        lines, lengths, label_sets: a number a row; the last only if labels are classes.
        labels: how often each label was seen.
        label_rows: the first row that has each label.
        widths: the numbers of sequences that rows have.
    """

    name: str
    path: str | Path
    task: CheckableTask
    tokenizer: Tokenizer | None
    max_length: int
    problems: Problems
    label_numbers: dict[tuple[str, ...], int]
    texts: list[str] | None = None
    digests: bytearray = field(default_factory=bytearray)
    lines: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("i"))
    label_sets: array[int] = field(default_factory=lambda: array("i"))
    labels: Counter[str] = field(default_factory=Counter)
    label_rows: dict[str, int] = field(default_factory=dict)
    widths: set[int] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    bad_rows: int = 0
    empty: int = 0
    tokens: int = 0
    unknown: int = 0

    def bad(self, error: InputError) -> None:
        """Count a row that cannot be used."""
        self.bad_rows += 1
        self.problems.add([Finding("error", "bad_row", "Rows that cannot be used.", str(error))])

    def read(self, rows: Iterable[Row], progress: Callable[[int], None] | None = None) -> None:
        """Read all rows of the file, a chunk at a time.

        Raises:
            InputError: what reading them raises.
        """
        good: list[tuple[Row, list[Text]]] = []
        characters = seen = 0
        for row in rows:
            seen += 1
            try:
                labels, texts = self.task.labels_of(row), self.task.sequences(row)
            except InputError as error:
                self.bad(error)
            else:
                characters += self._keep(row, texts, labels)
                good.append((row, texts))
            if seen == _CHUNK_ROWS or characters > _CHUNK_CHARACTERS:
                self._check_chunk(good)
                if progress:
                    progress(seen)
                good, characters, seen = [], 0, 0
        self._check_chunk(good)
        if progress:
            progress(seen)

    def _keep(self, row: Row, texts: list[Text], labels: list[str]) -> int:
        """Note a good row; returns the size of its texts."""
        for label in labels:
            self.label_rows.setdefault(label, len(self.lines))
        self.labels.update(labels)
        if self.task.labels_are_classes:
            names = tuple(sorted(labels))
            self.label_sets.append(self.label_numbers.setdefault(names, len(self.label_numbers)))
        self.lines.append(row.line)
        self.widths.add(len(texts))
        whole = "\0".join([text if isinstance(text, str) else "\0".join(text) for text in texts])
        if self.texts is not None:
            self.texts.append(whole.replace("\0", "\n"))
        # Most texts begin with a letter; only the others are searched.
        if whole[:1].isalnum() or whole.replace("\0", "").strip():
            data = whole.encode("utf-8", "surrogatepass")
            self.digests += hashlib.blake2b(data, digest_size=16).digest()
        else:
            self.empty += 1
            self.digests += _EMPTY
        self.problems.add(self._row_findings(row))
        return len(whole)

    def _row_findings(self, row: Row) -> Iterator[Finding]:
        """What is wrong with the row that was just kept."""
        if self.digests.endswith(_EMPTY):
            kind, message = "empty_text", "Rows whose text is empty."
            if self.task.clean is not None and holds_text(row):
                kind, message = "emptied_text", "Rows of whose text cleaning leaves nothing."
            yield Finding("warning", kind, message, row.where)
        column = self.task.id_column
        if column is not None:
            id = row.values[column]
            if id in self.ids:
                message = "Questions with an id that another one has."
                where = f"{row.where}: question {printable(str(id), 80)}"
                yield Finding("warning", "duplicate_id", message, where)
            self.ids.add(id)

    def _check_chunk(self, good: list[tuple[Row, list[Text]]]) -> None:
        """Measure some good rows and ask the task about them."""
        if not good:
            return
        flat = [text for _, texts in good for text in texts]
        if self.tokenizer is None:
            sizes = [len((t if isinstance(t, str) else " ".join(t)).split()) for t in flat]
        else:
            encodings = self.tokenizer.encode(flat)
            sizes = [encoding.num_tokens for encoding in encodings]
            unk = -1 if self.tokenizer.unk_id is None else self.tokenizer.unk_id
            self.unknown += sum(int(np.count_nonzero(e.input_ids == unk)) for e in encodings)
        self.tokens += sum(sizes)
        remaining = iter(sizes)
        self.lengths.extend(max(next(remaining) for _ in texts) for _, texts in good)
        self.problems.add(self._asked([row for row, _ in good]))

    def _asked(self, rows: list[Row]) -> list[Finding]:
        """The findings of the task; a row that makes it fail is counted as a bad one."""
        try:
            return list(self.task.findings(rows, self.tokenizer, self.max_length))
        except InputError as error:
            if len(rows) == 1:
                self.bad(error)
                return []
        return [finding for row in rows for finding in self._asked([row])]

    def where(self, index: int) -> str:
        """File and line of a good row, and its number if several rows share the line."""
        line = self.lines[index]
        around = (*self.lines[max(0, index - 1) : index], *self.lines[index + 1 : index + 2])
        place = f"{shown(self.path)}:{line}"
        return f"{place}, row {index + 1}" if line in around else place

    def too_long(self) -> np.ndarray | None:
        """The rows that will be cut; None if unknown, or if the task reads windows."""
        if self.tokenizer is None or self.task.windows:
            return None
        return np.flatnonzero(np.asarray(self.lengths) > self.max_length)

    def split(self) -> SplitReport:
        """The counts and lengths of the file."""
        lengths = np.asarray(self.lengths)
        measured = None
        has_tokens = self.tokenizer is not None
        if len(lengths):
            # An observed length, so that p95 is one that a row really has.
            cuts = np.percentile(lengths, (50, 90, 95, 99, 100), method="inverted_cdf")
            measured = Lengths("tokens" if has_tokens else "words", *map(int, cuts))
        long = self.too_long()
        return SplitReport(
            name=self.name,
            path=str(self.path),
            rows=len(self.lines),
            bad_rows=self.bad_rows,
            empty_texts=self.empty,
            label_counts=dict(self.labels.most_common()),
            lengths=measured,
            truncated=None if long is None else len(long),
            unknown_tokens=self.unknown if has_tokens else None,
            tokens=self.tokens if has_tokens else None,
        )


class CheckedRows:
    """All good rows of all files, n of them, file by file.

    Attributes:
        scans: one per file.
        file_of: int64 (n,), the number of each row's file.
        digests: uint64 (n, 2), of all texts of each row; zeros if they are empty.
        labels: int32 (n,), equal for rows of equal labels; None if labels are not classes.
    """

    def __init__(self, scans: list[Scan]) -> None:
        self.scans = scans
        counts = [len(scan.lines) for scan in scans]
        self.file_of = np.repeat(np.arange(len(scans)), counts)
        self._starts = np.cumsum(counts) - counts
        self.digests = np.concatenate(
            [np.frombuffer(bytes(scan.digests), dtype=np.uint64).reshape(-1, 2) for scan in scans]
        )
        self.labels = None
        if scans[0].task.labels_are_classes:
            self.labels = np.concatenate([np.asarray(s.label_sets, np.int32) for s in scans])

    def split(self, index: int) -> str:
        """The name of a row's file."""
        return self.scans[int(self.file_of[index])].name

    def place(self, index: int) -> str:
        """The file and line of a row."""
        number = int(self.file_of[index])
        return self.scans[number].where(index - int(self._starts[number]))

    def joined(self, one: int, verb: str, other: int) -> str:
        """Two places with a verb between them."""
        return f"{self.place(one)} {verb} {self.place(other)}"

    def labels_differ(self, one: int, other: int) -> bool | None:
        """Whether two rows have different labels; None if labels are not classes."""
        return None if self.labels is None else bool(self.labels[one] != self.labels[other])


# Rules: each takes all rows and yields findings.


def uneven_rows(rows: CheckedRows) -> Iterator[Finding]:
    """If all rows of the first file have as many choices, those of the others must, too."""
    first, *others = rows.scans
    for scan in others:
        if len(first.widths) == len(scan.widths) == 1 and first.widths != scan.widths:
            message = (
                f"{scan.name}: rows of {min(scan.widths)} choices or texts, where {first.name} has "
                f"{min(first.widths)} a row."
            )
            yield Finding("error", "uneven_rows", message, scan.where(0), len(scan.lines))


def same_texts(rows: CheckedRows) -> Iterator[Finding]:
    """Duplicates in a file, texts of train in another file, and texts with different labels."""
    # Stable, so that the first row of a group comes first.
    order = np.lexsort((rows.digests[:, 1], rows.digests[:, 0]))
    ranked = rows.digests[order]
    same = (ranked[1:] == ranked[:-1]).all(axis=1) & ranked[1:].any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same.astype(np.int8), [0]])))
    groups = [order[begin : end + 1].tolist() for begin, end in edges.reshape(-1, 2)]
    for group in sorted(groups, key=lambda group: group[1]):
        first_in: dict[str, int] = {}
        for index in group:
            before = first_in.setdefault(rows.split(index), index)
            if before != index:
                message = f"{rows.split(index)}: rows that repeat an earlier one."
                yield Finding(
                    "warning", "duplicate", message, rows.joined(index, "repeats", before)
                )
        for index in group if "train" in first_in else ():
            if (name := rows.split(index)) != "train":
                message = f"{name}: rows whose text is also in train; they inflate the metrics."
                yield Finding(
                    "warning", "leakage", message, rows.joined(index, "is", first_in["train"])
                )
        other = next((i for i in group if rows.labels_differ(i, group[0])), None)
        if other is not None:
            message = "Texts with different labels in different rows."
            where = rows.joined(other, "contradicts", group[0])
            yield Finding("warning", "contradiction", message, where)


def lengths(rows: CheckedRows) -> Iterator[Finding]:
    """Rows that will be cut, and tokens that are not in the vocabulary."""
    for scan in rows.scans:
        long = scan.too_long()
        if long is not None and len(long):
            share = len(long) / len(scan.lines)
            level: Level = "warning" if share > TRUNCATED_SHARE else "note"
            message = f"{scan.name}: rows longer than {scan.max_length} tokens ({share:.1%})."
            for index in long.tolist():
                yield Finding(level, "truncated", message, scan.where(index))
        if scan.unknown:
            share = scan.unknown / scan.tokens
            level = "warning" if share > UNKNOWN_SHARE else "note"
            message = f"{scan.name}: tokens that are unknown ({share:.2%})."
            yield Finding(level, "unknown_tokens", message, times=scan.unknown)


def labels(rows: CheckedRows) -> Iterator[Finding]:
    """Labels that train lacks and, for classes, a single label and rare ones."""
    task = rows.scans[0].task
    if task.head_kind not in ("sequence", "tokens"):
        return
    train = [scan for scan in rows.scans if scan.name == "train"]
    counts = Counter[str]()
    for scan in train or rows.scans:
        counts.update(scan.labels)
    for scan in rows.scans if train else ():
        for label, count in scan.labels.most_common():
            if label not in counts:
                what = "rows with the label" if task.labels_are_classes else "the label"
                message = f'{scan.name}: {what} "{printable(label)}", which train does not have.'
                where = scan.where(scan.label_rows[label])
                yield Finding("error", "unseen_label", message, where, count)
    num_rows = sum(len(scan.lines) for scan in train or rows.scans)
    if not task.labels_are_classes or not counts:
        return
    if len(counts) == 1 and counts.total() == num_rows:
        message = f'All rows have the same label, "{printable(next(iter(counts)))}".'
        yield Finding("error", "one_label", message)
        return
    least = min(RARE_SHARE, 0.5 / len(counts))
    ascending = sorted(counts.items(), key=lambda item: item[1])
    if rare := [item for item in ascending if item[1] < least * num_rows]:
        message = f"Rare labels, below {least:.1%} of {num_rows:,} rows: {_counted(rare)}. "
        yield Finding("warning", "imbalance", message + "Look at F1 and PR AUC, not at accuracy.")
    if few := [item for item in ascending if least * num_rows <= item[1] < FEW_ROWS]:
        message = f"Labels with fewer than {FEW_ROWS} rows: {_counted(few)}. "
        yield Finding("note", "few_rows", message + "Their metrics will be noisy.")


def _counted(counts: list[tuple[str, int]]) -> str:
    named = ", ".join(f'"{printable(label)}" ({n:,})' for label, n in counts[:_LABELS_NAMED])
    return named + (", ..." if len(counts) > _LABELS_NAMED else "")


RULES: tuple[Callable[[CheckedRows], Iterator[Finding]], ...] = (
    uneven_rows,
    same_texts,
    lengths,
    labels,
)


def compare_near(rows: CheckedRows, threshold: float, problems: Problems) -> NearReport:
    """Near-duplicates within and between files.

    Only rows whose texts differ make findings; `same_texts` finds the equal ones.
    """
    scans = rows.scans
    texts = [text for scan in scans for text in scan.texts or ()]
    near = near_duplicates(texts, threshold=threshold, parts=[len(scan.lines) for scan in scans])
    _, text_of = np.unique(rows.digests, axis=0, return_inverse=True)
    text_of = text_of.reshape(-1)
    is_in = [rows.file_of == number for number in range(len(scans))]
    files = []
    for number, scan in enumerate(scans):
        others = {}
        for earlier, source in enumerate(scans[:number]):
            leaked, sources = between(near, is_in[earlier], is_in[number])
            others[source.name] = len(leaked)
            if source.name == "train":
                is_equal = np.isin(text_of[leaked], text_of[is_in[earlier]])
                message = (
                    f"{scan.name}: rows that are almost the same as one of train (similarity "
                    f"{threshold:g} or more); they inflate the metrics."
                )
                problems.add(
                    Finding("warning", "near_leakage", message, rows.joined(a, "is almost", b))
                    for a, b in zip(leaked[~is_equal], sources[~is_equal], strict=True)
                )
        files.append(NearFile(scan.name, len(repeats_within(near, is_in[number])), others))
    one, other = near.pairs.T
    problems.add(_pair_findings(rows, near.pairs[text_of[one] != text_of[other]], threshold))
    pairs = tuple(
        NearPair(rows.place(a), rows.place(b), round(similarity, 4), rows.labels_differ(a, b))
        for (a, b), similarity in zip(
            near.pairs[:MAX_PAIRS], near.similarity[:MAX_PAIRS].tolist(), strict=True
        )
    )
    return NearReport(threshold, tuple(files), len(near.pairs), pairs)


def _pair_findings(rows: CheckedRows, pairs: np.ndarray, threshold: float) -> Iterator[Finding]:
    """Pairs within a file, and pairs with different labels anywhere."""
    for one, other in pairs:
        if rows.file_of[one] == rows.file_of[other]:
            message = (
                f"{rows.split(one)}: pairs of rows that are almost the same (similarity "
                f"{threshold:g} or more)."
            )
            where = rows.joined(other, "is almost", one)
            yield Finding("note", "near_duplicate", message, where)
        if rows.labels_differ(one, other):
            message = "Texts that are almost the same and have different labels."
            where = rows.joined(other, "contradicts", one)
            yield Finding("warning", "near_contradiction", message, where)


# The check


def check(
    files: Sequence[tuple[str, str | Path]],
    task: CheckableTask,
    names: ColumnNames,
    *,
    tokenizer: Tokenizer | None,
    max_length: int,
    max_findings_shown: int = MAX_FINDINGS_SHOWN,
    near_threshold: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Check labelled data of any task.

    Args:
        files: (split, path); the split named "train" is what the others are compared with.
        task: the task that the rows are for.
        names: the user's names of the columns.
        tokenizer: without it, lengths are in words and truncation is not checked.
        max_length: in tokens, specials included.
        max_findings_shown: places that are named for each problem.
        near_threshold: also find texts that are at least so similar; see `near_duplicates`.
        progress: called with the number of further rows read.

    Raises:
        InputError: a file does not exist, lacks a column, or holds no row at all.
        ConfigError: the threshold is not from 0.6 to 1.
    """
    if near_threshold is not None:
        bands_for(near_threshold)
    problems, label_numbers = Problems(max_findings_shown), dict[tuple[str, ...], int]()
    scans = []
    for split, path in files:
        texts: list[str] | None = None if near_threshold is None else []
        scan = Scan(split, path, task, tokenizer, max_length, problems, label_numbers, texts)
        scan.read(task.read(path, names, labelled=True, on_error=scan.bad), progress)
        scans.append(scan)
    return _report(scans, problems, max_length, near_threshold)


def check_rows(splits: Mapping[str, tuple[str, Sequence[Row]]], task: CheckableTask) -> Report:
    """Check labelled rows that are in memory, without a tokenizer: lengths are in words.

    Args:
        splits: Path and rows by the name of the split.
        task: Checks the rows.
    """
    problems, label_numbers = Problems(MAX_FINDINGS_SHOWN), dict[tuple[str, ...], int]()
    is_small = sum(len(rows) for _, rows in splits.values()) <= NEAR_ROWS
    scans = []
    for split, (path, rows) in splits.items():
        scan = Scan(split, path, task, None, 0, problems, label_numbers, [] if is_small else None)
        scan.read(rows)
        scans.append(scan)
    is_small &= sum(len(text) for scan in scans for text in scan.texts or ()) <= NEAR_CHARACTERS
    return _report(scans, problems, 0, NEAR_THRESHOLD if is_small else None)


def _report(
    scans: list[Scan], problems: Problems, max_length: int, near_threshold: float | None
) -> Report:
    rows = CheckedRows(scans)
    near = None if near_threshold is None else compare_near(rows, near_threshold, problems)
    for rule in RULES:
        problems.add(rule(rows))
    return Report(tuple(scan.split() for scan in scans), problems.ranked(), max_length, near)
