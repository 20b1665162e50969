"""Learning rate, epochs and batch size that are chosen where the user gives none."""

from __future__ import annotations

import math
from dataclasses import replace

from filbert.errors import ConfigError
from filbert.tasks.base import TaskSpec
from filbert.train.options import FinetuneOptions, TrainOptions

# Learning rate of a new head, for models up to this width. The rate falls from layer to layer to a
# tenth at the embeddings. That of 512 is measured with MiniLM (docs/finetune.md), those above are
# ELECTRA's (Clark et al. 2020, appendix B), which fall about as fast.
_NEW_HEAD_RATES = ((256, 1.5e-3), (512, 1e-3), (896, 1e-4), (math.inf, 5e-5))
_SHARE_AT_EMBEDDINGS = 0.1
# With many rows and few labels, MiniLM needs no such rate: 1e-4 for all layers is better.
_MINILM_WIDTHS, _FEW_LABELS, _MANY_ROWS_RATE = range(257, 513), 20, 1e-4
# A model that was trained for its task, or for vectors, learns at one rate, so that it does not
# forget: 2e-5 at width 768, the lowest of the BERT paper. A head over a frozen encoder: 5e-4.
_TRAINED_TIMES_WIDTH, _FROZEN_TIMES_WIDTH = 2e-5 * 768, 5e-4 * 768
# Low-rank adapters: 5e-4 at width 768, as Hu et al. 2021 (appendix D) for RoBERTa-base. With MiniLM
# twice its 1e-3 is a little better, four times fails (docs/log.md).
_LORA_TIMES_WIDTH = 5e-4 * 768
# A head that starts from a logistic regression needs no higher rate than the encoder: 1e-4 at width
# 384, measured with MiniLM.
_STARTED_TIMES_WIDTH = 1e-4 * 384
# Fewer rows are trained on in batches of 16, more in batches of 32.
FEW_ROWS = 1_000
# Optimizer steps that a new head gets at least, and rows for each of its outputs, within the bounds
# of the epochs. Banking77, 77 intents: accuracy 0.675 after 47 rows a label, 0.837 after 93.
_STEPS, _ROWS_PER_LABEL = 200, 100
_FEWEST_EPOCHS, _MOST_EPOCHS = 3, 50
# Evaluations of a run whose epochs were chosen.
_MOST_EVALUATIONS = 10
# Fewer steps give a warning.
_TOO_FEW_STEPS = 100
# Chosen values that are not printed.
_NEUTRAL = {"layer_decay": 1.0}
# Option, lowest and highest usual value, in words.
_USUAL = {
    "lr": (1e-6, 1e-2, "1e-5 to 1e-3"),
    "epochs": (0, 200, "1 to 30"),
    "batch_size": (2, 1024, "8 to 256"),
    "warmup": (0, 0.5, "0 to 0.2"),
    "dropout": (0, 0.5, "0 to 0.3"),
    "weight_decay": (0, 0.5, "0 to 0.1"),
}


def with_defaults(
    options: TrainOptions,
    *,
    num_rows: int,
    width: int,
    num_layers: int,
    num_labels: int = 2,
    has_new_head: bool = True,
    is_frozen: bool = False,
    is_lora: bool = False,
    is_started: bool = False,
) -> TrainOptions:
    """Return options in which lr, layer decay, epochs and batch size are set.

    Args:
        options: The user's; what is given stays.
        is_frozen: Whether only pooler and head learn.
        is_lora: Whether pooler, head and low-rank adapters learn.
        is_started: Whether the head starts from a logistic regression.
    """
    batch_size = options.batch_size or (16 if num_rows < FEW_ROWS else 32)
    epochs = options.epochs
    if epochs is None and options.steps is None and options.time is None:
        for_steps = _STEPS / math.ceil(num_rows / batch_size) if has_new_head else 0
        for_labels = _ROWS_PER_LABEL * num_labels / num_rows if has_new_head else 0
        wanted = math.ceil(max(for_steps, for_labels, _FEWEST_EPOCHS))
        epochs = float(min(wanted, _MOST_EPOCHS))
    rate, decay = (_FROZEN_TIMES_WIDTH if is_frozen else _TRAINED_TIMES_WIDTH) / width, 1.0
    if is_lora:
        rate = _LORA_TIMES_WIDTH / width
    elif is_started:
        rate = _STARTED_TIMES_WIDTH / width
    elif not has_new_head or is_frozen or options.lr is not None:
        pass
    elif num_rows >= FEW_ROWS and num_labels <= _FEW_LABELS and width in _MINILM_WIDTHS:
        rate = _MANY_ROWS_RATE
    else:
        rate = next(rate for most, rate in _NEW_HEAD_RATES if width <= most)
        # The head is two steps above the top layer, see `rate_shares`.
        decay = round(_SHARE_AT_EMBEDDINGS ** (1 / (num_layers + 2)), 3)
    return replace(
        options,
        lr=options.lr or float(f"{rate:.1e}"),
        layer_decay=options.layer_decay or decay,
        epochs=epochs,
        batch_size=batch_size,
    )


def contrast_weight(
    options: FinetuneOptions, spec: TaskSpec, *, num_rows: int, has_new_head: bool
) -> float:
    """Return the weight of the contrastive loss: the user's, or the default.

    The default is 1 for fewer than 1,000 rows and a new head, where the user gives neither a rate
    nor a number of steps and all layers learn; otherwise 0.
    """
    train = options.train
    is_single = spec.problem_type == "single_label_classification"
    if options.contrast and not (is_single and has_new_head):
        raise ConfigError("contrast needs a new head, and rows of one label each.")
    if options.contrast is not None:
        return options.contrast
    given = (train.lr, train.epochs, train.steps, train.time, train.freeze, options.model.lora)
    is_usual = all(value is None for value in given)
    return float(is_single and has_new_head and is_usual and num_rows < FEW_ROWS)


def evaluation_interval(
    given: TrainOptions, chosen: TrainOptions, steps_per_epoch: int
) -> int | None:
    """Return the steps between evaluations where the epochs were chosen; otherwise None.

    It is a whole number of epochs: few rows have up to 50 epochs, of a few steps each.
    """
    if given.epochs is not None or chosen.epochs is None:
        return None
    return steps_per_epoch * math.ceil(chosen.epochs / _MOST_EVALUATIONS)


def default_lines(given: TrainOptions, chosen: TrainOptions, num_steps: int | None) -> list[str]:
    """Describe what was chosen by `with_defaults`, and warn of unusual values.

    `num_steps` is None where time decides, or the head is trained.
    """
    names = [
        name
        for name in ("lr", "layer_decay", "epochs", "batch_size")
        if getattr(given, name) is None and getattr(chosen, name) not in (None, _NEUTRAL.get(name))
    ]
    values = ", ".join(f"--{n.replace('_', '-')} {getattr(chosen, n):g}" for n in names)
    lines = [f"defaults: {values} (by the number of rows and the size of the model)"]
    lines = lines if names else []
    for name, (low, high, usual) in _USUAL.items():
        value = getattr(given, name)
        if value is not None and not low <= value <= high:
            lines.append(f"warning: {name} {value:g} is unusual; {usual} is usual")
    if num_steps is not None and num_steps < _TOO_FEW_STEPS:
        steps = "1 optimizer step is" if num_steps == 1 else f"{num_steps} optimizer steps are"
        lines.append(
            f"warning: {steps} few; a model often needs {_TOO_FEW_STEPS} or more. Give more "
            f"{'--epochs' if given.steps is None else '--steps'}."
        )
    return lines
