"""The options causal and keep_layers: from the start of a run to the folder that it leaves."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from tests.train.conftest import tune

import filbert
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError
from filbert.tasks.rows import read_task_rows
from filbert.train.base_model import layers_to_keep

LONG = "the film was very good and he was not very bad , a great play to see !"


run = partial(tune, steps=6, batch_size=32, save_every=0)


@pytest.fixture(scope="module")
def causal_run(deep_model, films, tmp_path_factory) -> filbert.Run:
    return run(deep_model, films, tmp_path_factory.mktemp("c") / "run", causal=True, steps=100)


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("3", (0, 1, 2)),
        ("1", (0,)),
        ("6", (0, 1, 2, 3, 4, 5)),
        ("0,2,5", (0, 2, 5)),
        ("0-2,5", (0, 1, 2, 5)),
        (" 1 , 4-5 ", (1, 4, 5)),
        ("4-5", (4, 5)),
        ("2-2", (2,)),
    ],
)
def test_one_number_counts_the_first_layers_and_several_name_them(asked, kept):
    assert layers_to_keep(asked, 6) == kept


@pytest.mark.parametrize(
    "asked",
    ["0", "7", "", ",", "6,7", "0,6", "2,1", "1,1", "0-2,2", "3-2", "-1", "0-6", "a", "1.5",
     "9" * 30, "0-999999999"],
)  # fmt: skip
def test_layers_that_are_not_there_or_out_of_order_are_refused_in_a_sentence(asked):
    with pytest.raises(ConfigError, match=r"--keep-layers .* 1 to 6, or rising numbers within 0-5"):
        layers_to_keep(asked, 6)


def test_a_causal_classifier_answers_after_saving_as_it_did_before(causal_run):
    lines = (causal_run.folder / "predictions" / "dev.jsonl").read_text().splitlines()
    before = [json.loads(line)["score"] for line in lines]
    model = filbert.load(str(causal_run.folder / "model"))
    assert model.model.config.attention.causal and model.task.spec.name == "classification"
    rows = read_task_rows(model.task, causal_run.facts["data"]["dev"]["path"], ColumnNames())
    after = [answer["score"] for answer in model.predict_rows(rows)]
    assert after == pytest.approx(before, abs=1e-6)
    assert any("causal: tokens attend" in note for note in causal_run.facts["model"]["notes"])
    story = json.loads((causal_run.folder / "model" / "filbert.json").read_text())
    assert story["options"]["causal"] is True


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_sentence_vectors_of_a_causal_encoder_are_trained_and_told_to_other_tools(
    pooling, deep_model, tmp_path
):
    pairs = tmp_path / "pairs.csv"
    lines = [f"the film was {w},it was {w} {w}" for w in ("good", "bad", "great", "very") * 4]
    pairs.write_text("\n".join(["text,text_pair", *lines]) + "\n")
    done = run(
        deep_model, tmp_path, tmp_path / "run", task="embedding", train=str(pairs),
        dev=str(pairs), causal=True, pooling=pooling, steps=3,
    )  # fmt: skip
    folder = done.folder / "model"
    raw = json.loads((folder / "config.json").read_text())
    assert (raw["model_type"], raw["is_decoder"]) == ("bert", True)
    model = filbert.load(str(folder))
    told = "last" if pooling == "cls" else "mean"
    assert model.sentence_vectors.pooling == told
    vector = model.embed([LONG])[0]
    assert vector == pytest.approx(model.predict([LONG])[0]["embedding"], abs=1e-6)
    assert vector == pytest.approx(model.embed([LONG], pooling=pooling)[0], abs=1e-6)


def test_a_frozen_causal_encoder_keeps_the_token_that_its_head_reads(
    deep_model, films, tmp_path, monkeypatch, capsys
):
    """The judge is the same run with the features refused; dropout in the encoder is off there."""
    settings = {"freeze": "encoder", "dropout": 0.0, "causal": True}
    kept = run(deep_model, films, tmp_path / "kept", **settings)
    assert "computed once" in capsys.readouterr().err
    monkeypatch.setattr("filbert.train.step.MOST_BYTES", 0)
    every = run(deep_model, films, tmp_path / "every", **settings)
    a, b = (load_file(r.folder / "model" / "model.safetensors") for r in (kept, every))
    for name, tensor in a.items():
        torch.testing.assert_close(tensor, b[name], rtol=1e-3, atol=1e-4)


def test_a_run_of_some_layers_starts_from_those_and_counts_only_them(deep_model, films, tmp_path):
    done = run(
        deep_model, films, tmp_path / "run", keep_layers="1,3", freeze="embeddings,0", steps=2,
        layer_decay=0.5,
    )  # fmt: skip
    start = load_file(deep_model / "model.safetensors")
    left = load_file(done.folder / "model" / "model.safetensors")
    name = "encoder.layer.{}.attention.self.query.weight"
    assert torch.equal(left["bert." + name.format(0)], start[name.format(1)])
    assert not torch.equal(left["bert." + name.format(1)], start[name.format(3)])
    assert not any("layer.2" in key for key in left)
    facts = done.facts["model"]
    assert facts["config"]["num_hidden_layers"] == 2
    assert "layers kept: 1, 3 of 0 to 3." in facts["notes"]
