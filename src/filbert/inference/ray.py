"""The engine over many machines: a Ray Data pipeline whose workers answer numbered chunks.

    places 0, 1, 2 ...  ->  the chunk at that place, answered  ->  the parts, in order

Ray Data moves only the places and the answers. An actor next to the driver holds the chunks until
the driver has their answers, so whatever Ray repeats after the loss of a worker or a machine finds
its chunk again: that costs time and no rows. The actor never holds more chunks than the workers
need, so memory is bounded however long the file is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa
import torch

from filbert.errors import ConfigError, FilbertError, RunError, install_hint
from filbert.files import available_cores
from filbert.inference.bulk import Chunk, ChunkResult, Engine, Job, Work, model_digest

log = logging.getLogger(__name__)

# Chunks that a worker holds: one in work, one being tokenised.
_CHUNKS_PER_WORKER = 2
# How often a chunk is given to a worker before it counts as the reason why workers die.
_TRIES = 4
# Other work may leave the cluster, or machines join it.
_PLACING_SECONDS = 600
_PART = pa.schema(
    {
        "number": pa.int64(),
        "num_rows": pa.int64(),
        "num_truncated": pa.int64(),
        "digest": pa.string(),
        "content": pa.large_binary(),
    }
)


@contextmanager
def on_ray(job: Job, work: Work, workers: int | None = None) -> Iterator[Engine]:
    """The engine on the running Ray cluster, else on one that lasts as long as the block.

    Args:
        job: What the workers do.
        work: The same, in this process.
        workers: How many; one per machine, or per GPU, when not given.

    Raises:
        ConfigError: Ray is not installed, the cluster is too small or busy, or a machine has
            another model of that name.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers {workers}: at least one is needed.")
    with cluster(workers) as ray:
        on_gpu = work.predictor.device.type == "cuda"
        workers, threads = sizes(machines(ray.nodes()), workers, on_gpu)
        log.info("on the cluster: workers %s, threads of each %s", workers, threads)
        # On the driver's machine, so that it is lost only with the driver.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        pending = ray.remote(num_cpus=0, scheduling_strategy=here)(PendingChunks).remote()
        settled = job.with_precision(work.predictor.number_format)
        parts = _pipeline(
            (settled, threads, model_digest(work.predictor), pending),
            workers=workers,
            threads=threads,
            on_gpu=on_gpu,
        )
        try:
            yield lambda chunks: _answers(ray, pending, parts, chunks, (workers, threads))
        finally:
            ray.kill(pending)


# The cluster


@contextmanager
def cluster(workers: int | None) -> Iterator[Any]:
    """The module ray, connected to the cluster of RAY_ADDRESS, or to a new one on this machine.

    Args:
        workers: Number of workers that a new cluster must hold.

    Raises:
        ConfigError: Ray is not installed.
    """
    try:
        import ray
        import ray.data
        import ray.exceptions
    except ImportError as error:
        raise ConfigError(f"--engine ray needs ray. {install_hint('ray')}") from error
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not os.environ.get("RAY_ADDRESS"):
        # By default Ray's workers give way to everything else on the machine.
        options["_system_config"] = {"worker_niceness": 0}
        cores = max(available_cores(), workers or 1)
        options |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
    with _quiet_core():
        ray.init(**options)
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _quiet_core() -> Iterator[None]:
    """Drop what Ray's core writes past Python: warnings of what Ray Data does on purpose."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


class Machine(NamedTuple):
    """What a machine of the cluster has for workers: whole cores, and GPUs."""

    cores: int
    gpus: int


def machines(nodes: Sequence[dict[str, Any]]) -> list[Machine]:
    """The machines that can work: Ray goes on listing dead ones, and a head may lend no core."""
    resources = (node.get("Resources", {}) for node in nodes if node.get("Alive"))
    every = (Machine(int(own.get("CPU", 0)), int(own.get("GPU", 0))) for own in resources)
    return [machine for machine in every if machine.cores]


def sizes(there: Sequence[Machine], workers: int | None, on_gpu: bool) -> tuple[int, int]:
    """Workers, and the CPU threads of each: the most with which all of them can be placed.

    A worker's threads are on one machine, so the sum of the cores does not count.

    Raises:
        ConfigError: So many cannot be placed.
    """

    def places(threads: int) -> int:
        slots = ((machine.cores // threads, machine.gpus) for machine in there)
        return sum(min(slot) if on_gpu else slot[0] for slot in slots)

    if workers is None:
        workers = places(1) if on_gpu else len(there)
    most = max((machine.cores for machine in there), default=0)
    threads = next((t for t in range(most, 0, -1) if places(t) >= workers), 0)
    if workers < 1 or not threads:
        cores = ", ".join(str(machine.cores) for machine in there) or "none"
        gpus = sum(machine.gpus for machine in there)
        raise ConfigError(
            f"The Ray cluster has {len(there)} machines (cores of each: {cores}) and {gpus} GPUs, "
            f"too few for {max(workers, 1)} workers on {'GPUs' if on_gpu else 'CPUs'}. Start it "
            "larger, or give fewer --workers."
        )
    return workers, threads


# The pipeline


class PendingChunks:
    """An actor with the chunks that have no answers yet, as bytes; tasks cannot ask the driver."""

    def __init__(self) -> None:
        self._chunks: dict[int, bytes] = {}
        self._tries: Counter[int] = Counter()
        self._count, self._is_whole = 0, False
        self._changed = asyncio.Condition()

    async def put(self, chunk: bytes | None) -> None:
        """Put a chunk at the next place, from 0 on; None means that no more will come."""
        async with self._changed:
            if chunk is None:
                self._is_whole = True
            else:
                self._chunks[self._count] = chunk
                self._count += 1
            self._changed.notify_all()

    async def has(self, place: int) -> bool:
        """Whether a chunk ever came to this place; waits until that is certain."""
        async with self._changed:
            await self._changed.wait_for(lambda: place < self._count or self._is_whole)
            return place < self._count

    async def chunk(self, place: int) -> bytes | None:
        """The chunk at a place, where it stays; None when too many workers have had it."""
        self._tries[place] += 1
        return self._chunks[place] if self._tries[place] <= _TRIES else None

    async def answered(self, place: int) -> None:
        """Drop a chunk: the driver has its answers."""
        del self._chunks[place], self._tries[place]


class Worker:
    """A model in a process of Ray's. It is loaded at the first call, also after a restart."""

    def __init__(self, job: Job, threads: int, digest: str, pending: Any) -> None:
        self._job, self._threads, self._digest, self._pending = job, threads, digest, pending
        self._work: Work | None = None
        self._loading, self._encoding, self._answering = Lock(), Lock(), Lock()

    def __call__(self, places: pa.Table) -> pa.Table:
        """The parts of the chunks at these places; called in two threads, so that one chunk is
        tokenised while another is answered.
        """
        parts = [asdict(self._part(place)) for place in places["place"].to_pylist()]
        return pa.Table.from_pylist(parts, _PART)

    def _part(self, place: int) -> ChunkResult:
        import ray

        packed = ray.get(self._pending.chunk.remote(place))
        if packed is None:
            raise RunError(
                f"The workers that got one chunk were lost {_TRIES} times, so it is given up. Is "
                "there enough memory for a model in each? Try fewer --workers or a smaller "
                "--max-tokens."
            )
        chunk: Chunk = pickle.loads(packed)  # noqa: S301 - our own driver's
        work = self._opened()
        with self._encoding:
            examples = work.encode(chunk)
        with self._answering:
            return work.answer(chunk, examples, lambda num_tokens: None)

    def _opened(self) -> Work:
        with self._loading:
            if self._work is None:
                torch.set_num_threads(self._threads)
                work = self._job.open()
                if model_digest(work.predictor) != self._digest:
                    raise ConfigError(
                        "A machine of the cluster has another model under the name "
                        f"{self._job.model}. Put the same folder there."
                    )
                self._work = work
            return self._work


def places_of(pending: Any) -> Iterator[pa.Table]:
    """Numbers from 0 on, one a table, as the chunks come; the same when read again."""
    import ray

    place = 0
    while ray.get(pending.has.remote(place)):
        yield pa.table({"place": [place]})
        place += 1


def _pipeline(worker: tuple[Any, ...], *, workers: int, threads: int, on_gpu: bool) -> Any:
    """The parts of the pending chunks, as a Ray Data set of one row a block.

    Args:
        worker: Arguments of `Worker`.
        workers: How many.
        threads: Of each.
        on_gpu: Each of them needs a GPU.
    """
    from ray import data
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    context = data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    # A block is handed on when it has a row, not when it is large.
    context.target_max_block_size = 1
    context.wait_for_min_actors_s = _PLACING_SECONDS
    context.raise_original_map_exception = True
    # The verb has a progress bar of its own.
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)

    class Places(Datasource):  # type: ignore[misc]
        def estimate_inmemory_data_size(self) -> None:
            return None

        def get_read_tasks(self, parallelism: int, *others: Any, **named: Any) -> list[Any]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None)
            return [ReadTask(partial(places_of, worker[-1]), unknown)]

    with data.DataContext.current(context):
        places = data.read_datasource(
            Places(),  # type: ignore[no-untyped-call]
            override_num_blocks=1,
            num_cpus=0,
        )
        return places.map_batches(
            Worker,
            fn_constructor_args=worker,
            batch_size=None,
            batch_format="pyarrow",
            compute=data.ActorPoolStrategy(
                size=workers,
                max_tasks_in_flight_per_actor=_CHUNKS_PER_WORKER,
                max_concurrent_calls_per_actor=_CHUNKS_PER_WORKER,
                enable_true_multi_threading=True,
            ),
            num_cpus=threads,
            num_gpus=1 if on_gpu else None,
        )


def _answers(
    ray: Any, pending: Any, parts: Any, chunks: Iterator[Chunk], size: tuple[int, int]
) -> Generator[ChunkResult, None, None]:
    """The parts in order; no more chunks are sent out than the workers need.

    A chunk that waits for its turn after a slower one keeps its place, so memory stays bounded.
    """
    bad: list[FilbertError] = []

    def put() -> None:
        try:
            chunk = next(chunks, None)
        # A bad row: the chunks before it are still answered.
        except FilbertError as error:
            bad.append(error)
            chunk = None
        ray.get(pending.put.remote(None if chunk is None else pickle.dumps(chunk)))

    with _translated_errors(ray, *size):
        for _ in range(2 * _CHUNKS_PER_WORKER * size[0]):
            put()
        tables = parts.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        with closing(iter(tables)) as ordered:
            for place, table in enumerate(ordered):
                (part,) = table.to_pylist()
                yield ChunkResult(**part)
                ray.get(pending.answered.remote(place))
                put()
    if bad:
        raise bad[0]


@contextmanager
def _translated_errors(ray: Any, workers: int, threads: int) -> Iterator[None]:
    """Turn the exceptions of Ray into ours.

    Raises:
        FilbertError: What a worker raised.
        ConfigError: The workers found no place for a long time.
        RunError: The cluster failed.
    """
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FilbertError):
            raise error.cause from None
        raise
    except ray.exceptions.GetTimeoutError as error:
        raise ConfigError(
            f"After {_PLACING_SECONDS // 60} minutes the Ray cluster has found no place for "
            f"{workers} workers of {threads} threads: other work holds its cores. Wait for that to "
            "end, or give fewer --workers."
        ) from error
    except ray.exceptions.RayError as error:
        raise RunError(
            f"The Ray cluster failed ({type(error).__name__}). Look at its machines, then continue "
            "with --resume."
        ) from error
