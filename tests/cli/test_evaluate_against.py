"""filbert evaluate --precision int8 --against float32."""

import json

import pytest

from filbert.inference.predictor import Predictor
from filbert.model.int8 import QuantizedLinear


@pytest.fixture
def evaluate(call, film_run, films):
    def go(*options):
        return call("evaluate", film_run.folder / "model", "--data", films / "dev.csv", *options)

    return go


def test_every_metric_says_how_far_int8_moves_it(evaluate):
    done = evaluate("--precision", "int8", "--against", "float32", "--json")
    assert done.status == 0
    found = json.loads(done.out)
    changes = found["against"]["float32"]
    assert changes["accuracy"]["loss"] == changes["accuracy"]["value"] - found["accuracy"]
    assert changes["loss"]["value"] != found["loss"], "two precisions must have been run"
    table = evaluate("--precision", "int8", "--against", "float32", "--max-loss", "0.5")
    assert table.status == 0
    assert "worse by" in table.out


def test_a_metric_that_falls_too_far_is_refused_with_status_2(evaluate, monkeypatch):
    # The quantised model is made useless.
    forward = QuantizedLinear.forward
    monkeypatch.setattr(QuantizedLinear, "forward", lambda *a, **k: -3 * forward(*a, **k))
    done = evaluate("--precision", "int8", "--against", "float32", "--max-loss", "0.005")
    assert done.status == 2
    assert "and --max-loss allows 0.005. filbert convert --to int8 chooses layers" in done.err
    assert "accuracy" in done.out, "the metrics are printed all the same"


def test_auto_never_means_int8_and_asking_for_it_does(film_run):
    def has_codes(precision):
        model = Predictor.load(film_run.folder / "model", precision=precision).model
        return any(isinstance(module, QuantizedLinear) for module in model.modules())

    found = {name: has_codes(name) for name in ("auto", "bf16", "float32", "int8")}
    assert found == {"auto": False, "bf16": False, "float32": False, "int8": True}


def test_int8_that_nobody_has_measured_is_told_of_unless_it_is_being_measured(
    call, unmeasured_model, films
):
    def said(*options):
        return call("evaluate", unmeasured_model, "--data", films / "dev.csv", *options).err

    unmeasured = "int8 was not compared with float32 on labelled rows"
    assert said("--precision", "int8").count(unmeasured) == 1
    assert unmeasured not in said("--precision", "int8", "--against", "float32")
    assert unmeasured not in said()
