"""Texts to ids and back: pairs, counted truncation, windows, offsets.

The `tokenizers` library splits texts into tokens. Special tokens are added and tokens removed here,
so that every truncation is counted. Special tokens written out in a text ("[MASK]", "[SEP]") are
matched as those tokens, as in Hugging Face's libraries; `fill` needs that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from filbert.errors import ConfigError, FormatError, InputError
from filbert.text.saving import fingerprint, save_vocabulary
from filbert.text.vocabulary import (
    LARGEST_ID,
    NO_CONVENTION,
    SURROGATE,
    Convention,
    Vocabulary,
    damage_named,
    lowercases,
    read_vocabulary,
)

# A character of a script without spaces: Thai and Lao, Myanmar, Khmer, kana, Han.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)


# Encodings


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """One text or pair as n tokens, special tokens included.

    Attributes:
        input_ids: int32 (n,).
        token_type_ids: uint8 (n,).
        num_tokens: Tokens before truncation, special ones included.
        offsets: int32 (n, 2), characters [start, end) in the user's text (in the second text of a
            pair for its tokens); (0, 0) for added special tokens.
        words: int32 (n,), number of the word within its text, -1 for added special tokens. Words
            are those of the vocabulary's pre-tokenizer: for WordPiece runs between whitespace and
            punctuation; each punctuation mark and Chinese character is a word.
        sequence: int8 (n,), 0 first text, 1 second text, -1 added special token.
        start: For a window, the number of its first token within the long text.

    offsets, words and sequence are None unless requested.
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
        """Whether tokens were removed at the end."""
        return self.num_tokens > len(self.input_ids)

    def text_rows(self) -> tuple[int, int]:
        """Return the rows [low, high) of the first text."""
        assert self.sequence is not None
        inside = np.flatnonzero(self.sequence == 0)
        return int(inside[0]), int(inside[-1]) + 1

    def max_text_tokens(self, max_length: int) -> int:
        """Return how many tokens of the text fit into `max_length` with the special ones."""
        low, high = self.text_rows()
        return max_length - (len(self.input_ids) - (high - low))

    def around(self, row: int, max_length: int) -> np.ndarray:
        """Return rows to keep, int64 (max_length,): special tokens, and the text around a row.

        Args:
            row: The middle of the text to keep, as far as its ends allow.
            max_length: Fewer than the tokens.
        """
        (low, high), size = self.text_rows(), self.max_text_tokens(max_length)
        begin = min(max(row - size // 2, low), high - size)
        rows: np.ndarray = np.r_[0:low, begin : begin + size, high : len(self.input_ids)]
        return rows


@dataclass(frozen=True, slots=True)
class Template:
    """The special tokens before, between and after one text or two: ids and token types."""

    specials: tuple[tuple[int, ...], ...]
    special_types: tuple[tuple[int, ...], ...]
    types: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of special tokens."""
        return sum(map(len, self.specials))

    @property
    def largest_type(self) -> int:
        """The largest token type, of texts and special tokens."""
        return max([*self.types, *chain.from_iterable(self.special_types)])

    def one_type(self) -> Template:
        """Return the same with token type 0 everywhere."""
        zeros = tuple((0,) * len(some) for some in self.special_types)
        return Template(self.specials, zeros, (0,) * len(self.types))


# What fits into an Encoding's arrays.
LARGEST_TYPE = 2**8 - 1


def learn_template(backend: Any, *, pair: bool) -> Template:
    """Return the special tokens that the vocabulary's post-processor adds to one text or two."""
    count = 2 if pair else 1
    for probe in ("a", "the", "1", ".", "一", *sorted(backend.get_vocab())[:50]):
        with damage_named("The tokenizer's files"):
            whole = backend.encode(probe, probe if pair else None)
        sides = [side for side in whole.sequence_ids if side is not None]
        if sides == sorted(sides) and set(sides) == set(range(count)):
            break
    else:
        raise FormatError(
            "This tokenizer makes no token from any probe text, or puts pairs in reverse."
        )
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


class Part(NamedTuple):
    """One text's tokens without special ones; arrays as those of `Encoding`."""

    ids: list[int]
    offsets: np.ndarray | None = None
    words: np.ndarray | None = None


def _part_with_offsets(encoded: Any) -> Part:
    """Return the tokens of a text as the library encoded it."""
    count = len(encoded.ids)
    flat = chain.from_iterable(encoded.offsets)
    words = [-1 if word is None else word for word in encoded.word_ids]
    offsets = np.fromiter(flat, np.int32, 2 * count).reshape(count, 2)
    return Part(encoded.ids, offsets, np.array(words, dtype=np.int32))


def join(
    template: Template,
    parts: list[tuple[Part, int, int]],
    *,
    num_tokens: int,
    with_offsets: bool,
    start: int = 0,
) -> Encoding:
    """Put the special tokens around tokens [begin, end) of each part."""
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
        sequence[there] = index
        if part.offsets is not None and part.words is not None:
            offsets[there] = part.offsets[begin:end]
            words[there] = part.words[begin:end]
    return Encoding(input_ids, token_types, num_tokens, offsets, words, sequence, start)


def cut(lengths: list[int], limit: int) -> list[int]:
    """Return how many tokens of each side to keep, `limit` in all."""
    if len(lengths) == 1:
        return [limit]
    first, second = lengths
    second = min(second, max(limit - first, limit // 2))
    return [limit - second, second]


def without_halves(text: str) -> str:
    """Return the text with U+FFFD in place of each lone surrogate; offsets stay the same."""
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)


def tokenised(backend: Any, texts: list[str], *, with_offsets: bool = False) -> list[Any]:
    """Return what the library makes of texts, without special tokens.

    A lone surrogate, which it refuses, is read as U+FFFD.
    """
    run = backend.encode_batch if with_offsets else backend.encode_batch_fast
    with damage_named("The tokenizer's files"):
        try:
            return list(run(texts, add_special_tokens=False))
        except TypeError:
            return list(run([without_halves(text) for text in texts], add_special_tokens=False))


# The tokenizer

# Texts are passed to the library in chunks of this size, so that memory stays bounded.
CHUNK_TEXTS = 2048
CHUNK_CHARACTERS = 2**21

# Word tables are often padded to a multiple of 64 or 128 rows; more than this is no padding.
USUAL_PADDING = 256

Text = str | tuple[str, str]
T = TypeVar("T")


class Tokenizer:
    """Encodes texts with a vocabulary; `load` creates it.

    Attributes:
        vocabulary: As it was read.
        kind: "wordpiece", "bytebpe", "unigram" or "symbols".
        vocab_size: One more than the largest id.
        max_length: The limit in the folder's files, in tokens with special ones, or None.
        lowercase: Whether text is lower-cased.
        cls_id, sep_id, mask_id, pad_id, unk_id: None where the vocabulary has no such token.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.backend = vocabulary.backend
        self.specials = vocabulary.specials
        self.max_length = vocabulary.max_length
        self.kind = vocabulary.kind
        self.lowercase: bool | None = lowercases(self.backend)
        self.vocab_size = vocabulary.size
        self.cls_id, self.sep_id, self.mask_id, self.pad_id, self.unk_id = (
            vocabulary.id_of(role) for role in ("cls", "sep", "mask", "pad", "unk")
        )
        self._single = learn_template(self.backend, pair=False)
        self._pair = learn_template(self.backend, pair=True)
        self._filler = self.pad_id if self.unk_id is None else self.unk_id

    @classmethod
    def load(
        cls, folder: str | Path, *, as_google: bool = False, convention: Convention = NO_CONVENTION
    ) -> Tokenizer:
        """Read the tokenizer of a folder; see `read_vocabulary` for layouts and errors."""
        return cls(read_vocabulary(Path(folder), as_google=as_google, convention=convention))

    def add_no_specials(self, filler: int) -> None:
        """Add no special tokens from now on; a text without tokens becomes the token `filler`."""
        self._single = Template(((),) * 2, ((),) * 2, (0,))
        self._pair = Template(((),) * 3, ((),) * 3, (0, 0))
        self._filler = filler

    @functools.cached_property
    def fingerprint(self) -> str:
        """Return the SHA-256 of everything that decides which ids a text becomes."""
        return fingerprint(self.backend)

    def check_fits(self, vocab_size: int, type_vocab_size: int, where: Path) -> tuple[str, ...]:
        """Return warnings about a model; one without a row for an id or type is a FormatError.

        So is a vocabulary that has no token for an empty text. For a model with less than two token
        types, all types become 0, as in Hugging Face's library, whose tokenizers for such models
        write no types.

        Args:
            vocab_size: Rows of the model's word table.
            type_vocab_size: Rows of its token type table; 0 for none.
        """
        specials = chain.from_iterable((*self._single.specials, *self._pair.specials))
        largest = max([self.vocab_size - 1, *specials])
        if largest >= vocab_size:
            raise FormatError(
                f"{where}: the tokenizer uses the id {largest}, the word table has {vocab_size} "
                "rows. They belong to different models; fetch both from one."
            )
        kind = max(self._single.largest_type, self._pair.largest_type)
        if type_vocab_size < 2:
            self._single, self._pair = self._single.one_type(), self._pair.one_type()
        elif kind >= type_vocab_size:
            raise FormatError(
                f"{where}: the tokenizer uses token type {kind}, the model has {type_vocab_size} "
                "types. They belong to different models."
            )
        if self._filler is None and not (self._single.size and self._pair.size):
            raise FormatError(
                f"{where}: the tokenizer adds no special token and has none for unknown words, so "
                "an empty text would be no token at all."
            )
        if vocab_size - self.vocab_size <= USUAL_PADDING:
            return ()
        return (
            f"{where}: the word table has {vocab_size} rows, the tokenizer only {self.vocab_size} "
            "entries; do they belong together?",
        )

    def encode(
        self, texts: Sequence[Text], *, max_length: int | None = None, with_offsets: bool = False
    ) -> list[Encoding]:
        """Return the tokens of each text or pair, truncated to `max_length` with special tokens.

        A pair loses tokens at the end of the longer side; at equal length the second loses first.
        Source: google-research/bert, run_classifier.py, _truncate_seq_pair. (Hugging Face's library
        gives an odd last place to the second text; the counts are the same.)

        Where the vocabulary adds no special tokens, a text without tokens becomes one unknown
        token (or one padding token), since no model can read an empty sequence.

        Raises:
            ConfigError: `max_length` is too small for the special tokens.
        """
        self._check_max_length(texts, max_length)
        done: list[Encoding] = []
        for parts in self._run(texts, with_offsets):
            template = self._single if len(parts) == 1 else self._pair
            lengths = [len(part.ids) for part in parts]
            total = sum(lengths) + template.size
            if max_length is not None and total > max_length:
                lengths = cut(lengths, max_length - template.size)
            ranges = [(part, 0, length) for part, length in zip(parts, lengths, strict=True)]
            done.append(join(template, ranges, num_tokens=total, with_offsets=with_offsets))
        return done

    def encode_ids(self, ids: Sequence[int], *, max_length: int | None = None) -> Encoding:
        """Return token ids between the special tokens, truncated to `max_length` tokens.

        Ids that already begin and end with these special tokens get no others. No id at all, and
        one that is not in the vocabulary, is an InputError.
        """
        self._check_max_length([""], max_length)
        self.tokens(ids)
        before, after = self._single.specials
        inner, end = tuple(ids), len(ids) - len(after)
        if inner[: len(before)] == before and inner[end:] == after:
            inner = inner[len(before) : end]
        total = len(inner) + self._single.size
        if not total:
            raise InputError("A list of token ids is empty; give at least one.")
        length = total if max_length is None else min(total, max_length)
        part = (Part(list(inner)), 0, length - self._single.size)
        return join(self._single, [part], num_tokens=total, with_offsets=False)

    def windows(
        self,
        texts: Sequence[Text],
        *,
        max_length: int,
        stride: int,
        max_first: int | None = None,
        place: Callable[[int], str] = "Text {}".format,
    ) -> list[list[Encoding]]:
        """Return each text as overlapping windows of at most `max_length` tokens, without loss.

        The second text of a pair is spread over the windows, and each window begins with the first
        text, truncated to `max_first` tokens. The next window starts min(length, `stride`) tokens
        later. An empty text has one window. Source: google-research/bert, run_squad.py, doc_spans.

        A window's `num_tokens` counts its own tokens and those removed from the first text.

        Raises:
            ConfigError: `max_length` is too small.
            InputError: A first text leaves no tokens for the second; `place` names the text.
        """
        assert stride >= 1, "a window that does not move would be read without end"
        self._check_max_length(texts, max_length)
        windows: list[list[Encoding]] = []
        for parts in self._run(texts, True):
            template = self._single if len(parts) == 1 else self._pair
            *first, last = parts
            head = len(first[0].ids) if first else 0
            num_first = head if max_first is None else min(max_first, head)
            limit, length = max_length - template.size - num_first, len(last.ids)
            if limit < 1 and length:
                raise InputError(
                    f"{place(len(windows))}: the first text fills the {max_length} tokens of "
                    "max_length. Shorten it, or raise max_length."
                )
            pieces: list[Encoding] = []
            start = end = 0
            while not pieces or end < length:
                start += min(end - start, stride)
                end = min(start + limit, length) if length else 0
                ranges = [*((part, 0, num_first) for part in first), (last, start, end)]
                size = template.size + head + end - start
                piece = join(template, ranges, num_tokens=size, with_offsets=True, start=start)
                pieces.append(piece)
            windows.append(pieces)
        return windows

    def tokens(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        """Return the vocabulary entry of each id, or raise an InputError for an unknown id."""
        tokens: list[str] = []
        for number in ids:
            inside = 0 <= number < self.vocab_size
            token = self.backend.id_to_token(int(number)) if inside else None
            if token is None:
                raise InputError(
                    f"Token id {number} is not among the {self.vocab_size} ids of the vocabulary."
                )
            tokens.append(token)
        return tokens

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of the ids, without special tokens."""
        return str(self.backend.decode([int(number) for number in ids], skip_special_tokens=True))

    def id_of(self, token: str) -> int | None:
        """Return the id of a vocabulary entry, exactly as written there, or None."""
        return self.backend.token_to_id(token)

    def save(
        self,
        folder: str | Path,
        *,
        max_length: int | None = None,
        token_type_ids: bool | None = None,
    ) -> None:
        """Write tokenizer.json, its JSON companions and the classic files of its kind.

        Those are vocab.txt (WordPiece), vocab.json and merges.txt (byte-level BPE) or a
        SentencePiece model (unigram), none for symbols; left out where they cannot hold the
        vocabulary. The class in tokenizer_config.json is the family's own where the classic files
        say everything, else the generic one, which reads tokenizer.json only.

        Args:
            max_length: The limit that is written if this tokenizer's own files named none.
            token_type_ids: Whether other tools pass token types to the model. None: if this
                tokenizer's pairs have any.
        """
        has_types = self.pair_has_types if token_type_ids is None else token_type_ids
        vocabulary = replace(self.vocabulary, max_length=self.max_length or max_length)
        save_vocabulary(vocabulary, folder, token_type_ids=has_types)

    def template(self, *, pair: bool) -> Template:
        """Return the special tokens around one text or two."""
        return self._pair if pair else self._single

    @property
    def pair_has_types(self) -> bool:
        """Whether the second text of a pair has another token type than the first."""
        return 1 in self._pair.types

    def _check_max_length(self, texts: Sequence[Text], max_length: int | None) -> None:
        if max_length is None:
            return
        pairs = any(not isinstance(text, str) for text in texts)
        least = (self._pair if pairs else self._single).size
        if max_length < max(1, least):
            raise ConfigError(
                f"max_length {max_length} is too short for the {least} special tokens. "
                f"Give at least {least + 1}."
            )

    def _run(self, texts: Sequence[Text], with_offsets: bool) -> Iterator[list[Part]]:
        """Yield the tokens without special ones: one part for a text, two for a pair."""
        for chunk in chunked(texts, characters_in, size=CHUNK_CHARACTERS):
            sides = [(text,) if isinstance(text, str) else text for text in chunk]
            flat = list(chain.from_iterable(sides))
            encoded = iter(tokenised(self.backend, flat, with_offsets=with_offsets))
            for own in sides:
                some = [next(encoded) for _ in own]
                parts = [_part_with_offsets(x) if with_offsets else Part(x.ids) for x in some]
                size = (self._single if len(own) == 1 else self._pair).size
                if self._filler is not None and not size and not any(part.ids for part in parts):
                    parts[-1] = Part([self._filler])
                yield parts


def chunked(
    items: Iterable[T],
    size_of: Callable[[T], int],
    *,
    count: int = CHUNK_TEXTS,
    size: int = CHUNK_CHARACTERS,
) -> Iterator[list[T]]:
    """Yield items in lists of at most `count` items, which end where their sizes reach `size`."""
    chunk: list[T] = []
    total = 0
    for item in items:
        chunk.append(item)
        total += size_of(item)
        if len(chunk) >= count or total >= size:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


def characters_in(text: Text) -> int:
    """Return the size of a text, or of both texts of a pair."""
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
