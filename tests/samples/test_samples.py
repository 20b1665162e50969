from __future__ import annotations

import gzip
import hashlib
import runpy
import sys
from pathlib import Path

import pytest

from filbert import samples

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY.parent / "shared" / "data" / "jigsaw_toxic_binary" / "train.csv.gz"
NUM_ROWS = {"train": 4000, "dev": 1500, "test": 1500}
CONTENT_SHA256 = {
    "train": "a15a2df3f7086d0b4dcde57564130ebeb8553dc962280bc3e2d2437c37891cac",
    "dev": "80ae8f31f3bec5d27de76d94eede0a580dff16f4c826b6851a36cf02603b7ce3",
    "test": "a544d2243b6a224c16d328f6536869885ab7b5ae6f0fce4f00efcfa53e1d1699",
}


# Texts never stand in an assert of their own: pytest would print them when it fails.


@pytest.mark.parametrize("split", NUM_ROWS)
def test_the_content_is_the_one_that_was_drawn(split):
    content = gzip.decompress(samples.path(f"toxic_{split}.csv.gz").read_bytes())
    assert hashlib.sha256(content).hexdigest() == CONTENT_SHA256[split]


@pytest.mark.skipif(not SOURCE.exists(), reason="the source data is not beside this repository")
def test_the_script_draws_the_same_content_again(tmp_path, monkeypatch, capsys):
    script = REPOSITORY / "benchmarks" / "make_samples.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(SOURCE), "--out", str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    for split, digest in CONTENT_SHA256.items():
        content = gzip.decompress((tmp_path / f"toxic_{split}.csv.gz").read_bytes())
        assert hashlib.sha256(content).hexdigest() == digest
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) < 110
