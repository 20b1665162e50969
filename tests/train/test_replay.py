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
from filbert.train.replay import LOOSE, Verdict, replay


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
    assert {figure.metric for figure in verdict.figures} >= {"roc_auc", "loss"}
    assert all(figure.difference == 0 for figure in verdict.figures)


def test_the_model_folder_alone_is_enough_wherever_it_and_the_data_went(place, monkeypatch):
    elsewhere = place / "elsewhere"
    shutil.move("runs/x/model", elsewhere / "model")
    shutil.rmtree("runs")
    shutil.move("data", place / "rows")
    monkeypatch.chdir(elsewhere)
    with pytest.raises(InputError, match=r"data/train.csv.*--data-root"):
        replay("model", out="again")
    assert not (elsewhere / "again").exists()
    shutil.move(place / "base", place / "rows" / "base")
    verdict = replay("model", out="again", device="cpu", data_root=str(place / "rows"))
    assert verdict.is_same and verdict.same_weights


def test_a_changed_data_file_is_named_before_anything_is_trained(place):
    rows = Path("data/train.csv").read_bytes()
    Path("data/train.csv").write_bytes(rows.replace(b"neg", b"pos", 1))
    with pytest.raises(InputError, match=r"train.csv has changed.*--data-root"):
        replay("runs/x")
    assert not Path("runs/x-replay").exists()
    Path("old").mkdir()
    Path("old/train.csv").write_bytes(rows)
    assert replay("runs/x", device="cpu", data_root="old").same_weights


def test_a_changed_base_model_is_named_before_anything_is_trained(place):
    tensors = load_file("base/model.safetensors")
    name = next(iter(tensors))
    tensors[name] = tensors[name] + 1e-6
    save_file(tensors, "base/model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"not the model.*model.safetensors.*--data-root"):
        replay("runs/x")
    assert not Path("runs/x-replay").exists()


@pytest.mark.parametrize("changed", [{"lr": 3.1e-3}, {"seed": 43}, {"batch_size": 17}])
def test_a_changed_option_shows_in_the_weights_and_the_verdict(place, changed):
    change_story(place / "runs/x/model", **changed)
    verdict = replay("runs/x", device="cpu")
    assert verdict.same_weights is False
    assert not verdict.is_same


def test_other_versions_and_threads_are_said_and_loosen_the_tolerance(place, capsys):
    path = place / "runs/x/model/filbert.json"
    story = json.loads(path.read_text())
    story["versions"]["torch"] = "1.0"
    story["device"] |= {"threads": 100_000, "name": "an abacus"}
    path.write_text(json.dumps(story))
    verdict = replay("runs/x", device="cpu")
    assert verdict.tolerance == LOOSE
    assert any("torch was 1.0" in sentence for sentence in verdict.differs)
    assert any("threads was 100000" in sentence for sentence in verdict.differs)
    assert "an abacus" in capsys.readouterr().err


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
    assert story["seeds"]["count"] == len(story["seeds"]["values"]) == 2
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
    assert ("dev", "mlm_loss") in {(f.split, f.metric) for f in verdict.figures}
    (shards,) = Path("runs/p.shards").glob("train-*")
    shards.rename("corpus")
    filbert.pretrain(**given | {"corpus": "corpus", "out": "runs/q"})
    assert replay("runs/q", device="cpu").same_weights
    Path("text.txt").write_text("\n".join(lines[1:]))
    with pytest.raises(InputError, match=r"text.txt has changed.*--data-root"):
        replay("runs/p", overwrite=True)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda story: story.pop("options"), "options"),
        (lambda story: story.update(data=[1]), "data"),
        (lambda story: story["data"].update(train="x"), "data"),
        (lambda story: story["options"].update(task="os:system"), "none of filbert's own"),
        (lambda story: story["options"].update(lerning_rate=1), "lerning_rate"),
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


def test_without_any_figure_the_weights_decide():
    assert not Verdict("x", (), ("torch differs.",), LOOSE, False).is_same
    assert not Verdict("x", (), (), 0.0, None).is_same
    assert Verdict("x", (), (), 0.0, True).is_same
