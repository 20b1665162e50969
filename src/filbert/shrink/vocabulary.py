"""A model that knows the words of a corpus only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.errors import ConfigError
from filbert.text.extend import count_changed, count_entries, useful_entries, without_others
from filbert.text.tokenizer import Tokenizer

_BY_ENTRY = ("encoder.embeddings.word.weight", "head.bias", "head.masked_lm.bias")
_ID = "_token_id"


class Cut(NamedTuple):
    """A smaller vocabulary with its model.

    Attributes:
        facts: entries before and after, and how the corpus is cut now.
    """

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    facts: dict[str, Any]


def cut_vocabulary(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    texts: Callable[[], Iterable[str]],
    *,
    min_count: int = 1,
    size: int | None = None,
) -> Cut:
    """Keep what `text.narrow.useful_entries` keeps of a corpus, and its rows of the word table.

    Args:
        checkpoint: stays as it is; the result shares the other tensors.
        tokenizer: of the checkpoint.
        texts: gives the corpus anew at each call; it is read twice.
        min_count: entries must stand so often in it; with 1, it is cut into the same tokens.
        size: at most so many entries.

    Raises:
        ConfigError: a number out of its range, or what must be kept does not fit.
        InputError: there is no text.
    """
    if min_count < 1:
        raise ConfigError(f"min_count is {min_count}; give at least 1.")
    use = count_entries(tokenizer, texts())
    entries = useful_entries(tokenizer, use, min_count=min_count, size=size)
    narrowed = without_others(tokenizer, entries)
    changed, before, after = count_changed(tokenizer, narrowed, texts())
    rows = torch.tensor(narrowed.kept)
    tensors = {
        name: tensor[rows] if name in _BY_ENTRY else tensor
        for name, tensor in checkpoint.tensors.items()
    }
    config = checkpoint.config
    pad = narrowed.tokenizer.pad_id
    if config.position_offset and pad is not None and pad != config.position_offset - 1:
        # config.json says the first position by the id of the padding token.
        raise ConfigError(
            f"The padding token would move from id {config.position_offset - 1} to {pad}, and this "
            "model's positions are counted from it. Its vocabulary cannot be cut."
        )
    places = {old: new for new, old in enumerate(narrowed.kept)}
    extra = {key: value for key, value in checkpoint.extra.items() if not key.endswith(_ID)}
    extra |= {
        key: places[value]
        for key, value in checkpoint.extra.items()
        if key.endswith(_ID) and isinstance(value, int) and value in places
    }
    note = f"vocabulary entries kept: {len(rows)} of {tokenizer.vocab_size}."
    found = replace(
        checkpoint,
        config=replace(config, vocab_size=len(rows)),
        tensors=tensors,
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
    return Cut(found, narrowed.tokenizer, facts)
