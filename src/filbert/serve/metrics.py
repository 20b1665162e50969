"""Prometheus metrics of a server with one process or several.

Names begin with `filbert_` and end in their unit. Each label has a small, fixed set of values:
nothing that a client sends becomes one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The folder in which several processes share their metrics. prometheus-client reads this variable
# when it is imported.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

# nginx's status for a client that disconnected before its answer.
CLIENT_DISCONNECTED = 499

_SECONDS = {"buckets": (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
)}  # fmt: skip
_TOKENS = {"buckets": tuple(float(2**power) for power in range(3, 18))}
_ROWS = {"buckets": tuple(float(2**power) for power in range(11))}
_RATIOS = {"buckets": tuple(tenth / 10 for tenth in range(1, 11))}

_METHODS = ("GET", "HEAD", "POST", "OPTIONS")

# The gauges of all processes are added up.
_SUM: dict[str, Any] = {"multiprocess_mode": "livesum"}
# By name without "filbert_": kind, description, labels, and options of the kind.
_METRICS: dict[str, tuple[Any, str, tuple[str, ...], dict[str, Any]]] = {
    "requests": (
        Counter, "Finished requests; 499: disconnected.", ("method", "route", "status"), {}
    ),
    "tokens": (Counter, "Tokens read by the model.", ("model",), {}),
    "dropped_rows": (Counter, "Queued sequences of cancelled requests.", ("model",), {}),
    "requests_in_flight": (Gauge, "Requests being answered.", (), _SUM),
    "queue_rows": (Gauge, "Sequences waiting in the queue.", ("model",), _SUM),
    "queue_tokens": (Gauge, "Tokens waiting in the queue.", ("model",), _SUM),
    "memory_bytes": (Gauge, "Resident memory of the server's processes.", (), _SUM),
    "gpu_memory_bytes": (Gauge, "GPU memory reserved for the models.", (), _SUM),
    "workers": (Gauge, "Processes that answer requests.", (), _SUM),
    "request_duration_seconds": (
        Histogram, "From request to answer.", ("method", "route"), _SECONDS
    ),
    "tokenization_seconds": (Histogram, "Tokenisation of one request.", ("model",), _SECONDS),
    "request_tokens": (Histogram, "Tokens of one request.", ("model",), _TOKENS),
    "queue_seconds": (Histogram, "Waiting time of one request in the queue.", ("model",), _SECONDS),
    "inference_seconds": (Histogram, "Forward pass of one batch.", ("model",), _SECONDS),
    "batch_rows": (Histogram, "Sequences in a batch.", ("model",), _ROWS),
    "batch_tokens": (Histogram, "Tokens in a batch.", ("model",), _TOKENS),
    "batch_fill_ratio": (Histogram, "Tokens in a batch / max_batch_tokens.", ("model",), _RATIOS),
}  # fmt: skip

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of a server. The methods may be called from any thread.

    Attributes:
        in_flight: Gauge of the requests that are being answered.
    """

    def __init__(self) -> None:
        self._waiting: Mapping[str, Callable[[], tuple[int, int]]] = {}
        self._gpu_bytes: Callable[[], int] | None = None
        self._registry = registry = CollectorRegistry()
        self._all = {
            name: kind(f"filbert_{name}", text, labels, registry=registry, **options)
            for name, (kind, text, labels, options) in _METRICS.items()
        }
        self.in_flight = self._all["requests_in_flight"]
        self._all["workers"].set(1)

    def watch(
        self,
        waiting: Mapping[str, Callable[[], tuple[int, int]]],
        gpu_bytes: Callable[[], int] | None = None,
    ) -> None:
        """Set the sources of gauges; `gpu_bytes` returns reserved memory, None without a GPU."""
        self._waiting, self._gpu_bytes = waiting, gpu_bytes

    def request_finished(self, method: str, route: str, *, status: int, seconds: float) -> None:
        """Count a finished request. `route` is the declared path, not the one that was sent."""
        method = method if method in _METHODS else "other"
        self._all["requests"].labels(method, route, str(status)).inc()
        self._all["request_duration_seconds"].labels(method, route).observe(seconds)

    def answered(self, model: str, *, tokenization: float, queue: float, tokens: int) -> None:
        """Count a request that a model answered: seconds of two stages, and its tokens."""
        self._all["tokenization_seconds"].labels(model).observe(tokenization)
        self._all["queue_seconds"].labels(model).observe(queue)
        self._all["request_tokens"].labels(model).observe(tokens)

    def batch(self, model: str, *, rows: int, tokens: int, capacity: int, seconds: float) -> None:
        """Count a forward pass; `capacity` is the most tokens of a batch."""
        self._all["batch_rows"].labels(model).observe(rows)
        self._all["batch_tokens"].labels(model).observe(tokens)
        self._all["batch_fill_ratio"].labels(model).observe(tokens / capacity)
        self._all["inference_seconds"].labels(model).observe(seconds)
        self._all["tokens"].labels(model).inc(tokens)
        self._set_gauges()

    def dropped(self, model: str, rows: int) -> None:
        """Count queued sequences that were dropped because their request was cancelled."""
        self._all["dropped_rows"].labels(model).inc(rows)
        self._set_gauges()

    def exposition(self) -> bytes:
        """Return the metrics of all processes in Prometheus' text format 0.0.4."""
        self._set_gauges()
        folder = os.environ.get(FOLDER_VARIABLE)
        if folder is None:
            return generate_latest(self._registry)
        for path in Path(folder).glob("gauge_live*.db"):
            pid = path.stem.rpartition("_")[2]
            # A killed process cannot remove its gauges from the sums.
            if not Path(f"/proc/{pid}").exists():
                mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=folder)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def _set_gauges(self) -> None:
        """Update the gauges after every batch, because another process may be asked for them."""
        for model, waiting in self._waiting.items():
            rows, tokens = waiting()
            self._all["queue_rows"].labels(model).set(rows)
            self._all["queue_tokens"].labels(model).set(tokens)
        with suppress(OSError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            self._all["memory_bytes"].set(pages * os.sysconf("SC_PAGE_SIZE"))
        if self._gpu_bytes is not None:
            self._all["gpu_memory_bytes"].set(self._gpu_bytes())
