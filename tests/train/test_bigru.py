"""The BiGRU through the ordinary trainer: it learns, saves, resumes, and refuses what it cannot."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import filbert
from filbert.cli.main import run
from filbert.errors import ConfigError, Interrupted
from filbert.formats.bigru_start import write_bigru_start
from filbert.formats.opening import read_checkpoint
from filbert.text.word_vectors import WordVectors
from filbert.text.words import known_words, learn_words
from filbert.train import trainer
from filbert.train.finetune import finetune
from filbert.train.options import FinetuneOptions
from filbert.train.state import digest_of
from filbert.train.trainable import freeze, rate_shares

KIND = {"pleasant": ["sunny", "warm", "gentle"], "unpleasant": ["rusty", "cold", "dusty"]}
PLAIN = ["the", "a", "door", "house", "day", "with", "and", "of", "by", "near", "was", "old"]


def rows(count: int, seed: int) -> list[dict[str, str]]:
    """Texts that one word decides, wherever it stands."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        label = draw.choice(sorted(KIND))
        words = [draw.choice(PLAIN) for _ in range(draw.randint(2, 9))]
        words.insert(draw.randrange(len(words)), draw.choice(KIND[label]))
        found.append({"text": " ".join(words), "label": label})
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bigru")
    for name, count, seed in (("train", 160, 0), ("dev", 60, 1)):
        lines = [json.dumps(row) + "\n" for row in rows(count, seed)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    words = learn_words([row["text"] for row in rows(160, 0)])
    table = np.random.default_rng(0).normal(0, 0.5, (4, 12)).astype(np.float32)
    vectors = WordVectors(["sunny", "rusty", "door", "old"], table)
    write_bigru_start(folder / "start", words, vectors, dim=12, hidden=6, seed=0)
    return folder


def options(place: Path, out: Path, **more) -> FinetuneOptions:
    given = {
        "task": "classification", "model": str(place / "start"), "out": str(out),
        "train": str(place / "train.jsonl"), "dev": str(place / "dev.jsonl"),
        "lr": 0.02, "batch_size": 16, "epochs": 4.0, "device": "cpu", "precision": "float32",
    }  # fmt: skip
    return FinetuneOptions.from_keywords(given | more)


def digest(out: Path) -> str:
    return digest_of(load_file(out / "model" / "model.safetensors"))


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    finetune(options(place, place / "out", epochs=8.0))
    return place / "out"


def test_it_learns_what_one_word_decides(trained):
    facts = json.loads((trained / "run.json").read_text())
    assert facts["metrics"]["dev"]["f1"] > 0.97
    assert facts["model"]["family"] == "bigru"


def test_what_was_saved_answers_as_the_run_did(trained, place, capsys):
    predicted = (trained / "predictions" / "dev.jsonl").read_text().splitlines()
    wanted = [json.loads(line)["scores"]["unpleasant"] for line in predicted]
    model = filbert.load(trained / "model", device="cpu")
    found = model.predict([row["text"] for row in rows(60, 1)])
    # The same sums, in batches of other sizes.
    np.testing.assert_allclose([p["scores"]["unpleasant"] for p in found], wanted, atol=1e-6)
    assert model.predict([""])[0]["num_tokens"] == 1
    data = str(place / "dev.jsonl")
    assert run(["evaluate", str(trained / "model"), "--data", data, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["f1"] == pytest.approx(
        json.loads((trained / "run.json").read_text())["metrics"]["dev"]["f1"]
    )


def test_a_text_scores_the_same_alone_and_in_company(trained):
    model = filbert.load(trained / "model", device="cpu")
    texts = ["the rusty door", "a", "the old house was near and warm of the day"]
    together = [p["score"] for p in model.predict(texts)]
    apart = [model.predict([text])[0]["score"] for text in texts]
    np.testing.assert_allclose(together, apart, atol=1e-6)


def test_an_interrupted_run_ends_with_the_same_bits(place, tmp_path, monkeypatch):
    given = {"epochs": 2.0, "max_tokens": 64, "save_every": 3}
    finetune(options(place, tmp_path / "straight", **given))
    kept, count = trainer.accumulate, 0

    def interrupted(*args, **more):
        nonlocal count
        count += 1
        if count == 9:
            raise KeyboardInterrupt
        return kept(*args, **more)

    monkeypatch.setattr(trainer, "accumulate", interrupted)
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        finetune(options(place, tmp_path / "broken", **given))
    monkeypatch.setattr(trainer, "accumulate", kept)
    finetune(options(place, tmp_path / "broken", resume=True, **given))
    assert count == 9
    assert digest(tmp_path / "straight") == digest(tmp_path / "broken")


def test_accumulation_changes_nothing_but_the_last_bits(place, tmp_path):
    given = {"steps": 3, "dropout": 0.0}
    for name, max_tokens in (("whole", 4096), ("cut", 40)):
        finetune(options(place, tmp_path / name, max_tokens=max_tokens, **given))
    whole, cut = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "cut")
    )
    for name in whole:
        # Adam divides by the size of the gradient, so that rounding shows where that is tiny.
        torch.testing.assert_close(whole[name], cut[name], rtol=0, atol=2e-3)


@pytest.mark.parametrize("frozen", ["embeddings", "0"])
def test_frozen_parts_stay_as_they_were(place, tmp_path, frozen):
    finetune(options(place, tmp_path / "out", steps=2, freeze=frozen))
    before = load_file(place / "start" / "model.safetensors")
    after = load_file(tmp_path / "out" / "model" / "model.safetensors")
    same = {name for name in before if torch.equal(before[name], after[f"bigru.{name}"])}
    stays = "word_embeddings" if frozen == "embeddings" else "layers.0"
    assert same == {name for name in before if name.startswith(stays)}


def test_layers_learn_at_decaying_rates(place):
    model = read_checkpoint(place / "start").build()
    shares = rate_shares(model, 0.5)
    assert shares["encoder.embeddings.word.weight"] == 0.5**3
    assert shares["encoder.layers.0.gru.weight_hh_l0"] == 0.5**2
    assert freeze(model, "embeddings") is False


@pytest.mark.parametrize(
    "more",
    [
        {"freeze": "encoder", "steps": 2},
        {"optimizer": "muon", "steps": 2},
        {"precision": "bf16", "steps": 2},
        {"reinit_layers": 1, "layer_decay": 0.9, "steps": 2},
    ],
)
def test_options_of_the_trainer_serve_it_too(place, tmp_path, more):
    facts = finetune(options(place, tmp_path / "out", **more))
    assert np.isfinite(facts["metrics"]["dev"]["loss"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"causal": True}, "cannot be made causal"),
        ({"freeze": "1"}, "layers within 0-0"),
    ],
)
def test_what_does_not_serve_it_is_refused_before_anything_is_written(
    place, tmp_path, more, message
):
    with pytest.raises(ConfigError, match=message):
        finetune(options(place, tmp_path / "out", **more))
    assert not (tmp_path / "out").exists()


def test_most_words_of_the_rows_are_known():
    words = known_words(learn_words([row["text"] for row in rows(160, 0)]))
    assert words.keys() == {*PLAIN, *(word for some in KIND.values() for word in some)}
