"""HTTP clients that cost little, since they share a machine with the server that they measure.

A request is bytes made beforehand, a connection is kept, and of an answer only status, length and
body are read.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

NOTHING: Mapping[str, str] = MappingProxyType({})


class Reply(NamedTuple):
    """An answer.

    Attributes:
        status: of HTTP; 0 when the connection broke.
        started, seconds: when it was asked, by time.perf_counter, and how long it took.
        local: the client's port.
        body, headers: empty when only figures are kept.
    """

    status: int
    started: float
    seconds: float
    local: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = NOTHING


def request(path: str, content: Any = None, *, method: str = "POST") -> bytes:
    """A request as it goes over the wire; `content` is JSON, or bytes that are sent as they are."""
    body = content if isinstance(content, bytes) else b""
    if content is not None and not isinstance(content, bytes):
        body = json.dumps(content).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Client:
    """A connection that is opened when it is needed and kept."""

    def __init__(self, port: int, *, seconds: float = 120.0) -> None:
        self.port = port
        self.seconds = seconds
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._local = 0

    async def ask(self, asked: bytes) -> Reply:
        """Send a request and wait for its answer."""
        started = time.perf_counter()
        try:
            status, headers, body = await asyncio.wait_for(self._exchange(asked), self.seconds)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError):
            self.close()
            return Reply(0, started, time.perf_counter() - started, self._local)
        if headers.get("connection", "").lower() == "close":
            self.close()
        taken = time.perf_counter() - started
        return Reply(status, started, taken, self._local, body, headers)

    async def _exchange(self, asked: bytes) -> tuple[int, dict[str, str], bytes]:
        # The server may have closed a connection that was not used for long.
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
            self._local = self._streams[1].get_extra_info("sockname")[1]
        reader, writer = self._streams
        writer.write(asked)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await reader.readexactly(int(headers["content-length"]))
        return int(first.split(" ", 2)[1]), headers, body

    def close(self) -> None:
        """Hang up; the next request opens a connection again."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def closed_loop(
    port: int, requests: Sequence[bytes], *, clients: int, seconds: float, first: int = 0
) -> tuple[list[Reply], float]:
    """Every client asks as soon as it is answered; replies without bodies, and the seconds taken.

    Args:
        port: of the server on this machine.
        requests: asked in turn, from number `first`, by whichever client is free.
        clients: how many ask at once.
        seconds: after which nobody begins a new one.
    """
    replies: list[Reply] = []
    number = first
    deadline = time.perf_counter() + seconds

    async def one(client: Client) -> None:
        nonlocal number
        while time.perf_counter() < deadline:
            asked, number = requests[number % len(requests)], number + 1
            replies.append((await client.ask(asked))._replace(body=b"", headers=NOTHING))

    everybody = [Client(port) for _ in range(clients)]
    started = time.perf_counter()
    await asyncio.gather(*map(one, everybody))
    taken = time.perf_counter() - started
    for client in everybody:
        client.close()
    return replies, taken


async def open_loop(
    port: int, requests: Sequence[bytes], *, rate: float, seconds: float
) -> list[Reply]:
    """Requests at a fixed rate, answered or not, each counted from when it was due.

    Args:
        port: of the server on this machine.
        requests: asked in turn.
        rate: requests a second.
        seconds: how long they come.
    """
    free: list[Client] = []
    replies: list[Reply] = []

    async def one(asked: bytes, due: float) -> None:
        client = free.pop() if free else Client(port)
        reply = await client.ask(asked)
        late = reply.started - due
        replies.append(Reply(reply.status, due, reply.seconds + late, reply.local))
        free.append(client)

    started = time.perf_counter()
    tasks = []
    for number in range(int(rate * seconds)):
        due = started + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(requests[number % len(requests)], due)))
    await asyncio.gather(*tasks)
    for client in free:
        client.close()
    return replies


def percentile(replies: Sequence[Reply], share: float) -> float:
    """Seconds within which that share of the replies came; 0 without any."""
    seconds = sorted(reply.seconds for reply in replies)
    return seconds[min(len(seconds) - 1, int(share * len(seconds)))] if seconds else 0.0
