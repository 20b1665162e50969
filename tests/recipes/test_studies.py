"""The studies that come with filbert; tests/docs runs them as their pages do."""

from filbert.cli.main import run
from filbert.compare.recipe import RowOptions, StudyOptions, read_study
from filbert.recipes import read_recipe, recipe_path


def test_the_study_without_data_says_what_to_give(capsys, tmp_path):
    assert run(["compare", "toxic-study", "--out", str(tmp_path / "out")]) == 2
    assert "Give either data" in capsys.readouterr().err
    assert run(["compare", "toxic-studdy", "--out", str(tmp_path / "out")]) == 2
    assert "toxic-study" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_study_of_students_can_be_read_as_it_is(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    recipe = read_recipe(recipe_path("distil-toxic", "compare"))
    study = read_study(recipe, StudyOptions(rows=RowOptions(data="x.csv")))
    assert {c.source for c in study.contestants if c.kind == "distilled"} == {"minilm"}
