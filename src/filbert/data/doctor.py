"""What is wrong with a data set, before anything is trained: found in one pass, by file and line.

Nothing that is reported holds any text of the data, only places, counts and label names. A row
costs some 32 bytes of memory while reading (a digest of its texts, its line, its labels' number,
its length) and some 50 more for the moment in which all rows are compared. The texts themselves are
kept only to look for near-duplicates.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from filbert.data.columns import ColumnNames
from filbert.data.findings import (
    Finding,
    Findings,
    Judge,
    Lengths,
    Level,
    NearFile,
    NearPair,
    NearReport,
    Report,
    Split,
)
from filbert.data.near_duplicates import (
    NearDuplicates,
    bands_for,
    between,
    near_duplicates,
    repeats_within,
)
from filbert.data.records import Row
from filbert.data.squad import question_place
from filbert.data.streams import shown
from filbert.data.texts import Text, holds_text
from filbert.errors import InputError, printable
from filbert.text.tokenizer import Tokenizer

# One file

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


# All rows


class Rows(NamedTuple):
    """All good rows of all files, n of them, file by file.

    Attributes:
        scans: one per file.
        file_of: int64 (n,), which file a row stands in.
        row_of: int64 (n,), its number among the good rows of that file.
        digests: uint64 (n, 2), of all its texts; zeros where they are empty.
        labels: int32 (n,), equal for rows of equal labels; None where that means nothing.
    """

    scans: list[Scan]
    file_of: np.ndarray
    row_of: np.ndarray
    digests: np.ndarray
    labels: np.ndarray | None

    def place(self, index: int) -> str:
        """The file and line of a row."""
        return self.scans[int(self.file_of[index])].where(int(self.row_of[index]))

    def split(self, index: int) -> str:
        """The name of a row's file."""
        return self.scans[int(self.file_of[index])].name

    def joined(self, one: int, verb: str, other: int) -> str:
        """Two places with a verb between them."""
        return f"{self.place(one)} {verb} {self.place(other)}"


def rows_of(scans: list[Scan], *, with_labels: bool) -> Rows:
    """All good rows of files that were read to the end; the labels where they mean something."""
    counts = [len(scan.lines) for scan in scans]
    sets: dict[tuple[str, ...], int] = {}
    return Rows(
        scans,
        np.repeat(np.arange(len(scans)), counts),
        np.concatenate([np.arange(count) for count in counts]),
        np.concatenate(
            [np.frombuffer(bytes(scan.digests), dtype=np.uint64).reshape(-1, 2) for scan in scans]
        ),
        np.concatenate([_shared_numbers(scan, sets) for scan in scans]) if with_labels else None,
    )


def _shared_numbers(scan: Scan, sets: dict[tuple[str, ...], int]) -> np.ndarray:
    numbers = [sets.setdefault(labels, len(sets)) for labels in scan.sets]
    return np.asarray(numbers, dtype=np.int32)[np.asarray(scan.label_sets, dtype=np.int32)]


# Duplicates, leakage, contradictions


def compare_rows(scans: list[Scan], found: Findings, *, with_labels: bool) -> None:
    """Duplicates, texts on both sides of a split, and contradictory labels, from the digests
    alone; and rows of one file that are made of more texts than those of another.

    Args:
        scans: at least one, read to the end.
        found: takes the findings.
        with_labels: say where one text has two labels.
    """
    _compare_widths(scans, found)
    if not any(scan.lines for scan in scans):
        return
    rows = rows_of(scans, with_labels=with_labels)
    digests = rows.digests
    # Stable, so that the first of a group comes first.
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    ranked = digests[order]
    same = (ranked[1:] == ranked[:-1]).all(axis=1) & ranked[1:].any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same.astype(np.int8), [0]])))
    groups = [order[begin : end + 1] for begin, end in edges.reshape(-1, 2)]
    for group in sorted(groups, key=lambda group: int(group[1])):
        _compare_group(group.tolist(), rows, found)


def _compare_group(group: list[int], rows: Rows, found: Findings) -> None:
    """`group` holds the numbers of all rows with one text, in order."""
    first_in: dict[str, int] = {}
    for index in group:
        split = rows.split(index)
        before = first_in.setdefault(split, index)
        if before != index:
            message = f"{split}: rows that repeat an earlier one."
            where = partial(rows.joined, index, "repeats", before)
            found.add("warning", "duplicate", message, where)
    source = first_in.get("train")
    if source is not None and len(first_in) > 1:
        for index in group:
            split = rows.split(index)
            if split != "train":
                message = (
                    f"{split}: rows whose text stands in train too; they make the score too good."
                )
                where = partial(rows.joined, index, "is", source)
                found.add("warning", "leakage", message, where)
    if rows.labels is None:
        return
    first = group[0]
    other = next((i for i in group if rows.labels[i] != rows.labels[first]), None)
    if other is not None:
        message = "Texts that carry different labels in different rows."
        where = partial(rows.joined, other, "contradicts", first)
        found.add("warning", "contradiction", message, where)


def _compare_widths(scans: list[Scan], found: Findings) -> None:
    """Where a file's rows all have as many sequences, such as choices, another's have too."""
    first = scans[0]
    for scan in scans[1:]:
        if len(first.num_sequences) == len(scan.num_sequences) == 1:
            wanted, given = min(first.num_sequences), min(scan.num_sequences)
            if wanted != given:
                message = (
                    f"{scan.name}: rows of {given} choices or texts, where {first.name} has "
                    f"{wanted} a row."
                )
                found.add("error", "uneven_rows", message, scan.where(0), len(scan.lines))


# Label counts

# A class below this share of the rows, and below half of an even share where there are many, is
# called rare: a classifier that never says it still looks good in accuracy.
# A class with fewer rows than FEW_ROWS is noted, since its metrics are noisy.
RARE_SHARE = 0.05
FEW_ROWS = 10

_NAMES_SHOWN = 8


def judge_labels(scans: list[Scan], found: Findings, *, are_classes: bool) -> None:
    """Labels that train has not and, for classes, ones that are alone or rare.

    Args:
        scans: all files, read to the end.
        found: takes the findings.
        are_classes: a label is what a row is; else rows hold any number of things with labels.
    """
    train = [scan for scan in scans if scan.name == "train"]
    known: Counter[str] = Counter()
    for scan in train or scans:
        known.update(scan.label_counts())
    if train:
        for scan in scans:
            if scan.name != "train":
                _find_unseen(scan, known, found, are_classes=are_classes)
    if are_classes and known:
        _judge_classes(known, sum(len(scan.lines) for scan in train or scans), found)


def _find_unseen(scan: Scan, known: Counter[str], found: Findings, *, are_classes: bool) -> None:
    what = "rows with the label" if are_classes else "the label"
    for label, count in scan.label_counts().items():
        if label not in known:
            message = f'{scan.name}: {what} "{printable(label)}", which train has not.'
            found.add("error", "unseen_label", message, partial(scan.first_with, label), count)


def _judge_classes(known: Counter[str], rows: int, found: Findings) -> None:
    if len(known) == 1 and known.total() == rows:
        only = printable(next(iter(known)))
        found.add("error", "one_label", f'All rows have the same label, "{only}".')
        return
    share = min(RARE_SHARE, 0.5 / len(known))
    ranked = sorted(known.items(), key=lambda item: item[1])
    rare = [item for item in ranked if item[1] < share * rows]
    few = [item for item in ranked if share * rows <= item[1] < FEW_ROWS]
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


# Near-duplicates

# What --json lists at most; the counts know of all.
MAX_PAIRS = 10_000


def compare_near(
    scans: list[Scan], found: Findings, *, threshold: float, with_labels: bool
) -> NearReport:
    """Near-duplicates within and between files, by counts and places.

    A finding is only made of rows whose texts differ; equal ones are found without being asked for.

    Args:
        scans: read to the end, with their texts.
        found: takes the findings.
        threshold: similarity from which on two texts are near-duplicates.
        with_labels: say where the labels of the two differ.
    """
    texts = [text for scan in scans for text in scan.texts or ()]
    counts = [len(scan.lines) for scan in scans]
    near = near_duplicates(texts, threshold=threshold, parts=counts)
    rows = rows_of(scans, with_labels=with_labels)
    # Equal for rows of the very same texts.
    _, text_of = np.unique(rows.digests, axis=0, return_inverse=True)
    text_of = text_of.reshape(-1)
    is_of = [rows.file_of == number for number in range(len(scans))]
    files = []
    for number, scan in enumerate(scans):
        others = {}
        for before, source in enumerate(scans[:number]):
            leaked, sources, _ = between(near, is_of[before], is_of[number])
            others[source.name] = len(leaked)
            if source.name == "train":
                is_equal = np.isin(text_of[leaked], text_of[is_of[before]])
                message = (
                    f"{scan.name}: rows that are almost the same as one of train (similarity "
                    f"{threshold:g} or more); they make the score too good."
                )
                leaks = np.stack([sources, leaked], axis=1)[~is_equal]
                _add(found, "warning", "near_leakage", message, rows, "is almost", leaks)
        files.append(NearFile(scan.name, len(repeats_within(near, is_of[number])), others))
    _find_pairs(near, rows, text_of, found, threshold)
    pairs = [
        NearPair(
            rows.place(one), rows.place(other), round(similarity, 4),
            None if rows.labels is None else bool(rows.labels[one] != rows.labels[other]),
        )
        for (one, other), similarity in zip(
            near.pairs[:MAX_PAIRS].tolist(), near.similarity[:MAX_PAIRS].tolist(), strict=True
        )
    ]  # fmt: skip
    return NearReport(threshold, tuple(files), len(near.pairs), tuple(pairs))


def _find_pairs(
    near: NearDuplicates, rows: Rows, text_of: np.ndarray, found: Findings, threshold: float
) -> None:
    """Pairs within a file, and pairs with different labels anywhere."""
    one, other = near.pairs.T
    differ = text_of[one] != text_of[other]
    for number, scan in enumerate(rows.scans):
        message = (
            f"{scan.name}: pairs of rows that are almost the same (similarity {threshold:g} or "
            "more)."
        )
        is_inside = (rows.file_of[one] == number) & (rows.file_of[other] == number)
        inside = near.pairs[differ & is_inside]
        _add(found, "note", "near_duplicate", message, rows, "is almost", inside)
    if rows.labels is not None:
        message = "Texts that are almost the same and carry different labels."
        against = near.pairs[differ & (rows.labels[one] != rows.labels[other])]
        _add(found, "warning", "near_contradiction", message, rows, "contradicts", against)


def _add(
    found: Findings, level: Level, kind: str, message: str, rows: Rows, verb: str, pairs: np.ndarray
) -> None:
    """A finding of each pair, int64 (P, 2); places are named of the first alone."""
    shown = pairs[: found.shown_at_most].tolist()
    for one, other in shown:
        found.add(level, kind, message, partial(rows.joined, other, verb, one))
    if len(shown) < len(pairs):
        found.add(level, kind, message, count=len(pairs) - len(shown))


# The check

# Of each problem.
MAX_FINDINGS_SHOWN = 5
# The similarity from which on two texts are near-duplicates.
NEAR_THRESHOLD = 0.8
# `check_rows` looks for near-duplicates up to these sizes only: 20,000 comments of 400 characters
# take 1.3 s of one core, everything else 0.2 s.
NEAR_ROWS = 20_000
NEAR_CHARACTERS = 10_000_000


def check(
    files: Sequence[tuple[str, str | Path]],
    judge: Judge,
    names: ColumnNames,
    *,
    tokenizer: Tokenizer | None,
    max_length: int,
    max_findings_shown: int = MAX_FINDINGS_SHOWN,
    near_threshold: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Look through labelled data of any task.

    Args:
        files: (split, path); the split named "train" is what the others are compared with.
        judge: the task that the rows are for.
        names: the user's names of the columns.
        tokenizer: without it lengths are counted in words, and nothing is said about cutting.
        max_length: in tokens, specials included.
        max_findings_shown: places that are named of each problem.
        near_threshold: also look for texts that are at least so alike; see `near_duplicates`.
        progress: is told how many further rows were read, now and then.

    Raises:
        InputError: a file that is not there, has no such column, or holds no row at all.
        ConfigError: the threshold is not one.
    """
    if near_threshold is not None:
        bands_for(near_threshold)
    found = Findings(max_findings_shown)
    scans = []
    for split, path in files:
        scan = Scan(split, path, judge, tokenizer, max_length, found)
        scan.texts = None if near_threshold is None else []
        rows = judge.read(path, names, labelled=True, on_error=scan.bad)
        scan.run(rows, progress)
        scans.append(scan)
    return _report(scans, found, judge, max_length, near_threshold)


def check_rows(splits: Mapping[str, tuple[str, Sequence[Row]]], judge: Judge) -> Report:
    """Check labelled rows that were read already, without a tokenizer: lengths are in words.

    Args:
        splits: Path and rows by the name of the split.
        judge: The task.
    """
    found = Findings(MAX_FINDINGS_SHOWN)
    is_small = sum(len(rows) for _, rows in splits.values()) <= NEAR_ROWS
    scans = []
    for split, (path, rows) in splits.items():
        scan = Scan(split, path, judge, None, 0, found, texts=[] if is_small else None)
        scan.run(rows)
        scans.append(scan)
    is_small &= sum(len(text) for scan in scans for text in scan.texts or ()) <= NEAR_CHARACTERS
    return _report(scans, found, judge, 0, NEAR_THRESHOLD if is_small else None)


def _report(
    scans: list[Scan],
    found: Findings,
    judge: Judge,
    max_length: int,
    near_threshold: float | None,
) -> Report:
    """Compare the rows of all files and put the findings together."""
    compare_rows(scans, found, with_labels=judge.labels_are_classes)
    near = None
    if near_threshold is not None:
        with_labels = judge.labels_are_classes
        near = compare_near(scans, found, threshold=near_threshold, with_labels=with_labels)
    for scan in scans:
        scan.judge_lengths()
    if judge.head_kind in ("sequence", "tokens"):
        judge_labels(scans, found, are_classes=judge.labels_are_classes)
    return Report(tuple(scan.split() for scan in scans), found.problems(), max_length, near)
