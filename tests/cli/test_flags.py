"""How a command line is read before any verb sees it."""

from __future__ import annotations

import pytest

from filbert.cli.flags import files_last
from filbert.cli.main import app
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


def test_files_of_one_name_are_told_apart():
    files = ["a/part-0.csv", "dev/part-0.csv", "test/part-0.csv", "b/x.csv", "c/x.csv.gz", "x2.csv"]
    assert split_names(files) == ["train", "part-0", "part-02", "x", "x2", "x22"]
