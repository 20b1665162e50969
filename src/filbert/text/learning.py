"""Learns a vocabulary: WordPiece like BERT, byte-level BPE like RoBERTa, unigram like ALBERT.

Or lists whole symbols, for sequences that are no language.

The same text and options give the same bytes in every process. Therefore filbert has its own
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
from typing import Any, NamedTuple

from tokenizers import AddedToken, normalizers, pre_tokenizers

from filbert.errors import ConfigError, InputError
from filbert.text.spiece import SentencePieceModel, build_unigram
from filbert.text.tokenizer import Tokenizer, chunked
from filbert.text.unigram import learn_pieces
from filbert.text.vocabulary import (
    MAX_WORD_LENGTH,
    Vocabulary,
    bert_template,
    build_symbols,
    find_specials,
)

# Counting words.

# One in so many documents is withheld to measure the vocabulary on, up to so many bytes in all.
HELD_OUT_EVERY = 100
HELD_OUT_BYTES = 2**25

# Texts between spaces are counted before they are split into words. Their table is emptied when it
# has so many entries, or has seen so many characters.
_WAITING = 2**16
_WAITING_CHARACTERS = 2**23

# Characters that are normalized and split, or tokenized, at a time: the libraries take hundreds of
# bytes for each, and a line without spaces may have millions.
_STRETCH = 2**16

# A longer word is counted as several: one line of four million letters must not take hours.
LONGEST_WORD = 256

_SPACED = re.compile(r" *[^ ]+| +")

Documents = Callable[[], Iterable[Sequence[str]]]
Progress = Callable[[str, int], None]


def stretches(word: str) -> Iterator[str]:
    """Yield a word in parts of at most 65,536 characters."""
    for start in range(0, max(len(word), 1), _STRETCH):
        yield word[start : start + _STRETCH]


def split_at_spaces(line: str) -> list[str]:
    """Return a line's words, each with the spaces before it; other white space does not split.

    No normalizer or pre-tokenizer here depends on what is beyond a space, so the parts may be
    processed one by one.
    """
    if "  " in line or "\n" in line:
        return _SPACED.findall(line)
    # The same, in half the time.
    return line.replace(" ", "\n ").split("\n")


class WordCounter:
    """Counts words as one kind of vocabulary splits them.

    Attributes:
        counts: The words so far; `num_characters` are those of all of them.
        dropped_count: Words that had so few uses were removed, to save memory.
    """

    def __init__(self, kind: str, *, cased: bool) -> None:
        self._normalizer: Any = None
        self._pre_tokenizer: Any = pre_tokenizers.WhitespaceSplit()
        if kind == "wordpiece":
            self._normalizer = normalizers.BertNormalizer(lowercase=not cased)
            self._pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        elif kind == "bytebpe":
            self._pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        elif kind == "unigram":
            model = SentencePieceModel((("<unk>", 0.0),), 0, b"")
            empty = build_unigram(model, lowercase=not cased, keep_accents=cased)
            self._normalizer, self._pre_tokenizer = empty.normalizer, empty.pre_tokenizer
        self._waiting: Counter[str] = Counter()
        self._characters = 0
        self._kind = kind
        self.counts: dict[str, int] = {}
        self.num_characters = self.dropped_count = 0

    def add(self, lines: Sequence[str]) -> None:
        """Count the words of some lines."""
        for line in lines:
            self._waiting.update(split_at_spaces(line))
            self._characters += len(line)
        if len(self._waiting) >= _WAITING or self._characters >= _WAITING_CHARACTERS:
            self.settle()

    def settle(self) -> None:
        """Add everything that is waiting to `counts`; without enough memory, drop the rarest."""
        for text, count in self._waiting.items():
            # The leading space of a word belongs to it in byte-level BPE.
            self._count(text if self._kind == "bytebpe" else text.removeprefix(" "), count)
        self._waiting.clear()
        self._characters = 0
        # As `ReduceVocab` of word2vec (Mikolov et al. 2013): frequent words lose next to nothing.
        while memory_needed(self._kind, len(self.counts), self.num_characters) > MAX_MEMORY:
            self.dropped_count += 1
            least = self.dropped_count
            self.counts = {word: count for word, count in self.counts.items() if count > least}
            self.num_characters = sum(map(len, self.counts))

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


def count_words(
    documents: Documents,
    options: LearnOptions,
    *,
    progress: Progress,
    held_out: int | None = None,
) -> tuple[WordCounter, set[int], dict[str, int]]:
    """Count the words of a text; if they do not fit into the memory, the rarest are dropped.

    One document in HELD_OUT_EVERY is withheld, and at least one of two: only `held_out`, if no draw
    was low enough in an earlier reading.

    Returns:
        The words, the numbers of the withheld documents, and facts for the report. Bytes are UTF-8,
        with a line break per line.
    """
    counter, withheld = WordCounter(options.kind, cased=options.cased), set[int]()
    num_documents = num_bytes = held_out_bytes = 0
    lowest = (2.0, 0)
    for number, lines in enumerate(documents()):
        size = sum(1 + len(line.encode("utf-8", "replace")) for line in lines)
        num_documents += 1
        num_bytes += size
        progress("counting words", size)
        if held_out_bytes < HELD_OUT_BYTES:
            digest = blake2b(f"0/held-out/{number}".encode(), digest_size=8).digest()
            lot = int.from_bytes(digest, "little") / 2.0**64
            lowest = min(lowest, (lot, number))
            if lot < 1 / HELD_OUT_EVERY if held_out is None else number == held_out:
                withheld.add(number)
                held_out_bytes += size
                continue
        counter.add(lines)
    counter.settle()
    if not withheld and num_documents > 1 and held_out is None:
        return count_words(documents, options, progress=progress, held_out=lowest[1])
    if not num_documents:
        raise InputError("The corpus holds no text. Name files with at least one line.")
    facts = {
        "documents": num_documents,
        "bytes": num_bytes,
        "dropped_count": counter.dropped_count,
        "used_documents": num_documents - len(withheld),
        "used_bytes": num_bytes - held_out_bytes,
        "held_out_documents": len(withheld),
        "held_out_bytes": held_out_bytes,
    }
    return counter, withheld, facts


# WordPiece and BPE merges.

_HALF = 32  # a pair of ids is one integer, first << _HALF | second, so that it sorts as the pair
_LOW = (1 << _HALF) - 1


def learn_merges(
    words: Sequence[tuple[list[int], int]],
    tokens: list[str],
    *,
    size: int,
    min_count: int,
    prefix: str = "",
    progress: Progress = lambda what, done: None,
) -> list[tuple[str, str]]:
    """Join the most frequent pair of neighbours repeatedly; of equals, that with the smaller ids.

    Args:
        words: Each word's symbols as ids into `tokens`, and its count. The lists are changed.
        tokens: The vocabulary so far; it grows up to `size` entries.
        min_count: Least count of a pair to join.
        prefix: Marks a token that continues a word; a joined token has it at most in front.

    Returns:
        The pairs in the order in which they were joined.

    Source: Sennrich et al. 2016, algorithm 1; ties as in the `tokenizers` library.
    """
    ids = {token: number for number, token in enumerate(tokens)}
    pairs = _Pairs(words)
    queue = [(-count, key) for key, count in pairs.counts.items()]
    heapify(queue)
    merges: list[tuple[str, str]] = []
    while queue and len(tokens) < size:
        negative, key = heappop(queue)
        count = pairs.counts[key]
        if count != -negative:
            # Its count has decreased since it was queued.
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
            progress("learning entries", 1)
        merges.append((tokens[left], tokens[right]))
        for pair in pairs.join(left, right, ids[joined]) - {key}:
            if pairs.counts[pair] > 0:
                heappush(queue, (-pairs.counts[pair], pair))
    return merges


class _Pairs:
    """Pairs of neighbours in words: their counts, and the words in which each of them occurs."""

    def __init__(self, words: Sequence[tuple[list[int], int]]) -> None:
        self.words = words
        self.counts: Counter[int] = Counter()
        self.where: dict[int, array[int]] = {}
        for index, (symbols, count) in enumerate(words):
            for left, right in zip(symbols, symbols[1:], strict=False):
                self._add(left << _HALF | right, count, index)

    def _add(self, pair: int, count: int, index: int) -> None:
        if pair not in self.where:
            self.where[pair] = array("I", (index,))
        elif self.where[pair][-1] != index:  # a pair may occur twice in a word
            self.where[pair].append(index)
        self.counts[pair] += count

    def join(self, left: int, right: int, joined: int) -> set[int]:
        """Join two neighbours in all words; return the pairs that occur more often now."""
        key, raised = left << _HALF | right, set[int]()
        for index in self.where.pop(key):
            symbols, count = self.words[index]
            at = 0
            while left in symbols[at:-1]:
                at = symbols.index(left, at)
                if symbols[at + 1] == right:
                    if at:
                        before = symbols[at - 1] << _HALF
                        self.counts[before | left] -= count
                        self._add(before | joined, count, index)
                        raised.add(before | joined)
                    if at + 2 < len(symbols):
                        after = symbols[at + 2]
                        self.counts[right << _HALF | after] -= count
                        self._add(joined << _HALF | after, count, index)
                        raised.add(joined << _HALF | after)
                    symbols[at : at + 2] = [joined]
                at += 1
        self.counts.pop(key, None)
        return raised


# How well a vocabulary fits.

# How many of the words with the most pieces are listed.
SHOWN = 10


def held_out_text(documents: Iterable[Sequence[str]]) -> Counter[str]:
    """Count a text's words, each with the spaces before it; very long ones in parts."""
    counts: Counter[str] = Counter()
    for lines in documents:
        for line in lines:
            for word in split_at_spaces(line):
                counts.update(stretches(word))
    return counts


def measure_fit(tokenizer: Tokenizer, text: Mapping[str, int]) -> dict[str, Any]:
    """Measure how a vocabulary fits the words of a text, as `held_out_text` counts them.

    A word is a text between spaces, with its punctuation. `num_bytes` is of UTF-8, with one per
    space and line break. `unknown_rate` is the share of words with an unknown token in them,
    `used_share` that of the vocabulary which occurs. `longest` has the words of the most pieces.
    """
    spaced = tokenizer.kind == "bytebpe"  # whose words begin with their space
    unknown = num_words = num_tokens = num_bytes = 0
    used: set[int] = set()
    pieces: Counter[tuple[str, int]] = Counter()
    for chunk in chunked(text.items(), lambda item: len(item[0])):
        texts = [word if spaced else word.removeprefix(" ") for word, _ in chunk]
        encodings = tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False)
        for (word, count), encoding in zip(chunk, encodings, strict=True):
            ids = encoding.ids
            num_bytes += count * (len(word.removeprefix(" ").encode("utf-8", "replace")) + 1)
            num_tokens += count * len(ids)
            used.update(ids)
            if word.strip():
                num_words += count
                unknown += count * (tokenizer.unk_id in ids)
                pieces[word.strip(), len(ids)] += count
    order = sorted(pieces.items(), key=lambda item: (-item[0][1], -item[1], item[0][0]))
    return {
        "num_words": num_words,
        "num_tokens": num_tokens,
        "num_bytes": num_bytes,
        "unknown_rate": unknown / max(1, num_words),
        "pieces_per_word": num_tokens / max(1, num_words),
        "tokens_per_byte": num_tokens / max(1, num_bytes),
        "used_share": len(used) / tokenizer.vocab_size,
        "longest": [
            {"word": word, "num_pieces": size, "count": count}
            for (word, size), count in order[:SHOWN]
        ],
    }


# Learning.

# The special tokens of each kind, in the order of their ids, from 0. The mask of byte-level BPE
# comes after all other entries, as in RoBERTa.
SPECIALS = {
    "wordpiece": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "bytebpe": ("<s>", "<pad>", "</s>", "<unk>"),
    "unigram": ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
    "symbols": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
}
_BYTE_MASK = "<mask>"
KINDS = tuple(SPECIALS)


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """Options of a vocabulary.

    Attributes:
        size: Entries, special tokens included.
        cased: Keep case and accents. Byte-level BPE and symbols always do.
        min_count: Least number of occurrences of a character, a piece, a symbol or a pair to be
            joined.
    """

    kind: str
    size: int
    cased: bool = False
    min_count: int = 2


class Learned(NamedTuple):
    """A vocabulary, and vocabulary.json without the files: the same for the same text."""

    tokenizer: Tokenizer
    report: dict[str, Any]


# Bytes that the whole process may need; if the words of the text need more, the rarest are dropped.
MAX_MEMORY = 2 * 2**30

# Peak bytes of a process that learns: at the start, per different word, and per character of those
# words. Measured, see docs/vocab.md.
_START = 110 * 2**20
_COST, _COST_OF_UNIGRAM = (720, 25), (300, 400)


def memory_needed(kind: str, num_words: int, num_characters: int) -> int:
    """Return the peak bytes of a process that learns from so many different words."""
    per_word, per_character = _COST_OF_UNIGRAM if kind == "unigram" else _COST
    return _START + per_word * num_words + per_character * num_characters


def learn(
    documents: Documents,
    options: LearnOptions,
    *,
    progress: Progress = lambda what, done: None,
) -> Learned:
    """Learn a vocabulary and measure how it fits.

    Args:
        documents: Returns the text, as documents of lines, from its start at each call.
        progress: Called with a description and the amount since the last call: bytes read, or
            entries learned.

    Raises:
        InputError: There is no text.
        ConfigError: An option is out of range.
    """
    if options.kind not in KINDS:
        raise ConfigError(f"--kind {options.kind} is not one of {', '.join(KINDS)}.")
    if options.min_count < 1:
        raise ConfigError(f"--min-count is {options.min_count}; it must be at least 1.")
    counter, withheld, facts = count_words(documents, options, progress=progress)
    counts = counter.counts
    alphabet, left_out = _alphabet(counts, options)
    tokenizer = _LEARNERS[options.kind](counts, alphabet, options, progress)
    corpus = facts | {
        "different_words": len(counts),
        "words": sum(counts.values()),
        "alphabet": len(alphabet),
        "rare_characters_left_out": left_out,
    }
    counts.clear()
    progress("measuring the fit", 0)
    texts = documents() if withheld else ()
    text = held_out_text(lines for n, lines in enumerate(texts) if n in withheld)
    asked = asdict(options) | {"cased": options.cased or options.kind in ("bytebpe", "symbols")}
    report = {
        "kind": asked.pop("kind"),
        "size": tokenizer.vocab_size,
        "options": asked,
        "corpus": corpus,
        "fit": measure_fit(tokenizer, text) if text else None,
        "fingerprint": tokenizer.fingerprint,
    }
    return Learned(tokenizer, report)


def _alphabet(counts: dict[str, int], options: LearnOptions) -> tuple[list[str], int]:
    """Return the characters that become entries, by code point, and the number of others."""
    if options.kind == "bytebpe":
        return sorted(pre_tokenizers.ByteLevel.alphabet()), 0
    if options.kind == "symbols":
        return [], 0
    uses: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            uses[character] += count
    # A very short text may have no character twice.
    frequent = [c for c, count in uses.items() if count >= options.min_count] or [*uses]
    return sorted(frequent), len(uses) - len(frequent)


def _check_size(options: LearnOptions, needed: int, what: str) -> None:
    if options.size < needed:
        raise ConfigError(
            f"--size {options.size} is too small: {what} take {needed} entries. Raise --size"
            + (" or --min-count." if options.kind != "bytebpe" else ".")
        )


def _learn_wordpiece(
    counts: dict[str, int], alphabet: list[str], options: LearnOptions, progress: Progress
) -> Tokenizer:
    inside = {character for word in counts for character in word[1:]}
    # Letters and digits may continue words that do not occur in this text.
    inside |= {c for c in alphabet if c.isdigit() or c.lower() != c.upper()}
    continuing = ["##" + character for character in alphabet if character in inside]
    specials = SPECIALS["wordpiece"]
    tokens = [*specials, *alphabet, *continuing]
    what = f"{len(specials)} special tokens and {len(alphabet)} characters, {len(continuing)} of "
    _check_size(options, len(tokens), what + "them also inside words,")
    ids = {token: number for number, token in enumerate(tokens)}
    words = []
    for word in sorted(counts):
        symbols = [word[0], *("##" + character for character in word[1:])]
        if len(word) <= MAX_WORD_LENGTH and all(symbol in ids for symbol in symbols):
            words.append(([ids[symbol] for symbol in symbols], counts[word]))
    least = options.min_count
    learn_merges(words, tokens, size=options.size, min_count=least, prefix="##", progress=progress)
    settings = json.dumps({"do_lower_case": not options.cased})
    return _load({"vocab.txt": "\n".join(tokens) + "\n", "tokenizer_config.json": settings})


def _learn_bytebpe(
    counts: dict[str, int], alphabet: list[str], options: LearnOptions, progress: Progress
) -> Tokenizer:
    tokens = [*SPECIALS["bytebpe"], *alphabet]
    specials = len(SPECIALS["bytebpe"]) + 1
    _check_size(options, len(tokens) + 1, f"{specials} special tokens and 256 bytes")
    ids = {token: number for number, token in enumerate(tokens)}
    words = [([ids[symbol] for symbol in word], counts[word]) for word in sorted(counts)]
    merges = learn_merges(
        words, tokens, size=options.size - 1, min_count=options.min_count, progress=progress
    )
    tokens.append(_BYTE_MASK)
    lines = "".join(f"{left} {right}\n" for left, right in merges)
    numbered = {token: number for number, token in enumerate(tokens)}
    return _load({"vocab.json": json.dumps(numbered), "merges.txt": "#version: 0.2\n" + lines})


def _load(files: dict[str, str]) -> Tokenizer:
    """Return the tokenizer of a folder with these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            Path(folder, name).write_text(content, encoding="utf-8", newline="\n")
        return Tokenizer.load(folder)


def _learn_unigram(
    counts: dict[str, int], alphabet: list[str], options: LearnOptions, progress: Progress
) -> Tokenizer:
    specials = SPECIALS["unigram"]
    what = f"{len(specials)} special tokens and {len(alphabet)} characters"
    _check_size(options, len(specials) + len(alphabet), what)
    pieces = learn_pieces(
        counts,
        alphabet,
        size=options.size - len(specials),
        min_count=options.min_count,
        progress=progress,
    )
    known = set(specials)
    entries = [*((name, 0.0) for name in specials), *(p for p in pieces if p[0] not in known)]
    model = SentencePieceModel(tuple(entries), specials.index("<unk>"), b"")
    backend = build_unigram(model, lowercase=not options.cased, keep_accents=options.cased)
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in specials])
    names = find_specials(known.__contains__, {})
    backend.post_processor = bert_template(backend, names)
    return Tokenizer(Vocabulary(backend, names))


def _learn_symbols(
    counts: dict[str, int], alphabet: list[str], options: LearnOptions, progress: Progress
) -> Tokenizer:
    """Take the most frequent symbols; of equals, the first in the order of code points."""
    specials = SPECIALS["symbols"]
    _check_size(options, len(specials) + 1, f"{len(specials)} special tokens and a symbol")
    # A longer symbol was counted in parts.
    known = {symbol for symbol in counts if len(symbol) < LONGEST_WORD} - set(specials)
    order = sorted(known, key=lambda symbol: (-counts[symbol], symbol))
    frequent = [symbol for symbol in order if counts[symbol] >= options.min_count]
    entries = (*specials, *frequent[: options.size - len(specials)])
    names = find_specials(set(specials).__contains__, {})
    return Tokenizer(Vocabulary(build_symbols(entries, names), names))


_LEARNERS: dict[str, Callable[[dict[str, int], list[str], LearnOptions, Progress], Tokenizer]] = {
    "wordpiece": _learn_wordpiece,
    "bytebpe": _learn_bytebpe,
    "unigram": _learn_unigram,
    "symbols": _learn_symbols,
}
