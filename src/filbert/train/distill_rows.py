"""The rows of a distillation: read, checked, and in the tokens of student and teacher."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.tasks.base import Task
from filbert.train.augmented import augmented_rows
from filbert.train.distill_options import DistillOptions
from filbert.train.distill_student import Start
from filbert.train.prepare import Split, tokenise
from filbert.train.teacher import TaskTeacher, check_labels

_MEASURED = ("train", "dev", "test")


@dataclass
class Rows:
    """All rows of a run.

    Attributes:
        splits: train, and maybe dev and test, in the student's tokens.
        examples: what is learnt from: the rows of train, then those without labels, counted on.
        own: the teacher's examples of all these rows by their number, where it reads other tokens
            than the student; else None.
        own_splits: the teacher's examples of every split, whatever it reads.
        digests: sha256 of the files, and of what was made of the rows without labels.
        tokenise_seconds: of all.
        took: of the training rows alone, in seconds.
    """

    splits: dict[str, Split]
    examples: list[Example]
    own: dict[int, list[Example]] | None
    own_splits: dict[str, list[Example]]
    digests: dict[str, str]
    tokenise_seconds: float
    took: dict[str, float] = field(default_factory=dict)


def read_rows(
    options: DistillOptions, task: Task, start: Start, teacher: TaskTeacher, device: torch.device
) -> Rows:
    """Read every file, make more rows where that is asked for, and tokenise.

    Raises:
        InputError: a row is wrong; with file and line.
        ConfigError: the teacher does not know a label, or the rows cannot be augmented.
    """
    assert options.train is not None
    rows: dict[str, list[Row]] = {}
    for name in _MEASURED:
        if path := getattr(options, name):
            rows[name] = list(task.read(path, options))
            check_labels(teacher, path, rows[name])
    extra = list(task.read(options.extra, options, labelled=False)) if options.extra else []
    splits, own_splits = {}, {}
    # What making the rows to learn from takes is a part of the training.
    took = {"augment_seconds": 0.0, "train_tokenise_seconds": 0.0, "training_cpu_seconds": 0.0}
    if options.augment_with is not None:
        began, cpu = time.perf_counter(), time.process_time()
        extra += augmented_rows(rows["train"], task, options, device)
        took["augment_seconds"] = time.perf_counter() - began
        took["training_cpu_seconds"] = time.process_time() - cpu
    clock = time.perf_counter()
    theirs = teacher.predictor
    for name, found in (rows | ({"extra": extra} if extra else {})).items():
        began, cpu = time.perf_counter(), time.process_time()
        labelled = name in _MEASURED
        path = getattr(options, name) or options.train
        split = tokenise(
            name, path, found, task, start.tokenizer, start.max_length, labelled=labelled
        )
        splits[name], own_splits[name] = split, split.examples
        if not start.shares_tokens:
            own_splits[name] = tokenise(
                f"{name} for the teacher",
                path,
                found,
                task,
                theirs.tokenizer,
                theirs.max_length,
                labelled=False,
            ).examples
        if name in ("train", "extra"):
            took["train_tokenise_seconds"] += time.perf_counter() - began
            took["training_cpu_seconds"] += time.process_time() - cpu
    unlabelled = splits.pop("extra", None)
    digests = {name: split.digest for name, split in splits.items()}
    if unlabelled is not None:
        # Of the tokens: what a model has made of the training rows stands in no file.
        digests["extra"] = digest_of_tokens(unlabelled.examples)
    own = None
    if not start.shares_tokens:
        own = _by_row(_counted_on(own_splits["train"], own_splits.get("extra", [])))
    return Rows(
        splits,
        _counted_on(splits["train"].examples, unlabelled.examples if unlabelled else []),
        own,
        own_splits,
        digests,
        time.perf_counter() - clock,
        took,
    )


def digest_of_tokens(examples: Sequence[Example]) -> str:
    """sha256 of the tokens of all rows, in order, and of the words that they belong to."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(f"{example.row} {len(example.input_ids)} ".encode())
        digest.update(example.input_ids.astype("<i8").tobytes())
        digest.update(example.token_type_ids.astype("<i8").tobytes())
        # Of a tagged sentence: the same tokens may be of other words, whose answers are others.
        for name in ("words", "rows", "leaders"):
            if (found := getattr(example.source, name, None)) is not None:
                digest.update(np.asarray(found).astype("<i8").tobytes())
    return digest.hexdigest()


def _counted_on(first: list[Example], second: list[Example]) -> list[Example]:
    """Examples of two lots of rows; those of the second are numbered behind the first."""
    num_rows = first[-1].row + 1
    return first + [dataclasses.replace(e, row=e.row + num_rows) for e in second]


def _by_row(examples: Sequence[Example]) -> dict[int, list[Example]]:
    found: dict[int, list[Example]] = {}
    for example in examples:
        found.setdefault(example.row, []).append(example)
    return found
