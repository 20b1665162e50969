"""Write the model folder of a run: Hugging Face files, filbert.json and the model card."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.files import read_json, replace_folder, write_atomically, write_json
from filbert.model.config import EncoderConfig
from filbert.tasks.base import Task, task_class, task_from_dict
from filbert.text.tokenizer import Tokenizer
from filbert.train.card import distilled_card, model_card, pretrained_card


def save_model(
    folder: Path,
    weights: dict[str, Tensor],
    tokenizer: Tokenizer,
    checkpoint: Checkpoint,
    task: Task,
    provenance: dict[str, Any],
) -> None:
    """Write the model folder of a fine-tuned model.

    The files are written next to `folder` and then moved: an error leaves the old folder intact.

    Args:
        folder: The model folder.
        weights: On the CPU, named as in Model.state_dict().
        tokenizer: Of the model.
        checkpoint: Family, configuration and labels of the model.
        task: For the model card.
        provenance: For filbert.json; digests of the weight files are added.

    Raises:
        InputError: The disk is full.
    """
    with model_folder(
        folder, weights, tokenizer, checkpoint, provenance, model_card(task, provenance)
    ) as new:
        pooling = task.spec.pooling
        if pooling is not None:
            # "cls" of a causal encoder is the last token; other tools call that "last".
            is_last = pooling == "cls" and checkpoint.config.attention.causal
            pooling = "last" if is_last else pooling
            vectors = SentenceVectors(pooling, max_length=provenance["max_length"])
            write_sentence_vectors(new, vectors, checkpoint.config.hidden_size)


@contextmanager
def model_folder(
    folder: Path,
    weights: dict[str, Tensor],
    tokenizer: Tokenizer,
    checkpoint: Checkpoint,
    provenance: dict[str, Any],
    card: str,
) -> Iterator[Path]:
    """Write a model folder and move it into place when the block ends; the block may add files."""
    checkpoint = replace(checkpoint, tensors=weights)
    with replace_folder(folder) as new:
        digests = huggingface.write(checkpoint, new)
        huggingface.write_tokenizer(tokenizer, checkpoint, new)
        provenance = provenance | {
            "files": {name: {"sha256": digest} for name, digest in digests.items()}
        }
        (new / "filbert.json").write_text(
            json.dumps(provenance, indent=2, default=list) + "\n", "utf-8"
        )
        (new / "README.md").write_text(card, "utf-8")
        yield new


def record_seeds(folder: Path, run: dict[str, Any]) -> None:
    """Record in a model folder that the model is the best of several seeds, and their spread.

    Args:
        folder: The model of the best seed; filbert.json and README.md are rewritten.
        run: The content of run.json, with "seeds".
    """
    seeds = run["seeds"]
    spread = seeds["figures"]["dev"].get(seeds["metric"]) or {}
    provenance = read_json(folder / "filbert.json")
    provenance["seeds"] = {
        "count": len(seeds["runs"]),
        "metric": seeds["metric"],
        "values": spread.get("values"),
        "mean": spread.get("mean"),
        "deviation": spread.get("deviation"),
    }
    task = task_from_dict(task_class(run["options"]["task"]), provenance["task"])
    write_json(folder / "filbert.json", provenance)
    write_atomically(folder / "README.md", model_card(task, provenance))


def save_pretrained(
    folder: Path,
    weights: dict[str, Tensor],
    tokenizer: Tokenizer,
    checkpoint: Checkpoint,
    provenance: dict[str, Any],
    generator: EncoderConfig | None,
) -> None:
    """Write the model folder of a model that was trained on raw text; see `save_model`.

    The generator of replaced-token detection is saved in a subfolder.

    Raises:
        InputError: The disk is full.
    """
    card = (
        distilled_card(provenance)
        if provenance["command"] == "distill"
        else pretrained_card(provenance)
    )
    if generator is None:
        with model_folder(folder, weights, tokenizer, checkpoint, provenance, card):
            return
    from filbert.checkpoints.fresh import split_replaced

    model, small = split_replaced(checkpoint, weights, generator)
    with model_folder(folder, model.tensors, tokenizer, model, provenance, card) as new:
        huggingface.write(small, new / "generator")
        tokenizer.save(new / "generator")
