"""filbert convert: a whole folder or none, every tensor bit for bit, refusals as sentences."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from filbert.checkpoints.huggingface import read
from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.cli.verbs.models import convert
from filbert.errors import InputError


@pytest.fixture
def there(tiny_model: Path, tmp_path: Path) -> Path:
    convert(str(tiny_model), tmp_path / "google", to="google")
    return tmp_path / "google"


def test_there_and_back_is_the_same_model_and_the_same_files(tiny_model, there, tmp_path, capsys):
    assert sorted(path.name for path in there.iterdir()) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "vocab.txt",
    ]
    convert(str(there), tmp_path / "hf", to="huggingface")
    before, after = read(tiny_model), read_checkpoint(tmp_path / "hf")
    assert after.config == before.config
    assert all(torch.equal(after.tensors[name], value) for name, value in before.tensors.items())
    assert read_tokenizer(tmp_path / "hf").max_length == 64
    assert json.loads((tmp_path / "hf/config.json").read_text())["pad_token_id"] == 0
    story = json.loads((tmp_path / "hf/filbert.json").read_text())
    assert story["converted"]["format"] == "google"
    convert(str(tmp_path / "hf"), tmp_path / "again", to="google")
    for path in there.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    out = capsys.readouterr()
    assert "erf form, as the checkpoints of 2018" in out.err
    assert "bit for bit" in out.out


def test_a_taken_target_needs_overwrite_and_a_foreign_one_stays(tiny_model, there, tmp_path):
    with pytest.raises(InputError, match="exists.*`overwrite`"):
        convert(str(tiny_model), there, to="huggingface")
    convert(str(tiny_model), there, to="huggingface", overwrite=True)
    assert (there / "config.json").is_file()
    assert not (there / "bert_config.json").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="not replaced"):
        convert(str(tiny_model), tmp_path / "home", to="google", overwrite=True)
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_a_model_is_not_written_over_itself(there):
    for target in (there, there.parent):
        with pytest.raises(InputError, match="holds the source"):
            convert(str(there), target, to="huggingface", overwrite=True)


def test_the_card_comes_along_and_what_does_not_is_said(tiny_model, tmp_path, capsys):
    source = tmp_path / "source"
    shutil.copytree(tiny_model, source)
    shutil.copytree(tiny_model, source / "generator")
    (source / "README.md").write_text("---\nlicense: mit\n---\n")
    convert(str(source), tmp_path / "hf", to="huggingface")
    assert (tmp_path / "hf" / "README.md").read_bytes() == (source / "README.md").read_bytes()
    err = capsys.readouterr().err
    assert "generator/ is left out" in err and "README.md" not in err
    convert(str(source), tmp_path / "google", to="google")
    err = capsys.readouterr().err
    assert "generator/ is left out" in err and "README.md is left out" in err
