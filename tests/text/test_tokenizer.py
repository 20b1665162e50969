from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.errors import ConfigError, InputError
from filbert.text.tokenizer import Tokenizer


def google_truncate(first: int, second: int, room: int) -> tuple[int, int]:
    """google-research/bert, run_classifier.py, _truncate_seq_pair, on lengths."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def test_special_tokens_stand_around_a_text_and_between_a_pair(tiny):
    single, pair = tiny.encode(["the film", ("the film", "was good")])
    assert tiny.tokens(single.input_ids) == ["[CLS]", "the", "film", "[SEP]"]
    assert tiny.tokens(pair.input_ids) == ["[CLS]", "the", "film", "[SEP]", "was", "good", "[SEP]"]
    assert pair.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert single.input_ids.dtype == np.int32 and single.token_type_ids.dtype == np.uint8
    assert single.offsets is None and single.words is None and single.sequence is None


def test_without_special_tokens_an_empty_text_is_the_filler(vocab):
    tokenizer = Tokenizer.load(vocab)
    tokenizer.add_no_specials(35)
    found = tokenizer.encode(["the a", "", ("the", "a")])
    the, a = (tokenizer.id_of(word) for word in ("the", "a"))
    assert [one.input_ids.tolist() for one in found] == [[the, a], [35], [the, a]]


def test_a_cut_text_says_so_and_counts_what_it_was(tiny):
    whole, cut = tiny.encode(["the film was good"], max_length=6) + tiny.encode(
        ["the film was good"], max_length=5
    )
    assert (whole.num_tokens, len(whole.input_ids), whole.truncated) == (6, 6, False)
    assert (cut.num_tokens, len(cut.input_ids), cut.truncated) == (6, 5, True)
    assert tiny.tokens(cut.input_ids) == ["[CLS]", "the", "film", "was", "[SEP]"]


def test_a_pair_loses_tokens_as_in_googles_code_at_every_length(tiny):
    for first in range(8):
        for second in range(8):
            for room in range(12):
                text = ("the " * first, "was " * second)
                (found,) = tiny.encode([text], max_length=room + 3, with_offsets=True)
                kept = ((found.sequence == 0).sum(), (found.sequence == 1).sum())
                assert kept == google_truncate(first, second, room)
                assert found.num_tokens == first + second + 3


def test_a_limit_below_the_special_tokens_is_refused(tiny):
    with pytest.raises(ConfigError, match="too short for the 3 special tokens"):
        tiny.encode([("the", "film")], max_length=2)
    assert len(tiny.encode(["the film"], max_length=2)[0].input_ids) == 2


def test_offsets_and_words_point_into_the_text_the_user_gave(tiny):
    pair = ("The film,  was playing", "Très GOOD")
    (found,) = tiny.encode([pair], with_offsets=True)
    tokens = tiny.tokens(found.input_ids)
    assert tokens == [
        "[CLS]",
        "the",
        "film",
        ",",
        "was",
        "play",
        "##ing",
        "[SEP]",
        "[UNK]",
        "good",
        "[SEP]",
    ]
    pieces = [
        pair[side][start:end] if side >= 0 else ""
        for side, (start, end) in zip(found.sequence, found.offsets, strict=True)
    ]
    assert pieces == ["", "The", "film", ",", "was", "play", "ing", "", "Très", "GOOD", ""]
    assert found.words.tolist() == [-1, 0, 1, 2, 3, 4, 4, -1, 0, 1, -1]
    assert found.sequence.tolist() == [-1, 0, 0, 0, 0, 0, 0, -1, 1, 1, -1]
    assert found.offsets.dtype == found.words.dtype == np.int32


def test_half_a_surrogate_pair_does_not_move_the_offsets(tiny):
    text = "the \ud800film was\udfff good"
    (found,) = tiny.encode([text], with_offsets=True)
    start, end = found.offsets[-2]
    assert text[start:end] == "good"
    (plain,) = tiny.encode(["the \ufffdfilm was\ufffd good"])
    assert plain.input_ids.tolist() == found.input_ids.tolist()


def test_special_tokens_in_the_text_are_those_tokens(tiny):
    (found,) = tiny.encode(["the [MASK] was [SEP] good"], with_offsets=True)
    assert tiny.tokens(found.input_ids) == [
        "[CLS]",
        "the",
        "[MASK]",
        "was",
        "[SEP]",
        "good",
        "[SEP]",
    ]
    assert found.sequence.tolist() == [-1, 0, 0, 0, 0, 0, -1]
    assert found.offsets[2].tolist() == [4, 10]


def test_more_texts_than_a_chunk_keep_their_order(tiny, monkeypatch):
    monkeypatch.setattr("filbert.text.tokenizer.CHUNK_TEXTS", 3)
    monkeypatch.setattr("filbert.text.tokenizer.CHUNK_CHARACTERS", 20)
    texts = ["the " * n if n % 2 else ("a " * n, "it") for n in range(20)]
    alone = [tiny.encode([text])[0].input_ids.tolist() for text in texts]
    assert [found.input_ids.tolist() for found in tiny.encode(texts)] == alone


def test_windows_hold_every_token_and_start_where_they_say(tiny):
    text = " ".join(["the film was not very good", "she was bad"] * 9)
    (whole,) = tiny.encode([text], with_offsets=True)
    inner, words = whole.input_ids[1:-1], whole.words[1:-1]
    for length in (3, 4, 9, 40, 200):
        for stride in (1, 3, 8, 500):
            (windows,) = tiny.windows([text], max_length=length, stride=stride)
            covered = np.zeros(len(inner), dtype=bool)
            for window in windows:
                body = window.input_ids[1:-1]
                here = slice(window.start, window.start + len(body))
                assert body.tolist() == inner[here].tolist()
                assert window.words[1:-1].tolist() == words[here].tolist()
                assert len(window.input_ids) <= length and not window.truncated
                covered[here] = True
            assert covered.all()
            starts = [window.start for window in windows]
            step = min(stride, length - 2)
            assert starts == list(range(0, len(windows) * step, step))


def test_windows_equal_googles_spans(tiny):
    text = "the " * 100
    (windows,) = tiny.windows([("was good", text)], max_length=37, stride=12)
    spans, start, room = [], 0, 37 - 2 - 3
    while start < 100:  # google-research/bert, run_squad.py
        length = min(100 - start, room)
        spans.append((start, length))
        if start + length == 100:
            break
        start += min(length, 12)
    assert [(w.start, int((w.sequence == 1).sum())) for w in windows] == spans
    assert all(w.input_ids[1:3].tolist() == windows[0].input_ids[1:3].tolist() for w in windows)


def test_a_long_first_text_is_cut_or_refused_and_never_silently(tiny):
    pair = ("the " * 30, "film was good")
    with pytest.raises(InputError, match="fills the 20 tokens"):
        tiny.windows([pair], max_length=20, stride=5)
    (windows,) = tiny.windows([pair], max_length=20, stride=5, max_first=10)
    assert len(windows) == 1 and windows[0].truncated
    assert windows[0].num_tokens == 30 + 3 + 3


def test_an_empty_text_gives_one_window(tiny):
    assert [len(w.input_ids) for w in tiny.windows([""], max_length=8, stride=2)[0]] == [2]


def test_an_id_outside_the_vocabulary_is_refused(tiny):
    with pytest.raises(InputError, match="Token id 99"):
        tiny.tokens([2, 99])
    assert tiny.id_of("film") == 7 and tiny.id_of("cinema") is None
    assert tiny.decode([2, 5, 7, 3]) == "the film"


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(st.characters(), max_size=60), min_size=1, max_size=4))
def test_any_text_encodes_within_bounds_and_alone_as_in_company(tiny, texts):
    together = tiny.encode(texts, with_offsets=True)
    for text, found in zip(texts, together, strict=True):
        (alone,) = tiny.encode([text])
        assert alone.input_ids.tolist() == found.input_ids.tolist()
        assert (found.offsets >= 0).all() and (found.offsets <= len(text)).all()
        assert (found.offsets[:, 0] <= found.offsets[:, 1]).all()
        assert (found.input_ids < tiny.vocab_size).all()


def test_loading_twice_gives_one_fingerprint_and_casing_changes_it(vocab, tmp_path):
    assert Tokenizer.load(vocab).fingerprint == Tokenizer.load(vocab).fingerprint
    shutil.copy(vocab / "vocab.txt", tmp_path)
    uncased = Tokenizer.load(tmp_path).fingerprint
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert Tokenizer.load(tmp_path).fingerprint != uncased
