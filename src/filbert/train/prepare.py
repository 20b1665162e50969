"""Everything a run needs before its first step: rows checked and tokenised, model and head."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from filbert.checkpoints.checkpoint import Checkpoint, as_causal, with_layers, with_new_head
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.data.doctor import check_rows
from filbert.data.examples import Example
from filbert.data.records import Row, file_digest
from filbert.data.texts import characters_in, chunks
from filbert.errors import ConfigError
from filbert.files import portable
from filbert.inference.stored_task import check_max_length
from filbert.model.heads import Model
from filbert.tasks.base import Task, TaskSpec, set_vector_head, task_class
from filbert.tasks.checking import RowCheck
from filbert.tasks.rows import read_task_rows, row_texts
from filbert.text.tokenizer import Tokenizer
from filbert.train.distributed import Trainable
from filbert.train.log import progress_bar, say
from filbert.train.options import PATHS, FinetuneOptions, flat, options_in, usual_epsilon
from filbert.train.state import digest_of
from filbert.train.trainable import layers_to_keep, reinitialize_top

# Options that do not change what a run computes, so that they may change when it is resumed.
_FREE = (
    "out", "overwrite", "resume", "tensorboard", "save_every", "show_texts", "distributed",
    "dry_run", "license", "language", "cache",
)  # fmt: skip
# Options that came later, which change nothing while they have their defaults: a run that an
# earlier version began can be resumed.
_LATER = (
    "clean", "causal", "keep_layers", "merge_labels", "merge_as", "mask_rarity",
    "hidden_lr", "hidden_schedule", "new_head", "separator",
)  # fmt: skip


# Findings on the data that are printed before training.
_FINDINGS_PRINTED = 3
# Where it is not the model's limit. Source: run_squad.py of google-research/bert.
_USUAL_MAX_LENGTH = {"span_qa": 384}


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


def load_for_task(options: FinetuneOptions, task: Task) -> tuple[Checkpoint, Tokenizer, int]:
    """The model to start from, with the task's head, its tokenizer, the length to cut texts at."""
    folder = find_model(options.model.name)
    tokenizer = read_tokenizer(folder)
    checkpoint = _shaped(read_checkpoint(folder), options)
    config = checkpoint.config
    for note in tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, folder):
        say(note)
    positions = config.max_tokens_per_sequence
    max_length = check_max_length(options.data.max_length, checkpoint.config)
    usual = _USUAL_MAX_LENGTH.get(task.spec.name, positions)
    max_length = max_length or min(tokenizer.max_length or positions, positions, usual)
    if options.train.dropout is not None:
        changed = config.with_dropout(options.train.dropout)
        checkpoint = dataclasses.replace(checkpoint, config=changed)
    checkpoint = with_task_head(checkpoint, task, new_head=options.model.new_head)
    return checkpoint, tokenizer, max_length


def with_task_head(checkpoint: Checkpoint, task: Task, *, new_head: bool = False) -> Checkpoint:
    """Return the checkpoint with a head for a task.

    The head is kept if it was trained for the same task and the same labels. Labels in another
    order move its rows. Any other checkpoint gets a new head, drawn at random.

    Args:
        checkpoint: stays as it is.
        task: with its labels.
        new_head: draw a new head in any case.
    """
    spec = task.spec
    if new_head or not _is_for(spec, checkpoint):
        return with_new_head(
            checkpoint,
            spec.head_kind,
            num_labels=spec.num_labels,
            labels=spec.labels if spec.head_kind is not None else None,
            problem_type=spec.problem_type,
        )
    tensors, labels = checkpoint.tensors, checkpoint.labels
    if spec.labels is not None and labels is not None:
        rows = [labels.index(label) for label in spec.labels]
        tensors = {
            name: tensor[rows] if name.startswith("head.out.") else tensor
            for name, tensor in tensors.items()
        }
        labels = spec.labels
    size = f" with {spec.num_labels} outputs" if spec.num_labels else ""
    note = f"head kept: {spec.head_kind}{size}, trained for the same spec."
    return dataclasses.replace(
        checkpoint,
        tensors=tensors,
        labels=labels,
        problem_type=spec.problem_type,
        notes=(*checkpoint.notes, note),
        filbert=None,
    )


def _is_for(spec: TaskSpec, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has a head for this task and exactly its labels, in any order."""
    if spec.head_kind is None or checkpoint.head != spec.head_kind:
        return False
    # Without a problem_type in config.json, one output means regression, as in transformers.
    usual = "regression" if checkpoint.num_labels == 1 else "single_label_classification"
    if spec.problem_type not in (None, checkpoint.problem_type or usual):
        return False
    if spec.labels is None:
        return spec.num_labels == checkpoint.num_labels
    return sorted(spec.labels) == sorted(checkpoint.labels or ())


def _shaped(checkpoint: Checkpoint, options: FinetuneOptions) -> Checkpoint:
    """The encoder with the layers and the direction of attention that are asked for."""
    base = options.model
    if base.keep_layers is not None:
        layers = layers_to_keep(base.keep_layers, checkpoint.config.num_hidden_layers)
        checkpoint = with_layers(checkpoint, layers)
    return as_causal(checkpoint) if base.causal else checkpoint


def build(checkpoint: Checkpoint, task: Task, reinit_layers: int = 0) -> Model:
    """Build the model to train, on the CPU."""
    model = checkpoint.build()
    set_vector_head(model, task)
    reinitialize_top(model, reinit_layers)
    return model


def fingerprint(options: Any, model: Trainable, digests: Mapping[str, str]) -> str:
    """sha256 over all that decides what a run computes: options, data and starting weights.

    Of a path its last part, where it is absolute: what lies there is in `digests` and in the
    weights, and a run's folder may be moved.
    """
    defaults = {name: option.default for name, option in options_in(type(options)).items()}
    values = flat(options)
    chosen = {
        name: portable(value) if name in PATHS else value
        for name, value in values.items()
        if name not in _FREE and not (name in _LATER and value == defaults[name])
    }
    chosen["eps"] = usual_epsilon(values["optimizer"]) if values["eps"] is None else values["eps"]
    # Options that every run of an earlier version had.
    chosen = {"compile": False, "reinit_layers": 0, "seeds": 1} | chosen
    if values.get("cache") is not None:
        # Where the folder is does not count, but answers computed ahead differ in their last bits.
        chosen["cache"] = True
    content = {"options": chosen, "data": dict(digests), "model": digest_of(model.state_dict())}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()
