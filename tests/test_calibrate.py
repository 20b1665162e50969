"""Which layers stay float32 next to int8, and which commands follow the choice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import filbert
from filbert import onnx_export as export
from filbert.cli.main import run
from filbert.errors import ConfigError, FormatError
from filbert.inference.bulk import answer_work, plan_of
from filbert.inference.predictor import Predictor
from filbert.model.int8 import QuantizedLinear, StaticLinear
from filbert.onnx_export import choose_float_layers

DOWN = [f"encoder.layers.{i}.down" for i in range(2)]


@pytest.fixture
def source(film_run) -> str:
    return str(film_run.folder / "model")


@pytest.fixture
def dev(films) -> str:
    return str(films / "dev.csv")


@pytest.fixture
def harmful(monkeypatch):
    """Makes int8 useless in the second product of the feed-forward layer."""
    forward = QuantizedLinear.forward

    def spoilt(self, rows, *args, **kwargs):
        out = forward(self, rows, *args, **kwargs)
        return -3 * out if rows.shape[-1] == 64 else out

    monkeypatch.setattr(QuantizedLinear, "forward", spoilt)


def in_int8(model: Path | str) -> set[str]:
    """Names of the dense layers that compute in int8 when the model is loaded with int8."""
    modules = Predictor.load(model, precision="int8").model.named_modules()
    return {name for name, module in modules if isinstance(module, QuantizedLinear)}


def test_convert_records_the_layers_that_int8_spoils(source, dev, harmful, tmp_path, capsys):
    out = tmp_path / "model"
    assert run(["convert", source, str(out), "--to", "int8", "--data", dev]) == 0
    assert "6 of 8 dense layers can compute in int8; 2 stay float32" in capsys.readouterr().out
    recorded = json.loads((out / "filbert.json").read_text())["int8"]
    assert sorted(recorded["float_layers"]) == DOWN
    assert recorded["cosine"] > export.TARGET > recorded["cosine_of_all"]
    assert recorded["layers"] == 8 and recorded["data"]["file"] == "dev.csv"
    assert len(in_int8(source)) == 8 and len(in_int8(out)) == 6
    kept = Predictor.load(out, precision="int8").model.get_submodule(DOWN[0])
    assert isinstance(kept, nn.Linear)
    # An unfinished output file is not continued with other layers in int8.
    plans = [plan_of(answer_work(Predictor.load(m, precision="int8"))) for m in (source, out)]
    assert plans[0] != plans[1]
    assert run(["info", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["int8"]["layers"] == 8


def test_static_int8_measures_the_inputs_and_is_used_when_loaded(source, dev, tmp_path, capsys):
    out = tmp_path / "model"
    assert run(["convert", source, str(out), "--to", "static-int8", "--data", dev]) == 0
    assert "8 of 8 dense layers can compute in int8" in capsys.readouterr().out
    stored = json.loads((out / "filbert.json").read_text())
    assert stored["int8"]["cosine"] > export.STATIC_TARGET
    exact, static = Predictor.load(source), Predictor.load(out, precision="int8")
    layers = [one for one in static.model.modules() if isinstance(one, StaticLinear)]
    assert len(layers) == 8 and sum(layer.outputs is not None for layer in layers) == 2
    texts = ["the film was good", "he was not very bad"]
    cosines = (exact.embed(texts) * static.embed(texts)).sum(1)
    norms = [np.linalg.norm(p.embed(texts), axis=1) for p in (exact, static)]
    assert (cosines / (norms[0] * norms[1])).min() > 0.99
    assert [a["label"] for a in exact.predict(texts)] == [a["label"] for a in static.predict(texts)]
    del stored["int8"]["ranges"][DOWN[0]]
    (out / "filbert.json").write_text(json.dumps(stored))
    with pytest.raises(FormatError, match="not about this model"):
        Predictor.load(out, precision="int8")


def test_more_layers_stay_float_until_no_metric_falls_too_far(source, dev, harmful, monkeypatch):
    monkeypatch.setattr(export, "TARGET", 1e-9)  # no layer is kept for the cosine
    exact = Predictor.load(source)
    facts = choose_float_layers(exact, dev)
    assert facts["float_layers"] == [] and facts["loss"] > 0.2
    facts = choose_float_layers(exact, dev, max_loss=0.01)
    assert len(facts["float_layers"]) == 4 and set(DOWN) < set(facts["float_layers"])
    assert facts["float32"]["accuracy"] - facts["int8"]["accuracy"] <= 0.01


def test_a_model_without_a_task_is_judged_by_its_vectors(tiny_model, tmp_path, harmful):
    texts = tmp_path / "texts.txt"
    texts.write_text("the film was good\nhe was not very bad\na play\n" * 3)
    exact = Predictor.load(tiny_model)
    facts = choose_float_layers(exact, str(texts))
    assert sorted(facts["float_layers"]) == DOWN
    assert facts["data"]["sequences"] == 9 and "float32" not in facts
    with pytest.raises(ConfigError, match="has no task"):
        choose_float_layers(exact, str(texts), max_loss=0.1)


def test_an_int8_export_keeps_layers_float_until_max_loss_holds(
    source, dev, tmp_path, monkeypatch, capsys
):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(
        "filbert.onnx_export.choose_float_layers", lambda *args, **kwargs: {"float_layers": DOWN}
    )
    out = tmp_path / "onnx"
    options = ["--format", "onnx", "--int8", "--data", dev, "--max-loss", "1"]
    assert run(["export", source, "--out", str(out), *options]) == 0
    weights = onnx.load(out / "model.onnx").graph.initializer
    codes = {t.name for t in weights if t.data_type == onnx.TensorProto.INT8}
    assert not any(".down." in name for name in codes)
    assert sum(name.endswith("_quantized") for name in codes) == 6
    assert json.loads((out / "filbert.json").read_text())["onnx"]["float_layers"] == DOWN


@pytest.mark.parametrize("recorded", [{"float_layers": ["encoder.layers.9.up"]}, ["up"]])
def test_a_record_of_another_model_is_refused_for_int8_only(film_run, tmp_path, recorded):
    import shutil

    model = shutil.copytree(film_run.folder / "model", tmp_path / "model")
    facts = json.loads((model / "filbert.json").read_text())
    (model / "filbert.json").write_text(json.dumps(facts | {"int8": recorded}))
    assert filbert.load(model).predict(["the film was good"])
    with pytest.raises(FormatError, match="filbert convert --to int8 again"):
        filbert.load(model, precision="int8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "int8"], "give --data FILE"),
        (["--to", "int8", "--data", "-"], "give --data FILE"),
        (["--to", "int8", "--data", "dev.csv", "--max-loss", "-0.1"], "--max-loss"),
        (["--to", "huggingface", "--max-loss", "0.1"], "are for --to int8"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message, tmp_path, capsys):
    assert run(["convert", "filbert-mini", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
