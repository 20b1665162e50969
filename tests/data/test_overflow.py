"""Texts that are too long: refused, cut or read in windows, and always counted."""

import numpy as np
import pytest

from filbert.data.examples import OVERFLOW_RULES, encode_rows
from filbert.data.records import Row
from filbert.errors import ConfigError, InputError
from filbert.text.tokenizer import Tokenizer

SHORT = "the film was good"
LONG = " ".join(["a", "film", "was", "not", "very", "bad"] * 5)  # 30 tokens and 2 specials


def pieces(tokenizer, *texts, rule, max_length=12, stride=4):
    rows = [Row({"text": text}, "train.csv", i + 2) for i, text in enumerate(texts)]
    return encode_rows(rows, texts, tokenizer, max_length=max_length, rule=rule, stride=stride)


def ids(encoding) -> list[int]:
    return encoding.input_ids.tolist()


@pytest.mark.parametrize("rule", OVERFLOW_RULES)
def test_a_text_that_fits_is_the_same_under_every_rule(tiny, rule):
    (alone,) = tiny.encode([SHORT])
    found = pieces(tiny, SHORT, SHORT, rule=rule, max_length=6)
    assert [len(row) for row in found] == [1, 1]
    assert ids(found[0][0]) == ids(alone)
    assert not found[0][0].truncated


def test_error_names_place_length_and_how_many(tiny):
    with pytest.raises(InputError) as caught:
        pieces(tiny, SHORT, LONG, SHORT, LONG, rule="error")
    assert str(caught.value) == (
        "train.csv:3: 32 tokens with specials, and max_length is 12; 2 texts are too long. Raise "
        "max_length, or pass another --on-overflow."
    )


def test_truncate_keeps_the_beginning_and_counts_all(tiny):
    ((cut,),) = pieces(tiny, LONG, rule="truncate")
    (whole,) = tiny.encode([LONG])
    assert ids(cut) == ids(whole)[:11] + [tiny.sep_id]
    assert cut.truncated and cut.num_tokens == 32


def test_head_and_tail_of_512_tokens_are_128_and_382_as_published(shared_data):
    bert = Tokenizer.load(shared_data / "tokenizers" / "bert-base-uncased")
    text = " ".join(str(number) for number in range(900))
    (whole,) = bert.encode([text])
    ((cut,),) = pieces(bert, text, rule="head-tail", max_length=512)
    assert len(cut.input_ids) == len(cut.token_type_ids) == 512
    assert ids(cut) == ids(whole)[: 1 + 128] + ids(whole)[-1 - 382 :]
    assert cut.truncated and cut.num_tokens == whole.num_tokens


@pytest.mark.parametrize("max_length", [3, 4, 11, 31, 32])
def test_head_tail_fills_every_length_exactly_between_its_specials(tiny, max_length):
    ((cut,),) = pieces(tiny, LONG, rule="head-tail", max_length=max_length)
    (whole,) = tiny.encode([LONG])
    assert len(cut.input_ids) == max_length
    assert ids(cut)[0] == tiny.cls_id and ids(cut)[-1] == tiny.sep_id
    head = round((max_length - 2) * 128 / 510)
    assert ids(cut)[1:-1] == ids(whole)[1 : 1 + head] + ids(whole)[31 - max_length + 2 + head : 31]


def test_head_tail_without_room_for_a_token_is_refused(tiny):
    with pytest.raises(ConfigError, match="max_length 2 is too short"):
        pieces(tiny, LONG, rule="head-tail", max_length=2)


@pytest.mark.parametrize("stride", [1, 3, 10, 128])
def test_windows_lose_nothing_and_are_not_called_truncated(tiny, stride):
    found = pieces(tiny, SHORT, LONG, rule="window", stride=stride)
    (whole,) = tiny.encode([LONG])
    windows = found[1]
    assert len(found[0]) == 1 and len(windows) > 2
    seen = np.full(30, -1)
    for window in windows:
        inner = ids(window)[1:-1]
        seen[window.start : window.start + len(inner)] = inner
        assert not window.truncated and len(window.input_ids) <= 12
    assert seen.tolist() == ids(whole)[1:-1]
    assert windows[-1].start + windows[-1].num_tokens == whole.num_tokens


def test_each_window_of_a_pair_begins_with_the_first_text(tiny):
    (windows,) = pieces(tiny, ("very good", LONG), rule="window")
    (first,) = tiny.encode(["very good"])
    assert all(ids(window)[: first.num_tokens] == ids(first) for window in windows)
    assert all(window.token_type_ids[-1] == 1 for window in windows)


def test_a_first_text_that_fills_the_window_is_refused_with_file_and_line(tiny):
    with pytest.raises(InputError, match=r"train.csv:4: the first text fills the 12 tokens"):
        pieces(tiny, SHORT, ("a", LONG), (LONG, "a"), rule="window")
