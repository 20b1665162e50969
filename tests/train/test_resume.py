"""Killed, interrupted and resumed runs: they end where the undisturbed run ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.train.conftest import stress

import filbert
from filbert.errors import ConfigError, Interrupted
from filbert.train import loop
from filbert.train.options import flat
from filbert.train.state import digest_of, newest_state

TASKS = ("classification", "regression", "tagging", "multiple_choice", "embedding", "span_qa")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    stress().make_model(folder / "model")
    return folder


def options(place: Path, task: str, out: Path, **more):
    module = stress()
    files = module.make_rows(place, task)
    given = {"epochs": 1.0, "max_tokens": 400} | more
    return module.options(task, place / "model", files, out, **given)


def run(given) -> dict:
    return filbert.finetune(**flat(given)).facts


def digest(out: Path) -> str:
    return digest_of(load_file(out / "model" / "model.safetensors"))


class Killed(BaseException):
    """Stands for a kill: nothing catches it, nothing is saved."""


@pytest.mark.parametrize("task", TASKS)
def test_a_run_that_died_and_was_resumed_has_the_weights_of_the_straight_one(
    place, task, tmp_path, monkeypatch
):
    run(options(place, task, tmp_path / "straight"))
    real, calls = loop.accumulate, []

    def dies(*args, **kwargs):
        calls.append(1)
        if len(calls) == 6:
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "accumulate", dies)
    with pytest.raises(Killed):
        run(options(place, task, tmp_path / "killed"))
    monkeypatch.undo()
    facts = run(options(place, task, tmp_path / "killed", resume=True))
    assert len(calls) == 6 and facts["steps"] == 8, "it was cut short, and went on"
    assert digest(tmp_path / "killed") == digest(tmp_path / "straight")
    lines = [
        [json.loads(x) for x in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("straight", "killed")
    ]
    kept = [[(x["step"], x.get("loss"), x.get("metrics")) for x in some] for some in lines]
    assert kept[0] == kept[1], "the log has every step once, with the same figures"


def test_a_finished_run_is_not_trained_again(place, tmp_path, capsys, monkeypatch):
    first = run(options(place, "regression", tmp_path / "x"))
    monkeypatch.setattr(loop, "accumulate", None)
    again = run(options(place, "regression", tmp_path / "x", resume=True))
    assert again["finished"] == first["finished"]
    assert "it is finished; nothing was done" in capsys.readouterr().err


def test_other_options_or_data_cannot_be_resumed(place, tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    out = tmp_path / "x"
    run(options(place, "regression", out, keep_states=True))
    with pytest.raises(ConfigError, match="finished run with other options"):
        run(options(place, "regression", out, resume=True, lr=2e-3))
    facts = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps(facts | {"status": "interrupted"}))
    with pytest.raises(ConfigError, match="other options, data or model"):
        run(options(place, "regression", out, resume=True, lr=2e-3))


def test_a_kill_while_the_run_folder_was_being_begun_leaves_a_folder_that_can_be_used(
    place, tmp_path
):
    out = tmp_path / "x"
    out.mkdir()
    (out / ".run.json.0123456789ab.tmp").write_text('{"half')
    assert run(options(place, "regression", out, resume=True))["status"] == "done"


def test_a_signal_saves_the_state_and_says_how_to_go_on(place, tmp_path, monkeypatch):
    run(options(place, "regression", tmp_path / "straight", save_every=0))
    real, calls = loop.accumulate, []

    def signalled(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "accumulate", signalled)
    out = tmp_path / "x"
    with pytest.raises(Interrupted, match=r"SIGTERM after step 4.*`resume`"):
        run(options(place, "regression", out, save_every=0))
    monkeypatch.undo()
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    state, _ = newest_state(out / "state")
    assert state is not None and state.step == 4
    began = time.perf_counter()
    facts = run(options(place, "regression", out, save_every=0, resume=True))
    here = time.perf_counter() - began
    assert digest(out) == digest(tmp_path / "straight")
    # What it took is what both processes took.
    clock, cpu = (state.facts[name] for name in ("clock", "cpu_seconds"))
    assert clock > 2 > cpu > 0
    assert clock < facts["seconds"] < clock + here
    assert facts["training_cpu_seconds"] > cpu


def test_an_interrupted_replacement_is_resumed_and_the_old_run_stands_until_then(
    place, tmp_path, monkeypatch
):
    out = tmp_path / "x"
    run(options(place, "regression", out, lr=1e-4))
    old = digest(out)
    real, calls = loop.accumulate, []

    def signalled(*args, **kwargs):
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "accumulate", signalled)
    with pytest.raises(Interrupted, match="Ctrl-C"):
        run(options(place, "regression", out, overwrite=True))
    monkeypatch.undo()
    assert digest(out) == old
    run(options(place, "regression", out, resume=True))
    run(options(place, "regression", tmp_path / "straight"))
    assert digest(out) == digest(tmp_path / "straight") != old
    assert not list(tmp_path.glob(".x*"))


def test_a_command_line_run_ends_with_130_and_a_sentence_on_sigterm(place, tmp_path):
    given = options(place, "classification", tmp_path / "x", epochs=400.0)
    flags = []
    for name in ("task", "model", "train", "dev", "out", "epochs", "lr", "precision"):
        flags += [f"--{name}", str(flat(given)[name])]
    process = subprocess.Popen(
        [sys.executable, "-m", "filbert", "finetune", *flags], stderr=subprocess.PIPE, text=True
    )
    log, deadline = tmp_path / "x" / "metrics.jsonl", time.monotonic() + 60
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted by SIGTERM after step" in words and "Traceback" not in words


def test_memory_that_runs_out_halves_the_micro_batch_and_keeps_the_gradient(
    place, tmp_path, monkeypatch, capsys
):
    whole = run(options(place, "regression", tmp_path / "whole", max_tokens=10_000, dropout=0.0))
    real = loop.accumulate

    def small(forward, wrapped, task, micro_batches, **kwargs):
        if max(sum(len(e.input_ids) for e in some) for some in micro_batches) > 150:
            raise torch.OutOfMemoryError("out of memory")
        return real(forward, wrapped, task, micro_batches, **kwargs)

    monkeypatch.setattr(loop, "accumulate", small)
    parts = run(options(place, "regression", tmp_path / "parts", max_tokens=1_000, dropout=0.0))
    assert "out of memory; micro-batches now hold 125 tokens" in capsys.readouterr().err
    a, b = (load_file(tmp_path / n / "model" / "model.safetensors") for n in ("whole", "parts"))
    # Eight steps of Adam on sums in another order.
    assert max(float((a[k] - b[k]).abs().max()) for k in a) < 1e-4
    assert parts["best"]["value"] == pytest.approx(whole["best"]["value"], abs=1e-3)


def test_a_row_that_alone_is_too_much_for_the_memory_ends_the_run_with_advice(
    place, tmp_path, monkeypatch
):
    def never(*args, **kwargs):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(loop, "accumulate", never)
    with pytest.raises(ConfigError, match="Step 1: out of memory .* Lower `max_tokens`"):
        run(options(place, "regression", tmp_path / "x"))


@pytest.mark.slow
def test_random_kills_never_leave_an_unusable_folder_or_another_result(place, tmp_path):
    """The one-minute version of benchmarks/stress_resume.py; the folder must not be shared."""
    command = [sys.executable, stress().__file__, "--kills", "2", "--tasks", "classification"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["kills"] >= 2
    assert result["wrong"] == result["unusable"] == 0
