"""What a pre-training run starts from: text, vocabulary and model, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from filbert.checkpoints import huggingface
from filbert.errors import ConfigError, InputError
from filbert.model.precision import Precision
from filbert.train import loop, run_folder
from filbert.train.distributed import Parallel
from filbert.train.options import RunOptions
from filbert.train.pretrain import pretrain
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.run_folder import settle_precision

SETTINGS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 44,
    "max_length": 16,
    "second_length": 40,
    "second_share": 0.4,
    "steps": 5,
    "batch_size": 6,
    "lr": 1e-3,
    "precision": "float32",
    "device": "cpu",
}


@pytest.fixture(scope="module")
def place(vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vocabulary and train.txt."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "vocab").mkdir()
    (folder / "vocab" / "vocab.txt").write_bytes((vocab / "vocab.txt").read_bytes())
    lines = ["he was very good . it was a film .", "she was not bad , and he was not ."]
    text = [f"{line}\n{'very ' * n}good ." for n in range(20) for line in lines]
    (folder / "train.txt").write_text("\n\n".join(text))
    return folder


def options(place: Path, out: Path, **more: Any) -> PretrainOptions:
    given = {"corpus": str(place / "train.txt"), "tokenizer": str(place / "vocab"), "out": str(out)}
    given = given | SETTINGS | more
    return PretrainOptions.from_keywords({k: v for k, v in given.items() if v is not None})


def test_a_model_without_a_masked_lm_head_gets_a_fresh_one_and_says_so(
    place, tiny_model, tmp_path, capsys
):
    sizes = ["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"]
    without = dict.fromkeys([*sizes, "max_position_embeddings"])
    run = pretrain(options(place, tmp_path / "x", model=str(tiny_model), **without))
    assert "new head: masked_lm, drawn at random" in capsys.readouterr().err
    assert any("drawn at random" in note for note in run["model"]["notes"])
    old, new = huggingface.read(tiny_model), huggingface.read(tmp_path / "x" / "model")
    assert new.head == "masked_lm"
    name = next(n for n in old.tensors if n.startswith("encoder.layers.0") and "norm" not in n)
    far = float((old.tensors[name] - new.tensors[name]).abs().max())
    assert 0 < far < 0.05, "the encoder's weights are those it began with, a few steps on"
    # Continued once more, it has its head.
    pretrain(options(place, tmp_path / "y", model=str(tmp_path / "x" / "model"), **without))
    assert "drawn at random" not in capsys.readouterr().err


def test_what_cannot_be_done_is_said_before_anything_is_trained(
    place, tiny_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "accumulate", None)

    def refused(match: str, kind: type[Exception] = ConfigError, **more: Any) -> None:
        with pytest.raises(kind, match=match) as found:
            pretrain(options(place, tmp_path / "x", **more))
        assert "\n" not in str(found.value) and not (tmp_path / "x").exists()

    refused("hidden_size.* describe a new model, but", model=str(tiny_model))
    refused("Which vocabulary", tokenizer=None)
    refused("max_length 48 is not in 3..44", second_length=48)
    refused("has no pair objective", objective="replaced", pair="nsp")
    refused("metric, patience", metric="mlm_loss")
    refused("metric, patience", patience=2)
    refused("seed is", seed=2**64)
    refused("is a folder, but not one that `filbert corpus` made", InputError, corpus=str(tmp_path))
    for name, content in (("empty", ""), ("blank", "\n \n\n"), ("unseen", "\u200b\n")):
        (tmp_path / f"{name}.txt").write_text(content, encoding="utf-8")
        for split in ("corpus", "dev"):
            refused(
                f"{name}.txt|No text in the input",
                InputError,
                **{split: str(tmp_path / f"{name}.txt")},
            )
    refused(r"absent\.txt", InputError, corpus=str(tmp_path / "absent.txt"))
    (tmp_path / "long.txt").write_text("playinging\n" * 2)
    refused("nothing .*masked", InputError, masking="word", dev=str(tmp_path / "long.txt"))


def test_a_corpus_of_another_vocabulary_is_refused(place, tmp_path, tiny_model):
    pretrain(options(place, tmp_path / "x"))
    (shards,) = (tmp_path / "x.shards").iterdir()
    (tmp_path / "other").mkdir()
    words = (place / "vocab" / "vocab.txt").read_text()
    (tmp_path / "other" / "vocab.txt").write_text(words + "dog\n")
    with pytest.raises(ConfigError, match="corpora are not joined"):
        pretrain(options(place, tmp_path / "y", corpus=f"{shards},{shards}"))
    given = {"corpus": str(shards), "tokenizer": str(tmp_path / "other")}
    with pytest.raises(ConfigError, match="made with another vocabulary"):
        pretrain(options(place, tmp_path / "y", **given))


def test_a_generator_is_continued_with_its_model_and_a_new_one_is_announced(
    place, tmp_path, capsys
):
    replaced = {"objective": "replaced", "mask_style": "electra", "second_length": None}
    small = {"family": "electra", "embedding_size": 8, "generator_share": 0.5}
    pretrain(options(place, tmp_path / "x", **replaced, **small))
    assert "new generator, drawn at random" in capsys.readouterr().err
    none = dict.fromkeys([*(name for name in SETTINGS if name.endswith(("_size", "_embeddings")))])
    none |= dict.fromkeys(["num_hidden_layers", "num_attention_heads"])
    again = options(
        place,
        tmp_path / "y",
        **none | replaced | {"batch_size": 6, "steps": 1, "lr": 1e-9},
        model=str(tmp_path / "x" / "model"),
    )
    pretrain(again)
    assert "drawn at random" not in capsys.readouterr().err
    old, new = (huggingface.read(tmp_path / n / "model" / "generator") for n in ("x", "y"))
    for name, tensor in old.tensors.items():
        # One step at a rate of 0.
        torch.testing.assert_close(new.tensors[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.parametrize("found", ["float32", "bf16"])
def test_a_resumed_run_keeps_the_number_format_of_the_interrupted_one(found, tmp_path, monkeypatch):
    (tmp_path / "run.json").write_text(json.dumps({"status": "interrupted", "precision": found}))
    other = Precision("bf16" if found == "float32" else "float32", "by the clock")
    monkeypatch.setattr(run_folder, "choose_precision", lambda *_: other)
    alone = Parallel(0, 1, torch.device("cpu"))
    resumed = RunOptions(resume=True, out=str(tmp_path))
    assert settle_precision(resumed, alone).name == found
    assert settle_precision(RunOptions(out=str(tmp_path)), alone) == other
    assert settle_precision(replace(resumed, out=str(tmp_path / "elsewhere")), alone) == other
    asked = replace(resumed, precision=other.name)
    assert settle_precision(asked, alone) == other
