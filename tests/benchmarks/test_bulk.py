"""benchmarks/bulk.py: both ways of it, on few rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bulk.py"


@pytest.mark.parametrize("way", [("--rounds", "2"), ("--command",)], ids=["turns", "command"])
def test_a_record_has_what_was_measured(way, tiny_model, tmp_path):
    results = tmp_path / "bulk.jsonl"
    words = ["--model", tiny_model, "--rows", "40", "--median", "5", "--results", results, *way]
    done = subprocess.run(
        [sys.executable, SCRIPT, *words],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (record,) = map(json.loads, results.read_text().splitlines())
    assert record["rows"] == 40 and record["machine"]["torch"]
    assert json.loads(done.stdout.splitlines()[-1]) == record
    if way == ("--command",):
        assert [part["status"] for part in record["parts"]] in ([0], [130, 0])
        assert record["least_cosine"] > 0.99999 > record["greatest_to_the_next"]
        assert all(part["peak_mb"] >= part["end_mb"] > 50 for part in record["parts"])
    else:
        assert len(record["rounds"]) == 2
        assert min(r["share"] for r in record["rounds"]) <= record["median_share"]
