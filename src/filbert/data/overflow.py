"""What becomes of texts that are longer than the model reads: refused, cut, or read in windows."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.texts import Item, Text, text_of
from filbert.errors import ConfigError, InputError
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Encoding, Tokenizer

# Sun et al. 2019, section 5.3.2: the first 128 and the last 382 of the 510 tokens without [CLS] and
# [SEP]. Shorter models keep the proportion.
HEAD, HEAD_AND_TAIL = 128, 510

RULES = ("error", "truncate", "head-tail", "window")


def check_rule(rule: str, stride: int = 1) -> None:
    """Refuse an unknown rule, and windows that do not move.

    Raises:
        ConfigError: with the nearest name.
    """
    if rule not in RULES:
        near = get_close_matches(str(rule), RULES, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"on_overflow is {rule!r}; it is one of {', '.join(RULES)}.{hint}")
    if rule == "window" and stride < 1:
        raise ConfigError(f"stride is {stride}; windows must move by at least 1 token.")


def row_examples(
    rows: Sequence[Row],
    targets: Sequence[Any],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    rule: str,
    stride: int,
    clean: Cleaning | None = None,
) -> list[Example]:
    """One sequence a row, or one a window, for rows that hold a text or a pair.

    Args:
        rows, tokenizer, max_length, rule, stride: as for `encode_rows`.
        targets: what each row's examples carry.
        clean: what the texts go through first.
    """
    pieces = encode_rows(
        rows,
        [text_of(row, clean) for row in rows],
        tokenizer,
        max_length=max_length,
        rule=rule,
        stride=stride,
    )
    return [
        Example(
            i,
            e.input_ids,
            e.token_type_ids,
            e.num_tokens,
            target,
            row_tokens=windows[-1].start + windows[-1].num_tokens,
        )
        for i, (target, windows) in enumerate(zip(targets, pieces, strict=True))
        for e in windows
    ]


def encode_rows(
    rows: Sequence[Row],
    texts: Sequence[Text],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    rule: str,
    stride: int,
) -> list[list[Encoding]]:
    """The sequences that each text becomes: one, or several windows.

    Args:
        rows: the row of each text, for error messages; a row may occur several times.
        texts: as many texts or pairs.
        tokenizer: cuts them into tokens.
        max_length: of a sequence in tokens, specials included.
        rule: one of RULES. error: refuse. truncate: cut the end, of a pair that of the longer text.
            head-tail: keep the beginning and the end of a single text. window: lose nothing; of a
            pair, each window begins with the whole first text.
        stride: tokens from window to window; a longer one than a window holds means windows that do
            not overlap.

    Returns:
        `num_tokens` of a sequence is more than its length only where tokens were lost, and then
        counts the whole text.

    Raises:
        ConfigError: an unknown rule, a pair under head-tail, or no tokens left for the text.
        InputError: a text is too long for the rule; with file and line.
    """
    check_rule(rule, stride)
    if rule == "truncate":
        return [[e] for e in tokenizer.encode(texts, max_length=max_length)]
    pair = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
    if rule == "head-tail" and pair is not None:
        raise ConfigError(
            f"on_overflow head-tail is for single texts, and {rows[pair].where} holds a pair. "
            "Pass truncate or window."
        )
    encoded = [[e] for e in tokenizer.encode(texts)]
    long = [i for i, (e,) in enumerate(encoded) if e.num_tokens > max_length]
    if long and rule == "error":
        places = [len({(row.path, row.line) for row in some}) for some in (_at(rows, long), rows)]
        raise InputError(
            f"{rows[long[0]].where}: {encoded[long[0]][0].num_tokens:,} tokens with specials, and "
            f"max_length is {max_length:,}; {places[0]:,} of {places[1]:,} rows looked at are too "
            "long. Raise max_length, or pass another --on-overflow."
        )
    # Only these are tokenised again, now with what the rule needs to know of each token.
    late = _at(texts, long)
    if rule == "head-tail":
        pieces = [
            [_without_middle(e, max_length)] for e in tokenizer.encode(late, with_offsets=True)
        ]
    else:
        pieces = _windows(_at(rows, long), late, tokenizer, max_length=max_length, stride=stride)
    for i, piece in zip(long, pieces, strict=True):
        encoded[i] = piece
    return encoded


def _at(items: Sequence[Item], indexes: Sequence[int]) -> list[Item]:
    return [items[i] for i in indexes]


def _without_middle(whole: Encoding, max_length: int) -> Encoding:
    assert whole.sequence is not None
    inside = np.flatnonzero(whole.sequence >= 0)
    before, after = int(inside[0]), int(inside[-1]) + 1
    specials = whole.num_tokens - (after - before)
    limit = max_length - specials
    if limit < 1:
        raise ConfigError(
            f"max_length {max_length} leaves no room for a text and the {specials} special "
            f"tokens. Give at least {specials + 1}."
        )
    head = round(limit * HEAD / HEAD_AND_TAIL)
    kept = np.r_[: before + head, after - (limit - head) : whole.num_tokens]
    return Encoding(whole.input_ids[kept], whole.token_type_ids[kept], whole.num_tokens)


def _windows(
    rows: Sequence[Row],
    texts: Sequence[Text],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    stride: int,
) -> list[list[Encoding]]:
    try:
        return tokenizer.windows(texts, max_length=max_length, stride=stride)
    except InputError as error:
        # The tokenizer knows no rows; one by one, the first that fails has a place.
        if len(rows) > 1:
            for row, text in zip(rows, texts, strict=True):
                _windows([row], [text], tokenizer, max_length=max_length, stride=stride)
        raise InputError(f"{rows[0].where}: {error} Or pass --on-overflow truncate.") from error
