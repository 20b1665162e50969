"""Which of its two forms "gelu" means is decided by the family, said, and can be overruled."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from filbert.errors import ConfigError
from filbert.formats import google
from filbert.text.tokenizer import Tokenizer

_spec = importlib.util.spec_from_file_location(
    "google_samples", Path(__file__).with_name("google_samples.py")
)
samples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(samples)
drawn, save = samples.drawn, samples.save


FAMILIES = {
    "bert": (samples.BERT, "gelu", "erf form, as the checkpoints of 2018"),
    "albert": (samples.ALBERT, "gelu_tanh", "tanh form, which google-research/albert"),
    "electra": (samples.ELECTRA, "gelu", "erf form, which google-research/electra"),
}
every_family = pytest.mark.parametrize("family", list(FAMILIES))


def said(notes: tuple[str, ...]) -> str:
    (note,) = (note for note in notes if "hidden_act" in note)
    return note


@every_family
def test_each_family_has_its_default_and_says_so(family: str, tmp_path: Path, vocab: Path) -> None:
    shapes, act, words = FAMILIES[family]
    checkpoint = google.read(save(tmp_path, drawn(shapes), vocab, samples.CONFIGS[family]))
    assert checkpoint.config.hidden_act == act
    assert words in said(checkpoint.notes)


@every_family
@pytest.mark.parametrize("asked", ["gelu", "gelu_tanh"])
def test_the_default_can_be_overruled(family: str, asked: str, tmp_path: Path, vocab: Path) -> None:
    prefix = save(tmp_path, drawn(FAMILIES[family][0]), vocab, samples.CONFIGS[family])
    checkpoint = google.read(prefix, hidden_act=asked)
    assert checkpoint.config.hidden_act == asked
    assert "as asked" in said(checkpoint.notes)


@every_family
@pytest.mark.parametrize("act", ["gelu", "gelu_tanh"])
def test_what_is_written_is_read_back_with_the_same_activation(
    family: str, act: str, tmp_path: Path, vocab: Path
) -> None:
    shapes, usual, _ = FAMILIES[family]
    prefix = save(tmp_path / "a", drawn(shapes), vocab, samples.CONFIGS[family])
    google.write(google.read(prefix, hidden_act=act), Tokenizer.load(vocab), tmp_path / "b")
    back = google.read(tmp_path / "b" / google.PREFIX)
    assert back.config.hidden_act == act
    path = next((tmp_path / "b").glob("*_config.json"))
    raw = json.loads(path.read_text())
    assert raw["hidden_act"] == "gelu"  # the only name that Google's code knows
    assert ("gelu_form" in raw) == (act != usual)


def test_relu_is_relu(tmp_path: Path, vocab: Path) -> None:
    config = ("bert_config.json", {**samples.BERT_CONFIG, "hidden_act": "relu"})
    prefix = save(tmp_path / "a", drawn(samples.BERT), vocab, config)
    checkpoint = google.read(prefix)
    assert checkpoint.config.hidden_act == "relu"
    assert not any("hidden_act" in note for note in checkpoint.notes)
    with pytest.raises(ConfigError, match="'relu'.*two forms"):
        google.read(prefix, hidden_act="gelu")
    google.write(replace(checkpoint), Tokenizer.load(vocab), tmp_path / "b")
    assert google.read(tmp_path / "b" / google.PREFIX).config.hidden_act == "relu"
