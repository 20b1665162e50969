"""filbert.json: what a model folder tells of its run, and what an old one still may leave out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

import filbert
from filbert.files import portable, sha256_of
from filbert.train.provenance import commit


@pytest.fixture(scope="module")
def story(film_run) -> dict:
    return json.loads((film_run.folder / "model" / "filbert.json").read_text())


def test_it_holds_what_another_person_needs_to_repeat_the_run(story, film_run, tiny_model):
    run = json.loads((film_run.folder / "run.json").read_text())
    assert story["command"] == "finetune"
    assert {"python", "torch", "numpy", "tokenizers"} <= story["versions"].keys()
    assert story["device"] == run["device"]
    assert story["options"]["seed"] == 42
    assert story["options"]["lr"] == 3e-3
    assert story["metrics"] == run["metrics"]
    assert story["base_model"]["files"] == {
        name: {"sha256": sha256_of(tiny_model / name)}
        for name in ("config.json", "model.safetensors")
    }
    assert story["tokenizer"]["fingerprint"] == film_run.model.tokenizer.fingerprint
    for split in ("train", "dev", "test"):
        assert story["data"][split]["sha256"] == run["data"][split]["sha256"]
        assert "lengths" not in story["data"][split]
    for name, entry in story["files"].items():
        assert sha256_of(film_run.folder / "model" / name) == entry["sha256"]


def test_paths_are_told_without_the_folders_of_the_machine():
    assert portable("/somewhere/anna/data/train.csv") == "train.csv"
    assert portable("~/train.csv") == "train.csv"
    assert portable("data/train.csv") == "data/train.csv"
    assert portable(["/a/b", "owner/model"]) == ["b", "owner/model"]
    assert portable(None) is None


def test_the_commit_is_that_of_the_work_tree_or_none():
    found = commit()
    assert found is None or len(found.partition("+")[0]) == 40


def test_a_pre_trained_model_tells_its_story_too(vocab, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(
        "the film was good . he was not bad .\n\nshe see the play . it was great .\n" * 9
    )
    out = tmp_path / "run"
    filbert.pretrain(
        corpus=str(text), dev=str(text), tokenizer=str(vocab), out=str(out), steps=2, batch_size=4,
        num_hidden_layers=1, hidden_size=16, num_attention_heads=2, max_length=16,
        precision="float32", device="cpu", license="mit",
    )  # fmt: skip
    told = json.loads((out / "model" / "filbert.json").read_text())
    assert told["data"]["train"]["inputs"] == [
        {"path": "text.txt", "sha256": sha256_of(text), "bytes": text.stat().st_size}
    ]
    assert told["base_model"] is None
    assert str(tmp_path) not in json.dumps(told)
    card = ModelCard.load(out / "model" / "README.md")
    assert (card.data.license, card.data.pipeline_tag) == ("mit", "fill-mask")
    assert {r.metric_type for r in card.data.eval_results} >= {"mlm_loss", "perplexity"}
    assert "from scratch" in card.text
    assert "`text.txt`" in card.text
    assert Path(out / "model" / "config.json").is_file()
