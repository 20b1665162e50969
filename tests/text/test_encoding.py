"""What a template and a model must have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from filbert.errors import ConfigError, FormatError
from filbert.text.tokenizer import Tokenizer


def edited(vocab: Path, folder: Path, change) -> Tokenizer:
    """The tiny tokenizer with `change` applied to the content of its tokenizer.json."""
    Tokenizer.load(vocab).save(folder)
    path = folder / "tokenizer.json"
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    return Tokenizer.load(folder)


def without_specials(content: dict[str, Any]) -> None:
    content["post_processor"] = None


def without_specials_and_names(content: dict[str, Any]) -> None:
    without_specials(content)
    content["model"] = {"type": "BPE", "vocab": {"a": 0, "the": 1}, "merges": []}
    content["added_tokens"] = []


def test_a_tokenizer_fits_a_table_of_its_size_and_not_a_smaller_one(tiny):
    assert tiny.check_fits(tiny.vocab_size, 2, Path("model")) == ()
    with pytest.raises(FormatError, match="model: the tokenizer uses the id 33, .* 33 rows"):
        tiny.check_fits(33, 2, Path("model"))


def test_a_token_type_beyond_the_table_is_refused(vocab, tmp_path):
    def change(content):
        content["post_processor"]["pair"][3]["Sequence"]["type_id"] = 3

    tokenizer = edited(vocab, tmp_path, change)
    tokenizer.check_fits(40, 4, tmp_path)
    with pytest.raises(FormatError, match="token type 3, .* 2 types"):
        tokenizer.check_fits(40, 2, tmp_path)


@pytest.mark.parametrize("types", [0, 1])
def test_for_a_model_without_a_second_type_all_types_are_0(vocab, types):
    tokenizer = Tokenizer.load(vocab)
    assert tokenizer.encode([("the", "film")])[0].token_type_ids.any()
    assert tokenizer.pair_has_types
    tokenizer.check_fits(40, types, vocab)
    assert not tokenizer.pair_has_types
    (pair,) = tokenizer.encode([("the", "film")])
    ((window,),) = tokenizer.windows([("the", "film")], max_length=8, stride=2)
    for encoding in (pair, window):
        assert encoding.token_type_ids.tolist() == [0] * 5
        assert tokenizer.tokens(encoding.input_ids)[2] == "[SEP]"


def test_without_special_tokens_an_empty_text_is_one_unknown_token(vocab, tmp_path):
    tokenizer = edited(vocab, tmp_path, without_specials)
    tokenizer.check_fits(40, 2, tmp_path)
    empty, blank, pair, half = tokenizer.encode(["", " ", ("", ""), ("", "the")], with_offsets=True)
    for encoding in (empty, blank, pair):
        assert tokenizer.tokens(encoding.input_ids) == ["[UNK]"]
        assert encoding.num_tokens == 1 and encoding.offsets.tolist() == [[0, 0]]
        assert encoding.words.tolist() == [-1]
    assert tokenizer.tokens(half.input_ids) == ["the"]
    ((window,),) = tokenizer.windows([""], max_length=3, stride=1)
    assert tokenizer.tokens(window.input_ids) == ["[UNK]"]
    with pytest.raises(ConfigError, match="Give at least 1"):
        tokenizer.encode([""], max_length=0)


def test_without_special_tokens_and_an_unknown_one_no_model_fits(vocab, tmp_path):
    tokenizer = edited(vocab, tmp_path, without_specials_and_names)
    with pytest.raises(FormatError, match="an empty text would be no token at all"):
        tokenizer.check_fits(40, 2, tmp_path)


def test_the_template_holds_the_special_tokens_around_one_text_and_two(tiny):
    cls, sep = (tiny.cls_id,), (tiny.sep_id,)
    assert tiny.template(pair=False).specials == (cls, sep)
    assert tiny.template(pair=True).specials == (cls, sep, sep)
    assert tiny.template(pair=True).types == (0, 1)
