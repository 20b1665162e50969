"""The model folder that a pre-training run leaves, with its model card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from filbert.formats import huggingface
from filbert.formats.checkpoint import Checkpoint
from filbert.formats.replaced import split_replaced
from filbert.model.config import EncoderConfig
from filbert.text.tokenizer import Tokenizer
from filbert.train.save import model_folder


def save_pretrained(
    folder: Path,
    weights: dict[str, Tensor],
    tokenizer: Tokenizer,
    checkpoint: Checkpoint,
    story: dict[str, Any],
    generator: EncoderConfig | None,
) -> None:
    """As `save_model`, for a pre-trained model.

    The generator of replaced-token detection goes to a folder of its own inside.

    Raises:
        InputError: the disk is full.
    """
    card = model_card(story)
    if generator is None:
        with model_folder(folder, weights, tokenizer, checkpoint, story, card):
            return
    model, small = split_replaced(checkpoint, weights, generator)
    with model_folder(folder, model.tensors, tokenizer, model, story, card) as new:
        huggingface.write(small, new / "generator")
        tokenizer.save(new / "generator")


def model_card(story: dict[str, Any]) -> str:
    """The model card of a pre-trained model."""
    options = story["options"]
    begun = (
        f"Continued from `{options['model']}`" if options.get("model") else "Trained from scratch"
    )
    # A discriminator fills nothing; its generator beside it does.
    tag = ["pipeline_tag: fill-mask"] if options["objective"] == "mlm" else []
    lines = ["---", "library_name: filbert", *tag]
    if options.get("model"):
        lines.append(f"base_model: {json.dumps(str(options['model']))}")
    lines += ["---", "", f"# {story['family']}: {options['objective']}", ""]
    tokens = story["data"]["train"]["tokens"]
    lines += [f"{begun} on {tokens:,} tokens of text with filbert {story['filbert']}.", ""]
    for split, figures in story["metrics"].items():
        lines += [f"| {split} | |", "|---|---|"]
        lines += [f"| {name} | {value:.4f} |" for name, value in figures.items()]
        lines.append("")
    lines += ["Options, data and versions are in `filbert.json`.", ""]
    return "\n".join(lines)
