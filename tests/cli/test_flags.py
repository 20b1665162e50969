"""How a command line is read before any verb sees it."""

from __future__ import annotations

import json

import pytest

from filbert.cli.flags import files_last
from filbert.cli.main import app, run
from filbert.cli.verbs.check import split_names


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            "check --task classification --label-columns a,b train.csv dev.csv --json",
            "check --task classification --label-columns a,b --json -- train.csv dev.csv",
        ),
        ("check --task x --labels=a,b t.csv", "check --task x --labels=a,b -- t.csv"),
        (
            "check --task x train.csv --label-columns a,b dev.csv",
            "check --task x train.csv --label-columns a,b -- dev.csv",
        ),
        (
            "predict --out x M --choice-columns e0,e1 rows.csv",
            "predict --out x M --choice-columns e0,e1 -- rows.csv",
        ),
        ("predict M --choice-columns e0,e1 -", "predict M --choice-columns e0,e1 -- -"),
        # Whether these are names or files, nobody can tell: they go on with the list.
        ("check --labels a b c.csv", None),
        # No list; a list of something else than names; no files.
        ("check --json a,b.csv c.csv --task x", None),
        ("shrink M --out o --vocabulary-from a.txt b.txt", None),
        ("finetune --label-columns a,b c --task x", None),
    ],
)
def test_files_behind_a_list_between_commas_are_files(given, wanted):
    tokens = given.split()
    assert files_last(app[tokens[0]], tokens) == tuple((wanted or given).split())


def test_a_file_behind_a_list_is_checked(tmp_path, capsys):
    path = tmp_path / "train.csv"
    path.write_text("text,a,b\ngood,1,0\nbad,0,1\nfilm,1,1\n")
    (tmp_path / "dev.csv").write_text("text,a,b\ngood,1,0\n")
    words = ["check", "--task", "classification", "--json", str(path), "--label-columns", "a,b"]
    run([*words, str(tmp_path / "dev.csv")])
    splits = json.loads(capsys.readouterr().out)["splits"]
    assert [(s["name"], s["rows"]) for s in splits] == [("train", 3), ("dev", 1)]


def test_a_study_s_recipe_may_say_what_the_call_says(tmp_path, films, capsys, one_process):
    (tmp_path / "r.toml").write_text(
        f"""
        train = "{films}/train.csv"
        dev = "{films}/dev.csv"
        test = "{films}/test.csv"
        resamples = 50
        out = "{tmp_path}/out"
        only = ["first"]
        json = true
        [contestants.first]
        kind = "tfidf"
        [contestants.second]
        kind = "tfidf"
        C = 10.0
        """
    )
    with one_process():
        assert run(["compare", str(tmp_path / "r.toml")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["status"] for one in found["contestants"]] == ["finished", "missing"]
    # A flag wins.
    with one_process():
        assert run(["compare", "--out", str(tmp_path / "other"), str(tmp_path / "r.toml")]) == 0
    assert (tmp_path / "other" / "report.html").is_file()
    (tmp_path / "r.toml").write_text('overwrite = "no"\n[contestants.first]\nkind = "tfidf"\n')
    capsys.readouterr()
    assert run(["compare", str(tmp_path / "r.toml"), "--out", "x"]) == 2
    assert "must be true or false" in capsys.readouterr().err
    (tmp_path / "r.toml").write_text('overwrit = true\n[contestants.first]\nkind = "tfidf"\n')
    capsys.readouterr()
    assert run(["compare", str(tmp_path / "r.toml"), "--out", "x"]) == 2
    assert "overwrit" in capsys.readouterr().err


def test_files_of_one_name_are_told_apart():
    files = ["a/part-0.csv", "dev/part-0.csv", "test/part-0.csv", "b/x.csv", "c/x.csv.gz", "x2.csv"]
    assert split_names(files) == ["train", "part-0", "part-02", "x", "x2", "x22"]
