"""filbert convert."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.cli.arguments import AsJson, Columns, MaxLoss, OutFolder, Overwrite
from filbert.cli.flags import STDIO, columns_of
from filbert.cli.output import check_max_loss, metric_lines, print_json
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError

if TYPE_CHECKING:
    from filbert.checkpoints.checkpoint import Checkpoint
    from filbert.text.tokenizer import Tokenizer

FORMATS = ("huggingface", "google", "int8")
# Files of a model's folder, which may be replaced.
_MARKERS = ("config.json", "bert_config.json", "albert_config.json")


def convert(
    source: str,
    target: OutFolder,
    /,
    *,
    to: str,
    hidden_act: str | None = None,
    data: str | None = None,
    max_loss: MaxLoss = None,
    columns: Columns = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Write a model and its tokenizer in another format; every tensor stays the same bit for bit.

    Parameters
    ----------
    source:
        folder, TensorFlow checkpoint (its folder, prefix or .index file), built-in name or Hub
        id.
    to:
        huggingface (config.json, model.safetensors), google (bert_config.json, bert_model.ckpt),
        or int8: as huggingface, with the layers that stay float32 recorded in filbert.json.
    hidden_act:
        meaning of "gelu" in a TensorFlow checkpoint: gelu (the erf form) or gelu_tanh.
    data:
        with --to int8: labelled rows, or texts for a model without a task.
    """
    _check(to, data, max_loss)

    from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
    from filbert.files import check_target

    place = find_model(source)
    marker = check_target(target, place, overwrite=overwrite, markers=_MARKERS)
    checkpoint = read_checkpoint(place, hidden_act=hidden_act)
    tokenizer = read_tokenizer(place)
    config = checkpoint.config
    misfits = tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, place)
    notes = [*checkpoint.notes, *misfits]
    notes += _left_out(place, to)
    int8 = None
    if data is not None:
        int8 = _int8(source, data, columns_of(columns), max_loss)
        checkpoint = replace(checkpoint, filbert={**(checkpoint.filbert or {}), "int8": int8})
    files = _write(checkpoint, tokenizer, target, marker=marker, place=place, source=source, to=to)
    for note in notes:
        print(note, file=sys.stderr)
    facts = {"target": str(target), "format": to, **_facts(checkpoint), "notes": notes}
    facts |= {"files": files} if int8 is None else {"int8": int8, "files": files}
    print_json(facts) if json else _print_facts(facts)


def _facts(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "family": checkpoint.family,
        "head": checkpoint.head,
        "hidden_act": checkpoint.config.feed_forward.activation,
        "tensors": len(checkpoint.tensors),
        "parameters": sum(tensor.numel() for tensor in checkpoint.tensors.values()),
    }


def _int8(source: str, data: str, columns: ColumnNames, max_loss: float | None) -> dict[str, Any]:
    """Return the layers that stay float32, with the measurements that chose them."""
    from filbert.inference.predictor import Predictor
    from filbert.onnx_export import choose_float_layers

    exact = Predictor.load(source, device="cpu")
    return choose_float_layers(exact, data, columns, max_loss=max_loss)


def _check(to: str, data: str | None, max_loss: float | None) -> None:
    """Refuse options that contradict each other."""
    if to not in FORMATS:
        raise ConfigError(f"--to {to} is not one of {', '.join(FORMATS)}.")
    if to != "int8" and (data is not None or max_loss is not None):
        raise ConfigError("--data and --max-loss are for --to int8. Leave them out.")
    if to == "int8" and (data is None or data == STDIO):
        raise ConfigError("--to int8 ranks the layers on rows: give --data FILE.")
    check_max_loss(max_loss)


def _print_facts(facts: dict[str, Any]) -> None:
    head = f"with its {facts['head']} head" if facts["head"] else "without a head"
    print(
        f"{facts['target']}: {facts['family']} {head}, {facts['parameters']:,} parameters, "
        "bit for bit."
    )
    for name, digest in facts["files"].items():
        print(f"  {name}  sha256 {digest[:16]}...")
    int8 = facts.get("int8")
    if int8 is None:
        return
    layers = int8["float_layers"]
    print(
        f"{int8['layers'] - len(layers)} of {int8['layers']} dense layers can compute in int8; "
        f"{len(layers)} stay float32{': ' if layers else ''}{', '.join(layers)}.\n"
        f"Mean cosine of the vectors to float32: {int8['cosine']:.6f}; with all layers in int8 "
        f"{int8['cosine_of_all']:.6f}."
    )
    if "float32" in int8:
        print(f"On {int8['data']['file']}:")
        print("\n".join(metric_lines(int8["float32"], int8["int8"])))


def _left_out(place: Path, to: str) -> list[str]:
    """Return notes on files of a Hugging Face folder that the new folder does not have."""
    names = {
        "modules.json": "the computation of sentence vectors",
        "filbert.json": "how the model was trained",
        "README.md": "its licence and its language",
    }
    notes = [
        f"{name} is left out: Google's format cannot express {what}."
        for name, what in (names if to == "google" else {}).items()
        if place.is_dir() and (place / name).is_file()
    ]
    if (place / "generator").is_dir():
        notes.append("generator/ is left out: it is a separate model. Convert it by itself.")
    return notes


def _write(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    target: Path,
    *,
    marker: str,
    place: Path,
    source: str,
    to: str,
) -> dict[str, str]:
    """Write the folder, and return the SHA-256 of each file."""
    from filbert import __version__
    from filbert.checkpoints import google, huggingface
    from filbert.checkpoints.opening import is_google
    from filbert.checkpoints.sentence_transformers import (
        read_sentence_vectors,
        write_sentence_vectors,
    )
    from filbert.files import portable, replace_folder, sha256_of, write_json

    with replace_folder(target, marker=marker) as new:
        if to == "google":
            return google.write(checkpoint, tokenizer, new)
        from_google = is_google(place)
        length = checkpoint.config.max_tokens_per_sequence
        extra = google.special_ids(tokenizer, checkpoint.family) if from_google else {}
        if tokenizer.max_length is None:
            tokenizer.max_length = length
        digests = huggingface.write(checkpoint, new, extra=extra)
        huggingface.write_tokenizer(tokenizer, checkpoint, new)
        if not from_google and (place / "modules.json").is_file():
            vectors = read_sentence_vectors(place, checkpoint.config.hidden_size)
            if vectors.max_length is None:
                vectors = replace(vectors, max_length=min(tokenizer.max_length, length))
            write_sentence_vectors(new, vectors, checkpoint.config.hidden_size)
        if not from_google and (place / "README.md").is_file():
            shutil.copyfile(place / "README.md", new / "README.md")
        content: dict[str, Any] = {
            **(checkpoint.filbert or {}),
            "converted": {
                "from": portable(source),
                "format": "google" if from_google else "huggingface",
                "filbert": __version__,
                "notes": list(checkpoint.notes),
            },
            "files": {name: {"sha256": digest} for name, digest in digests.items()},
        }
        write_json(new / "filbert.json", content)
        files = sorted(path for path in new.rglob("*") if path.is_file())
        return {path.relative_to(new).as_posix(): sha256_of(path) for path in files}
