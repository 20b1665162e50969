"""What a server counts, for Prometheus: one registry of its own, one process or several.

Names end in their unit and begin with `filbert_`. Every label has a small, fixed set of values: nothing
that a client writes becomes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
    values,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from filbert.serve.memory import resident_bytes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Where processes that share their figures write them; prometheus-client reads it when imported.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
)  # fmt: skip
_TOKENS = tuple(float(2**power) for power in range(3, 18))
_ROWS = tuple(float(2**power) for power in range(11))
_SHARES = tuple(tenth / 10 for tenth in range(1, 11))

_METHODS = ("GET", "HEAD", "POST", "OPTIONS")


class Metrics:
    """All figures of a server; it is also what an Engine reports to (`observer.Observer`).

    Its methods may be called from any thread.

    Args:
        folder: where several processes share their figures; None for one process alone. The
            environment variable PROMETHEUS_MULTIPROC_DIR must have named it, empty, before the
            first process started.
    """

    def __init__(self, folder: Path | None = None) -> None:
        shared = getattr(values.ValueClass, "_multiprocess", False)
        assert folder is None or shared, f"{FOLDER_VARIABLE} was not set when filbert was started"
        registry = CollectorRegistry()
        self._folder = folder
        self._registry = registry
        self._waiting: dict[str, Callable[[], tuple[int, int]]] = {}
        self._gpu_bytes: Callable[[], int] | None = None

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"filbert_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(
                f"filbert_{name}", text, labels, registry=registry, multiprocess_mode="livesum"
            )

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"filbert_{name}", text, labels, registry=registry, buckets=buckets)

        self._requests = counter(
            "requests",
            "Finished requests; status 499: the client left.",
            "method",
            "route",
            "status",
        )
        self._request_seconds = histogram(
            "request_duration_seconds",
            "From a request's first byte to its answer's last.",
            _SECONDS,
            "method",
            "route",
        )
        self._in_flight = gauge("requests_in_flight", "Requests that are being answered.")
        self._tokenization = histogram(
            "tokenization_seconds", "Tokenising one request.", _SECONDS, "model"
        )
        self._request_tokens = histogram(
            "request_tokens", "Tokens of one request.", _TOKENS, "model"
        )
        self._queued = histogram(
            "queue_seconds", "From queued to taken into a batch, of one request.", _SECONDS, "model"
        )
        self._inference = histogram(
            "inference_seconds", "One forward pass of one batch.", _SECONDS, "model"
        )
        self._batch_rows = histogram("batch_rows", "Sequences in a batch.", _ROWS, "model")
        self._batch_tokens = histogram("batch_tokens", "Tokens in a batch.", _TOKENS, "model")
        self._batch_fill = histogram(
            "batch_fill_ratio", "Tokens in a batch, by the tokens it may hold.", _SHARES, "model"
        )
        self._tokens = counter("tokens", "Tokens that went through the model.", "model")
        self._dropped = counter("dropped_rows", "Queued rows whose client had left.", "model")
        self._cache = counter("cache_lookups", "Answers looked up in the cache.", "model", "result")
        self._queue_rows = gauge("queue_rows", "Sequences that wait for a batch.", "model")
        self._queue_tokens = gauge("queue_tokens", "Tokens that wait for a batch.", "model")
        self._memory = gauge("memory_bytes", "Resident memory of the server's processes.")
        self._gpu_memory = gauge("gpu_memory_bytes", "GPU memory held for the models.")
        self._workers = gauge("workers", "Processes that answer requests.")
        self._workers.set(1)
        if not shared:
            ProcessCollector(registry=registry)

    # The server

    def watch(
        self,
        waiting: Mapping[str, Callable[[], tuple[int, int]]],
        gpu_bytes: Callable[[], int] | None = None,
    ) -> None:
        """Where to look for what is shown as it is now.

        Args:
            waiting: by model, what tells how many rows and tokens wait for it.
            gpu_bytes: tells how much GPU memory is held; None without a GPU.
        """
        self._waiting = dict(waiting)
        self._gpu_bytes = gpu_bytes

    def started(self) -> None:
        """A request has come."""
        self._in_flight.inc()

    def finished(self, method: str, route: str, status: int, seconds: float) -> None:
        """It is answered.

        Args:
            method: of the request; anything unusual is counted as "other".
            route: the path as the server knows it, not as the client wrote it.
            status: of the answer; 499 when the client left first.
            seconds: from its first byte to the answer's last.
        """
        method = method if method in _METHODS else "other"
        self._in_flight.dec()
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(method, route).observe(seconds)

    # The engines (observer.Observer)

    def tokenized(self, model: str, seconds: float, tokens: int) -> None:
        """A request's texts became tokens."""
        self._tokenization.labels(model).observe(seconds)
        self._request_tokens.labels(model).observe(tokens)

    def queued(self, model: str, seconds: float) -> None:
        """A request was taken out of the queue."""
        self._queued.labels(model).observe(seconds)

    def batch(self, model: str, rows: int, tokens: int, capacity: int, seconds: float) -> None:
        """A batch went through the model."""
        self._batch_rows.labels(model).observe(rows)
        self._batch_tokens.labels(model).observe(tokens)
        self._batch_fill.labels(model).observe(tokens / capacity)
        self._inference.labels(model).observe(seconds)
        self._tokens.labels(model).inc(tokens)
        self._look()

    def dropped(self, model: str, rows: int) -> None:
        """Queued rows were thrown away, for nobody waits for them."""
        self._dropped.labels(model).inc(rows)
        self._look()

    def cached(self, model: str, hit: bool) -> None:
        """An answer was looked up in the cache."""
        self._cache.labels(model, "hit" if hit else "miss").inc()

    # Out

    def exposition(self) -> bytes:
        """All figures of all processes, in Prometheus' text format 0.0.4."""
        self._look()
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """All metrics; `generate_latest` calls this."""
        for metric in self._families():
            # When a series began says nothing that a scraper does not know.
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric

    def _families(self) -> Iterable[Metric]:
        if self._folder is None:
            return self._registry.collect()
        # A process that is killed as it makes a file leaves an empty one, which cannot be read.
        files = [str(path) for path in self._folder.glob("*.db") if _size_of(path)]
        merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        return merged

    def _look(self) -> None:
        """Set the gauges: as often as the queue changes, since another process may be asked."""
        for model, waiting in self._waiting.items():
            rows, tokens = waiting()
            self._queue_rows.labels(model).set(rows)
            self._queue_tokens.labels(model).set(tokens)
        self._memory.set(resident_bytes())
        if self._gpu_bytes is not None:
            self._gpu_memory.set(self._gpu_bytes())


def forget_worker(folder: Path, pid: int) -> None:
    """Take the gauges of a dead process out of the sums; what it counted stays."""
    mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # gone since it was listed: its process has ended
        return 0
