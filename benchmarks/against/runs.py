"""Runs of a comparison: each a process of its own, and a line of results when it is done."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The scripts of this folder import this module first; `sides` is in the folder above.
sys.path.insert(0, str(Path(__file__).parents[1]))
from sides.turns import busy_seconds  # noqa: E402

Record = dict[str, Any]
RESULTS = Path(__file__).parents[1] / "results"


def machine() -> dict[str, Any]:
    """The processor, its cores and the versions."""
    import torch

    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        name = named[0] if named else name
    packages = ("filbert", "torch", "transformers", "accelerate")
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages if find_spec(package)},
    }


def run_alone(script: str, request: dict[str, Any], log: Path) -> dict[str, Any] | None:
    """What `script --child` found; None if it failed.

    With `others`: how many cores other programs kept busy meanwhile.
    """
    command = [sys.executable, script, "--child", json.dumps(request)]
    before, clock = busy_seconds(), time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with log.open("w", encoding="utf-8") as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    seconds, after = time.perf_counter() - clock, busy_seconds()
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        tail = "\n    ".join(log.read_text(encoding="utf-8").splitlines()[-12:])
        print(f"  failed (exit status {done.returncode}); {log} ends:\n    {tail}", flush=True)
        return None
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    others = None
    if before is not None and after is not None:
        others = round(max(0.0, after - before - own) / seconds, 2)
    return json.loads(lines[-1].removeprefix("RESULT ")) | {"others": others}


def read_results(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            # A process that was killed while writing leaves part of a line: that run is made again.
            continue
    return found


def add_results_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add --results FILE and --record, which both set `results`: the file to append to."""
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("runs") / "results" / f"{name}.jsonl",
        help="JSON Lines file to append to; %(default)s unless given",
    )
    parser.add_argument(
        "--record",
        dest="results",
        action="store_const",
        const=RESULTS / f"{name}.jsonl",
        help="append to the tracked file in benchmarks/results, which the README's table reads",
    )


def append(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.is_file() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if torn else "") + json.dumps(record) + "\n")


class Kept:
    """The records of this call and, unless they are to be made again, of those before it."""

    def __init__(
        self,
        out: Path,
        results: Path | None,
        *names: str,
        again: bool = False,
        versions: dict[str, str] | None = None,
    ) -> None:
        """The records of a place.

        Args:
            out: where the next call finds them.
            results: where they are recorded for good, too.
            names: of what is equal in records that need not be made twice.
            again: make all of them.
            versions: of further packages, to be noted with the machine.
        """
        own = out / "results.jsonl"
        self._places = [own] if results is None else [own, results]
        self._names = names
        self._done = {} if again else {self._key_of(r): r for r in read_results(own)}
        self._machine = machine() | (versions or {})

    def _key_of(self, record: Record) -> str:
        return json.dumps({name: record.get(name) for name in self._names}, sort_keys=True)

    def missing(self, wanted: Iterable[Record]) -> list[Record]:
        """Those that have to be made."""
        return [record for record in wanted if self._key_of(record) not in self._done]

    def made(self, wanted: Iterable[Record]) -> list[Record]:
        """Those that are there, whole."""
        keys = [self._key_of(record) for record in wanted]
        return [self._done[key] for key in keys if key in self._done]

    def add(self, record: Record) -> Record:
        """The record with machine and time, kept."""
        record = record | {"machine": self._machine, "time": time.strftime("%F %T")}
        self._done[self._key_of(record)] = record
        for place in self._places:
            append(place, record)
        return record


def carry_out(
    name: str,
    given: argparse.Namespace,
    compare: Callable[[argparse.Namespace, Path, Path | None], tuple[list[Record], int]],
    table: Callable[[list[Record]], str],
    *,
    is_recorded: bool,
) -> int:
    """Compare and print; the exit status."""
    with tempfile.TemporaryDirectory() as spare:
        default = Path(spare) if given.small else Path("runs") / name
        results = given.results if is_recorded else None
        records, failures = compare(given, given.out or default, results)
    print("\n" + table(records))
    if failures:
        print(f"\n{failures} of them failed; the same command tries them again.")
    return 1 if failures else 0
