"""What a text becomes, and how tokens and special tokens are put together and cut."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from filbert.errors import FormatError
from filbert.text.spiece import damage_named


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """One text or pair as tokens; n of them, special tokens included.

    Attributes:
        input_ids: int32 (n,).
        token_type_ids: uint8 (n,).
        num_tokens: tokens before cutting, specials included.
        offsets: int32 (n, 2), characters [start, end) in the text the user gave (a pair's second
            text for its own tokens); (0, 0) for specials that were added.
        words: int32 (n,), the word's number within its text, -1 for added specials. A word is what
            the vocabulary's own splitting step makes: for WordPiece a run between whitespace and
            punctuation, each punctuation mark and Chinese character being a word of its own.
        sequence: int8 (n,), 0 first text, 1 second text, -1 added special.
        start: for a window, the number of its first token within the long text.

    offsets, words and sequence are None unless they were asked for.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    num_tokens: int
    offsets: np.ndarray | None = None
    words: np.ndarray | None = None
    sequence: np.ndarray | None = None
    start: int = 0

    @property
    def truncated(self) -> bool:
        """Whether tokens were cut off."""
        return self.num_tokens > len(self.input_ids)

    def _text(self) -> tuple[int, int]:
        """Rows [low, high) of the first text."""
        assert self.sequence is not None
        inside = np.flatnonzero(self.sequence == 0)
        return int(inside[0]), int(inside[-1]) + 1

    def room(self, max_length: int) -> int:
        """Tokens of the text that stay beside the specials where `max_length` are read."""
        low, high = self._text()
        return max_length - (len(self.input_ids) - (high - low))

    def around(self, row: int, max_length: int) -> np.ndarray:
        """Rows that stay, int64 (max_length,): the specials, and the text around one of its rows.

        Args:
            row: in the middle of what stays, as far as the text reaches.
            max_length: fewer than there are.
        """
        (low, high), room = self._text(), self.room(max_length)
        begin = min(max(row - room // 2, low), high - room)
        kept: np.ndarray = np.r_[0:low, begin : begin + room, high : len(self.input_ids)]
        return kept


@dataclass(frozen=True, slots=True)
class Template:
    """The specials before, between and after one text or two: ids and token types."""

    specials: tuple[tuple[int, ...], ...]
    special_types: tuple[tuple[int, ...], ...]
    types: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many specials there are."""
        return sum(map(len, self.specials))

    @property
    def largest_type(self) -> int:
        """The largest token type, of texts and specials."""
        return max([*self.types, *chain.from_iterable(self.special_types)])

    def one_type(self) -> Template:
        """The same with token type 0 everywhere."""
        zeros = tuple((0,) * len(some) for some in self.special_types)
        return Template(self.specials, zeros, (0,) * len(self.types))


# What fits into an Encoding's arrays.
LARGEST_TYPE = 2**8 - 1
LARGEST_ID = 2**31 - 1


def learn_template(backend: Any, *, pair: bool) -> Template:
    """See what the vocabulary's own post-processor puts around a text, or around two."""
    for probe in ("a", "the", "1", ".", "一", *sorted(backend.get_vocab())[:50]):
        with damage_named("The tokenizer's files"):
            whole = backend.encode(probe, probe if pair else None)
        found = [s for s in whole.sequence_ids if s is not None]
        if found == sorted(found) and set(found) == ({0, 1} if pair else {0}):
            break
    else:
        raise FormatError(
            "This tokenizer makes no token from any probe text, or puts pairs in reverse."
        )
    count = 2 if pair else 1
    specials: list[list[int]] = [[] for _ in range(count + 1)]
    special_types: list[list[int]] = [[] for _ in range(count + 1)]
    types = [0] * count
    gap = 0
    for number, kind, side in zip(whole.ids, whole.type_ids, whole.sequence_ids, strict=True):
        if side is None:
            specials[gap].append(number)
            special_types[gap].append(kind)
        else:
            gap = side + 1
            types[side] = kind
    if max(whole.type_ids) > LARGEST_TYPE or max(whole.ids) > LARGEST_ID:
        raise FormatError(
            f"This tokenizer uses token type {max(whole.type_ids)} and id {max(whole.ids)}; "
            f"the largest possible are {LARGEST_TYPE} and {LARGEST_ID}."
        )
    return Template(tuple(map(tuple, specials)), tuple(map(tuple, special_types)), tuple(types))


class Part:
    """One text's tokens without specials, as the library made them; arrays are made once."""

    @classmethod
    def of_ids(cls, numbers: list[int]) -> Part:
        """Tokens that stand for no characters."""
        part = cls.__new__(cls)
        part.ids = numbers
        part.offsets = np.zeros((len(numbers), 2), dtype=np.int32)
        part.words = np.full(len(numbers), -1, dtype=np.int32)
        return part

    def __init__(self, found: Any, with_offsets: bool) -> None:
        self.ids: list[int] = found.ids
        self.offsets: np.ndarray = np.zeros((0, 2), dtype=np.int32)
        self.words: np.ndarray = np.zeros(0, dtype=np.int32)
        if with_offsets:
            flat = chain.from_iterable(found.offsets)
            count = len(self.ids)
            self.offsets = np.fromiter(flat, np.int32, 2 * count).reshape(count, 2)
            self.words = np.array([-1 if w is None else w for w in found.word_ids], dtype=np.int32)


def join(
    template: Template,
    parts: list[tuple[Part, int, int]],
    *,
    num_tokens: int,
    with_offsets: bool,
    start: int = 0,
) -> Encoding:
    """Put the specials around tokens [begin, end) of each part."""
    row: list[int] = [*template.specials[0]]
    types: list[int] = [*template.special_types[0]]
    places: list[int] = []
    for index, (part, begin, end) in enumerate(parts):
        places.append(len(row))
        row += part.ids[begin:end]
        row += template.specials[index + 1]
        types += [template.types[index]] * (end - begin)
        types += template.special_types[index + 1]
    input_ids = np.array(row, dtype=np.int32)
    token_types = np.array(types, dtype=np.uint8)
    if not with_offsets:
        return Encoding(input_ids, token_types, num_tokens, start=start)
    offsets = np.zeros((len(row), 2), dtype=np.int32)
    words = np.full(len(row), -1, dtype=np.int32)
    sequence = np.full(len(row), -1, dtype=np.int8)
    for index, (part, begin, end) in enumerate(parts):
        there = slice(places[index], places[index] + end - begin)
        offsets[there] = part.offsets[begin:end]
        words[there] = part.words[begin:end]
        sequence[there] = index
    return Encoding(input_ids, token_types, num_tokens, offsets, words, sequence, start)


def cut(lengths: list[int], room: int) -> list[int]:
    """How many tokens of each side stay, `room` in all."""
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    second = min(second, max(room - first, room // 2))
    return [room - second, second]
