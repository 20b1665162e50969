"""A vocabulary of whole words, for models that have a vector for each word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from filbert.errors import ConfigError, InputError
from filbert.text.surrogates import without_halves
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import Vocabulary, find_specials

# In the order of their ids.
SPECIALS = ("[PAD]", "[UNK]", "[SEP]")

# As the words of published vectors were cut (Manning et al. 2014, the Stanford tokenizer): "n't"
# and other contractions stand for themselves, every Chinese character too. Marks are cut where
# another one follows and after three of a kind, so that "!!!!!!!!" is made of words that are known.
_LETTER = r"[\p{L}\p{M}\p{N}&&[^\p{Han}]]"
_ENDING = r"'(?i:s|m|d|re|ve|ll)(?![\p{L}\p{M}\p{N}])"
_WORD = (
    rf"{_LETTER}+?(?=(?i:n't)(?![\p{{L}}\p{{M}}\p{{N}}]))"
    r"|(?i:n't)(?![\p{L}\p{M}\p{N}])"
    rf"|{_ENDING}|\p{{Han}}|{_LETTER}+"
    r"|([^\s\p{L}\p{M}\p{N}])\1{0,2}"
)

# Longer words are unknown in every list of vectors, and would only fill the vocabulary.
_LONGEST = 50


def learn_words(
    texts: Iterable[str],
    *,
    size: int = 50_000,
    min_count: int = 2,
    lowercase: bool = True,
    max_length: int | None = 256,
) -> Tokenizer:
    """A tokenizer that knows the most frequent words of some texts.

    A word is a run of letters and digits of any script, a contraction's ending ("n't", "'s"), or up
    to three equal marks. All others become [UNK], and so does an empty text. A pair has [SEP]
    between its texts. The same texts give the same vocabulary, in any order.

    Args:
        texts: to count in; read once.
        size: entries at most, with the three special ones.
        min_count: a rarer word is left out.
        lowercase: whether "The" and "the" are one word.
        max_length: where texts are cut, in words, unless somebody says otherwise; None for nowhere.

    Raises:
        ConfigError: `size` or `min_count` is too small.
        InputError: no word is left.
    """
    if size <= len(SPECIALS):
        raise ConfigError(f"size is {size}; a vocabulary needs more than {len(SPECIALS)} entries.")
    if min_count < 1:
        raise ConfigError(f"min_count is {min_count}; it must be at least 1.")
    normalizer, splitter = _normalizer(lowercase), _splitter()
    counts: Counter[str] = Counter()
    for text in texts:
        pieces = splitter.pre_tokenize_str(normalizer.normalize_str(without_halves(text)))
        counts.update(word for word, _ in pieces)
    kept = [w for w, n in counts.items() if n >= min_count and len(w) <= _LONGEST]
    if not kept:
        raise InputError(
            f"None of the {len(counts):,} different words stands in the texts {min_count} times. "
            "Give more text, or a lower min_count."
        )
    kept.sort(key=lambda word: (-counts[word], word))
    return new_words(kept[: size - len(SPECIALS)], lowercase=lowercase, max_length=max_length)


def new_words(
    words: Iterable[str], *, lowercase: bool = True, max_length: int | None = 256
) -> Tokenizer:
    """A tokenizer with these words, in the order of their ids from 3; see `learn_words`."""
    ids = {word: number for number, word in enumerate(dict.fromkeys((*SPECIALS, *words)))}
    backend = Backend(models.WordLevel(ids, unk_token="[UNK]"))
    backend.normalizer = _normalizer(lowercase)
    backend.pre_tokenizer = _splitter()
    backend.add_special_tokens(list(SPECIALS))
    backend.post_processor = processors.TemplateProcessing(
        single=["$A:0"],
        pair=["$A:0", "[SEP]:0", "$B:0"],
        special_tokens=[("[SEP]", ids["[SEP]"])],
    )
    return Tokenizer(Vocabulary(backend, find_specials(ids.__contains__, {}), max_length))


def known_words(tokenizer: Tokenizer) -> dict[str, int]:
    """The words of a vocabulary and their ids, without the special entries."""
    special = set(tokenizer.specials.values())
    entries = tokenizer.backend.get_vocab(with_added_tokens=True)
    found = {word: number for word, number in entries.items() if word not in special}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _normalizer(lowercase: bool) -> normalizers.Sequence:
    steps = [normalizers.NFC(), normalizers.Replace("\u2019", "'")]
    return normalizers.Sequence([*steps, normalizers.Lowercase()] if lowercase else steps)


def _splitter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(_WORD), behavior="removed", invert=True)
