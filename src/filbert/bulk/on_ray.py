"""The engine over many machines: Ray actors answer numbered chunks, and the driver puts them in
order.

The driver keeps a chunk until its answers are there, so a lost worker costs time and no rows: Ray
starts another one, which gets the same chunk.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import torch

from filbert.bulk.job import Job
from filbert.bulk.run import Engine
from filbert.bulk.work import Chunk, Part, Work, model_digest
from filbert.data.blocks import available_cores
from filbert.errors import ConfigError, FilbertError, RunError

log = logging.getLogger(__name__)

# Chunks that a worker holds: one in work, one being tokenised.
_CHUNKS_PER_WORKER = 2
# How often a chunk is given to a new worker before it is taken for the reason of their deaths.
_RETRIES = 3
# Other work may leave the cluster, or machines join it, but nobody waits for ever.
_PLACING_SECONDS = 600


class Worker:
    """A model in a process of Ray's. It is loaded at the first call, also after a restart."""

    def __init__(self, job: Job, threads: int) -> None:
        self._job, self._threads = job, threads
        self._work: Work | None = None
        self._loading, self._encoding, self._answering = Lock(), Lock(), Lock()

    def is_there(self) -> bool:
        """Answered as soon as Ray has found a place."""
        return True

    def digest(self) -> str:
        """Of the model that this machine has."""
        return model_digest(self._opened().predictor)

    def answer(self, chunk: Chunk) -> Part:
        """Called in two threads, so that one chunk is tokenised while the other is answered."""
        work = self._opened()
        with self._encoding:
            examples = work.encode(chunk)
        with self._answering:
            return work.answer(chunk, examples, lambda num_tokens: None)

    def _opened(self) -> Work:
        with self._loading:
            if self._work is None:
                torch.set_num_threads(self._threads)
                self._work = self._job.open()
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
    ray = _ray()
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers {workers}: at least one is needed.")
    mine = not ray.is_initialized()
    if mine:
        _join(ray, workers)
    try:
        on_gpu = work.predictor.device.type == "cuda"
        workers, threads = _sizes(_machines(ray.nodes()), workers, on_gpu)
        remote = ray.remote(
            num_cpus=threads,
            num_gpus=1 if on_gpu else 0,
            max_restarts=-1,
            max_task_retries=_RETRIES,
            max_concurrency=_CHUNKS_PER_WORKER,
        )(Worker)
        actors = [remote.remote(job.settled(work), threads) for _ in range(workers)]
        try:
            _wait_for_places(ray, actors, threads)
            wanted = model_digest(work.predictor)
            for found in _get(ray, [actor.digest.remote() for actor in actors]):
                if found != wanted:
                    raise ConfigError(
                        f"A machine of the cluster has another model under the name {job.model}. "
                        "Put the same folder there."
                    )
            yield lambda chunks: _answers(ray, actors, chunks)
        finally:
            for actor in actors:
                ray.kill(actor)
    finally:
        if mine:
            ray.shutdown()


def _answers(ray: Any, actors: list[Any], chunks: Iterator[Chunk]) -> Generator[Part, None, None]:
    """The parts in order; no more chunks are under way than the workers need.

    A chunk that waits for its turn behind a slower one holds its place, so memory stays bounded.
    """
    idle = [actor for actor in actors for _ in range(_CHUNKS_PER_WORKER)]
    running: dict[Any, tuple[int, Any]] = {}  # by reference: the chunk's number, its worker
    done: dict[int, Any] = {}
    wanted = 0
    is_more = True
    bad: FilbertError | None = None
    while True:
        while is_more and idle and len(running) + len(done) < 2 * _CHUNKS_PER_WORKER * len(actors):
            try:
                chunk = next(chunks, None)
            # A bad row: what is under way before it is still worth keeping.
            except FilbertError as error:
                chunk, bad = None, error
            if chunk is None:
                is_more = False
                break
            actor = idle.pop(0)
            if not running and not done:
                wanted = chunk.number
            running[actor.answer.remote(chunk)] = (chunk.number, actor)
        while wanted in done:
            (part,) = _get(ray, [done.pop(wanted)])
            wanted += 1
            yield part
        if running:
            for reference in ray.wait(list(running), num_returns=1)[0]:
                number, actor = running.pop(reference)
                done[number] = reference
                idle.append(actor)
        elif not is_more and not done:
            if bad is not None:
                raise bad
            return


def _get(ray: Any, references: list[Any]) -> list[Any]:
    """What the workers gave.

    Raises:
        FilbertError: what a worker raised on purpose.
        RunError: a worker was lost again and again.
    """
    try:
        return list(ray.get(references))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FilbertError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise RunError(
            f"The workers that got one chunk were lost {_RETRIES + 1} times, so it is given up: "
            f"{type(error).__name__}. Is there enough memory for a model in each? Try fewer "
            "--workers or a smaller --max-tokens."
        ) from error


def _join(ray: Any, workers: int | None) -> None:
    """The cluster of RAY_ADDRESS, else one on this machine."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**options)
        return
    # Ray's workers give way to everything else on the machine, which here is not asked for.
    options["_system_config"] = {"worker_niceness": 0}
    cores = max(available_cores(), workers or 1)
    ray.init("local", num_cpus=cores, include_dashboard=False, **options)


class _Machine(NamedTuple):
    """What a machine of the cluster lends: whole cores, and GPUs."""

    cores: int
    gpus: int


def _machines(nodes: Sequence[dict[str, Any]]) -> list[_Machine]:
    """The machines that can work: Ray goes on listing dead ones, and a head may lend no core."""
    found = []
    for node in nodes:
        lent = node.get("Resources", {})
        machine = _Machine(int(lent.get("CPU", 0)), int(lent.get("GPU", 0)))
        if node.get("Alive") and machine.cores:
            found.append(machine)
    return found


def _sizes(machines: Sequence[_Machine], workers: int | None, on_gpu: bool) -> tuple[int, int]:
    """Workers, and the processor threads of each: the most that lets all of them be placed.

    A worker's threads lie on one machine, so what counts is not the sum of the cores.

    Raises:
        ConfigError: so many cannot be placed.
    """

    def places(threads: int) -> int:
        rooms = ((machine.cores // threads, machine.gpus) for machine in machines)
        return sum(min(room) if on_gpu else room[0] for room in rooms)

    if workers is None:
        workers = places(1) if on_gpu else len(machines)
    most = max((machine.cores for machine in machines), default=0)
    threads = next((t for t in range(most, 0, -1) if places(t) >= workers), 0)
    if workers < 1 or not threads:
        cores = ", ".join(str(machine.cores) for machine in machines) or "none"
        gpus = sum(machine.gpus for machine in machines)
        raise ConfigError(
            f"The Ray cluster has {len(machines)} machines (cores of each: {cores}) and {gpus} "
            f"GPUs, too few for {max(workers, 1)} workers on "
            f"{'GPUs' if on_gpu else 'processors'}. Start it larger, or give fewer --workers."
        )
    return workers, threads


def _wait_for_places(ray: Any, actors: list[Any], threads: int) -> None:
    """Return when every worker has its place.

    Raises:
        ConfigError: some have none after a long time.
    """
    log.info("waiting for the cluster: workers %s, threads of each %s", len(actors), threads)
    there = [actor.is_there.remote() for actor in actors]
    placed, missing = ray.wait(there, num_returns=len(there), timeout=_PLACING_SECONDS)
    if missing:
        raise ConfigError(
            f"After {_PLACING_SECONDS // 60} minutes the Ray cluster has found a place for only "
            f"{len(placed)} of {len(there)} workers of {threads} threads: other work holds its "
            "cores. Wait for that to end, or give fewer --workers."
        )


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ConfigError("--engine ray needs ray: pip install 'filbert[ray]'.") from error
    return ray
