"""Which tokens of a row are to be guessed, and what stands in their place.

Every decision is a hash of (seed, version, row, position): equal however rows are grouped, in
whatever order they are asked for. R rows of T tokens lie end to end.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from filbert.data.draws import shuffled, uniform
from filbert.errors import ConfigError
from filbert.text.tokenizer import UNSPACED, Tokenizer

# Options

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


# Whole words, n-grams and spans

# Longest n-gram (Lan et al. 2019, section 3.1), longest span and the parameter of its geometric
# distribution (Joshi et al. 2020, section 3.1).
LONGEST_NGRAM = 3
LONGEST_SPAN = 10
SPAN_P = 0.2


def _shares(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [part / total for part in accumulate(weights)]


# Running sums of p(n), by the largest n that is possible.
_NGRAM = {
    most: _shares([1 / n for n in range(1, most + 1)]) for most in range(1, LONGEST_NGRAM + 1)
}
# The geometric distribution over 1 to 10 alone: its mean is 3.8, as the paper says.
_SPAN = _shares([(1 - SPAN_P) ** n for n in range(LONGEST_SPAN)])


def _draw(running: Sequence[float], chance: float) -> int:
    """1 + the first place whose running sum is above `chance`."""
    for index, part in enumerate(running):
        if chance < part:
            return index + 1
    return len(running)


def choose_words(sizes: Sequence[int], order: Sequence[int], wanted: int) -> list[tuple[int, int]]:
    """Whole words in the order given, without those that would overshoot.

    Source: google-research/bert, create_pretraining_data.py, create_masked_lm_predictions.
    """
    chosen = []
    for word in order:
        if sizes[word] <= wanted:
            chosen.append((word, word + 1))
            wanted -= sizes[word]
            if not wanted:
                break
    return chosen


def choose_ngrams(
    sizes: Sequence[int], order: Sequence[int], wanted: int, chances: Sequence[float]
) -> list[tuple[int, int]]:
    """One to three whole words from each start, n with a probability proportional to 1/n.

    One that overshoots is shortened, else left out, as is one that would meet an earlier one. As in
    the reference, an n-gram may go on behind the separator of two segments.

    Args:
        sizes: tokens of every word.
        order: in which words begin an n-gram.
        wanted: tokens.
        chances: uniform draws, one per word.

    Source: google-research/albert, create_pretraining_data.py, create_masked_lm_predictions.
    """
    begins = [0, *accumulate(sizes)]
    covered = bytearray(len(sizes))
    chosen = []
    for word in order:
        if covered[word] or sizes[word] > wanted:
            continue
        end = word + _draw(_NGRAM[min(LONGEST_NGRAM, len(sizes) - word)], chances[word])
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
    """Spans of whole words, of geometric length, from the word of each token drawn.

    A span ends early at the end of its segment, before a word that is covered and before one that
    would overshoot.

    Args:
        sizes: tokens of every word.
        breaks: whether a segment begins with the word.
        order: words in the order in which they are drawn; each may come once per token.
        wanted: tokens.
        chances: uniform draws, one per word.

    Source: Joshi et al. 2020 (SpanBERT), section 3.1.
    """
    covered = bytearray(len(sizes))
    chosen = []
    for word in order:
        if covered[word] or sizes[word] > wanted:
            continue
        most = word + _draw(_SPAN, chances[word])
        end = word
        while end < min(most, len(sizes)) and sizes[end] <= wanted and not covered[end]:
            if breaks[end] and end > word:
                break
            covered[end] = 1
            wanted -= sizes[end]
            end += 1
        chosen.append((word, end))
        if not wanted:
            break
    return chosen


# Masks

UNITS = ("token", "word", "ngram", "span")


class MaskedRow(NamedTuple):
    """What a row of pre-training wants back.

    Attributes:
        positions: int64 (K,), sorted, each once: the masked places in the sequence.
        labels: int64 (K,), the ids that stood there.
        pair: 0 for a true next sentence or the true order, 1 for a random or swapped one; None
            without a pair objective.
    """

    positions: np.ndarray
    labels: np.ndarray
    pair: int | None


@dataclass(frozen=True)
class Style:
    """How many tokens are masked and what they become; the rest beyond both shares is drawn.

    Attributes:
        masked: share that becomes the mask token.
        kept: share that stays.
        whole_vocabulary: whether drawn ids may be special tokens.
        rounded: exact count, rounded half to even; else the fraction is decided by chance.
        replacement: positions are drawn with replacement (single tokens only).
        each: every token or word is masked or not by itself.
    """

    masked: float = 0.8
    kept: float = 0.1
    whole_vocabulary: bool = True
    rounded: bool = True
    replacement: bool = False
    each: bool = False


STYLES = {
    "bert": Style(),
    "roberta": Style(whole_vocabulary=False, rounded=False),
    "electra": Style(masked=0.85, kept=0.15, replacement=True),
    "collator": Style(each=True),
}
# What Hugging Face's collator does with whole words.
_WHOLE_WORDS = Style(masked=1.0, kept=0.0, each=True)


@dataclass(frozen=True)
class Masker:
    """The rules of masking for one vocabulary.

    Attributes:
        unit: one of UNITS.
        style: see `Style`.
        rate: share of a row's tokens, special tokens counted in.
        most: largest number per row, or None.
        mask_id: id of the mask token.
        never: bool (V,), ids that are not masked: those that separate or fill, and for some also
            the unknown token.
        continues: bool (V,), ids of pieces that go on with a word.
        drawn: ids that random words are drawn from, int32.
        weights: float64 (V,), how readily a token is drawn beside others; None where all are alike.
    """

    unit: str
    style: Style
    rate: float
    most: int | None
    mask_id: int
    never: np.ndarray
    continues: np.ndarray
    drawn: np.ndarray
    weights: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        *,
        unit: str,
        style: str,
        rate: float,
        most: int | None,
        weights: np.ndarray | None = None,
    ) -> Masker:
        """The rules for a tokenizer; arguments as the attributes, `style` by its name.

        Raises:
            ConfigError: the vocabulary has no mask token.
        """
        if tokenizer.mask_id is None:
            raise ConfigError(
                "The vocabulary has no mask token, so nothing can be masked. "
                "Use a vocabulary made for masked language models."
            )
        chosen = STYLES[style] if style != "collator" or unit == "token" else _WHOLE_WORDS
        size = tokenizer.vocab_size
        never = np.zeros(size, dtype=bool)
        for number in (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.mask_id):
            if number is not None:
                never[number] = True
        if (chosen.each or weights is not None) and tokenizer.unk_id is not None:
            # To Hugging Face's collator and to DistilBERT's, it is one of the special tokens.
            never[tokenizer.unk_id] = True
        names = tokenizer.backend.get_vocab(with_added_tokens=True)
        begins_word = _BEGINS_WORD[tokenizer.kind]
        continues = np.zeros(size, dtype=bool)
        exists = np.zeros(size, dtype=bool)
        for name, number in names.items():
            exists[number] = True
            continues[number] = not begins_word(name)
        if not chosen.whole_vocabulary:
            exists &= ~never
            if tokenizer.unk_id is not None:
                exists[tokenizer.unk_id] = False
        drawn = np.flatnonzero(exists).astype(np.int32)
        return cls(unit, chosen, rate, most, tokenizer.mask_id, never, continues, drawn, weights)


_MARKS = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_UNSPACED = re.compile(f"[{UNSPACED}]")


def _begins_unigram(piece: str) -> bool:
    """Not only what stands behind a blank: marks are words, and so is a piece with a digit or a
    letter of a script without blanks (google-research/albert, whose rule knows English only).
    """
    if piece[:1] in ("▁", "<") or piece in _MARKS:
        return True
    return not all(
        mark in _MARKS or (unicodedata.category(mark)[0] in "LM" and not _UNSPACED.match(mark))
        for mark in piece
    )


_BEGINS_WORD: dict[str, Callable[[str], bool]] = {
    "wordpiece": lambda piece: not piece.startswith("##"),
    "bytebpe": lambda piece: piece.startswith("Ġ"),
    "unigram": _begins_unigram,
    "words": lambda piece: True,
}

# What the draws of a row are for; each has a stream of its own.
_ORDER, _COUNT, _LENGTH, _COIN, _WORD = range(5)


class Rows(NamedTuple):
    """R rows of T tokens, end to end.

    Attributes:
        ids: int32 (T,), special tokens included.
        starts: int64 (R + 1,), where the rows begin; the last is T.
        keys: uint64 (R,), from `draws.keys_of`.
        fresh: bool (T,), tokens that begin a word whatever their id; None where only ids count.
    """

    ids: np.ndarray
    starts: np.ndarray
    keys: np.ndarray
    fresh: np.ndarray | None = None


class _Places(NamedTuple):
    """Every token's row and position in it, and whether it may be masked; all (T,)."""

    row: np.ndarray
    position: np.ndarray
    free: np.ndarray


def mask(rows: Rows, masker: Masker) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Mask R rows.

    Returns:
        The ids with the masks in them, int32 (T,), and for each row the positions within the row
        and the ids that were there, int64 (K,) each, sorted by position.
    """
    ids, starts, keys, _ = rows
    lengths = np.diff(starts)
    row = np.repeat(np.arange(len(lengths)), lengths)
    places = _Places(row, np.arange(len(ids)) - starts[row], ~masker.never[ids])
    counts = _counts(lengths, keys, masker)
    if masker.style.each:
        at = _each(rows, places, masker)
        coins = uniform(keys[row[at]], _COIN, places.position[at])
    elif masker.unit != "token":
        at, coins = _units(rows, places, counts, masker)
    elif masker.style.replacement:
        at, coins = _with_replacement(rows, places, counts)
    else:
        at = _without_replacement(rows, places, counts, masker.weights)
        coins = uniform(keys[row[at]], _COIN, places.position[at])
    masked = ids.copy()
    chance = uniform(keys[row[at]], _WORD, places.position[at])
    drawn = masker.drawn[(chance * len(masker.drawn)).astype(np.int64)]
    style = masker.style
    unmasked = np.where(coins < style.masked + style.kept, ids[at], drawn)
    masked[at] = np.where(coins < style.masked, masker.mask_id, unmasked)
    cuts = np.searchsorted(at, starts).tolist()
    positions, labels = places.position[at], ids[at].astype(np.int64)
    return masked, [(positions[a:b], labels[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]


def _counts(lengths: np.ndarray, keys: np.ndarray, masker: Masker) -> np.ndarray:
    share = masker.rate * lengths
    if masker.style.rounded:
        counts = np.maximum(1, np.rint(share))  # half to even, as Python's round
    else:
        counts = np.floor(share + uniform(keys, _COUNT, np.zeros(1)))
    if masker.most is not None:
        counts = np.minimum(masker.most, counts)
    return counts.astype(np.int64)


def _without_replacement(
    rows: Rows, places: _Places, counts: np.ndarray, weights: np.ndarray | None
) -> np.ndarray:
    free = np.flatnonzero(places.free)
    row = places.row[free]
    if weights is None:
        order = shuffled(rows.keys[row], _ORDER, places.position[free], row)
    else:
        # The first of exponential times with these rates: draws without replacement by weight.
        chance = uniform(rows.keys[row], _ORDER, places.position[free])
        order = np.lexsort((-np.log1p(-chance) / weights[rows.ids[free]], row))
    firsts = np.searchsorted(row, np.arange(len(counts)))
    return np.sort(free[order[np.arange(len(free)) - firsts[row] < counts[row]]])


def _each(rows: Rows, places: _Places, masker: Masker) -> np.ndarray:
    """Every token, or every word by its first token, has the chance of `rate`."""
    chance = uniform(rows.keys[places.row], _ORDER, places.position)
    if masker.unit == "word":
        begins = _word_begins(rows, places, masker)
        chance = chance[np.flatnonzero(begins)[np.maximum(np.cumsum(begins) - 1, 0)]]
    return np.flatnonzero(places.free & (chance < masker.rate))


def _with_replacement(
    rows: Rows, places: _Places, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A place that is drawn again becomes a mask token if any of its draws says so."""
    free = np.flatnonzero(places.free)
    firsts = np.searchsorted(places.row[free], np.arange(len(counts) + 1))
    counts = np.where(np.diff(firsts) > 0, counts, 0)
    row = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    chance = uniform(rows.keys[row], _ORDER, number)
    at = free[firsts[row] + (chance * np.diff(firsts)[row]).astype(np.int64)]
    coins = uniform(rows.keys[row], _COIN, number)
    order = np.lexsort((coins, at))
    found, first = np.unique(at[order], return_index=True)
    return found, coins[order][first]


def _units(
    rows: Rows, places: _Places, counts: np.ndarray, masker: Masker
) -> tuple[np.ndarray, np.ndarray]:
    """Places of words, n-grams or spans, and the draws that decide what stands there."""
    begins = _word_begins(rows, places, masker)
    words = np.flatnonzero(begins)
    tokens = np.flatnonzero(places.free)
    word_of = np.cumsum(begins)[tokens] - 1
    row, position = places.row[words], places.position[words]
    sizes = np.bincount(word_of, minlength=len(words))
    chances = uniform(rows.keys[row], _LENGTH, position)
    # A span is drawn by one of its tokens, all else by its word.
    turns = tokens if masker.unit == "span" else words
    turn_row = places.row[turns]
    order = shuffled(rows.keys[turn_row], _ORDER, places.position[turns], turn_row)
    if masker.unit == "span":
        order = word_of[order]
    breaks = ~places.free[words - 1] | (places.position[words] == 0)
    choices: list[tuple[int, int]] = []
    turn_bounds = _bounds(turn_row, counts)
    for r, (a, b) in enumerate(_bounds(row, counts)):
        turn = (order[slice(*turn_bounds[r])] - a).tolist()
        wanted, size = int(counts[r]), sizes[a:b].tolist()
        if masker.unit == "word":
            chosen = choose_words(size, turn, wanted)
        elif masker.unit == "ngram":
            chosen = choose_ngrams(size, turn, wanted, chances[a:b].tolist())
        else:
            chosen = choose_spans(size, breaks[a:b].tolist(), turn, wanted, chances[a:b].tolist())
        choices += [(a + first, a + behind) for first, behind in chosen]
    head = np.full(len(words), -1)
    for first, behind in choices:
        head[first:behind] = first
    picked = head[word_of] >= 0
    at = tokens[picked]
    if masker.unit == "span":
        return at, uniform(rows.keys[places.row[at]], _COIN, position[head[word_of[picked]]])
    return at, uniform(rows.keys[places.row[at]], _COIN, places.position[at])


def _word_begins(rows: Rows, places: _Places, masker: Masker) -> np.ndarray:
    """Bool (T,): where a word begins; behind a special token that is so whatever the id says."""
    free = places.free
    begins = free & (~masker.continues[rows.ids] | (places.position == 0))
    begins[1:] |= free[1:] & ~free[:-1]
    if rows.fresh is not None:
        begins |= free & rows.fresh
    return np.asarray(begins)


def _bounds(row: np.ndarray, counts: np.ndarray) -> list[tuple[int, int]]:
    """Where each row's things begin and end in a list that is sorted by row."""
    firsts = np.searchsorted(row, np.arange(len(counts) + 1)).tolist()
    return list(zip(firsts, firsts[1:], strict=False))
