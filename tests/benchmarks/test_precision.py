"""benchmarks/precision.py: two tasks, few rows, every precision in one table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "precision.py"


def test_the_small_run_prints_a_line_for_every_task_and_precision(tiny_model, tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--small", "--tasks", "toxic", "--model", tiny_model]
        + ["--out", tmp_path / "runs", "--results", tmp_path / "results.jsonl"],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[2:]
    *others, auto, calibrated = (line.split(" | ")[1] for line in lines)
    assert (others, calibrated) == (["bf16", "int8"], "int8, calibrated")
    assert auto in ("auto: float32", "auto: bf16")
    # Random weights of width 32: int8 is farther off than in a real model, but not elsewhere.
    assert all(float(line.split(" | ")[2]) > 0.98 for line in lines)
    assert not (tmp_path / "results.jsonl").exists(), "a small run proves nothing"
