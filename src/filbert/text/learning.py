"""Learn a vocabulary: WordPiece like BERT, byte-level BPE like RoBERTa, unigram like ALBERT.

The same text and options give the same bytes in every process. Source of the kinds: RECIPES
section 1, and the vocabularies that those models were published with.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    normalizers,
    pre_tokenizers,
    processors,
)

from filbert.errors import ConfigError, InputError
from filbert.text.counting import Documents, Progress, Share, WordCounter, chosen, count_words
from filbert.text.fit import Fit, held_out_text, measure_fit
from filbert.text.spiece import SentencePieceModel, build_unigram
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import MAX_WORD_LENGTH, Vocabulary, find_specials

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
    _learn_merges(words, tokens, options.size, options, progress, "##")
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
    merges = _learn_merges(words, tokens, options.size - 1, options, progress, "")
    tokens.append(_BYTE_MASK)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        numbered = {token: number for number, token in enumerate(tokens)}
        (folder / "vocab.json").write_text(json.dumps(numbered), encoding="utf-8")
        lines = "".join(f"{left} {right}\n" for left, right in merges)
        (folder / "merges.txt").write_text("#version: 0.2\n" + lines, encoding="utf-8")
        return Tokenizer.load(folder)


def _learn_merges(
    words: list[tuple[list[int], int]],
    tokens: list[str],
    size: int,
    options: LearnOptions,
    progress: Progress,
    prefix: str,
) -> list[tuple[str, str]]:
    from filbert.text.merges import learn_merges

    return learn_merges(
        words,
        tokens,
        size=size,
        min_count=options.min_count,
        prefix=prefix,
        progress=lambda count: progress("learning entries", count),
    )


def _learn_unigram(
    counts: dict[str, int], alphabet: list[str], options: LearnOptions, progress: Progress
) -> Tokenizer:
    from filbert.text.unigram import learn_pieces

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
    share = learned.share
    return {
        "kind": options.kind,
        "size": learned.tokenizer.vocab_size,
        "options": {
            "size": options.size,
            "cased": options.cased or options.kind == "bytebpe",
            "min_count": options.min_count,
            "max_alphabet": options.max_alphabet,
            "seed": options.seed,
            "max_memory": options.max_memory,
        },
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
