"""The few-seconds version of benchmarks/stress_serve.py, with its control."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "stress_serve.py"


def test_hostile_requests_break_nothing_and_a_leak_would_be_seen(tmp_path):
    options = ["--seconds", "3", "--clients", "4", "--hostile", "0.3"]
    options += ["--growth", "150", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, SCRIPT, "--parts", "mixed", "control", *options],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.stdout, done.stderr[-2000:]
    mixed, control = map(json.loads, done.stdout.splitlines())
    assert mixed["wrong"] == []
    assert control["wrong"] == []
    assert sum(map(len, mixed["hostile"].values())) > 5
    assert done.returncode == 0, done.stderr[-2000:]
