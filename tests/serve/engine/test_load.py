"""An engine under load: who comes first, who is refused, and what fails alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from filbert.inference.predictor import Predictor
from filbert.serve.engine import Engine
from filbert.serve.errors import Refusal


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, length: int) -> Iterator[list[int]]:
    """A model that fails on every batch with a sequence of a length; the sizes of its batches."""
    real, sizes = Predictor.vectors, []

    def vectors(predictor: Predictor, examples: Sequence[Any], **options: Any) -> Any:
        sizes.append(len(examples))
        if any(len(example.input_ids) == length for example in examples):
            raise RuntimeError("out of memory")
        return real(predictor, examples, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "vectors", vectors)
        yield sizes


def test_what_fails_fails_alone(
    predictors,
    gate,
    monkeypatch,
    with_engine,
):
    good, bad = ["film"] * 20, "film film film film"

    async def story(engine: Engine) -> None:
        await gate.held(engine)
        with failing(monkeypatch, 6) as sizes:
            sent = [engine.run("embed", ["film"]), engine.run("embed", [*good, bad, *good])]
            tasks = [asyncio.create_task(one) for one in sent]
            await gate.queued(engine, 42)
            gate.open.set()
            fine, broken = await asyncio.gather(*tasks, return_exceptions=True)
        assert not isinstance(fine, BaseException)
        assert isinstance(broken, Refusal) and broken.status_code == 424
        assert isinstance(broken.__cause__, RuntimeError)
        # Halved until it was found: no retry of every sequence.
        assert len(sizes) < 15
        assert len((await engine.run("embed", [bad])).items) == 1

    with_engine(predictors["vectors"], story)


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [({"max_queue_tokens": 100}, None), ({}, 1e-6)],
    ids=["tokens", "the request's own time"],
)
def test_what_others_would_hold_up_for_too_long_is_refused_at_once(
    predictors,
    gate,
    limits,
    seconds,
    texts,
    with_engine,
):
    async def story(engine: Engine) -> None:
        gate.open.set()
        await engine.run("embed", ["film " * 30])  # its speed is known now
        gate.open.clear()
        gate.reached.clear()
        await gate.held(engine)
        first = asyncio.create_task(engine.run("embed", texts(50)))
        await gate.queued(engine, 50)
        with pytest.raises(Refusal) as refused:
            await engine.run("embed", texts(50), seconds=seconds)
        assert refused.value.status_code == 429
        assert 1 <= int(refused.value.headers["Retry-After"]) <= 10
        assert engine.waiting()[0] == 50
        # It takes turns with the large one, so that hardly anything is before it.
        small = asyncio.create_task(engine.run("embed", ["film"]))
        await gate.queued(engine, 51)
        gate.open.set()
        await asyncio.gather(first, small)
        await engine.run("embed", texts(50))

    with_engine(predictors["vectors"], story, max_batch_tokens=64, **limits)


def test_a_small_request_is_refused_when_the_turns_of_many_others_come_first(
    predictors, gate, with_engine
):
    async def story(engine: Engine) -> None:
        await gate.held(engine)
        others = []
        for number in range(10):
            others.append(asyncio.create_task(engine.run("embed", ["film " * 5])))
            await gate.queued(engine, number + 1)
        # It has three tokens and each of them seven, but a turn is eight: all are read first.
        with pytest.raises(Refusal, match="overloaded"):
            await engine.run("embed", ["film"])
        gate.open.set()
        await asyncio.gather(*others)

    with_engine(predictors["vectors"], story, max_batch_tokens=64, max_queue_tokens=1)
