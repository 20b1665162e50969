"""Long streams in pieces: enough rows to find neighbours of equal length, few enough to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

# Rows that are tokenised, sorted and answered together: enough to find neighbours of equal length.
CHUNK_ROWS = 4_096
CHUNK_CHARACTERS = 16_000_000

Item = TypeVar("Item")


def characters_in(text: str | tuple[str, str]) -> int:
    """Size of a text, or of both texts of a pair."""
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])


def chunks(
    items: Iterable[Item], size_of: Callable[[Item], int], limit: int = CHUNK_CHARACTERS
) -> Iterator[list[Item]]:
    """Lists of at most CHUNK_ROWS items that end where their sizes reach `limit`."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += size_of(item)
        if len(chunk) >= CHUNK_ROWS or size >= limit:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
