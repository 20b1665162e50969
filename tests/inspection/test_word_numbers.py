"""Words are what people read, in every kind of vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers

from filbert.inspection.occurrences import Source, gather, pattern_of, shown
from filbert.inspection.view import words_of
from filbert.inspection.word_numbers import with_words
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import Vocabulary

TEXT = "played,  he\n\twas (not) good \n"


@pytest.fixture(scope="module")
def unparted() -> Tokenizer:
    """As Gemma has it: characters, blanks among them, and nothing that parts words."""
    letters = {letter: number for number, letter in enumerate("?▁,.()\n\tabcdefghilmnopstwy")}
    backend = Backend(models.BPE(letters, [], unk_token="?"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    return Tokenizer(Vocabulary(backend, {"unk": "?"}, None))


def pieces_by_word(tokenizer: Tokenizer, text: str | tuple[str, str]) -> list[str]:
    texts = (text,) if isinstance(text, str) else text
    (encoding,) = tokenizer.encode([text], with_offsets=True)
    own = with_words(encoding, texts)
    tokens = tokenizer.tokens(encoding.input_ids)
    found: dict[tuple[int, int], list[str]] = {}
    for token, side, word in zip(tokens, own.sequence, own.words, strict=True):
        assert (side < 0) == (word < 0)
        if side >= 0:
            found.setdefault((side, word), []).append(token)
    return [" ".join(own) for own in found.values()]


def test_word_pieces_keep_the_words_of_their_own_splitting_step(tiny):
    for text in (TEXT, ("good, he", "played")):
        (encoding,) = tiny.encode([text], with_offsets=True)
        texts = (text,) if isinstance(text, str) else text
        np.testing.assert_array_equal(with_words(encoding, texts).words, encoding.words)


def test_tokens_of_nothing_but_white_space_go_to_the_word_they_stand_before(byte_pieces):
    words = pieces_by_word(byte_pieces, TEXT)
    assert words == ["play ed", ",", "Ġ Ġhe", "Ċ ĉ was", "Ġ (", "no t", ")", "Ġgood Ġ Ċ"]
    # A text of white space alone is one word, and so is each side of a pair.
    assert pieces_by_word(byte_pieces, " \n") == ["Ġ Ċ"]
    assert pieces_by_word(byte_pieces, ("good ", " good")) == ["g ood Ġ", "Ġgood"]


def test_white_space_and_marks_part_words_where_the_vocabulary_does_not(unparted, unigram_pieces):
    (encoding,) = unigram_pieces.encode(["he played, good!"], with_offsets=True)
    assert encoding.words.tolist() == [-1, 0, 1, 1, 2, 2, -1]
    assert with_words(encoding, ["he played, good!"]).words.tolist() == [-1, 0, 1, 2, 3, 4, -1]
    words = pieces_by_word(unparted, TEXT)
    assert words == [
        "p l a y e d", ",", "▁ ▁ h e", "\n \t w a s", "▁ (", "n o t", ")", "▁ g o o d ▁ \n",
    ]  # fmt: skip
    (encoding,) = unparted.encode([TEXT], with_offsets=True)
    assert words_of(encoding, (TEXT,), unparted)[1] == (
        "played", ",", "he", "was", "(", "not", ")", "good",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["tiny", "byte_pieces", "unigram_pieces", "unparted"])
def test_other_words_are_the_same_in_every_vocabulary(kind, request):
    tokenizer = request.getfixturevalue(kind)
    texts = ["good,  he\nwas not (good).", "Good he was"]
    if kind in ("byte_pieces", "unparted"):
        texts = [text.lower() for text in texts]
    sources = [Source(text, "") for text in texts]
    gathered = gather(sources, pattern_of(["good"]), most=9, others=0)
    first, second = shown(gathered, tokenizer, 64)
    assert [form for form, _ in first.words] == [",", "he", "was", "not", "(", ")", "."]
    assert [form for form, _ in second.words] == ["he", "was"]
    for sequence in (first, second):
        for rows in sequence.places:
            ids = sequence.example.input_ids[rows]
            assert tokenizer.decode(ids).replace(" ", "").replace("▁", "").lower() == "good"
