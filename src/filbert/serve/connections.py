"""How connections come in: shared out evenly between processes, and not kept when nothing is asked.

uvicorn is given no socket. asyncio's own server takes all connections that wait at once, so that
one of several processes may get all clients of a burst and the others none.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import mmap
import socket
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import uvicorn

log = logging.getLogger(__name__)

# Connections that may wait in the kernel while all processes are busy.
BACKLOG = 2048
# What a process waits before it takes a connection that another one, with fewer, has left.
_COURTESY_SECONDS = 0.003
# What it waits when it may open no more files.
_FULL_SECONDS = 1.0
_NOT_STARTED = 2**31 - 1
# Who reads an answer more slowly than so many bytes a second does not read it.
_SLOWEST_READER = 1_000


class Counts:
    """The open connections of each of several processes, in memory that they inherit and share."""

    def __init__(self, processes: int) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 4 * processes)).cast("i")
        for number in range(processes):
            self._numbers[number] = _NOT_STARTED

    def tell(self, number: int, connections: int) -> None:
        """A process has so many."""
        self._numbers[number] = connections

    def forget(self, number: int) -> None:
        """A process has ended."""
        self._numbers[number] = _NOT_STARTED

    def has_fewest(self, number: int) -> bool:
        """Whether no other process has fewer."""
        return self._numbers[number] == min(self._numbers)


class Door:
    """Takes connections and hands them to a running uvicorn server, which closes it at the end.

    Args:
        server: started without sockets.
        listener: a bound socket, which several processes may share.
        counts: theirs.
        number: which of them this is.
        patience: seconds after which a connection without a whole head of a request is closed, and
            one whose answer is not read is broken off, at the latest twice that. uvicorn's own
            clock starts after an answer; what is slow about a body is stopped in the app.
    """

    def __init__(
        self,
        server: uvicorn.Server,
        listener: socket.socket,
        counts: Counts,
        number: int,
        patience: float,
    ) -> None:
        self._server, self._listener = server, listener
        self._counts, self._number = counts, number
        self._patience = patience
        self._has_waited = False
        self._entering: set[asyncio.Task[None]] = set()

    # What uvicorn expects of a server: `close`, and `wait_closed` after it.

    def open(self) -> None:
        """Let people in.

        Raises:
            OSError: another socket listens there.
        """
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._server.servers.append(self)  # type: ignore[arg-type]
        self._tell()
        self._look_out()

    def close(self) -> None:
        """Let nobody in any more."""
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()

    async def wait_closed(self) -> None:
        """There is nothing to wait for."""

    def _look_out(self) -> None:
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._somebody_is_there)

    def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        loop.call_later(seconds, self._look_out)

    def _somebody_is_there(self) -> None:
        if not self._counts.has_fewest(self._number) and not self._has_waited:
            self._has_waited = True
            self._pause(_COURTESY_SECONDS)
            return
        self._has_waited = False
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # another process was faster, or the client has left
        except OSError as error:
            log.error("no connection can be taken: %s", error.strerror)
            self._pause(_FULL_SECONDS)
            return
        connection.setblocking(False)
        task = asyncio.create_task(self._enter(connection))
        self._entering.add(task)
        self._tell()
        task.add_done_callback(self._has_entered)

    def _has_entered(self, task: asyncio.Task[None]) -> None:
        self._entering.discard(task)
        self._tell()

    def _tell(self) -> None:
        inside = self._server.server_state.connections
        self._counts.tell(self._number, len(inside) + len(self._entering))

    async def _enter(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._server.config.ssl
            )
        except (OSError, EOFError):  # no TLS is spoken there
            connection.close()

    def _protocol(self) -> Any:
        server, loop = self._server, asyncio.get_running_loop()
        protocol: Any = server.config.http_protocol_class(  # type: ignore[call-arg]
            config=server.config,
            server_state=server.server_state,
            app_state=server.lifespan.state,
            _loop=loop,
        )
        made, lost = protocol.connection_made, protocol.connection_lost
        watch = _Watch(protocol, self._patience)

        def connection_made(transport: asyncio.BaseTransport) -> None:
            made(transport)
            watch.begin()

        def connection_lost(error: Exception | None) -> None:
            watch.end()
            lost(error)
            self._tell()

        protocol.connection_made = connection_made
        protocol.connection_lost = connection_lost
        return protocol


class _Watch:
    """Looks at a connection again and again, until it is lost."""

    def __init__(self, protocol: Any, patience: float) -> None:
        self._protocol, self._patience = protocol, patience
        # What there was at the last look: the request, whether it was answered, and how many bytes
        # were still to be sent.
        self._before: tuple[Any, bool, int] = (None, True, 0)

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._patience, self._look)

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        transport, request = self._protocol.transport, self._protocol.cycle
        is_idle = request is None or request.response_complete
        unsent = _unsent(transport)
        last, was_idle, before = self._before
        self._before = request, is_idle, unsent
        self.begin()
        if request is not last or is_idle != was_idle:
            return
        if before and unsent > max(0, before - _SLOWEST_READER * self._patience):
            # To close would wait for what is never read.
            transport.abort()
        elif is_idle and not unsent:
            transport.close()


def _unsent(transport: Any) -> int:
    """Bytes that wait for the other end, in the kernel too; 0 when none wait here.

    What the kernel holds has to be counted: it takes more only when a third of it is read.
    """
    waiting = int(transport.get_write_buffer_size())
    if waiting:
        with suppress(OSError):
            number = transport.get_extra_info("socket").fileno()
            found = fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4))
            waiting += int.from_bytes(found, sys.byteorder)
    return waiting
