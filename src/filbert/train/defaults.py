"""Learning rate, epochs and batch size that are chosen where the user gives none."""

from __future__ import annotations

import math
from dataclasses import replace

from filbert.train.options import TrainOptions

# A model twice as wide learns at half the rate: 5e-5 at 768, the rate of the BERT paper.
_RATE_TIMES_WIDTH = 5e-5 * 768
_LOWEST_RATE, _HIGHEST_RATE = 2e-5, 2e-4
# Fewer rows are trained on in batches of 16, more in batches of 32.
_FEW_ROWS = 1_000
# Optimizer steps that a run has at least, within the bounds of the epochs.
_STEPS = 200
_FEWEST_EPOCHS, _MOST_EPOCHS = 3, 30
# Fewer steps give a warning.
_TOO_FEW_STEPS = 100
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
    options: TrainOptions, *, num_rows: int, width: int, is_frozen: bool = False
) -> TrainOptions:
    """Return options in which lr, epochs and batch size are set.

    Args:
        options: The user's; what is given stays.
        num_rows: Of the training rows.
        width: Hidden size of the encoder.
        is_frozen: Only pooler and head learn, at ten times the rate.
    """
    batch_size = options.batch_size or (16 if num_rows < _FEW_ROWS else 32)
    wanted = math.ceil(_STEPS / math.ceil(num_rows / batch_size))
    epochs = options.epochs
    if epochs is None and options.steps is None and options.time is None:
        epochs = float(min(max(wanted, _FEWEST_EPOCHS), _MOST_EPOCHS))
    rate = min(max(_RATE_TIMES_WIDTH / width, _LOWEST_RATE), _HIGHEST_RATE)
    lr = options.lr or float(f"{10 * rate if is_frozen else rate:.1e}")
    return replace(options, lr=lr, epochs=epochs, batch_size=batch_size)


def default_lines(given: TrainOptions, chosen: TrainOptions, num_steps: int | None) -> list[str]:
    """Describe what was chosen, and warn of unusual values.

    Args:
        given: The user's options.
        chosen: The result of `with_defaults`.
        num_steps: Optimizer steps of the run; None where time decides.
    """
    names = ["lr", "epochs", "batch_size"] if given.steps is None and given.time is None else []
    names = [name for name in names or ["lr", "batch_size"] if getattr(given, name) is None]
    values = ", ".join(f"--{n.replace('_', '-')} {getattr(chosen, n):g}" for n in names)
    lines = [f"defaults: {values} (by the number of rows and the size of the model)"]
    lines = lines if names else []
    for name, (low, high, usual) in _USUAL.items():
        value = getattr(given, name)
        if value is not None and not low <= value <= high:
            lines.append(f"warning: {name} {value:g} is unusual; {usual} is usual")
    if num_steps is not None and num_steps < _TOO_FEW_STEPS:
        lines.append(
            f"warning: {num_steps} optimizer steps are few; a model often needs "
            f"{_TOO_FEW_STEPS} or more. Give more --epochs."
        )
    return lines
