"""Learn a vocabulary: WordPiece like BERT, byte-level BPE like RoBERTa, unigram like ALBERT.

The same text and options give the same bytes in every process. This is why filbert has its own
trainers: those of the tokenizers library take no word counts, and two of its three wrote another
file in every process.
"""

from __future__ import annotations

import json
import re
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    normalizers,
    pre_tokenizers,
    processors,
)

from filbert.errors import ConfigError, InputError
from filbert.text.spiece import SentencePieceModel, build_unigram
from filbert.text.tokenizer import Tokenizer
from filbert.text.unigram import learn_pieces
from filbert.text.vocabulary import MAX_WORD_LENGTH, Vocabulary, find_specials

# Counting words

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


# WordPiece and BPE merges

_HALF = 32  # a pair of ids is one integer, first << _HALF | second, so that it sorts as the pair
_LOW = (1 << _HALF) - 1


def learn_merges(
    words: Sequence[tuple[list[int], int]],
    tokens: list[str],
    *,
    size: int,
    min_count: int,
    prefix: str = "",
    progress: Callable[[int], None] = lambda count: None,
) -> list[tuple[str, str]]:
    """Join the most frequent neighbours again and again; of equals, those with the smaller ids.

    Args:
        words: each word's symbols as ids into `tokens`, and its count. The lists are changed.
        tokens: the vocabulary so far; it grows up to `size` entries.
        size: where to stop.
        min_count: neighbours seen less often are not joined.
        prefix: marks a token that continues a word; a joined token carries it at most in front.
        progress: is told about each new token.

    Returns:
        The pairs in the order in which they were joined.

    Source: Sennrich et al. 2016, algorithm 1; ties as in the `tokenizers` library.
    """
    ids = {token: number for number, token in enumerate(tokens)}
    counts: dict[int, int] = {}
    where: dict[int, array[int]] = {}
    for index, (symbols, count) in enumerate(words):
        for pair in zip(symbols, symbols[1:], strict=False):
            key = pair[0] << _HALF | pair[1]
            if key in counts:
                counts[key] += count
                # A pair twice in a word: its place is known.
                if where[key][-1] != index:
                    where[key].append(index)
            else:
                counts[key] = count
                where[key] = array("I", (index,))
    queue = [(-count, key) for key, count in counts.items()]
    heapify(queue)
    merges: list[tuple[str, str]] = []
    while queue and len(tokens) < size:
        negative, key = heappop(queue)
        count = counts.get(key, 0)
        if count != -negative:
            # Its count has sunk since it was queued.
            if count > 0:
                heappush(queue, (-count, key))
            continue
        if count < max(1, min_count):
            break
        left, right = key >> _HALF, key & _LOW
        joined = tokens[left] + tokens[right].removeprefix(prefix)
        if joined not in ids:
            ids[joined] = len(tokens)
            tokens.append(joined)
            progress(1)
        merges.append((tokens[left], tokens[right]))
        raised: set[int] = set()
        for index in where.pop(key):
            symbols, count = words[index]
            _join(symbols, left, right, ids[joined], count, index, counts, where, raised)
        counts.pop(key, None)
        raised.discard(key)
        for pair_key in raised:
            if counts[pair_key] > 0:
                heappush(queue, (-counts[pair_key], pair_key))
    return merges


def _join(
    symbols: list[int],
    left: int,
    right: int,
    joined: int,
    count: int,
    index: int,
    counts: dict[int, int],
    where: dict[int, array[int]],
    raised: set[int],
) -> None:
    """Join left and right in one word, and keep the counts of its pairs right."""
    at = 0
    while True:
        try:
            at = symbols.index(left, at)
        except ValueError:
            return
        if at + 1 >= len(symbols):
            return
        if symbols[at + 1] != right:
            at += 1
            continue
        changed = []
        if at:
            before = symbols[at - 1] << _HALF
            counts[before | left] = counts.get(before | left, 0) - count
            changed.append(before | joined)
        if at + 2 < len(symbols):
            after = symbols[at + 2]
            gone = right << _HALF | after
            counts[gone] = counts.get(gone, 0) - count
            changed.append(joined << _HALF | after)
        for pair_key in changed:
            counts[pair_key] = counts.get(pair_key, 0) + count
            if pair_key in where:
                where[pair_key].append(index)
            else:
                where[pair_key] = array("I", (index,))
            raised.add(pair_key)
        symbols[at : at + 2] = [joined]
        at += 1


# How well a vocabulary fits

# How many of the words that are cut into most pieces are shown.
SHOWN = 10

# Words, and characters of words, that are tokenised at once: a line without spaces is one word.
_CHUNK, _CHUNK_CHARACTERS = 4096, 2**20


@dataclass(frozen=True, slots=True)
class LongWord:
    """A word that is cut into many pieces, and how often it stands in the text."""

    word: str
    num_pieces: int
    count: int


@dataclass(frozen=True, slots=True)
class Fit:
    """A word is what stands between spaces, punctuation included, for all kinds of vocabulary.

    Attributes:
        num_words: in the text.
        num_tokens: that it becomes, without added special tokens.
        num_bytes: of it, UTF-8, one per space and line break included.
        unknown_rate: share of words with an unknown token in them.
        pieces_per_word: tokens per word.
        tokens_per_byte: tokens per byte.
        used_share: share of the vocabulary that occurs in the text.
        longest: the words cut into most pieces, the worst first.
    """

    num_words: int
    num_tokens: int
    num_bytes: int
    unknown_rate: float
    pieces_per_word: float
    tokens_per_byte: float
    used_share: float
    longest: tuple[LongWord, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def held_out_text(
    documents: Iterable[Sequence[str]], *, max_bytes: int = HELD_OUT_BYTES
) -> Counter[tuple[str, bool]]:
    """A text's words with whether a space stands before them, counted; very long ones in parts.

    Reads documents until `max_bytes` are reached, so that memory stays bounded.
    """
    counts: Counter[tuple[str, bool]] = Counter()
    size = 0
    for lines in documents:
        for line in lines:
            first, others = split_at_spaces(line)
            for word, after in [(first, False), *((other, True) for other in others)]:
                begin, *more = stretches(word)
                counts[begin, after] += 1
                counts.update((part, False) for part in more)
            size += len(line.encode("utf-8", "replace")) + 1
        if size >= max_bytes:
            break
    return counts


def _chunks(
    text: Mapping[tuple[str, bool], int],
) -> Iterator[list[tuple[tuple[str, bool], int]]]:
    chunk: list[tuple[tuple[str, bool], int]] = []
    size = 0
    for item in text.items():
        if chunk and (len(chunk) == _CHUNK or size + len(item[0][0]) > _CHUNK_CHARACTERS):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += len(item[0][0])
    if chunk:
        yield chunk


def measure_fit(tokenizer: Tokenizer, text: Mapping[tuple[str, bool], int]) -> Fit:
    """Measure on the words of a text.

    Args:
        tokenizer: whose vocabulary to measure.
        text: as `held_out_text` gives it.
    """
    spaced = tokenizer.kind == "bytebpe"  # whose words begin with their space
    unknown = num_words = num_tokens = num_bytes = 0
    used: set[int] = set()
    pieces: Counter[tuple[str, int]] = Counter()
    for chunk in _chunks(text):
        texts = [" " + word if spaced and after else word for (word, after), _ in chunk]
        found = tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False)
        for ((word, _), count), encoding in zip(chunk, found, strict=True):
            ids = encoding.ids
            num_bytes += count * (len(word.encode("utf-8", "replace")) + 1)
            num_tokens += count * len(ids)
            used.update(ids)
            if not word.strip():
                continue
            num_words += count
            if tokenizer.unk_id in ids:
                unknown += count
            pieces[word.strip(), len(ids)] += count
    order = sorted(pieces.items(), key=lambda item: (-item[0][1], -item[1], item[0][0]))
    return Fit(
        num_words=num_words,
        num_tokens=num_tokens,
        num_bytes=num_bytes,
        unknown_rate=unknown / max(1, num_words),
        pieces_per_word=num_tokens / max(1, num_words),
        tokens_per_byte=num_tokens / max(1, num_bytes),
        used_share=len(used) / tokenizer.vocab_size,
        longest=tuple(LongWord(word, size, n) for (word, size), n in order[:SHOWN]),
    )


# Learning

KINDS = ("wordpiece", "bytebpe", "unigram")

# In the order of their ids, from 0. The mask of byte-level BPE comes behind everything else, as
# RoBERTa's does.
SPECIALS = {
    "wordpiece": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "bytebpe": ("<s>", "<pad>", "</s>", "<unk>"),
    "unigram": ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
}
_BYTE_MASK = "<mask>"


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """How a vocabulary is to be.

    Attributes:
        kind: one of KINDS.
        size: entries, special tokens included.
        cased: keep case and accents. Byte-level BPE always does.
        min_count: joined or kept is only what stands in the text so often; so are characters.
        max_alphabet: at most so many different characters, the most frequent ones.
        seed: of the sample and of what is withheld.
        max_memory: bytes that the whole process may need.
    """

    kind: str
    size: int
    cased: bool = False
    min_count: int = 2
    max_alphabet: int | None = None
    seed: int = 0
    max_memory: int = 2 * 2**30


@dataclass(frozen=True)
class Learned:
    """A vocabulary, what it was learnt from, and how well it fits.

    `num_words` counts different words, `num_word_uses` all; `alphabet` is its number of characters
    (of bytes for byte-level BPE). `fit` is None when there was no text to measure on.
    """

    tokenizer: Tokenizer
    share: Share
    num_words: int
    num_word_uses: int
    alphabet: int
    left_out_characters: int
    fit: Fit | None


# Peak bytes of a process that learns: at the start, per different word, and per character of those
# words. Measured, see docs/vocab.md.
_COSTS = {
    "wordpiece": (110 * 2**20, 720, 25),
    "bytebpe": (110 * 2**20, 720, 25),
    "unigram": (110 * 2**20, 300, 400),
}


def memory_needed(kind: str, num_words: int, num_characters: int) -> int:
    """Bytes that learning from so many different words takes at its peak, in the whole process."""
    start, per_word, per_character = _COSTS[kind]
    return start + per_word * num_words + per_character * num_characters


def learn(
    documents: Documents,
    options: LearnOptions,
    *,
    held_out: Documents | None = None,
    progress: Progress = lambda what, done: None,
) -> Learned:
    """Learn a vocabulary and measure how it fits.

    Args:
        documents: gives the text anew at each call, as documents of lines.
        options: what to learn.
        held_out: text to measure on; without it part of `documents` is kept back.
        progress: is told what is going on and how much has been done since the last call: bytes
            read, or entries learnt.

    Raises:
        InputError: there is no text, or the options ask for more entries than it can give room.
        ConfigError: an option is out of range, or no document fits into `max_memory`.
    """
    _check(options)
    kind = options.kind
    counter, kept, share = count_words(
        documents,
        lambda: new_counter(kind, cased=options.cased),
        fits=lambda words, characters: memory_needed(kind, words, characters) <= options.max_memory,
        seed=options.seed,
        withhold=held_out is None,
        progress=progress,
    )
    counts = counter.counts
    alphabet, left_out = _alphabet(counts, options)
    tokenizer = _LEARNERS[kind](counts, alphabet, options, progress)
    num_words, uses = len(counts), sum(counts.values())
    counts.clear()
    text: Counter[tuple[str, bool]] = Counter()
    progress("measuring the fit", 0)
    if held_out is not None:
        text = held_out_text(held_out())
    elif kept:
        text = held_out_text(chosen(documents(), kept))
    fit = measure_fit(tokenizer, text) if text else None
    if held_out is not None and fit is None:
        raise InputError("The held-out text is empty. Name a file with at least one line.")
    return Learned(tokenizer, share, num_words, uses, len(alphabet), left_out, fit)


def new_counter(kind: str, *, cased: bool) -> WordCounter:
    """Counts words as a vocabulary of this kind splits them."""
    if kind == "wordpiece":
        return WordCounter(
            normalizers.BertNormalizer(lowercase=not cased),
            pre_tokenizers.BertPreTokenizer(),
            spaced=False,
        )
    if kind == "bytebpe":
        return WordCounter(None, pre_tokenizers.ByteLevel(add_prefix_space=False), spaced=True)
    empty = build_unigram(
        SentencePieceModel((("<unk>", 0.0),), 0, b""), lowercase=not cased, keep_accents=cased
    )
    return WordCounter(empty.normalizer, empty.pre_tokenizer, spaced=False)


def _check(options: LearnOptions) -> None:
    if options.kind not in KINDS:
        raise ConfigError(f"--kind {options.kind} is not one of {', '.join(KINDS)}.")
    if options.min_count < 1:
        raise ConfigError(f"--min-count is {options.min_count}; it must be at least 1.")
    if options.max_alphabet is not None and options.max_alphabet < 1:
        raise ConfigError(f"--max-alphabet is {options.max_alphabet}; it must be at least 1.")
    least = memory_needed(options.kind, 1000, 10_000)
    if options.max_memory < least:
        raise ConfigError(
            f"--max-memory is {options.max_memory // 2**20} MiB; {options.kind} needs at least "
            f"{-(-least // 2**20)} MiB for itself."
        )


def _alphabet(counts: dict[str, int], options: LearnOptions) -> tuple[list[str], int]:
    """The characters that become entries, by code point, and how many others there are."""
    if options.kind == "bytebpe":
        return sorted(pre_tokenizers.ByteLevel.alphabet()), 0
    uses: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            uses[character] += count
    order = sorted(uses, key=lambda character: (-uses[character], character))
    kept = [character for character in order if uses[character] >= options.min_count]
    # A text so short that nothing stands in it twice still has letters.
    kept = (kept or order)[: options.max_alphabet]
    return sorted(kept), len(uses) - len(kept)


def _room(options: LearnOptions, needed: int, what: str) -> None:
    if options.size < needed:
        raise ConfigError(
            f"--size {options.size} is too small: {what} take {needed} entries. Raise --size"
            + (", --min-count or lower --max-alphabet." if options.kind != "bytebpe" else ".")
        )


def _learn_wordpiece(
    counts: dict[str, int], alphabet: list[str], options: LearnOptions, progress: Progress
) -> Tokenizer:
    inside = {character for word in counts for character in word[1:]}
    # Letters and digits seen only in front of words will be seen inside others.
    inside |= {c for c in alphabet if c.isdigit() or c.lower() != c.upper()}
    continuing = ["##" + character for character in alphabet if character in inside]
    tokens = [*SPECIALS["wordpiece"], *alphabet, *continuing]
    specials = len(SPECIALS["wordpiece"])
    _room(
        options,
        len(tokens),
        f"{specials} special tokens, {len(alphabet)} characters and the {len(continuing)} of them "
        "that continue words",
    )
    ids = {token: number for number, token in enumerate(tokens)}
    words = []
    for word in sorted(counts):
        symbols = [word[0], *("##" + character for character in word[1:])]
        if len(word) <= MAX_WORD_LENGTH and all(symbol in ids for symbol in symbols):
            words.append(([ids[symbol] for symbol in symbols], counts[word]))
    learn_merges(
        words,
        tokens,
        size=options.size,
        min_count=options.min_count,
        prefix="##",
        progress=lambda count: progress("learning entries", count),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8", newline="\n")
        return Tokenizer.load(folder, lowercase=not options.cased)


def _learn_bytebpe(
    counts: dict[str, int], alphabet: list[str], options: LearnOptions, progress: Progress
) -> Tokenizer:
    tokens = [*SPECIALS["bytebpe"], *alphabet]
    specials = len(SPECIALS["bytebpe"]) + 1
    _room(options, len(tokens) + 1, f"{specials} special tokens and 256 bytes")
    ids = {token: number for number, token in enumerate(tokens)}
    words = [([ids[symbol] for symbol in word], counts[word]) for word in sorted(counts)]
    merges = learn_merges(
        words,
        tokens,
        size=options.size - 1,
        min_count=options.min_count,
        progress=lambda count: progress("learning entries", count),
    )
    tokens.append(_BYTE_MASK)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        numbered = {token: number for number, token in enumerate(tokens)}
        (folder / "vocab.json").write_text(json.dumps(numbered), encoding="utf-8")
        lines = "".join(f"{left} {right}\n" for left, right in merges)
        (folder / "merges.txt").write_text("#version: 0.2\n" + lines, encoding="utf-8")
        return Tokenizer.load(folder)


def _learn_unigram(
    counts: dict[str, int], alphabet: list[str], options: LearnOptions, progress: Progress
) -> Tokenizer:
    specials = SPECIALS["unigram"]
    _room(
        options,
        len(specials) + len(alphabet),
        f"{len(specials)} special tokens and {len(alphabet)} characters",
    )
    pieces = learn_pieces(
        counts,
        alphabet,
        size=options.size - len(specials),
        min_count=options.min_count,
        progress=lambda left: progress(f"choosing pieces, {left:,} left", 0),
    )
    known = set(specials)
    entries = [*((name, 0.0) for name in specials), *(p for p in pieces if p[0] not in known)]
    model = SentencePieceModel(tuple(entries), specials.index("<unk>"), b"")
    backend = build_unigram(model, lowercase=not options.cased, keep_accents=options.cased)
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in specials])
    names = find_specials(known.__contains__, {})
    ids = {name: number for number, name in enumerate(specials)}
    cls, sep = names["cls"], names["sep"]
    backend.post_processor = processors.TemplateProcessing(
        single=[f"{cls}:0", "$A:0", f"{sep}:0"],
        pair=[f"{cls}:0", "$A:0", f"{sep}:0", "$B:1", f"{sep}:1"],
        special_tokens=[(cls, ids[cls]), (sep, ids[sep])],
    )
    return Tokenizer(Vocabulary(backend, names, None, {"keep_accents": options.cased}))


_LEARNERS: dict[str, Callable[[dict[str, int], list[str], LearnOptions, Progress], Tokenizer]] = {
    "wordpiece": _learn_wordpiece,
    "bytebpe": _learn_bytebpe,
    "unigram": _learn_unigram,
}


def report_of(learned: Learned, options: LearnOptions) -> dict[str, Any]:
    """What vocabulary.json says, but for the files: plain values, the same for the same text."""
    share, asked = learned.share, asdict(options)
    del asked["kind"]
    return {
        "kind": options.kind,
        "size": learned.tokenizer.vocab_size,
        "options": asked | {"cased": options.cased or options.kind == "bytebpe"},
        "corpus": {
            "documents": share.num_documents,
            "bytes": share.num_bytes,
            "sample_rate": share.rate,
            "used_documents": share.used_documents,
            "used_bytes": share.used_bytes,
            "held_out_documents": share.held_out_documents,
            "held_out_bytes": share.held_out_bytes,
            "different_words": learned.num_words,
            "words": learned.num_word_uses,
            "alphabet": learned.alphabet,
            "rare_characters_left_out": learned.left_out_characters,
        },
        "fit": None if learned.fit is None else learned.fit.to_dict(),
        "fingerprint": learned.tokenizer.fingerprint,
    }
