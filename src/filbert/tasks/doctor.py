"""Checks a data set before training: one pass over the rows, then rules over all of them.

The report holds no text of the data, only places, counts and label names. A row costs about 24
bytes while reading (a hash of its texts, its line, its labels, its length) and about 30 more while
rows are compared. The texts themselves are kept only to look for near-duplicates.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from filbert.data.columns import ColumnNames
from filbert.data.records import Finding, Level, Row
from filbert.data.splitting import between, near_duplicates
from filbert.data.streams import name_of
from filbert.data.texts import holds_text
from filbert.errors import InputError, printable
from filbert.tasks.base import Task
from filbert.tasks.rows import read_task_rows, row_labels, row_texts
from filbert.text.tokenizer import Text, Tokenizer, chunked

# Shares from which cut rows and unknown tokens are a warning, not a note.
TRUNCATED_SHARE = 0.05
UNKNOWN_SHARE = 0.01
# A class below this share of the rows, and below half of an even share, is rare: a classifier that
# never predicts it still has a high accuracy. A class with fewer than FEW_ROWS rows is noted.
RARE_SHARE = 0.05
FEW_ROWS = 10

# Places that are named for each problem, and labels in one message.
PLACES_SHOWN = 5
_LABELS_NAMED = 8

# `check_rows` looks for near-duplicates up to these sizes only: 20,000 comments of 400 characters
# take 1.5 s of one core, everything else 0.2 s.
NEAR_ROWS = 20_000
NEAR_CHARACTERS = 10_000_000

# In place of the hash of rows without text, which are no duplicates of each other.
_EMPTY = 0

# The result

LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Problem:
    """All findings with one level, kind and message: how many, and the first places."""

    level: Level
    kind: str
    message: str
    count: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Lengths:
    """Quantiles of the rows' lengths, in `unit` ("tokens", specials included, or "words")."""

    unit: str
    p50: int
    p90: int
    p95: int
    p99: int
    max: int


@dataclass(frozen=True)
class SplitReport:
    """One file: its good and bad rows, labels (most frequent first) and lengths.

    `lengths` is of each row's longest sequence; `tokens` and `unknown_tokens` count all sequences.
    `truncated` counts rows longer than max_length; None if the task reads these in windows. It and
    the token counts are None without a tokenizer.
    """

    name: str
    path: str
    rows: int
    bad_rows: int
    empty_texts: int
    label_counts: dict[str, int]
    lengths: Lengths | None
    truncated: int | None
    unknown_tokens: int | None
    tokens: int | None


@dataclass(frozen=True)
class Report:
    """The result of a check, the most serious problems first."""

    splits: tuple[SplitReport, ...]
    problems: tuple[Problem, ...]
    max_length: int

    def __repr__(self) -> str:
        rows = ", ".join(f"{split.rows:,} {split.name}" for split in self.splits)
        lines = [
            f"{one.level}: {one.message.rstrip('.')} ({one.count:,}): {'; '.join(one.where[:3])}"
            for one in self.problems
        ]
        return "\n".join([f"<filbert check: rows: {rows}; problems: {len(lines)}>", *lines])

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as plain values for JSON."""
        return asdict(self)

    @property
    def worst(self) -> Level | None:
        """The most serious level among the problems, or None."""
        return self.problems[0].level if self.problems else None


# Reading


@dataclass
class _File:
    """What is counted in one file.

    Attributes:
        start, num_rows: Number of its first good row among those of all files, and of these rows.
        label_rows: The first row that has each label.
        widths: The numbers of sequences that rows have.
    """

    name: str
    path: str | Path
    start: int
    num_rows: int = 0
    bad_rows: int = 0
    empty: int = 0
    tokens: int = 0
    unknown: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    label_rows: dict[str, int] = field(default_factory=dict)
    widths: set[int] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)


class _Check:
    """Reads files of rows, counts their problems, and applies the rules to all n good rows.

    Attributes:
        near: Whether near-duplicates are looked for.
        lines, lengths, hashes: A number a row; a hash is of all its texts.
        label_sets: A number a row, equal for rows of equal labels; empty unless labels are classes.
        texts: All texts of each row, joined by newlines, if `near`.
    """

    def __init__(
        self, task: Task, tokenizer: Tokenizer | None, max_length: int, *, near: bool
    ) -> None:
        self.task, self.spec = task, task.spec
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.near = near
        self.files: list[_File] = []
        self.lines, self.lengths, self.label_sets = array("q"), array("i"), array("i")
        self.hashes = array("q")
        self.texts: list[str] = []
        self._label_numbers: dict[tuple[str, ...], int] = {}
        self._counts: Counter[tuple[Level, str, str]] = Counter()
        self._places: dict[tuple[Level, str, str], list[str]] = {}
        self._hints: set[str] = set()

    def add(self, findings: Iterable[Finding]) -> None:
        """Count findings, and keep the first places of each kind."""
        for level, kind, message, where, times in findings:
            key = (level, kind, message.rstrip(".") + ".")
            self._counts[key] += times
            places = self._places.setdefault(key, [])
            if where and len(places) < PLACES_SHOWN:
                places.append(where)

    def bad(self, error: InputError) -> None:
        """Count a row that cannot be used; what to do about it is only kept the first time."""
        self.files[-1].bad_rows += 1
        problem, _, hint = str(error).partition(". ")
        where = problem if hint in self._hints else str(error)
        self._hints.add(hint)
        self.add([Finding("error", "bad_row", "Rows that cannot be used.", where)])

    def begin(self, name: str, path: str | Path) -> None:
        """Begin the next file."""
        self.files.append(_File(name, path, len(self.lines)))

    def read(self, rows: Iterable[Row], progress: Callable[[int], None] | None = None) -> None:
        """Read all rows of the last file."""
        for chunk in chunked(self._good_rows(rows), lambda row: row[2], size=2**20, count=1024):
            self._measure([row for row, _, _ in chunk], [texts for _, texts, _ in chunk])
            if progress:
                progress(len(chunk))

    def _good_rows(self, rows: Iterable[Row]) -> Iterator[tuple[Row, list[Text], int]]:
        """Yield the rows with usable labels and texts, their texts, and the size of these."""
        file, task = self.files[-1], self.task
        for row in rows:
            try:
                labels, texts = row_labels(task, row), row_texts(task, row)
            except InputError as error:
                self.bad(error)
                continue
            for label in labels:
                file.label_rows.setdefault(label, len(self.lines))
            file.labels.update(labels)
            if self.spec.labels_are_classes:
                names = tuple(sorted(labels))
                number = self._label_numbers.setdefault(names, len(self._label_numbers))
                self.label_sets.append(number)
            self.lines.append(row.line)
            file.num_rows += 1
            file.widths.add(len(texts))
            whole = "\0".join([t if isinstance(t, str) else "\0".join(t) for t in texts])
            if self.near:
                self.texts.append(whole.replace("\0", "\n"))
            self.add(self._row_findings(row, whole))
            yield row, texts, len(whole)

    def _row_findings(self, row: Row, whole: str) -> Iterator[Finding]:
        """Note the hash of a row; yield an empty text and a repeated id."""
        file = self.files[-1]
        # Most texts begin with a letter; only the others are searched.
        if whole[:1].isalnum() or whole.replace("\0", "").strip():
            self.hashes.append(hash(whole))
        else:
            file.empty += 1
            self.hashes.append(_EMPTY)
            kind, message = "empty_text", "Rows whose text is empty."
            if self.spec.clean is not None and holds_text(row):
                kind, message = "emptied_text", "Rows of whose text cleaning leaves nothing."
            yield Finding("warning", kind, message, row.where)
        id_column = self.spec.row_format.id_column
        if id_column is not None:
            id = row.values[id_column]
            if id in file.ids:
                message = "Questions with an id that another one has."
                where = f"{row.where}: question {printable(str(id), 80)}"
                yield Finding("warning", "duplicate_id", message, where)
            file.ids.add(id)

    def _measure(self, rows: list[Row], texts: list[list[Text]]) -> None:
        """Measure some good rows, and ask the task about them."""
        file = self.files[-1]
        flat = [text for own in texts for text in own]
        if self.tokenizer is None:
            sizes = [len((t if isinstance(t, str) else " ".join(t)).split()) for t in flat]
        else:
            encodings = self.tokenizer.encode(flat)
            sizes = [encoding.num_tokens for encoding in encodings]
            unk = -1 if self.tokenizer.unk_id is None else self.tokenizer.unk_id
            file.unknown += sum(int(np.count_nonzero(e.input_ids == unk)) for e in encodings)
        file.tokens += sum(sizes)
        remaining = iter(sizes)
        self.lengths.extend(max(next(remaining) for _ in own) for own in texts)
        self.add(self._task_findings(rows))

    def _task_findings(self, rows: list[Row]) -> list[Finding]:
        """Return the findings of the task; a row that makes it fail is counted as a bad one."""
        try:
            form = self.spec.row_format
            return list(form.findings(self.task, rows, self.tokenizer, self.max_length))
        except InputError as error:
            if len(rows) == 1:
                self.bad(error)
                return []
        return [finding for row in rows for finding in self._task_findings([row])]

    # All rows

    def file_of(self, index: int) -> _File:
        """Return the file of a row."""
        return next(file for file in reversed(self.files) if file.start <= index)

    def place(self, index: int) -> str:
        """Return file and line of a row, and its number if several rows share the line."""
        file, line = self.file_of(index), self.lines[index]
        end = file.start + file.num_rows
        around = (*self.lines[max(file.start, index - 1) : index], *self.lines[index + 1 : end][:1])
        place = f"{name_of(file.path)}:{line}"
        return f"{place}, row {index - file.start + 1}" if line in around else place

    def labels_differ(self, one: int, other: int) -> bool:
        """Return whether two rows have different labels; False if labels are not classes."""
        return bool(self.label_sets) and self.label_sets[one] != self.label_sets[other]

    def lengths_in(self, file: _File) -> np.ndarray:
        """Return the lengths of the rows of a file."""
        return np.asarray(self.lengths[file.start : file.start + file.num_rows])

    def too_long(self, file: _File) -> np.ndarray | None:
        """Return the rows that will be cut; None if unknown, or if the task reads windows."""
        if self.tokenizer is None or self.spec.windows:
            return None
        return file.start + np.flatnonzero(self.lengths_in(file) > self.max_length)

    def report(self) -> Report:
        """Apply the rules and return the result."""
        rules = (_uneven_rows, _same_texts, _lengths, _labels)
        for rule in (_near_duplicates, *rules) if self.near else rules:
            self.add(rule(self))
        problems = [
            Problem(*key, count, tuple(self._places[key])) for key, count in self._counts.items()
        ]
        ranked = sorted(problems, key=lambda problem: LEVELS.index(problem.level))
        return Report(tuple(map(self._split, self.files)), tuple(ranked), self.max_length)

    def _split(self, file: _File) -> SplitReport:
        lengths, has_tokens = None, self.tokenizer is not None
        if file.num_rows:
            # An observed length, so that p95 is one that a row really has.
            quantiles = (50, 90, 95, 99, 100)
            cuts = np.percentile(self.lengths_in(file), quantiles, method="inverted_cdf")
            lengths = Lengths("tokens" if has_tokens else "words", *map(int, cuts))
        long = self.too_long(file)
        return SplitReport(
            name=file.name,
            path=str(file.path),
            rows=file.num_rows,
            bad_rows=file.bad_rows,
            empty_texts=file.empty,
            label_counts=dict(file.labels.most_common()),
            lengths=lengths,
            truncated=None if long is None else len(long),
            unknown_tokens=file.unknown if has_tokens else None,
            tokens=file.tokens if has_tokens else None,
        )


# Rules: each yields findings about all rows.


def _uneven_rows(check: _Check) -> Iterator[Finding]:
    """If all rows of the first file have as many choices, those of the others must, too."""
    first, *others = check.files
    for file in others:
        if len(first.widths) == len(file.widths) == 1 and first.widths != file.widths:
            message = (
                f"{file.name}: rows of {min(file.widths)} choices or texts, where {first.name} has "
                f"{min(first.widths)} a row."
            )
            where = check.place(file.start)
            yield Finding("error", "uneven_rows", message, where, file.num_rows)


def _same_texts(check: _Check) -> Iterator[Finding]:
    """Yield duplicates, texts of train in other files, and equal texts with unequal labels."""
    # Stable, so that the first row of a group comes first.
    hashes = np.array(check.hashes)
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    same = (ranked[1:] == ranked[:-1]) & (ranked[1:] != _EMPTY)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same.astype(np.int8), [0]])))
    groups = [order[begin : end + 1].tolist() for begin, end in edges.reshape(-1, 2)]
    for group in sorted(groups, key=lambda group: group[1]):
        first_in: dict[str, int] = {}
        for index in group:
            name = check.file_of(index).name
            before = first_in.setdefault(name, index)
            if before != index:
                message = f"{name}: rows that repeat an earlier one."
                yield _two("warning", "duplicate", message, check, index, "repeats", before)
        for index in group if "train" in first_in else ():
            if (name := check.file_of(index).name) != "train":
                message = f"{name}: rows whose text is also in train; they inflate the metrics."
                yield _two("warning", "leakage", message, check, index, "is", first_in["train"])
        other = next((i for i in group if check.labels_differ(i, group[0])), None)
        if other is not None:
            message = "Texts with different labels in different rows."
            yield _two("warning", "contradiction", message, check, other, "contradicts", group[0])


def _two(
    level: Level, kind: str, message: str, check: _Check, one: int, verb: str, other: int
) -> Finding:
    """Return a finding about two rows."""
    return Finding(level, kind, message, f"{check.place(one)} {verb} {check.place(other)}")


def _lengths(check: _Check) -> Iterator[Finding]:
    """Yield rows that will be cut, and tokens that are not in the vocabulary."""
    for file in check.files:
        long = check.too_long(file)
        if long is not None and len(long):
            share = len(long) / file.num_rows
            level: Level = "warning" if share > TRUNCATED_SHARE else "note"
            message = f"{file.name}: rows longer than {check.max_length} tokens ({share:.1%})."
            for index in long.tolist():
                yield Finding(level, "truncated", message, check.place(index))
        if file.unknown:
            share = file.unknown / file.tokens
            level = "warning" if share > UNKNOWN_SHARE else "note"
            message = f"{file.name}: tokens that are unknown ({share:.2%})."
            yield Finding(level, "unknown_tokens", message, times=file.unknown)


def _labels(check: _Check) -> Iterator[Finding]:
    """Yield labels that train lacks and, for classes, a single label and rare ones."""
    are_classes = check.spec.labels_are_classes
    train = [file for file in check.files if file.name == "train"]
    if check.spec.head_kind not in ("sequence", "tokens"):
        return  # the model does not predict these labels
    counts = Counter[str]()
    for file in train or check.files:
        counts.update(file.labels)
    for file in check.files if train else ():
        for label, count in file.labels.most_common():
            if label not in counts:
                what = "rows with the label" if are_classes else "the label"
                message = f'{file.name}: {what} "{printable(label)}", which train does not have.'
                where = check.place(file.label_rows[label])
                yield Finding("error", "unseen_label", message, where, count)
    num_rows = sum(file.num_rows for file in train or check.files)
    if not are_classes or not counts:
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
    more = len(counts) - _LABELS_NAMED
    return f"{named} and {more:,} more" if more > 0 else named


def _near_duplicates(check: _Check) -> Iterator[Finding]:
    """Yield near-duplicates of train in other files, within a file, and with different labels.

    Only rows whose texts differ make findings; `_same_texts` finds the equal ones.
    """
    parts = [file.num_rows for file in check.files]
    near = near_duplicates(check.texts, parts=parts)
    hashes = np.array(check.hashes)
    names = np.repeat([file.name for file in check.files], parts)
    for file in check.files:
        if file.name == "train":
            continue
        leaked, sources = between(near, names == "train", names == file.name)
        is_equal = np.isin(hashes[leaked], hashes[names == "train"])
        message = f"{file.name}: rows that nearly repeat one of train; they inflate the metrics."
        for one, other in zip(leaked[~is_equal].tolist(), sources[~is_equal].tolist(), strict=True):
            yield _two("warning", "near_leakage", message, check, one, "is almost", other)
    one_hash, other_hash = hashes[near.pairs].T
    for one, other in near.pairs[one_hash != other_hash].tolist():
        if names[one] == names[other]:
            message = f"{names[one]}: pairs of rows that are almost the same."
            yield _two("note", "near_duplicate", message, check, other, "is almost", one)
        if check.labels_differ(one, other):
            message = "Texts that are almost the same and have different labels."
            yield _two("warning", "near_contradiction", message, check, other, "contradicts", one)


# The check


def check(
    files: Sequence[tuple[str, str | Path]],
    task: Task,
    names: ColumnNames,
    *,
    tokenizer: Tokenizer | None,
    max_length: int,
    near: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Check labelled data of any task.

    Args:
        files: (split, path); the split named "train" is what the others are compared with.
        names: The user's names of the columns.
        tokenizer: Without it, lengths are in words and truncation is not checked.
        max_length: In tokens, specials included.
        near: Also find texts that are almost the same; see `near_duplicates`.
        progress: Called with the number of further rows read.

    Raises:
        InputError: A file does not exist, lacks a column, or holds no row at all.
    """
    check = _Check(task, tokenizer, max_length, near=near)
    for split, path in files:
        check.begin(split, path)
        check.read(read_task_rows(task, path, names, on_error=check.bad), progress)
    return check.report()


def check_rows(splits: Mapping[str, tuple[str, Sequence[Row]]], task: Task) -> Report:
    """Check labelled rows that are in memory, without a tokenizer: lengths are in words."""
    num_rows = sum(len(rows) for _, rows in splits.values())
    check = _Check(task, None, 0, near=num_rows <= NEAR_ROWS)
    for split, (path, rows) in splits.items():
        check.begin(split, path)
        check.read(rows)
    check.near &= sum(map(len, check.texts)) <= NEAR_CHARACTERS
    return check.report()
