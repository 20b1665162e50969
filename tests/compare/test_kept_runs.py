"""What a comparison finds in its folder: kept, made again, or refused, but never lost unasked."""

from __future__ import annotations

import json
import shutil

import pytest

from filbert.cli.main import run as cli
from filbert.compare import runs
from filbert.compare.runs import fingerprint_of, run_study, runs_of
from filbert.errors import ConfigError, FormatError
from filbert.model.precision import Precision

DATA = {
    name: {"sha256": name, "path": f"data/{name}.jsonl.gz"} for name in ("train", "dev", "test")
}
DATA |= {"labels": ["neg", "pos"], "positive": "pos"}


def two(recipe):
    recipe["contestants"] = {name: {"kind": "tfidf", "C": 10.0} for name in ("first", "second")}
    return recipe


@pytest.fixture(scope="module")
def made(films, tmp_path_factory, one_process):
    """A finished study of two linear models, and its recipe."""
    from filbert.compare.options import StudyOptions
    from filbert.compare.recipe import read_study

    recipe = {name: str(films / f"{name}.csv") for name in ("train", "dev", "test")}
    recipe |= {"positive": "pos", "resamples": 50}
    study = read_study(two(recipe), StudyOptions.from_keywords({}))
    out = tmp_path_factory.mktemp("kept") / "out"
    with one_process():
        results = run_study(study, out)
    assert [c["status"] for c in results["contestants"]] == ["finished", "finished"]
    return recipe, out


@pytest.fixture
def kept(made, tmp_path):
    """A copy to be spoilt."""
    recipe, out = made
    shutil.copytree(out, tmp_path / "out")
    return json.loads(json.dumps(recipe)), tmp_path / "out"


def stamps(out):
    return {p: p.stat().st_mtime_ns for p in sorted(out.glob("contestants/*/seed-*/run.json"))}


@pytest.mark.parametrize("lost", ["study.json", "data/dev.jsonl.gz", "data"])
def test_losing_a_file_of_the_study_keeps_its_runs(lost, kept, read, no_training):
    recipe, out = kept
    before = stamps(out)
    place = out / lost
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    results = run_study(read(recipe), out)
    assert no_training == [] and stamps(out) == before
    assert [c["status"] for c in results["contestants"]] == ["finished", "finished"]
    assert json.loads((out / "study.json").read_text())["data"]["train"]["rows"] == 256


def test_a_changed_contestant_is_refused_even_when_study_json_is_lost(kept, read, no_training):
    recipe, out = kept
    (out / "study.json").unlink()
    recipe["contestants"]["second"]["C"] = 1.0
    before = stamps(out)
    with pytest.raises(ConfigError, match="finished runs of second with other .*--overwrite"):
        run_study(read(recipe), out)
    assert stamps(out) == before
    # The recipe that it was made by is still welcome.
    recipe["contestants"]["second"]["C"] = 10.0
    run_study(read(recipe), out)
    assert no_training == []


def test_a_damaged_study_json_is_a_sentence_and_costs_nothing(kept, read, no_training):
    recipe, out = kept
    before = stamps(out)
    for content in ("{", "[]"):
        (out / "study.json").write_text(content)
        with pytest.raises(FormatError, match=r"study.json"):
            run_study(read(recipe), out, overwrite=True)
    assert stamps(out) == before


def test_only_looks_for_changes_at_those_it_runs(kept, read, no_training):
    recipe, out = kept
    recipe["contestants"]["second"]["C"] = 1.0
    results = run_study(read(recipe), out, only=["first"])
    first, second = results["contestants"]
    assert (first["status"], second["status"]) == ("finished", "missing")
    assert "other options" in second["error"] and len(stamps(out)) == 2
    with pytest.raises(ConfigError, match="finished runs of second"):
        run_study(read(recipe), out)


def test_a_changed_contestant_without_a_finished_run_needs_no_overwrite(kept, read, no_training):
    recipe, out = kept
    path = out / "contestants/second/seed-0/run.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "status": "interrupted", "study": None}))
    recipe["contestants"]["second"]["C"] = 1.0
    run_study(read(recipe), out)
    assert no_training == ["second/0"] and not path.exists()


def test_damaged_predictions_fail_one_contestant_and_not_the_report(kept, capsys, no_training):
    recipe, out = kept
    path = out / "contestants/second/seed-0/predictions/test.jsonl"
    path.write_text("{\n" + path.read_text())
    recipe_path = out.parent / "films.toml"
    flat = [f"{k} = {json.dumps(v)}" for k, v in recipe.items() if k != "contestants"]
    tables = [f'[contestants.{n}]\nkind = "tfidf"\nC = 10.0' for n in recipe["contestants"]]
    recipe_path.write_text("\n".join([*flat, *tables]) + "\n")
    assert cli(["compare", str(recipe_path), "--out", str(out), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((out / "results.json").read_text())
    first, second = told["contestants"]
    assert (first["status"], second["status"]) == ("finished", "failed")
    sentence = second["seeds"][0]["error"]
    assert "test.jsonl:1: not a JSON object" in sentence and "Delete contestants/" in sentence
    assert "not a JSON object" in (out / "report.html").read_text()
    assert cli(["compare", str(recipe_path), "--out", str(out)]) == 1
    assert "failed:  second, seed 0: " in capsys.readouterr().out


def test_a_failed_seed_of_a_finished_contestant_is_told_and_gives_status_1(
    monkeypatch, capsys, tmp_path
):
    from pathlib import Path

    import filbert.api
    from filbert.cli.verbs.compare import compare

    seeds = [{"seed": 0, "status": "finished"}, {"seed": 1, "status": "failed", "error": "Broke."}]
    one = {"name": "one", "status": "finished", "seeds": seeds, "test": {}, "costs": {}}
    results = {"positive": "1", "contestants": [one], "data": {"test": {"rows": 3}}}
    made = filbert.api.Comparison(Path(tmp_path), results)
    monkeypatch.setattr(filbert.api, "compare", lambda *_, **__: made)
    assert compare("x.toml", out=str(tmp_path)) == 1
    assert "failed:  one, seed 1: Broke." in capsys.readouterr().out
    seeds[1]["status"] = "missing"
    assert compare("x.toml", out=str(tmp_path)) == 0


def marks_of(study):
    return [fingerprint_of(one, 0, DATA) for one in study.contestants]


def test_the_mark_of_a_run_follows_the_content_of_the_users_files(
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
    before = marks_of(study)
    (model / "README.md").write_text("other words")
    assert marks_of(study) == before
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    tiny, words, mini = marks_of(study)
    assert (tiny != before[0], words, mini) == (True, *before[1:])
    vectors.write_text("film 1 2.5\n")
    assert marks_of(study)[1:] == [marks_of(study)[1], mini] and marks_of(study)[1] != words


def test_the_mark_of_a_built_in_model_is_that_of_the_first_studies(recipe, read):
    """A finished run is worth hours, so what marks it must not change by the way."""
    recipe["contestants"] = {"mini": {"model": "filbert-mini", "lr": 1e-4}}
    recipe |= {"device": None, "precision": None, "steps": None}
    (mini,) = read({k: v for k, v in recipe.items() if v is not None}).contestants
    assert fingerprint_of(mini, 0, DATA) == (
        "b298a2ce05b84cab5ba5429e3757d146a6f30889f4f342937e677939db4e6ed3"
    )


def test_auto_is_settled_once_and_changes_no_mark(recipe, read, tmp_path, no_training, monkeypatch):
    del recipe["precision"]
    monkeypatch.setattr(runs, "choose_precision", lambda *_: Precision("bf16", "here"))
    out = tmp_path / "out"
    run_study(read(recipe), out)
    state = json.loads((out / "study.json").read_text())
    assert state["precision"] == "bf16"
    monkeypatch.setattr(runs, "choose_precision", lambda *_: Precision("float32", "now"))
    run_study(read(recipe), out)
    assert json.loads((out / "study.json").read_text())["precision"] == "bf16"
    study = read(recipe)
    run, other = (runs_of(study, out, state["data"], name)[0] for name in ("bf16", "float32"))
    assert run.training["precision"] == "bf16" and run.fingerprint == other.fingerprint
