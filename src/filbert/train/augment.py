"""Rows without labels, made out of the training rows by a masked language model.

Source: Jiao et al. 2020, algorithm 1; the model fills words of several pieces too, for which the
paper takes GloVe.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from filbert.data.records import Row
from filbert.errors import ConfigError
from filbert.inference.fill import fill_masks, masked_lm_part
from filbert.inference.predictor import Predictor
from filbert.tasks.base import Task
from filbert.text.masks import mask_name, mask_spans, piece_of
from filbert.train.distill_options import AugmentOptions
from filbert.train.log import progress_bar, say

# Letters and digits, with apostrophes and hyphens inside.
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# Additional candidates, because pieces of words and punctuation are skipped.
_SPARE = 10

# Characters [start, end) of a word, and other words for this place, the likeliest first.
Place = tuple[int, int, list[str]]


def augmented_rows(
    rows: Sequence[Row], task: Task, options: AugmentOptions, *, seed: int, device: torch.device
) -> list[Row]:
    """Return up to `augment_copies` changed copies of each row.

    Each word is replaced with probability `augment_rate`. Draws depend on the seed and the number
    of the row alone. Copies equal to the row or to each other are left out.

    Raises:
        ConfigError: Rows of the task are not texts or pairs, or the model fills no masks.
        InputError, FormatError: The model does not exist or is damaged.
    """
    assert options.augment_with is not None
    if task.spec.name not in ("classification", "regression"):
        raise ConfigError(
            f"--augment-with changes words of texts and pairs; rows of {task.spec.name} hold "
            "places in their texts, or belong together. Leave it out."
        )
    predictor = Predictor.load(options.augment_with, device=str(device))
    masked_lm_part(predictor.model)  # type: ignore[arg-type]
    copies: list[Row] = []
    with progress_bar() as bar:
        shown = bar.add_task("augment", total=len(rows))
        for number, row in enumerate(rows):
            generator = np.random.Generator(np.random.Philox(key=[seed, number]))
            names = [name for name in ("text", "text_pair") if row.values.get(name)]
            texts = [row.values[name] for name in names]
            places = [replaceable(text, predictor, options.augment_candidates) for text in texts]
            seen = {tuple(texts)}
            for _ in range(options.augment_copies):
                pairs = zip(texts, places, strict=True)
                drawn = tuple(_changed(*pair, options.augment_rate, generator) for pair in pairs)
                if drawn not in seen:
                    seen.add(drawn)
                    values = row.values | dict(zip(names, drawn, strict=True))
                    copies.append(replace(row, values=values))
            bar.update(shown, advance=1)
    say(f"augmentation: {len(copies):,} rows out of {len(rows):,}")
    return copies


def replaceable(text: str, predictor: Predictor, most: int) -> list[Place]:
    """Return the words of a text, each with up to `most` whole words that may replace it.

    A text that contains mask tokens has none.
    """
    tokenizer = predictor.tokenizer
    if mask_spans(text, tokenizer):
        return []
    spans, mask = [match.span() for match in _WORD.finditer(text)], mask_name(tokenizer)
    answers = fill_masks(
        predictor,
        [text[:start] + mask + text[end:] for start, end in spans],
        top=min(most + _SPARE, tokenizer.vocab_size),
    )
    normalizer = tokenizer.backend.normalizer

    def normalised(word: str) -> str:
        return word if normalizer is None else str(normalizer.normalize_str(word))

    places = []
    for (start, end), answer in zip(spans, answers, strict=True):
        pieces = [piece_of(one["id"], tokenizer) for one in answer["candidates"][0]]
        words = [piece.text for piece in pieces if not piece.joins and piece.text.isalnum()]
        own = normalised(text[start:end])
        places.append((start, end, [word for word in words if normalised(word) != own][:most]))
    return places


def _changed(
    text: str, places: Sequence[Place], rate: float, generator: np.random.Generator
) -> str:
    """Return the text with words replaced by a uniformly drawn candidate."""
    parts, done = [], 0
    chances, choices = generator.random(len(places)), generator.random(len(places))
    for (start, end, words), chance, choice in zip(places, chances, choices, strict=True):
        if chance < rate and words:
            parts += [text[done:start], words[int(choice * len(words))]]
            done = end
    return "".join([*parts, text[done:]])
