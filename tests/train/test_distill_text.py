"""Whole distillations over raw text: students come near their teacher, and a resumed run is one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import filbert
from filbert.batch import pack
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.fresh import fresh_checkpoint
from filbert.checkpoints.opening import read_checkpoint
from filbert.data.build import build_corpus
from filbert.errors import ConfigError
from filbert.losses.student import LayerLoss, Student
from filbert.model.encoder import initialize
from filbert.report.run import write_run_report
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop
from filbert.train.distill_options import DistillOptions
from filbert.train.distill_text import distill_text
from filbert.train.state import digest_of

METHODS: dict[str, dict[str, Any]] = {
    "distilbert": {"layers": 2},
    "tinybert": {"layers": 2},
    "minilm": {"layers": 2, "relation_heads": 8},
}


@pytest.fixture(scope="module")
def place(vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with token shards "train" and "dev" and a drawn "teacher" of four layers."""
    folder = tmp_path_factory.mktemp("distil")
    tokenizer = Tokenizer.load(vocab)
    known = [word for word in (vocab / "vocab.txt").read_text().split()[5:] if word.isalpha()]
    draw = random.Random(0)
    for name, count in (("train", 60), ("dev", 12)):
        lines = [" ".join(draw.choices(known, k=draw.randint(5, 12))) for _ in range(count)]
        (folder / f"{name}.txt").write_text("\n\n".join(lines) + "\n")
        build_corpus([str(folder / f"{name}.txt")], tokenizer, folder / name, workers=1)
    torch.manual_seed(0)
    checkpoint = fresh_checkpoint(
        "bert",
        vocab_size=tokenizer.vocab_size,
        head="masked_lm",
        num_hidden_layers=4,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=24,
    )
    model = checkpoint.build()
    # Large enough for every layer to matter.
    initialize(model, 0.25)
    checkpoint.tensors |= model.state_dict()
    huggingface.write(checkpoint, folder / "teacher")
    tokenizer.save(folder / "teacher")
    return folder


def options(place: Path, method: str, out: Path, **more: Any) -> DistillOptions:
    given: dict[str, Any] = {
        "method": method,
        "teacher": str(place / "teacher"),
        "corpus": str(place / "train"),
        "dev": str(place / "dev"),
        "out": str(out),
        "max_length": 16,
        "steps": 30,
        "eval_every": 30,
        "batch_size": 8,
        "lr": 2e-3,
        "dropout": 0.0,
        "precision": "float32",
        "device": "cpu",
        "save_every": 0,
    }
    return DistillOptions.from_keywords(given | METHODS[method] | more)


LAST = ((2, 4),)
MEASURES = {
    "distilbert": LayerLoss("cosine", LAST),
    "tinybert": LayerLoss("hidden", LAST),
    "minilm": LayerLoss("relations", LAST, heads=8),
}


def apart(place: Path, out: Path, method: str) -> float:
    """How far a student is from its teacher by the measure of its method."""
    torch.manual_seed(0)
    batch = pack([torch.randint(5, 34, (12,)).tolist() for _ in range(20)])
    taught = read_checkpoint(place / "teacher").build()
    pair = Student(read_checkpoint(out / "model").build(), taught, [MEASURES[method]])
    return float(pair(batch).sums.detach()) / batch.num_tokens


@pytest.mark.parametrize("method", METHODS)
def test_a_student_comes_near_its_teacher(method, place, tmp_path):
    distances = []
    for name, more in {"begins": {"lr": 1e-12, "steps": 1}, "ends": {}}.items():
        run = distill_text(options(place, method, tmp_path / name, **more))
        assert run["status"] == "done"
        distances.append(apart(place, tmp_path / name, method))
    assert distances[1] < 0.6 * distances[0]


@pytest.mark.parametrize(("method", "share"), [("tinybert", 0.8), ("minilm", 0.9)])
def test_a_student_of_another_width_learns_by_projections_that_are_not_kept(
    method, share, place, tmp_path
):
    more = {"hidden_size": 24, "eval_every": 5}
    run = distill_text(options(place, method, tmp_path / "x", **more))
    lines = [json.loads(x) for x in (tmp_path / "x" / "metrics.jsonl").read_text().splitlines()]
    losses = [x["metrics"]["loss"] for x in lines if "metrics" in x]
    assert losses[-1] < share * losses[0]
    weights = load_file(tmp_path / "x" / "model" / "model.safetensors")
    assert not [name for name in weights if "projection" in name]
    assert run["model"]["parameters"] == sum(tensor.numel() for tensor in weights.values())


class Killed(BaseException):
    """Stands for a kill: nothing catches it, nothing is saved."""


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_died_and_was_resumed_has_the_weights_of_the_straight_one(
    method, place, tmp_path, monkeypatch
):
    more = {"steps": 4, "save_every": 2, "eval_every": 4, "dropout": 0.2, "max_tokens": 40}
    if method == "tinybert":
        more["hidden_size"] = 24
    distill_text(options(place, method, tmp_path / "straight", **more))
    real, calls = loop.accumulate, []

    def dies(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "accumulate", dies)
    with pytest.raises(Killed):
        distill_text(options(place, method, tmp_path / "killed", **more))
    monkeypatch.undo()
    run = distill_text(options(place, method, tmp_path / "killed", resume=True, **more))
    assert run["steps"] == 4

    def digest(name: str) -> str:
        return digest_of(load_file(tmp_path / name / "model" / "model.safetensors"))

    assert digest("killed") == digest("straight")
    if method == "minilm":
        distill_text(options(place, method, tmp_path / "control", seed=7, **more))
        assert digest("control") != digest("straight")


def test_the_run_tells_of_student_and_teacher_side_by_side(place, tmp_path):
    run = distill_text(options(place, "distilbert", tmp_path / "x", steps=2, eval_every=2))
    mine, theirs = run["metrics"]["dev"], run["teacher"]["metrics"]["dev"]
    assert {"mlm_loss", "mlm_accuracy", "perplexity"} <= mine.keys() & theirs.keys()
    assert {"loss", "cosine_loss", "soft_loss"} <= mine.keys()
    assert run["model"]["parameters"] < run["teacher"]["parameters"]
    assert run["base_model"]["name"] == str(place / "teacher")
    model = filbert.load(tmp_path / "x" / "model")
    assert model.fill("the film was [MASK]")["candidates"]
    card = (tmp_path / "x" / "model" / "README.md").read_text()
    assert "distilled from" in card and "method distilbert" in card
    assert str(place) not in card + (tmp_path / "x" / "model" / "filbert.json").read_text()
    page = write_run_report(tmp_path / "x").read_text()
    assert "Its teacher predicts" in page and "teacher (dev)</th>" in page


def test_positions_stay_the_teachers_and_what_no_loss_reaches_stays_as_it_began(
    place, tmp_path, capsys
):
    distill_text(options(place, "distilbert", tmp_path / "x", steps=3))
    distill_text(options(place, "minilm", tmp_path / "y", steps=3))
    assert "parameters are not trained" in capsys.readouterr().err
    teacher = read_checkpoint(place / "teacher").tensors
    first, second = (read_checkpoint(tmp_path / n / "model").tensors for n in "xy")
    positions, types = (f"encoder.embeddings.{n}.weight" for n in ("position", "token_type"))
    assert torch.equal(first[positions], teacher[positions] + teacher[types][0])
    assert torch.equal(
        second["encoder.layers.1.down.weight"], teacher["encoder.layers.3.down.weight"]
    )
    for name in ("encoder.embeddings.word.weight", "encoder.layers.0.down.weight"):
        assert not torch.equal(first[name], teacher[name])


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("distilbert", {"teacher": "bare"}, "no head, so it scores no words"),
        ("distilbert", {"layers": 5}, "layers is 5; the teacher has 4"),
        ("distilbert", {"keep_layers": "0,1,2"}, "keep_layers names 3 layers and layers is 2"),
        ("distilbert", {"max_length": 30}, "max_length 30 is not in 3..24"),
        (
            "distilbert",
            {"soft_weight": 0.0, "mlm_weight": 0.0, "cosine_weight": 0.0},
            "nothing to learn",
        ),
        ("minilm", {"teacher_layer": 4}, "the teacher's layer 4 is requested; it has 0 to 3"),
        ("minilm", {"student": "bare"}, "student does not go with --corpus"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    method, given, message, place, tmp_path
):
    bare = place / "bare"
    if not bare.exists():
        huggingface.write(with_new_head(read_checkpoint(place / "teacher"), None), bare)
        Tokenizer.load(place / "teacher").save(bare)
    made = ("bare",)
    given = {k: str(place / v) if v in made else v for k, v in given.items()}
    with pytest.raises(ConfigError, match=message):
        distill_text(options(place, method, tmp_path / "x", **given))
    assert not (tmp_path / "x").exists()
