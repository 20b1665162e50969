"""A model to ONNX: the graph, everything beside it, and the proof that it computes the same."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.batch import PackedBatch
from filbert.calibrate import choose_float_layers
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.onnx_folder import (
    MODEL_FILE,
    WEIGHTS_FILE,
    check_installed,
    describe,
    save_graph,
)
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.records import file_digest
from filbert.errors import ConfigError, RunError
from filbert.evaluate import evaluate_model
from filbert.files import portable, replace_folder, sha256_of
from filbert.inference.building import float_layers
from filbert.inference.forward import encode, forward
from filbert.inference.onnx_session import SessionModel, joined
from filbert.inference.precision_loss import precision_loss
from filbert.inference.predictor import Predictor
from filbert.inference.stored_task import int8_warning
from filbert.model.heads import Model
from filbert.model.pooling import check_pooling
from filbert.tasks.base import cleaning_of, set_vector_head

log = logging.getLogger(__name__)

# A float32 output may differ by this much, in units of its largest number where that is above 1.
LARGEST_DIFFERENCE = 1e-4

_SENTENCE = "The film was not very good, but she liked the last half hour of it! "
# From very short to longer than most limits; a pair has both token types.
_PROBES = ("Yes.", _SENTENCE, (_SENTENCE, "Was it good?"), _SENTENCE * 5, _SENTENCE * 40)
_LONGEST_PROBE = 512


class Agreement(NamedTuple):
    """How far an exported model is from the original.

    Attributes:
        difference: the largest between two numbers.
        scale: the largest number.
        cosine: between all outputs in a row.
        share: the largest difference in units of the largest number of the same output, where that
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
) -> dict[str, Any]:
    """Write a folder that onnxruntime runs without filbert; it appears when it has been checked.

    Args:
        name: of the model: a folder, a checkpoint, a built-in name or a Hub id.
        out: the folder; an old one with a config.json is replaced.
        int8: quantise the products of the encoder's layers, except those that `filbert convert
            --to int8` recorded in filbert.json or that `max_loss` requires in float32.
        pooling: for a bare encoder: how it makes `sentence_embedding`; "none" leaves that output
            out. When not given, as the folder says, else the mean.
        data: labelled rows, to compare metrics on.
        names: its columns.
        max_loss: the most that a metric on `data` may be worse by. With int8, layers stay float32
            until it holds.

    Returns:
        What filbert.json says about the export.

    Raises:
        ConfigError: something is not installed or not exported, or a metric loses too much.
        InputError, FormatError: the model or the data is wrong, or the folder is not ours.
        RunError: the graph computes something else.
    """
    check_installed()
    from filbert.checkpoints.onnx_graph import OPSET, build_graph

    if max_loss is not None and data is None:
        raise ConfigError("--max-loss compares metrics on labelled rows: give --data FILE too.")
    predictor = Predictor.load(name, device="cpu")
    checkpoint = predictor.checkpoint
    assert checkpoint is not None
    # Before the graph, which takes its time.
    digest = None if data is None else _digest_for(predictor, data)
    vectors = _vectors(predictor, checkpoint, pooling)
    kept = float_layers(checkpoint, cast(Model, predictor.model)) if int8 else []
    if int8 and data is not None and max_loss is not None and not kept:
        kept = choose_float_layers(predictor, data, names, max_loss=max_loss)["float_layers"]
    graph = build_graph(checkpoint, vectors, int8=int8, keep=kept)
    with replace_folder(out) as new:
        _write_companions(predictor, checkpoint, new, vectors)
        save_graph(graph, new / MODEL_FILE)
        model = SessionModel(new, checkpoint)
        agreement = compare_outputs(predictor, model, pooling)
        allowed = math.inf if int8 else LARGEST_DIFFERENCE
        if not agreement.share < allowed:
            raise RunError(
                f"{out} was not made: the graph's outputs differ by {agreement.difference:.1e} "
                f"from the model's, one by {agreement.share:.1e} of its size; "
                f"{allowed:.1e} is allowed. Please report it with the output of "
                "`filbert doctor`."
            )
        facts: dict[str, Any] = {
            "filbert": version("filbert"),
            "from": portable(name),
            "opset": OPSET,
            "precision": "int8" if int8 else "float32",
            "float_layers": kept,
            # Older graphs lack this: see `SessionModel`.
            "exact_products": True,
            "inputs": list(model.session.inputs),
            "outputs": list(model.session.outputs),
            "largest_difference": agreement.difference,
            "largest_output": agreement.scale,
            "cosine": agreement.cosine,
        }
        if data is not None:
            facts["data"] = {"file": portable(data), "sha256": digest} | _compare_metrics(
                predictor,
                model,
                data,
                names or ColumnNames(),
                precision=facts["precision"],
                max_loss=max_loss,
                out=out,
            )
        listed = [new / file for file in ("config.json", MODEL_FILE, WEIGHTS_FILE)]
        story = {
            **(checkpoint.filbert or {}),
            "max_length": predictor.max_length,
            "onnx": {**facts, "model": describe(checkpoint)},
            "files": {f.name: {"sha256": sha256_of(f)} for f in listed if f.is_file()},
        }
        told = replace(checkpoint, filbert=story)
        warning = int8_warning(predictor.precision, told, predictor.task)
        if warning is not None:
            log.warning(warning)
        clean = cleaning_of(predictor.task)
        if clean is not None:
            log.warning(
                "The graph knows nothing of the model's cleaning (%s), which filbert does: clean "
                "every text before the tokenizer of another program gets it.",
                clean,
            )
        text = json.dumps(story, indent=2, default=list) + "\n"
        (new / "filbert.json").write_text(text, encoding="utf-8")
    return facts


def _vectors(
    predictor: Predictor, checkpoint: Checkpoint, pooling: str | None
) -> SentenceVectors | None:
    """How the graph makes sentence vectors; None where it makes none."""
    if checkpoint.head is not None:
        if pooling is not None:
            raise ConfigError(
                f"--pooling {pooling}: this model ends in a {checkpoint.head} head, which gives no "
                "vectors. Leave it out, or export the encoder (filbert convert --encoder-only)."
            )
        return None
    if pooling is None:
        return predictor.sentence_vectors
    check_pooling(pooling)
    return None if pooling == "none" else SentenceVectors(pooling)


def _write_companions(
    predictor: Predictor, checkpoint: Checkpoint, folder: Path, vectors: SentenceVectors | None
) -> None:
    """The tokenizer, config.json and what else an ordinary folder has.

    A graph without sentence vectors (`vectors` None) still gives the hidden states that they are
    made of, so a bare encoder's folder says in any case how.
    """
    tokenizer = predictor.tokenizer
    if tokenizer.max_length is None:
        tokenizer.max_length = predictor.max_length
    # Other tools pass what is listed, and a graph takes its inputs, no fewer and no more.
    tokenizer.save(folder, token_type_ids=checkpoint.config.embeddings.token_types > 1)
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
    """Every output on texts of several lengths, padded into one batch, beside packed torch.

    Args:
        predictor: of the original.
        model: the exported one.
        pooling: of its sentence vectors, where it gives any; None for the folder's way.
    """
    longest = min(predictor.max_length, _LONGEST_PROBE)
    encodings = predictor.tokenizer.encode(_PROBES, max_length=longest)
    examples = [
        Example(i, e.input_ids, e.token_type_ids, e.num_tokens) for i, e in enumerate(encodings)
    ]
    original, names = predictor.model, model.session.outputs

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        wanted = _parts(encode(original, batch) if model.head is None else original(batch))
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
    """How far outputs are from those that are wanted, each beside its own."""
    pairs = [
        (one.flatten().double(), other.flatten().double())
        for one, other in zip(wanted, found, strict=True)
    ]
    differences = [float((one - other).abs().max()) for one, other in pairs]
    scales = [float(one.abs().max()) for one, _ in pairs]
    shares = [d / max(1.0, scale) for d, scale in zip(differences, scales, strict=True)]
    exact, other = (torch.cat(side) for side in zip(*pairs, strict=True))
    cosine = float(F.cosine_similarity(exact, other, dim=0))
    return Agreement(_largest(differences), _largest(scales), cosine, _largest(shares))


def _largest(numbers: Sequence[float]) -> float:
    """NaN, which `max` would pass over, where there is one."""
    return float(np.max(numbers))


def _parts(output: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)


def _digest_for(predictor: Predictor, data: str) -> str:
    """sha256 of the rows to compare metrics on.

    Raises:
        ConfigError: the model has no task, so that there are no metrics.
        InputError: no such file, or standard input, which cannot be read twice.
    """
    if predictor.task is None:
        raise ConfigError(
            "--data compares a task's metrics, and this model has no task head. Leave it out."
        )
    return file_digest(data)


def _compare_metrics(
    predictor: Predictor,
    model: SessionModel,
    data: str,
    names: ColumnNames,
    *,
    precision: str,
    max_loss: float | None,
    out: Path,
) -> dict[str, Any]:
    """The task's metrics of both on the same rows.

    Raises:
        ConfigError: one falls by more than `max_loss`.
    """
    task = predictor.known_task()
    set_vector_head(model, task)
    exported = Predictor(
        model,
        predictor.tokenizer,
        task,
        max_length=predictor.max_length,
        max_tokens=predictor.max_tokens,
    )
    exact = evaluate_model(predictor, data, names)
    other = evaluate_model(exported, data, names)
    change = precision_loss(exact, other, task.spec.metric_names, whole=task.spec.metric_scale)
    if max_loss is not None:
        change.check(max_loss, f"{out} was not made; on {data}", precision)
    return {
        "float32": exact,
        "exported": other,
        "worst": change.worst and change.worst.name,
        "loss": change.worst and change.worst.share,
    }
