"""How well a vocabulary fits a text: unknown words, pieces per word, how much of it is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from filbert.text.counting import HELD_OUT_BYTES, split_at_spaces, stretches
from filbert.text.tokenizer import Tokenizer

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
