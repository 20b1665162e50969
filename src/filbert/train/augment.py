"""Rows without labels, made out of the training rows by a masked language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from filbert.data.augment import Places, augmented
from filbert.data.records import Row
from filbert.errors import ConfigError
from filbert.inference.fill import masked_lm_part
from filbert.inference.predictor import Predictor
from filbert.tasks.base import Task
from filbert.text.masks import mask_name, mask_spans, piece_of
from filbert.train.distill_options import AugmentOptions
from filbert.train.log import progress_bar, say

# Additional candidates, because pieces of words and punctuation are skipped.
_SPARE = 10


def augmented_rows(
    rows: Sequence[Row], task: Task, options: AugmentOptions, seed: int, device: torch.device
) -> list[Row]:
    """Return up to `augment_copies` rows without labels for each row, with replaced words.

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
    filler = WordFiller(options.augment_with, options.augment_candidates, device)
    with progress_bar() as bar:
        shown = bar.add_task("augment", total=len(rows))

        def counted() -> Iterator[Row]:
            for row in rows:
                yield row
                bar.update(shown, advance=1)

        copies, rate = options.augment_copies, options.augment_rate
        new = list(augmented(counted(), filler.words, copies=copies, rate=rate, seed=seed))
    say(f"augmentation: {len(new):,} rows out of {len(rows):,}")
    return new


class WordFiller:
    """Proposes words for places of a text with a masked language model."""

    def __init__(self, name: str, most: int, device: torch.device) -> None:
        self.predictor = Predictor.load(name, device=str(device))
        masked_lm_part(self.predictor.model)  # type: ignore[arg-type]
        self.most = most

    def words(self, texts: Sequence[str], places: Sequence[Places]) -> list[list[list[str]]]:
        """Return up to `most` whole words for each place, likeliest first, other than its own.

        A text that contains mask tokens gets none.
        """
        tokenizer = self.predictor.tokenizer
        mask = mask_name(tokenizer)
        asked = [
            (number, index, start, end)
            for number, (text, own) in enumerate(zip(texts, places, strict=True))
            if not mask_spans(text, tokenizer)
            for index, (start, end) in enumerate(own)
        ]
        filled = self.predictor.fill_texts(
            [texts[n][:start] + mask + texts[n][end:] for n, _, start, end in asked],
            top=min(self.most + _SPARE, tokenizer.vocab_size),
        )
        proposed: list[list[list[str]]] = [[[] for _ in own] for own in places]
        for (number, index, start, end), answer in zip(asked, filled, strict=True):
            pieces = [piece_of(one["id"], tokenizer) for one in answer["candidates"][0]]
            words = [p.text for p in pieces if not p.joins and p.text.isalnum()]
            own = self._normalised(texts[number][start:end])
            others = [word for word in words if self._normalised(word) != own]
            proposed[number][index] = others[: self.most]
        return proposed

    def _normalised(self, word: str) -> str:
        """Return a word as the tokenizer normalises it, such as in lower case."""
        normalizer = self.predictor.tokenizer.backend.normalizer
        return word if normalizer is None else str(normalizer.normalize_str(word))
