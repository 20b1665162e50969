"""Bulk work over many machines: a Ray Data pipeline from chunks of rows to their answers.

    rows of the file  ->  chunks  ->  answered chunks, in order

One task on the driver's machine reads the rows; workers with a model each answer the chunks; this
process writes the answers. Ray repeats what a lost worker or machine had in work, and limits how
many chunks are in memory.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import pyarrow as pa
import torch

from filbert.errors import ConfigError, FilbertError, RunError, install_hint
from filbert.files import available_cores
from filbert.inference.bulk import Entry, Job, Part, Work, answer, model_digest, pending_chunks

log = logging.getLogger(__name__)

# Chunks that a worker holds: one in work, one being tokenised.
_CHUNKS_PER_WORKER = 2
# How often a lost worker is started again, and its chunk repeated.
_TRIES = 4
# Other work may leave the cluster, or machines join it.
_PLACING_SECONDS = 600


def answers_on_ray(
    job: Job, work: Work, done: Sequence[Entry], workers: int | None = None
) -> Generator[Part, None, None]:
    """Answer the chunks that are not done, on the cluster of RAY_ADDRESS or on this machine.

    Args:
        job: What the workers do.
        work: The same, in this process.
        done: Finished chunks.
        workers: How many; one per machine, or per GPU, when not given.

    Raises:
        ConfigError: Ray is not installed, the cluster is too small or busy, or a machine has
            another model of that name.
        RunError: The cluster failed.
        FilbertError: A row is wrong; the answers before it have been given.
    """
    with _cluster(workers) as ray:
        predictor = work.predictor
        on_gpu = predictor.device.type == "cuda"
        resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        workers, threads = placing(resources, workers, on_gpu=on_gpu)
        log.info("on the cluster: workers %s, threads of each %s", workers, threads)
        if job.loading.get("precision") == "auto" and job.loading.get("backend") == "torch":
            # Otherwise another machine could choose another one.
            loading = {**job.loading, "precision": predictor.number_format}
            job = replace(job, loading=loading)
        parts = _pipeline(
            ray,
            partial(_chunk_tables, job.rows, done, work.size_of, work.limit),
            (job, threads, model_digest(predictor)),
            workers=workers,
            threads=threads,
            on_gpu=on_gpu,
        )
        tables = parts.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        with _translated_errors(ray), closing(iter(tables)) as ordered:
            for table in ordered:
                part = pickle.loads(table["part"][0].as_py())  # noqa: S301 - our own worker's
                if isinstance(part, FilbertError):
                    raise part
                yield part


@contextmanager
def _cluster(workers: int | None) -> Iterator[Any]:
    """The module ray, connected to the cluster of RAY_ADDRESS, or to a new one on this machine."""
    try:
        import ray
        import ray.data
        import ray.exceptions
    except ImportError as error:
        raise ConfigError(f"--engine ray needs ray. {install_hint('ray')}") from error
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not os.environ.get("RAY_ADDRESS"):
        # By default Ray's workers give way to everything else on the machine.
        options["_system_config"] = {"worker_niceness": 0}
        cores = max(available_cores(), workers or 1)
        options |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
    ray.init(**options)
    try:
        yield ray
    finally:
        ray.shutdown()


def placing(
    resources: Sequence[dict[str, float]], workers: int | None, *, on_gpu: bool
) -> tuple[int, int]:
    """Workers, and the CPU threads of each, so that all of them find a place.

    Args:
        resources: "CPU" and "GPU" of each machine; those without a core do not work.
        workers: As asked for.
        on_gpu: Each worker needs a GPU.

    Raises:
        ConfigError: So many workers cannot be placed.
    """
    kind = "GPU" if on_gpu else "CPU"
    cores = [int(own.get("CPU", 0)) for own in resources if own.get("CPU") and own.get(kind)]
    places = sum(int(own.get(kind, 0)) for own in resources if own.get("CPU"))
    count = workers or (places if on_gpu else len(cores))
    # The workers of a machine share its cores; the smallest machine decides.
    threads = min(cores, default=0) // max(1, -(-count // max(1, len(cores))))
    if not threads or (on_gpu and count > places):
        raise ConfigError(
            f"The Ray cluster has {len(cores)} machines with {places} {kind}s, too few for "
            f"{max(count, 1)} workers. Start it larger, or give fewer --workers."
        )
    return count, threads


def _chunk_tables(rows: Any, done: Sequence[Entry], size_of: Any, limit: int) -> Iterator[pa.Table]:
    """The pending chunks, one a table; last, a wrong row's error, after all that come before it."""
    try:
        for chunk in pending_chunks(rows(), done, size_of=size_of, limit=limit):
            yield _table(chunk)
    except FilbertError as error:
        yield _table(error)


def _table(value: Any) -> pa.Table:
    return pa.table({"part": pa.array([pickle.dumps(value)], pa.large_binary())})


class _Worker:
    """A model in a process of Ray's. It is loaded at the first call, also after a restart."""

    def __init__(self, job: Job, threads: int, digest: str) -> None:
        self._job, self._threads, self._digest = job, threads, digest
        self._work: Work | None = None
        self._loading, self._answering = Lock(), Lock()

    def __call__(self, chunks: pa.Table) -> pa.Table:
        """Answer a chunk; two threads call it, so that the next one is tokenised meanwhile."""
        chunk = pickle.loads(chunks["part"][0].as_py())  # noqa: S301 - our own driver's
        if isinstance(chunk, FilbertError):
            return chunks
        work = self._opened()
        examples = work.encode(chunk)
        with self._answering:
            return _table(answer(work, chunk, examples))

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


def _pipeline(
    ray: Any, read: Any, worker: tuple[Any, ...], *, workers: int, threads: int, on_gpu: bool
) -> Any:
    """The parts in order, as a Ray Data set of one row a block.

    Args:
        ray: The module.
        read: Returns the tables of pending chunks.
        worker: Arguments of `_Worker`.
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

    class PendingChunks(Datasource):  # type: ignore[misc]
        def estimate_inmemory_data_size(self) -> None: ...

        def get_read_tasks(self, parallelism: int, *others: Any, **named: Any) -> list[Any]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None)
            return [ReadTask(read, unknown)]

    # The file need not be on other machines.
    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    with data.DataContext.current(context):
        chunks = data.read_datasource(
            PendingChunks(),  # type: ignore[no-untyped-call]
            override_num_blocks=1,
            num_cpus=0,
            label_selector=here,
        )
        return chunks.map_batches(
            _Worker,
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
            ray_remote_args_fn=lambda: {"max_restarts": _TRIES, "max_task_retries": _TRIES},
        )


@contextmanager
def _translated_errors(ray: Any) -> Iterator[None]:
    """Turn the exceptions of Ray into ours."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FilbertError):
            raise error.cause from None
        raise
    except ray.exceptions.GetTimeoutError as error:
        raise ConfigError(
            f"After {_PLACING_SECONDS // 60} minutes the Ray cluster has found no place for the "
            "workers: other work holds its cores. Wait for that to end, or give fewer --workers."
        ) from error
    except ray.exceptions.RayError as error:
        raise RunError(
            f"The Ray cluster failed ({type(error).__name__}). Look at its machines and their "
            "memory, then continue with --resume."
        ) from error
