"""Held-out figures: the same text and masks give the same figures, however they are computed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import sizes
from tests.corpora import write_corpus

from filbert.checkpoints.fresh import fresh_checkpoint, replaced_model
from filbert.data.examples import Example, collate
from filbert.data.instances import ObjectiveOptions, fixed_examples
from filbert.data.masking import MaskedRow
from filbert.data.shards import Corpus
from filbert.inference.masked_text import measure
from filbert.model.precision import Precision
from filbert.tasks.pretraining import Pretraining, ReplacedTokens

PLAIN = Precision("float32", "exact")
SIZES: dict[str, Any] = sizes(layers=2, width=16, heads=2, positions=40)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    draw = np.random.default_rng(0)
    documents = [
        [draw.integers(5, 34, draw.integers(1, 13)).tolist() for _ in range(draw.integers(1, 9))]
        for _ in range(30)
    ]
    return write_corpus(tmp_path_factory.mktemp("corpus"), documents)


def model_of(tiny, head, family="bert", **more):
    """With dropout of a half, so that measuring with it would show."""
    torch.manual_seed(1)
    checkpoint = fresh_checkpoint(
        family, vocab_size=tiny.vocab_size, head=head, **SIZES | {"dropout": 0.5} | more
    )
    checkpoint.tensors = {n: 0.3 * torch.randn_like(t) for n, t in checkpoint.tensors.items()}
    return checkpoint.build() if head != "discriminator" else replaced_model(checkpoint)


@pytest.mark.parametrize("pair", ["none", "nsp", "sop"])
def test_the_figures_do_not_hang_on_how_many_tokens_a_batch_has(corpus, tiny, pair):
    task = Pretraining(pair=pair)
    model = model_of(tiny, task.head_kind)
    model.train()
    options = ObjectiveOptions(max_length=24, pair=pair, masking="word")
    examples = fixed_examples(corpus, tiny, options, limit=25)
    found = [measure(model, task, examples, max_tokens=n, precision=PLAIN) for n in (1, 90, 9000)]
    # Sums of some hundred float32 numbers in another order.
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert found[0] == pytest.approx(found[2], rel=1e-6)
    assert model.training, "it goes on training"
    assert found[0]["perplexity"] == math.exp(found[0]["mlm_loss"])
    keys = {"mlm_loss", "mlm_accuracy", "perplexity"}
    pairs = set() if pair == "none" else {f"{pair}_loss", f"{pair}_accuracy"}
    assert found[0].keys() == keys | pairs


def test_many_masked_words_are_summed_as_few_are(corpus, tiny, monkeypatch):
    task, options = Pretraining(), ObjectiveOptions(max_length=24)
    model, examples = model_of(tiny, "masked_lm"), fixed_examples(corpus, tiny, options)
    whole = measure(model, task, examples, max_tokens=9000, precision=PLAIN)
    monkeypatch.setattr("filbert.inference.masked_text._MOST_ROWS", 7)
    parts = measure(model, task, examples, max_tokens=9000, precision=PLAIN)
    assert parts == pytest.approx(whole, rel=1e-6)


def test_accuracy_counts_the_masked_words_that_come_first(tiny):
    model = model_of(tiny, "masked_lm").eval()
    ids = np.array([2, 4, 6, 4, 3])
    at = np.array([1, 3])
    with torch.no_grad():
        row = Example(0, ids, np.zeros(5, np.int64), 5, MaskedRow(at, at, None))
        best = model(collate([row]), torch.from_numpy(at)).argmax(-1).numpy()
    for labels, wanted in ((best, 1.0), (np.array([best[0], (best[1] + 1) % 30]), 0.5)):
        row = replace(row, target=MaskedRow(at, labels, None))
        found = measure(model, Pretraining(), [row], max_tokens=100, precision=PLAIN)
        assert found["mlm_accuracy"] == wanted


def test_a_hopeless_model_has_a_perplexity_that_json_can_hold(corpus, tiny):
    model = model_of(tiny, "masked_lm")
    with torch.no_grad():
        model.head.bias[0] = 5000.0
    examples = fixed_examples(corpus, tiny, ObjectiveOptions(max_length=24), limit=5)
    found = measure(model, Pretraining(), examples, max_tokens=99, precision=PLAIN)
    assert found["mlm_loss"] > 700 and math.isfinite(found["perplexity"])


def test_replaced_tokens_are_measured_with_the_same_samples_every_time(corpus, tiny):
    model = model_of(tiny, "discriminator", "electra", embedding_size=8)
    options = ObjectiveOptions(max_length=24, mask_style="electra")
    examples = fixed_examples(corpus, tiny, options, limit=25)
    found = []
    for most in (90, 9000):
        torch.rand(3)
        task = ReplacedTokens()
        found.append(measure(model, task, examples, max_tokens=most, precision=PLAIN))
    assert found[0] == found[1]
    assert found[0].keys() == {
        "mlm_loss",
        "mlm_accuracy",
        "perplexity",
        "replaced_loss",
        "replaced_accuracy",
    }
    assert 0 < found[0]["replaced_accuracy"] < 1
