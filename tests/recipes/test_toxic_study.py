"""The study that comes with filbert: what it compares, and a minute's version of it."""

import copy
import csv
import random

import pytest

import filbert
from filbert.cli.main import run
from filbert.recipes import read_recipe, recipe_path

STUDY = recipe_path("toxic-study", "compare")
RECIPE = read_recipe(STUDY)


@pytest.fixture
def comments(tmp_path, tiny):
    """Harmless rows in the columns of the real ones, words of the tiny vocabulary."""
    draw = random.Random(0)
    path = tmp_path / "comments.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["comment_text", "toxic"])
        for i in range(240):
            bad = i % 5 == 0
            words = draw.choices(["the", "film", "was", "a", "play", "very", "he", "it"], k=12)
            out.writerow([" ".join([*words, "bad" if bad else "good"]), int(bad)])
    return path


def smaller(recipe, tiny_model):
    """The same study of a tiny model."""
    changed = copy.deepcopy(recipe)
    for table in changed["contestants"].values():
        if "model" in table:
            table["model"] = str(tiny_model)
        if "reinit_layers" in table:
            table["reinit_layers"] = 1
        if "keep_layers" in table:
            table["keep_layers"] = "1"
        if table.get("kind") == "bigru":
            table |= {"dim": 8, "hidden": 4, "min_count": 1}
        if "max_length" in table:
            table["max_length"] = 32
    return changed | {"max_length": 48, "epochs": 0.1, "resamples": 100, "seeds": 1}


def test_the_study_runs_whole_with_a_tiny_model(comments, tiny_model, tmp_path, one_process):
    with one_process():
        compared = filbert.compare(smaller(RECIPE, tiny_model), data=comments, out=tmp_path / "out")
    wrong = [c for c in compared.results["contestants"] if c["status"] != "finished"]
    assert not wrong
    assert len(compared.results["contestants"]) == 15
    assert (compared.folder / "report.html").is_file()


def test_the_study_without_data_says_what_to_give(capsys, tmp_path):
    assert run(["compare", "toxic-study", "--out", str(tmp_path / "out")]) == 2
    assert "Give either data" in capsys.readouterr().err
    assert run(["compare", "toxic-studdy", "--out", str(tmp_path / "out")]) == 2
    assert "toxic-study" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
