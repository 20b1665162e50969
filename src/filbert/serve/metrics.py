"""Prometheus metrics of a server with one process or several.

Names begin with `filbert_` and end in their unit. Each label has a small, fixed set of values:
nothing that a client sends becomes one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The folder in which several processes share their metrics. prometheus-client reads this variable
# when it is imported.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

# The label of requests for paths that the server does not have.
UNMATCHED = "unmatched"
# nginx's status for a client that disconnected before its answer.
CLIENT_DISCONNECTED = 499

_SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
)  # fmt: skip
_TOKENS = tuple(float(2**power) for power in range(3, 18))
_ROWS = tuple(float(2**power) for power in range(11))
_RATIOS = tuple(tenth / 10 for tenth in range(1, 11))

_METHODS = ("GET", "HEAD", "POST", "OPTIONS")


class Metrics:
    """All metrics of a server. The methods may be called from any thread."""

    def __init__(self) -> None:
        folder = os.environ.get(FOLDER_VARIABLE)
        self._folder = None if folder is None else Path(folder)
        self._waiting: Mapping[str, Callable[[], tuple[int, int]]] = {}
        self._gpu_bytes: Callable[[], int] | None = None
        self._registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"filbert_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(
                f"filbert_{name}", text, labels, registry=registry, multiprocess_mode="livesum"
            )

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"filbert_{name}", text, labels, registry=registry, buckets=buckets)

        self._requests = counter(
            "requests", "Finished requests; 499: disconnected.", "method", "route", "status"
        )
        self._request_seconds = histogram(
            "request_duration_seconds", "From request to answer.", _SECONDS, "method", "route"
        )
        self._in_flight = gauge("requests_in_flight", "Requests being answered.")
        self._tokenization = histogram(
            "tokenization_seconds", "Tokenisation of one request.", _SECONDS, "model"
        )
        self._request_tokens = histogram(
            "request_tokens", "Tokens of one request.", _TOKENS, "model"
        )
        self._queue_seconds = histogram(
            "queue_seconds", "Waiting time of one request in the queue.", _SECONDS, "model"
        )
        self._inference = histogram(
            "inference_seconds", "Forward pass of one batch.", _SECONDS, "model"
        )
        self._batch_rows = histogram("batch_rows", "Sequences in a batch.", _ROWS, "model")
        self._batch_tokens = histogram("batch_tokens", "Tokens in a batch.", _TOKENS, "model")
        self._batch_fill = histogram(
            "batch_fill_ratio", "Tokens in a batch / max_batch_tokens.", _RATIOS, "model"
        )
        self._tokens = counter("tokens", "Tokens read by the model.", "model")
        self._dropped = counter("dropped_rows", "Queued sequences of cancelled requests.", "model")
        self._queue_rows = gauge("queue_rows", "Sequences waiting in the queue.", "model")
        self._queue_tokens = gauge("queue_tokens", "Tokens waiting in the queue.", "model")
        self._memory = gauge("memory_bytes", "Resident memory of the server's processes.")
        self._gpu_memory = gauge("gpu_memory_bytes", "GPU memory reserved for the models.")
        gauge("workers", "Processes that answer requests.").set(1)
        if self._folder is None:
            ProcessCollector(registry=registry)

    def watch(
        self,
        waiting: Mapping[str, Callable[[], tuple[int, int]]],
        gpu_bytes: Callable[[], int] | None = None,
    ) -> None:
        """Set the sources of gauges.

        Args:
            waiting: By model, a function that returns the queued sequences and tokens.
            gpu_bytes: Returns the reserved GPU memory; None without a GPU.
        """
        self._waiting, self._gpu_bytes = waiting, gpu_bytes

    def request_started(self) -> None:
        """Count a request in flight."""
        self._in_flight.inc()

    def request_finished(self, method: str, route: str, *, status: int, seconds: float) -> None:
        """Count a finished request. `route` is the declared path, not the one that was sent."""
        method = method if method in _METHODS else "other"
        self._in_flight.dec()
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(method, route).observe(seconds)

    def answered(self, model: str, *, tokenization: float, queue: float, tokens: int) -> None:
        """Count a request that a model answered: seconds of two stages, and its tokens."""
        self._tokenization.labels(model).observe(tokenization)
        self._queue_seconds.labels(model).observe(queue)
        self._request_tokens.labels(model).observe(tokens)

    def batch(self, model: str, *, rows: int, tokens: int, capacity: int, seconds: float) -> None:
        """Count a forward pass; `capacity` is the most tokens of a batch."""
        self._batch_rows.labels(model).observe(rows)
        self._batch_tokens.labels(model).observe(tokens)
        self._batch_fill.labels(model).observe(tokens / capacity)
        self._inference.labels(model).observe(seconds)
        self._tokens.labels(model).inc(tokens)
        self._set_gauges()

    def dropped(self, model: str, rows: int) -> None:
        """Count queued sequences that were dropped because their request was cancelled."""
        self._dropped.labels(model).inc(rows)
        self._set_gauges()

    def exposition(self) -> bytes:
        """The metrics of all processes in Prometheus' text format 0.0.4."""
        self._set_gauges()
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """All metrics without the time of their creation; `generate_latest` calls this."""
        for metric in self._families():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric

    def _families(self) -> Iterable[Metric]:
        if self._folder is None:
            return self._registry.collect()
        for path in self._folder.glob("gauge_live*.db"):
            pid = path.stem.rpartition("_")[2]
            # A killed process cannot remove its gauges from the sums.
            if not Path(f"/proc/{pid}").exists():
                mark_process_dead(pid, str(self._folder))  # type: ignore[no-untyped-call]
        # A process that is killed while it creates a file leaves an empty one.
        files = [str(path) for path in self._folder.glob("*.db") if _size_of(path)]
        merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        return merged

    def _set_gauges(self) -> None:
        """Update the gauges after every batch, because another process may be asked for them."""
        for model, waiting in self._waiting.items():
            rows, tokens = waiting()
            self._queue_rows.labels(model).set(rows)
            self._queue_tokens.labels(model).set(tokens)
        with suppress(OSError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            self._memory.set(pages * os.sysconf("SC_PAGE_SIZE"))
        if self._gpu_bytes is not None:
            self._gpu_memory.set(self._gpu_bytes())


class CountRequests:
    """ASGI middleware that counts every request, refused ones included."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: Sequence[BaseRoute]) -> None:
        self.app, self.metrics, self.routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        method, route = scope["method"], self._route(scope)
        status, started, is_counted = CLIENT_DISCONNECTED, time.perf_counter(), False

        def count() -> None:
            nonlocal is_counted
            if not is_counted:
                is_counted = True
                seconds = time.perf_counter() - started
                self.metrics.request_finished(method, route, status=status, seconds=seconds)

        async def observed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif not message.get("more_body", False):
                # Before the end is sent: a client that has its answer finds it counted.
                count()
            await send(message)

        self.metrics.request_started()
        try:
            await self.app(scope, receive, observed_send)
        except Exception:
            status = 500
            raise
        finally:
            count()

    def _route(self, scope: Scope) -> str:
        """The declared path of a request, such as /v1/models/{model:path}."""
        for route in self.routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                return route.path
        return UNMATCHED


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # its process has ended since it was listed
        return 0
