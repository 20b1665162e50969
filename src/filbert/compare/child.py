"""The child process of a run, and the parent that waits for it.

Every run has a process of its own: its memory is measured separately, and a crash or a kill ends
only this run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filbert.compare.contestants import ContestantRun, run_contestant
from filbert.errors import FilbertError
from filbert.files import write_json
from filbert.train.log import say
from filbert.train.run_folder import read_run
from filbert.train.signals import Stop

_TICK = 0.25
# Seconds that a child gets after a second signal before it is killed.
_PATIENCE = 5.0
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Ended:
    """The outcome of a run: finished, failed or interrupted, with the error."""

    status: str
    error: str | None = None


def run_child(run: ContestantRun, *, stop: Stop, lock: int) -> Ended:
    """Run a contestant in a child process and wait for it.

    The child's output goes to a log next to the run folder.

    Args:
        run: The contestant and its seed.
        stop: Received signals; the child then gets SIGTERM and saves its state.
        lock: Descriptor of the lock on the study's folder; the child holds it too.

    Raises:
        KeyboardInterrupt: A second signal was received; the child has ended.
    """
    out = run.folder
    if out.exists() and read_run(out) is None:
        # It was killed before it had saved anything to resume from.
        shutil.rmtree(out)
    outcome_path(run.job_path).unlink(missing_ok=True)
    log_path, is_signalled = out.with_name(f"{out.name}.log"), False
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "filbert.compare.child", str(run.job_path)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            # Signals of a terminal reach the parent only, which forwards them.
            start_new_session=True,
            pass_fds=(lock,),
        )
        try:
            while child.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_TICK)
                if stop.name is not None and not is_signalled:
                    is_signalled = True
                    say(
                        f"{stop.name}: {run.contestant} saves its state; a second signal ends it "
                        "at once"
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
    return _ended(child.returncode, run.job_path, log_path.relative_to(out.parents[2]))


def _ended(code: int, job: Path, log: Path) -> Ended:
    try:
        return Ended(**json.loads(outcome_path(job).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        pass
    if code < 0:
        name = signal.Signals(-code).name
        why = ", probably for want of memory" if code == -signal.SIGKILL else ""
        return Ended("failed", f"The process was ended by {name}{why}. Its log: {log}")
    return Ended("failed", f"The process ended with status {code}. Its log: {log}")


def outcome_path(job: Path) -> Path:
    """Return the file with the outcome; it is missing if the child was killed."""
    return job.with_suffix(".outcome.json")


def main(job: Path) -> int:
    """Run a contestant in the child; return the exit status."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    status, message, code = "finished", None, 0
    try:
        run_contestant(ContestantRun.from_dict(json.loads(job.read_text(encoding="utf-8"))))
    except FilbertError as error:
        status, message, code = "failed", str(error), error.exit_status
    except KeyboardInterrupt:
        status, code = "interrupted", EXIT_INTERRUPTED
    except MemoryError:
        status, message, code = "failed", "There was not enough memory.", 1
    except Exception as error:
        traceback.print_exc()
        # Only the type of an unexpected error: its message may contain texts of the data.
        status, message, code = "failed", f"{type(error).__name__}; see the log.", 1
    write_json(outcome_path(job), {"status": status, "error": message})
    return code


def _end_with_parent() -> None:
    """Send SIGTERM to this process when standard input ends, as when the parent was killed."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
