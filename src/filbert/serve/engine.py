"""An engine: one model, its queue and the thread that runs it.

A request arrives on the event loop. Its inputs are tokenised chunk by chunk in a small pool of
threads. Their sequences wait in the queue, and the model's thread takes batches of whatever waits.
When the last sequence of a request is done, its results are made. The model's thread touches
asyncio only through a request's future.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from threading import Thread
from typing import Any, NamedTuple, TypeVar, cast

from filbert.data.examples import Example
from filbert.errors import FilbertError, printable
from filbert.inference.predictor import Predictor
from filbert.serve.errors import Refusal, late, overloaded, stopping
from filbert.serve.metrics import Metrics
from filbert.serve.queries import NumberedInput, PreparedInputs, Query, Result, abilities, query_of
from filbert.serve.queue import Queue, RequestQueue
from filbert.serve.settings import ModelSettings
from filbert.text.tokenizer import chunked

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# A request that arrives while a batch runs waits for it: 0.2 s with MiniLM and 1 s with BERT-base
# on two cores. Larger batches are hardly faster there (docs/log.md).
_MAX_BATCH_TOKENS_CPU = 2_048

NUM_TOKENIZATION_THREADS = 2
# Tokenised at a time, so that large requests take turns there too.
_CHUNK_ROWS = 128
_CHUNK_CHARACTERS = 65_536
# Results of so few sequences are made on the event loop: another thread would start later.
_FEW_SEQUENCES = 4
# Estimate of the tokens of a text that is not tokenised yet.
_CHARACTERS_PER_TOKEN = 4

# A request that others would hold up for longer, by the measured speed, is refused.
_MAX_QUEUE_SECONDS = 10.0
# The measured speed is an exponential average: each batch reduces the weight of earlier ones.
_SPEED_DECAY = 0.1
# Smaller batches, such as health checks, are no measure of the speed.
_MIN_MEASURED_SHARE = 1 / 8


class Results(NamedTuple):
    """One result per input, in order, and where the time went, in seconds.

    Attributes:
        queue: Until the first sequence was taken into a batch.
        inference: From then to the last output.
        tokens: Tokens that the model read.
    """

    items: list[Result]
    tokenization: float
    queue: float
    inference: float
    tokens: int


class _Queued(NamedTuple):
    """A sequence in the queue, and its number in the request."""

    request: _Request
    number: int
    example: Example


class _Request:
    """The state of a request: its queue, outputs, and `time.perf_counter` of its stages."""

    def __init__(self, query: Query, inputs: Iterable[Any]) -> None:
        self.query, self.queue = query, RequestQueue()
        # Tokens that are not in the queue yet (an estimate), and those that have been.
        self.expected, self.tokens = sum(map(_likely_tokens, inputs)), 0
        self.tokenization = self.queued = self.began = self.ended = 0.0
        self.outputs: list[Any] = []
        # The number of all sequences is known when the last input is tokenised.
        self._num_done, self._num_all = 0, math.inf
        self._future = Future[None]()

    @property
    def left(self) -> int:
        """Estimated tokens that the model still has to read."""
        return self.expected + self.queue.tokens

    def entries(self, examples: Sequence[Example]) -> list[tuple[int, _Queued]]:
        """Make the queue entries of further sequences, with their tokens."""
        self.queued = self.queued or time.perf_counter()
        first = len(self.outputs)
        self.outputs += [None] * len(examples)
        sizes = [len(example.input_ids) for example in examples]
        self.tokens += sum(sizes)
        entries = (_Queued(self, first + i, example) for i, example in enumerate(examples))
        return list(zip(sizes, entries, strict=True))

    def put(self, number: int, output: Any) -> None:
        """Store the output of a sequence, or its exception; called by the model's thread."""
        self.outputs[number] = output
        self._num_done += 1
        if isinstance(output, Exception):
            self.finish(output)
        elif self._num_done == self._num_all:
            self.finish(None)

    def finish(self, error: Exception | None) -> None:
        """Wake the request up; from any thread, and only the first call has an effect."""
        with suppress(InvalidStateError):
            if error is None:
                self._future.set_result(None)
            else:
                self._future.set_exception(error)

    async def wait(self) -> None:
        """Wait for all outputs after the last `entries`.

        Raises:
            FilbertError: As the model's thread reported it.
            Refusal: The engine is stopping, or (424) the model failed.
        """
        self._num_all = len(self.outputs)
        if self._num_done == self._num_all:
            self.finish(None)
        try:
            await asyncio.wrap_future(self._future)
        except (FilbertError, Refusal):
            raise
        except Exception as error:
            raise Refusal(424, "The model failed on one of the inputs.") from error


class Engine:
    """A model that serves many requests at once. Its coroutines belong to one event loop.

    Attributes:
        predictor: A copy of the argument, with batches of `max_batch_tokens`.
        can: What the model can be asked for; see `queries.abilities`.
        max_batch_tokens: Tokens of a full batch.
    """

    def __init__(
        self,
        name: str,
        predictor: Predictor,
        *,
        settings: ModelSettings | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self._limits = settings or ModelSettings()
        self._metrics = metrics or Metrics()
        usual = predictor.max_tokens
        if predictor.device.type == "cpu":
            usual = min(usual, _MAX_BATCH_TOKENS_CPU)
        self.max_batch_tokens = self._limits.max_batch_tokens or usual
        self.predictor = copy(predictor)
        self.predictor.max_tokens = self.max_batch_tokens
        self.can = abilities(self.predictor)
        self._queue: Queue[_Queued] = Queue(self.max_batch_tokens, self._limits.max_wait_ms / 1000)
        self._pool = ThreadPoolExecutor(NUM_TOKENIZATION_THREADS, f"tokenize {name}")
        # A daemon: a model that hangs must not keep the process from ending.
        self._thread = Thread(target=self._run_batches, name=f"model {name}", daemon=True)
        self._requests: set[_Request] = set()
        self._closing = False
        self._idle = asyncio.Event()
        self._measured_tokens = self._measured_seconds = 0.0

    def start(self) -> None:
        """Start the model's thread."""
        self._thread.start()

    async def close(self, grace: float) -> None:
        """Refuse new requests, give running ones `grace` seconds, and stop."""
        self._closing = True
        end = time.perf_counter() + grace
        if self._requests:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace)
        for sequence in self._queue.close():
            sequence.request.finish(stopping())
        self._pool.shutdown(wait=False)
        if self._thread.is_alive():
            # A running batch cannot be interrupted.
            rest = max(1.0, end - time.perf_counter())
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join, rest)

    def waiting(self) -> tuple[int, int]:
        """Return the numbers of sequences and tokens in the queue."""
        return self._queue.size

    async def check(self) -> None:
        """Run the model once, queued like any request, however much waits.

        Raises:
            Refusal: The model does not work, or the engine is stopping.
        """
        if not self._thread.is_alive():
            raise stopping() if self._closing else Refusal(424, "The model is not running.")
        request = _Request(query_of(self.predictor, "health"), [""])
        with self._registered(request):
            (is_finite,) = await self._results(request, [""])
        if not is_finite.value:
            raise Refusal(424, "The model gives numbers that are not finite.")

    async def run(
        self,
        kind: str,
        inputs: Sequence[Any],
        *,
        seconds: float | None = None,
        max_tokens: float = math.inf,
        **options: Any,
    ) -> Results:
        """Compute the results of one request. Cancelling the task drops what is still queued.

        Args:
            max_tokens: Limit on the tokens of all inputs together.

        Raises:
            InputError, ConfigError: As the predictor raises them.
            Refusal: 413, an input has too many tokens; 424, the model failed; 429, too much work
                waits already; 503, the time limit passed, or the engine is stopping.
        """
        request = _Request(query_of(self.predictor, kind, **options), inputs)
        self._admit(request, seconds)
        with self._registered(request):
            try:
                items = await asyncio.wait_for(self._results(request, inputs, max_tokens), seconds)
            except asyncio.TimeoutError as error:
                raise late() from error
        spent, queue = request.tokenization, request.began - request.queued
        tokens = request.tokens
        self._metrics.answered(self.name, tokenization=spent, queue=queue, tokens=tokens)
        return Results(items, spent, queue, request.ended - request.began, tokens)

    async def in_pool(self, call: Callable[[], _T], seconds: float | None = None) -> _T:
        """Return the result of a call in the tokenisation threads.

        Raises:
            Refusal: 503, the engine is stopping or the time limit passed. A call that has begun
                continues.
        """
        try:
            running = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError as error:  # the pool is shut down
            raise stopping() from error
        try:
            return await asyncio.wait_for(running, seconds)
        except asyncio.TimeoutError as error:
            raise late() from error

    def _admit(self, request: _Request, seconds: float | None) -> None:
        """Refuse a request that others would hold up for too long."""
        if self._closing:
            raise stopping()
        token_seconds = (
            self._measured_seconds / self._measured_tokens if self._measured_tokens else 0.0
        )
        limit: float = self._limits.max_queue_tokens
        if token_seconds:
            limit = min(limit, min(_MAX_QUEUE_SECONDS, seconds or math.inf) / token_seconds)
        # A single batch is always accepted.
        limit = max(limit, self.max_batch_tokens)
        # Requests take turns: until this one is read, others have had as many turns at most.
        turns = math.ceil(request.left / self._queue.turn) * self._queue.turn
        ahead = sum(min(other.left, turns) for other in self._requests)
        if ahead > limit:
            raise overloaded(min(token_seconds * (ahead - limit / 2), _MAX_QUEUE_SECONDS))

    @contextmanager
    def _registered(self, request: _Request) -> Iterator[None]:
        self._requests.add(request)
        try:
            yield
        finally:
            self._requests.discard(request)
            if self._closing and not self._requests:
                self._idle.set()
            if dropped := self._queue.drop(request.queue):
                self._metrics.dropped(self.name, dropped)

    async def _results(
        self, request: _Request, inputs: Sequence[Any], max_tokens: float = math.inf
    ) -> list[Result]:
        """Tokenise and queue chunk by chunk, wait for all outputs, and make results."""
        query, chunks = request.query, list[PreparedInputs]()
        numbered = chunked(
            enumerate(inputs),
            lambda pair: _num_characters(pair[1]),
            size=_CHUNK_CHARACTERS,
            count=_CHUNK_ROWS,
        )
        for chunk in numbered:
            began = time.perf_counter()
            chunks.append(await self.in_pool(partial(query.prepare, chunk)))
            request.tokenization += time.perf_counter() - began
            examples = chunks[-1].examples
            _check_lengths(chunk, examples, self._limits.max_input_tokens)
            entries = request.entries(examples)
            if request.tokens > max_tokens:
                raise Refusal(
                    413,
                    f"The answer would be too large: the inputs have more than {max_tokens:,} "
                    "tokens together. Send fewer inputs at once.",
                )
            if not self._queue.put(request.queue, entries):
                raise stopping()
            request.expected -= sum(_likely_tokens(item) for _, item in chunk)
        await request.wait()
        results: list[Result] = []
        outputs = iter(request.outputs)
        for prepared in chunks:
            own = [next(outputs) for _ in prepared.examples]
            make = partial(query.results, prepared, own)
            is_small = len(own) <= _FEW_SEQUENCES and not prepared.context
            results += make() if is_small else await self.in_pool(make)
        return results

    # The model's thread

    def _run_batches(self) -> None:
        while (batch := self._queue.take()) is not None:
            by_query: dict[tuple[Any, ...], list[_Queued]] = {}
            for sequence in batch:
                by_query.setdefault(sequence.request.query.key, []).append(sequence)
            for sequences in by_query.values():
                self._run_batch(sequences[0].request.query, sequences)

    def _run_batch(self, query: Query, sequences: Sequence[_Queued]) -> None:
        began = time.perf_counter()
        for sequence in sequences:
            sequence.request.began = sequence.request.began or began
        outputs = self._outputs(query, [sequence.example for sequence in sequences])
        ended = time.perf_counter()
        for sequence, output in zip(sequences, outputs, strict=True):
            sequence.request.ended = ended
            sequence.request.put(sequence.number, output)
        tokens = sum(len(sequence.example.input_ids) for sequence in sequences)
        seconds = ended - began
        if tokens >= _MIN_MEASURED_SHARE * self.max_batch_tokens:
            self._measured_tokens += tokens - _SPEED_DECAY * self._measured_tokens
            self._measured_seconds += seconds - _SPEED_DECAY * self._measured_seconds
        try:
            capacity = self.max_batch_tokens
            self._metrics.batch(
                self.name, rows=len(sequences), tokens=tokens, capacity=capacity, seconds=seconds
            )
        except Exception:  # such as a full disk; the model has to go on
            log.exception("model %s: cannot count a batch", self.name)

    def _outputs(self, query: Query, examples: list[Example]) -> list[Any]:
        """Return one output per example; the exception for those on which the model fails.

        A batch that fails is repeated in halves, until the failing sequences are alone.
        """
        try:
            outputs = list(query.outputs(examples))
            assert len(outputs) == len(examples)
            return outputs
        except Exception as error:
            if len(examples) == 1:
                if not isinstance(error, FilbertError):
                    # Tensors have no texts, so neither has the message.
                    log.warning("model %s failed on a sequence", self.name, exc_info=error)
                return [error]
            half = len(examples) // 2
            return self._outputs(query, examples[:half]) + self._outputs(query, examples[half:])


class Engines(dict[str, Engine]):
    """The engines of a server by name, in the order of the command line."""

    def find(self, name: str | None, ability: str) -> Engine:
        """Return the engine with this name; without one, that whose head fits the ability best.

        Raises:
            Refusal: 404, no model has that name; 424, none has the ability.
        """
        if name is None:
            able = [engine for engine in self.values() if ability in engine.can]
            if not able:
                raise Refusal(424, f"No loaded model can {ability}. {self._overview()}")
            # Every encoder can embed, but one made for it comes before a classifier.
            return min(able, key=lambda engine: engine.can.index(ability))
        engine = self.get(name)
        if engine is None:
            loaded = ", ".join(self)
            raise Refusal(404, f"There is no model {printable(name)!r}. Loaded: {loaded}.")
        if ability not in engine.can:
            raise Refusal(424, f"The model {name!r} cannot {ability}. {self._overview()}")
        return engine

    def _overview(self) -> str:
        return "; ".join(f"{e.name} can {', '.join(e.can)}" for e in self.values()) + "."


def _check_lengths(
    inputs: Sequence[NumberedInput], examples: Sequence[Example], max_tokens: int
) -> None:
    """Refuse an input whose sequences have more tokens in total."""
    sizes = [0] * len(inputs)
    for example in examples:
        sizes[example.row] += len(example.input_ids)
    for (number, _), size in zip(inputs, sizes, strict=True):
        if size > max_tokens:
            raise Refusal(
                413,
                f"Input {number} has {size:,} tokens to read; at most {max_tokens:,} are allowed. "
                "Shorten it.",
            )


def _likely_tokens(item: Any) -> int:
    return _num_characters(item) // _CHARACTERS_PER_TOKEN + 2


def _num_characters(item: Any) -> int:
    if isinstance(item, str):
        return len(item)
    if isinstance(item, Mapping):
        item = item.values()
    elif not isinstance(item, list | tuple):
        return 0
    return sum(map(_num_characters, cast("Iterable[Any]", item)))
