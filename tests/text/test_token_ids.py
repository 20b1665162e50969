"""Token ids in place of a text."""

import numpy as np
import pytest

from filbert.errors import ConfigError, InputError
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import read_vocabulary

TEXT = "the film was very good"


@pytest.mark.parametrize("max_length", [None, 64, 7, 4, 3])
@pytest.mark.parametrize("specials", [True, False])
def test_ids_are_encoded_and_cut_as_their_text_is(tiny, max_length, specials):
    ids = tiny.encode([TEXT])[0].input_ids.tolist()
    (wanted,) = tiny.encode([TEXT], max_length=max_length)
    found = tiny.encode_ids(ids if specials else ids[1:-1], max_length=max_length)
    np.testing.assert_array_equal(found.input_ids, wanted.input_ids)
    np.testing.assert_array_equal(found.token_type_ids, wanted.token_type_ids)
    assert (found.num_tokens, found.truncated) == (wanted.num_tokens, wanted.truncated)


def test_special_tokens_on_one_side_only_are_part_of_the_text(tiny):
    assert tiny.encode_ids([tiny.cls_id, 7]).input_ids.tolist() == [2, 2, 7, 3]
    assert tiny.encode_ids([7, tiny.sep_id]).input_ids.tolist() == [2, 7, 3, 3]


def test_no_ids_are_an_empty_text_and_impossible_where_nothing_is_added(tiny, vocab):
    assert tiny.encode_ids([]).input_ids.tolist() == [2, 3]
    bare = read_vocabulary(vocab)
    bare.backend.post_processor = None
    plain = Tokenizer(bare)
    assert plain.encode_ids([7, 8]).input_ids.tolist() == [7, 8]
    with pytest.raises(InputError, match="is empty"):
        plain.encode_ids([])


def test_an_id_that_the_vocabulary_does_not_have_is_named(tiny):
    for wrong in (34, -1):
        with pytest.raises(InputError, match=f"Token id {wrong} is not among"):
            tiny.encode_ids([5, wrong])
    with pytest.raises(ConfigError, match="too short"):
        tiny.encode_ids([5], max_length=1)
