"""Two servers at one socket, in one event loop: who takes a connection, and how long it is kept."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from filbert.serve.connections import Counts, Door

# More than the kernel keeps of it.
LARGE = bytes(16_000_000)


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """An application that says nothing, as late as its path wants."""
    if scope["type"] == "lifespan":
        return
    await asyncio.sleep(0.3 if scope["path"] == "/late" else 0)
    if scope["path"] == "/large":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": LARGE})
        return
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


@asynccontextmanager
async def doors(number: int, patience: float = 60.0) -> AsyncIterator[Any]:
    """Doors that are not open yet, and the port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        counts = Counts(number)
        made, running = [], []
        for index in range(number):
            config = uvicorn.Config(answer, log_config=None, lifespan="off", ws="none")
            server = uvicorn.Server(config)
            running.append(asyncio.create_task(server._serve([])))
            while not server.started:
                await asyncio.sleep(0.001)
            made.append((Door(server, listener.dup(), counts, index, patience), server))
        yield made, listener.getsockname()[1]
        for _, server in made:
            server.should_exit = True
        await asyncio.gather(*running)


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.001)


async def connect(port: int, count: int) -> list[asyncio.StreamWriter]:
    return [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(count)]


async def close(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.close()
    for writer in writers:
        await writer.wait_closed()


def test_a_process_with_fewer_connections_takes_the_next_ones():
    async def is_fair() -> bool:
        async with doors(2) as (made, port):
            (one, first), (two, second) = made
            one.open()
            writers = await connect(port, 6)
            await until(lambda: len(first.server_state.connections) == 6)
            two.open()
            writers += await connect(port, 5)
            await until(lambda: inside(made) == 11)
            was_fair = len(second.server_state.connections) == 5
            # Those who leave count no more.
            assert not was_fair or not one._counts.has_fewest(0)
            await close(writers[:4])
            await until(lambda: not was_fair or one._counts.has_fewest(0))
            writers = writers[4:] + await connect(port, 3)
            await until(lambda: inside(made) == 10)
            was_fair = was_fair and len(first.server_state.connections) == 5
            await close(writers)
        return was_fair

    # Other programs may stop this one for longer than the milliseconds that a process leaves to
    # those with fewer connections.
    assert any(asyncio.run(is_fair()) for _ in range(5))


def inside(made: Any) -> int:
    return sum(len(server.server_state.connections) for _, server in made)


def test_a_process_takes_what_another_one_with_fewer_leaves():
    async def go() -> None:
        async with doors(2) as (made, port):
            (one, first), (two, second) = made
            one.open()
            two.open()
            # It says that it has none, and takes none.
            two._pause(60.0)
            writers = await connect(port, 3)
            await until(lambda: len(first.server_state.connections) == 3)
            assert not second.server_state.connections
            await close(writers)

    asyncio.run(go())


def test_a_connection_is_closed_when_nothing_is_asked_but_not_while_it_is_answered():
    async def go() -> None:
        async with doors(1, patience=0.1) as (made, port):
            made[0][0].open()
            silent, unused = await asyncio.open_connection("127.0.0.1", port)
            dribbling, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request("/")[:-2])
            late, other = await asyncio.open_connection("127.0.0.1", port)
            other.write(request("/late"))
            assert await silent.read() == b""
            assert await dribbling.read() == b""
            assert (await late.readline()).startswith(b"HTTP/1.1 204")
            await close([unused, writer, other])

    asyncio.run(go())


def test_an_answer_that_is_not_read_is_dropped_and_one_that_is_read_slowly_is_not():
    async def go() -> None:
        async with doors(1, patience=0.4) as (made, port):
            door, server = made[0]
            door.open()
            others = await connect(port, 2)
            others[0].write(request("/large"))
            others[1].write(request("/large") * 2)  # the second answer waits for the first
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65_536)
            writer.write(request("/large"))
            loop = asyncio.get_running_loop()
            slow_until, size = loop.time() + 1.2, 0
            while size < len(LARGE):
                part = await reader.read(65_536)
                assert part, "the one who reads was broken off"
                size += len(part)
                if loop.time() < slow_until:
                    await asyncio.sleep(0.03)
            await until(lambda: not server.server_state.connections)
            for unread in others:
                unread.transport.abort()
            await close([writer])

    asyncio.run(go())


def test_a_process_that_has_ended_keeps_nobody_waiting():
    counts = Counts(2)
    counts.tell(0, 5)
    counts.tell(1, 0)
    assert not counts.has_fewest(0)
    counts.forget(1)
    assert counts.has_fewest(0)


def test_a_closed_door_refuses():
    async def go() -> None:
        async with doors(1) as (made, port):
            door, server = made[0]
            door.open()
            await close(await connect(port, 1))
        try:
            await connect(port, 1)
        except ConnectionRefusedError:
            return
        raise AssertionError("somebody was let in")

    asyncio.run(go())
