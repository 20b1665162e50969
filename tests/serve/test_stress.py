"""The few-seconds version of benchmarks/stress_serve.py, with its control."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "stress_serve.py"


def stress(part: str, growth: int, place: Path) -> dict:
    options = ["--seconds", "3", "--clients", "4", "--hostile", "0.3", "--growth", str(growth)]
    done = subprocess.run(
        [sys.executable, SCRIPT, "--parts", part, *options, "--out", str(place)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.stdout, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert done.returncode == bool(found["wrong"]), done.stderr[-2000:]
    return found


def test_hostile_requests_break_nothing(tmp_path):
    # In seconds memory does not come to rest: large requests have some hundred MiB each.
    found = stress("mixed", 1000, tmp_path)
    assert found["wrong"] == []
    assert sum(map(len, found["hostile"].values())) > 5


def test_a_leak_would_be_seen(tmp_path):
    assert stress("control", 150, tmp_path)["wrong"] == []
