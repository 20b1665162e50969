"""Seconds of the mixed load of benchmarks/stress_serve.py; `make stress-serve` has the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "stress_serve.py"


def test_every_hostile_request_gets_an_error_and_breaks_nothing(masked_lm, tmp_path):
    # Memory is judged by the half hour: within seconds the allocator still grows.
    options = ["--parts", "mixed", "--seconds", "1", "--clients", "2", "--hostile", "0.1"]
    options += ["--warm-up", "1", "--growth", "inf", "--out", str(tmp_path), "--model", masked_lm]
    done = subprocess.run(
        [sys.executable, SCRIPT, *options],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.stdout, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert (found["wrong"], done.returncode) == ([], 0)
    assert len(found["hostile"]) > 40
