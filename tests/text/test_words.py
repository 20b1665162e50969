"""A vocabulary of whole words: how texts are split, what is learnt, what is saved."""

from __future__ import annotations

import pytest

from filbert.errors import ConfigError, FormatError, InputError
from filbert.text.extend import add_entries
from filbert.text.saving import vocabulary_files
from filbert.text.tokenizer import Tokenizer
from filbert.text.words import SPECIALS, known_words, learn_words, new_words


def words_of(text: str, **options) -> list[str]:
    tokenizer = learn_words([text], min_count=1, **options)
    return tokenizer.tokens(tokenizer.encode([text])[0].input_ids)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The sun, the SEA.", ["the", "sun", ",", "the", "sea", "."]),
        ("I don't, can’t", ["i", "do", "n't", ",", "ca", "n't"]),
        ("it's we're 'quoted'", ["it", "'s", "we", "'re", "'", "quoted", "'"]),
        ("no!!!!! yes??!", ["no", "!!!", "!!", "yes", "??", "!"]),
        ("naïve Ωμέγα 42nd", ["naïve", "ωμέγα", "42nd"]),
        ("你好 ok", ["你", "好", "ok"]),
        ("a_b\tc\n d", ["a", "_", "b", "c", "d"]),
        ("cafe\u0301", ["caf\u00e9"]),
    ],
)
def test_how_texts_are_split(text, wanted):
    assert words_of(text) == wanted


def test_offsets_point_at_the_word_in_the_text_as_it_was_given():
    text = "Cafe\u0301s, I DON’T!!!!"
    tokenizer = learn_words([text], min_count=1)
    (encoding,) = tokenizer.encode([text], with_offsets=True)
    assert encoding.offsets is not None and encoding.words is not None
    parts = [text[start:end] for start, end in encoding.offsets]
    assert parts == ["Cafe\u0301s", ",", "I", "DO", "N’T", "!!!", "!"]
    assert encoding.words.tolist() == list(range(7))


def test_case_is_kept_when_asked():
    assert words_of("The the", lowercase=False) == ["The", "the"]


def test_an_unknown_word_and_an_empty_text_are_one_unknown_token():
    tokenizer = learn_words(["sun sun"])
    for text in ("moon", "", " \n"):
        assert tokenizer.encode([text])[0].input_ids.tolist() == [tokenizer.unk_id]


def test_a_pair_has_a_separator_between_and_one_token_type():
    tokenizer = new_words(["sun", "sea"])
    (encoding,) = tokenizer.encode([("sun sun", "sea")])
    assert tokenizer.tokens(encoding.input_ids) == ["sun", "sun", "[SEP]", "sea"]
    assert not encoding.token_type_ids.any()


def test_the_most_frequent_words_come_first_whatever_the_order_of_the_texts():
    texts = ["b b b c", "a a", "c b d"]
    first, again = (learn_words(some, size=6) for some in (texts, texts[::-1]))
    assert known_words(first) == {"b": 3, "a": 4, "c": 5}
    assert first.fingerprint == again.fingerprint
    assert first.vocab_size == 6


def test_rare_and_endless_words_are_left_out():
    endless = "x" * 51
    tokenizer = learn_words([f"sun sun moon {endless} {endless}"])
    assert list(known_words(tokenizer)) == ["sun"]


def test_a_saved_vocabulary_is_the_same_when_loaded(tmp_path):
    tokenizer = learn_words(["The sun isn't green!! " * 2], max_length=77)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.kind == "words" and again.max_length == 77 and again.lowercase
    assert again.fingerprint == tokenizer.fingerprint
    texts = ["The SUN isn't!!!!", "", ("sun", "moon")]
    for one, other in zip(tokenizer.encode(texts), again.encode(texts), strict=True):
        assert one.input_ids.tolist() == other.input_ids.tolist()
    assert not (tmp_path / "vocab.txt").exists()
    with pytest.raises(FormatError, match="tokenizer.json does"):
        vocabulary_files(again)


def test_half_a_surrogate_pair_is_no_obstacle():
    assert words_of("sun \ud800 sea")[0] == "sun"
    assert list(known_words(learn_words(["\udc00 sun", "\ud800 sun"]))) == ["sun", "\ufffd"]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"size": 3}, ConfigError, "needs more than 3 entries"),
        ({"min_count": 0}, ConfigError, "min_count is 0"),
        ({"min_count": 9}, InputError, "None of the 2 different words stands in the texts 9 times"),
    ],
)
def test_a_vocabulary_without_words_is_refused(options, kind, message):
    with pytest.raises(kind, match=message):
        learn_words(["sun sea"], **options)


def test_it_takes_no_new_entries():
    with pytest.raises(FormatError, match="takes no new entries; learn it anew"):
        add_entries(new_words(["sun"]), ["sea"])


def test_special_entries_are_no_words():
    assert len(known_words(new_words(["sun"]))) == 1
    assert new_words(["sun"]).vocab_size == len(SPECIALS) + 1
