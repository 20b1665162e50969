"""Which tokens of a row are to be guessed, and what stands in their place.

Every decision is a hash of (seed, version, row, position): equal however rows are grouped, in
whatever order they are asked for. R rows of T tokens lie end to end.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from filbert.data.draws import shuffled, uniform
from filbert.data.units import choose_ngrams, choose_spans, choose_words
from filbert.errors import ConfigError
from filbert.text.scripts import UNSPACED
from filbert.text.tokenizer import Tokenizer

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
