"""What a dry run says of a run's size, and that it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from filbert.data.build import build_corpus
from filbert.errors import ConfigError
from filbert.text.tokenizer import Tokenizer
from filbert.train import dry_run as module
from filbert.train.dry_run import dry_run
from filbert.train.options import changed
from filbert.train.pretrain import pretrain
from filbert.train.pretrain_options import PretrainOptions

SETTINGS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "max_length": 16,
    "batch_size": 6,
    "steps": 10,
    "max_tokens": 50,
    "precision": "float32",
    "device": "cpu",
}


@pytest.fixture(scope="module")
def corpus(vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dry")
    lines = ["he was very good . it was a film .", "she was not bad , and he was not ."]
    text = [f"{line}\n{'very ' * n}good ." for n in range(20) for line in lines]
    (folder / "text.txt").write_text("\n\n".join(text))
    build_corpus([folder / "text.txt"], Tokenizer.load(vocab), folder / "corpus")
    return folder / "corpus"


def options(corpus: Path, **more: Any) -> PretrainOptions:
    given = {"corpus": str(corpus), "dry_run": True} | SETTINGS | more
    return PretrainOptions.from_keywords({k: v for k, v in given.items() if v is not None})


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_steps_tokens_and_parameters_are_those_of_the_run(corpus, tmp_path, optimizer):
    more = {"second_length": 40, "second_share": 0.4, "optimizer": optimizer, "pair": "nsp"}
    found = dry_run(options(corpus, **more))
    run = pretrain(options(corpus, out=str(tmp_path / "x"), dry_run=False, **more))
    assert found["parameters"] == run["model"]["parameters"]
    assert found["steps"] == run["steps"] == 10
    assert [phase["steps"] for phase in found["phases"]] == [6, 4]
    assert [phase["max_length"] for phase in found["phases"]] == [16, 40]
    assert [phase["batch_size"] for phase in found["phases"]] == [6, 2]
    # Rows differ in length, and the trial has seen those of one step.
    assert found["tokens"] == pytest.approx(run["tokens"], rel=0.3)
    for name in ("tokens", "flops", "seconds"):
        total = sum(phase[name] for phase in found["phases"])
        assert found[name] == pytest.approx(total) and total > 0


def test_a_trial_leaves_the_weights_as_they_were(corpus, monkeypatch):
    kept = []
    real = module._estimate

    def looks(job, phase, parallel):
        before = {name: tensor.clone() for name, tensor in job.model.state_dict().items()}
        fact = real(job, phase, parallel)
        kept.append(all(torch.equal(t, before[n]) for n, t in job.model.state_dict().items()))
        return fact

    monkeypatch.setattr(module, "_estimate", looks)
    dry_run(options(corpus, second_length=40, weight_decay=0.5))
    assert kept == [True, True]


def test_a_time_budget_is_turned_into_steps_by_the_pace_of_the_trial(corpus, monkeypatch):
    found = dry_run(options(corpus, steps=None, time="100s", second_length=40, second_share=0.25))
    assert found["steps"] is None and found["seconds"] == pytest.approx(100)
    assert [phase["seconds"] for phase in found["phases"]] == pytest.approx([75, 25])
    assert all(phase["steps"] > 0 for phase in found["phases"])


def test_a_time_budget_is_filled_also_while_the_batch_grows(corpus, monkeypatch):
    # Whatever is timed takes a second.
    monkeypatch.setattr(module.time, "perf_counter", count().__next__)
    budget = options(corpus, steps=None, time="100s", max_tokens=1_000)
    usual, growing = dry_run(budget), dry_run(changed(budget, batch_start=1, batch_warmup=30))
    assert growing["seconds"] == pytest.approx(100)
    epochs = [found["phases"][0]["epochs"] for found in (growing, usual)]
    assert epochs[0] == pytest.approx(epochs[1])
    more = growing["phases"][0]["steps"] - usual["phases"][0]["steps"]
    # Rows of the steps that grow from 1 to 6 while 30 rows are taken, against steps of 6.
    assert 8 <= more <= 10


def test_a_dry_run_is_refused_under_torchrun(corpus, monkeypatch):
    class Two:
        def __enter__(self):
            from filbert.train.distributed import Parallel

            return replace(Parallel(0, 1, torch.device("cpu"), "single"), world=2)

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(module, "start", lambda *_: Two())
    with pytest.raises(ConfigError, match="without torchrun"):
        dry_run(options(corpus))
