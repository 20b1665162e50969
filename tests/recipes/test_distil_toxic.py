"""The study of students that comes with filbert, and a minute's version of it."""

import copy
import csv
import json
import random

import pytest

import filbert
from filbert.compare.recipe import StudyOptions, read_study
from filbert.recipes import read_recipe, recipe_path

RECIPE = read_recipe(recipe_path("distil-toxic", "compare"))
TABLES = RECIPE["contestants"]


@pytest.fixture
def comments(tmp_path, tiny):
    """Harmless rows in the columns of the real ones, words of the tiny vocabulary."""
    draw = random.Random(0)
    path = tmp_path / "comments.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["comment_text", "toxic"])
        for i in range(160):
            bad = i % 4 == 0
            words = draw.choices(["the", "film", "was", "a", "play", "very", "he", "it"], k=12)
            out.writerow([" ".join([*words, "bad" if bad else "good"]), int(bad)])
    return path


def smaller(tiny_model):
    """The same study of a tiny model, which has two layers."""
    changed = copy.deepcopy(RECIPE)
    for table in changed["contestants"].values():
        for name in ("model", "student"):
            if table.get(name) == "minilm":
                table[name] = str(tiny_model)
        if "keep_layers" in table:
            table["keep_layers"] = "2" if table.get("method") == "pkd" else "1"
        if table.get("kind") == "bigru":
            table |= {"dim": 8, "hidden": 4, "min_count": 1}
    changed |= {"max_length": 48, "resamples": 100, "seeds": 1}
    return changed


def test_the_study_of_students_runs_whole_with_a_tiny_model(
    comments, tiny_model, tmp_path, one_process
):
    with one_process():
        compared = filbert.compare(
            smaller(tiny_model), data=comments, steps=1, out=tmp_path / "out"
        )
    results = compared.results
    assert [c["error"] for c in results["contestants"] if c["status"] != "finished"] == []
    assert len(results["contestants"]) == len(TABLES) == 11
    for name in ("soft-3", "pkd-3"):
        facts = json.loads((compared.folder / f"contestants/{name}/seed-0/run.json").read_text())
        assert facts["teacher"]["metrics"].keys() == {"dev", "test"}


def test_it_can_be_read_as_it_is(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    study = read_study(RECIPE, StudyOptions.from_keywords({"data": "x.csv"}))
    assert {c.source.name for c in study.contestants if c.kind == "distilled"} == {"minilm"}
