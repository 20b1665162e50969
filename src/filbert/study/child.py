"""Runs a job in a child process: started, watched and stopped by the parent.

The child is `python -m filbert.study.child JOB`. A process of its own measures its own memory, and
a crash or a kill ends only this run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filbert.errors import FilbertError
from filbert.files import write_json
from filbert.study.contestants import Job
from filbert.train.folder import read_run
from filbert.train.log import say
from filbert.train.signals import Stop

_TICK = 0.25
# Bytes at the end of metrics.jsonl that are read for the last step.
_TAIL = 4_096
# A child that does not end by itself after a second signal.
_PATIENCE = 5.0


@dataclass(frozen=True)
class Ended:
    """How a run ended: finished, failed or interrupted, and why."""

    status: str
    error: str | None = None


def run_child(
    job: Job,
    path: Path,
    *,
    stop: Stop,
    lock: int,
    steps: int | None,
    on_tick: Callable[[float, float | None], None],
) -> Ended:
    """Run a job in a process of its own and wait for it.

    What the child says goes to a log beside the run folder; sentences name it from the study's own.

    Args:
        job: what to do.
        path: where the job is written for the child.
        stop: whether a signal has come; the child then gets SIGTERM and saves its state.
        lock: the descriptor that guards the study's folder; the child holds it too.
        steps: optimiser steps of the run, where they are known.
        on_tick: is told the seconds so far and the fraction of the training that is done.

    Raises:
        KeyboardInterrupt: a second signal; the child is gone.
    """
    out = Path(job.out)
    if out.exists() and read_run(out) is None:
        # Killed before it had written anything that could be gone on with.
        shutil.rmtree(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    job.write(path)
    outcome = outcome_path(path)
    outcome.unlink(missing_ok=True)
    log_path = out.with_name(f"{out.name}.log")
    started, is_told = time.perf_counter(), False
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "filbert.study.child", str(path)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            # Signals of a terminal reach the parent alone, which hands them on.
            start_new_session=True,
            pass_fds=(lock,),
        )
        try:
            while child.poll() is None:
                try:
                    child.wait(_TICK)
                except subprocess.TimeoutExpired:
                    on_tick(time.perf_counter() - started, fraction_done(out, steps))
                if stop.name is not None and not is_told:
                    is_told = True
                    say(f"{stop.name}: {job.contestant} saves its state; once more ends it at once")
                    child.send_signal(signal.SIGTERM)
        except BaseException:
            child.terminate()
            try:
                child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            raise
        finally:
            if child.stdin is not None:
                child.stdin.close()
    return _ended(child.returncode, outcome, log_path.relative_to(out.parents[2]))


def fraction_done(run: Path, steps: int | None) -> float | None:
    """Return the fraction of a run's steps in metrics.jsonl; None if it is unknown."""
    if not steps:
        return None
    try:
        with (run / "metrics.jsonl").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            return min(1.0, float(json.loads(line)["step"]) / steps)
        except (ValueError, KeyError, TypeError):
            continue
    return None


def _ended(code: int, outcome: Path, log: Path) -> Ended:
    try:
        told = json.loads(outcome.read_text(encoding="utf-8"))
        return Ended(str(told["status"]), told["error"])
    except (OSError, ValueError, KeyError):
        pass
    if code < 0:
        name = signal.Signals(-code).name
        why = ", probably for want of memory" if code == -signal.SIGKILL else ""
        return Ended("failed", f"The process was ended by {name}{why}. Its log: {log}")
    return Ended("failed", f"The process ended with status {code}. Its log: {log}")


EXIT_INTERRUPTED = 130


def outcome_path(job: Path) -> Path:
    """Where the child says how it ended; nothing there means that it was killed."""
    return job.with_suffix(".outcome.json")


def main(job: Path) -> int:
    """Carry out a job; the exit status."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    status, error, code = "finished", None, 0
    try:
        from filbert.study.contestants import Job, carry_out

        carry_out(Job.read(job))
    except FilbertError as found:
        status, error, code = "failed", str(found), found.exit_status
    except KeyboardInterrupt:
        status, code = "interrupted", EXIT_INTERRUPTED
    except MemoryError:
        status, error, code = "failed", "There was not enough memory.", 1
    except Exception as found:
        traceback.print_exc()
        # Of an unforeseen error only the kind: its words may hold somebody's text.
        status, error, code = "failed", f"{type(found).__name__}; see the log.", 1
    write_json(outcome_path(job), {"status": status, "error": error})
    return code


def _end_with_parent() -> None:
    """Standard input ends when the parent does, even if that was killed: then end in good order."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
