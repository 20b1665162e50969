"""What a student of labelled rows starts from, and whether it reads what its teacher reads."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from filbert.checkpoints.checkpoint import Checkpoint, with_layers
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.errors import ConfigError
from filbert.stored_task import check_max_length
from filbert.text.tokenizer import Tokenizer
from filbert.train.distill_options import DistillOptions
from filbert.train.log import say
from filbert.train.prepare import with_task_head
from filbert.train.teacher import TaskTeacher
from filbert.train.trainable import layers_to_keep


class Start(NamedTuple):
    """A student before its first step.

    Attributes:
        checkpoint: with the task's head; see `with_task_head`.
        tokenizer: the student's.
        max_length: its texts are cut there.
        shares_tokens: whether teacher and student read the same tokens.
    """

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    max_length: int
    shares_tokens: bool


def read_student(options: DistillOptions, teacher: TaskTeacher) -> Start:
    """Read the model that is named, or take layers of the teacher.

    Raises:
        ConfigError: neither is asked for; or the method cannot compare these two.
        InputError, FormatError: there is no such model, or it is damaged.
    """
    if options.student is None and options.keep_layers is None:
        raise ConfigError(
            "Name a smaller model with --student, or keep some of the teacher's layers with "
            "--keep-layers, such as --keep-layers 0,2,4."
        )
    folder = find_model(options.student or options.teacher)
    tokenizer, checkpoint = read_tokenizer(folder), read_checkpoint(folder)
    config = checkpoint.config
    for note in tokenizer.check_fits(config.vocab_size, config.type_vocab_size, folder):
        say(note)
    if options.keep_layers is not None:
        layers = layers_to_keep(options.keep_layers, config.num_hidden_layers)
        checkpoint = with_layers(checkpoint, layers)
    if options.dropout is not None:
        changed = checkpoint.config.with_dropout(options.dropout)
        checkpoint = dataclasses.replace(checkpoint, config=changed)
    checkpoint = with_task_head(checkpoint, teacher.task)
    theirs = teacher.predictor
    limit = config.max_tokens_per_sequence
    max_length = check_max_length(options.max_length, config) or min(theirs.max_length, limit)
    shares = _shares_tokens(tokenizer, config.type_vocab_size, max_length, teacher)
    if not shares and (options.method != "soft" or teacher.task.head_kind == "spans"):
        what = f"method {options.method}" if options.method != "soft" else teacher.task.name
        raise ConfigError(
            f"{what} compares teacher and student token by token, but {options.student} reads "
            f"other tokens than {options.teacher}. Take a student with the teacher's vocabulary"
            f"{'' if options.method == 'soft' else ', or method soft'}."
        )
    return Start(checkpoint, tokenizer, max_length, shares)


def _shares_tokens(
    tokenizer: Tokenizer, num_types: int, max_length: int, teacher: TaskTeacher
) -> bool:
    theirs = teacher.predictor
    config = theirs.model.config
    return (
        tokenizer.fingerprint == theirs.tokenizer.fingerprint
        and max_length <= config.max_tokens_per_sequence
        # The teacher reads the types that the student's tokenizer writes: none that it has no row
        # for, and both if it learnt with both.
        and (config.type_vocab_size == 0 or (num_types < 2) == (config.type_vocab_size < 2))
    )
