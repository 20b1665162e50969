"""`filbert serve` as a process: Ctrl-C, SIGTERM, and several workers."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sides.served import Served, free_port

ENV = {"OMP_NUM_THREADS": "1"}
LONG = "the film was very good , and he was not bad . " * 20


def started(model: Path, log: Path, *options: str, **more: Any) -> Any:
    port = free_port()
    command = [sys.executable, "-m", "filbert", "serve", f"m={model}", "--port", str(port)]
    return Served([*command, *options], port, log, env=ENV, **more)


def ask(connection: http.client.HTTPConnection, texts: list[str]) -> int:
    """The status of a request for vectors."""
    body = json.dumps({"inputs": texts, "truncate": True})
    connection.request("POST", "/embed", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    reply.read()
    return reply.status


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def metrics(port: int) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if line[0] != "#"}


def test_the_server_ends_on_ctrl_c(tiny_model, tmp_path):
    server = started(tiny_model, tmp_path / "log")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    assert ask(connection, ["the film"]) == 200
    connection.close()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(timeout=30) == 130
    log = server.log.read_text()
    assert "m (no task, 64 tokens, float32): embed" in log
    assert "Traceback" not in log


def test_sigterm_ends_the_server_within_a_long_batch(tmp_path):
    options = ("--grace-seconds", "0.5", "--max-batch-tokens", "100000")
    server = started(Path("filbert-mini"), tmp_path / "log", *options)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    client = threading.Thread(target=ask, args=(connection, [LONG] * 200))
    client.start()
    wait_for(lambda: metrics(server.port)["filbert_requests_in_flight"] >= 2)
    time.sleep(0.5)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=30) == 0
    client.join()
    connection.close()


@pytest.fixture(scope="module")
def several(tiny_model: Path, tmp_path_factory: Any) -> Iterator[Any]:
    log = tmp_path_factory.mktemp("several") / "log"
    server = started(tiny_model, log, "--workers", "2")
    wait_for(lambda: metrics(server.port)["filbert_workers"] == 2)
    yield server
    server.close()


def workers_of(server: Any) -> list[int]:
    """Process ids of the workers; multiprocessing also starts a resource tracker."""
    command_lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in server.processes()}
    return [pid for pid, line in command_lines.items() if b"spawn_main" in line]


def test_on_sigterm_running_requests_are_answered(several):
    statuses: list[int] = []

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", several.port, timeout=60)
        statuses.append(ask(connection, [LONG] * 300))
        connection.close()

    clients = [threading.Thread(target=client) for _ in range(2)]
    for thread in clients:
        thread.start()
    # The request for the metrics is one of them.
    wait_for(lambda: metrics(several.port)["filbert_requests_in_flight"] >= 3)
    workers = workers_of(several)
    several.process.send_signal(signal.SIGTERM)
    for thread in clients:
        thread.join()
    assert several.process.wait(timeout=60) == 0
    assert statuses == [200, 200]
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_workers_that_cannot_load_a_model_end_the_server(tmp_path):
    command = [sys.executable, "-m", "filbert", "serve", str(tmp_path), "--workers", "2"]
    done = subprocess.run(
        [*command, "--port", "0"], capture_output=True, text=True, env=os.environ | ENV, timeout=240
    )
    assert done.returncode != 0
    assert f"filbert: {tmp_path}" in done.stderr
    assert "Traceback" not in done.stderr
