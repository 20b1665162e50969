"""Models for deployment: checked ONNX folders, and the layers that int8 leaves in float32."""

from __future__ import annotations

import hashlib
import logging
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.batch import PackedBatch
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.onnx_folder import (
    MODEL_FILE,
    WEIGHTS_FILE,
    check_installed,
    is_export,
    save_graph,
)
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.records import file_digest
from filbert.data.texts import read_texts, text_of
from filbert.errors import ConfigError, RunError
from filbert.evaluation import evaluate_model
from filbert.files import cache_folder, portable, replace_folder, sha256_of, write_json
from filbert.inference.bulk import model_digest
from filbert.inference.forward import forward
from filbert.inference.int8 import (
    input_ranges,
    mean_cosine,
    quantized,
    ranges_record,
    recorded,
    sensitive_layers,
    sensitivities,
)
from filbert.inference.onnx_session import SessionModel, joined
from filbert.inference.precision import PrecisionLoss, int8_warning, precision_loss
from filbert.inference.predictor import Predictor, names_of
from filbert.inference.stored_task import columns_of_training
from filbert.model.heads import Model
from filbert.model.int8 import InputRange, has_integer_products
from filbert.model.pooling import check_pooling
from filbert.model.precision import Precision, choose_device
from filbert.tasks.base import set_vector_head
from filbert.tasks.rows import read_task_rows

log = logging.getLogger(__name__)

# Mean cosine between the float32 and the int8 vectors that is reached in any case.
TARGET = 0.999
# The same with one scale for all tokens, which is faster and less exact.
STATIC_TARGET = 0.99
# Rows that rank the layers, spread over so many of the file's first rows.
_RANKING_ROWS = 64
_FIRST_ROWS = 20_000
# Each further attempt evaluates all rows again.
_MORE_AT_A_TIME = 4

# A float32 output may differ by this much, in units of its largest number where that is above 1.
LARGEST_DIFFERENCE = 1e-4

_SENTENCE = "The film was not very good, but she liked the last half hour of it! "
# From very short to longer than most limits; a pair has both token types.
_PROBES = ("Yes.", _SENTENCE, (_SENTENCE, "Was it good?"), _SENTENCE * 5, _SENTENCE * 40)
_LONGEST_PROBE = 512


class Agreement(NamedTuple):
    """The largest difference between two outputs, the largest output, and the cosine of all.

    `share` is the largest difference in units of the largest number of the same output, where that
    is above 1. Vectors of unit length must not hide behind hidden states of 6.
    """

    difference: float
    scale: float
    cosine: float
    share: float


def export_onnx(
    name: str,
    out: Path,
    *,
    int8: bool = False,
    pooling: str | None = None,
    data: str | None = None,
    names: ColumnNames | None = None,
    max_loss: float | None = None,
    hidden_too: bool = False,
) -> dict[str, Any]:
    """Write a folder that onnxruntime runs without filbert; it appears when it was checked.

    Returns the entry of filbert.json about the export.

    Args:
        out: The folder; an old one with a config.json is replaced.
        int8: Quantise the encoder's layers but some; see `_int8_layers`.
        pooling: Of a bare encoder's `sentence_embedding`; "none" leaves it out; by default as the
            folder sets, else the mean.
        data: Labelled rows, to compare metrics on; `names` are their columns.
        max_loss: The most that a metric on `data` may be worse by.
        hidden_too: Output the hidden states of a model with a head, too.

    Raises:
        RunError: The graph computes something else.
    """
    check_installed()
    from filbert.checkpoints.onnx_graph import OPSET, build_graph

    if max_loss is not None and data is None:
        raise ConfigError("--max-loss compares metrics on labelled rows: give --data FILE too.")
    predictor = Predictor.load(name, device="cpu")
    checkpoint = predictor.checkpoint
    assert checkpoint is not None
    if data is not None and predictor.task is None:
        raise ConfigError("--data compares a task's metrics, and this model has no task.")
    digest = None if data is None else file_digest(data)
    vectors = _vectors(predictor, checkpoint, pooling)
    kept, ranges = _int8_layers(predictor, checkpoint, data, names, max_loss) if int8 else ([], {})
    graph = build_graph(checkpoint, vectors, int8=ranges, hidden_too=hidden_too)
    with replace_folder(out) as new:
        _write_companions(predictor, checkpoint, new, vectors)
        save_graph(graph, new / MODEL_FILE)
        model = SessionModel(new, checkpoint)
        agreement = compare_outputs(predictor, model, pooling)
        _check_agreement(agreement, math.inf if int8 else LARGEST_DIFFERENCE, out)
        facts = _facts(model, agreement, name, is_int8=int8, opset=OPSET) | {"float_layers": kept}
        if data is not None:
            names = names or ColumnNames()
            loss, metrics = _compare_metrics(predictor, model, data, names, name="exported")
            if max_loss is not None:
                loss.check(max_loss, f"{out} was not made; on {data}", "int8" * int8)
            facts["data"] = {"file": portable(data), "sha256": digest} | metrics
        _record(facts, predictor, checkpoint, new)
    return facts


def _int8_layers(
    predictor: Predictor,
    checkpoint: Checkpoint,
    data: str | None,
    names: ColumnNames | None,
    max_loss: float | None,
) -> tuple[list[str], dict[str, InputRange]]:
    """Return the layers that stay float32, and what is known of the inputs of the others."""
    model = cast(Model, predictor.model)
    kept, _ = recorded(checkpoint, model)
    if data is None:
        examples = predictor.text_examples(_PROBES)
    else:
        examples = _sample(predictor, data, names or ColumnNames())
    if data is not None and max_loss is not None and not kept:
        chosen = choose_float_layers(predictor, data, names, max_loss=max_loss, is_static=True)
        kept = chosen["float_layers"]
    ranges = input_ranges(model, examples)
    return kept, {name: one for name, one in ranges.items() if name not in kept}


def int8_engine(model: str, loading: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the folder and the options that compute a model in int8 fastest on this machine.

    A CPU without integer products (VNNI) does so by onnxruntime, if that is installed. The model is
    exported once, into the cache folder.

    Args:
        loading: Keywords of `Predictor.load`, with precision "int8".
    """
    is_own = has_integer_products() or choose_device(loading["device"]).type != "cpu"
    if is_own or loading["backend"] != "torch" or names_of(model)[1:]:
        return model, dict(loading)
    try:
        check_installed()
        predictor = Predictor.load(model, device="cpu")
        assert isinstance(predictor.model, Model) and predictor.checkpoint is not None
        if predictor.checkpoint.head in ("masked_lm", "pretraining"):
            raise ConfigError("it would fill no masks.")
        noted = (predictor.checkpoint.filbert or {}).get("int8")
        content = f"{version('filbert')} {model_digest(predictor)} {noted} columns apart"
        folder = cache_folder() / "int8" / hashlib.sha256(content.encode()).hexdigest()[:16]
        if not is_export(folder):
            export_onnx(model, folder, int8=True, hidden_too=True)
    except ConfigError as error:
        log.warning("int8 is not by onnxruntime: %s", error)
        return model, dict(loading)
    log.warning("int8 by onnxruntime, since this CPU has no integer products (VNNI): %s", folder)
    return str(folder), {**loading, "precision": "float32", "backend": "onnxruntime"}


def _facts(
    model: SessionModel, agreement: Agreement, name: str, *, is_int8: bool, opset: int
) -> dict[str, Any]:
    """Return the entry of filbert.json about an export."""
    return {
        "filbert": version("filbert"),
        "from": portable(name),
        "opset": opset,
        "precision": "int8" if is_int8 else "float32",
        "inputs": list(model.session.inputs),
        "outputs": list(model.session.outputs),
        "largest_difference": agreement.difference,
        "largest_output": agreement.scale,
        "cosine": agreement.cosine,
    }


def _check_agreement(agreement: Agreement, allowed: float, out: Path) -> None:
    if not agreement.share < allowed:
        raise RunError(
            f"{out} was not made: the graph's outputs differ by {agreement.difference:.1e} from "
            f"the model's, one by {agreement.share:.1e} of its size; {allowed:.1e} is allowed. "
            "Please report it with the output of `filbert doctor`."
        )


def _record(
    facts: dict[str, Any], predictor: Predictor, checkpoint: Checkpoint, folder: Path
) -> None:
    """Write filbert.json, and warn of what another program has to do."""
    listed = [folder / file for file in ("config.json", MODEL_FILE, WEIGHTS_FILE)]
    stored = {
        **(checkpoint.filbert or {}),
        "max_length": predictor.max_length,
        "onnx": facts,
        "files": {f.name: {"sha256": sha256_of(f)} for f in listed if f.is_file()},
    }
    exported = replace(checkpoint, filbert=stored)
    if warning := int8_warning(predictor.precision, exported, predictor.task):
        log.warning(warning)
    clean = predictor.cleaning
    if clean is not None:
        log.warning(
            "The graph does not contain the model's cleaning (%s), which filbert applies: clean "
            "every text before the tokenizer of another program reads it.",
            clean,
        )
    write_json(folder / "filbert.json", stored)


def _vectors(
    predictor: Predictor, checkpoint: Checkpoint, pooling: str | None
) -> SentenceVectors | None:
    """Return the operations that make sentence vectors; None if the graph makes none."""
    if checkpoint.head is not None:
        if pooling is not None:
            raise ConfigError(
                f"--pooling {pooling}: this model ends in a {checkpoint.head} head, which gives no "
                "vectors. Leave it out."
            )
        return None
    if pooling is None:
        vectors = predictor.sentence_vectors
        if vectors.prompt and not vectors.include_prompt:
            raise ConfigError(
                "This model does not pool its prompt, and a graph pools all tokens. Leave vectors "
                "out: --pooling none."
            )
        return vectors
    check_pooling(pooling)
    return None if pooling == "none" else SentenceVectors(pooling)


def _write_companions(
    predictor: Predictor, checkpoint: Checkpoint, folder: Path, vectors: SentenceVectors | None
) -> None:
    """Write the tokenizer, config.json and the other files of an ordinary folder.

    A graph without sentence vectors (`vectors` None) still gives the hidden states that they are
    made of, so a bare encoder's folder says in any case how.
    """
    # Other tools pass what is listed, and a graph takes its inputs, no fewer and no more.
    predictor.tokenizer.save(
        folder,
        max_length=predictor.max_length,
        token_type_ids=checkpoint.config.embeddings.token_types > 1,
    )
    (folder / "config.json").write_text(huggingface.config_text(checkpoint), encoding="utf-8")
    if vectors is None and checkpoint.head is None:
        vectors = predictor.sentence_vectors
    if vectors is not None:
        limited = replace(vectors, max_length=predictor.max_length)
        write_sentence_vectors(folder, limited, checkpoint.config.hidden_size)
    card = checkpoint.source / "README.md" if checkpoint.source else None
    if card is not None and card.is_file():
        shutil.copyfile(card, folder / "README.md")


def compare_outputs(
    predictor: Predictor, model: SessionModel, pooling: str | None = None
) -> Agreement:
    """Compare every output with packed torch, on texts of several lengths padded into one batch.

    `pooling` is that of the exported sentence vectors; None for the folder's.
    """
    longest = min(predictor.max_length, _LONGEST_PROBE)
    encodings = predictor.tokenizer.encode(_PROBES, max_length=longest)
    examples = [Example.of(i, encoding) for i, encoding in enumerate(encodings)]
    original = predictor.model
    names = model.session.outputs if model.head is None else model.answers

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        wanted = _parts(original.encoder(batch) if model.head is None else original(batch))
        arrays = model.session.padded(batch, names)
        exported = _parts(joined(names, [torch.from_numpy(array) for array in arrays]))
        return (*wanted, *exported)

    outputs = forward(
        original, examples, read, max_tokens=len(examples) * longest, precision=predictor.precision
    )
    ((order, tensors),) = outputs
    # The exported tensors come second; sentence vectors are not among the wanted ones yet.
    count = len(tensors) // 2
    wanted = tensors[:count]
    if names[-1] == "sentence_embedding":
        vectors = predictor.vectors([examples[i] for i in order], pooling=pooling)
        wanted = (*wanted, torch.from_numpy(np.stack(vectors)))
    return agreement_of(wanted, tensors[count:])


def agreement_of(wanted: Sequence[Tensor], found: Sequence[Tensor]) -> Agreement:
    """Return how far the outputs are from the expected ones, pair by pair."""
    pairs = [
        (one.flatten().double(), other.flatten().double())
        for one, other in zip(wanted, found, strict=True)
    ]
    differences = [float((one - other).abs().max()) for one, other in pairs]
    scales = [float(one.abs().max()) for one, _ in pairs]
    shares = [d / max(1.0, scale) for d, scale in zip(differences, scales, strict=True)]
    exact, other = (torch.cat(side) for side in zip(*pairs, strict=True))
    cosine = float(F.cosine_similarity(exact, other, dim=0))
    # NaN, which `max` would pass over, has to win.
    largest = [float(np.max(numbers)) for numbers in (differences, scales, shares)]
    return Agreement(largest[0], largest[1], cosine, largest[2])


def _parts(output: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)


def _compare_metrics(
    exact: Predictor,
    model: Model | SessionModel,
    data: str,
    names: ColumnNames,
    *,
    name: str,
    float32: dict[str, Any] | None = None,
) -> tuple[PrecisionLoss, dict[str, Any]]:
    """Compare the task's metrics of a float32 predictor and of a model in its place.

    `float32` are the metrics of the predictor, where they are known.

    Returns:
        The loss, and what filbert.json records; `name` is that of the other form of the model.
    """
    task = exact.known_task()
    set_vector_head(model, task)
    other = Predictor(
        model,
        exact.tokenizer,
        task,
        max_length=exact.max_length,
        max_tokens=exact.max_tokens,
        precision=None if isinstance(model, SessionModel) else Precision("int8", "as asked"),
    )
    float32 = float32 or evaluate_model(exact, data, names)
    metrics = evaluate_model(other, data, names)
    loss = precision_loss(float32, metrics, task.spec.metric_names, whole=task.spec.metric_scale)
    worst = loss.worst
    facts = {"worst": worst and worst.name, "loss": worst and worst.share}
    return loss, {"float32": float32, name: metrics} | facts


# Which layers stay float32 next to int8


def choose_float_layers(
    exact: Predictor,
    data: str,
    names: ColumnNames | None = None,
    *,
    max_loss: float | None = None,
    is_static: bool = False,
) -> dict[str, Any]:
    """Rank the layers by the error that int8 causes in each, and keep the worst ones in float32.

    Args:
        data: Rows of the model's task, or texts if it has no task.
        max_loss: The most that a metric on `data` may fall by. More layers stay float32 than
            the cosine requires if this limit needs them.
        is_static: Inputs have one scale for all tokens, measured on `data`.

    Returns:
        What filbert.json records under "int8": "float_layers", the worst first; "layers", how many
        dense layers there are; "cosine" and, with every layer in int8, "cosine_of_all"; the file.
        If the model has a task also its metrics ("float32", "int8") and the largest loss.

    Raises:
        ConfigError: Every choice of layers costs too much.
    """
    names = names or ColumnNames()
    model = exact.model
    assert isinstance(model, Model)
    if exact.task is None and max_loss is not None:
        raise ConfigError("--max-loss limits the loss of a metric, and this model has no task.")
    digest = file_digest(data)
    examples = _sample(exact, data, names)
    ranges = input_ranges(model, examples) if is_static else None
    in_int8 = partial(quantized, model, ranges=ranges)
    target = STATIC_TARGET if is_static else TARGET
    worst = list(sensitivities(model, examples, ranges))
    kept = sensitive_layers(model, examples, worst, target=target, ranges=ranges)
    facts: dict[str, Any] = {
        "layers": len(worst),
        "cosine_of_all": mean_cosine(model, in_int8(), examples),
        "data": {"file": portable(data), "sha256": digest, "sequences": len(examples)},
    }
    float32 = None if exact.task is None else evaluate_model(exact, data, names)
    while float32 is not None:
        loss, metrics = _compare_metrics(
            exact, in_int8(keep=kept), data, names, name="int8", float32=float32
        )
        fault = None if max_loss is None else loss.fault(max_loss)
        if fault is None:
            facts |= metrics
            break
        log.info("%s of %s layers in float32: %s", len(kept), len(worst), fault)
        left = len(worst) - len(kept)
        kept = worst[: len(kept) + min(_MORE_AT_A_TIME, max(left // 2, 1))]
        if len(kept) == len(worst):
            raise ConfigError(
                f"On {data}, int8 costs too much with any choice of layers: {fault}. Use bf16."
            )
    cosine = mean_cosine(model, in_int8(keep=kept), examples)
    facts |= {"float_layers": kept, "cosine": cosine}
    return facts if ranges is None else facts | {"ranges": ranges_record(ranges)}


def _sample(predictor: Predictor, data: str, names: ColumnNames) -> list[Example]:
    """Tokenise up to `_RANKING_ROWS` rows, spread evenly over the file."""
    task = predictor.task
    rows_in_file: Iterator[Any]
    if task is None:
        rows_in_file = (text_of(row) for row in read_texts(data, names))
    else:
        names = columns_of_training(predictor.checkpoint, data, names)
        rows_in_file = iter(read_task_rows(task, data, names))
    rows = list(islice(rows_in_file, _FIRST_ROWS))
    count = min(_RANKING_ROWS, len(rows))
    some = [rows[i * len(rows) // count] for i in range(count)]
    return predictor.text_examples(some) if task is None else predictor.row_examples(some)
