"""Distillation from labelled rows, end to end with tiny models."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import filbert
from filbert.batch import pack
from filbert.checkpoints import huggingface
from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.cli.main import run as command
from filbert.inference.forward import run_model
from filbert.inference.predictor import Predictor
from filbert.losses.student import LayerLoss, Student, Teacher
from filbert.model.encoder import initialize
from filbert.train import trainer
from filbert.train.distill import distill
from filbert.train.state import digest_of
from filbert.train.trainer import train

TASKS = ("classification", "regression", "tagging", "multiple_choice", "embedding", "span_qa")


class Killed(BaseException):
    """Stands for a kill: nothing catches it, nothing is saved."""


def log_of(out, part=""):
    return [json.loads(x) for x in (out / part / "metrics.jsonl").read_text().splitlines()]


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
    assert saved.task.name == task


def test_the_run_of_a_student_shows_its_teacher_and_can_be_used(film_run, films, tmp_path, capsys):
    recipe = tmp_path / "student.toml"
    recipe.write_text(f'teacher = "{film_run.folder / "model"}"\nkeep_layers = "1"\nsteps = 16\n')
    told = ["distill", str(recipe), "--train", str(films / "train.csv"), "--precision", "float32"]
    told += ["--dev", str(films / "dev.csv"), "--lr", "3e-3", "--out", str(tmp_path / "student")]
    assert command(told) == 0
    shown = capsys.readouterr().out
    assert "│ student " in shown and "│ teacher (films) " in shown
    run = json.loads((tmp_path / "student/run.json").read_text())
    assert run["baselines"][0]["metrics"] == run["teacher"]["metrics"]["dev"]
    assert run["metrics"]["dev"]["roc_auc"] > 0.9
    assert "augment_copies" not in run["options"] and "mask_rate" not in run["options"]
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
    real, calls = trainer.accumulate, []

    def dies(*args, **kwargs):
        calls.append(1)
        if len(calls) == (3 if part == "stage-1" else 7):
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(trainer, "accumulate", dies)
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
    first = {"hidden_lr": 2e-3, "hidden_schedule": "constant"}
    distill(taught(task, tmp_path / "t", method="tinybert", steps=24, **first))
    assert {line["lr"] for line in log_of(tmp_path / "t", "stage-1") if "lr" in line} == {2e-3}
    rates = [line["lr"] for line in log_of(tmp_path / "t", "") if "lr" in line]
    assert max(rates) == pytest.approx(3e-3) and rates[-1] < rates[-2], "the second has its own"
    for name in ("hidden_loss", "scores_loss"):
        inside = losses(tmp_path / "t", name, "stage-1")
        assert len(inside) == 18 and inside[-1] < 0.9 * inside[0], name
    # The head answers nothing in the first stage, and learns in the second.
    state = load_file(next((tmp_path / "t/stage-1/state").glob("step-*/model.safetensors")))
    name = next(key for key in state if key.endswith("head.out.weight"))
    saved = load_file(tmp_path / "t/model/model.safetensors")["classifier.weight"]
    assert (state[name] - saved).abs().max() > 1e-3
    answers = losses(tmp_path / "t")
    assert len(answers) == 6 and sum(answers[-2:]) < sum(answers[:2])
    assert not any(
        "projection" in name for name in load_file(tmp_path / "t/model/model.safetensors")
    )


def test_a_patient_student_comes_near_the_layer_it_is_shown_and_not_near_another(taught, tmp_path):
    given = taught("classification", tmp_path / "x")
    theirs, fresh = (
        read_checkpoint(Path(given.model.teacher)),
        read_checkpoint(Path(given.model.student)),
    )
    for seed, start in enumerate((theirs, fresh)):
        model = start.build()
        torch.manual_seed(seed)
        # Large enough for every layer to matter.
        initialize(model, 0.25)
        start.tensors |= model.state_dict()
        huggingface.write(start, tmp_path / str(seed))
        read_tokenizer(Path(given.model.student)).save(tmp_path / str(seed))
    batch = pack([torch.randint(5, fresh.config.vocab_size, (12,)).tolist() for _ in range(20)])
    found = {}
    for name, more in {
        "begins": {"lr": 1e-12, "steps": 1},
        "right": {"layer_map": "0,1"},
        "wrong": {"layer_map": "1,1"},
    }.items():
        chosen = {"method": "pkd", "keep_layers": None, "steps": 30, "alpha": 0.0, "dropout": 0.0}
        places = {"teacher": str(tmp_path / "0"), "student": str(tmp_path / "1")}
        distill(taught("classification", tmp_path / name, **chosen | places | more))
        taken = Teacher(theirs.build(), torch.device("cpu"))
        student = read_checkpoint(tmp_path / name / "model").build()
        pair = Student(student, taken, [LayerLoss("patient", ((1, 1),))])
        found[name] = float(pair(batch).sums.detach())
    assert found["right"] < 0.6 * found["begins"]
    assert found["right"] < 0.6 * found["wrong"]


def test_both_stages_of_a_run_are_in_its_costs(taught, tmp_path, monkeypatch):
    spent = []

    def measured(*args, **more):
        outcome = train(*args, **more)
        spent.append(outcome.cpu_seconds)
        changed = {"seconds": 1e3, "cpu_seconds": 2e3, "clock_before": 4e3, "num_tokens": 10**9}
        return dataclasses.replace(outcome, **changed)

    monkeypatch.setattr("filbert.train.distill.train", measured)
    facts = distill(taught("classification", tmp_path / "x", method="tinybert", steps=4))
    assert facts["training_seconds"] > 1e3
    assert facts["tokens_per_second"] == pytest.approx(1e6, rel=0.1)
    assert facts["training_cpu_seconds"] > 2e3 > spent[0] > 0
    assert facts["seconds"] > 4e3


def test_answers_from_a_cache_are_those_that_would_be_streamed(taught, tmp_path, monkeypatch):
    begin = partial(taught, "classification")
    distill(begin(tmp_path / "streamed"))
    monkeypatch.setattr("filbert.train.teacher._ROWS_PER_FILE", 100)
    cache = tmp_path / "cache"
    assert distill(begin(tmp_path / "cached", cache=str(cache)))["answers_seconds"] > 0
    assert losses(tmp_path / "cached") == pytest.approx(losses(tmp_path / "streamed"), abs=1e-5)
    files = sorted(path.name for path in cache.iterdir())
    assert files == [*(f"answers-0000{i}.safetensors" for i in range(3)), "manifest.json"]
    # Interrupted after the first file: the others are written again, and it is left alone.
    first = (cache / files[0]).stat().st_mtime_ns
    for name in files[1:3]:
        (cache / name).unlink()
    asked = []

    def counted(*args, **more):
        asked.append(1)
        return run_model(*args, **more)

    monkeypatch.setattr("filbert.train.teacher.run_model", counted)
    distill(begin(tmp_path / "again", cache=str(cache), lr=1e-3))
    assert (cache / files[0]).stat().st_mtime_ns == first
    # Two files, and dev at the end; no step asks the teacher.
    assert len(asked) == 3
