"""What the user may say about learning from raw text: the fields are flags and recipe keys."""

from __future__ import annotations

from dataclasses import dataclass

from filbert.data.masking import STYLES, UNITS
from filbert.errors import ConfigError

PAIRS = ("none", "nsp", "sop")

# Less leaves no room for a word of context beside the special tokens.
SHORTEST = 8

# Styles that draw a number of tokens in each row, and none of them twice.
_BY_COUNT = ("bert", "roberta")


@dataclass(frozen=True, kw_only=True)
class ObjectiveOptions:
    """What is learnt from raw text.

    Attributes:
        pair: what is asked about two segments: none (full sentences, end to end), nsp (does the
            second follow the first?) or sop (are they in order?).
        masking: what is masked as a whole: token, word, ngram (1 to 3 words) or span (1 to 10
            words).
        mask_rate: share of the tokens that is masked.
        mask_style: bert (80 % mask token, 10 % kept, 10 % any token), roberta (the same, but no
            special token as a random one and the number of masks decided by chance), electra
            (85 % mask token, 15 % kept, positions drawn with replacement) or collator (as Hugging
            Face's: as bert, but each token by itself; each word by itself becomes mask tokens).
        mask_rarity: single tokens are drawn by their count in the corpus to the power of minus
            this, rare ones first; 0 draws all alike.
        max_predictions: most masked tokens of a row; no limit when not given, but for electra
            (mask rate + 0.005) times the length.
        duplicates: static masks and pairs: so many versions of the data are made and repeated; made
            anew in every epoch when not given.
        short_rate: share of the documents that are cut for shorter rows (with nsp and sop).
        max_length: tokens per row, special tokens included.
    """

    pair: str = "none"
    masking: str = "token"
    mask_rate: float = 0.15
    mask_style: str = "bert"
    mask_rarity: float = 0.0
    max_predictions: int | None = None
    duplicates: int | None = None
    short_rate: float = 0.1
    max_length: int = 128

    def check(self) -> None:
        """Make sure that every value is possible.

        Raises:
            ConfigError: an unknown name, or a number out of its range.
        """
        for name, known in (("pair", PAIRS), ("masking", UNITS), ("mask_style", tuple(STYLES))):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(known)}."
                )
        if not 0 <= self.mask_rarity <= 10:
            raise ConfigError(f"mask_rarity is {self.mask_rarity}; it must be from 0 to 10.")
        if self.mask_rarity and (self.masking != "token" or self.mask_style not in _BY_COUNT):
            raise ConfigError(
                "mask_rarity draws single tokens, a number in each row; take masking token and "
                f"mask_style {' or '.join(_BY_COUNT)}."
            )
        if self.mask_style == "collator" and self.masking not in ("token", "word"):
            raise ConfigError(
                f"mask_style collator knows tokens and words; take another for {self.masking}."
            )
        if self.mask_style == "collator" and self.max_predictions is not None:
            raise ConfigError(
                "mask_style collator masks each token or word by itself, however many that makes; "
                "leave max_predictions out."
            )
        if not 0 < self.mask_rate < 1:
            raise ConfigError(f"mask_rate is {self.mask_rate}; it must be between 0 and 1.")
        if not 0 <= self.short_rate <= 1:
            raise ConfigError(f"short_rate is {self.short_rate}; it must be from 0 to 1.")
        if self.max_length < SHORTEST:
            raise ConfigError(f"max_length is {self.max_length}; give at least {SHORTEST}.")
        for name in ("max_predictions", "duplicates"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; give at least 1, or leave it out.")

    @property
    def most(self) -> int | None:
        """Most masked tokens of a row, or None."""
        if self.max_predictions is None and self.mask_style == "electra":
            return int((self.mask_rate + 0.005) * self.max_length)
        return self.max_predictions
