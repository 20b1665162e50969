"""Every benchmark script starts; the small version of each is slow."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = [
    path
    for folder in (FOLDER, FOLDER / "against")
    for path in sorted(folder.glob("*.py"))
    if "parse_args(" in (text := path.read_text(encoding="utf-8")) and "__main__" in text
]
SMALL = [
    ["against/inference.py", "--small", "--sides", "filbert-float32"],
    ["against/latency.py", "--small", "--sides", "filbert-float32"],
    ["against/serve.py", "--small", "--sides", "filbert"],
    ["bulk.py", "--model", "filbert-mini", "--rows", "40", "--median", "5", "--rounds", "2"],
    ["bulk.py", "--model", "filbert-mini", "--rows", "40", "--median", "5", "--command"],
    ["gpu_proof.py", "--toy", "--out", "."],
    ["precision.py", "--small", "--tasks", "toxic", "--model", "filbert-mini"],
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_prints_its_help(script, load, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(script), run_name="__main__")
    assert not stopped.value.code
    assert capsys.readouterr().out.startswith("usage: ")


@pytest.mark.slow
@pytest.mark.parametrize("command", SMALL, ids=lambda command: f"{command[0]}-{command[-1]}")
def test_a_small_run_succeeds_and_changes_no_tracked_result(command, tmp_path):
    tracked = {path: path.read_bytes() for path in FOLDER.glob("results/*")}
    done = subprocess.run(
        [sys.executable, FOLDER / command[0], *command[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert {path: path.read_bytes() for path in FOLDER.glob("results/*")} == tracked
