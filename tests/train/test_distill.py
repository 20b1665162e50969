"""Distillation from labelled rows, end to end with tiny models."""

import json
from functools import partial

import pytest
from safetensors.torch import load_file

import filbert
from filbert.cli.main import run as command
from filbert.inference.predictor import Predictor
from filbert.train import loop
from filbert.train.distill import distill
from filbert.train.state import digest_of

TASKS = ("classification", "regression", "tagging", "multiple_choice", "embedding", "span_qa")


class Killed(BaseException):
    """Stands for a kill: nothing catches it, nothing is saved."""


def log_of(out, part=""):
    return [json.loads(x) for x in (out / part / "metrics.jsonl").read_text().splitlines()]


def state_of(out):
    return load_file(next((out / "state").glob("step-*/state.safetensors")))


def losses(out, name="soft_loss", part=""):
    return [line[name] for line in log_of(out, part) if name in line]


def digest(out):
    return digest_of(load_file(out / "model/model.safetensors"))


@pytest.mark.parametrize("task", TASKS)
def test_a_student_of_one_layer_comes_nearer_to_its_teacher_in_every_task(task, taught, tmp_path):
    facts = distill(taught(task, tmp_path / "x", steps=12, alpha=0.0))
    found = losses(tmp_path / "x")
    assert sum(found[-3:]) < 0.8 * sum(found[:3])
    teacher, student = facts["teacher"], facts["student"]
    assert student["layers"] == 1 < teacher["layers"] == 2
    assert student["parameters"] < teacher["parameters"]
    assert teacher["metrics"]["dev"].keys() == facts["metrics"]["dev"].keys()
    saved = Predictor.load(tmp_path / "x/model", device="cpu")
    assert saved.task.spec.name == task


def test_the_run_of_a_student_shows_its_teacher_and_can_be_used(film_run, films, tmp_path, capsys):
    recipe = tmp_path / "student.toml"
    recipe.write_text(f'teacher = "{film_run.folder / "model"}"\nkeep_layers = "1"\nsteps = 16\n')
    told = ["distill", str(recipe), "--train", str(films / "train.csv"), "--precision", "float32"]
    told += ["--dev", str(films / "dev.csv"), "--lr", "3e-3", "--out", str(tmp_path / "student")]
    assert command(told) == 0
    shown = capsys.readouterr().out
    assert "\nstudent  " in shown and "\nteacher (films) " in shown
    run = json.loads((tmp_path / "student/run.json").read_text())
    assert run["baselines"][0]["metrics"] == run["teacher"]["metrics"]["dev"]
    assert run["metrics"]["dev"]["roc_auc"] > 0.9
    assert "distilled from" in (tmp_path / "student/model/README.md").read_text()
    assert (
        filbert.load(tmp_path / "student/model").predict(["the film was good"])[0]["label"] == "pos"
    )
    assert command(["replay", str(tmp_path / "student/model")]) == 2
    assert "is a student" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("chosen", "part"),
    [
        ({}, ""),
        ({"method": "pkd", "keep_layers": "2"}, ""),
        ({"method": "tinybert", "hidden_share": 0.5}, "stage-1"),
        ({"method": "tinybert", "hidden_share": 0.5}, ""),
    ],
)
def test_a_killed_run_that_is_resumed_ends_as_the_straight_one(
    chosen, part, taught, tmp_path, monkeypatch
):
    begin = partial(taught, "classification", save_every=1, **chosen)
    distill(begin(tmp_path / "straight"))
    real, calls = loop.accumulate, []

    def dies(*args, **kwargs):
        calls.append(1)
        if len(calls) == (3 if part == "stage-1" else 7):
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "accumulate", dies)
    with pytest.raises(Killed):
        distill(begin(tmp_path / "killed"))
    distill(begin(tmp_path / "killed", resume=True))
    assert len(calls) == 9, "8 steps and the one that died: none was made twice"
    assert digest(tmp_path / "killed") == digest(tmp_path / "straight")
    assert losses(tmp_path / "killed") == losses(tmp_path / "straight")
    if not chosen:
        distill(begin(tmp_path / "control", seed=7))
        assert digest(tmp_path / "control") != digest(tmp_path / "straight")


def test_each_method_learns_what_it_is_called_after(taught, tmp_path):
    task = "classification"
    distill(taught(task, tmp_path / "p", method="pkd", keep_layers="2", steps=12, alpha=0.0))
    assert losses(tmp_path / "p", "patient_loss")[-1] < losses(tmp_path / "p", "patient_loss")[0]
    first = {"hidden_lr": 2e-3, "hidden_schedule": "constant", "keep_states": True}
    distill(taught(task, tmp_path / "t", method="tinybert", steps=24, **first))
    assert {line["lr"] for line in log_of(tmp_path / "t", "stage-1") if "lr" in line} == {2e-3}
    rates = [line["lr"] for line in log_of(tmp_path / "t", "") if "lr" in line]
    assert max(rates) == pytest.approx(3e-3) and rates[-1] < rates[-2], "the second has its own"
    for name in ("hidden_loss", "scores_loss"):
        inside = losses(tmp_path / "t", name, "stage-1")
        assert len(inside) == 18 and inside[-1] < 0.9 * inside[0], name
    # The head answers nothing in the first stage, and learns in the second.
    assert not any("head." in name for name in state_of(tmp_path / "t/stage-1"))
    assert state_of(tmp_path / "t")["optimizer.exp_avg.head.out.weight"].abs().max() > 0
    answers = losses(tmp_path / "t")
    assert len(answers) == 6 and sum(answers[-2:]) < sum(answers[:2])
    assert not any(
        "projection" in name for name in load_file(tmp_path / "t/model/model.safetensors")
    )
