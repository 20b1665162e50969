"""An engine: one model, its queue and the thread that it runs in.

A request comes in on the event loop. Its inputs are tokenised in a small pool of threads, piece by
piece; their sequences wait in the queue; the model's thread takes batches of whatever waits; the
answers are put together when the last sequence of a piece is back. The model's thread never touches
an asyncio object but through `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from filbert.data.examples import Example
from filbert.errors import FilbertError
from filbert.predict import Predictor
from filbert.serve.cache import Cache, key_of
from filbert.serve.observer import Observer, Unobserved
from filbert.serve.pace import Pace
from filbert.serve.queue import Queue
from filbert.serve.request import Numbered, Piece, Queued, Request, likely_tokens, pieces_of
from filbert.serve.work import Done, Prepared, Probe, Work, abilities, check_lengths, work_of

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# Who comes while a batch runs has to wait for it: on two cores 0.2 seconds with MiniLM, 1 with
# BERT-base. Larger batches would hardly be faster there (docs/log.md).
_TOKENS_CPU = 2_048

_STOPPING = "The server is being stopped."


class Times(NamedTuple):
    """Where the time of a request went, in seconds.

    Attributes:
        tokenization: in the tokeniser.
        queue: from when the first sequence was queued to when it was taken into a batch.
        inference: from then to the last output.
        tokens: that the model read for it; none for kept answers.
    """

    tokenization: float = 0.0
    queue: float = 0.0
    inference: float = 0.0
    tokens: int = 0


class Answers(NamedTuple):
    """One answer an input, in order, and the time they took."""

    items: list[Done]
    times: Times


class Overloaded(Exception):
    """Too much waits already; nothing has been done.

    Attributes:
        retry_after: seconds after which it should be better.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"The model is overloaded. Try again in {retry_after:.0f} seconds.")
        self.retry_after = retry_after


class Late(Exception):
    """The time of the request was over before its answer was there."""


class Closed(Late):
    """The engine is being stopped."""


class Failed(Exception):
    """The model failed on this request; others are not concerned."""


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """How an engine batches, and how much it lets in.

    Attributes:
        max_batch_tokens: a batch is closed before it holds more. When not given, the predictor's
            `max_tokens`, on a processor at most 2,048.
        max_wait_ms: longest that a sequence waits for company, in milliseconds. It waits for no
            more requests than shared the batch before, and no longer than a quarter of its time.
        max_queue_tokens: a request is refused when others would have more tokens read before it.
            They take turns of an eighth of a batch, so that is of each what goes into the turns
            that it needs itself.
        max_queue_seconds: the same in seconds, by the speed at which the model has lately worked.
        max_input_tokens: an input is refused when the model would have to read more for it, as for
            a long text in windows.
        cache_size: answers that are kept; 0 for none.
        tokenization_workers: threads that tokenise.
    """

    max_batch_tokens: int | None = None
    max_wait_ms: float = 10.0
    max_queue_tokens: int = 1_000_000
    max_queue_seconds: float = 10.0
    max_input_tokens: int = 100_000
    cache_size: int = 0
    tokenization_workers: int = 2


class Engine:
    """A model that answers many requests at once. Its coroutines belong to one event loop.

    Args:
        name: by which requests name the model.
        predictor: the model.
        limits: how it batches, and what it lets in.
        observer: is told what happens.

    Attributes:
        predictor: a copy of the one given, with batches of `max_batch_tokens`.
        can: what the model can be asked for; see `work.abilities`.
        max_batch_tokens: tokens in a batch.
    """

    def __init__(
        self,
        name: str,
        predictor: Predictor,
        limits: EngineLimits | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or EngineLimits()
        on_cpu = predictor.device.type == "cpu"
        usual = min(predictor.max_tokens, _TOKENS_CPU) if on_cpu else predictor.max_tokens
        self.max_batch_tokens = self.limits.max_batch_tokens or usual
        # What the queue calls a batch shall be one for the model too; the caller's stays as it is.
        self.predictor = copy(predictor)
        self.predictor.max_tokens = self.max_batch_tokens
        self.can = abilities(self.predictor)
        self._observer: Observer = observer or Unobserved()
        self._queue: Queue[Queued] = Queue(self.max_batch_tokens, self.limits.max_wait_ms / 1000)
        self._cache = Cache(self.limits.cache_size) if self.limits.cache_size else None
        self._pool = ThreadPoolExecutor(self.limits.tokenization_workers, f"tokenize {name}")
        # A thread that hangs in the model must not keep the process from ending.
        self._thread = Thread(target=self._serve, name=f"model {name}", daemon=True)
        self._requests: set[Request] = set()
        self._expected = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._pace = Pace(self.max_batch_tokens)

    # Life

    def start(self) -> None:
        """Start the model's thread. On a GPU `Predictor.warm_up` should have run."""
        self._thread.start()

    async def close(self, grace: float) -> None:
        """Let no request in any more, give those that are in `grace` seconds, and stop."""
        self._closing = True
        end = time.perf_counter() + grace
        if self._requests:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace)
        for sequence in self._queue.close():
            sequence.piece.settle(Closed(_STOPPING))
        self._pool.shutdown(wait=False)
        if self._thread.is_alive():
            # A batch that runs cannot be stopped.
            rest = max(1.0, end - time.perf_counter())
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join, rest)

    def waiting(self) -> tuple[int, int]:
        """Sequences and tokens in the queue."""
        return self._queue.size

    async def check(self) -> None:
        """Run the model once, in its turn.

        Raises:
            Failed: it does not work.
            Closed: the engine is being stopped.
        """
        if not self._thread.is_alive():
            raise Closed(_STOPPING) if self._closing else Failed("The model does not run.")
        request = Request(Probe(self.predictor), [""])
        with self._counted(request):
            ((_, finite),) = await self._through(request, [(0, "")])
        if not finite.value:
            raise Failed("The model gives numbers that are not finite.")

    # Requests

    async def run(
        self,
        kind: str,
        inputs: Sequence[Any],
        *,
        seconds: float | None = None,
        most_tokens: int | None = None,
        **options: Any,
    ) -> Answers:
        """Answer all inputs of one request.

        Cancelling the task takes back what is still queued.

        Args:
            kind: what is asked; see `work.work_of`.
            inputs: what it is asked about.
            seconds: the time it may take.
            most_tokens: that all inputs may have together.
            options: of the kind.

        Raises:
            InputError, ConfigError: as the predictor raises them; more than `most_tokens`.
            Overloaded: too much waits already.
            Late: `seconds` are over, or (`Closed`) the engine is being stopped.
            Failed: the model fails on one of the inputs.
        """
        request = Request(work_of(self.predictor, kind, options), inputs, most_tokens)
        self._admit(request, seconds)
        with self._counted(request):
            try:
                return await asyncio.wait_for(self._answer(request, inputs), seconds)
            except asyncio.TimeoutError as error:
                raise Late(f"No answer within {seconds:g} seconds.") from error

    def _admit(self, request: Request, seconds: float | None) -> None:
        if self._closing:
            raise Closed(_STOPPING)
        pace = self._pace.known
        seconds = min(self.limits.max_queue_seconds, seconds or math.inf)
        most = min(self.limits.max_queue_tokens, seconds / pace if pace else math.inf)
        # As long as a single batch waits, nobody is held up.
        most = max(most, self.max_batch_tokens)
        if self._queue.size[1] + self._expected <= most:
            return
        # Requests take turns: until this one has had all of its own, so have the others.
        turns = math.ceil(request.left / self._queue.turn) * self._queue.turn
        ahead = sum(min(other.left, turns) for other in self._requests)
        if ahead > most:
            wait = min(pace * (ahead - most / 2), self.limits.max_queue_seconds)
            raise Overloaded(max(1.0, wait))

    @contextmanager
    def _counted(self, request: Request) -> Iterator[None]:
        """What a request has here, as long as it is answered."""
        self._requests.add(request)
        self._expected += request.expected
        try:
            yield
        finally:
            self._requests.discard(request)
            self._expected -= request.expected
            if self._closing and not self._requests:
                self._idle.set()
            if dropped := self._queue.drop(request.lane):
                self._observer.dropped(self.name, dropped)

    async def _answer(self, request: Request, inputs: Sequence[Any]) -> Answers:
        keys = self._keys(request.work, inputs)
        done = self._kept(keys)
        missing = [(i, item) for i, item in enumerate(inputs) if i not in done]
        for index, answer in await self._through(request, missing):
            done[index] = answer
            if self._cache is not None and index in keys:
                self._cache.put(keys[index], answer)
        items = [done[index] for index in range(len(inputs))]
        if not missing:
            return Answers(items, Times())
        times = Times(
            request.tokenization,
            request.began - request.queued,
            request.ended - request.began,
            request.tokens,
        )
        self._observer.tokenized(self.name, times.tokenization, times.tokens)
        self._observer.queued(self.name, times.queue)
        return Answers(items, times)

    def _keys(self, work: Work, inputs: Sequence[Any]) -> dict[int, Any]:
        if self._cache is None or not work.is_small:
            return {}
        keys = {index: key_of(work, item) for index, item in enumerate(inputs)}
        return {index: key for index, key in keys.items() if key is not None}

    def _kept(self, keys: Mapping[int, Any]) -> dict[int, Done]:
        found: dict[int, Done] = {}
        for index, key in keys.items():
            assert self._cache is not None
            kept: Done | None = self._cache.get(key)
            self._observer.cached(self.name, kept is not None)
            if kept is not None:
                found[index] = kept
        return found

    async def _through(
        self, request: Request, inputs: Sequence[Numbered]
    ) -> list[tuple[int, Done]]:
        """Numbered inputs through tokeniser, queue and model."""
        work, loop = request.work, asyncio.get_running_loop()
        sent: list[tuple[list[Numbered], Prepared, Piece]] = []
        for own in pieces_of(inputs):
            prepared, seconds = await self._in_pool(partial(_timed, work.prepare, own))
            request.tokenization += seconds
            check_lengths(own, prepared.examples, self.limits.max_input_tokens)
            piece = Piece(len(prepared.examples), loop)
            sent.append((own, prepared, piece))
            if not self._queue.put(request.queued_as(prepared.examples, piece)):
                raise Closed(_STOPPING)
            tokenized = sum(likely_tokens(item) for _, item in own)
            request.expected -= tokenized
            self._expected -= tokenized
        found: list[tuple[int, Done]] = []
        for own, prepared, piece in sent:
            outputs = await piece.outputs()
            if isinstance(outputs, Exception):
                if isinstance(outputs, FilbertError | Closed):
                    raise outputs
                raise Failed("The model failed on one of the inputs.") from outputs
            put_together = partial(work.answers, prepared, outputs)
            quick = request.is_quick(prepared)
            answers = put_together() if quick else await self._in_pool(put_together)
            found += zip((index for index, _ in own), answers, strict=True)
        return found

    async def _in_pool(self, call: Callable[[], _T]) -> _T:
        try:
            running = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError as error:  # the pool has been shut down
            raise Closed(_STOPPING) from error
        return await running

    # The model's thread

    def _serve(self) -> None:
        while (batch := self._queue.take()) is not None:
            works: dict[Work, list[Queued]] = {}
            for sequence in batch:
                works.setdefault(sequence.request.work, []).append(sequence)
            for work, sequences in works.items():
                self._run(work, sequences)

    def _run(self, work: Work, sequences: Sequence[Queued]) -> None:
        began = time.perf_counter()
        for sequence in sequences:
            sequence.request.began = sequence.request.began or began
        outputs = self._outputs(work, [sequence.example for sequence in sequences])
        ended = time.perf_counter()
        for sequence, output in zip(sequences, outputs, strict=True):
            sequence.request.ended = ended
            sequence.piece.put(sequence.place, output)
        tokens, seconds = sum(sequence.size for sequence in sequences), ended - began
        self._pace.count(tokens, seconds)
        try:
            capacity = self.max_batch_tokens
            self._observer.batch(self.name, len(sequences), tokens, capacity, seconds)
        except Exception:  # such as a full disk; the model has to go on
            log.exception("model %s: a batch could not be counted", self.name)

    def _outputs(self, work: Work, examples: list[Example]) -> list[Any]:
        """An output each; the error instead for those that the model fails on even alone."""
        try:
            outputs = list(work.outputs(examples))
            assert len(outputs) == len(examples), "a sequence was lost"
            return outputs
        except Exception as error:
            if len(examples) == 1:
                if not isinstance(error, FilbertError):
                    # Tensors have no texts, so neither has the message.
                    log.warning("model %s failed on a sequence", self.name, exc_info=error)
                return [error]
            half = len(examples) // 2
            return [
                *self._outputs(work, examples[:half]),
                *self._outputs(work, examples[half:]),
            ]


def _timed(call: Callable[[Any], _T], argument: Any) -> tuple[_T, float]:
    began = time.perf_counter()
    return call(argument), time.perf_counter() - began
