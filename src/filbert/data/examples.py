"""Example: one sequence for the encoder; rows become examples, `collate` makes batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from filbert.batch import PackedBatch, pack
from filbert.data.records import Row
from filbert.errors import ConfigError, InputError, did_you_mean
from filbert.text.tokenizer import Encoding, Text, Tokenizer


@dataclass(frozen=True, slots=True)
class Example:
    """One sequence of token ids and its target.

    Attributes:
        row: Index of its row; windows and choices of one row share it and stay together.
        input_ids: Integers (n,), special tokens included.
        token_type_ids: Integers (n,).
        num_tokens: Length before truncation, special tokens included.
        target: The target in the task's own form; None for prediction.
        source: What the task needs to decode outputs: offsets, words, texts.
        row_tokens: Tokens of the whole row before truncation, if it became several sequences.
    """

    row: int
    input_ids: np.ndarray
    token_type_ids: np.ndarray
    num_tokens: int
    target: Any = None
    source: Any = None
    row_tokens: int | None = None

    @classmethod
    def of(cls, row: int, encoding: Encoding, **more: Any) -> Example:
        """Return an encoded text as the sequence of a row; `more` are the other attributes."""
        ids, types = encoding.input_ids, encoding.token_type_ids
        return cls(row, ids, types, encoding.num_tokens, **more)

    @property
    def truncated(self) -> bool:
        """Whether the text was truncated."""
        return self.num_tokens > len(self.input_ids)


def collate(examples: Sequence[Example]) -> PackedBatch:
    """Return the sequences of `examples`, in order, as one batch."""
    return pack([e.input_ids for e in examples], [e.token_type_ids for e in examples])


def by_row(examples: Sequence[Example]) -> list[list[Example]]:
    """Return the examples of each row, in order: its windows or choices."""
    return [list(group) for _, group in groupby(examples, lambda e: e.row)]


def rows_of(examples: Sequence[Example]) -> tuple[int, ...]:
    """Return the number of examples of each row, in order."""
    return tuple(map(len, by_row(examples)))


def lengths_of(examples: Sequence[Example]) -> list[dict[str, Any]]:
    """Return for each row whether it was truncated, and its tokens before that."""
    lengths = []
    for row in by_row(examples):
        whole = row[0].row_tokens or max(example.num_tokens for example in row)
        lengths.append({"truncated": any(e.truncated for e in row), "num_tokens": whole})
    return lengths


# Texts that are longer than the model reads

# Sun et al. 2019, section 5.3.2: the first 128 and the last 382 of the 510 tokens without [CLS] and
# [SEP]. Shorter models keep the proportion.
_HEAD, _HEAD_AND_TAIL = 128, 510

OVERFLOW_RULES = ("error", "truncate", "head-tail", "window")


def check_overflow(rule: str, stride: int = 1) -> None:
    """Raise a ConfigError for an unknown rule, and for windows that do not move."""
    if rule not in OVERFLOW_RULES:
        hint = did_you_mean(rule, OVERFLOW_RULES)
        raise ConfigError(f"on_overflow is {rule!r}; it is one of {list(OVERFLOW_RULES)}.{hint}")
    if rule == "window" and stride < 1:
        raise ConfigError(f"stride is {stride}; windows must move by at least 1 token.")


def encode_rows(
    rows: Sequence[Row],
    texts: Sequence[Text],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    rule: str,
    stride: int,
) -> list[list[Encoding]]:
    """Return the sequences that each text becomes: one, or several windows.

    `num_tokens` of a sequence is more than its length only if tokens were lost, and then counts the
    whole text.

    Args:
        rows: The row of each text, for error messages; a row may occur several times.
        max_length: Of a sequence in tokens, specials included.
        rule: One of OVERFLOW_RULES. error: refuse. truncate: cut the end, of a pair that of the
            longer text. head-tail: keep the beginning and the end of a single text. window: lose
            nothing; of a pair, each window begins with the whole first text.
        stride: Tokens from window to window.

    Raises:
        ConfigError: An unknown rule, a pair under head-tail, or no tokens left for the text.
        InputError: A text is too long for the rule; with file and line.
    """
    check_overflow(rule, stride)
    if rule == "truncate":
        return [[e] for e in tokenizer.encode(texts, max_length=max_length)]
    encoded = [[e] for e in tokenizer.encode(texts)]
    long = [i for i, (e,) in enumerate(encoded) if e.num_tokens > max_length]
    if not long:
        return encoded
    if rule == "error":
        raise InputError(
            f"{rows[long[0]].where}: {encoded[long[0]][0].num_tokens:,} tokens with specials, and "
            f"max_length is {max_length:,}; {len(long):,} texts are too long. Raise max_length, or "
            "pass another --on-overflow."
        )
    # Only these are tokenised again, now with what the rule needs of each token.
    whole = [texts[i] for i in long]
    if rule == "window":
        pieces = tokenizer.windows(
            whole, max_length=max_length, stride=stride, place=lambda n: rows[long[n]].where
        )
    else:
        if not all(isinstance(text, str) for text in whole):
            raise ConfigError(
                "on_overflow head-tail is for single texts, not for pairs. Pass truncate or window."
            )
        encodings = tokenizer.encode(whole, with_offsets=True)
        pieces = [[_without_middle(encoding, max_length)] for encoding in encodings]
    for i, piece in zip(long, pieces, strict=True):
        encoded[i] = piece
    return encoded


def _without_middle(whole: Encoding, max_length: int) -> Encoding:
    (low, high), limit = whole.text_rows(), whole.max_text_tokens(max_length)
    if limit < 1:
        raise ConfigError(f"max_length {max_length} is too short for a text.")
    head = round(limit * _HEAD / _HEAD_AND_TAIL)
    kept = np.r_[: low + head, high - (limit - head) : whole.num_tokens]
    return Encoding(whole.input_ids[kept], whole.token_type_ids[kept], whole.num_tokens)
