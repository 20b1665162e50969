"""An engine's life: checked while it runs, and stopped without losing what it has."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from filbert.data.examples import Example
from filbert.inference.predictor import Predictor
from filbert.serve.engine import Engine
from filbert.serve.engine import _Request as Request
from filbert.serve.errors import Refusal


def test_an_engine_that_closes_answers_what_it_has_and_takes_no_more(
    predictors, gate, texts, with_engine
):
    async def story(engine: Engine) -> None:
        await gate.held(engine)
        running = asyncio.create_task(engine.run("embed", texts(300)))
        await gate.queued(engine, 300)
        closing = asyncio.create_task(engine.close(30))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="stopping"):
            await engine.run("embed", ["film"])
        gate.open.set()
        await closing
        assert len((await running).items) == 300
        with pytest.raises(Refusal, match="stopping"):
            await engine.check()

    assert with_engine(predictors["vectors"], story).lost == 0


def test_what_is_not_done_in_the_time_of_grace_is_told_so(predictors, gate, texts, with_engine):
    async def story(engine: Engine) -> None:
        held = await gate.held(engine)
        waiting = asyncio.create_task(engine.run("embed", texts(3)))
        await gate.queued(engine, 3)
        closing = asyncio.create_task(engine.close(0.05))
        with pytest.raises(Refusal, match="stopping"):
            await waiting
        gate.open.set()
        await closing
        # Its batch could not be stopped.
        assert len((await held).items) == 1

    with_engine(predictors["vectors"], story)


def test_a_check_runs_the_model_even_when_it_is_overloaded(predictors, gate, texts, with_engine):
    async def story(engine: Engine) -> None:
        await gate.held(engine)
        large = asyncio.create_task(engine.run("embed", texts(1000)))
        await gate.queued(engine, 1000)
        checked = asyncio.create_task(engine.check())
        await gate.queued(engine, 1001)
        assert not checked.done()
        gate.open.set()
        await checked
        assert not large.done()

    with_engine(predictors["vectors"], story, max_batch_tokens=64, max_queue_tokens=1)


def test_a_check_sees_a_model_that_gives_no_numbers(predictors, with_engine):
    predictor = Predictor(predictors["classes"].model, predictors["classes"].tokenizer)
    head = predictor.model.head
    assert head is not None

    async def story(engine: Engine) -> None:
        await engine.check()
        hook = head.register_forward_hook(lambda *call: call[-1] * float("nan"))
        try:
            with pytest.raises(Refusal, match="not finite"):
                await engine.check()
        finally:
            hook.remove()

    with_engine(predictor, story)


def test_nothing_stays_behind_after_a_storm(
    predictors,
    monkeypatch,
    texts,
    with_engine,
):
    draw, rows = random.Random(1), texts(400)
    ends: Counter[str] = Counter()
    real = Predictor.vectors
    # Of other tests: pytest keeps what is logged, and with a traceback all that it leads to.
    others = {id(thing) for thing in gc.get_objects() if type(thing) is Request}

    def vectors(predictor: Predictor, examples: Sequence[Example], **options: Any) -> Any:
        if any(len(example.input_ids) == 20 for example in examples):
            raise RuntimeError("out of memory")
        return real(predictor, examples, **options)

    async def client(engine: Engine) -> None:
        inputs: list[Any] = draw.sample(rows, draw.choice([1, 2, 30]))
        kind = draw.choice(["embed", "embed", "fill", "attention"])
        if kind == "fill":
            inputs = [f"{text} [MASK]" for text in inputs[:5]]
        if draw.random() < 0.1:
            inputs = [*inputs, None]
        task = asyncio.create_task(
            engine.run(kind, inputs, seconds=draw.choice([0.001, None, None]))
        )
        if draw.random() < 0.2:
            await asyncio.sleep(draw.random() / 100)
            task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        ends[str(getattr(end, "status_code", type(end).__name__))] += 1

    async def story(engine: Engine) -> None:
        await asyncio.gather(*(client(engine) for _ in range(80)))
        assert engine.waiting() == (0, 0)
        assert not engine._requests
        assert len((await engine.run("embed", rows[:1])).items) == 1

    monkeypatch.setattr(Predictor, "vectors", vectors)
    monkeypatch.setattr(logging.getLogger("filbert.serve.engine"), "disabled", True)
    with_engine(predictors["masks"], story, max_batch_tokens=256, max_queue_tokens=5_000)
    assert set(ends) >= {"Results", "InputError", "424", "503", "CancelledError"}
    gc.collect()
    left = [thing for thing in gc.get_objects() if type(thing) is Request]
    assert not [thing for thing in left if id(thing) not in others]
