"""How a command line is read before any verb sees it."""

import pytest

from filbert.cli.main import command_app
from filbert.cli.verbs.data import split_names


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("check --task x --label-columns a,b train.csv dev.csv --json", ("train.csv", "dev.csv")),
        ("check --task x --label-columns=a,b train.csv dev.csv", ("train.csv", "dev.csv")),
        ("check --task x --label-columns a --label-columns b t.csv", ("t.csv",)),
    ],
)
def test_files_may_follow_a_list_of_names(line, files):
    verb, *words = line.split()
    _, bound, _ = command_app([verb]).parse_args(words, exit_on_error=False, print_error=False)
    assert bound.arguments["files"] == files
    assert ",".join(bound.arguments["label_columns"]) == "a,b"


def test_files_of_one_name_are_told_apart():
    files = ["a/part-0.csv", "dev/part-0.csv", "test/part-0.csv", "b/x.csv", "c/x.csv.gz", "x2.csv"]
    assert split_names(files) == ["train", "part-0", "part-02", "x", "x2", "x22"]
