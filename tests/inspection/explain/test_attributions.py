"""Shares of words: identities that must hold, and hand-computed ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from filbert.batch import PackedBatch
from filbert.errors import ConfigError
from filbert.inspection.attributions import METHODS, Explanation, explain, explained
from filbert.inspection.claim_kinds import claim_of
from filbert.inspection.claims import Claim
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.tasks.classification import Classification

Draw = Callable[..., Predictor]

TEXT = "the film was not very good, and he played badly!"


@pytest.fixture(scope="module")
def judge(drawn: Draw) -> Predictor:
    task = Classification(labels=("neg", "pos", "so"), temperature=0.7)
    return drawn("sequence", task)


@pytest.fixture(scope="module")
def found(judge: Predictor) -> dict[str, Explanation]:
    return {method: explain(judge, TEXT, method=method) for method in METHODS}


def of_vectors(claim: Claim, number: Callable[[Tensor], Tensor]) -> Claim:
    """The claim with a number that is made of the word vectors alone, (S, n, E) to (S,)."""

    def output(model: Model, batch: PackedBatch) -> Tensor:
        vectors: Tensor = model.encoder.embeddings.word(batch.input_ids)
        return vectors.view(-1, claim.num_tokens, vectors.shape[-1])

    return replace(claim, output=output, number=lambda vectors: number(vectors.double()))


def ends(judge: Predictor, claim: Claim) -> tuple[Tensor, Tensor]:
    """The word vectors of the text, and of the mask for every token of a word."""
    table = judge.model.encoder.embeddings.word.weight.detach().double()
    text = table[claim.batch(1).input_ids]
    masked = text.clone()
    masked[[row for word in claim.words for row in word.rows]] = table[judge.tokenizer.mask_id]
    return masked, text


def test_of_a_linear_number_every_method_gives_the_weights_times_the_difference(
    judge: Predictor,
) -> None:
    claim = claim_of(judge, TEXT)
    masked, text = ends(judge, claim)
    weights = torch.randn(text.shape, dtype=torch.float64, generator=torch.manual_seed(0))
    linear = of_vectors(claim, lambda x: (x * weights).sum((1, 2)))
    by_token = {
        "integrated-gradients": (text - masked) * weights,
        "leave-one-out": (text - masked) * weights,
        "gradient": text * weights,
    }
    for method, wanted in by_token.items():
        one = explained(judge, linear, method=method)
        shares = [float(wanted[list(word.rows)].sum()) for word in claim.words]
        assert one.shares == pytest.approx(shares, abs=1e-6)  # vectors are float32


def test_integrated_gradients_of_a_product_are_shared_as_by_hand(judge: Predictor) -> None:
    """Of x * y from (a, b) to (c, d): (c - a) (b + d) / 2 for x and (d - b) (a + c) / 2 for y."""
    claim = claim_of(judge, TEXT)
    masked, text = ends(judge, claim)
    (first,), (second,) = claim.words[1].rows, claim.words[5].rows
    product = of_vectors(claim, lambda x: x[:, first, 0] * x[:, second, 1])
    one = explained(judge, product, steps=2)
    a, c = float(masked[first, 0]), float(text[first, 0])
    b, d = float(masked[second, 1]), float(text[second, 1])
    wanted = np.zeros(len(claim.words))
    wanted[1], wanted[5] = (c - a) * (b + d) / 2, (d - b) * (a + c) / 2
    assert one.shares == pytest.approx(wanted, abs=1e-6)
    assert one.difference == pytest.approx(c * d - a * b, abs=1e-6)


def test_integrated_gradients_add_up_to_the_difference_and_specials_get_nothing(
    judge: Predictor,
) -> None:
    usual, fine = explain(judge, TEXT), explain(judge, TEXT, steps=64)
    for one, share in ((usual, 0.01), (fine, 1e-4)):  # 1e-4: float32 gradients, smooth path
        assert one.error is not None and one.difference is not None
        assert abs(one.error) <= share * abs(one.difference)
        assert one.specials == 0.0
        assert one.shares.sum() == pytest.approx(one.pieces.sum())
    assert abs(fine.difference or 0.0) > 0.1


def test_steps_grow_until_the_error_is_below_one_percent(judge: Predictor) -> None:
    claim = claim_of(judge, TEXT)
    sharp = replace(claim, number=lambda logits: torch.sigmoid(300 * (claim.number(logits) + 0.69)))
    one = explained(judge, sharp)
    assert one.steps is not None and one.steps > 16
    assert abs(one.error or 0.0) <= 0.01 * abs(one.difference or 0.0) or one.steps == 256


def test_leaving_a_word_out_is_predicting_the_text_with_masks_in_its_place(
    judge: Predictor, found: dict[str, Explanation]
) -> None:
    one = found["leave-one-out"]
    label = one.claim.target

    def odds(text: str) -> float:
        share = judge.predict([text])[0]["scores"][label]
        return math.log(share / (1 - share))

    for word, share in zip(one.claim.words, one.shares, strict=True):
        masks = " ".join(["[MASK]"] * len(word.rows))
        without = f"{TEXT[: word.start]} {masks} {TEXT[word.end :]}"
        assert share == pytest.approx(odds(TEXT) - odds(without), abs=1e-4)  # scores are float32


def test_a_word_of_several_pieces_gets_their_sum(found: dict[str, Explanation]) -> None:
    for one in found.values():
        (word, share) = next(
            (word, share)
            for word, share in zip(one.claim.words, one.shares, strict=True)
            if word.text == "played"
        )
        assert len(word.rows) == 2
        assert share == pytest.approx(one.pieces[list(word.rows)].sum())


@pytest.mark.parametrize("baseline", ["pad", "zero"])
def test_another_baseline_gives_other_shares_that_add_up_too(
    judge: Predictor, found: dict[str, Explanation], baseline: str
) -> None:
    one = explain(judge, TEXT, baseline=baseline)
    assert one.baseline == baseline
    assert not np.allclose(one.shares, found["integrated-gradients"].shares, atol=1e-3)
    assert abs(one.error or 1.0) <= 0.01 * abs(one.difference or 0.0)


def test_rollout_gives_parts_of_one_and_is_the_same_for_every_label(judge: Predictor) -> None:
    one, other = (explain(judge, TEXT, method="rollout", target=t) for t in ("neg", "pos"))
    assert (one.pieces >= 0).all()
    assert one.pieces.sum() == pytest.approx(1.0)
    assert np.array_equal(one.pieces, other.pieces)
    assert one.value is None and one.error is None


def test_explaining_leaves_the_model_as_it_was(judge: Predictor) -> None:
    before = judge.predict([TEXT])
    for method in METHODS:
        explain(judge, TEXT, method=method)
    assert judge.predict([TEXT]) == before
    model = judge.model
    assert isinstance(model, Model)
    assert not model.encoder.embeddings.word._forward_hooks
    assert all(part.grad is None for part in model.parameters())


def test_json_holds_every_word_with_its_place_and_pieces(found: dict[str, Explanation]) -> None:
    for method, one in found.items():
        content = one.to_dict()
        assert content["method"] == method
        assert [TEXT[word["start"] : word["end"]] for word in content["words"]] == [
            word["text"] for word in content["words"]
        ]
        pieces = sum(p["share"] for word in content["words"] for p in word["pieces"])
        assert pieces + content["specials"] == pytest.approx(content["sum"])
        assert (content["error"] is None) == (method == "rollout")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "gradients"}, "Did you mean 'gradient'"),
        ({"baseline": "noise"}, "not one of mask, pad, zero"),
        ({"method": "gradient", "baseline": "zero"}, "no meaning for gradient"),
        ({"method": "rollout", "steps": 8}, "--steps are those of integrated-gradients"),
        ({"steps": 0}, "1 to 10,000"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_a_sentence(
    judge: Predictor, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        explain(judge, TEXT, **options)  # type: ignore[arg-type]


def test_a_model_in_integers_is_refused(judge: Predictor) -> None:
    rounded = Predictor(judge.model, judge.tokenizer, judge.task)
    rounded.precision = rounded.precision._replace(name="int8")
    with pytest.raises(ConfigError, match="original model in float32"):
        explain(rounded, TEXT)
