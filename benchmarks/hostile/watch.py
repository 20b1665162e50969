"""Runs cases in worker processes under a watchdog, and says how each of them ended.

Linux only: memory is read from /proc, where the peak of a process can be set back.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from filbert.errors import FormatError
from hostile.made import Files
from hostile.readers import READERS, Reader

# Of processor time, since the machine may be doing other things as well.
MAX_SECONDS = 1.0
MAX_MEGABYTES = 256.0
# A worker hangs when it has worked for this long on one case, or has slept for much longer.
HANG_SECONDS = 20.0
_SLEEP_SECONDS = 900.0
# Address space beyond what a worker starts with.
_MORE_MEMORY = 3 * 2**30


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.", "socket.", "pty.")
_CHANGING = ("os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.chmod")


@dataclass(frozen=True)
class Result:
    """How a case ended.

    Attributes:
        case: its number; seed, reader and number make the files.
        ending: "refused" (a FormatError), "accepted" or "failed".
        what: the message, or what was wrong.
        seconds: of processor time.
        megabytes: growth of the memory in use, at its peak.
    """

    case: int
    ending: str
    what: str
    seconds: float
    megabytes: float


class _Guard:
    """An audit hook: while `folder` is set, nothing outside it is written, nothing is run."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.folder is None:
            return
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & _WRITING or path == os.devnull:
                return
        elif event.startswith(_CHANGING):
            path = arguments[1] if event == "os.symlink" else arguments[0]
        elif event.startswith(_FORBIDDEN):
            path = ""
        else:
            return
        if isinstance(path, (str, bytes, os.PathLike)):
            # What removes a folder names the files in it relative to an open descriptor.
            above = arguments[-1] if event in ("os.remove", "os.rmdir") else -1
            base = os.readlink(f"/proc/self/fd/{above}") if above != -1 else os.getcwd()
            place = os.path.normpath(os.path.join(base, os.fsdecode(path)))
            if place == self.folder or place.startswith(self.folder + "/"):
                return
        self.seen.append(f"{event}{arguments!r}"[:200])
        raise PermissionError(f"hostile files made somebody call {event}")


def files_of(reader: Reader, seed: int, case: int) -> Files:
    """The hostile files of a case."""
    rng = Random(f"{seed}:{reader.name}:{case}")
    return reader.damage(rng, rng.choice(reader.bases()))


def write_files(folder: Path, files: Files) -> None:
    """Put files into a new folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def run_case(reader: Reader, case: int, files: Files, place: Path, guard: _Guard) -> Result:
    """Read hostile files from a folder below `place`, and see what it costs and leaves behind."""
    folder = place / "case"
    write_files(folder, files)
    gc.collect(1)
    before, clock = _reset_peak(), time.process_time()
    ending, what = "accepted", ""
    guard.folder, guard.seen = str(folder), []
    try:
        reader.read(folder)
    except reader.allowed as error:
        ending, what = "refused", str(error)
        if message := _bad_message(what):
            ending, what = "failed", f"{message}: {what[:300]!a}"
    except BaseException as error:
        ending, what = "failed", f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        guard.folder = None
    seconds, megabytes = time.process_time() - clock, (_peak() - before) / 1024
    left = [path.name for path in place.iterdir() if path.name != "case"]
    if guard.seen or left:
        ending, what = "failed", f"it reached out: {guard.seen or left}"
    elif ending != "failed" and seconds > MAX_SECONDS:
        ending, what = "failed", f"{seconds:.1f} s ({ending} {what[:200]})"
    elif ending != "failed" and megabytes > MAX_MEGABYTES:
        ending, what = "failed", f"{megabytes:.0f} MB ({ending} {what[:200]})"
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return Result(case, ending, what, seconds, megabytes)


def _bad_message(text: str) -> str:
    if len(text) > 1500:
        return "a message without end"
    return "" if text.isprintable() else "a message that steers a terminal"


def _status(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))


def _reset_peak() -> int:
    """Set the peak back to what is in use; that, in KiB."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _status("VmHWM")


def _peak() -> int:
    return _status("VmHWM")


def run_cases(reader: Reader, seed: int, cases: range) -> Iterator[Result]:
    """Run cases one after the other; a crash or a hang is the ending of the case it befell."""
    at = cases.start
    reader.bases()  # made once, before the workers are forked
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as place:
        while at < cases.stop:
            number = 0
            for result in _worker(reader, seed, range(at, cases.stop), Path(place) / str(at)):
                yield result
                number += 1
            at += number


def _worker(reader: Reader, seed: int, cases: range, place: Path) -> Iterator[Result]:
    place.mkdir()
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(out)
            _work(reader, seed, cases, place, into)
            status = 0
        finally:
            os._exit(status)
    os.close(into)
    at = cases.start
    done = False
    buffer, begun, heard = b"", 0.0, time.monotonic()
    try:
        while at < cases.stop:
            if not select.select([out], [], [], 5.0)[0]:
                worked = _worked(child) - begun
                if worked > HANG_SECONDS or time.monotonic() - heard > _SLEEP_SECONDS:
                    yield Result(at, "failed", f"hangs after {worked:.0f} s", worked, 0.0)
                    return
                continue
            block = os.read(out, 2**16)
            if not block:
                status = os.waitpid(child, 0)[1]
                done = True
                if at < cases.stop:
                    how = os.waitstatus_to_exitcode(status)
                    name = signal.Signals(-how).name if how < 0 else f"exit status {how}"
                    yield Result(at, "failed", f"the process ended: {name}", 0.0, 0.0)
                return
            begun, heard = _worked(child), time.monotonic()
            *lines, buffer = (buffer + block).split(b"\n")
            for line in lines:
                yield Result(**json.loads(line))
                at += 1
    finally:
        os.close(out)
        if not done:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _worked(child: int) -> float:
    """Processor time of a process in seconds."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(reader: Reader, seed: int, cases: range, place: Path, into: int) -> None:
    import torch

    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)  # the Rust libraries print where they panic
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = _status("VmSize") * 1024 + _MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    warnings.simplefilter("error")
    os.chdir(place)
    guard = _Guard()
    sys.addaudithook(guard)
    # The first reading imports what is imported late, and is no case.
    for files in reader.bases():
        run_case(reader, -1, files, place, guard)
    for case in cases:
        result = run_case(reader, case, files_of(reader, seed, case), place, guard)
        os.write(into, json.dumps(asdict(result)).encode() + b"\n")


def check_bases(reader: Reader) -> None:
    """Make sure that the undamaged files are read; else every case would be refused for nothing."""
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as place:
        for index, files in enumerate(reader.bases()):
            folder = Path(place) / str(index)
            write_files(folder, files)
            try:
                reader.read(folder)
            except FormatError as error:
                raise AssertionError(f"{reader.name}: the valid files are refused") from error


def _memory_folder() -> str | None:
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK) else None


def run_one(name: str, seed: int, case: int) -> Result:
    """One case again, in a process of its own."""
    return next(iter(run_cases(READERS[name], seed, range(case, case + 1))))
