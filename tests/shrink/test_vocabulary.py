from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from filbert.batch import pack
from filbert.checkpoints import huggingface
from filbert.errors import ConfigError
from filbert.shrink.vocabulary import cut_vocabulary

TEXTS = ["the film was good", "she sees films"]


def test_a_masked_lm_head_scores_the_kept_entries_as_before(drawn, tiny):
    checkpoint = drawn("masked_lm", vocab_size=64)
    checkpoint.tensors["head.bias"] += torch.randn(64)
    cut = cut_vocabulary(checkpoint, tiny, lambda: TEXTS)
    kept = [tiny.id_of(text) for text in cut.tokenizer.tokens(range(cut.tokenizer.vocab_size))]
    before = tiny.encode(TEXTS)
    after = cut.tokenizer.encode(TEXTS)
    whole = checkpoint.build()(pack([e.input_ids for e in before]))
    small = cut.checkpoint.build()(pack([e.input_ids for e in after]))
    # A product over fewer rows may be summed in another order.
    assert (small - whole[:, kept]).abs().max() < 1e-5
    assert cut.checkpoint.config.vocab_size == cut.facts["entries"] == len(kept) < 34
    assert cut.facts["texts_cut_otherwise"] == 0


def test_ids_in_config_json_follow_their_tokens(drawn, tiny, tmp_path):
    ids = {"mask_token_id": 4, "sep_token_id": 3, "bos_token_id": 33}
    checkpoint = replace(drawn(vocab_size=34), extra={**ids, "tokenizer_class": "X"})
    cut = cut_vocabulary(checkpoint, tiny, lambda: TEXTS, size=30)
    assert cut.checkpoint.extra["mask_token_id"] == cut.tokenizer.mask_id
    assert cut.checkpoint.extra["sep_token_id"] == cut.tokenizer.sep_id
    # The entry "3" has gone.
    assert "bos_token_id" not in cut.checkpoint.extra
    assert cut.checkpoint.extra["tokenizer_class"] == "X"
    huggingface.write(cut.checkpoint, tmp_path)


def test_rare_entries_go_first_and_the_facts_say_what_that_costs(drawn, tiny):
    texts = ["the film was good"] * 3 + ["he plays"]
    cut = cut_vocabulary(drawn(vocab_size=34), tiny, lambda: texts, min_count=2)
    assert cut.tokenizer.id_of("film") is not None
    assert cut.tokenizer.id_of("play") is None
    assert cut.facts["texts_cut_otherwise"] == 1
    assert cut.facts["corpus_tokens_before"] == 3 * 6 + 5


def test_odd_numbers_and_a_padding_token_that_positions_hang_on_are_refused(drawn, tiny):
    with pytest.raises(ConfigError, match="min_count is 0"):
        cut_vocabulary(drawn(), tiny, lambda: TEXTS, min_count=0)
    # Its positions begin behind a padding token that is said to be at id 5.
    shifted = drawn(vocab_size=64, position_offset=6)
    with pytest.raises(ConfigError, match="padding token would move"):
        cut_vocabulary(shifted, tiny, lambda: TEXTS)
