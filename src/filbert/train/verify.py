"""Does a killed run, resumed, end with the same weights as one that was never disturbed?

Asked on the user's own recipe, with real processes and a real kill -9.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file

from filbert.errors import ConfigError, RunError
from filbert.train.log import say
from filbert.train.options import FinetuneOptions
from filbert.train.state import digest_of


class Verdict(NamedTuple):
    """Digests of the final weights, and the step at which the second run was killed."""

    straight: str
    resumed: str
    killed_after: int
    steps: int

    @property
    def same(self) -> bool:
        """Whether the two runs ended with the same bits."""
        return self.straight == self.resumed


def verify_resume(options: FinetuneOptions, kill_after: int | None = None) -> Verdict:
    """Run a recipe straight, then again with a kill -9 on the way and --resume.

    Args:
        options: the recipe; its `out` becomes a folder with the two runs, straight and resumed.
        kill_after: the step after which the second run is killed; half of the steps when not given.

    Raises:
        ConfigError: `out` holds something, or the recipe resumes or overwrites.
        RunError: one of the runs failed (its last words are in the message), or was over before it
            could be killed.
    """
    if options.resume or options.overwrite:
        raise ConfigError(
            "--resume, --overwrite: both runs of verify-resume are new ones, in a new folder. "
            "Leave them out."
        )
    if options.seeds > 1 or options.time:
        raise ConfigError(
            "verify-resume follows one run of so many steps: --seeds makes several, and how far "
            "--time goes hangs on the clock. Leave them out."
        )
    out = Path(options.out).absolute()
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise ConfigError(f"{options.out} is not empty; name a new folder with --out.")
    straight, resumed = (replace(options, out=str(out / name)) for name in ("straight", "resumed"))
    say("first run: straight through")
    _finish(_start(straight))
    steps = int(json.loads((out / "straight" / "run.json").read_text(encoding="utf-8"))["steps"])
    after = min(kill_after or max(1, steps // 2), max(1, steps - 1))
    say(f"second run: killed after step {after} of {steps}, then resumed")
    # Nobody reads the words of the one that is killed, and a full pipe would stop it.
    begun = _start(resumed, subprocess.DEVNULL)
    killed = _kill_after(begun, out / "resumed" / "metrics.jsonl", after)
    if (out / "resumed" / "model").exists():
        raise RunError("The second run was over before it could be killed. Give it more steps.")
    _finish(_start(replace(resumed, resume=True)))
    digests = [
        digest_of(load_file(out / name / "model" / "model.safetensors"))
        for name in ("straight", "resumed")
    ]
    return Verdict(digests[0], digests[1], killed, steps)


def _start(options: FinetuneOptions, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    flags = []
    for part in fields(options):
        value = getattr(options, part.name)
        if part.default is not MISSING and value == part.default:
            continue
        flag = f"--{part.name.replace('_', '-')}"
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        flags += [flag] if value is True else [flag, text]
    command = [sys.executable, "-m", "filbert", "finetune", *flags]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=stderr, text=True, env=os.environ
    )


def _finish(process: subprocess.Popen[str]) -> None:
    _, words = process.communicate()
    if process.returncode:
        raise RunError(f"The run ended with status {process.returncode}: {words.strip()[-500:]}")


def _kill_after(process: subprocess.Popen[str], log: Path, step: int) -> int:
    """Kill a run once its log tells of `step`; gives the last step it tells of."""
    while process.poll() is None:
        if _last_step(log) >= step:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    process.communicate()
    return _last_step(log)


def _last_step(log: Path) -> int:
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            return int(json.loads(line)["step"])
        except ValueError:
            continue
    return 0
