"""Everything a run needs before its first step: rows checked and tokenised, model and head."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from filbert.checkpoints.checkpoint import Checkpoint, as_causal, with_layers, with_new_head
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.data.chunks import characters_in, chunks
from filbert.data.examples import Example
from filbert.data.records import Row, file_digest
from filbert.errors import ConfigError
from filbert.files import portable
from filbert.model.heads import Model
from filbert.stored_task import check_max_length
from filbert.tasks.base import Task, task_class, uncleaned
from filbert.text.tokenizer import Tokenizer
from filbert.train.distributed import Trainable
from filbert.train.log import progress_bar, say
from filbert.train.options import FinetuneOptions, TrainOptions
from filbert.train.state import digest_of
from filbert.train.story import PATHS
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
    "hidden_lr", "hidden_schedule", "cuda_graphs",
)  # fmt: skip


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
    task = task_class(options.task).from_options(options, options)
    named = {"train": options.train, "dev": options.dev, "test": options.test}
    rows: dict[str, list[Row]] = {}
    for name, path in named.items():
        if path:
            rows[name] = list(task.read(path, options))
            if name == "train":
                task = task.fit_labels(rows[name])
    if options.metric is not None and options.metric not in task.metric_names:
        raise ConfigError(f"metric {options.metric!r} is not one of {list(task.metric_names)}.")
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
    raw = uncleaned(task)
    with progress_bar() as bar:
        shown = bar.add_task(f"tokenise {name}", total=len(rows))
        for chunk in chunks(rows, lambda row: sum(map(characters_in, raw.sequences(row)))):
            made = task.examples(chunk, tokenizer, max_length=max_length, with_targets=labelled)
            examples += [dataclasses.replace(e, row=e.row + start) for e in made]
            start += len(chunk)
            bar.update(shown, advance=len(chunk))
    return Split(name, path, rows, gold, examples, file_digest(path))


def load_for_task(options: FinetuneOptions, task: Task) -> tuple[Checkpoint, Tokenizer, int]:
    """The encoder to start from with a fresh head, its tokenizer, the length to cut texts at."""
    folder = find_model(options.model)
    tokenizer = read_tokenizer(folder)
    checkpoint = _shaped(read_checkpoint(folder), options)
    config = checkpoint.config
    for note in tokenizer.check_fits(config.vocab_size, config.type_vocab_size, folder):
        say(note)
    positions = config.max_tokens_per_sequence
    max_length = check_max_length(options.max_length, checkpoint.config)
    usual = _USUAL_MAX_LENGTH.get(task.name, positions)
    max_length = max_length or min(tokenizer.max_length or positions, positions, usual)
    if options.dropout is not None:
        changed = config.with_dropout(options.dropout)
        checkpoint = dataclasses.replace(checkpoint, config=changed)
    checkpoint = with_new_head(
        checkpoint,
        task.head_kind,
        num_labels=task.num_labels,
        labels=task.labels if task.head_kind is not None else None,
        problem_type=task.problem_type,
    )
    return checkpoint, tokenizer, max_length


def _shaped(checkpoint: Checkpoint, options: FinetuneOptions) -> Checkpoint:
    """The encoder with the layers and the direction of attention that are asked for."""
    if options.keep_layers is not None:
        layers = layers_to_keep(options.keep_layers, checkpoint.config.num_hidden_layers)
        checkpoint = with_layers(checkpoint, layers)
    return as_causal(checkpoint) if options.causal else checkpoint


def build(checkpoint: Checkpoint, task: Task, options: TrainOptions) -> Model:
    """The model to train, on the host."""
    model = checkpoint.build()
    if task.head_kind is None:
        model.head = task.head(checkpoint.config)
    reinitialize_top(model, options.reinit_layers)
    return model


def fingerprint(options: TrainOptions, model: Trainable, digests: Mapping[str, str]) -> str:
    """sha256 over all that decides what a run computes: options, data and starting weights.

    Of a path its last part, where it is absolute: what lies there is in `digests` and in the
    weights, and a run's folder may be moved.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    chosen = {
        name: portable(value) if name in PATHS else value
        for name, value in dataclasses.asdict(options).items()
        if name not in _FREE and not (name in _LATER and value == defaults[name])
    }
    chosen["eps"] = options.epsilon
    if getattr(options, "cache", None) is not None:
        # Where the folder is does not count, but answers computed ahead differ in their last bits.
        chosen["cache"] = True
    content = {"options": chosen, "data": dict(digests), "model": digest_of(model.state_dict())}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()
