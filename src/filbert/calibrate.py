"""Choose the dense layers that stay float32 when the other layers of a model compute in int8."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.records import file_digest
from filbert.data.texts import read_texts, text_of
from filbert.errors import ConfigError
from filbert.evaluate import evaluate_model
from filbert.files import portable
from filbert.inference.precision_loss import precision_loss
from filbert.inference.predictor import Predictor
from filbert.inference.quantize import mean_cosine, quantized, sensitive_layers, sensitivities
from filbert.model.heads import Model
from filbert.model.precision import Precision
from filbert.tasks.rows import read_task_rows

log = logging.getLogger(__name__)

# Mean cosine between the float32 and the int8 vectors that is reached in any case.
TARGET = 0.999
# Rows that rank the layers, spread over so many of the file's first rows.
_NUM_ROWS = 64
_FIRST_ROWS = 20_000
# Each further attempt evaluates all rows again.
_MORE_AT_A_TIME = 4


def choose_float_layers(
    exact: Predictor,
    data: str,
    names: ColumnNames | None = None,
    *,
    max_loss: float | None = None,
) -> dict[str, Any]:
    """Rank the layers by the error that int8 causes in each, and keep the worst ones in float32.

    Args:
        exact: The model in float32, on the CPU.
        data: Rows of the model's task, or texts if it has no task.
        names: Column names of `data`.
        max_loss: The most that a metric on `data` may fall by. More layers stay float32 than
            `TARGET` requires if this limit needs them.

    Returns:
        What filbert.json records under "int8": "float_layers", the worst first; "layers", how many
        dense layers there are; "cosine" and, with every layer in int8, "cosine_of_all"; the file.
        If the model has a task also its metrics ("float32", "int8") and the largest loss.

    Raises:
        ConfigError: The model has no dense layers, or every choice of layers costs too much.
        InputError: The rows are wrong.
    """
    names = names or ColumnNames()
    model = exact.model
    assert isinstance(model, Model)
    if exact.task is None and max_loss is not None:
        raise ConfigError(
            "--max-loss limits the loss of a metric, and this model has no task head."
        )
    digest = file_digest(data)
    examples = _sample(exact, data, names)
    ranked = sensitivities(model, examples)
    worst = [layer.name for layer in ranked]
    kept = sensitive_layers(model, examples, target=TARGET, ranked=ranked)
    facts: dict[str, Any] = {
        "layers": len(worst),
        "cosine_of_all": mean_cosine(model, quantized(model), examples),
        "data": {"file": portable(data), "sha256": digest, "sequences": len(examples)},
    }
    if exact.task is not None:
        kept, metrics = _keep_until_metrics_hold(exact, data, names, kept, worst, max_loss)
        facts |= metrics
    facts["float_layers"] = kept
    facts["cosine"] = mean_cosine(model, quantized(model, keep=kept), examples)
    return facts


def _sample(predictor: Predictor, data: str, names: ColumnNames) -> list[Example]:
    """Tokenise up to `_NUM_ROWS` rows, spread evenly over the file."""
    task = predictor.task
    rows_in_file: Iterator[Any]
    if task is None:
        rows_in_file = (text_of(row) for row in read_texts(data, names))
    else:
        rows_in_file = iter(read_task_rows(task, data, names))
    rows = list(islice(rows_in_file, _FIRST_ROWS))
    count = min(_NUM_ROWS, len(rows))
    some = [rows[i * len(rows) // count] for i in range(count)]
    return predictor.text_examples(some) if task is None else predictor.row_examples(some)


def _keep_until_metrics_hold(
    exact: Predictor,
    data: str,
    names: ColumnNames,
    kept: list[str],
    worst: list[str],
    max_loss: float | None,
) -> tuple[list[str], dict[str, Any]]:
    """Keep more layers in float32 until no metric falls by more than `max_loss`.

    Raises:
        ConfigError: Only the model without any int8 layer meets the limit.
    """
    task, model = exact.known_task(), exact.model
    assert isinstance(model, Model)
    float32 = evaluate_model(exact, data, names)
    while True:
        other = Predictor(
            quantized(model, keep=kept),
            exact.tokenizer,
            task,
            max_length=exact.max_length,
            max_tokens=exact.max_tokens,
            precision=Precision("int8", "as asked"),
        )
        int8 = evaluate_model(other, data, names)
        loss = precision_loss(float32, int8, task.spec.metric_names, whole=task.spec.metric_scale)
        fault = None if max_loss is None else loss.fault(max_loss)
        if fault is None:
            break
        log.info("%s of %s layers in float32: %s", len(kept), len(worst), fault)
        left = len(worst) - len(kept)
        kept = worst[: len(kept) + min(_MORE_AT_A_TIME, max(left // 2, 1))]
        if len(kept) == len(worst):
            raise ConfigError(
                f"On {data}, int8 costs too much with any choice of layers: {fault}. Use bf16 or "
                "float32."
            )
    metrics = {"float32": float32, "int8": int8}
    return kept, metrics | {
        "worst": loss.worst and loss.worst.name,
        "loss": loss.worst and loss.worst.share,
    }
