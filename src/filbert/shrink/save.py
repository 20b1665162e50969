"""The folder of a smaller model: what it was made from stands in filbert.json and its card."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.sentence_transformers import (
    SentenceVectors,
    read_sentence_vectors,
    write_sentence_vectors,
)
from filbert.errors import printable
from filbert.files import replace_folder
from filbert.text.tokenizer import Tokenizer

# What filbert.json keeps of the old one: how the model is used, and not how it was trained.
_KEPT = ("task", "max_length", "base_model", "pretrained")
_LICENSE = re.compile(r"license(_name|_link)?:.*")


def save_shrunk(
    out: Path,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    *,
    source: Path,
    stored: Mapping[str, Any],
    facts: dict[str, Any],
) -> None:
    """Write a model folder; it appears when all of it is complete.

    Args:
        out: an old folder there is replaced if it is a model's.
        checkpoint: the smaller model.
        tokenizer: its own.
        source: the folder of the original, whose way of making sentence vectors and whose licence
            it inherits.
        stored: the original's filbert.json.
        facts: for "shrunk" in filbert.json, and for the card.

    Raises:
        InputError: the disk is full, or the folder is not ours to replace.
        ConfigError: the family's layout cannot say what the model is.
    """
    if tokenizer.max_length is None:
        tokenizer.max_length = checkpoint.config.max_tokens_per_sequence
    vectors = _vectors(source, checkpoint, tokenizer)
    with replace_folder(out) as new:
        digests = huggingface.write(checkpoint, new)
        huggingface.write_tokenizer(tokenizer, checkpoint, new)
        if vectors is not None:
            write_sentence_vectors(new, vectors, checkpoint.config.hidden_size)
        story = {key: stored[key] for key in _KEPT if key in stored}
        story |= {
            "filbert": version("filbert"),
            "shrunk": facts,
            "files": {name: {"sha256": digest} for name, digest in digests.items()},
        }
        text = json.dumps(story, indent=2, default=list) + "\n"
        (new / "filbert.json").write_text(text, encoding="utf-8")
        (new / "README.md").write_text(_card(source, facts), encoding="utf-8")


def _vectors(source: Path, checkpoint: Checkpoint, tokenizer: Tokenizer) -> SentenceVectors | None:
    if not (source / "modules.json").is_file():
        return None
    vectors = read_sentence_vectors(source, checkpoint.config.hidden_size)
    if vectors.max_length is not None:
        return vectors
    longest = checkpoint.config.max_tokens_per_sequence
    return replace(vectors, max_length=min(tokenizer.max_length or longest, longest))


def _card(source: Path, facts: Mapping[str, Any]) -> str:
    """README.md: what was taken away and what it cost; the licence is the original's."""
    metric = facts["metric"]
    heading = ["", "parameters", "MB", *([metric] if metric else [])]
    lines = ["| " + " | ".join(heading) + " |", "|---|" + "---:|" * (len(heading) - 1)]
    for step in facts["steps"]:
        cells = [step["name"], f"{step['parameters']:,}", f"{step['bytes'] / 1e6:.1f}"]
        if metric:
            value = step["metrics"].get(metric)
            cells.append("" if value is None else f"{value:.4f}")
        lines.append("| " + " | ".join(cells) + " |")
    measured = f" `{metric}` is that on `{printable(facts['data']['file'])}`." if metric else ""
    return "\n".join(
        [
            "---",
            *_license(source),
            "library_name: filbert",
            "---",
            "",
            f"# {printable(facts['from'])}, smaller",
            "",
            f"Made by `filbert shrink` {facts['filbert']}; nothing was trained since.{measured} "
            "Fine-tune or distil it before you use it.",
            "",
            *lines,
            "",
            *(f"- {printable(note)}" for note in facts["notes"]),
            "",
        ]
    )


def _license(source: Path) -> list[str]:
    """The lines about the licence in the card of the original."""
    card = source / "README.md"
    if not card.is_file():
        return []
    first, *lines = card.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    if first != "---" or "---" not in lines:
        return []
    return [line for line in lines[: lines.index("---")] if _LICENSE.fullmatch(line)]
