import gzip
import hashlib
import runpy
import sys
from pathlib import Path

import pytest

from filbert import samples

REPOSITORY = Path(__file__).parents[2]
CONTENT_SHA256 = {
    "toxic_train": "a15a2df3f7086d0b4dcde57564130ebeb8553dc962280bc3e2d2437c37891cac",
    "toxic_dev": "80ae8f31f3bec5d27de76d94eede0a580dff16f4c826b6851a36cf02603b7ce3",
    "toxic_test": "a544d2243b6a224c16d328f6536869885ab7b5ae6f0fce4f00efcfa53e1d1699",
    "intents_train": "5e96ad9f7e83ab3011b58cfd3bdcea6b9c37bf151147e25e2a49508987a1e41e",
    "intents_dev": "09ee49ffec59c7ff835d46d6fe74ff16c8d575d56a52a19d57981088a95c49b9",
    "intents_test": "98a3aaab9dbb5d0eaf7973e1c806441c253c2aae05c7f715df38153ad7f2ed24",
}


# Texts never stand in an assert of their own: pytest would print them when it fails.


@pytest.mark.parametrize("name", CONTENT_SHA256)
def test_the_content_is_the_one_that_was_drawn(name):
    content = gzip.decompress(samples.path(f"{name}.csv.gz").read_bytes())
    assert hashlib.sha256(content).hexdigest() == CONTENT_SHA256[name]


def test_the_script_draws_the_same_content_again(shared_data, tmp_path, monkeypatch, capsys):
    script = REPOSITORY / "benchmarks" / "make_samples.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(shared_data), "--out", str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    for name, digest in CONTENT_SHA256.items():
        content = gzip.decompress((tmp_path / f"{name}.csv.gz").read_bytes())
        assert hashlib.sha256(content).hexdigest() == digest
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) < 110
