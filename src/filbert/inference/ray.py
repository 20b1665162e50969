"""Bulk work over many machines: actors of a Ray cluster answer the chunks of rows.

This process reads the rows, gives chunks to workers with a model each in turns, and takes the
answers in order. Ray starts a lost worker again and repeats what it had in work.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

import torch

from filbert.errors import ConfigError, FilbertError, RunError, install_hint
from filbert.files import available_cores
from filbert.inference.bulk import Chunk, Job, Part, Work, answer, model_digest

log = logging.getLogger(__name__)

# Chunks that a worker holds: one in work, one being tokenised.
_CHUNKS_PER_WORKER = 2
# How often a lost worker is started again, and its chunk repeated.
_TRIES = 4
# Other work may leave the cluster, or machines join it.
_PLACING_SECONDS = 600


def answers_on_ray(
    job: Job, work: Work, pending: Iterator[Chunk], workers: int | None = None
) -> Generator[Part, None, None]:
    """Answer chunks on the cluster of RAY_ADDRESS or on this machine.

    Args:
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
        kind = ray.remote(_Worker).options(
            num_cpus=threads,
            num_gpus=1 if on_gpu else 0,
            max_restarts=_TRIES,
            max_task_retries=_TRIES,
            max_concurrency=_CHUNKS_PER_WORKER,
        )
        digest = model_digest(predictor)
        actors = [kind.remote(job, threads, digest) for _ in range(workers)]
        with _translated_errors(ray):
            ray.get([actor.open.remote() for actor in actors], timeout=_PLACING_SECONDS)
            yield from _in_order(ray, actors, pending)


def _in_order(ray: Any, actors: Sequence[Any], chunks: Iterator[Chunk]) -> Iterator[Part]:
    """Give each chunk to the next worker, and yield the parts in order."""
    waiting: deque[Any] = deque()
    wrong: FilbertError | None = None
    try:
        for number, chunk in enumerate(chunks):
            waiting.append(actors[number % len(actors)].answer.remote(chunk))
            if len(waiting) == _CHUNKS_PER_WORKER * len(actors):
                yield ray.get(waiting.popleft())
    except FilbertError as error:
        # A wrong row, after all that come before it.
        wrong = error
    while waiting:
        yield ray.get(waiting.popleft())
    if wrong is not None:
        raise wrong


@contextmanager
def _cluster(workers: int | None) -> Iterator[Any]:
    """Yield the module ray, connected to the cluster of RAY_ADDRESS or to a new one here."""
    try:
        import ray
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
    """Return the number of workers, and the CPU threads of each, so that all can be placed.

    Args:
        resources: "CPU" and "GPU" of each machine; those without a core do not work.
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


class _Worker:
    """A model in a process of Ray's. It is loaded at the first call, also after a restart."""

    def __init__(self, job: Job, threads: int, digest: str) -> None:
        self._job, self._threads, self._digest = job, threads, digest
        self._work: Work | None = None
        self._loading, self._answering = Lock(), Lock()

    def answer(self, chunk: Chunk) -> Part:
        """Answer a chunk; two threads call it, so that the next one is tokenised meanwhile."""
        work = self._opened()
        examples = work.encode(chunk)
        with self._answering:
            return answer(work, chunk, examples)

    def open(self) -> None:
        """Load the model, or raise a ConfigError if it is not that of the first process."""
        self._opened()

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
