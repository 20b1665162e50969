"""Runs of a comparison: each a process of its own, and a line of results when it is done."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any


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


def _busy_seconds() -> float | None:
    """Processor seconds that the whole machine has worked; None where that is not told."""
    try:
        first = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft = map(int, first[1:8])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def run_alone(script: str, request: dict[str, Any], log: Path) -> dict[str, Any] | None:
    """What `script --child` found; None if it failed.

    With `others`: how many cores other programs kept busy meanwhile.
    """
    command = [sys.executable, script, "--child", json.dumps(request)]
    before, clock = _busy_seconds(), time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with log.open("w", encoding="utf-8") as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    seconds, after = time.perf_counter() - clock, _busy_seconds()
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


def append(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.is_file() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if torn else "") + json.dumps(record) + "\n")
