"""A Ray cluster: joined or started, and how many workers find a place on its machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from filbert.data.blocks import available_cores
from filbert.errors import ConfigError, install_hint


@contextmanager
def cluster(workers: int | None) -> Iterator[Any]:
    """The module ray, connected: to the cluster that is running, else to one that lasts as long as
    the block.

    Args:
        workers: that shall find a place on it.

    Raises:
        ConfigError: ray is not installed.
    """
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    _join(ray, workers)
    try:
        yield ray
    finally:
        ray.shutdown()


def _join(ray: Any, workers: int | None) -> None:
    """The cluster of RAY_ADDRESS, else one on this machine."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not os.environ.get("RAY_ADDRESS"):
        # Ray's workers give way to everything else on the machine, which here is not asked for.
        options["_system_config"] = {"worker_niceness": 0}
        cores = max(available_cores(), workers or 1)
        options |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
    with _quiet_core():
        ray.init(**options)


@contextmanager
def _quiet_core() -> Iterator[None]:
    """Without what Ray's core writes past Python: a warning of what Ray Data does on purpose, and
    that warnings are off.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class Machine(NamedTuple):
    """What a machine of the cluster lends: whole cores, and GPUs."""

    cores: int
    gpus: int


def machines(nodes: Sequence[dict[str, Any]]) -> list[Machine]:
    """The machines that can work: Ray goes on listing dead ones, and a head may lend no core."""
    found = []
    for node in nodes:
        lent = node.get("Resources", {})
        machine = Machine(int(lent.get("CPU", 0)), int(lent.get("GPU", 0)))
        if node.get("Alive") and machine.cores:
            found.append(machine)
    return found


def places(there: Sequence[Machine], threads: int, on_gpu: bool) -> int:
    """For how many workers of so many threads, each on one machine, there is room."""
    rooms = ((machine.cores // threads, machine.gpus) for machine in there)
    return sum(min(room) if on_gpu else room[0] for room in rooms)


def sizes(there: Sequence[Machine], workers: int | None, on_gpu: bool) -> tuple[int, int]:
    """Workers, and the processor threads of each: the most that lets all of them be placed.

    A worker's threads lie on one machine, so what counts is not the sum of the cores.

    Raises:
        ConfigError: so many cannot be placed.
    """
    if workers is None:
        workers = places(there, 1, on_gpu) if on_gpu else len(there)
    most = max((machine.cores for machine in there), default=0)
    threads = next((t for t in range(most, 0, -1) if places(there, t, on_gpu) >= workers), 0)
    if workers < 1 or not threads:
        cores = ", ".join(str(machine.cores) for machine in there) or "none"
        gpus = sum(machine.gpus for machine in there)
        raise ConfigError(
            f"The Ray cluster has {len(there)} machines (cores of each: {cores}) and {gpus} "
            f"GPUs, too few for {max(workers, 1)} workers on "
            f"{'GPUs' if on_gpu else 'processors'}. Start it larger, or give fewer --workers."
        )
    return workers, threads


def _ray() -> Any:
    try:
        import ray
        import ray.data
        import ray.exceptions
    except ImportError as error:
        raise ConfigError(f"--engine ray needs ray. {install_hint('ray')}") from error
    return ray
