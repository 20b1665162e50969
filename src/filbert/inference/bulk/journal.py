"""The journal of an unfinished file: which chunks of it are on the disk, whole.

The first line says what the work is, every further one tells of a chunk, once its bytes have
reached the disk. So a kill at any moment leaves a journal that is true, apart from a last line that
broke off; what the file holds beyond the journal is dropped.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filbert.errors import FormatError


@dataclass(frozen=True)
class Entry:
    """A chunk that is done.

    Attributes:
        rows: of the chunk.
        truncated: rows that were cut.
        digest: of the content of the rows.
        size: bytes of the answers.
        crc32: of these bytes.
    """

    rows: int
    truncated: int
    digest: str
    size: int
    crc32: int


def read_journal(path: Path) -> tuple[dict[str, Any], list[Entry]] | None:
    """What the work is and what is done; None where there is nothing yet.

    Raises:
        FormatError: a line in the middle is damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # what has no newline broke off
    except FileNotFoundError:
        return None
    try:
        if len(lines) < 2:
            return None
        return json.loads(lines[0]), [Entry(**json.loads(line)) for line in lines[1:]]
    except (ValueError, TypeError) as error:
        raise FormatError(f"{path} is damaged. Give --overwrite to begin anew.") from error


def write_journal(path: Path, plan: dict[str, Any], entries: Sequence[Entry]) -> None:
    """Replace the journal, whole or not at all."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(b"".join(map(_line, [plan, *map(asdict, entries)])))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def append(path: Path, entry: Entry) -> None:
    """One more chunk is done, and on the disk."""
    with path.open("ab") as file:
        file.write(_line(asdict(entry)))
        file.flush()
        os.fsync(file.fileno())


def whole_entries(path: Path, start: int, entries: Sequence[Entry]) -> list[Entry]:
    """The first entries whose bytes are in the file as they were written.

    Args:
        path: of the answers.
        start: bytes before the first chunk.
        entries: of the journal.
    """
    with path.open("rb") as file:
        file.seek(start)
        for number, entry in enumerate(entries):
            if not _is_whole(file, entry):
                return list(entries[:number])
    return list(entries)


def _is_whole(file: Any, entry: Entry) -> bool:
    found, left = 0, entry.size
    while left and (block := file.read(min(left, 2**20))):
        found, left = zlib.crc32(block, found), left - len(block)
    return left == 0 and found == entry.crc32


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"
