"""--near-duplicates and --merge-labels, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BASE = "the film was very good and the play was not bad , he was great and she was not"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Rows with two 0/1 columns; the second file nearly repeats a row of the first."""
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    rows = [
        f"the film was {word},{i % 2},{i % 3 % 2}" for i, word in enumerate(["good", "bad"] * 8)
    ]
    train.write_text("\n".join(["text,loud,curt", f'"{BASE}",0,1', *rows]), encoding="utf-8")
    dev.write_text(f'text,loud,curt\n"{BASE} a",0,0\na play,1,0\na film,0,0\n', encoding="utf-8")
    return train, dev


MERGED = ["--merge-labels", "loud,curt", "--as", "unfriendly"]


def test_check_counts_near_duplicates_of_merged_rows_and_prints_no_text(call, files):
    done = call("check", "--task", "classification", *files, *MERGED, "--near-duplicates")
    assert done.status == 0, done.err
    words = " ".join(done.out.split())
    assert "unfriendly" in words
    assert "dev.csv:2 is almost train.csv:2" in words
    assert "dev.csv:2 contradicts train.csv:2" in words
    assert "great" not in words

    done = call("check", "--task", "classification", *files, *MERGED, "--near-duplicates", "--json")
    kinds = {problem["kind"]: problem["count"] for problem in json.loads(done.out)["problems"]}
    assert (kinds["near_leakage"], kinds["near_contradiction"]) == (1, 1)
    assert "great" not in done.out
