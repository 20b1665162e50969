"""Readers that do what none may do: the watchdog must see each. Prints a line a reader."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Callable
from pathlib import Path

from hostile.readers import Reader
from hostile.watch import run_cases


def spin(_: Path) -> None:
    until = time.process_time() + 1.2
    while time.process_time() < until:
        pass


# What `Result.what` must say, and who causes it.
BAD: dict[str, Callable[[Path], object]] = {
    "KeyError": lambda _: {}["x"],
    "s (accepted": spin,
    "MB (accepted": lambda _: bytearray(os.urandom(2**20) * 300),
    "os.system": lambda _: pickle.loads(b"cos\nsystem\n(S'touch ../canary'\ntR."),
    "open('../outside'": lambda _: Path("../outside").write_text("x"),
    "socket": lambda _: socket.create_connection(("127.0.0.1", 9)),
    "SIGABRT": lambda _: os.abort(),
}

if __name__ == "__main__":
    for wanted, read in BAD.items():
        reader = Reader("bad", lambda: [{"x.json": b'{"a": 1}'}], (".json",), read)
        result = next(iter(run_cases(reader, 0, range(1))))
        print(result.ending == "failed" and wanted in result.what, wanted, result)
