"""Runs a job in a child process: started, watched and stopped by the parent.

The child is `python -m filbert.compare.child JOB`. Its memory is measured on its own, and
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

from filbert.compare.contestants import Job
from filbert.errors import FilbertError
from filbert.files import write_json
from filbert.train.log import say
from filbert.train.run_folder import read_run
from filbert.train.signals import Stop

_TICK = 0.25
# Bytes at the end of metrics.jsonl that are read for the last step.
_TAIL = 4_096
# Seconds that a child gets after a second signal before it is killed.
_PATIENCE = 5.0


@dataclass(frozen=True)
class Ended:
    """The outcome of a run: finished, failed or interrupted, with the error."""

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
    """Run a job in a child process and wait for it.

    The child's output goes to a log next to the run folder.

    Args:
        job: The job.
        path: File for the job.
        stop: Received signals; the child then gets SIGTERM and saves its state.
        lock: Descriptor of the lock on the study's folder; the child holds it too.
        steps: Optimiser steps of the run, if known.
        on_tick: Called with the seconds so far and the fraction of the training that is done.

    Raises:
        KeyboardInterrupt: A second signal was received; the child has ended.
    """
    out = Path(job.out)
    if out.exists() and read_run(out) is None:
        # It was killed before it had saved anything to resume from.
        shutil.rmtree(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    job.write(path)
    outcome = outcome_path(path)
    outcome.unlink(missing_ok=True)
    log_path = out.with_name(f"{out.name}.log")
    started, is_told = time.perf_counter(), False
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "filbert.compare.child", str(path)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            # Signals of a terminal reach the parent only, which forwards them.
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
                    say(
                        f"{stop.name}: {job.contestant} saves its state; a second signal ends "
                        "it at once"
                    )
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
    """Return the file with the outcome; it is missing if the child was killed."""
    return job.with_suffix(".outcome.json")


def main(job: Path) -> int:
    """Run a job in the child; return the exit status."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    status, error, code = "finished", None, 0
    try:
        from filbert.compare.contestants import Job, carry_out

        carry_out(Job.read(job))
    except FilbertError as found:
        status, error, code = "failed", str(found), found.exit_status
    except KeyboardInterrupt:
        status, code = "interrupted", EXIT_INTERRUPTED
    except MemoryError:
        status, error, code = "failed", "There was not enough memory.", 1
    except Exception as found:
        traceback.print_exc()
        # Only the type of an unexpected error: its message may contain texts of the data.
        status, error, code = "failed", f"{type(found).__name__}; see the log.", 1
    write_json(outcome_path(job), {"status": status, "error": error})
    return code


def _end_with_parent() -> None:
    """Send SIGTERM to this process when standard input ends, as when the parent was killed."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
