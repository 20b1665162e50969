"""How often each word stands in a text of any size, in bounded memory.

What does not fit is not truncated: a smaller share of the documents is drawn, the same in every
process, and counting begins again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from filbert.errors import ConfigError, InputError

# One in so many documents is kept back to measure the vocabulary on, up to so many bytes in all.
HELD_OUT_EVERY = 100
HELD_OUT_BYTES = 2**25

# Unsplit text waits in a table of its own until it holds so many entries or characters.
_WAITING = 2**16
_WAITING_CHARACTERS = 2**23

# Characters that are normalised and split, or tokenised, at a time: what libraries make of them
# takes hundreds of bytes each, and a line without spaces may have millions.
_STRETCH = 2**16

# A word of more symbols is counted as several. Nothing that people write is longer, and one line of
# four million letters must not take hours.
LONGEST_WORD = 256

_SMALLEST_SHARE = 2.0**-40
_SPACED = re.compile(r" *[^ ]+| +")

Documents = Callable[[], Iterable[Sequence[str]]]
Progress = Callable[[str, int], None]


def stretches(word: str) -> Iterator[str]:
    """A word in parts of at most 65,536 characters: itself, as words are that people write."""
    for start in range(0, max(len(word), 1), _STRETCH):
        yield word[start : start + _STRETCH]


def split_at_spaces(line: str) -> tuple[str, list[str]]:
    """A line's first word and its others without their space, cut at U+0020 only.

    No normaliser or splitter here looks across a space, so the parts may be treated one by one.
    Where spaces follow each other, the others keep all but the last of them.
    """
    if "  " not in line:
        first, *others = line.split(" ")
        return first, others
    first, *others = _SPACED.findall(line)
    return first, [other[1:] for other in others]


class WordCounter:
    """Counts words as one kind of vocabulary splits them.

    Args:
        normalizer: of the `tokenizers` library, or None.
        pre_tokenizer: of that library.
        spaced: whether a word's leading space belongs to it, as in byte-level BPE.
    """

    def __init__(self, normalizer: Any, pre_tokenizer: Any, *, spaced: bool) -> None:
        self._normalizer = normalizer
        self._pre_tokenizer = pre_tokenizer
        self._space = " " if spaced else ""
        self._firsts: Counter[str] = Counter()
        self._others: Counter[str] = Counter()
        self._characters = 0
        self.counts: dict[str, int] = {}
        self.num_characters = 0

    def add(self, lines: Sequence[str]) -> bool:
        """Count the words of some lines; whether `counts` has changed, which it does in leaps."""
        for line in lines:
            first, others = split_at_spaces(line)
            self._firsts[first] += 1
            self._others.update(others)
            self._characters += len(line)
        waiting = len(self._firsts) + len(self._others)
        if waiting < _WAITING and self._characters < _WAITING_CHARACTERS:
            return False
        self.settle()
        return True

    def settle(self) -> None:
        """Bring everything that was added into `counts`."""
        for waiting, space in ((self._firsts, ""), (self._others, self._space)):
            for text, count in waiting.items():
                self._count(space + text, count)
            waiting.clear()
        self._characters = 0

    def _count(self, text: str, count: int) -> None:
        counts = self.counts
        for stretch in stretches(text):
            if self._normalizer is not None:
                stretch = self._normalizer.normalize_str(stretch)
            for word, _ in self._pre_tokenizer.pre_tokenize_str(stretch):
                for start in range(0, len(word), LONGEST_WORD):
                    part = word[start : start + LONGEST_WORD]
                    if part in counts:
                        counts[part] += count
                    else:
                        counts[part] = count
                        self.num_characters += len(part)


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of a text was counted.

    Attributes:
        rate: the share of documents that was asked for; 1.0 for all.
        num_documents, num_bytes: in the whole text. Bytes are UTF-8, with a line break per line.
        used_documents, used_bytes: counted for training.
        held_out_documents, held_out_bytes: kept back.
    """

    rate: float
    num_documents: int
    num_bytes: int
    used_documents: int
    used_bytes: int
    held_out_documents: int
    held_out_bytes: int


def draw(seed: int, purpose: str, number: int) -> float:
    """A number in [0, 1) that depends on nothing but the arguments."""
    digest = blake2b(f"{seed}/{purpose}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2.0**64


def count_words(
    documents: Documents,
    new_counter: Callable[[], WordCounter],
    *,
    fits: Callable[[int, int], bool],
    seed: int,
    withhold: bool,
    progress: Progress,
) -> tuple[WordCounter, list[int], Share]:
    """Count the words of a text, or of the largest sample whose words fit.

    Document n is in a sample of rate r when `draw(seed, "sample", n) < r`; r is halved until the
    words fit.

    Args:
        documents: gives the text's documents anew at each call, each as its lines.
        new_counter: gives an empty counter.
        fits: whether so many different words with so many characters in all can be trained on.
        seed: of the sample and of what is withheld.
        withhold: keep one document in HELD_OUT_EVERY back, and at least one of two.
        progress: is told what is going on and how many bytes have been read since the last call.

    Returns:
        The counter, the numbers of the documents that were kept back, and what was counted.

    Raises:
        InputError: there is no text.
        ConfigError: no document fits.
    """
    rate = 1.0
    held_out: set[int] | None = None
    while True:
        found = _count_once(documents, new_counter, fits, seed, rate, withhold, held_out, progress)
        if found is None:
            rate /= 2
            if rate < _SMALLEST_SHARE:
                raise ConfigError(_TOO_SMALL)
            continue
        counter, kept, share, lowest = found
        if not share.num_documents:
            raise InputError("The corpus holds no text. Name files with at least one line.")
        if withhold and not kept and share.num_documents > 1 and held_out is None:
            held_out = {lowest}
            continue
        if not share.used_documents:
            if rate == 1.0:
                raise InputError("The corpus holds no text. Name files with at least one line.")
            raise ConfigError(_TOO_SMALL)
        return counter, kept, share


_TOO_SMALL = (
    "--max-memory is too small for this corpus: not even one document fits. "
    "Raise it, or put blank lines between shorter documents."
)


def _count_once(
    documents: Documents,
    new_counter: Callable[[], WordCounter],
    fits: Callable[[int, int], bool],
    seed: int,
    rate: float,
    withhold: bool,
    held_out: set[int] | None,
    progress: Progress,
) -> tuple[WordCounter, list[int], Share, int] | None:
    """One pass over the text; None as soon as the words do not fit."""
    counter = new_counter()
    kept: list[int] = []
    used = num_bytes = used_bytes = held_out_bytes = 0
    number, lowest, lowest_draw = -1, 0, 2.0
    for number, lines in enumerate(documents()):
        size = sum(map(_bytes_of, lines))
        num_bytes += size
        progress("counting words" if rate == 1.0 else f"counting words, 1/{1 / rate:.0f}", size)
        if withhold and held_out_bytes < HELD_OUT_BYTES:
            lot = draw(seed, "held-out", number)
            if lot < lowest_draw:
                lowest, lowest_draw = number, lot
            if lot < 1 / HELD_OUT_EVERY if held_out is None else number in held_out:
                kept.append(number)
                held_out_bytes += size
                continue
        if rate < 1.0 and draw(seed, "sample", number) >= rate:
            continue
        used += 1
        used_bytes += size
        if counter.add(lines) and not fits(len(counter.counts), counter.num_characters):
            return None
    counter.settle()
    if not fits(len(counter.counts), counter.num_characters):
        return None
    share = Share(rate, number + 1, num_bytes, used, used_bytes, len(kept), held_out_bytes)
    return counter, kept, share, lowest


def _bytes_of(line: str) -> int:
    return 1 + (len(line) if line.isascii() else len(line.encode("utf-8", "replace")))


def chosen(documents: Iterable[Sequence[str]], numbers: Sequence[int]) -> Iterator[Sequence[str]]:
    """The documents with these numbers."""
    wanted = set(numbers)
    return (lines for number, lines in enumerate(documents) if number in wanted)
