"""Stories about one engine over a tiny model, without a server around it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from threading import Event, current_thread
from typing import Any

import pytest

from filbert.inference.predictor import Predictor
from filbert.serve.engine import Engine
from filbert.serve.metrics import Metrics
from filbert.serve.settings import ModelSettings

WORDS = ["the", "a", "film", "was", "not", "very", "good", "bad", "and", "he", "playing"]


def _texts(count: int, *, longest: int = 40) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)]


@pytest.fixture(scope="session")
def texts() -> Callable[..., list[str]]:
    """So many texts of 1 to `longest` words."""
    return _texts


class Counts(Metrics):
    """What an engine counted."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[int, int, int]] = []
        self.lost = 0

    def batch(self, model: str, *, rows: int, tokens: int, capacity: int, seconds: float) -> None:
        self.batches.append((rows, tokens, capacity))

    def dropped(self, model: str, rows: int) -> None:
        self.lost += rows


def _with_engine(
    predictor: Predictor,
    story: Callable[[Engine], Coroutine[Any, Any, None]],
    *,
    counts: Metrics | None = None,
    **batching: Any,
) -> Any:
    counts = counts or Counts()

    async def run() -> None:
        engine = Engine("tiny", predictor, settings=ModelSettings(**batching), metrics=counts)
        engine.start()
        try:
            await asyncio.wait_for(story(engine), 60)
        finally:
            await engine.close(0)

    asyncio.run(run())
    return counts


@pytest.fixture(scope="session")
def with_engine() -> Callable[..., Any]:
    """Runs a story, a coroutine of an engine, and gives what the engine told meanwhile."""
    return _with_engine


class Gate:
    """Holds the model's thread before every batch of vectors, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.reached = Event(), Event()
        self.seen: list[int] = []
        real = Predictor.vectors

        def vectors(predictor: Predictor, examples: Sequence[Any], **options: Any) -> Any:
            if current_thread().name.startswith("model "):
                self.reached.set()
                assert self.open.wait(30)
                self.seen += [len(example.input_ids) for example in examples]
            return real(predictor, examples, **options)

        monkeypatch.setattr(Predictor, "vectors", vectors)

    async def held(self, engine: Engine) -> asyncio.Task[Any]:
        """A request whose batch is in the model and stays there."""
        task = asyncio.create_task(engine.run("embed", ["good"]))
        while not self.reached.is_set():
            await asyncio.sleep(0.001)
        return task

    async def queued(self, engine: Engine, rows: int) -> None:
        """Until so many sequences wait behind it."""
        while engine.waiting()[0] != rows:
            await asyncio.sleep(0.001)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open.set()
