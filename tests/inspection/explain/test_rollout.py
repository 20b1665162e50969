"""Attention rollout by hand, and on heads that were pruned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from filbert.inspection.attributions import explain
from filbert.inspection.claim_kinds import claim_of
from filbert.inspection.maps import attention_maps
from filbert.inspection.rollout import rolled_out, rollout
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.tasks.classification import Classification
from filbert.tasks.span_qa import SpanQA
from filbert.tasks.tagging import Tagging

Draw = Callable[..., Predictor]


def test_two_layers_of_two_tokens_are_rolled_out_as_by_hand() -> None:
    maps = torch.tensor(
        [
            [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.5, 0.5]]],
            [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]],
        ]
    )
    # Means of the heads: ((0.5, 0.5), (0.25, 0.75)) and ((0, 1), (1, 0)); half of each and half of
    # the identity: ((0.75, 0.25), (0.125, 0.875)) and ((0.5, 0.5), (0.5, 0.5)); the second times
    # the first.
    wanted = torch.tensor([[0.4375, 0.5625], [0.4375, 0.5625]], dtype=torch.float64)
    assert torch.equal(rollout(maps), wanted)


def test_heads_that_a_layer_has_lost_count_for_nothing() -> None:
    maps = torch.softmax(torch.randn(2, 3, 5, 5, generator=torch.manual_seed(0)), -1)
    lost = torch.cat([maps, torch.zeros(2, 2, 5, 5)], 1)
    # Rounding of the division alone.
    assert torch.allclose(rollout(lost), rollout(maps), atol=1e-6)
    assert torch.allclose(rollout(lost).sum(-1), torch.ones(2, 5, dtype=torch.float64))


def test_the_row_is_that_of_the_token_which_the_head_reads(drawn: Draw) -> None:
    text = "the film was good"
    judge = drawn("sequence", Classification(labels=("neg", "pos")))
    tagger = drawn("tokens", Tagging(labels=("O", "B-x", "I-x")))
    for predictor, word, row in ((judge, None, 0), (tagger, "film", 2), (tagger, 4, 4)):
        one = explain(predictor, text, method="rollout", word=word)
        assert isinstance(predictor.model, Model)
        (maps,) = attention_maps(predictor.model, one.claim.batch(1))
        assert one.pieces == pytest.approx(rollout(maps)[row].numpy())


def test_an_answers_rows_are_those_of_its_start_and_its_end(drawn: Draw) -> None:
    pair = ("was it good?", "the film was very good and he was great")
    one = explain(drawn("spans", SpanQA()), pair, method="rollout", target="very good")
    model = drawn("spans", SpanQA()).model
    assert isinstance(model, Model)
    (maps,) = attention_maps(model, one.claim.batch(1))
    # [CLS] was it good ? [SEP] the film was very good ...
    assert one.claim.tokens[9:11] == ("very", "good")
    assert one.pieces == pytest.approx(rollout(maps)[[9, 10]].mean(0).numpy())


def test_what_reads_all_tokens_has_the_mean_of_all_rows(drawn: Draw) -> None:
    judge = drawn("sequence", Classification(labels=("neg", "pos")))
    assert isinstance(judge.model, Model)
    claim = claim_of(judge, "the film was good")
    rolled = rollout(attention_maps(judge.model, claim.batch(1))[0])
    judge.model.encoder.config = replace(judge.model.config, pooled="mean")
    assert rolled_out(judge.model, claim) == pytest.approx(rolled.mean(0).numpy())
