"""filbert pretrain, as it is typed: recipes, flags over them, and what is said of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from filbert.cli.main import without_overruled
from filbert.data.build import build_corpus
from filbert.text.tokenizer import Tokenizer

SIZES = """
num_hidden_layers = 2
hidden_size = 16
num_attention_heads = 2
intermediate_size = 24
max_position_embeddings = 40
"""
RECIPE = """
max_length = 16
batch_size = 4
steps = 3
lr = 1e-3
device = "cpu"
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = ["he was very good . it was a film .", "she was not bad , and he was not ."]
    path.write_text("\n\n".join(f"{line}\n{'very ' * n}good ." for n in range(9) for line in lines))
    return path


@pytest.fixture(scope="module")
def shards(text, vocab, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("shards") / "corpus"
    build_corpus([text], Tokenizer.load(vocab), out)
    return out


@pytest.fixture
def recipe(tmp_path, shards) -> Path:
    """A whole recipe, with a key that is also the name of a verb: corpus."""
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE + SIZES + f'corpus = "{shards}"\nout = "{tmp_path / "run"}"\n')
    return path


def run_json(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text())


def test_a_recipe_with_flags_over_it_makes_a_run_and_says_where(call, recipe, tmp_path):
    done = call("pretrain", recipe, "--steps", 5, "--mask-rate", 0.3, "--out", tmp_path / "other")
    assert done.status == 0, done.err
    options = run_json(tmp_path / "other")["options"]
    assert (options["steps"], options["mask_rate"], options["batch_size"]) == (5, 0.3, 4)
    assert not (tmp_path / "run").exists()
    for part in ("steps", "training tokens", "model:  ", "report: "):
        assert part in done.out
    assert (tmp_path / "other" / "report.html").is_file()


def test_an_unknown_recipe_is_told_with_the_nearest_and_all_names(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("pretrain", "mini-gpu", "--corpus", "a.txt")
    assert done.status == 2 and "Did you mean 'mini-cpu'?" in done.err
    assert "mini-gpu is no recipe" in done.err
    assert call("pretrain", "absent.toml", "--out", "x").status == 2
    (tmp_path / "bad.toml").write_text("steps = \n")
    done = call("pretrain", "bad.toml", "--out", "x")
    assert done.status == 2 and "bad.toml is not valid TOML" in done.err


def test_what_a_run_cannot_do_without_is_asked_for(call, tmp_path, shards, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "'corpus' is missing" in call("pretrain", "mini-cpu").err
    assert "'corpus' is missing" in call("pretrain").err
    done = call("pretrain", "mini-cpu", "--corpus", shards)
    assert done.status == 2 and "'out' is missing" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        ([], {"time": "1h", "steps": 5, "epochs": 2}),
        (["--steps", "3"], {"steps": 5, "epochs": 2}),
        (["--steps=3", "--time", "1m"], {"time": "1h", "steps": 5, "epochs": 2}),
        (["--epochs", "3"], {"epochs": 2}),
    ],
)
def test_a_length_given_as_a_flag_does_not_lose_to_another_kind_of_length_in_the_recipe(
    flags, kept
):
    recipe = {"time": "1h", "steps": 5, "epochs": 2}
    assert without_overruled(recipe, ["pretrain", *flags]) == kept
