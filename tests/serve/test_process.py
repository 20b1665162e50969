"""`filbert serve` as it is started by hand: TLS, slow clients, the end, and several processes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
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


class Asking(threading.Thread):
    """A client that asks on one connection, and keeps what it got: the status, or 0."""

    def __init__(self, port: int, texts: list[str], times: int = 1) -> None:
        super().__init__()
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.connection.connect()
        self.port = self.connection.sock.getsockname()[1]
        self.texts, self.times = texts, times
        self.statuses: list[int] = []

    def run(self) -> None:
        try:
            for _ in range(self.times):
                self.statuses.append(ask(self.connection, self.texts))
        except (OSError, http.client.HTTPException):
            self.statuses.append(0)
        finally:
            self.connection.close()


# One process, with TLS and little patience


@pytest.fixture(scope="module")
def secure(tiny_model: Path, certificates: Path, tmp_path_factory: Any) -> Iterator[Any]:
    log = tmp_path_factory.mktemp("secure") / "log"
    files = ["--certificate", "certificate.pem", "--key", "key.pem"]
    options = [str(certificates / o) if o.endswith(".pem") else o for o in files]
    server = started(tiny_model, log, *options, "--idle-seconds", "1", scheme="https")
    yield server
    server.close()


def test_with_a_certificate_the_server_speaks_https(secure, certificates):
    context = ssl.create_default_context(cafile=str(certificates / "certificate.pem"))
    connection = http.client.HTTPSConnection("localhost", secure.port, context=context)
    assert ask(connection, ["the film"]) == 200
    connection.close()
    assert f"serves at https://127.0.0.1:{secure.port}" in secure.log.read_text()


def test_connections_that_never_finish_asking_are_closed(secure, certificates):
    context = ssl.create_default_context(cafile=str(certificates / "certificate.pem"))
    for said in (b"", b"POST /embed HTTP/1.1\r\nHost: a\r\n"):
        plain = socket.create_connection(("127.0.0.1", secure.port), timeout=30)
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(said)
            assert connection.recv(10) == b""


def test_ctrl_c_ends_one_process_with_status_130(secure):
    secure.process.send_signal(signal.SIGINT)
    assert secure.process.wait(timeout=30) == 130
    said = secure.log.read_text()
    assert said.endswith("filbert: stopped.\n")
    assert "Traceback" not in said


# Several processes


@pytest.fixture(scope="module")
def several(tiny_model: Path, tmp_path_factory: Any) -> Iterator[Any]:
    log = tmp_path_factory.mktemp("several") / "log"
    server = started(tiny_model, log, "--workers", "2")
    wait_for(lambda: len(server.processes()) == 3)
    yield server
    server.close()


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def figures(port: int) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if line[0] != "#"}


def test_what_is_served_is_said_once(several):
    said = several.log.read_text()
    assert said.count("serves at") == 1
    assert "  m (no task, 64 tokens, float32): embed" in said


def test_a_killed_worker_takes_no_other_client_s_request_with_it(several):
    wait_for(lambda: figures(several.port)["filbert_workers"] == 2)
    victim, other = several.processes()[1:]
    clients: list[Asking] = []
    while not (several.clients_of(victim) and several.clients_of(other)):
        clients += [Asking(several.port, [LONG] * 4, times=10) for _ in range(4)]
        time.sleep(0.2)
    for client in clients:
        client.start()
    wait_for(lambda: any(client.statuses for client in clients))
    os.kill(victim, signal.SIGSTOP)  # it takes nobody while its clients are counted
    doomed = several.clients_of(victim)
    os.kill(victim, signal.SIGKILL)
    for client in clients:
        client.join()
    lost = {client.port for client in clients if set(client.statuses) != {200}}
    assert lost <= doomed
    wait_for(lambda: len(several.processes()) == 3)
    assert victim not in several.processes()
    assert "was killed by SIGKILL; started again now" in several.log.read_text()
    # What it had counted is kept, and it is no longer among those that work.
    wait_for(lambda: figures(several.port)["filbert_workers"] == 2)


def test_on_sigterm_requests_under_way_are_answered_and_no_process_is_left(several):
    processes = several.processes()
    clients = [Asking(several.port, [LONG] * 300) for _ in range(2)]
    for client in clients:
        client.start()
    wait_for(lambda: figures(several.port)["filbert_requests_in_flight"] >= 3)
    several.process.send_signal(signal.SIGTERM)
    for client in clients:
        client.join()
    assert several.process.wait(timeout=60) == 0
    assert [client.statuses for client in clients] == [[200], [200]]
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes[1:])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", several.port), timeout=5)
