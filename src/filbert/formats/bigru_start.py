"""The folder that a BiGRU's training begins with: a vocabulary of words and a table of vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from filbert.errors import ConfigError
from filbert.formats import huggingface
from filbert.formats.checkpoint import Checkpoint, meta_model
from filbert.formats.families import FAMILIES
from filbert.formats.files import replace_folder
from filbert.model.config import EncoderConfig
from filbert.model.encoder import initialize
from filbert.text.tokenizer import Tokenizer
from filbert.text.word_vectors import WordVectors, word_table
from filbert.text.words import known_words


def bigru_config(
    vocab_size: int, *, dim: int, hidden: int, layers: int = 1, dropout: float, pooling: str
) -> EncoderConfig:
    """The shape of such a model; see `write_bigru_start`.

    Raises:
        ConfigError: a size or rate that cannot be.
    """
    return EncoderConfig(
        vocab_size=vocab_size,
        embedding_size=dim,
        hidden_size=2 * hidden,
        num_hidden_layers=layers,
        max_position_embeddings=65_536,
        pooled=pooling,
        pooler=None,
        hidden_dropout=dropout,
        head_dropout=dropout / 2,
        **FAMILIES["bigru"].constants,
    )


def write_bigru_start(
    folder: str | Path,
    tokenizer: Tokenizer,
    vectors: WordVectors | None = None,
    *,
    dim: int = 300,
    hidden: int = 128,
    layers: int = 1,
    dropout: float = 0.2,
    pooling: str = "mean+max",
    seed: int = 0,
) -> dict[str, Any]:
    """Write a model folder to start `filbert finetune` from.

    Args:
        folder: to be made; one that is there is replaced.
        tokenizer: as `text.words.learn_words` gives it.
        vectors: of words, or None to draw them all. Words without a vector are drawn with the mean
            and deviation of the others.
        dim: width of a word vector; that of `vectors` where they are given.
        hidden: units of the GRU in each direction.
        layers: GRU layers.
        dropout: rate on whole elements of a text's word vectors, and between layers; half of it on
            what the head reads.
        pooling: "mean+max", "mean" or "max" over all words.
        seed: of all that is drawn.

    Returns:
        {"words", "with_vectors", "dim", "parameters", "vectors"}: what filbert.json says too.

    Raises:
        ConfigError: a size or rate that cannot be, or vectors of another dimension or of none of
            the words.
        InputError: the folder cannot be written.
    """
    if hidden < 1 or layers < 1 or dim < 1:
        raise ConfigError(
            f"hidden is {hidden}, layers {layers}, dim {dim}; they must be above zero."
        )
    config = bigru_config(
        tokenizer.vocab_size,
        dim=dim,
        hidden=hidden,
        layers=layers,
        dropout=dropout,
        pooling=pooling,
    )
    ids: Mapping[str, int] = known_words(tokenizer)
    table, found = word_table(ids, tokenizer.vocab_size, vectors, dim=dim, seed=seed)
    model = meta_model(config, None).to_empty(device="cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        initialize(model, config.initializer_range)
    tensors = model.state_dict()
    tensors["encoder.embeddings.word.weight"] = torch.from_numpy(table)
    checkpoint = Checkpoint(config, "bigru", tensors)
    facts = {
        "words": len(ids),
        "with_vectors": found,
        "vectors": None if vectors is None else vectors.source,
        "dim": dim,
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
    }
    with replace_folder(Path(folder), marker="config.json") as new:
        digests = huggingface.write(checkpoint, new)
        tokenizer.save(new)
        files = {name: {"sha256": digest} for name, digest in digests.items()}
        story = {"word_vectors": facts, "files": files}
        (new / "filbert.json").write_text(json.dumps(story, indent=2) + "\n", encoding="utf-8")
    return facts
