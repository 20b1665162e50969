"""The engine over many machines: a Ray Data pipeline whose workers answer numbered chunks.

    places 0, 1, 2 ...  ->  the chunk at that place, answered  ->  the parts, in order

Ray Data moves only the places and the answers. The chunks lie on a shelf until this process has
their answers, so whatever Ray repeats after the loss of a worker or of a machine finds its chunk
again: that costs time and no rows. And the shelf never holds more than the workers need, so memory
is bounded however long the file is.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from threading import Event, Lock, Thread
from typing import Any

import pyarrow as pa
import torch

from filbert.errors import ConfigError, FilbertError, RunError
from filbert.inference.bulk.cluster import cluster, machines, places, sizes
from filbert.inference.bulk.job import Job
from filbert.inference.bulk.run import Engine
from filbert.inference.bulk.shelf import TRIES, Shelf, places_on
from filbert.inference.bulk.work import Chunk, Part, Work, model_digest

log = logging.getLogger(__name__)

# Chunks that a worker holds: one in work, one being tokenised.
_CHUNKS_PER_WORKER = 2
# Other work may leave the cluster, or machines join it, but nobody waits for ever.
_PLACING_SECONDS = 600
# How often the cluster is looked at.
_LOOKING_SECONDS = 10.0
_PART = pa.schema(
    {
        "number": pa.int64(),
        "num_rows": pa.int64(),
        "num_truncated": pa.int64(),
        "digest": pa.string(),
        "content": pa.large_binary(),
    }
)


class Worker:
    """A model in a process of Ray's. It is loaded at the first call, also after a restart."""

    def __init__(self, job: Job, threads: int, digest: str, shelf: Any) -> None:
        self._job, self._threads, self._digest, self._shelf = job, threads, digest, shelf
        self._work: Work | None = None
        self._loading, self._encoding, self._answering = Lock(), Lock(), Lock()

    def __call__(self, places: pa.Table) -> pa.Table:
        """The parts of the chunks at these places; in two threads, so that one chunk is tokenised
        while another is answered.
        """
        parts = [asdict(self._part(place)) for place in places["place"].to_pylist()]
        return pa.Table.from_pylist(parts, _PART)

    def _part(self, place: int) -> Part:
        import ray

        packed = ray.get(self._shelf.chunk.remote(place))
        if packed is None:
            raise RunError(
                f"The workers that got one chunk were lost {TRIES} times, so it is given up. Is "
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


@contextmanager
def on_ray(job: Job, work: Work, workers: int | None = None) -> Iterator[Engine]:
    """The engine on the Ray cluster that is running, else on one that lasts as long as the block.

    Args:
        job: what the workers do.
        work: the same, in this process.
        workers: how many; one per machine, or per GPU, when not given.

    Raises:
        ConfigError: ray is not installed, the cluster is too small or busy, or a machine has
            another model of that name.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers {workers}: at least one is needed.")
    with cluster(workers) as ray:
        on_gpu = work.predictor.device.type == "cuda"
        workers, threads = sizes(machines(ray.nodes()), workers, on_gpu)
        log.info("on the cluster: workers %s, threads of each %s", workers, threads)
        # Beside the driver, so that it is lost with the driver alone.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        shelf = ray.remote(num_cpus=0, scheduling_strategy=here)(Shelf).remote()
        told = (job.settled(work), threads, model_digest(work.predictor), shelf)
        parts = _pipeline(ray, told, workers, on_gpu)
        try:
            with _watching(ray, workers, threads, on_gpu):
                yield lambda chunks: _answers(ray, shelf, parts, chunks, workers, threads)
        finally:
            ray.kill(shelf)


@contextmanager
def _watching(ray: Any, workers: int, threads: int, on_gpu: bool) -> Iterator[None]:
    """Say when a lost machine leaves a worker without a place: Ray waits for another in silence."""
    ended = Event()

    def watch() -> None:
        was_told = False
        while not ended.wait(_LOOKING_SECONDS):
            room = places(machines(ray.nodes()), threads, on_gpu)
            if room < workers and not was_told:
                log.warning(
                    "The cluster has lost machines: room for %d of %d workers. Add one, or stop "
                    "and go on with --resume and fewer --workers.",
                    room,
                    workers,
                )
            was_told = room < workers

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _pipeline(ray: Any, told: tuple[Any, ...], workers: int, on_gpu: bool) -> Any:
    """The parts of the chunks that come to the shelf, as a Ray Data set of one row a block.

    Args:
        ray: the module.
        told: what a worker is made of: the job, its threads, the model's digest, the shelf.
        workers: how many.
        on_gpu: each of them needs one.
    """
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    data = ray.data
    context = data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    # A block is handed on when it has a row, not when it is large.
    context.target_max_block_size = 1
    context.wait_for_min_actors_s = _PLACING_SECONDS
    context.raise_original_map_exception = True
    # The verb has a bar of its own.
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)

    _, threads, _, shelf = told

    class Places(Datasource):  # type: ignore[misc]
        def estimate_inmemory_data_size(self) -> None:
            return None

        def get_read_tasks(self, parallelism: int, *others: Any, **named: Any) -> list[Any]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None)
            return [ReadTask(partial(places_on, shelf), unknown)]

    with data.DataContext.current(context):
        places = data.read_datasource(
            Places(),  # type: ignore[no-untyped-call]
            override_num_blocks=1,
            num_cpus=0,
        )
        return places.map_batches(
            Worker,
            fn_constructor_args=told,
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
    ray: Any, shelf: Any, parts: Any, chunks: Iterator[Chunk], workers: int, threads: int
) -> Generator[Part, None, None]:
    """The parts in order; no more chunks are under way than the workers need.

    A chunk that waits for its turn behind a slower one holds its place, so memory stays bounded.
    """
    bad: list[FilbertError] = []

    def put() -> None:
        try:
            chunk = next(chunks, None)
        # A bad row: what is under way before it is still worth keeping.
        except FilbertError as error:
            bad.append(error)
            chunk = None
        ray.get(shelf.end.remote() if chunk is None else shelf.put.remote(pickle.dumps(chunk)))

    with _told(ray, workers, threads):
        for _ in range(2 * _CHUNKS_PER_WORKER * workers):
            put()
        tables = parts.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        with closing(iter(tables)) as ordered:
            for place, table in enumerate(ordered):
                (part,) = table.to_pylist()
                yield Part(**part)
                ray.get(shelf.answered.remote(place))
                put()
    if bad:
        raise bad[0]


@contextmanager
def _told(ray: Any, workers: int, threads: int) -> Iterator[None]:
    """What Ray raises, in our words.

    Raises:
        FilbertError: what a worker raised on purpose.
        ConfigError: the workers found no place for a long time.
        RunError: the cluster fails.
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
            f"The Ray cluster failed ({type(error).__name__}). Look at its machines, then go on "
            "with --resume."
        ) from error
