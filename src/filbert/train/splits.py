"""The rows of a run: read, checked, tokenised and counted."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from filbert.data.columns import ColumnNames, recognition_line
from filbert.data.examples import Example
from filbert.data.labels import label_order, listed
from filbert.data.records import Row, file_digest, read_rows
from filbert.data.splitting import SPLITS, merged_groups, near_duplicates, stratified_split
from filbert.data.texts import chunks, holds_text
from filbert.errors import ConfigError, InputError
from filbert.tasks.base import Task, task_class
from filbert.tasks.doctor import UNKNOWN_SHARE
from filbert.tasks.rows import named_columns, read_task_rows, row_labels, row_texts
from filbert.text.tokenizer import Tokenizer, characters_in
from filbert.train.log import progress_bar, say
from filbert.train.options import DataOptions, FinetuneOptions

# The message of a finding: the part of the rows, if it names one, and the sentence.
_PART = re.compile(r"(?:(\w+): )?(.*?)\.?", re.DOTALL)


@dataclasses.dataclass
class Split:
    """One file of rows, read, tokenised and counted."""

    path: str
    rows: list[Row]
    gold: list[Any]
    examples: list[Example]
    digest: str


@dataclasses.dataclass(frozen=True)
class Division:
    """How the rows of one file were split; `split.json` of the run folder.

    Attributes:
        path: The file as the user named it.
        rule: What was kept even or together, in words.
        only_in_train: Labels with too few rows for every part.
        parts: Row numbers, from 0, by part.
    """

    path: str
    sha256: str
    seed: int
    rule: str
    only_in_train: tuple[str, ...]
    parts: dict[str, list[int]]

    def lines(self) -> list[str]:
        """Describe the split for the user."""
        sizes = ", ".join(f"{len(numbers):,} {name}" for name, numbers in self.parts.items())
        lines = [f"split: {sizes} rows ({self.rule}; seed {self.seed})"]
        if self.only_in_train:
            lines.append(
                "split: too few rows for every part, so all of them are in train: label "
                f"{listed(self.only_in_train)}"
            )
        return lines


def with_columns(options: FinetuneOptions) -> FinetuneOptions:
    """Return the options with the names of columns that are recognised by their content."""
    data = options.data
    task = task_class(options.task.name).from_options(options.task.options, data.columns)
    apart = () if data.group_column is None else (data.group_column,)
    columns = named_columns(task, data.source, data.columns, apart=apart)
    if columns != data.columns:
        say(recognition_line(data.columns, columns))
    return dataclasses.replace(options, data=dataclasses.replace(data, columns=columns))


def read_splits(options: FinetuneOptions) -> tuple[Task, dict[str, list[Row]], Division | None]:
    """Return the task with the labels of train, the rows of each part, and how they were split."""
    data = options.data
    task = task_class(options.task.name).from_options(options.task.options, data.columns)
    source = list(read_task_rows(task, data.source, data.columns))
    division = None
    if data.is_split:
        seed = options.run.seed if data.split_seed is None else data.split_seed
        division = divide(task, source, data=data, seed=seed)
    rows = {"train": source}
    if division is not None:
        rows = {name: [source[i] for i in at] for name, at in division.parts.items()}
    task = task.fit(rows["train"])
    rows |= {n: list(read_task_rows(task, path, data.columns)) for n, path in data.files.items()}
    metric = options.train.metric
    if metric is not None and metric not in task.spec.metric_names:
        raise ConfigError(f"metric {metric!r} is not one of {list(task.spec.metric_names)}.")
    return task, {name: rows[name] for name in SPLITS if name in rows}, division


def divide(task: Task, rows: Sequence[Row], *, data: DataOptions, seed: int) -> Division:
    """Split the rows of a file, each part with its share of every class.

    Rows on the same context, near-duplicates and rows with the same value in the group column stay
    together. Classes with too few rows for every part stay in train.
    """
    strata, rules = _strata(task, rows)
    shares = {"train": 1 - sum(data.cut.values())} | data.cut
    if data.folds:
        shares = {str(number + 1): 1 / data.folds for number in range(data.folds)}
    own = np.arange(len(rows)) if data.group_column is None else _groups_of_column(rows, data)
    split = partial(stratified_split, strata, shares, seed=seed)
    if "context" in rows[0].values:
        near = near_duplicates([str(row.values["context"]) for row in rows])
        parts = split(groups=merged_groups(own, near.clusters))
        rules.append("rows on one context kept together")
    else:
        near = near_duplicates([_joined(task, row) for row in rows])
        try:
            parts = split(groups=merged_groups(own, near.clusters))
            is_even = all(2 * len(parts[n]) >= share * len(rows) for n, share in shares.items())
        except InputError:
            is_even = False
        if is_even:
            rules.append("near-duplicates kept together")
        else:
            # All rows from one template are one cluster, which cannot be divided.
            parts = split(groups=own)
            rules.append("near-duplicates in all parts, because most rows have some")
    if data.group_column is not None:
        rules.append(f"grouped by {data.group_column}")
    if data.folds:
        rules.append(f"fold {data.fold} of {data.folds}")
        parts = _fold(strata, parts, str(data.fold))
    rare: list[str] = []
    if task.spec.labels_are_classes:
        of = {
            n: {label for i in at for label in row_labels(task, rows[i])} for n, at in parts.items()
        }
        rare = sorted(of["train"] - of["train"].intersection(*of.values()), key=label_order)
    return Division(
        path=data.source,
        sha256=file_digest(data.source),
        seed=seed,
        rule="; ".join(rules),
        only_in_train=tuple(rare),
        parts={name: at.tolist() for name, at in parts.items()},
    )


def _fold(
    strata: Sequence[str], parts: Mapping[str, np.ndarray], name: str
) -> dict[str, np.ndarray]:
    """Return the rows of one part as test and all others as train, with classes a part lacks."""
    everywhere = set.intersection(*({strata[i] for i in at} for at in parts.values()))
    test = np.array([i for i in parts[name].tolist() if strata[i] in everywhere], dtype=np.int64)
    return {"train": np.setdiff1d(np.arange(len(strata)), test), "test": test}


def _strata(task: Task, rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Return the class of each row, of which every part gets a share, and the rule in words."""
    if task.spec.labels_are_classes:
        labels = [row_labels(task, row) for row in rows]
        counts = Counter(label for names in labels for label in names)
        # Of several labels the rarest, so that no part is without it.
        return [min(names, key=lambda n: counts[n], default="") for names in labels], [
            "stratified by label"
        ]
    if task.spec.problem_type == "regression":
        scores = np.array([task.gold(row) for row in rows])
        edges = np.quantile(scores, np.linspace(0, 1, min(10, max(1, len(rows) // 20)) + 1)[1:-1])
        return [str(number) for number in np.searchsorted(edges, scores)], ["stratified by score"]
    return [""] * len(rows), []


def _joined(task: Task, row: Row) -> str:
    texts = row_texts(task, row, clean=False)
    return "\n".join(text if isinstance(text, str) else "\n".join(text) for text in texts)


def _groups_of_column(rows: Sequence[Row], data: DataOptions) -> np.ndarray:
    """Return the group number of each row; a row without a value is its own group."""
    values = values_of_column(rows, data.source, str(data.group_column), data.columns)
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(v or f"\0{i}", i) for i, v in enumerate(values)])


def values_of_column(
    rows: Sequence[Row], path: str | Path, column: str, names: ColumnNames
) -> list[str]:
    """Read a further column of rows that come from one file; an empty text for no value."""
    found = read_rows(
        path, optional=(), extra=(column,), separator=names.separator, encoding=names.encoding
    )
    of_line = {row.line: str(row.values[column] or "").strip() for row in found}
    return [of_line[row.line] for row in rows]


def _tokenised(
    name: str, rows: list[Row], task: Task, tokenizer: Tokenizer, max_length: int
) -> Split:
    """Check every label and tokenise every text; refuse a column that is nearly empty."""
    path = rows[0].path
    num_empty = sum(not holds_text(row) for row in rows) if "text" in rows[0].values else 0
    if num_empty >= 0.9 * len(rows):
        raise InputError(
            f"{path}: {num_empty:,} of {len(rows):,} {name} rows have an empty text. Name the "
            "column with the text: --text-column NAME."
        )
    gold = [task.gold(row) for row in rows]
    examples: list[Example] = []
    start = 0

    def size_of(row: Row) -> int:
        return sum(map(characters_in, row_texts(task, row, clean=False)))

    with progress_bar() as bar:
        shown = bar.add_task(f"tokenise {name}", total=len(rows))
        for chunk in chunks(rows, size_of):
            made = task.examples(chunk, tokenizer, max_length=max_length, with_targets=True)
            examples += [dataclasses.replace(e, row=e.row + start) for e in made]
            start += len(chunk)
            bar.update(shown, advance=len(chunk))
    return Split(path, rows, gold, examples, file_digest(path))


def finding_lines(findings: list[dict[str, Any]], task: str) -> list[str]:
    """Describe the findings, one line for each kind, and how to see all places."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        part, sentence = _PART.fullmatch(finding["message"]).groups()  # type: ignore[union-attr]
        kinds.setdefault(sentence, []).append(finding | {"part": part or ""})
    lines = []
    for sentence, same in kinds.items():
        parts = [f"{f['part']} {f['count']:,}".lstrip() for f in same]
        places = [f["where"][0] for f in same if f["where"]]
        if places:
            sentence += f": {', '.join(parts)}, such as {places[0]}"
        lines.append(f"data: {sentence}")
    if lines:
        lines.append(f"data: filbert check --task {task} FILE... lists all places")
    return lines


def token_lines(
    data: Mapping[str, Mapping[str, Any]],
    splits: Mapping[str, Split],
    *,
    unk_id: int | None,
    rule: str,
) -> list[str]:
    """Describe truncated texts and, if they are many, unknown tokens; one line each.

    `data` has the facts of each part, as in run.json, and `rule` is how long texts are cut.
    """
    cut = {name: facts for name, facts in data.items() if facts["truncated"]}
    lines = []
    if cut:
        rows = " and ".join(
            f"{facts['truncated']:,} of {facts['rows']:,} {name} rows "
            f"({facts['truncated'] / facts['rows']:.1%})"
            for name, facts in cut.items()
        )
        length = next(iter(cut.values()))["max_length"]
        lost = sum(facts["truncated_tokens"] for facts in cut.values())
        longest = max(facts["longest"] for facts in cut.values())
        lines.append(
            f"truncation: {rows} are longer than {length} tokens and were cut ({rule}): {lost:,} "
            f"tokens are lost, the longest has {longest:,}"
        )
    unknown = []
    for name, split in splits.items() if unk_id is not None else ():
        ids = np.concatenate([example.input_ids for example in split.examples])
        if (share := float(np.mean(ids == unk_id))) > UNKNOWN_SHARE:
            unknown.append(f"{share:.1%} of the {name} tokens")
    if unknown:
        lines.append(
            f"unknown: {', '.join(unknown)} are not in the model's vocabulary; it may be for "
            "another language or another kind of text"
        )
    return lines


def tokenise_splits(
    rows: Mapping[str, list[Row]], task: Task, tokenizer: Tokenizer, max_length: int
) -> tuple[dict[str, Split], dict[str, float]]:
    """Tokenise the rows of all files; also return seconds by name, for run.json."""
    splits, took = {}, {}
    clock = time.perf_counter()
    for name, part in rows.items():
        started, cpu = time.perf_counter(), time.process_time()
        splits[name] = _tokenised(name, part, task, tokenizer, max_length)
        if name == "train":
            took["train_tokenise_seconds"] = time.perf_counter() - started
            took["training_cpu_seconds"] = time.process_time() - cpu
    return splits, took | {"tokenise_seconds": time.perf_counter() - clock}
