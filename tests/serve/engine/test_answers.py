"""What an engine answers: what its predictor would, whoever else asks."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from filbert.errors import InputError
from filbert.serve.engine import Engine

# float32, of numbers below three, in another order of sums.
TOLERANCE = 1e-6


def test_every_answer_is_the_same_alone_and_in_company(predictors, gate, texts, with_engine):
    predictor = predictors["masks"]
    rows = texts(200)
    masked = [f"{text} [MASK]" for text in rows[:20]]
    vectors = np.stack([predictor.embed([text])[0] for text in rows])
    words = [predictor.fill(text) for text in masked]

    async def story(engine: Engine) -> None:
        await gate.held(engine)
        asked = [("embed", [text]) for text in rows] + [("embed", rows), ("fill", masked)]
        tasks = [asyncio.create_task(engine.run(*one)) for one in asked]
        await gate.queued(engine, 420)
        gate.open.set()
        *alone, together, filled = await asyncio.gather(*tasks)
        for answers in (together.items, [one.items[0] for one in alone]):
            found = np.stack([done.value for done in answers])
            assert np.abs(found - vectors).max() < TOLERANCE
        for done, wanted in zip(filled.items, words, strict=True):
            assert done.value["num_tokens"] == wanted["num_tokens"]
            for own, best in zip(done.value["candidates"][0], wanted["candidates"][0], strict=True):
                assert own["token"] == best["token"]
                assert own["score"] == pytest.approx(best["score"], abs=TOLERANCE)

    notes = with_engine(predictor, story)
    # They were in company: with one batch a request there would be more than 200.
    assert len(notes.batches) < 20


def test_short_and_long_texts_share_batches_without_padding(predictors, texts, with_engine):
    rows = texts(50)
    lengths = [len(e.input_ids) for e in predictors["vectors"].tokenizer.encode(rows)]

    async def story(engine: Engine) -> None:
        answers = await engine.run("embed", rows)
        assert answers.tokens == sum(lengths)
        assert [done.num_tokens for done in answers.items] == lengths

    notes = with_engine(predictors["vectors"], story, max_batch_tokens=200)
    assert sum(tokens for _, tokens, _ in notes.batches) == sum(lengths)
    assert all(tokens <= 200 for _, tokens, _ in notes.batches)
    assert sum(tokens > 150 for _, tokens, _ in notes.batches) >= len(notes.batches) - 2


def test_a_wrong_input_is_named_by_its_number_in_the_request(predictors, texts, with_engine):
    async def story(engine: Engine) -> None:
        with pytest.raises(InputError, match="Item 300 "):
            await engine.run("embed", [*texts(300), 3, *texts(10)])
        with pytest.raises(InputError, match="Item 300 "):
            await engine.run("predict", [*texts(300), 3])
        assert engine.waiting() == (0, 0)
        assert (await engine.run("embed", [])).items == []

    with_engine(predictors["classes"], story)
