"""Google's original checkpoints, in and out: BERT, ALBERT and ELECTRA as TensorFlow saved them.

A folder holds bert_config.json (albert_config.json; ELECTRA's have none), vocab.txt or a
SentencePiece model, and the tensors in bert_model.ckpt.index and .data-00000-of-00001.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.errors import ConfigError, FormatError, printable, unreadable_as
from filbert.formats.checkpoint import Checkpoint
from filbert.formats.config_json import LABELLED, label_names, problem_type
from filbert.formats.files import replace_files, sha256_of
from filbert.formats.google_config import config_file, write_config
from filbert.formats.google_names import FAMILY_NAMES, is_transposed, name_table
from filbert.formats.google_plan import Plan, plan_reading
from filbert.formats.google_variables import summary
from filbert.formats.google_vocabulary import write_vocabulary
from filbert.formats.tensor_bundle import TensorBundle, write_bundle
from filbert.text.tokenizer import Tokenizer

PREFIX = "bert_model.ckpt"
_PROJECT = "encoder.embeddings.project."


@unreadable_as(FormatError)
def read(prefix: Path, *, hidden_act: str | None = None, part: str | None = None) -> Checkpoint:
    """The checkpoint at a prefix; its notes say what was decided and what was left out.

    Names and shapes are compared with what the configuration implies before any tensor is read.

    Args:
        prefix: ".../bert_model.ckpt".
        hidden_act: "gelu" (the erf form) or "gelu_tanh", to overrule what "gelu" usually means in
            this family.
        part: of ELECTRA's two models, "discriminator" (the default where there are both) or
            "generator".

    Raises:
        FormatError: a damaged file, or tensors that are not those of the configuration.
        ConfigError: an option that does not fit the checkpoint.
    """
    bundle = TensorBundle.open(prefix)
    plan = plan_reading(bundle, hidden_act=hidden_act, part=part)
    tensors = {ours: _read(plan, bundle, ours) for ours in plan.sources}
    notes = [*plan.notes, *summary(plan.left_out)]
    labels, problem = None, None
    if plan.kind in LABELLED:
        count = len(tensors["head.out.weight"])
        path = config_file(prefix.parent) or prefix
        labels, problem = label_names(plan.raw, path), problem_type(plan.raw, path)
        if labels is None or len(labels) != count:
            labels = tuple(f"LABEL_{i}" for i in range(count))
            notes.append(
                f"output_weights is read as a classifier of {count} labels over the whole text; "
                "the format does not keep their names."
            )
    return Checkpoint(
        config=plan.config,
        family=plan.family,
        tensors=tensors,
        head=plan.kind,
        labels=labels,
        problem_type=problem,
        source=prefix.parent,
        notes=tuple(notes),
    )


@unreadable_as(FormatError)
def tensor_report(
    prefix: Path, *, hidden_act: str | None = None, part: str | None = None
) -> list[dict[str, Any]]:
    """One entry for each tensor of a checkpoint: name, shape, dtype, becomes, file.

    `becomes` is filbert's name of it, or "left out: ..." with the reason. Arguments and errors are
    those of `read`.
    """
    bundle = TensorBundle.open(prefix)
    plan = plan_reading(bundle, hidden_act=hidden_act, part=part)
    becomes = {key: f"left out: {reason}" for key, reason in plan.left_out.items()}
    for ours, theirs in plan.sources.items():
        for number, name in enumerate(theirs, 1):
            share = f", part {number} of {len(theirs)}" if len(theirs) > 1 else ""
            becomes[plan.variables.found[name].key] = ours + share
    return [
        {
            "name": name,
            "shape": list(shape),
            "dtype": str(bundle.dtypes[name]),
            "becomes": becomes[name],
            "file": bundle.files[name].name,
        }
        for name, shape in bundle.shapes.items()
    ]


def write(checkpoint: Checkpoint, tokenizer: Tokenizer, folder: Path) -> dict[str, str]:
    """Write a checkpoint as Google's code would have; other files of the folder stay.

    All files are whole on the disk before the first is put in place.

    Args:
        checkpoint: of a family that Google has published, with a head that its code has.
        tokenizer: WordPiece, or for ALBERT also unigram.
        folder: made when missing.

    Returns:
        SHA-256 by file name.

    Raises:
        ConfigError: something that the format cannot say.
        InputError: the disk is full, or the folder may not be written to.
    """
    _check_writable(checkpoint)
    checkpoint.check()
    table = name_table(
        checkpoint.family,
        generator=(checkpoint.family, checkpoint.head) == ("electra", "masked_lm"),
    )
    arrays: dict[str, np.ndarray] = {}
    for ours, tensor in checkpoint.tensors.items():
        if ours.startswith(_PROJECT) and _is_identity(checkpoint):
            continue
        theirs = table.theirs(ours, checkpoint.head)
        for name, chunk in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            values = _float32(chunk, ours).numpy()
            arrays[name] = np.ascontiguousarray(values.T if is_transposed(name) else values)
    extra: dict[str, Any] = {}
    names = checkpoint.labels or ()
    if names != tuple(f"LABEL_{i}" for i in range(len(names))):
        extra["id2label"] = {str(i): name for i, name in enumerate(names)}
    if checkpoint.problem_type is not None:
        extra["problem_type"] = checkpoint.problem_type
    with replace_files(folder) as staging:
        write_config(checkpoint.config, checkpoint.family, checkpoint.head, staging, extra)
        write_vocabulary(tokenizer, checkpoint.family, staging)
        write_bundle(staging / PREFIX, dict(sorted(arrays.items())))
        return {path.name: sha256_of(path) for path in sorted(staging.iterdir())}


def _check_writable(checkpoint: Checkpoint) -> None:
    family = checkpoint.family
    if family not in FAMILY_NAMES:
        raise ConfigError(
            f"Google's format is that of {', '.join(FAMILY_NAMES)}; it has no names for the "
            f"tensors of a {family}. Keep Hugging Face's layout for it."
        )
    heads = {kind for kind in name_table(family).heads if kind}
    heads |= {"masked_lm"} if family == "electra" else set()
    if checkpoint.head is not None and checkpoint.head not in heads:
        raise ConfigError(
            f"Google's code for {family} has no {checkpoint.head!r} head; it has "
            f"{', '.join(sorted(heads))}. Write the encoder alone (--encoder-only), or keep "
            "Hugging Face's layout."
        )
    is_wide = checkpoint.config.embedding_size == checkpoint.config.hidden_size
    if is_wide and not _is_identity(checkpoint):
        raise ConfigError(
            "Google's code has no projection between tables and layers of the same width "
            f"({checkpoint.config.hidden_size}), and the one of this model changes something."
        )


def _is_identity(checkpoint: Checkpoint) -> bool:
    weight = checkpoint.tensors.get(f"{_PROJECT}weight")
    if weight is None or weight.shape[0] != weight.shape[1]:
        return False
    bias = checkpoint.tensors[f"{_PROJECT}bias"]
    return torch.equal(weight.float(), torch.eye(len(weight))) and not bool(bias.any())


def _float32(tensor: Tensor, ours: str) -> Tensor:
    values = tensor.detach().cpu().to(torch.float32)
    if tensor.dtype == torch.float64 and not torch.equal(values.double(), tensor.cpu()):
        raise ConfigError(
            f"{ours} is float64, and Google's variables are float32. Convert the model first if "
            "the rounding is fine with you."
        )
    return values


def _read(plan: Plan, bundle: TensorBundle, ours: str) -> Tensor:
    theirs = plan.sources[ours]
    if not theirs:
        width = plan.config.hidden_size
        return torch.eye(width) if ours.endswith(".weight") else torch.zeros(width)
    parts = [_array(plan, bundle, name) for name in theirs]
    # A copy in any case: the bundle's arrays are read-only views of its files.
    whole = np.concatenate(parts) if len(parts) > 1 else np.array(parts[0], order="C")
    # NaN wins both ends, so one pass over each finds everything that is not finite.
    if whole.size and not (np.isfinite(whole.min()) and np.isfinite(whole.max())):
        raise FormatError(
            f"{bundle.files[plan.variables.found[theirs[0]].key]}: {printable(theirs[0], 120)} "
            "holds values that are not finite (NaN or infinity). The run that saved it had "
            "diverged."
        )
    return torch.from_numpy(whole)


def _array(plan: Plan, bundle: TensorBundle, name: str) -> np.ndarray:
    variable = plan.variables.found[name]
    array = bundle.read(variable.key)
    array = array.T if variable.swapped else array.reshape(variable.shape)
    return array.T if is_transposed(name) else array
