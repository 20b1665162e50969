"""Make a model smaller without training: fewer layers, and a vocabulary cut to a corpus."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, with_layers
from filbert.checkpoints.opening import find_model
from filbert.data.columns import ColumnNames
from filbert.data.documents import read_documents
from filbert.data.records import file_digest
from filbert.errors import ConfigError, printable
from filbert.files import portable, replace_folder
from filbert.inference.masked_text import pretraining_of
from filbert.inference.predictor import Predictor
from filbert.text.narrow import count_changed, count_entries, useful_entries, without_others
from filbert.text.tokenizer import Tokenizer

# Tensors with one row per vocabulary entry.
_BY_ENTRY = (
    *("encoder.embeddings.word.weight", "head.bias", "head.masked_lm.bias"),
    *("head.scores.weight", "head.scores.bias"),
)
_ID = "_token_id"
# Keys of filbert.json that describe how the model is used, not how it was trained.
_KEPT = ("task", "max_length", "base_model", "pretrained")
_LICENSE = re.compile(r"license(_name|_link)?:.*")


def shrink(
    name: str,
    out: Path,
    *,
    keep_layers: Sequence[int] | None = None,
    vocabulary_from: Sequence[str] = (),
    names: ColumnNames | None = None,
) -> dict[str, Any]:
    """Make a smaller model as a starting point for fine-tuning or distillation.

    Args:
        keep_layers: Numbers of the layers to keep, rising; others are removed before entries.
        vocabulary_from: Files with the text whose vocabulary is kept.

    Returns:
        The entry "shrunk" of filbert.json: "steps" with name, parameters and bytes, and more.
    """
    if "-" in vocabulary_from:
        raise ConfigError("Texts are read twice, so - cannot be one of them.")
    if keep_layers is None and not vocabulary_from:
        raise ConfigError("Nothing to remove: give --keep-layers or --vocabulary-from.")
    predictor = Predictor.load(name)
    checkpoint, tokenizer = predictor.checkpoint, predictor.tokenizer
    pretrained = pretraining_of(checkpoint)
    stored = (checkpoint.filbert or {}) | ({"pretrained": pretrained} if pretrained else {})
    steps = [_step(checkpoint, "as it was")]
    if keep_layers is not None:
        before = checkpoint.config.num_hidden_layers
        checkpoint = with_layers(checkpoint, tuple(keep_layers))
        step = _step(checkpoint, f"{len(keep_layers)} of {before} layers")
        steps.append(step | {"layers": list(keep_layers)})
    if vocabulary_from:
        texts = partial(_corpus, predictor, vocabulary_from, names or ColumnNames())
        checkpoint, tokenizer, facts = cut_vocabulary(checkpoint, tokenizer, texts)
        title = f"{facts['entries']:,} of {facts['entries_before']:,} entries"
        steps.append(_step(checkpoint, title) | facts)
    shrunk = {
        "from": portable(name),
        "filbert": version("filbert"),
        # File names without the machine's folders.
        "corpus": [{"file": Path(f).name, "sha256": file_digest(f)} for f in vocabulary_from],
        "steps": steps,
        "notes": list(checkpoint.notes),
    }
    with replace_folder(out) as new:
        content = {key: stored[key] for key in _KEPT if key in stored}
        content |= {"filbert": version("filbert"), "shrunk": shrunk}
        huggingface.write_folder(new, checkpoint, tokenizer, content, source=find_model(name))
        (new / "README.md").write_text(_card(find_model(name), shrunk), encoding="utf-8")
    return shrunk


def cut_vocabulary(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    texts: Callable[[], Iterable[str]],
) -> tuple[Checkpoint, Tokenizer, dict[str, Any]]:
    """Keep the entries that a corpus needs (`text.narrow.useful_entries`) and their rows.

    Returns the model, which shares its other tensors with `checkpoint`, its tokenizer, and facts:
    sizes, and how the corpus is tokenised now. `texts` returns the corpus and is called twice.

    Raises:
        ConfigError: The model's positions begin after the id of its padding token.
        InputError: There is no text.
    """
    use = count_entries(tokenizer, texts())
    kept = useful_entries(tokenizer, use)
    narrowed = without_others(tokenizer, kept)
    changed, before, after = count_changed(tokenizer, narrowed, kept, texts())
    rows = torch.tensor(kept)
    config, pad = checkpoint.config, narrowed.pad_id
    if config.positions.offset and pad is not None and pad != config.positions.offset - 1:
        raise ConfigError(
            "This model counts its positions from the id of the padding token. Its vocabulary "
            "cannot be cut."
        )
    new_ids = {old: new for new, old in enumerate(kept)}
    extra = {
        key: new_ids[value] if key.endswith(_ID) else value
        for key, value in checkpoint.extra.items()
        if not key.endswith(_ID) or (isinstance(value, int) and value in new_ids)
    }
    note = f"vocabulary entries kept: {len(rows)} of {tokenizer.vocab_size}."
    smaller = replace(
        checkpoint,
        config=config.changed(vocab_size=len(rows)),
        tensors={
            name: tensor[rows] if name in _BY_ENTRY else tensor
            for name, tensor in checkpoint.tensors.items()
        },
        extra=extra,
        notes=(*checkpoint.notes, note),
        filbert=None,
    )
    facts = {
        "entries": len(rows),
        "entries_before": tokenizer.vocab_size,
        "texts_cut_otherwise": changed,
        "corpus_tokens": after,
        "corpus_tokens_before": before,
    }
    return smaller, narrowed, facts


def _corpus(predictor: Predictor, files: Sequence[str], names: ColumnNames) -> Iterator[str]:
    """Yield the texts of files, cleaned and prompted as the model's input is."""
    clean = predictor.cleaning or str
    prepared = predictor.sentence_vectors.prepared
    for document in read_documents(
        files, text_column=names.text_column, pair_column=names.own("text_pair")
    ):
        yield str(prepared("\n".join(map(clean, document))))


def _step(checkpoint: Checkpoint, title: str) -> dict[str, Any]:
    """Return the size of a model."""
    tensors = checkpoint.tensors.values()
    return {
        "name": title,
        "parameters": sum(tensor.numel() for tensor in tensors),
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
    }


def _card(source: Path, facts: Mapping[str, Any]) -> str:
    """Return the model card: what was removed, with the original's licence."""
    steps = [
        f"| {step['name']} | {step['parameters']:,} | {step['bytes'] / 1e6:.1f} |"
        for step in facts["steps"]
    ]
    card = source / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    head = text.split("\n---\n")[0].splitlines() if text.startswith("---\n") else []
    lines = [
        "---",
        *(line for line in head if _LICENSE.fullmatch(line)),
        "library_name: filbert",
        "---",
        "",
        f"# {printable(facts['from'])}, smaller",
        "",
        f"Made by `filbert shrink` {facts['filbert']}; nothing was trained since. "
        "Fine-tune or distil it before you use it.",
        "",
        "| | parameters | MB |",
        "|---|---:|---:|",
        *steps,
        "",
        *(f"- {printable(note)}" for note in facts["notes"]),
        "",
    ]
    return "\n".join(lines)
