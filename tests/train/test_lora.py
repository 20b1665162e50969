"""`finetune --lora`: what is trained, saved, resumed and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.train.conftest import stress

import filbert
from filbert.errors import ConfigError, Interrupted
from filbert.train import loop
from filbert.train.state import newest_state


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory):
    place = tmp_path_factory.mktemp("lora")
    model = stress().make_model(place / "model")
    files = stress().make_rows(place, "classification")
    return {"task": "classification", "model": model, **files, "lora": 4, "epochs": 1.0} | {
        "eval_every": 4, "max_tokens": 200, "precision": "float32", "lr": 1e-2, "baseline": False,
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(given, tmp_path_factory: pytest.TempPathFactory) -> filbert.Run:
    return filbert.finetune(**given, out=tmp_path_factory.mktemp("lora") / "run")


def test_the_adapter_answers_as_the_merged_model_with_its_labels_and_thresholds(run):
    texts = ["the film was good", "it was not very bad and she"]
    merged, adapter = (filbert.load(Path(run.folder) / name) for name in ("model", "adapter"))
    assert adapter.labels == merged.labels and adapter.max_length == merged.max_length
    assert adapter.task == merged.task
    for one, other in zip(merged.predict(texts), adapter.predict(texts), strict=True):
        assert one["label"] == other["label"]
        assert one["score"] == pytest.approx(other["score"], abs=1e-6)


def test_only_low_rank_matrices_pooler_and_head_differ_from_the_base(run, given):
    before = load_file(given["model"] / "model.safetensors")
    after = load_file(Path(run.folder) / "model" / "model.safetensors")
    same = {n for n, t in before.items() if torch.equal(t, after[f"bert.{n}"])}
    dense = {n for n in before if ".layer." in n and "LayerNorm" not in n and n.endswith("weight")}
    assert same == {n for n in before.keys() - dense if not n.startswith("pooler.")}
    for name in dense:
        change = (after[f"bert.{name}"] - before[name]).double()
        # Rank 4, up to the rounding of the sum.
        assert torch.linalg.svdvals(change)[4] < 1e-5 < torch.linalg.svdvals(change)[0]


def test_a_state_holds_what_learns_and_a_resumed_run_ends_with_the_same_bits(
    run, given, tmp_path, monkeypatch
):
    real, calls = loop.accumulate, []

    def accumulate(*args, **kwargs):
        calls.append(1)
        if len(calls) == 6:
            raise Interrupted("stopped")
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "accumulate", accumulate)
    with pytest.raises(Interrupted):
        filbert.finetune(**given, out=tmp_path / "run")
    state, _ = newest_state(tmp_path / "run" / "state")
    weights = {name for name in state.tensors if name.startswith("model.")}
    assert weights and all("lora_" in n or "head" in n or "pooler" in n for n in weights)
    filbert.finetune(**given, out=tmp_path / "run", resume=True)
    for name in ("model/model.safetensors", "adapter/adapter_model.safetensors"):
        straight, resumed = (load_file(Path(out) / name) for out in (run.folder, tmp_path / "run"))
        assert straight.keys() == resumed.keys()
        assert all(torch.equal(straight[n], resumed[n]) for n in straight)


@pytest.mark.parametrize("other", [{"freeze": "0"}, {"causal": True}, {"keep_layers": "1"}])
def test_lora_refuses_options_that_change_the_base_or_freeze_it_again(given, other, tmp_path):
    with pytest.raises(ConfigError, match="lora"):
        filbert.finetune(**given | other, out=tmp_path / "run")


def test_the_best_seed_gives_its_adapter_too(given, tmp_path):
    filbert.finetune(**given | {"seeds": 2, "steps": 4}, out=tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "run.json").read_text())["seeds"]["best"]
    chosen, run = (tmp_path / "run" / part for part in (f"seeds/{kept}/adapter", "adapter"))
    name = "adapter_model.safetensors"
    assert (chosen / name).read_bytes() == (run / name).read_bytes()
