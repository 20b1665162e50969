"""The rows of a run: read, checked, tokenised and counted."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from filbert.data.doctor import check_rows
from filbert.data.examples import Example
from filbert.data.records import Row, file_digest
from filbert.data.texts import characters_in, chunks
from filbert.errors import ConfigError
from filbert.tasks.base import Task, task_class
from filbert.tasks.checking import RowCheck
from filbert.tasks.rows import read_task_rows, row_texts
from filbert.text.tokenizer import Tokenizer
from filbert.train.log import progress_bar
from filbert.train.options import DataOptions, FinetuneOptions

# Findings on the data that are printed before training.
_FINDINGS_PRINTED = 3


@dataclasses.dataclass
class Split:
    """One file of rows, read, tokenised and counted."""

    name: str
    path: str
    rows: list[Row]
    gold: list[Any]
    examples: list[Example]
    digest: str


def read_splits(options: FinetuneOptions) -> tuple[Task, dict[str, list[Row]]]:
    """The rows of train, dev and test, and the task with the labels of train.

    Raises:
        InputError, ConfigError: a row or an option is wrong.
    """
    data, columns = options.data, options.data.columns
    task = task_class(options.task.name).from_options(options.task.options, columns)
    named = {"train": data.train, "dev": data.dev, "test": data.test}
    rows: dict[str, list[Row]] = {}
    for name, path in named.items():
        if path:
            rows[name] = list(read_task_rows(task, path, columns))
            if name == "train":
                task = task.fit(rows[name])
    metric = options.train.metric
    if metric is not None and metric not in task.spec.metric_names:
        raise ConfigError(f"metric {metric!r} is not one of {list(task.spec.metric_names)}.")
    return task, rows


def tokenise(
    name: str,
    path: str,
    rows: list[Row],
    task: Task,
    tokenizer: Tokenizer,
    max_length: int,
    *,
    labelled: bool = True,
) -> Split:
    """Check every label, if there are any, and tokenise every text."""
    gold = [task.gold(row) for row in rows] if labelled else []
    examples: list[Example] = []
    start = 0

    def size_of(row: Row) -> int:
        return sum(map(characters_in, row_texts(task, row, clean=False)))

    with progress_bar() as bar:
        shown = bar.add_task(f"tokenise {name}", total=len(rows))
        for chunk in chunks(rows, size_of):
            made = task.examples(chunk, tokenizer, max_length=max_length, with_targets=labelled)
            examples += [dataclasses.replace(e, row=e.row + start) for e in made]
            start += len(chunk)
            bar.update(shown, advance=len(chunk))
    return Split(name, path, rows, gold, examples, file_digest(path))


def check_data(task: Task, splits: Mapping[str, Split]) -> list[dict[str, Any]]:
    """Return what `filbert check` calls errors and warnings, for the rows of a run.

    Returns:
        One dict per finding: level, kind, message, count and the first places.
    """
    files = {name: (split.path, split.rows) for name, split in splits.items()}
    report = check_rows(files, RowCheck(task))
    return [dataclasses.asdict(found) for found in report.problems if found.level != "note"]


def finding_lines(findings: list[dict[str, Any]], task: str) -> list[str]:
    """Describe the first findings, one line each, and how to see all of them."""
    lines = []
    for found in findings[:_FINDINGS_PRINTED]:
        times = f" ({found['count']:,} times)" if found["count"] > 1 else ""
        place = f": {found['where'][0]}" if found["where"] else ""
        lines.append(f"data: {found['message'].rstrip('.')}{times}{place}")
    if findings:
        more = len(findings) - len(lines)
        also = f"{more} more; " if more else ""
        lines.append(f"data: {also}filbert check --task {task} FILE... lists all places")
    return lines


def tokenise_splits(
    data: DataOptions,
    rows: Mapping[str, list[Row]],
    task: Task,
    tokenizer: Tokenizer,
    max_length: int,
) -> tuple[dict[str, Split], dict[str, float]]:
    """Tokenise the rows of all files; also return seconds by name, for run.json."""
    splits, took = {}, {}
    clock = time.perf_counter()
    for name, part in rows.items():
        started, cpu = time.perf_counter(), time.process_time()
        splits[name] = tokenise(name, getattr(data, name), part, task, tokenizer, max_length)
        if name == "train":
            took["train_tokenise_seconds"] = time.perf_counter() - started
            took["training_cpu_seconds"] = time.process_time() - cpu
    return splits, took | {"tokenise_seconds": time.perf_counter() - clock}
