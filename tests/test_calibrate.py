"""filbert calibrate: which layers int8 leaves alone, and who goes by it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import filbert
from filbert import calibrate as calibration
from filbert.bulk.work import Answers, plan_of
from filbert.calibrate import calibrate
from filbert.cli.main import run
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError, FormatError
from filbert.model.quantized import QuantizedLinear
from filbert.predict import Predictor

DOWN = [f"encoder.layers.{i}.down" for i in range(2)]


@pytest.fixture
def model(film_run, tmp_path) -> Path:
    """A copy of the fine-tuned tiny model, to be written into."""
    return shutil.copytree(film_run.folder / "model", tmp_path / "model")


@pytest.fixture
def dev(films) -> str:
    return str(films / "dev.csv")


@pytest.fixture
def harmful(monkeypatch):
    """The feed-forward's second product is useless in int8, as if its weights had outliers."""
    forward = QuantizedLinear.forward

    def spoilt(self, rows, *args, **kwargs):
        out = forward(self, rows, *args, **kwargs)
        return -3 * out if rows.shape[-1] == 64 else out

    monkeypatch.setattr(QuantizedLinear, "forward", spoilt)


def in_int8(model: Path | str) -> set[str]:
    """The dense layers that are in int8 when the model is loaded so."""
    modules = Predictor.load(model, precision="int8").model.named_modules()
    return {name for name, module in modules if isinstance(module, QuantizedLinear)}


def noted(model: Path) -> dict | None:
    return json.loads((model / "filbert.json").read_text()).get("int8")


def test_layers_that_int8_spoils_stay_float_for_everyone_who_loads_the_folder(model, dev, harmful):
    before = json.loads((model / "filbert.json").read_text())
    assert len(in_int8(model)) == 8
    facts = calibrate(str(model), dev, target=0.99)
    assert sorted(facts["float_layers"]) == DOWN
    assert facts["cosine"] > 0.99 > facts["cosine_of_all"]
    assert facts["layers"] == 8 and facts["data"]["sequences"] > 20
    assert sorted(facts["alone"].values())[1] < 0.99 < sorted(facts["alone"].values())[2]
    assert noted(model) == facts
    left = json.loads((model / "filbert.json").read_text())
    del left["int8"]
    assert left == before, "nothing else changes"
    assert in_int8(model) == {f"encoder.layers.{i}.{n}" for i in range(2)
                              for n in ("qkv", "attention_out", "up")}  # fmt: skip
    kept = Predictor.load(model, precision="int8").model.get_submodule(DOWN[0])
    assert isinstance(kept, nn.Linear)


def test_more_layers_stay_float_until_no_metric_falls_too_far(model, dev, harmful):
    # So low a target asks for none.
    facts = calibrate(str(model), dev, target=1e-9)
    assert facts["float_layers"] == []
    assert facts["loss"] > 0.2
    facts = calibrate(str(model), dev, target=1e-9, max_loss=0.01)
    assert len(facts["float_layers"]) == 4 and set(DOWN) < set(facts["float_layers"])
    assert facts["loss"] <= 0.01
    assert facts["float32"]["accuracy"] - facts["int8"]["accuracy"] <= 0.01


def test_fewer_than_all_layers_are_tried_before_it_gives_up(model, dev, monkeypatch):
    """Whatever is in int8 is harmless here, as long as it is not everything but three layers."""
    real = calibration.evaluate_model
    tried = []

    def judged(predictor, *args, **kwargs):
        found = real(predictor, *args, **kwargs)
        if predictor.precision.name != "int8":
            return found
        modules = list(predictor.model.modules())
        tried.append(sum(isinstance(module, QuantizedLinear) for module in modules))
        return found | ({"accuracy": -1.0} if tried[-1] > 1 else {})

    monkeypatch.setattr(calibration, "evaluate_model", judged)
    facts = calibrate(str(model), dev, target=1e-9, max_loss=0.5)
    assert tried == [8, 4, 2, 1] and len(facts["float_layers"]) == 7


def test_where_every_layer_costs_too_much_nothing_is_noted(model, dev, monkeypatch):
    forward = QuantizedLinear.forward
    monkeypatch.setattr(QuantizedLinear, "forward", lambda *a, **k: -3 * forward(*a, **k))
    with pytest.raises(ConfigError, match="in whatever layers it is"):
        calibrate(str(model), dev, target=1e-9, max_loss=0.01)
    with pytest.raises(ConfigError, match="only with every layer in float32"):
        calibrate(str(model), dev, target=0.99999)
    assert noted(model) is None


def test_a_model_without_a_task_is_judged_by_its_vectors(tiny_model, tmp_path, harmful):
    folder = shutil.copytree(tiny_model, tmp_path / "tiny")
    texts = tmp_path / "texts.txt"
    texts.write_text("the film was good\nhe was not very bad\na play\n" * 3)
    facts = calibrate(str(folder), str(texts), target=0.99)
    assert sorted(facts["float_layers"]) == DOWN
    assert facts["data"]["sequences"] == 9 and "float32" not in facts
    exact, found = (
        Predictor.load(folder, precision=p).embed(["the film was good"])
        for p in ("float32", "int8")
    )
    np.testing.assert_allclose(found, exact, atol=0.2)
    with pytest.raises(ConfigError, match="has no task head"):
        calibrate(str(folder), str(texts), max_loss=0.1)


def test_an_old_folder_of_sentence_vectors_is_noted_in_where_its_encoder_lies(
    tiny_model, tmp_path, harmful
):
    encoder = shutil.copytree(tiny_model, tmp_path / "old" / "0_BERT")
    kind = "sentence_transformers.models.BERT"
    modules = [{"idx": 0, "name": "0", "path": "0_BERT", "type": kind}]
    (tmp_path / "old" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "old" / "config.json").write_text(json.dumps({"__version__": "0.2.5"}))
    texts = tmp_path / "texts.txt"
    texts.write_text("the film was good\nhe was not very bad\n")
    calibrate(str(tmp_path / "old"), str(texts), target=0.99)
    assert sorted(noted(encoder)["float_layers"]) == DOWN
    assert len(in_int8(tmp_path / "old")) == 6


def test_rows_are_taken_from_all_over_the_file(model, films, monkeypatch):
    seen: list[int] = []
    row_examples = Predictor.row_examples

    def noticed(self, rows):
        seen[:] = [row.line for row in rows]
        return row_examples(self, rows)

    monkeypatch.setattr(Predictor, "row_examples", noticed)
    monkeypatch.setattr(calibration, "_NUM_ROWS", 40)
    rows = (films / "dev.csv").read_text().splitlines()
    assert len(rows) == 65
    exact = Predictor.load(model)
    calibration._examples(exact, str(films / "dev.csv"), ColumnNames())
    assert len(seen) == 40 and seen[0] == 2 and seen[-1] > 60


def test_an_unfinished_file_is_not_continued_with_other_layers_in_int8(model, dev, harmful):
    before = plan_of(Answers(Predictor.load(model, precision="int8")))
    exact = plan_of(Answers(Predictor.load(model)))
    calibrate(str(model), dev, target=0.99)
    assert plan_of(Answers(Predictor.load(model, precision="int8"))) != before
    assert plan_of(Answers(Predictor.load(model))) == exact


def test_the_command_says_what_it_found_and_info_repeats_it(model, dev, harmful, capsys):
    assert run(["calibrate", str(model), "--data", dev, "--target", "0.99"]) == 0
    out = capsys.readouterr().out
    assert "6 of 8 dense layers in int8, 2 stay float32" in out
    assert "encoder.layers.1.down  (alone in int8: cosine " in out
    assert "  accuracy  " in out
    assert run(["info", str(model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["int8"]
    assert found["layers"] == 8 and sorted(found["float_layers"]) == DOWN
    assert run(["calibrate", str(model), "--data", dev, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == noted(model)


def test_an_export_in_int8_leaves_the_same_layers_alone(model, dev, tmp_path, harmful, capsys):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    calibrate(str(model), dev, target=0.99)
    out = tmp_path / "onnx"
    assert run(["export", str(model), "--out", str(out), "--format", "onnx", "--int8"]) == 0
    weights = onnx.load(out / "model.onnx").graph.initializer
    codes = {t.name for t in weights if t.data_type == onnx.TensorProto.INT8}
    assert not any(".down." in name for name in codes)
    assert sum(name.endswith("_quantized") for name in codes) == 6
    assert (
        json.loads((out / "filbert.json").read_text())["onnx"]["float_layers"]
        == noted(model)["float_layers"]
    )
    capsys.readouterr()
    assert run(["calibrate", str(out), "--data", dev]) == 2
    assert "Calibrate the one that it was made from" in capsys.readouterr().err


def test_a_note_about_another_model_is_told_and_hurts_no_other_precision(model):
    story = json.loads((model / "filbert.json").read_text())
    for note in ({"float_layers": ["encoder.layers.9.up"]}, {"float_layers": "all"}, ["up"]):
        (model / "filbert.json").write_text(json.dumps(story | {"int8": note}))
        assert filbert.load(model).predict(["the film was good"])
        with pytest.raises(FormatError, match="Run filbert calibrate on it again"):
            filbert.load(model, precision="int8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "1"], "above 0 and below 1"),
        (["--max-loss", "-0.1"], "zero or above"),
        (["--data", "-"], "read more than once"),
    ],
)
def test_what_cannot_be_meant_is_refused(model, dev, words, message, capsys):
    given = words if "--data" in words else [*words, "--data", dev]
    assert run(["calibrate", str(model), *given]) == 2
    assert message in capsys.readouterr().err
    assert noted(model) is None


def test_a_model_that_has_no_folder_of_its_own_is_refused_with_a_way(dev):
    with pytest.raises(ConfigError, match="filbert convert filbert-mini DIR --to huggingface"):
        calibrate("filbert-mini", dev)


def test_what_is_noted_tells_nothing_of_the_machine_s_folders(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "tiny")
    texts = tmp_path / "texts.txt"
    texts.write_text("the film was good\nhe was not very bad\n")
    calibrate(str(folder), str(texts), target=1e-9)
    assert noted(folder)["data"]["file"] == "texts.txt"
    assert str(tmp_path) not in (folder / "filbert.json").read_text()
