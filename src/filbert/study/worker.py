"""The child process of a study: one contestant with one seed. `python -m filbert.study.worker JOB`.

A process of its own measures its own memory, and a crash or a kill costs only itself.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from filbert.errors import FilbertError
from filbert.files import write_json

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
