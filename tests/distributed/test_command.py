"""`torchrun -m filbert finetune` and `distill`: the whole commands, with two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import filbert


def flags(tiny_model: Path, films: Path, out: Path) -> list[str]:
    given = {
        "task": "classification",
        "model": tiny_model,
        "train": films / "train.csv",
        "dev": films / "dev.csv",
        "out": out,
        "lr": 3e-3,
        "steps": 10,
        "eval-every": 5,
        "dropout": 0.0,
        "precision": "float32",
        "device": "cpu",
    }
    return [part for name, value in given.items() for part in (f"--{name}", str(value))]


def torchrun(verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*start, "--nproc-per-node", "2", "-m", "filbert", verb, *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment, check=False
    )


# Each command starts three processes, 20 to 30 s of imports; test_processes.py does without.
@pytest.mark.slow
def test_two_processes_train_what_one_trains_and_one_of_them_reports(tiny_model, films, tmp_path):
    given = flags(tiny_model, films, tmp_path / "two")
    done = torchrun("finetune", *given)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("rows: 256 train") == 1
    assert "processes: 2" in done.stderr
    facts = json.loads((tmp_path / "two" / "run.json").read_text())
    assert facts["status"] == "done" and facts["device"]["processes"] == 2
    names = dict(zip(given[::2], given[1::2], strict=True))
    options = {name[2:].replace("-", "_"): value for name, value in names.items()}
    numbers = {"lr": 3e-3, "steps": 10, "eval_every": 5, "dropout": 0.0}
    one = filbert.finetune(**options | numbers | {"out": str(tmp_path / "one")})
    two, alone = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("two", "one")
    )
    # Ten steps of Adam on sums in another order.
    assert max(float((two[k] - alone[k]).abs().max()) for k in alone) < 1e-4
    for name, value in one.metrics["dev"].items():
        if isinstance(value, float):
            assert facts["metrics"]["dev"][name] == pytest.approx(value, abs=1e-3)


@pytest.mark.slow
def test_two_processes_teach_what_one_teaches(film_run, films, tmp_path):
    given = {"teacher": film_run.folder / "model", "keep_layers": "1", "method": "tinybert"}
    given |= {"train": films / "train.csv", "dev": films / "dev.csv", "steps": 8, "lr": 1e-3}
    given |= {"hidden_share": 0.5, "dropout": 0.0, "precision": "float32", "device": "cpu"}
    given = {
        name: str(value) if isinstance(value, Path) else value for name, value in given.items()
    }
    flags = [x for name, v in given.items() for x in (f"--{name.replace('_', '-')}", str(v))]
    places = {name: str(tmp_path / name) for name in ("two", "one")}
    done = torchrun("distill", *flags, "--out", places["two"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("rows: 256 train") == 1
    filbert.distill(**given, out=places["one"])
    two, alone = (load_file(tmp_path / x / "model" / "model.safetensors") for x in ("two", "one"))
    # Eight steps of Adam on sums in another order, and on answers from other batches.
    assert max(float((two[k] - alone[k]).abs().max()) for k in alone) < 1e-4
    first, last = (
        load_file(next((tmp_path / x / "stage-1/state").glob("step-*/state.safetensors")))
        for x in ("two", "one")
    )
    assert max(float((first[k] - last[k]).abs().max()) for k in last) < 1e-4
