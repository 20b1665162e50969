"""Which dense layers of a model bear int8, found on the user's own rows and noted in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from filbert.checkpoints.onnx_folder import is_export
from filbert.checkpoints.opening import is_google
from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.records import file_digest
from filbert.data.texts import read_texts, text_of
from filbert.errors import ConfigError
from filbert.evaluate import evaluate_model
from filbert.files import portable, write_json
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.speed.loss import precision_loss, whole_of
from filbert.speed.precision import Precision
from filbert.speed.quantize import (
    Sensitivity,
    dense_layers,
    mean_cosine,
    quantized,
    sensitive_layers,
    sensitivities,
)
from filbert.train.log import progress_bar, say

# Rows that layers are judged by, from all over so many of the file's first ones.
_NUM_ROWS = 64
_FIRST_ROWS = 20_000
# Every further try evaluates all rows once more.
_MORE_AT_A_TIME = 4


def calibrate(
    name: str,
    data: str,
    *,
    names: ColumnNames | None = None,
    target: float = 0.999,
    max_loss: float | None = None,
) -> dict[str, Any]:
    """Note in a model's filbert.json which dense layers stay float32 when the rest is int8.

    From then on `precision="int8"` and `filbert export --int8` leave them alone.

    Args:
        name: of the model: a folder with weights of its own.
        data: rows of the model's task; texts, where it has none.
        names: their columns.
        target: wanted mean cosine between vectors with and without int8, in (0, 1).
        max_loss: the most that a metric on `data` may be worse by. More layers stay float32 than
            the target asks for, if that is what it takes.

    Returns:
        What is noted, under "int8" in filbert.json: "float_layers", the worst first; "layers", how
        many there are; "cosine", and "cosine_of_all" with none of them kept; "target"; "alone",
        what each layer alone costs; the file. For a model with a task also its metrics in float32
        and so ("float32", "int8"), and of the one that loses most its name and by how much.

    Raises:
        ConfigError: no such folder, or int8 is not for it, or costs too much in every layer.
        InputError, FormatError: the model or the data is wrong.
    """
    folder = _own_folder(name)
    names = names or ColumnNames()
    exact = Predictor.load(folder, device="cpu")
    model, checkpoint = exact.model, exact.checkpoint
    assert isinstance(model, Model) and checkpoint is not None
    everything = dense_layers(model)
    if exact.task is None and max_loss is not None:
        raise ConfigError("--max-loss is about a task's metrics, and this model has no task head.")
    digest = file_digest(data)
    examples = _examples(exact, data, names)
    ranked = _ranked(model, examples, len(everything))
    kept = sensitive_layers(model, examples, target=target, ranked=ranked)
    facts: dict[str, Any] = {
        "layers": len(everything),
        "target": target,
        "cosine_of_all": mean_cosine(model, quantized(model), examples),
        "alone": {layer.name: layer.cosine for layer in ranked},
        "data": {"file": portable(data), "sha256": digest, "sequences": len(examples)},
    }
    if len(kept) == len(everything):
        raise ConfigError(
            f"Vectors of {name} reach a cosine of {target} only with every layer in float32. Take "
            "a lower --target, bf16, or float32; nothing was noted."
        )
    if exact.task is not None:
        worst = [layer.name for layer in ranked]
        kept, figures = _within(exact, data, names, kept, worst, max_loss)
        facts |= figures
    facts["float_layers"] = kept
    story = checkpoint.filbert or {}
    facts["cosine"] = mean_cosine(model, quantized(model, keep=kept), examples)
    # Old sentence-transformers folders hold the encoder, and what is known of it, in a part.
    write_json((checkpoint.source or folder) / "filbert.json", story | {"int8": facts})
    return facts


def _own_folder(name: str) -> Path:
    """The folder of that name, if there is one to write into.

    Raises:
        ConfigError: the model lies elsewhere, or its weights do.
    """
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file() or is_google(folder):
        raise ConfigError(
            f"{name} is no model folder to note anything in. Make one: filbert convert {name} DIR "
            "--to huggingface"
        )
    if is_export(folder):
        raise ConfigError(
            f"{name} is an exported model. Calibrate the one that it was made from, and export "
            "that again."
        )
    return folder


def _examples(predictor: Predictor, data: str, names: ColumnNames) -> list[Example]:
    """Some tens of rows from all over the file, as the model reads them."""
    task = predictor.task
    found: Iterator[Any]
    if task is None:
        found = (text_of(row) for row in read_texts(data, names))
    else:
        found = iter(task.reading(names).read(data, names))
    rows = list(islice(found, _FIRST_ROWS))
    count = min(_NUM_ROWS, len(rows))
    some = [rows[i * len(rows) // count] for i in range(count)]
    return predictor.text_examples(some) if task is None else predictor.row_examples(some)


def _ranked(model: Model, examples: list[Example], count: int) -> list[Sensitivity]:
    with progress_bar() as bar:
        shown = bar.add_task("layers alone in int8", total=count)
        return sensitivities(model, examples, on_layer=lambda: bar.update(shown, advance=1))


def _within(
    exact: Predictor,
    data: str,
    names: ColumnNames,
    kept: list[str],
    worst: list[str],
    max_loss: float | None,
) -> tuple[list[str], dict[str, Any]]:
    """What stays float32 so that no metric falls too far, and the metrics.

    Args:
        exact: the model in float32.
        data: its rows.
        names: their columns.
        kept: what stays in any case, the beginning of `worst`.
        worst: all layers, the most sensitive first.
        max_loss: None for no limit.

    Raises:
        ConfigError: only a model without int8 is near enough.
    """
    task, model = exact.known_task(), exact.model
    assert isinstance(model, Model)
    wanted = evaluate_model(exact, data, names)
    while True:
        other = Predictor(
            quantized(model, keep=kept),
            exact.tokenizer,
            task,
            max_length=exact.max_length,
            max_tokens=exact.max_tokens,
            precision=Precision("int8", "as asked"),
        )
        found = evaluate_model(other, data, names)
        compared = precision_loss(wanted, found, task.metric_names, whole=whole_of(task))
        fault = None if max_loss is None else compared.fault(max_loss)
        if fault is None:
            break
        say(f"{len(kept)} of {len(worst)} layers in float32: {fault}; more of them stay")
        left = len(worst) - len(kept)
        kept = worst[: len(kept) + min(_MORE_AT_A_TIME, max(left // 2, 1))]
        if len(kept) == len(worst):
            raise ConfigError(
                f"On {data}, int8 costs too much in whatever layers it is: {fault}. Take bf16 or "
                "float32; nothing was noted."
            )
    figures = {"float32": wanted, "int8": found}
    lost = compared.worst
    return kept, figures | {"worst": lost and lost.name, "loss": lost and lost.share}
