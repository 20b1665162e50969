"""Several processes behind one port: started, watched, started again, and stopped together.

The parent loads nothing but this module and the options, so it has no threads and may fork at any
time. All workers accept from one listening socket that they inherit: what waits in its queue
belongs to none of them, so a worker that is killed takes only its own connections with it (with
SO_REUSEPORT it would also take a queue of its own).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

from filbert.errors import FilbertError

log = logging.getLogger(__name__)

# What the parent waits for. A worker sends SIGUSR1 when it answers.
_WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}
# Seconds before a worker that ends again and again is started anew: from the first to the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
# A worker that has lived for this long was in order.
_SOUND_SECONDS = 60.0
# What workers have beyond their own time of grace before they are killed.
_SPARE_SECONDS = 5.0


class Post(NamedTuple):
    """A worker's place.

    Attributes:
        number: from 0; whoever takes a dead worker's place has its number.
        is_first: no other worker has been ready before.
        ready: to be called when it is.
    """

    number: int
    is_first: bool
    ready: Callable[[], None]


ALONE = Post(0, True, lambda: None)


def pause_after(deaths: int) -> float:
    """Seconds to wait after that many early deaths in a row: the first costs no time at all."""
    return 0.0 if deaths <= 1 else min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (deaths - 2))


def supervise(
    work: Callable[[Post], int],
    workers: int,
    *,
    grace_seconds: float,
    stopping: Callable[[], None] = lambda: None,
    ended: Callable[[int, int], None] = lambda number, pid: None,
) -> tuple[int, int]:
    """Keep `workers` processes at work until SIGTERM or SIGINT; a second one kills them.

    The first worker goes ahead: when it ends before it was ready (a model that cannot be loaded),
    so does everything, and its sentence was said once.

    Args:
        work: what a worker does, in a process forked for it; it gives its exit status.
        workers: how many.
        grace_seconds: what they are given to finish.
        stopping: called in the parent before they are told to stop.
        ended: called in the parent with the number and process id of every worker that ended.

    Returns:
        The exit status, and the signal that ended it all (0: a worker did).
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    life = os.pipe()  # its writing end is open in the parent alone: closed means that it died
    alive: dict[int, tuple[int, float]] = {}  # by process id: the worker's number, since when
    deaths = [0] * workers
    due = {0: 0.0}  # by the worker's number: when to start it
    is_proven = False
    while True:
        for number in [number for number, at in due.items() if at <= time.monotonic()]:
            del due[number]
            pid = _start(work, life, number, is_first=not is_proven)
            alive[pid] = (number, time.monotonic())
        wait = max(0.0, min(due.values()) - time.monotonic()) if due else 3600.0
        heard = signal.sigtimedwait(_WATCHED, wait)
        what = heard.si_signo if heard else 0
        if what in (signal.SIGTERM, signal.SIGINT):
            stopping()
            _stop(set(alive), grace_seconds + _SPARE_SECONDS)
            return 0, what
        if what == signal.SIGUSR1 and not is_proven:
            is_proven = True
            due |= dict.fromkeys(range(1, workers), 0.0)
        for pid, status in _reaped():
            # A child that this process was given, as a container's first process is.
            if pid not in alive:
                continue
            number, since = alive.pop(pid)
            ended(number, pid)
            if not is_proven:
                return (status if status > 0 else 1), 0
            deaths[number] = 1 if time.monotonic() - since > _SOUND_SECONDS else deaths[number] + 1
            pause = pause_after(deaths[number])
            due[number] = time.monotonic() + pause
            when = f"in {pause:g} s" if pause else "now"
            log.warning("worker %d (%d) %s; started again %s", number, pid, _how(status), when)


def _start(
    work: Callable[[Post], int], life: tuple[int, int], number: int, *, is_first: bool
) -> int:
    """Fork a worker; its process id."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        # Ctrl-C is sent to a group of processes: the parent hears it and tells the workers.
        os.setpgrp()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        os.close(life[1])
        threading.Thread(target=_end_with_parent, args=(life[0],), daemon=True).start()
        status = work(Post(number, is_first, lambda: os.kill(parent, signal.SIGUSR1)))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except FilbertError as error:
        print(f"filbert: {error}", file=sys.stderr)
        status = error.exit_status
    except BaseException:
        traceback.print_exc()
    finally:
        # Not `sys.exit`: what the parent has open and still to do is not the worker's.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _end_with_parent(life: int) -> None:
    os.read(life, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _reaped() -> Iterator[tuple[int, int]]:
    """Process ids and exit statuses (-N: killed by signal N) of those that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def _stop(alive: set[int], seconds: float) -> None:
    """Tell them to stop, and kill who has not done so in time."""
    deadline = time.monotonic() + seconds
    _send(alive, signal.SIGTERM)
    while alive:
        heard = signal.sigtimedwait(_WATCHED, max(0.0, deadline - time.monotonic()))
        if heard is None or heard.si_signo in (signal.SIGTERM, signal.SIGINT):
            _send(alive, signal.SIGKILL)
            deadline = time.monotonic() + seconds
        alive -= {pid for pid, _ in _reaped()}


def _send(alive: set[int], number: int) -> None:
    for pid in alive:
        os.kill(pid, number)


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
