"""Where chunks wait for a worker: an actor of Ray's beside the driver, whom its tasks cannot ask.

Nothing here knows what a chunk is, so that this process has no torch to load.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# How often a chunk is given to a worker before it is taken for the reason of their deaths.
TRIES = 4


class Shelf:
    """The chunks that have no answers yet, as bytes."""

    def __init__(self) -> None:
        self._chunks: dict[int, bytes] = {}
        self._tries: Counter[int] = Counter()
        self._count, self._is_whole = 0, False
        self._changed = asyncio.Condition()

    async def put(self, chunk: bytes) -> None:
        """At the next place, from 0 on."""
        async with self._changed:
            self._chunks[self._count] = chunk
            self._count += 1
            self._changed.notify_all()

    async def end(self) -> None:
        """No more chunks will come."""
        async with self._changed:
            self._is_whole = True
            self._changed.notify_all()

    async def has(self, place: int) -> bool:
        """Whether a chunk ever came to this place; waits until that is certain."""
        async with self._changed:
            await self._changed.wait_for(lambda: place < self._count or self._is_whole)
            return place < self._count

    async def chunk(self, place: int) -> bytes | None:
        """The chunk at a place, where it stays; None when too many workers have had it."""
        self._tries[place] += 1
        return self._chunks[place] if self._tries[place] <= TRIES else None

    async def answered(self, place: int) -> None:
        """The driver has the answers: nobody will ask for this chunk again."""
        del self._chunks[place], self._tries[place]


def places_on(shelf: Any) -> Iterator[pa.Table]:
    """Numbers from 0 on, one a table, as the chunks come. Read anew they are the same."""
    import pyarrow as pa
    import ray

    place = 0
    while ray.get(shelf.has.remote(place)):
        yield pa.table({"place": [place]})
        place += 1
