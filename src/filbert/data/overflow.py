"""What becomes of texts that are longer than the model reads: refused, cut, or read in windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.texts import Text, text_of
from filbert.errors import ConfigError, InputError
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Encoding, Tokenizer

# Sun et al. 2019, section 5.3.2: the first 128 and the last 382 of the 510 tokens without [CLS] and
# [SEP]. Shorter models keep the proportion.
HEAD, HEAD_AND_TAIL = 128, 510


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
    made = []
    for i, (target, windows) in enumerate(zip(targets, pieces, strict=True)):
        whole = windows[-1].start + windows[-1].num_tokens
        made += [
            Example(i, e.input_ids, e.token_type_ids, e.num_tokens, target, row_tokens=whole)
            for e in windows
        ]
    return made


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
    done = [[e] for e in tokenizer.encode(texts)]
    long = [i for i, (e,) in enumerate(done) if e.num_tokens > max_length]
    if long:
        # Only these are tokenised again, now with what the rule needs to know of each token.
        late = _Late([rows[i] for i in long], [texts[i] for i in long], len(_places(rows)))
        for i, pieces in zip(long, _RULES[rule](late, tokenizer, max_length, stride), strict=True):
            done[i] = pieces
    return done


class _Late(NamedTuple):
    """The texts that are too long, where they stand, and of how many rows in all."""

    rows: list[Row]
    texts: list[Text]
    num_rows: int


def _places(rows: Sequence[Row]) -> set[tuple[str, int]]:
    return {(row.path, row.line) for row in rows}


def _refuse(
    late: _Late, tokenizer: Tokenizer, max_length: int, stride: int
) -> list[list[Encoding]]:
    first = tokenizer.encode(late.texts[:1])[0].num_tokens
    others = "truncate or window" if isinstance(late.texts[0], tuple) else _OTHERS
    raise InputError(
        f"{late.rows[0].where}: {first:,} tokens with specials, and max_length is {max_length:,}; "
        f"{len(_places(late.rows)):,} of {late.num_rows:,} rows looked at are too long. Raise "
        f"max_length, or pass --on-overflow {others}."
    )


def _head_and_tail(
    late: _Late, tokenizer: Tokenizer, max_length: int, stride: int
) -> list[list[Encoding]]:
    return [
        [_without_middle(e, max_length)] for e in tokenizer.encode(late.texts, with_offsets=True)
    ]


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
    late: _Late, tokenizer: Tokenizer, max_length: int, stride: int
) -> list[list[Encoding]]:
    try:
        return tokenizer.windows(late.texts, max_length=max_length, stride=stride)
    except InputError:
        # The tokenizer knows no rows; one by one, the first that fails has a place.
        for row, text in zip(late.rows, late.texts, strict=True):
            try:
                tokenizer.windows([text], max_length=max_length, stride=stride)
            except InputError as error:
                raise InputError(f"{row.where}: {error} Or pass --on-overflow truncate.") from error
        raise


_Rule = Callable[[_Late, Tokenizer, int, int], list[list[Encoding]]]
_RULES: dict[str, _Rule] = {"error": _refuse, "head-tail": _head_and_tail, "window": _windows}
_OTHERS = "truncate, head-tail or window"

RULES = ("error", "truncate", "head-tail", "window")
