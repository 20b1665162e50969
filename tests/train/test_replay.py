"""A recorded run, run again: bit for bit the same, unless something is not what it was."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import filbert
from filbert.errors import ConfigError, FormatError, InputError
from filbert.train.finetune import finetune
from filbert.train.replay import LOOSE, Replay, replay


@pytest.fixture
def place(tiny_model, films, tmp_path, monkeypatch) -> Path:
    """A folder to work in, with data/*.csv, base/ and a finished run in runs/x."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(films, "data")
    shutil.copytree(tiny_model, "base")
    filbert.finetune(
        task="classification", model="base", train="data/train.csv", dev="data/dev.csv",
        out="runs/x", steps=4, batch_size=16, lr=3e-3, precision="float32", device="cpu",
    )  # fmt: skip
    return tmp_path


def change_story(folder: Path, /, **options) -> None:
    path = folder / "filbert.json"
    story = json.loads(path.read_text())
    story["options"] |= options
    path.write_text(json.dumps(story))


def test_a_replay_is_bit_for_bit_the_same(place):
    verdict = replay("runs/x/model", device="cpu")
    assert Path(verdict.out) == place / "runs" / "x-replay"
    assert verdict.is_same
    assert verdict.same_weights is True
    assert verdict.differs == ()
    assert verdict.tolerance == 0
    assert {one.metric for one in verdict.metrics} >= {"roc_auc", "loss"}
    assert all(one.difference == 0 for one in verdict.metrics)


def test_the_model_folder_alone_is_enough(place):
    shutil.move("runs/x/model", place / "model")
    shutil.rmtree("runs")
    verdict = replay("model", out="again", device="cpu")
    assert verdict.is_same and verdict.same_weights
    shutil.move("data", place / "rows")
    with pytest.raises(InputError, match=r"data/train.csv"):
        replay("model", out="third")


def test_changed_data_and_another_base_model_are_named(place):
    rows = Path("data/train.csv").read_bytes()
    Path("data/train.csv").write_bytes(rows.replace(b"neg", b"pos", 1))
    tensors = load_file("base/model.safetensors")
    name = next(iter(tensors))
    tensors[name] = tensors[name] + 1e-6
    save_file(tensors, "base/model.safetensors", metadata={"format": "pt"})
    verdict = replay("runs/x", device="cpu")
    assert not verdict.same_weights and verdict.tolerance == LOOSE
    told = " ".join(verdict.differs)
    assert "sha256 of train was" in told and "base model's model.safetensors was" in told
    assert len(verdict.differs) == 2


@pytest.mark.parametrize("changed", [{"lr": 3.1e-3}, {"seed": 43}, {"batch_size": 17}])
def test_a_changed_option_shows_in_the_weights_and_the_verdict(place, changed):
    change_story(place / "runs/x/model", **changed)
    verdict = replay("runs/x", device="cpu")
    assert verdict.same_weights is False
    assert not verdict.is_same


def test_other_versions_and_threads_are_named_and_loosen_the_tolerance(place):
    path = place / "runs/x/model/filbert.json"
    story = json.loads(path.read_text())
    story["versions"]["torch"] = "1.0"
    story["device"] |= {"threads": 100_000, "name": "an abacus"}
    path.write_text(json.dumps(story))
    verdict = replay("runs/x", device="cpu")
    assert verdict.tolerance == LOOSE
    assert any("torch was 1.0" in sentence for sentence in verdict.differs)
    assert any("threads was 100000" in sentence for sentence in verdict.differs)
    assert any("an abacus" in sentence for sentence in verdict.differs)


def test_the_threads_of_the_run_are_taken_and_given_back(place, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "filbert.train.replay.finetune",
        lambda options: (seen.append(torch.get_num_threads()), finetune(options))[1],
    )
    path = place / "runs/x/model/filbert.json"
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    try:
        assert json.loads(path.read_text())["device"]["threads"] == before
        assert replay("runs/x", device="cpu").same_weights
        assert seen == [before]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_best_of_several_seeds_is_replayed_by_itself(place):
    filbert.finetune(
        task="classification", model="base", train="data/train.csv", dev="data/dev.csv",
        out="runs/s", steps=2, seeds=2, lr=3e-3, precision="float32", device="cpu",
    )  # fmt: skip
    story = json.loads(Path("runs/s/model/filbert.json").read_text())
    assert len(story["seeds"]["runs"]) == 2
    assert "It is the best of 2 runs" in Path("runs/s/model/README.md").read_text()
    best = json.loads(Path("runs/s/run.json").read_text())["seeds"]["best"]
    assert "one run with one seed" in Path(f"runs/s/seeds/{best}/model/README.md").read_text()
    verdict = replay("runs/s", device="cpu")
    assert verdict.same_weights
    assert "seeds" not in json.loads(Path(verdict.out, "run.json").read_text())


def test_a_pre_training_run_is_replayed_from_its_text_or_its_shards(place, vocab):
    draw = random.Random(0)
    words = ["the", "film", "was", "good", "bad", "play", "he", "she"]
    lines = [" ".join(draw.choices(words, k=9)) + " ." for _ in range(80)]
    Path("text.txt").write_text("\n".join(lines))
    shutil.copytree(vocab, "vocab")
    given = {
        "corpus": "text.txt", "dev": "text.txt", "tokenizer": "vocab", "out": "runs/p", "steps": 3,
        "batch_size": 4, "num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2,
        "max_length": 16, "precision": "float32", "device": "cpu", "max_position_embeddings": 32,
    }  # fmt: skip
    filbert.pretrain(**given)
    verdict = replay("runs/p", device="cpu")
    assert verdict.is_same and verdict.same_weights
    assert ("dev", "mlm_loss") in {(f.split, f.metric) for f in verdict.metrics}
    (shards,) = Path("runs/p.shards").glob("train-*")
    shards.rename("corpus")
    filbert.pretrain(**given | {"corpus": "corpus", "out": "runs/q"})
    assert replay("runs/q", device="cpu").same_weights


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda story: story.pop("options"), "options"),
        (lambda story: story.update(data=[1]), "data"),
        (lambda story: story["data"].update(train="x"), "data"),
        (lambda story: story["options"].update(task="os:system"), "not built in"),
        (lambda story: story["options"].update(lerning_rate=1), r"filbert\.json: There is no"),
        (lambda story: story["options"].pop("train"), "No rows are given"),
    ],
)
def test_a_filbert_json_that_tells_of_no_run_is_refused(place, damage, words):
    path = place / "runs/x/model/filbert.json"
    story = json.loads(path.read_text())
    damage(story)
    path.write_text(json.dumps(story))
    with pytest.raises((ConfigError, FormatError, InputError), match=words):
        replay("runs/x")
    assert not Path("runs/x-replay").exists()


def test_a_model_that_filbert_did_not_train_is_refused(place):
    with pytest.raises(FormatError, match=r"no filbert.json"):
        replay("base")


def test_without_any_metric_the_weights_decide():
    assert not Replay("x", (), ("torch differs.",), LOOSE, False).is_same
    assert not Replay("x", (), (), 0.0, None).is_same
    assert Replay("x", (), (), 0.0, True).is_same
