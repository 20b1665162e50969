"""A model's place, as `find_model` gives it, to its checkpoint and its tokenizer: every format in.

A place is a folder in Hugging Face's layout, or the prefix of a TensorFlow checkpoint of Google's:
".../bert_model.ckpt", beside which lies ".../bert_model.ckpt.index".
"""

from __future__ import annotations

from pathlib import Path

from filbert.errors import ConfigError
from filbert.formats import tokenizer_conventions
from filbert.formats.checkpoint import Checkpoint
from filbert.formats.sentence_transformers import transformer_folder
from filbert.text.tokenizer import Tokenizer


def is_google(place: Path) -> bool:
    """Whether a place is the prefix of a TensorFlow checkpoint."""
    return Path(f"{place}.index").is_file()


def read_checkpoint(
    place: Path, *, hidden_act: str | None = None, part: str | None = None
) -> Checkpoint:
    """The checkpoint at a place; every tensor has its name, and every name its tensor.

    Args:
        place: as `find_model` gives it.
        hidden_act: for Google's checkpoints, whose "gelu" has two meanings: "gelu" (the erf form)
            or "gelu_tanh". The checkpoint's notes say what was taken without it.
        part: for Google's ELECTRA, which holds two models: "discriminator" or "generator".

    Raises:
        FormatError: a damaged file, or something that the encoder cannot express.
        ConfigError: an option that does not fit the checkpoint.
    """
    if is_google(place):
        from filbert.formats import google

        return google.read(place, hidden_act=hidden_act, part=part)
    from filbert.formats import huggingface

    for name, value in (("hidden_act", hidden_act), ("part", part)):
        if value is not None:
            raise ConfigError(
                f"{place} is no TensorFlow checkpoint of Google's, and only with those there is a "
                f"choice of {name}."
            )
    return huggingface.read(place)


def read_tokenizer(place: Path) -> Tokenizer:
    """The tokenizer that belongs to the checkpoint at a place.

    Raises:
        FormatError: none in a known layout, or a file that is damaged.
    """
    if is_google(place):
        from filbert.formats.google import read_google_tokenizer

        return read_google_tokenizer(place.parent)
    return tokenizer_conventions.read_tokenizer(transformer_folder(place))
