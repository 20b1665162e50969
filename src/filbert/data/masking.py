"""Which tokens of a row are masked, and what replaces them.

Every decision is a hash of (seed, version, row, position), so it is the same however rows are
grouped and in whatever order they are read. R rows of T tokens are joined end to end.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from filbert.data.draws import shuffled, uniform
from filbert.errors import ConfigError
from filbert.text.tokenizer import UNSPACED, Tokenizer

# Options

PAIRS = ("none", "nsp", "sop", "streams")
UNITS = ("token", "word", "ngram", "span")
# Styles that draw a number of tokens in each row, without replacement.
_BY_COUNT = ("bert", "roberta")

# A shorter row has no context next to its special tokens.
MIN_LENGTH = 8


@dataclass(frozen=True, kw_only=True)
class MaskOptions:
    """How raw text is masked.

    Attributes:
        masking: what is masked as a whole: token, word, ngram (1 to 3 words) or span (1 to 10
            words).
        mask_rate: share of the tokens that is masked.
        mask_style: bert (80 % mask token, 10 % kept, 10 % any token), roberta (the same, but
            random tokens are no special tokens, and the number of masks is random) or electra (85 %
            mask token, 15 % kept, positions drawn with replacement).
        mask_rarity: draw single tokens by their count in the corpus to the power of minus this, so
            rare tokens more often; 0 draws all with the same probability.
        max_predictions: largest number of masked tokens of a row; by default no limit, for electra
            (mask rate + 0.005) times the length.
        duplicates: static masking: number of versions of masks and pairs, which are repeated; by
            default every epoch has new ones.
    """

    masking: str = "token"
    mask_rate: float = 0.15
    mask_style: str = "bert"
    mask_rarity: float = 0.0
    max_predictions: int | None = None
    duplicates: int | None = None


@dataclass(frozen=True, kw_only=True)
class ObjectiveOptions(MaskOptions):
    """The pre-training objective: what is masked, and pairs of segments.

    Attributes:
        pair: the question about two segments: none (full sentences, end to end), nsp (does the
            second follow the first?) or sop (are they in order?). Or no question: streams (the two
            lines of each document, such as words and clusters, are the segments).
        short_rate: share of the documents that are split into shorter rows (with nsp and sop).
        max_length: tokens per row, special tokens included.
    """

    pair: str = "none"
    short_rate: float = 0.1
    max_length: int = 128

    def check(self) -> None:
        """Raise a ConfigError for an unknown name, a number out of range, or a contradiction."""
        style, unit = self.mask_style, self.masking
        for name, known in (("pair", PAIRS), ("masking", UNITS), ("mask_style", tuple(STYLES))):
            if (value := getattr(self, name)) not in known:
                raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(known)}.")
        if not 0 < self.mask_rate < 1:
            raise ConfigError(f"mask_rate is {self.mask_rate}; it must be between 0 and 1.")
        for name, most in (("mask_rarity", 10), ("short_rate", 1)):
            if not 0 <= (value := getattr(self, name)) <= most:
                raise ConfigError(f"{name} is {value}; it must be from 0 to {most}.")
        for name, least in (("max_length", MIN_LENGTH), ("max_predictions", 1), ("duplicates", 1)):
            if (value := getattr(self, name)) is not None and value < least:
                raise ConfigError(f"{name} is {value}; give at least {least}.")
        if self.mask_rarity and (unit != "token" or style not in _BY_COUNT):
            raise ConfigError(
                "mask_rarity draws single tokens, a number in each row; use masking token and "
                f"mask_style {' or '.join(_BY_COUNT)}."
            )

    @property
    def question(self) -> str:
        """The question about pairs that the model learns: nsp, sop or none."""
        return "none" if self.pair == "streams" else self.pair

    @property
    def most(self) -> int | None:
        """Largest number of masked tokens of a row, or None."""
        if self.max_predictions is None and self.mask_style == "electra":
            return int((self.mask_rate + 0.005) * self.max_length)
        return self.max_predictions


# Whole words, n-grams and spans

# Lan et al. 2019, section 3.1; Joshi et al. 2020, section 3.1.
_LONGEST_NGRAM = 3
_LONGEST_SPAN = 10
_SPAN_P = 0.2


def _cumulative(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [part / total for part in accumulate(weights)]


# Cumulative probabilities of the lengths 1, 2, ...; for n-grams by the longest that is possible.
_NGRAM = {
    most: _cumulative([1 / n for n in range(1, most + 1)]) for most in range(1, _LONGEST_NGRAM + 1)
}
# The geometric distribution truncated at 10: its mean is 3.8, as in the paper.
_SPAN = _cumulative([(1 - _SPAN_P) ** n for n in range(_LONGEST_SPAN)])


def _draw(cumulative: Sequence[float], chance: float) -> int:
    """Return a length from 1 for a uniform draw."""
    return min(bisect_right(cumulative, chance) + 1, len(cumulative))


def choose_ngrams(
    sizes: Sequence[int],
    order: Sequence[int],
    wanted: int,
    chances: Sequence[float],
    longest: int = _LONGEST_NGRAM,
) -> list[tuple[int, int]]:
    """Choose 1 to `longest` whole words from each start, n with a probability proportional to 1/n.

    An n-gram that would exceed `wanted` is shortened or left out, as is one that overlaps an
    earlier one. As in the reference, it may cross the separator of two segments. `chances` are
    uniform draws, one per word.

    Source: create_masked_lm_predictions in create_pretraining_data.py of google-research/albert,
    and of google-research/bert for whole words, where `longest` is 1.
    """
    begins = [0, *accumulate(sizes)]
    covered = bytearray(len(sizes))
    chosen = []
    for word in order:
        if covered[word] or sizes[word] > wanted:
            continue
        end = word + _draw(_NGRAM[min(longest, len(sizes) - word)], chances[word])
        while begins[end] - begins[word] > wanted:
            end -= 1
        if any(covered[word:end]):
            continue
        covered[word:end] = b"\1" * (end - word)
        chosen.append((word, end))
        wanted -= begins[end] - begins[word]
        if not wanted:
            break
    return chosen


def choose_spans(
    sizes: Sequence[int],
    breaks: Sequence[bool],
    order: Sequence[int],
    wanted: int,
    chances: Sequence[float],
) -> list[tuple[int, int]]:
    """Choose spans of whole words, of geometric length, each from the word of a drawn token.

    A span ends early at the end of its segment, before a covered word, and before one that would
    exceed `wanted`.

    Args:
        breaks: Whether a segment begins with the word.
        order: Words in the order in which they are drawn, one entry per token.
        chances: Uniform draws, one per word.

    Source: Joshi et al. 2020 (SpanBERT), section 3.1.
    """
    covered = bytearray(len(sizes))
    chosen = []
    for word in order:
        if covered[word] or sizes[word] > wanted:
            continue
        most = min(word + _draw(_SPAN, chances[word]), len(sizes))
        end = word
        while end < most and sizes[end] <= wanted and not covered[end]:
            if breaks[end] and end > word:
                break
            covered[end] = 1
            wanted -= sizes[end]
            end += 1
        chosen.append((word, end))
        if not wanted:
            break
    return chosen


# The rules for one vocabulary


class MaskedRow(NamedTuple):
    """The target of a pre-training row.

    Attributes:
        positions: int64 (K,), the masked positions in the sequence, sorted.
        labels: int64 (K,), their original ids.
        pair: 0 for the true next sentence or order, 1 for a random or swapped one; None without a
            pair objective.
    """

    positions: np.ndarray
    labels: np.ndarray
    pair: int | None


@dataclass(frozen=True)
class Style:
    """How many tokens are masked, and what replaces them.

    Attributes:
        masked: Share that becomes the mask token.
        kept: Share that stays; the rest becomes a random token.
        whole_vocabulary: Whether random tokens may be special tokens.
        rounded: Whether the count is rounded half to even; otherwise the fraction is random.
        replacement: Whether positions are drawn with replacement (single tokens only).
    """

    masked: float = 0.8
    kept: float = 0.1
    whole_vocabulary: bool = True
    rounded: bool = True
    replacement: bool = False


STYLES = {
    "bert": Style(),
    "roberta": Style(whole_vocabulary=False, rounded=False),
    "electra": Style(masked=0.85, kept=0.15, replacement=True),
}

_MARKS = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')


def _begins_unigram(piece: str) -> bool:
    """Return whether a piece begins a word: after a space, marks, digits, scripts without spaces.

    Source: google-research/albert, `_is_start_piece_sp`, whose rule is for English only.
    """
    if piece[:1] in ("▁", "<") or piece in _MARKS:
        return True
    return not all(
        mark in _MARKS or (unicodedata.category(mark)[0] in "LM" and not UNSPACED.match(mark))
        for mark in piece
    )


_BEGINS_WORD: dict[str, Callable[[str], bool]] = {
    "wordpiece": lambda piece: not piece.startswith("##"),
    "bytebpe": lambda piece: piece.startswith("Ġ"),
    "unigram": _begins_unigram,
    "symbols": lambda piece: True,
}


class Masker:
    """The rules of masking for one vocabulary.

    Attributes:
        never: bool (V,), ids that are never masked: separators, padding, and in some styles the
            unknown token.
        continues: bool (V,), ids of pieces that continue a word.
        drawn: int32, ids that random tokens are drawn from.
        weights: float64 (V,), relative probability of a token to be masked; None for equal ones.

    Raises:
        ConfigError: The vocabulary has no mask token.
    """

    def __init__(
        self, tokenizer: Tokenizer, options: ObjectiveOptions, weights: np.ndarray | None = None
    ) -> None:
        if tokenizer.mask_id is None:
            raise ConfigError(
                "The vocabulary has no mask token, so nothing can be masked. "
                "Use a vocabulary made for masked language models."
            )
        self.options, self.style = options, STYLES[options.mask_style]
        self.mask_id, self.weights = tokenizer.mask_id, weights
        special = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.mask_id]
        if weights is not None:
            # DistilBERT's collator counts it among the special tokens.
            special.append(tokenizer.unk_id)
        self.never, exists, self.continues = np.zeros((3, tokenizer.vocab_size), dtype=bool)
        self.never[[number for number in special if number is not None]] = True
        for piece, number in tokenizer.backend.get_vocab(with_added_tokens=True).items():
            exists[number] = True
            self.continues[number] = not _BEGINS_WORD[tokenizer.kind](piece)
        if not self.style.whole_vocabulary:
            exists &= ~self.never
            if tokenizer.unk_id is not None:
                exists[tokenizer.unk_id] = False
        self.drawn = np.flatnonzero(exists).astype(np.int32)


# Masking of rows

# The streams of a row's draws.
_ORDER, _COUNT, _LENGTH, _COIN, _WORD = range(5)


@dataclass(frozen=True, eq=False)
class TokenRows:
    """R rows of T tokens, end to end.

    Attributes:
        ids: int32 (T,), special tokens included.
        starts: int64 (R + 1,), where the rows begin; the last is T.
        keys: uint64 (R,), from `draws.keys_of`.
        fresh: bool (T,), tokens that begin a word whatever their id; None if only ids decide.
    """

    ids: np.ndarray
    starts: np.ndarray
    keys: np.ndarray
    fresh: np.ndarray | None = None

    @cached_property
    def row(self) -> np.ndarray:
        """The row of each token, int64 (T,)."""
        return np.repeat(np.arange(len(self.keys)), np.diff(self.starts))

    @cached_property
    def position(self) -> np.ndarray:
        """The position of each token in its row, int64 (T,)."""
        return np.asarray(np.arange(len(self.ids)) - self.starts[self.row])

    def uniform(self, stream: int, at: np.ndarray) -> np.ndarray:
        """Return a draw for each of the tokens `at`, float64 in [0, 1)."""
        return uniform(self.keys[self.row[at]], stream, self.position[at])

    def shuffled(self, at: np.ndarray) -> np.ndarray:
        """Return indices of `at` in random order within each row, the rows in order: int64."""
        row = self.row[at]
        return shuffled(self.keys[row], _ORDER, self.position[at], row)

    def bounds(self, at: np.ndarray) -> np.ndarray:
        """Return where the tokens of each row begin and end in `at`, ascending: int64 (R + 1,)."""
        return np.searchsorted(at, self.starts)


def mask(rows: TokenRows, masker: Masker) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Mask R rows.

    Returns:
        The masked ids, int32 (T,), and for each row the masked positions within the row and their
        original ids, int64 (K,) each, sorted by position.
    """
    ids = rows.ids
    free = ~masker.never[ids]
    counts = _counts(rows, masker)
    if masker.options.masking != "token":
        at, coins = _units(rows, free, counts, masker)
    elif masker.style.replacement:
        at, coins = _with_replacement(rows, np.flatnonzero(free), counts)
    else:
        at = _without_replacement(rows, np.flatnonzero(free), counts, masker.weights)
        coins = rows.uniform(_COIN, at)
    masked = ids.copy()
    drawn = masker.drawn[(rows.uniform(_WORD, at) * len(masker.drawn)).astype(np.int64)]
    style = masker.style
    unmasked = np.where(coins < style.masked + style.kept, ids[at], drawn)
    masked[at] = np.where(coins < style.masked, masker.mask_id, unmasked)
    positions, labels = rows.position[at], ids[at].astype(np.int64)
    return masked, [(positions[a:b], labels[a:b]) for a, b in pairwise(rows.bounds(at).tolist())]


def _counts(rows: TokenRows, masker: Masker) -> np.ndarray:
    share = masker.options.mask_rate * np.diff(rows.starts)
    if masker.style.rounded:
        counts = np.maximum(1, np.rint(share))  # half to even, as Python's round
    else:
        counts = np.floor(share + uniform(rows.keys, _COUNT, np.zeros(1)))
    if masker.options.most is not None:
        counts = np.minimum(masker.options.most, counts)
    return counts.astype(np.int64)


def _without_replacement(
    rows: TokenRows, free: np.ndarray, counts: np.ndarray, weights: np.ndarray | None
) -> np.ndarray:
    row = rows.row[free]
    if weights is None:
        order = rows.shuffled(free)
    else:
        # The smallest of exponential variables with these rates: draws without replacement.
        chance = rows.uniform(_ORDER, free)
        order = np.lexsort((-np.log1p(-chance) / weights[rows.ids[free]], row))
    firsts = rows.bounds(free)
    return np.sort(free[order[np.arange(len(free)) - firsts[row] < counts[row]]])


def _with_replacement(
    rows: TokenRows, free: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw with replacement; the smallest coin of a repeated place decides."""
    firsts = rows.bounds(free)
    sizes = np.diff(firsts)
    counts = np.where(sizes > 0, counts, 0)
    row = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    chance = uniform(rows.keys[row], _ORDER, number)
    at = free[firsts[row] + (chance * sizes[row]).astype(np.int64)]
    coins = uniform(rows.keys[row], _COIN, number)
    order = np.lexsort((coins, at))
    places_drawn, first = np.unique(at[order], return_index=True)
    return places_drawn, coins[order][first]


def _units(
    rows: TokenRows, free: np.ndarray, counts: np.ndarray, masker: Masker
) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of words, n-grams or spans, and the coins of their replacement."""
    # A word always begins after a special token.
    begins = free & (~masker.continues[rows.ids] | (rows.position == 0))
    begins[1:] |= free[1:] & ~free[:-1]
    if rows.fresh is not None:
        begins |= free & rows.fresh
    words, tokens = np.flatnonzero(begins), np.flatnonzero(free)
    word_of = np.cumsum(begins)[tokens] - 1
    sizes = np.bincount(word_of, minlength=len(words))
    chances = rows.uniform(_LENGTH, words)
    # A span is drawn by one of its tokens, words and n-grams by their first word.
    is_span = masker.options.masking == "span"
    turns = tokens if is_span else words
    order = word_of[rows.shuffled(turns)] if is_span else rows.shuffled(turns)
    breaks = ~free[words - 1] | (rows.position[words] == 0)
    longest = 1 if masker.options.masking == "word" else _LONGEST_NGRAM
    # The first word of each chosen unit, by word.
    head = np.full(len(words), -1)
    bounds = zip(pairwise(rows.bounds(words)), pairwise(rows.bounds(turns)), strict=True)
    for wanted, ((a, b), turn) in zip(counts.tolist(), bounds, strict=True):
        drawn = (order[slice(*turn)] - a).tolist()
        size, chance = sizes[a:b].tolist(), chances[a:b].tolist()
        if is_span:
            chosen = choose_spans(size, breaks[a:b].tolist(), drawn, wanted, chance)
        else:
            chosen = choose_ngrams(size, drawn, wanted, chance, longest)
        for first, behind in chosen:
            head[a + first : a + behind] = a + first
    picked = head[word_of] >= 0
    at = tokens[picked]
    return at, rows.uniform(_COIN, words[head[word_of[picked]]] if is_span else at)
