"""A whole study: finished, failed, killed, stopped, resumed; students; changed recipes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import filbert.api
from filbert.cli.main import run as cli
from filbert.compare import study as module
from filbert.compare.study import notes_of, run_study, runs_of
from filbert.errors import ConfigError, FormatError, InputError
from filbert.model.precision import Precision

KEYS = {
    "filbert", "name", "finished", "task", "positive", "labels", "data", "options", "machine",
    "contestants", "pairs",
}  # fmt: skip
COSTS = {
    "training_seconds", "rows_per_second", "latency_seconds", "parameters", "bytes_on_disk",
    "peak_bytes",
}  # fmt: skip
DATA = {
    name: {"sha256": name, "path": f"data/{name}.jsonl.gz"} for name in ("train", "dev", "test")
}
DATA |= {"labels": ["neg", "pos"], "positive": "pos"}
STUDENT = {"kind": "distilled", "teacher": "tiny", "keep_layers": "1", "lr": 3e-3}


def by_name(results):
    return {one["name"]: one for one in results["contestants"]}


@pytest.fixture
def no_report(monkeypatch):
    """Drawing takes seconds, and most tests are not about it."""
    monkeypatch.setattr(module, "write_comparison_report", lambda *_, **__: None)


@pytest.fixture(scope="module")
def finished(tiny_model, films, tmp_path_factory, one_process):
    """A study with two seeds, every kind, and one contestant that fails."""
    folder = tmp_path_factory.mktemp("study")
    strange = folder / "strange.txt"
    strange.write_text("qqq 0.1 0.2\nzzz 0.3 0.4\n")
    recipe = {name: str(films / f"{name}.csv") for name in ("train", "dev", "test")}
    recipe |= {
        "positive": "pos",
        "precision": "float32",
        "device": "cpu",
        "max_length": 32,
        "steps": 6,
        "seeds": 2,
        "resamples": 200,
        "contestants": {
            "tiny": {"model": str(tiny_model), "lr": 3e-3, "cleaning": "study"},
            "small": STUDENT,
            "small-int8": {"kind": "quantised", "of": "small"},
            "both": {"kind": "ensemble", "of": "tiny"},
            "bigru": {"kind": "bigru", "dim": 8, "hidden": 4, "min_count": 1, "cleaning": "study"},
            "tfidf": {"kind": "tfidf", "C": 10.0},
            "static": {"kind": "static", "model": str(tiny_model), "C": 1.0},
            "broken": {"kind": "bigru", "vectors": str(strange), "min_count": 1},
        },
    }
    with one_process():
        compared = filbert.compare(recipe, out=folder / "out", name="Films")
    return recipe, compared


@pytest.fixture
def copied(finished, tmp_path, no_report):
    """A copy of it to be changed: (recipe, folder)."""
    recipe, compared = finished
    shutil.copytree(compared.folder, tmp_path / "out")
    for path in (tmp_path / "out").glob("contestants/*/*.job.json"):
        path.write_text(path.read_text().replace(str(compared.folder), str(tmp_path / "out")))
    return json.loads(json.dumps(recipe)), tmp_path / "out"


def test_every_contestant_leaves_a_run_folder_metrics_and_costs(finished):
    recipe, compared = finished
    results = compared.results
    assert results.keys() >= KEYS and results["name"] == "Films"
    assert results == json.loads((compared.folder / "results.json").read_text())
    entries = by_name(results)
    assert list(entries) == list(recipe["contestants"])
    for name, one in entries.items():
        if name == "broken":
            assert one["status"] == "failed" and "none of the" in one["error"]
            continue
        assert (one["status"], one["error"]) == ("finished", None)
        assert one["test"]["pr_auc"]["low"] <= one["test"]["pr_auc"]["high"]
        unmeasured = {"small-int8": {"training_seconds", "peak_bytes"}, "both": {"peak_bytes"}}
        unmeasured = unmeasured.get(name, set())
        assert one["costs"].keys() >= COSTS - unmeasured and not unmeasured & one["costs"].keys()
        assert all(value > 0 for value in one["costs"].values())
        seeds = [0] if one["kind"] in ("tfidf", "static", "ensemble") else [0, 1]
        assert [seed["seed"] for seed in one["seeds"]] == seeds
        for seed in one["seeds"]:
            folder = compared.folder / seed["folder"]
            assert (folder / "model").is_dir() == (one["kind"] in ("encoder", "distilled"))
            assert not (folder / "state").exists()
            facts = json.loads((folder / "run.json").read_text())
            assert facts["costs"] == seed["costs"] and facts["status"] == "done"
            for split, num_rows in (("dev", results["data"]["dev"]["rows"]), ("test", 64)):
                text = (folder / "predictions" / f"{split}.jsonl").read_text()
                assert len(text.splitlines()) == num_rows
                assert {
                    "row", "line", "gold", "label", "score", "scores", "num_tokens", "truncated",
                } <= json.loads(text.splitlines()[0]).keys()  # fmt: skip
                assert seed[split]["accuracy"] >= 0
    assert len(results["pairs"]) == 21
    assert (compared.folder / "report.html").is_file()


def test_an_ensemble_answers_the_mean_of_all_seeds_at_the_sum_of_their_costs(finished):
    _, compared = finished
    entries = by_name(compared.results)

    def scores(name, seed):
        path = compared.folder / f"contestants/{name}/seed-{seed}/predictions/test.jsonl"
        return np.array([json.loads(row)["scores"]["pos"] for row in path.read_text().splitlines()])

    members = [scores("tiny", seed) for seed in (0, 1)]
    assert np.abs(members[0] - members[1]).max() > 1e-3
    np.testing.assert_allclose(scores("both", 0), np.mean(members, 0), atol=2e-6)
    costs, parts = entries["both"]["costs"], [one["costs"] for one in entries["tiny"]["seeds"]]
    for name in ("training_seconds", "parameters", "bytes_on_disk"):
        assert costs[name] == pytest.approx(sum(part[name] for part in parts))


def test_a_student_learns_from_its_teacher_s_seed_and_reads_texts_as_it_does(finished):
    _, compared = finished
    entries = by_name(compared.results)
    for seed in (0, 1):
        run, teacher = (
            json.loads((compared.folder / f"contestants/{name}/seed-{seed}/run.json").read_text())
            for name in ("small", "tiny")
        )
        assert run["options"]["teacher"].endswith(f"contestants/tiny/seed-{seed}/model")
        mine, theirs = run["teacher"]["metrics"]["test"], teacher["metrics"]["test"]
        assert mine["roc_auc"] == pytest.approx(theirs["roc_auc"], abs=1e-6)
    steps = entries["tiny"]["cleaning"]
    assert steps and entries["small"]["cleaning"] == entries["small-int8"]["cleaning"] == steps
    predictor = filbert.load(compared.folder / "contestants/small/seed-0/model")
    assert predictor.known_task().spec.clean


def test_the_same_call_again_does_only_what_is_left(copied, read, no_training, capsys):
    recipe, out = copied
    before = json.loads((out / "results.json").read_text())
    again = run_study(read(recipe), out)
    assert no_training == ["broken/0", "broken/1"]
    finished = [name for name in recipe["contestants"] if name != "broken"]
    run_study(read(recipe), out, only=finished)
    assert "all 11 requested runs are finished" in capsys.readouterr().err
    assert again["pairs"] == before["pairs"]
    for name in finished:
        assert by_name(again)[name] == by_name(before)[name]


def test_other_rows_or_options_are_refused_without_overwrite(copied, read, films, no_training):
    recipe, out = copied
    for change in ({"test": str(films / "dev.csv")}, {"positive": "neg"}):
        with pytest.raises(ConfigError, match="finished runs of tiny, .*with other rows"):
            run_study(read(recipe | change), out)
    recipe["contestants"]["tfidf"]["C"] = 1.0
    with pytest.raises(ConfigError, match="finished runs of tfidf with other rows or options"):
        run_study(read(recipe), out)
    # Contestants that are not run are not checked; what they left is of another recipe.
    results = run_study(read(recipe), out, only=["static"])
    assert by_name(results)["tfidf"]["status"] == "missing"
    run_study(read(recipe), out, only=["tfidf"], overwrite=True)
    assert no_training == ["tfidf/0"] and not (out / "contestants/tfidf/seed-0").exists()


def test_rows_that_cannot_be_read_cost_no_run(copied, read, no_training):
    recipe, out = copied
    with pytest.raises(InputError, match="labell"):
        run_study(read(recipe | {"label_column": "labell"}), out, overwrite=True)
    run_study(read(recipe), out, only=["tiny"])
    assert no_training == []


def test_damaged_files_are_one_sentence(copied, read, no_training):
    recipe, out = copied
    path = out / "contestants/static/seed-0/predictions/test.jsonl"
    path.write_text("{\n" + path.read_text())
    with pytest.raises(FormatError, match=r"static/seed-0/predictions/test.jsonl is damaged"):
        run_study(read(recipe), out, only=["tiny"])
    (out / "study.json").write_text("{")
    with pytest.raises(FormatError, match=r"study.json"):
        run_study(read(recipe), out, overwrite=True)


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


def test_a_folder_with_something_else_is_left_alone(recipe, read, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no study"):
        run_study(read(recipe), tmp_path, overwrite=True)
    with pytest.raises(InputError, match="cannot be written"):
        run_study(read(recipe), tmp_path / "mine.txt")
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_failed_seed_of_a_finished_contestant_gives_status_1(monkeypatch, capsys, tmp_path):
    seeds = [{"seed": 0, "status": "finished"}, {"seed": 1, "status": "failed", "error": "Broke."}]
    one = {"name": "one", "status": "finished", "seeds": seeds, "test": {}, "costs": {}}
    results = {"positive": "1", "labels": ["0", "1"], "contestants": [one]}
    results["data"] = {"test": {"rows": 3}}
    (tmp_path / "results.json").write_text(json.dumps(results))
    compared = filbert.api.Comparison(tmp_path, results)
    monkeypatch.setattr(filbert.api, "compare", lambda *_, **__: compared)
    assert cli(["compare", "toxic-study", "--out", str(tmp_path)]) == 1
    assert "failed:  one, seed 1: Broke." in capsys.readouterr().out
    seeds[1]["status"] = "missing"
    assert cli(["compare", "toxic-study", "--out", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"filbert": "0.2.0"}, "different versions of filbert: 0.1.0; 0.2.0"),
        ({"precision": "float32"}, "different number formats: bf16; float32"),
        ({"device": {"name": "gpu"}}, "different devices"),
    ],
)
def test_what_differs_between_runs_is_noted(change, words):
    run = {"status": "finished", "filbert": "0.1.0", "precision": "bf16", "device": {"name": "cpu"}}
    notes = notes_of([{"name": "one", "kind": "encoder", "seeds": [run, run | change]}])
    assert [words in note for note in notes] == ([True] if words else [])


# Child processes


def toml(recipe) -> str:
    """A recipe as a file."""
    flat = {k: v for k, v in recipe.items() if k != "contestants"}
    lines = [f"{k} = {json.dumps(v)}" for k, v in flat.items()]
    for name, table in recipe["contestants"].items():
        lines += [f'[contestants."{name}"]', *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def begin(recipe, out, tmp_path) -> subprocess.Popen[str]:
    """`filbert compare` in a process that can be killed."""
    path = tmp_path / "recipe.toml"
    path.write_text(toml(recipe))
    return subprocess.Popen(
        [sys.executable, "-m", "filbert", "compare", str(path), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        if any(path.glob(pattern)):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    pytest.fail(f"no {pattern}: {process.communicate()[1][-2000:]}")


def wait_until_free(out: Path) -> None:
    """The orphaned child of a killed comparison holds the folder until it has ended."""
    import fcntl

    descriptor = os.open(out, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)


def test_a_killed_comparison_continues_where_it_was(recipe, read, tmp_path, one_process, capsys):
    recipe |= {"steps": 120, "save_every": 10}
    out = tmp_path / "out"
    killed = begin(recipe, out, tmp_path)
    wait_for(out, "contestants/tiny/seed-0/state/step-*", killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    wait_until_free(out)
    with one_process():
        results = run_study(read(recipe), out)
        assert "resumed after step" in capsys.readouterr().err
        assert [c["status"] for c in results["contestants"]] == ["finished", "finished"]
        run_study(read(recipe), tmp_path / "whole")
    place = "contestants/tiny/seed-0/predictions/test.jsonl"
    assert (out / place).read_bytes() == (tmp_path / "whole" / place).read_bytes()


def test_a_signal_saves_the_state_and_the_message_says_how_to_continue(recipe, read, tmp_path):
    recipe |= {"steps": 100_000, "save_every": 1_000_000}
    out = tmp_path / "out"
    process = begin(recipe, out, tmp_path)
    wait_for(out, "contestants/tiny/seed-0/metrics.jsonl", process)
    with pytest.raises(ConfigError, match="another filbert is writing"):
        run_study(read(recipe), out)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert "the same command" in err
    facts = json.loads((out / "contestants/tiny/seed-0/run.json").read_text())
    assert facts["status"] == "interrupted"
    assert list((out / "contestants/tiny/seed-0/state").glob("step-*"))
    job = json.loads((out / "contestants/tiny/seed-0.job.json").read_text())
    assert job["status"] == "interrupted"


def test_a_contestant_that_is_killed_is_named_and_the_others_run(recipe, tmp_path):
    recipe |= {"steps": 100_000, "save_every": 1_000_000}
    out = tmp_path / "out"
    process = begin(recipe, out, tmp_path)
    wait_for(out, "contestants/tiny/seed-0/metrics.jsonl", process)
    (child,) = children_of(process.pid)
    os.kill(child, signal.SIGKILL)
    _, err = process.communicate()
    assert process.returncode == 1
    tiny, tfidf = json.loads((out / "results.json").read_text())["contestants"]
    assert (
        tiny["status"] == "failed" and "(SIGKILL), probably because memory ran out" in tiny["error"]
    )
    assert tfidf["status"] == "finished"
    assert "tiny, seed 0 failed: The process was killed (SIGKILL)" in err


def children_of(parent: int) -> list[int]:
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            children.append(int(path.parent.name))
    return children


# Fingerprints


def fingerprints(study):
    return {run.contestant.name: run.fingerprint for run in runs_of(study, Path(), DATA, "float32")}


def test_the_fingerprint_of_a_run_follows_the_content_of_the_user_s_files(
    recipe, read, tiny_model, tmp_path
):
    model, vectors = tmp_path / "model", tmp_path / "v.txt"
    shutil.copytree(tiny_model, model)
    vectors.write_text("film 1 2\n")
    recipe["contestants"] = {
        "tiny": {"model": str(model)},
        "words": {"kind": "static", "vectors": str(vectors)},
        "mini": {"kind": "static", "model": "filbert-mini"},
    }
    study = read(recipe)
    before = fingerprints(study)
    (model / "README.md").write_text("other words")
    assert fingerprints(study) == before
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    after = fingerprints(study)
    assert [name for name in before if after[name] != before[name]] == ["tiny"]
    vectors.write_text("film 1 2.5\n")
    assert fingerprints(study) | {"words": after["words"]} == after != fingerprints(study)


def test_a_changed_teacher_changes_the_fingerprints_of_all_that_is_made_from_it(finished, read):
    recipe = json.loads(json.dumps(finished[0]))
    before = fingerprints(read(recipe))
    recipe["contestants"]["small"] = {**STUDENT, "temperature": 3.0}
    after = fingerprints(read(recipe))
    assert {name for name in before if before[name] != after[name]} == {"small", "small-int8"}


def test_auto_precision_is_chosen_once_and_changes_no_fingerprint(
    recipe, read, tmp_path, no_training, no_report, monkeypatch
):
    del recipe["precision"]
    out = tmp_path / "out"
    for name in ("bf16", "float32"):
        monkeypatch.setattr(module, "choose_precision", lambda *_, n=name: Precision(n, "here"))
        run_study(read(recipe), out)
        state = json.loads((out / "study.json").read_text())
        assert state["precision"] == "bf16"
    study = read(recipe)
    run, other = (runs_of(study, out, state["data"], name)[0] for name in ("bf16", "float32"))
    assert run.contestant.options["precision"] == "bf16" and run.fingerprint == other.fingerprint
