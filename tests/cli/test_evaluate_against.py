"""filbert evaluate --precision int8 --against float32."""

import json

import pytest

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


def test_evaluate_prints_a_row_per_label_their_means_and_the_confusions(call, tmp_path):
    rows, answers = tmp_path / "rows.csv", tmp_path / "answers.csv"
    rows.write_text("text,label\n" + "1,a\n2,a\n3,a\n4,b\n5,c\n")
    answers.write_text("text,label\n" + "1,a\n2,a\n3,b\n4,b\n5,b\n")
    scored = ("evaluate", "--task", "classification", "--data", rows, "--predictions", answers)
    table = [line.split() for line in call(*scored).out.splitlines()]
    assert "macro_f1" in call(*scored, "--json").out and not any("macro_f1" in row for row in table)
    assert ["a", "1.0000", "0.6667", "0.8000", "3"] in table
    assert ["c", "0.0000", "0.0000", "0.0000", "1"] in table
    # By hand: the mean of F1 0.8, 0.5 and 0, and the same weighted by 3, 1 and 1 rows.
    assert ["macro", "mean", "0.4444", "0.5556", "0.4333", "5"] in table
    assert ["weighted", "mean", "0.6667", "0.6000", "0.5800", "5"] in table
    assert ["a", "2", "1", "0"] in table, "a row of the confusion matrix"


def test_many_labels_give_the_most_frequent_confusions(call, tmp_path):
    rows, answers = tmp_path / "rows.csv", tmp_path / "answers.csv"
    labels = [f"l{number:02}" for number in range(13)]
    rows.write_text("text,label\n" + "".join(f"t,{one}\n" for one in [*labels, "l05", "l05"]))
    answers.write_text("text,label\n" + "".join(f"t,{one}\n" for one in [*labels, "l06", "l06"]))
    done = call("evaluate", "--task", "classification", "--data", rows, "--predictions", answers)
    assert "l05 l06 2" in [" ".join(line.split()) for line in done.out.splitlines()]


def test_int8_that_nobody_has_measured_is_told_of_unless_it_is_being_measured(
    call, unmeasured_model, films
):
    def said(*options):
        return call("evaluate", unmeasured_model, "--data", films / "dev.csv", *options).err

    unmeasured = "int8 was not compared with float32 on labelled rows"
    assert said("--precision", "int8").count(unmeasured) == 1
    assert unmeasured not in said("--precision", "int8", "--against", "float32")
    assert unmeasured not in said()
