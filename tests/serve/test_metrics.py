"""Figures for Prometheus: own names, the other server's names, one process and several."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from filbert.serve.metrics import Metrics


def samples_of(exposition: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """By sample name and label values (in the order of the labels' names)."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(exposition.decode()):
        for sample in family.samples:
            values = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[values] = sample.value
    return found


def request(metrics: Metrics, method: str, route: str, status: int, seconds: float) -> None:
    with metrics.in_flight.track_inprogress():
        metrics.request_finished(method, route, status=status, seconds=seconds)


@pytest.fixture
def metrics() -> Metrics:
    """After two requests for vectors, one refused, and one look at /metrics."""
    made = Metrics()
    made.watch({"mini": lambda: (3, 40)})
    request(made, "POST", "/embed", 200, 0.02)
    request(made, "POST", "/embed", 429, 0.004)
    request(made, "GET", "/metrics", 200, 0.001)
    made.answered("mini", tokenization=0.001, queue=0.002, tokens=70)
    made.batch("mini", rows=2, tokens=50, capacity=100, seconds=0.25)
    made.batch("mini", rows=1, tokens=20, capacity=100, seconds=0.5)
    made.dropped("mini", 4)
    return made


def test_what_happened_is_counted_under_names_with_units(metrics):
    found = samples_of(metrics.exposition())
    assert found["filbert_requests_total"] == {
        ("POST", "/embed", "200"): 1,
        ("POST", "/embed", "429"): 1,
        ("GET", "/metrics", "200"): 1,
    }
    assert found["filbert_request_duration_seconds_sum"][("POST", "/embed")] == pytest.approx(0.024)
    assert found["filbert_request_duration_seconds_bucket"][("0.005", "POST", "/embed")] == 1
    assert found["filbert_requests_in_flight"] == {(): 0}
    assert found["filbert_tokens_total"] == {("mini",): 70}
    assert found["filbert_request_tokens_sum"] == {("mini",): 70}
    assert found["filbert_batch_tokens_sum"] == {("mini",): 70}
    assert found["filbert_batch_rows_sum"] == {("mini",): 3}
    assert found["filbert_batch_fill_ratio_sum"] == {("mini",): pytest.approx(0.7)}
    assert found["filbert_inference_seconds_sum"] == {("mini",): 0.75}
    assert found["filbert_queue_seconds_sum"] == {("mini",): 0.002}
    assert found["filbert_tokenization_seconds_count"] == {("mini",): 1}
    assert found["filbert_queue_rows"] == {("mini",): 3}
    assert found["filbert_queue_tokens"] == {("mini",): 40}
    assert found["filbert_dropped_rows_total"] == {("mini",): 4}
    assert found["filbert_workers"] == {(): 1}
    assert 10e6 < found["filbert_memory_bytes"][()] < 100e9
    assert not [name for name in found if name.endswith("_created")]


WORKER = r"""
import sys
from filbert.serve.metrics import Metrics
metrics = Metrics()
metrics.watch({"mini": lambda: (2, 30)})
metrics.request_finished("POST", "/embed", status=200, seconds=0.02)
metrics.in_flight.inc()
metrics.batch("mini", rows=2, tokens=50, capacity=100, seconds=0.25)
print(metrics.exposition().decode() if sys.argv[2] == "last" else "", end="# END\n", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def workers(tmp_path):
    """Two processes that share their figures; the second one has printed them."""
    alive = []
    for which in ("first", "last"):
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), which],
            env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        text = "".join(iter(process.stdout.readline, "# END\n"))
        alive.append(process)
    yield alive, text, tmp_path
    for process in alive:
        process.communicate()
        process.wait()


def test_several_processes_show_their_sum_and_a_dead_ones_gauges_go(workers):
    (_, last), text, folder = workers
    found = samples_of(text.encode())
    assert found["filbert_requests_total"] == {("POST", "/embed", "200"): 2}
    assert found["filbert_batch_rows_sum"] == {("mini",): 4}
    assert found["filbert_batch_rows_count"] == {("mini",): 2}
    assert found["filbert_queue_rows"] == {("mini",): 4}
    assert found["filbert_requests_in_flight"] == {(): 2}
    assert found["filbert_workers"] == {(): 2}
    last.communicate()
    left = samples_of(_as_seen_by_a_third(folder))
    assert left["filbert_workers"] == {(): 2}, "the first and the third"
    assert left["filbert_requests_in_flight"] == {(): 2}
    assert left["filbert_requests_total"] == {("POST", "/embed", "200"): 3}, "counts stay"


def _as_seen_by_a_third(folder: Path) -> bytes:
    return subprocess.run(
        [sys.executable, "-c", WORKER, str(folder), "last"],
        env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    ).stdout
