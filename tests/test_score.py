"""score: each token masked in turn, beside a plain loop; nothing is lost in silence."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import filbert
from filbert.batch import pack
from filbert.inference.predictor import Predictor
from filbert.inference.score import score_texts

TEXTS = ["the film was very good .", "He played, 2 times", "", "zebra film"]


@pytest.fixture(scope="module")
def model(masked_lm: Path) -> Predictor:
    return Predictor.load(masked_lm, device="cpu")


def by_loop(model: Predictor, text: str, room: int = 62) -> list[float]:
    """One sequence a token, by the whole head: the token in the middle of `room` others."""
    (encoding,) = model.tokenizer.encode([text])
    first, *words, last = encoding.input_ids.tolist()
    logs = []
    for place, word in enumerate(words):
        begin = max(0, min(place - room // 2, len(words) - room))
        masked = [*words[:place], model.tokenizer.mask_id, *words[place + 1 :]]
        ids = np.array([first, *masked[begin : begin + room], last])
        with torch.no_grad():
            logits = model.model(pack([ids], [np.zeros_like(ids)]))
        logs.append(float(logits[place - begin + 1].log_softmax(-1)[word]))
    return logs


def test_a_score_is_the_sum_of_what_a_plain_loop_gives(model):
    answers = model.score(TEXTS)
    for text, answer in zip(TEXTS, answers, strict=True):
        logs = by_loop(model, text)
        # Another number of rows may pick another kernel; the bound of fill.
        assert answer["pll"] == pytest.approx(sum(logs), abs=1e-5)
        assert (answer["num_scored"], answer["num_tokens"]) == (len(logs), len(logs) + 2)
        assert not answer["truncated"]
        if logs:
            assert answer["perplexity"] == pytest.approx(math.exp(-sum(logs) / len(logs)), rel=1e-5)
    assert [a["num_unknown"] for a in answers] == [0, 1, 0, 1]
    assert (answers[2]["pll"], answers[2]["perplexity"]) == (0, None)
    assert model.score(TEXTS[0])["pll"] == pytest.approx(answers[0]["pll"], abs=1e-5)
    assert model.score([]) == []


def test_of_a_long_text_every_token_is_scored_with_what_is_around_it(model):
    text = "the film was very good and he played it . " * 9
    answer = model.score(text)
    assert (answer["truncated"], answer["num_scored"]) == (True, 99)
    assert answer["pll"] == pytest.approx(sum(by_loop(model, text)), abs=1e-4)
    short = Predictor(model.model, model.tokenizer, max_length=16).score(text)
    assert short["pll"] == pytest.approx(sum(by_loop(model, text, 14)), abs=1e-4)
    # The control: another window gives another figure.
    assert abs(short["pll"] - answer["pll"]) > 1e-2


def test_batches_and_chunks_change_nothing_and_their_share_is_told(model, monkeypatch):
    texts = [f"{'the ' * (7 * i % 11)}film good" for i in range(24)]
    whole = [answer["pll"] for answer in model.score(texts)]
    rows = []
    handle = model.model.head.norm.register_forward_hook(
        lambda _, given, out: rows.append(len(out))
    )
    monkeypatch.setattr("filbert.inference.fill._MOST_SCORES", 70)
    monkeypatch.setattr("filbert.inference.score._CHUNK_CHARACTERS", 100)
    monkeypatch.setattr("filbert.data.texts.CHUNK_ROWS", 10)
    shares = []
    narrow = Predictor(model.model, model.tokenizer, max_tokens=16)
    answers = list(score_texts(narrow, texts, on_share=lambda *told: shares.append(told)))
    handle.remove()
    assert [answer["pll"] for answer in answers] == pytest.approx(whole, abs=1e-5)
    assert sum(rows) == sum(answer["num_scored"] for answer in answers), "only masks are projected"
    assert sum(count for count, share in shares if share == 1) == len(texts)
    assert {0 < share <= 1 for _, share in shares} == {True}


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ("the [MASK]", r"Item 0 has the mask \[MASK\] in it: 'the \[MASK\]'\. Write the word"),
        (["film", 5], "Item 1 is a int; a text is expected"),
        ([("a", "pair")], "Item 0 is a tuple"),
    ],
)
def test_what_is_no_whole_text_is_refused_by_its_place(model, texts, sentence):
    with pytest.raises(filbert.InputError, match=sentence):
        model.score(texts)


def test_models_that_guess_no_words_are_refused_before_a_text_is_read(
    model, tiny_model, monkeypatch
):
    with pytest.raises(filbert.ConfigError, match="no masked-LM head"):
        Predictor.load(tiny_model, device="cpu").score(["film"])
    monkeypatch.setattr(model.tokenizer, "mask_id", None)
    with pytest.raises(filbert.FormatError, match="no mask token"):
        model.score(["film"])
    with pytest.raises(filbert.FormatError, match="no mask token"):
        model.score("film")
