"""Contestants that are made from another one: students, and models in another number format."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

import filbert
from filbert.compare.contestants import run_contestant
from filbert.compare.runs import fingerprint_of, run_study, runs_of
from filbert.errors import ConfigError
from filbert.train import loop

DATA = {
    name: {"sha256": name, "path": f"data/{name}.jsonl.gz"} for name in ("train", "dev", "test")
}
DATA |= {"labels": ["0", "1"], "positive": "1"}


class Killed(BaseException):
    """Stands for a kill: nothing catches it, nothing is saved."""


STUDENT = {"kind": "distilled", "teacher": "tiny", "keep_layers": "1", "lr": 3e-3}


@pytest.fixture(scope="module")
def made(tiny_model, films, tmp_path_factory, one_process):
    """A teacher, a student of it, and the student in int8; two seeds."""
    recipe = {name: str(films / f"{name}.csv") for name in ("train", "dev", "test")}
    recipe |= {
        "positive": "pos", "precision": "float32", "device": "cpu",
        "max_length": 32, "steps": 6, "seeds": 2, "resamples": 100,
        "contestants": {
            "tiny": {"model": str(tiny_model), "lr": 3e-3, "cleaning": "study"},
            "small": STUDENT,
            "small-int8": {"kind": "quantised", "of": "small"},
        },
    }  # fmt: skip
    with one_process():
        out = tmp_path_factory.mktemp("students") / "out"
        return recipe, filbert.compare(recipe, out=out)


@pytest.fixture
def no_report(monkeypatch):
    """Drawing takes seconds, and most tests are not about it."""
    monkeypatch.setattr("filbert.report.comparison.write_comparison_report", lambda *_, **__: None)


@pytest.fixture
def kept(made, tmp_path, no_report):
    """A copy to be spoilt."""
    recipe, compared = made
    shutil.copytree(compared.folder, tmp_path / "out")
    return json.loads(json.dumps(recipe)), tmp_path / "out"


def run_of(folder, name, seed=0):
    return json.loads((folder / f"contestants/{name}/seed-{seed}/run.json").read_text())


def test_teachers_run_before_their_students_seed_by_seed(made, read):
    recipe, compared = made
    study = read(recipe)
    runs = runs_of(study, compared.folder, DATA, "float32")
    assert [run.contestant for run in runs] == ["tiny", "small", "small-int8"] * 2
    for run in runs:
        if run.source is not None:
            assert run.source.seed == run.seed and runs.index(run.source) < runs.index(run)


def test_a_student_learns_from_the_model_of_its_teachers_seed_and_reads_as_it_does(made):
    _, compared = made
    for seed in (0, 1):
        run = run_of(compared.folder, "small", seed)
        wanted = f"contestants/tiny/seed-{seed}/model"
        assert run["options"]["teacher"].endswith(wanted) and run["status"] == "done"
        teacher = run_of(compared.folder, "tiny", seed)
        for split in ("dev", "test"):
            mine, theirs = run["teacher"]["metrics"][split], teacher["metrics"][split]
            assert mine["roc_auc"] == pytest.approx(theirs["roc_auc"], abs=1e-6)
    entries = {c["name"]: c for c in compared.results["contestants"]}
    steps = entries["tiny"]["cleaning"]
    assert steps and all(entry["cleaning"] == steps for entry in entries.values())
    predictor = filbert.load(compared.folder / "contestants/small/seed-0/model")
    assert predictor.known_task().spec.clean


def test_a_student_costs_its_own_training_and_a_quantised_model_none(made):
    _, compared = made
    entries = {c["name"]: c for c in compared.results["contestants"]}
    assert {entry["status"] for entry in entries.values()} == {"finished"}
    for name in ("small", "tiny"):
        assert entries[name]["costs"].keys() >= {
            "training_seconds", "rows_per_second", "latency_seconds", "peak_bytes",
        }  # fmt: skip
    int8 = entries["small-int8"]["costs"]
    assert not {"training_seconds", "peak_bytes"} & int8.keys()
    assert int8["rows_per_second"] > 0 and int8["latency_seconds"] > 0
    assert not (compared.folder / "contestants/small-int8/seed-0/model").exists()


def test_a_failed_teacher_is_a_sentence_for_its_students_and_loses_no_other(
    recipe, read, tmp_path, no_training, no_report
):
    recipe["contestants"] |= {"small": STUDENT, "small-int8": {"kind": "quantised", "of": "small"}}
    results = run_study(read(recipe), tmp_path / "out")
    # The children of the others were started; the students' were not.
    assert no_training == ["tiny/0", "tfidf/0"]
    tiny, tfidf, small, int8 = results["contestants"]
    assert {one["status"] for one in (tiny, tfidf, small, int8)} == {"failed"}
    assert small["error"].startswith("It needs a finished run of tiny with seed 0")
    assert int8["error"].startswith("It needs a finished run of small with seed 0")


def test_a_student_alone_is_run_when_its_teacher_is_there(kept, read, no_training):
    recipe, out = kept
    shutil.rmtree(out / "contestants/small/seed-1")
    run_study(read(recipe), out, only=["small"])
    assert no_training == ["small/1"]
    # What is there of another teacher is no teacher of it.
    recipe["contestants"]["tiny"]["lr"] = 1e-3
    shutil.rmtree(out / "contestants/small")
    results = run_study(read(recipe), out, only=["small"])
    assert no_training == ["small/1"]
    assert "needs a finished run of tiny" in results["contestants"][1]["error"]


def test_a_changed_teacher_changes_the_marks_of_all_that_is_made_from_it(made, kept, read):
    recipe, out = kept
    before = {c.name: fingerprint_of(c, 0, DATA) for c in read(recipe).contestants}
    assert len(set(before.values())) == 3
    recipe["contestants"]["small"] = {**STUDENT, "temperature": 3.0}
    after = {c.name: fingerprint_of(c, 0, DATA) for c in read(recipe).contestants}
    assert {name for name in before if before[name] != after[name]} == {"small", "small-int8"}
    recipe["contestants"]["small"] = STUDENT
    recipe["contestants"]["tiny"]["lr"] = 1e-3
    after = {c.name: fingerprint_of(c, 0, DATA) for c in read(recipe).contestants}
    assert all(before[name] != after[name] for name in before)
    with pytest.raises(ConfigError, match="finished runs of tiny, small, small-int8 with"):
        run_study(read(recipe), out)
    with pytest.raises(ConfigError, match="finished runs of small with"):
        run_study(read(recipe), out, only=["small"])


def test_the_marks_of_the_first_kinds_are_those_of_the_first_studies(read):
    """Finished runs are worth hours, so what marks them must not change by the way."""
    recipe = {
        "data": "x.csv", "positive": "1", "max_length": 128, "batch_size": 32, "epochs": 2.0,
        "save_every": 200, "seeds": 3,
        "contestants": {
            "minilm": {"model": "minilm", "lr": 1e-4},
            "minilm-cleaned": {"model": "minilm", "lr": 1e-4, "cleaning": "study"},
            "minilm-3": {"model": "minilm", "lr": 1e-4, "keep_layers": "3"},
            "tfidf": {"kind": "tfidf"},
            "static": {"kind": "static", "model": "minilm"},
        },
    }  # fmt: skip
    found = {
        c.name: fingerprint_of(c, 1, {**{n: {"sha256": n} for n in ("train", "dev", "test")},
                                 "labels": ["0", "1"], "positive": "1"})[:16]
        for c in read(recipe).contestants
    }  # fmt: skip
    assert found == {
        "minilm": "a6a9463737ca0d18",
        "minilm-cleaned": "106fd063527bdca0",
        "minilm-3": "efdcf1fae59a67d8",
        "tfidf": "7e54133f698270ab",
        "static": "e420ac6f30296a71",
    }


def test_a_student_that_was_killed_goes_on_and_ends_as_the_undisturbed_one(
    made, tmp_path, monkeypatch, read
):
    recipe, compared = made
    state = json.loads((compared.folder / "study.json").read_text())
    run = next(r for r in runs_of(read(recipe), compared.folder, state["data"], "float32")
               if r.key == "small/seed-0")  # fmt: skip
    training = {**run.training, "save_every": 1}
    job = dataclasses.replace(run, out=str(tmp_path / "seed-0"), training=training)
    real, calls = loop.accumulate, []

    def dies(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "accumulate", dies)
    with pytest.raises(Killed):
        run_contestant(job)
    run_contestant(job)
    assert len(calls) == 7, "6 steps and the one that died: none was made twice"
    file = "predictions/test.jsonl"
    assert (tmp_path / "seed-0" / file).read_bytes() == (run.folder / file).read_bytes()
