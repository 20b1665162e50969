"""Frozen, decayed and re-drawn parameters."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import sizes
from tests.train.conftest import tune

import filbert
from filbert.cli.main import run as cli
from filbert.errors import ConfigError, Interrupted
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model, new_head
from filbert.train.base_model import freeze, is_encoder_frozen, reinitialize_top
from filbert.train.optimizer import new_optimizer, rate_shares
from filbert.train.options import TrainOptions


def new_model(layers: int = 4, groups: int | None = None, head: str = "sequence") -> Model:
    torch.manual_seed(0)
    config = EncoderConfig.of(
        **sizes(vocab_size=30, layers=layers, width=16, heads=2, inner=32, positions=32),
        num_hidden_groups=groups,
    )
    return Model(Encoder(config), new_head(head, config, 2))


def learning(model: Model) -> set[str]:
    """The parts that learn."""
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    return {".".join(name.split(".")[: 3 if "layers" in name else 2]) for name in names}


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ("embeddings", {f"encoder.layers.{i}" for i in range(4)}),
        ("embeddings,0-2", {"encoder.layers.3"}),
        ("1, 3", {"encoder.embeddings", "encoder.layers.0", "encoder.layers.2"}),
        ("encoder", set()),
    ],
)
def test_what_is_frozen_does_not_learn_and_all_else_does(asked, left):
    model = new_model()
    freeze(model, asked)
    assert learning(model) == left | {"encoder.pooler", "head.out"}
    assert is_encoder_frozen(model) is (asked == "encoder")


@pytest.mark.parametrize("asked", ["4", "2-1", "0-9", "embedding", "-1", "pooler"])
def test_a_part_that_is_not_there_is_refused(asked):
    with pytest.raises(ConfigError, match="within 0-3"):
        freeze(new_model(), asked)


def test_a_pooler_that_the_head_does_not_read_is_left_alone():
    model = new_model(head="tokens")
    freeze(model, None)
    assert "encoder.pooler" not in learning(model)


def test_the_share_falls_by_the_decay_from_layer_to_layer_as_in_electra():
    shares = rate_shares(new_model(), 0.5)
    assert shares["head.out.weight"] == shares["encoder.pooler.bias"] == 1.0
    layers = [shares[f"encoder.layers.{i}.qkv.weight"] for i in range(4)]
    assert layers == [0.5**5, 0.5**4, 0.5**3, 0.5**2]
    assert shares["encoder.embeddings.word.weight"] == 0.5**6


def test_every_parameter_that_learns_is_in_one_group_and_vectors_do_not_decay():
    model = new_model()
    freeze(model, "embeddings,0")
    optimizer = new_optimizer(model, TrainOptions(lr=1e-4, layer_decay=0.5, weight_decay=0.1))
    grouped = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(grouped) == len({id(p) for p in grouped})
    assert {id(p) for p in grouped} == {id(p) for p in model.parameters() if p.requires_grad}
    for group in optimizer.param_groups:
        assert all((p.ndim >= 2) == (group["weight_decay"] == 0.1) for p in group["params"])
    assert len({group["share"] for group in optimizer.param_groups}) == 4


def test_the_top_layers_are_drawn_anew_and_the_others_kept():
    model, before = new_model(), new_model()
    torch.manual_seed(5)
    reinitialize_top(model, 2)
    same = [
        torch.equal(a.up.weight, b.up.weight)
        for a, b in zip(model.encoder.layers, before.encoder.layers, strict=True)
    ]
    assert same == [True, True, False, False]
    assert not torch.equal(model.encoder.pooler.weight, before.encoder.pooler.weight)
    assert torch.equal(model.encoder.embeddings.word.weight, before.encoder.embeddings.word.weight)


def test_shared_layers_cannot_be_drawn_anew():
    with pytest.raises(ConfigError, match="layers share their weights"):
        reinitialize_top(new_model(groups=1), 1)
    with pytest.raises(ConfigError, match="encoder has 4 layers"):
        reinitialize_top(new_model(), 5)


run = partial(tune, epochs=2, save_every=0)


def test_a_frozen_encoder_is_run_once_and_gives_what_running_it_every_time_gives(
    tiny_model, films, tmp_path, monkeypatch, capsys
):
    """The judge is the same run with the features refused; dropout in the encoder is off there."""
    kept = run(tiny_model, films, tmp_path / "kept", freeze="encoder", dropout=0.0)
    assert "computed once" in capsys.readouterr().err
    monkeypatch.setattr("filbert.train.step.MOST_BYTES", 0)
    every = run(tiny_model, films, tmp_path / "every", freeze="encoder", dropout=0.0)
    assert "runs in every step" in capsys.readouterr().err
    a, b = (load_file(r.folder / "model" / "model.safetensors") for r in (kept, every))
    start = load_file(tiny_model / "model.safetensors")
    for name, tensor in a.items():
        torch.testing.assert_close(tensor, b[name], rtol=1e-3, atol=1e-4)
        if "encoder.layer" in name or "embeddings" in name:
            assert torch.equal(tensor, start[name.removeprefix("bert.")])
    assert kept.metrics["dev"]["loss"] == pytest.approx(every.metrics["dev"]["loss"], abs=1e-3)
    assert kept.facts["model"]["trained"] < kept.facts["model"]["parameters"] / 5


def test_several_seeds_are_reported_with_mean_deviation_and_the_best(tiny_model, films, tmp_path):
    facts = run(tiny_model, films, tmp_path / "x", seeds=3, epochs=1).facts
    seeds = facts["seeds"]
    assert sorted(seeds["runs"]) == ["42", "43", "44"]
    values = seeds["metrics"]["dev"]["roc_auc"]["values"]
    by_hand = torch.tensor(values, dtype=torch.float64)
    assert seeds["metrics"]["dev"]["roc_auc"]["mean"] == pytest.approx(float(by_hand.mean()))
    assert seeds["metrics"]["dev"]["roc_auc"]["deviation"] == pytest.approx(float(by_hand.std()))
    best = max(seeds["runs"], key=lambda n: seeds["runs"][n]["best"]["value"])
    assert seeds["best"] == best
    chosen, kept = (
        load_file(tmp_path / "x" / part / "model" / "model.safetensors")
        for part in (f"seeds/{best}", ".")
    )
    assert all(torch.equal(chosen[k], kept[k]) for k in kept)
    assert (tmp_path / "x" / "report.html").is_file()
    again = run(tiny_model, films, tmp_path / "x", seeds=3, epochs=1, resume=True)
    assert again.facts["finished"] == facts["finished"]


@pytest.mark.parametrize("error", [filbert.RunError("no number"), filbert.ConfigError("no memory")])
def test_a_seed_that_fails_is_named_and_the_others_count(
    tiny_model, films, tmp_path, monkeypatch, capsys, error
):
    from filbert.train import seeds

    real, bad = seeds.finetune, 43

    def fails(options, **given):
        if options.run.seed == bad:
            raise error
        return real(options, **given)

    monkeypatch.setattr(seeds, "finetune", fails)
    words = ["finetune", "--task", "classification", "--model", tiny_model, "--seeds", 2]
    words += ["--train", films / "train.csv", "--dev", films / "dev.csv", "--steps", 2, "--json"]
    assert cli([str(word) for word in [*words, "--out", tmp_path / "x"]]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["dev"]["roc_auc"] == told["seeds"]["metrics"]["dev"]["roc_auc"]["mean"]
    assert told["seeds"]["failed"] == {"43": str(error)}
    assert list(told["seeds"]["runs"]) == ["42"]
    assert told["seeds"]["metrics"]["dev"]["roc_auc"]["deviation"] is None, (
        "of one run there is none"
    )
    # It is not tried again, since the choice among the others was made.
    again = [str(word) for word in [*words, "--out", tmp_path / "x", "--resume"]]
    assert cli(again) == 1
    assert json.loads(capsys.readouterr().out) == told
    again.remove("--json")
    assert cli(again) == 1
    printed = capsys.readouterr().out
    assert "failed: seed 43" in printed and "deviation" not in printed
    bad = 42
    if isinstance(error, filbert.ConfigError):
        # What the first seed finds wrong would be wrong for all.
        assert cli([str(word) for word in [*words, "--out", tmp_path / "y"]]) == 2
        assert not (tmp_path / "y").exists()


def test_finished_seeds_of_other_options_are_not_taken_for_these(tiny_model, films, tmp_path):
    run(tiny_model, films, tmp_path / "x", seeds=2, steps=2)
    with pytest.raises(ConfigError, match="a finished run with other options"):
        run(tiny_model, films, tmp_path / "x", seeds=2, steps=2, lr=1e-2, resume=True)
    # Nor are fewer or more seeds, nor a single run: what is finished is never trained over.
    kept = (tmp_path / "x/run.json").read_bytes()
    for given in ({"seeds": 3}, {"seeds": 2, "seed": 7}):
        with pytest.raises(ConfigError, match="a finished run with other options"):
            run(tiny_model, films, tmp_path / "x", steps=2, resume=True, **given)
    assert (tmp_path / "x/run.json").read_bytes() == kept


def test_an_interrupted_replacement_of_several_seeds_keeps_what_is_done(
    tiny_model, films, tmp_path, monkeypatch
):
    out = tmp_path / "x"
    first = run(tiny_model, films, out, seeds=2, steps=2).facts
    from filbert.train import seeds

    real = seeds.finetune

    def stops(options, **given):
        if options.run.seed == 43:
            raise Interrupted("asked to")
        return real(options, **given)

    monkeypatch.setattr(seeds, "finetune", stops)
    with pytest.raises(Interrupted):
        run(tiny_model, films, out, seeds=2, steps=3, overwrite=True)
    assert (tmp_path / ".x.new/seeds/42/run.json").is_file()
    monkeypatch.setattr(seeds, "finetune", real)
    again = run(tiny_model, films, out, seeds=2, steps=3, resume=True).facts
    assert again["steps"] == 3 != first["steps"]
    assert not (tmp_path / ".x.new").exists()


def test_several_seeds_need_dev_rows(tiny_model, films, tmp_path):
    with pytest.raises(ConfigError, match="give `dev`"):
        run(tiny_model, films, tmp_path / "x", seeds=2, dev=None)
