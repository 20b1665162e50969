"""Sides taking turns: all are ready at once, and one at a time works while the others sleep.

A machine that is busy for a while is then busy for everybody.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from filbert.errors import RunError
from sides.job import Job

# Loading a model, converting it first if need be.
_LOADING = 300.0
# One turn; a side that takes longer is given up.
_TURN = 300.0
# Threads of other engines go on spinning for a while after their work: 0.2 s in the slowest.
PAUSE = 0.25


class Child:
    """A process that does one side's work, and waits in between."""

    def __init__(self, job: Job, log: Path) -> None:
        self.job, self.log = job, log
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        path = os.pathsep.join(
            [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sides.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | dict.fromkeys(names, str(job.threads)) | {"PYTHONPATH": path},
            )
        self._send(job.line())

    def wait(self) -> float:
        """Until it is ready: the seconds that this took.

        Raises:
            RunError: it could not get ready.
        """
        return float(self._reply(_LOADING)["ready"])

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Its reply to a request.

        Raises:
            RunError: it has ended, or took too long.
        """
        self._send(json.dumps(dict(request)).encode() + b"\n")
        return self._reply(_TURN)

    def _send(self, line: bytes) -> None:
        pipe: IO[bytes] | None = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(line)
            pipe.flush()
        except BrokenPipeError:
            raise RunError(f"{self.job.side}: {self._last_words()}") from None

    def _reply(self, seconds: float) -> dict[str, Any]:
        pipe: IO[bytes] | None = self._process.stdout
        assert pipe is not None
        ready, _, _ = select.select([pipe], [], [], seconds)
        if not ready:
            raise RunError(f"{self.job.side}: no answer within {seconds:.0f} s.")
        line = pipe.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"failed": self._last_words()}
        if "failed" in reply:
            raise RunError(f"{self.job.side}: {reply['failed'].rstrip('.')}.")
        return reply

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended without a word; its log: {self.log}"

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def children(
    jobs: Sequence[Job], logs: Path, *, together: int = 2
) -> Iterator[tuple[dict[str, Child], list[str]]]:
    """All sides ready, by name, and a sentence for each that could not get ready.

    Args:
        jobs: one a side.
        logs: folder for what they say.
        together: how many get ready at the same time.
    """
    logs.mkdir(parents=True, exist_ok=True)
    begun: dict[str, Child] = {}
    failed: dict[str, str] = {}

    def begin(job: Job) -> None:
        child = Child(job, logs / f"{job.side}.log")
        begun[job.side] = child
        try:
            child.wait()
        except RunError as error:
            failed[job.side] = str(error)

    try:
        with ThreadPoolExecutor(together) as pool:
            list(pool.map(begin, jobs))
        order = [job.side for job in jobs]
        ready = {name: begun[name] for name in order if name not in failed}
        yield ready, [failed[name] for name in order if name in failed]
    finally:
        for child in begun.values():
            child.close()


@dataclass
class Turns:
    """What came of taking turns.

    Attributes:
        replies: by side and request, in the order of the rounds.
        failed: a sentence for each side that broke off.
        others: cores that other programs kept busy in the pauses; None where it is not told.
        rounds: whole rounds that count.
    """

    replies: dict[str, dict[str, list[dict[str, Any]]]]
    failed: list[str] = field(default_factory=list)
    others: float | None = None
    rounds: int = 0


def take_turns(
    sides: Mapping[str, Child],
    requests: Mapping[str, Mapping[str, Mapping[str, Any]]],
    *,
    rounds: int,
    seconds: float | None = None,
    warm_up: bool = True,
    pause: float = PAUSE,
    on_round: Callable[[int], None] = lambda number: None,
) -> Turns:
    """Ask every side its requests, round after round; who goes first changes.

    Args:
        sides: ready, by name; those that break off are left out from then on.
        requests: by side, and by the name under which the replies are kept.
        rounds: how many count, if `seconds` allows; at least one is made.
        seconds: no further round begins when it would probably end later than this.
        warm_up: one round before, which does not count.
        pause: seconds before each turn.
        on_round: is told the number of each round that is done; 0 for the warm-up.
    """
    turns = Turns({name: {key: [] for key in requests[name]} for name in sides})
    alive, idle, slept, began = list(sides), 0.0, 0.0, time.perf_counter()
    for number in range(0 if warm_up else 1, rounds + 1):
        round_began = time.perf_counter()
        first = number % max(1, len(alive))
        for name in [*alive[first:], *alive[:first]]:
            for key, request in requests[name].items():
                before, clock = busy_seconds(), time.perf_counter()
                time.sleep(pause)
                after = busy_seconds()
                if before is not None and after is not None:
                    idle += after - before
                    slept += time.perf_counter() - clock
                try:
                    reply = sides[name].ask(request)
                except RunError as error:
                    turns.failed.append(str(error))
                    alive.remove(name)
                    break
                if number:
                    turns.replies[name][key].append(reply)
        turns.rounds = number
        on_round(number)
        now = time.perf_counter()
        if number and seconds is not None and now + (now - round_began) > began + seconds:
            break
    turns.replies = {name: turns.replies[name] for name in alive}
    turns.others = round(idle / slept, 2) if slept else None
    return turns


def busy_seconds() -> float | None:
    """Processor seconds that the whole machine has worked; None where that is not told."""
    try:
        first = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft = map(int, first[1:8])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
