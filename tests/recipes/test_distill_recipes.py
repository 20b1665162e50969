"""The recipes of distillation: their published numbers, and a small run each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from filbert.checkpoints import huggingface
from filbert.cli.main import run
from filbert.recipes import read_recipe, recipe_path
from filbert.train.distill_options import DistillOptions
from filbert.train.options import flat, keys_of_tables

# A second copy, typed from the papers.
PUBLISHED: dict[str, dict[str, Any]] = {
    # Sanh et al. 2019 and its code: 5 CE + 2 MLM + 1 cosine at temperature 2.
    "distilbert": {
        "method": "distilbert", "layers": 6, "temperature": 2.0, "soft_weight": 5.0,
        "mlm_weight": 2.0, "cosine_weight": 1.0, "soft_on": "all", "lr": 5e-4, "eps": 1e-6,
        "beta2": 0.98, "mask_rarity": 0.7, "weight_decay": 0.0, "warmup": 0.05, "clip": 5.0,
        "epochs": 3.0, "batch_size": 4000,
    },
    # Jiao et al. 2020, section 4: 4 layers of 312.
    "tinybert-general": {
        "method": "tinybert", "layers": 4, "hidden_size": 312, "intermediate_size": 1200,
        "heads": 12, "max_length": 128, "epochs": 3.0, "batch_size": 256, "lr": 5e-5,
        "optimizer": "bert_adam", "eps": 1e-6,
    },
    "tinybert-task": {
        "method": "tinybert", "epochs": 23.0, "batch_size": 32, "lr": 3e-5, "hidden_lr": 5e-5,
        "hidden_schedule": "constant", "temperature": 1.0, "alpha": 0.0,
        "optimizer": "bert_adam", "eps": 1e-6,
    },
    # Wang et al. 2021, section 4.
    "minilm-v2": {
        "method": "minilm", "layers": 6, "hidden_size": 384, "relation_heads": 48,
        "batch_size": 256, "steps": 400_000, "lr": 6e-4,
    },
}  # fmt: skip
SMALL = {
    "distilbert": "--layers 1 --batch-size 8",
    "tinybert-general": "--layers 1 --hidden-size 16 --heads 4 --intermediate-size 24",
    "minilm-v2": "--layers 1 --hidden-size 16 --heads 4 --intermediate-size 24 --relation-heads 4",
    "tinybert-task": "",
}


def options_of(name: str) -> dict[str, Any]:
    """Flat names and values of a recipe."""
    return keys_of_tables(read_recipe(recipe_path(name, "distill")), DistillOptions)[0]


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_the_published_numbers(name):
    recipe = options_of(name)
    source = {"train": "a.csv"} if name == "tinybert-task" else {"corpus": "a.txt"}
    options = DistillOptions.from_keywords({"teacher": "t", "out": "o", **source, **recipe})
    assert {key: flat(options)[key] for key in PUBLISHED[name]} == PUBLISHED[name]
    if name == "tinybert-task":
        # 20 passes for the inside, 3 for the answers.
        assert round(options.loss.hidden_share * options.train.epochs) == 20
    if name == "minilm-v2":
        assert options.train.warmup * 400_000 == 4_000


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_a_small_run(name, masked_lm, film_run, films, tmp_path, capsys):
    out = tmp_path / "out"
    teacher: Path = masked_lm
    if name == "tinybert-task":
        teacher = film_run.folder / "model"
        given = ["--train", films / "dev.csv", "--student", masked_lm]
    else:
        text = tmp_path / "text.txt"
        text.write_text("\n\n".join(["the film was good", "a play and a bad film"] * 8), "utf-8")
        given = ["--corpus", text, "--dev", text]
    words = ["distill", name, "--teacher", teacher, *given, *SMALL[name].split(), "--out", out]
    words += ["--max-length", 16, "--steps", 2, "--precision", "float32"]
    assert run([str(word) for word in words]) == 0, capsys.readouterr().err
    content = json.loads((out / "run.json").read_text("utf-8"))
    assert content["status"] == "done"
    assert content["options"]["lr"] == options_of(name)["lr"]
    student = huggingface.read(out / "model")
    if name != "tinybert-task":
        assert student.config.num_hidden_layers == 1
