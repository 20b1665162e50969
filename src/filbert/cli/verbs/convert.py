"""filbert convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.data.columns import ColumnNames

if TYPE_CHECKING:
    from filbert.checkpoints.checkpoint import Checkpoint
    from filbert.text.tokenizer import Tokenizer

FORMATS = ("huggingface", "google", "int8")
# A folder that holds one of these was made by a conversion, or is one that can be made again.
_MARKERS = ("config.json", "bert_config.json", "albert_config.json")


def convert(
    source: str,
    target: Path,
    /,
    *,
    to: str,
    hidden_act: str | None = None,
    part: str | None = None,
    encoder_only: bool = False,
    data: str | None = None,
    max_loss: float | None = None,
    columns: Annotated[ColumnNames | None, Parameter(name="*")] = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write a model in another format: every tensor bit for bit, the tokenizer with it.

    Parameters
    ----------
    source:
        folder, TensorFlow checkpoint (its prefix, its .index file or the published .zip), built-in
        name or Hub id.
    target:
        folder to write; it appears when everything in it is complete.
    to:
        huggingface (config.json, model.safetensors, tokenizer.json), google (bert_config.json,
        vocab.txt, bert_model.ckpt.index and its data), or int8: as huggingface, with the layers
        that --precision int8 and export --int8 leave in float32 recorded in filbert.json.
    hidden_act:
        what a TensorFlow checkpoint means by "gelu": gelu (the erf form) or gelu_tanh.
    part:
        of an ELECTRA checkpoint that holds both models: discriminator or generator.
    encoder_only:
        leave the head out.
    data:
        with --to int8: labelled rows, or texts for a model without a task.
    max_loss:
        with --to int8: the most that a metric may fall by on --data, such as 0.005; more layers
        stay float32 until it holds.
    columns:
        names of the columns of --data.
    overwrite:
        replace the target if it is a model's folder.
    json:
        print what was done as JSON.
    """
    import sys
    from dataclasses import replace

    from filbert.cli.flags import print_json
    from filbert.cli.targets import check_target
    from filbert.errors import ConfigError

    if to not in FORMATS:
        raise ConfigError(f"--to {to} is not one of {', '.join(FORMATS)}.")
    _check_int8(to, data, max_loss, encoder_only=encoder_only)

    from filbert.checkpoints.checkpoint import with_new_head
    from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer

    place = find_model(source)
    marker = check_target(target, place, overwrite=overwrite, markers=_MARKERS)
    checkpoint = read_checkpoint(place, hidden_act=hidden_act, part=part)
    tokenizer = read_tokenizer(place)
    config = checkpoint.config
    notes = list(tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, place))
    if encoder_only and checkpoint.head is not None:
        cleaning = ((checkpoint.filbert or {}).get("task") or {}).get("clean")
        if cleaning:
            notes.append(
                f"The model's cleaning ({', '.join(cleaning)}) is left out with its head: clean "
                "texts so before this encoder reads them."
            )
        checkpoint = with_new_head(checkpoint, None)
    notes = [*checkpoint.notes, *notes]
    notes += _left_behind(place, to)
    int8 = _choose_int8(source, data, columns, max_loss) if to == "int8" else None
    if int8 is not None:
        checkpoint = replace(checkpoint, filbert={**(checkpoint.filbert or {}), "int8": int8})
    if to == "google":
        digests = _write_google(checkpoint, tokenizer, target, marker)
    else:
        digests = _write_huggingface(checkpoint, tokenizer, target, marker, place, source)
    for note in notes:
        print(note, file=sys.stderr)
    facts = {
        "target": str(target),
        "format": to,
        "family": checkpoint.family,
        "head": checkpoint.head,
        "hidden_act": config.feed_forward.activation,
        "tensors": len(checkpoint.tensors),
        "parameters": sum(tensor.numel() for tensor in checkpoint.tensors.values()),
        "files": digests,
        "notes": notes,
        **({} if int8 is None else {"int8": int8}),
    }
    if json:
        print_json(facts)
        return
    head = f"with its {checkpoint.head} head" if checkpoint.head else "without a head"
    print(f"{target}: {checkpoint.family} {head}, {facts['parameters']:,} parameters, bit for bit.")
    for name, digest in digests.items():
        print(f"  {name}  sha256 {digest[:16]}...")
    if int8 is not None:
        print("\n".join(_int8_lines(int8)))


def _check_int8(to: str, data: str | None, max_loss: float | None, *, encoder_only: bool) -> None:
    from filbert.cli.flags import STDIO
    from filbert.errors import ConfigError

    if to != "int8":
        if data is not None or max_loss is not None:
            raise ConfigError("--data and --max-loss are for --to int8. Leave them out.")
        return
    if data is None or data == STDIO:
        raise ConfigError("--to int8 ranks the layers on rows: give --data FILE.")
    if encoder_only:
        raise ConfigError("--encoder-only and --to int8 are two conversions. Run one at a time.")
    if max_loss is not None and not max_loss >= 0:
        raise ConfigError(f"--max-loss is {max_loss}; it must be zero or above.")


def _choose_int8(
    source: str, data: str | None, columns: ColumnNames | None, max_loss: float | None
) -> dict[str, Any]:
    from filbert.calibrate import choose_float_layers
    from filbert.cli.flags import columns_of
    from filbert.inference.predictor import Predictor

    assert data is not None
    exact = Predictor.load(source, device="cpu")
    return choose_float_layers(exact, data, columns_of(columns), max_loss=max_loss)


def _int8_lines(int8: dict[str, Any]) -> list[str]:
    from filbert.cli.flags import metric_lines

    kept = int8["float_layers"]
    lines = [
        f"{int8['layers'] - len(kept)} of {int8['layers']} dense layers can compute in int8; "
        f"{len(kept)} stay float32{': ' if kept else ''}{', '.join(kept)}.",
        f"Mean cosine of the vectors to float32: {int8['cosine']:.6f}; with all layers in int8 "
        f"{int8['cosine_of_all']:.6f}.",
    ]
    if "float32" in int8:
        lines.append(f"On {int8['data']['file']}:")
        lines += metric_lines(int8["float32"], int8["int8"])
    return lines


def _left_behind(place: Path, to: str) -> list[str]:
    """What a Hugging Face folder holds beside the model, and the new one will not."""
    notes = []
    if to == "google":
        kept = {
            "modules.json": "how sentence vectors are made",
            "filbert.json": "the model's story",
            "README.md": "its licence and its language",
        }
        notes = [
            f"{name} is left out: Google's format cannot say {what}."
            for name, what in kept.items()
            if place.is_dir() and (place / name).is_file()
        ]
    if (place / "generator").is_dir():
        notes.append("generator/ is left out: it is a model of its own. Convert it by itself.")
    return notes


def _write_google(
    checkpoint: Checkpoint, tokenizer: Tokenizer, target: Path, marker: str
) -> dict[str, str]:
    from filbert.checkpoints import google
    from filbert.files import replace_folder

    with replace_folder(target, marker=marker) as new:
        return google.write(checkpoint, tokenizer, new)


def _write_huggingface(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    target: Path,
    marker: str,
    place: Path,
    source: str,
) -> dict[str, str]:
    import json
    import shutil
    from dataclasses import replace

    from filbert import __version__
    from filbert.checkpoints import huggingface
    from filbert.checkpoints.google import special_ids
    from filbert.checkpoints.opening import is_google
    from filbert.checkpoints.sentence_transformers import (
        read_sentence_vectors,
        write_sentence_vectors,
    )
    from filbert.files import portable, replace_folder, sha256_of

    from_google = is_google(place)
    length = checkpoint.config.max_tokens_per_sequence
    extra = special_ids(tokenizer, checkpoint.family) if from_google else {}
    if tokenizer.max_length is None:
        tokenizer.max_length = length
    with replace_folder(target, marker=marker) as new:
        digests = huggingface.write(checkpoint, new, extra=extra)
        huggingface.write_tokenizer(tokenizer, checkpoint, new)
        if not from_google and (place / "modules.json").is_file():
            vectors = read_sentence_vectors(place, checkpoint.config.hidden_size)
            if vectors.max_length is None:
                vectors = replace(vectors, max_length=min(tokenizer.max_length, length))
            write_sentence_vectors(new, vectors, checkpoint.config.hidden_size)
        if not from_google and (place / "README.md").is_file():
            shutil.copyfile(place / "README.md", new / "README.md")
        story: dict[str, Any] = {
            **(checkpoint.filbert or {}),
            "converted": {
                "from": portable(source),
                "format": "google" if from_google else "huggingface",
                "filbert": __version__,
                "notes": list(checkpoint.notes),
            },
            "files": {name: {"sha256": digest} for name, digest in digests.items()},
        }
        (new / "filbert.json").write_text(json.dumps(story, indent=2) + "\n", encoding="utf-8")
        files = sorted(path for path in new.rglob("*") if path.is_file())
        return {path.relative_to(new).as_posix(): sha256_of(path) for path in files}
