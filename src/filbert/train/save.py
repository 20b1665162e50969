"""The model folder that a run leaves: Hugging Face layout, with filbert.json and a model card."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from filbert.formats import huggingface
from filbert.formats.checkpoint import Checkpoint
from filbert.formats.files import replace_folder
from filbert.formats.sentence_transformers import write_sentence_vectors
from filbert.tasks.base import Task
from filbert.tasks.embedding import Embedding
from filbert.text.tokenizer import Tokenizer

# What model hubs call the tasks.
_PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "span_qa": "question-answering",
    "multiple_choice": "multiple-choice",
    "embedding": "sentence-similarity",
}


def save_model(
    folder: Path,
    weights: dict[str, Tensor],
    tokenizer: Tokenizer,
    checkpoint: Checkpoint,
    task: Task,
    story: dict[str, Any],
) -> None:
    """Write all beside `folder`, then swap it in: a crash or a full disk leaves the old as it was.

    Args:
        folder: the model folder.
        weights: by the names of Model.state_dict(), on the host.
        tokenizer: saved beside them.
        checkpoint: what the model was built from: family, configuration, labels.
        task: goes into the model card.
        story: goes into filbert.json, with the digests of the weight files.

    Raises:
        InputError: the disk is full.
    """
    with model_folder(
        folder, weights, tokenizer, checkpoint, story, model_card(task, story)
    ) as new:
        if isinstance(task, Embedding):
            write_sentence_vectors(
                new,
                task.pooling,
                False,
                max_length=story["max_length"],
                dimension=checkpoint.config.hidden_size,
            )


@contextmanager
def model_folder(
    folder: Path,
    weights: dict[str, Tensor],
    tokenizer: Tokenizer,
    checkpoint: Checkpoint,
    story: dict[str, Any],
    card: str,
) -> Iterator[Path]:
    """A model folder that takes its place once the block is through; more may be put into it."""
    checkpoint = replace(checkpoint, tensors=weights)
    with replace_folder(folder) as new:
        digests = huggingface.write(checkpoint, new)
        tokenizer.save(new)
        story = story | {"files": {name: {"sha256": digest} for name, digest in digests.items()}}
        (new / "filbert.json").write_text(json.dumps(story, indent=2, default=list) + "\n", "utf-8")
        (new / "README.md").write_text(card, "utf-8")
        yield new


def model_card(task: Task, story: dict[str, Any]) -> str:
    """A model card with YAML front matter, as model hubs read it."""
    options, metrics = story["options"], story["metrics"]
    lines = [
        "---",
        "library_name: filbert",
        f"pipeline_tag: {_PIPELINES.get(task.name, task.name)}",
    ]
    lines += [f"base_model: {json.dumps(str(options['model']))}", "---", ""]
    about = f": {', '.join(task.labels)}" if task.labels else ""
    lines += [f"# {task.name}{about}", ""]
    lines += [f"Fine-tuned from `{options['model']}` with filbert {story['filbert']}.", ""]
    for split, figures in metrics.items():
        shown = {k: v for k, v in figures.items() if isinstance(v, float)}
        lines += [f"| {split} | |", "|---|---|"]
        lines += [f"| {name} | {value:.4f} |" for name, value in shown.items()]
        lines.append("")
    lines += [
        f"Texts longer than {story['max_length']} tokens are cut. The rest is in `filbert.json`.",
        "",
    ]
    return "\n".join(lines)
