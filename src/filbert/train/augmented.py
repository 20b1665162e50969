"""Training rows with words that a masked language model puts in the place of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from filbert.data.augment import Places, augmented
from filbert.data.records import Row
from filbert.errors import ConfigError
from filbert.fill import fill_masks, masked_lm_part
from filbert.predict import Predictor
from filbert.speed.precision import Precision
from filbert.tasks.base import Task
from filbert.text.masks import mask_name, mask_spans, piece_of
from filbert.train.distill_options import DistillOptions
from filbert.train.log import progress_bar, say

# Beside the words that are asked for: pieces of words and punctuation are passed over.
_SPARE = 10


def augmented_rows(
    rows: Sequence[Row], task: Task, options: DistillOptions, device: torch.device
) -> list[Row]:
    """Up to `augment_copies` rows out of each, without labels to learn from.

    Raises:
        ConfigError: the task's rows are not texts or pairs, or the model fills no masks.
        InputError, FormatError: there is no such model, or it is damaged.
    """
    assert options.augment_with is not None
    if task.name not in ("classification", "regression"):
        raise ConfigError(
            f"--augment-with changes words of texts and pairs; rows of {task.name} hold places in "
            "their texts, or belong together. Leave it out."
        )
    filler = _Filler(options.augment_with, options.augment_candidates, device)
    with progress_bar() as bar:
        shown = bar.add_task("augment", total=len(rows))

        def counted() -> Iterator[Row]:
            for row in rows:
                yield row
                bar.update(shown, advance=1)

        made = list(
            augmented(
                counted(),
                filler.words,
                copies=options.augment_copies,
                rate=options.augment_rate,
                seed=options.seed,
            )
        )
    say(f"augmentation: {len(made):,} rows out of {len(rows):,}")
    return made


class _Filler:
    """Says which words may stand at some places of a text."""

    def __init__(self, name: str, most: int, device: torch.device) -> None:
        self.predictor = Predictor.load(name, device=str(device))
        masked_lm_part(self.predictor.model)  # type: ignore[arg-type]
        self.most = most

    def words(self, texts: Sequence[str], places: Sequence[Places]) -> list[list[list[str]]]:
        """For each place up to `most` whole words, the likeliest first, other than its own.

        None for a text that speaks of masks itself.
        """
        tokenizer = self.predictor.tokenizer
        mask = mask_name(tokenizer)
        asked = [
            (number, start, end)
            for number, (text, own) in enumerate(zip(texts, places, strict=True))
            if not mask_spans(text, tokenizer)
            for start, end in own
        ]
        filled = fill_masks(
            self.predictor.model,  # type: ignore[arg-type]
            tokenizer,
            [texts[n][:start] + mask + texts[n][end:] for n, start, end in asked],
            max_length=self.predictor.max_length,
            max_tokens=self.predictor.max_tokens,
            precision=Precision("float32", "default"),
            top=min(self.most + _SPARE, tokenizer.vocab_size),
        )
        found: list[list[list[str]]] = [[[] for _ in own] for own in places]
        at = {(n, *place): i for n, own in enumerate(places) for i, place in enumerate(own)}
        for (number, start, end), answer in zip(asked, filled, strict=True):
            words = [
                piece.text
                for entry in answer["candidates"][0]
                for piece in [piece_of(entry["id"], tokenizer)]
                if not piece.joins
                and piece.text.isalnum()
                and self._read(piece.text) != self._read(texts[number][start:end])
            ]
            found[number][at[number, start, end]] = words[: self.most]
        return found

    def _read(self, word: str) -> str:
        """A word as the model reads it: of a lower-casing one, in small letters."""
        normalizer = self.predictor.tokenizer.backend.normalizer
        return word if normalizer is None else str(normalizer.normalize_str(word))
