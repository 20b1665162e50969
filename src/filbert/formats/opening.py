"""A model's place, as `find_model` gives it, to its checkpoint and its tokenizer: every format in.

A place is a folder in Hugging Face's layout, or the prefix of a TensorFlow checkpoint of Google's:
".../bert_model.ckpt", beside which lies ".../bert_model.ckpt.index".
"""

from __future__ import annotations

from pathlib import Path

from filbert.formats import huggingface
from filbert.formats.checkpoint import Checkpoint
from filbert.text.tokenizer import Tokenizer


def read_checkpoint(place: Path) -> Checkpoint:
    """The checkpoint at a place; every tensor has its name, and every name its tensor.

    Raises:
        FormatError: a damaged file, or something that the encoder cannot express.
    """
    return huggingface.read(place)


def read_tokenizer(place: Path) -> Tokenizer:
    """The tokenizer that belongs to the checkpoint at a place.

    Raises:
        FormatError: none in a known layout, or a file that is damaged.
    """
    return Tokenizer.load(place)
