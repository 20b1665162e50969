"""Processes that share a listening socket: a parent, and two workers that say who they are."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from filbert.serve.supervise import pause_after

# A worker answers one connection after the other with its process id, slowly if it is asked to.
PARENT = """
import os, select, signal, socket, subprocess, sys, time
from filbert.errors import ConfigError
from filbert.serve.supervise import supervise

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(64)
listener.setblocking(False)
print(listener.getsockname()[1], flush=True)

def work(post):
    if "refuse" in sys.argv:
        raise ConfigError("No such model.")
    is_busy, is_over = False, False
    def stop(number, frame):
        nonlocal is_over
        is_over = True
        if not is_busy:
            sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    print("worker", os.getpid(), post.number, "first" if post.is_first else "", flush=True)
    post.ready()
    while not is_over:
        # As asyncio does, a process that waits takes nothing. It looks up ten times a second, as
        # uvicorn does: a signal just before the call would otherwise be waited for without end.
        select.select([listener], [], [], 0.1)
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            continue
        is_busy = True
        with connection:
            connection.setblocking(True)
            if connection.recv(10) == b"slowly":
                time.sleep(0.5)
            connection.sendall(str(os.getpid()).encode())
        is_busy = False
    return 0

if "inherits" in sys.argv:
    subprocess.Popen(["sleep", "0.3"])
ended = supervise(work, 2, grace_seconds=5, stopping=listener.close)
print("ended", *ended, flush=True)
sys.exit(ended[0])
"""


class Parent:
    """The process, and what it says line by line."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-c", PARENT, *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.port = int(self.line())

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def worker(self) -> int:
        """The process id of the next worker that says it is there."""
        return int(self.line().split()[1])

    def connect(self, say: bytes = b"hello") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.sendall(say)
        return connection

    def ask(self, say: bytes = b"hello") -> int:
        with self.connect(say) as connection:
            return int(connection.recv(100))


@pytest.fixture
def started() -> Iterator[Callable[..., Parent]]:
    parents: list[Parent] = []

    def start(*arguments: str) -> Parent:
        parents.append(Parent(*arguments))
        return parents[-1]

    yield start
    for parent in parents:
        if parent.process.poll() is None:
            parent.process.send_signal(signal.SIGTERM)
        parent.process.communicate(timeout=20)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def test_a_killed_worker_is_replaced_and_what_waits_to_be_accepted_is_answered(started):
    parent = started()
    first, second = parent.worker(), parent.worker()
    for worker in (first, second):
        os.kill(worker, signal.SIGSTOP)
    # Accepted by the kernel, by no worker yet.
    waiting = [parent.connect() for _ in range(4)]
    os.kill(first, signal.SIGKILL)
    third = parent.worker()
    os.kill(second, signal.SIGCONT)
    answers = {int(connection.recv(100)) for connection in waiting}
    for connection in waiting:
        connection.close()
    assert answers <= {second, third}
    assert len({first, second, third}) == 3


def test_on_sigterm_workers_finish_what_they_have_begun(started):
    parent = started()
    workers = {parent.worker(), parent.worker()}
    connection = parent.connect(b"slowly")
    time.sleep(0.1)
    parent.process.send_signal(signal.SIGTERM)
    assert int(connection.recv(100)) in workers
    connection.close()
    assert parent.line() == f"ended 0 {int(signal.SIGTERM)}"
    assert parent.process.wait(timeout=20) == 0
    assert not any(map(is_alive, workers))
    with pytest.raises(ConnectionRefusedError):
        parent.connect()


def test_workers_do_not_outlive_a_killed_parent(started):
    parent = started()
    workers = [parent.worker(), parent.worker()]
    parent.process.kill()
    assert within(20, lambda: not any(map(is_alive, workers)))


def test_a_first_worker_that_cannot_start_ends_everything_and_says_why_once(started):
    parent = started("refuse")
    assert parent.line() == "ended 2 0"
    out, err = parent.process.communicate(timeout=20)
    assert parent.process.returncode == 2
    assert err == "filbert: No such model.\n"


def test_a_child_that_is_no_worker_may_end(started):
    parent = started("inherits")
    workers = {parent.worker(), parent.worker()}
    time.sleep(0.6)
    assert parent.process.poll() is None
    assert parent.ask() in workers


def test_only_the_first_worker_of_all_is_told_that_it_is_the_first(started):
    parent = started()
    lines = [parent.line(), parent.line()]
    assert [line.endswith("first") for line in lines] == [True, False]
    os.kill(int(lines[0].split()[1]), signal.SIGKILL)
    assert not parent.line().endswith("first")


def test_pauses_grow_from_none_to_half_a_minute():
    assert [pause_after(deaths) for deaths in (0, 1, 2, 3, 4, 7, 8, 50)] == [
        0.0, 0.0, 0.5, 1.0, 2.0, 16.0, 30.0, 30.0,
    ]  # fmt: skip
