"""The model folder that a pre-training run leaves, with its model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.fresh import split_replaced
from filbert.model.config import EncoderConfig
from filbert.text.tokenizer import Tokenizer
from filbert.train.pretrain_card import distilled_card, pretrained_card
from filbert.train.save import model_folder


def save_pretrained(
    folder: Path,
    weights: dict[str, Tensor],
    tokenizer: Tokenizer,
    checkpoint: Checkpoint,
    story: dict[str, Any],
    generator: EncoderConfig | None,
) -> None:
    """As `save_model`, for a model that learnt from raw text.

    The generator of replaced-token detection goes to a folder of its own inside.

    Raises:
        InputError: the disk is full.
    """
    card = distilled_card(story) if story["command"] == "distill" else pretrained_card(story)
    if generator is None:
        with model_folder(folder, weights, tokenizer, checkpoint, story, card):
            return
    model, small = split_replaced(checkpoint, weights, generator)
    with model_folder(folder, model.tensors, tokenizer, model, story, card) as new:
        huggingface.write(small, new / "generator")
        tokenizer.save(new / "generator")
