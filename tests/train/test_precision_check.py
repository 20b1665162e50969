"""What bf16 and int8 cost is measured after training, and `--precision auto` goes by it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.train.conftest import stress

from filbert.data.columns import ColumnNames
from filbert.evaluation import evaluate_model
from filbert.inference import precision as formats
from filbert.inference.predictor import Predictor
from filbert.model import precision
from filbert.train import measure
from filbert.train.finetune import finetune

TASKS = ["classification", "embedding"]


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor on which bf16 is three times as fast, and which multiplies bytes."""
    for module in (precision, formats):
        monkeypatch.setattr(module, "gain", lambda name: {"bf16": 3.0, "int8": 4.0}[name])
    monkeypatch.setattr(measure, "has_integer_products", lambda: True)


def trained(task: str, place: Path) -> tuple[dict, Path]:
    """What a short run says, and its dev rows."""
    module = stress()
    module.make_model(place / "start")
    files = module.make_rows(place, task)
    given = module.options(task, place / "start", files, place / "run", steps=20, lr=3e-3)
    return finetune(given), Path(files["dev"])


@pytest.mark.parametrize("task", TASKS)
def test_the_losses_are_those_of_the_folder(task, fast, tmp_path):
    run, dev = trained(task, tmp_path)
    folder = tmp_path / "run" / "model"
    story = json.loads((folder / "filbert.json").read_text("utf-8"))

    def measured(name: str) -> dict:
        return evaluate_model(Predictor.load(folder, precision=name), str(dev), ColumnNames())

    exact = measured("float32")
    names = [
        n for n in Predictor.load(folder).known_task().spec.metric_names if exact[n] is not None
    ]
    shares = [name for name in names if name not in ("loss", "mse")]
    for precision_name in ("bf16", "int8"):
        said, rounded = run[f"{precision_name}_loss"], measured(precision_name)
        assert story[f"{precision_name}_loss"] == said
        falls = [exact[name] - rounded[name] for name in shares]
        assert said["loss"] == pytest.approx(max(falls), abs=1e-6)
        assert said["change"] == pytest.approx(max(map(abs, falls)), abs=1e-6)
        assert said["float32"] == pytest.approx(exact[said["metric"]], abs=1e-6)
        assert said[precision_name] == pytest.approx(rounded[said["metric"]], abs=1e-6)
        assert said["rows"] == run["data"]["dev"]["rows"] > 10


def test_where_a_format_is_slow_nobody_waits_for_it(monkeypatch, tmp_path):
    monkeypatch.setattr(precision, "gain", lambda _: 1.0)
    monkeypatch.setattr(measure, "has_integer_products", lambda: False)
    run, _ = trained("classification", tmp_path)
    assert run["bf16_loss"] is run["int8_loss"] is None


@pytest.mark.parametrize(
    ("record", "taken", "why"),
    [
        ({"metric": "mcc", "loss": -0.002, "change": 0.002}, torch.bfloat16, ""),
        (
            {"metric": "mcc", "loss": -0.01, "change": 0.01},
            torch.float32,
            "moves a metric by 1.00 points",
        ),
        ({"metric": "mcc", "loss": 0.0, "change": 0.0031}, torch.float32, "by 0.31 points"),
        ({"metric": "mcc", "loss": 0.0, "change": 0.003}, torch.bfloat16, ""),
        ({"metric": "mcc", "loss": 0.003, "change": 0.003}, torch.bfloat16, ""),
        (
            {"metric": "mcc", "loss": 0.0068, "change": 0.0068},
            torch.float32,
            "0.68 points of mcc on its dev rows",
        ),
        (None, torch.float32, "was not measured"),
        ({"loss": "none"}, torch.float32, "was not measured"),
        (3, torch.float32, "was not measured"),
    ],
    ids=[
        "a little better",
        "better",
        "another better",
        "both just",
        "just",
        "worse",
        "unknown",
        "broken",
        "no record",
    ],
)
def test_auto_takes_what_keeps_the_answers(record, taken, why, film_run, fast, tmp_path, caplog):
    folder = shutil.copytree(film_run.folder / "model", tmp_path / "model")
    story = json.loads((folder / "filbert.json").read_text("utf-8"))
    story |= {"bf16_loss": record, "int8_loss": None}
    (folder / "filbert.json").write_text(json.dumps(story), "utf-8")
    caplog.set_level("INFO")
    found = Predictor.load(folder, precision="auto")
    assert next(found.model.parameters()).dtype == taken
    assert why in caplog.text
    assert bool(why) == ("precision auto" in caplog.text)
    # What is asked for by name is taken all the same.
    rounded = Predictor.load(folder, precision="bf16")
    assert next(rounded.model.parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize(("change", "taken"), [(0.003, "int8"), (0.0031, "bf16")])
def test_auto_takes_int8_where_it_is_fastest_and_keeps_the_answers(change, taken, fast, film_run):
    checkpoint, task = film_run.model.checkpoint, film_run.model.task
    records = {"bf16": 0.001, "int8": change}
    noted = {f"{n}_loss": {"metric": "f1", "loss": 0.0, "change": c} for n, c in records.items()}
    known, cpu = replace(checkpoint, filbert=noted), torch.device("cpu")
    chosen = precision.choose_precision("auto", cpu)
    assert formats.keeping_answers(chosen, known, task, cpu).name == taken
    assert formats.keeping_answers(chosen, known, None, cpu).name == "bf16"
    assert formats.keeping_answers(chosen, known, task, torch.device("cuda")).name == "bf16"


def test_vectors_have_no_sides_to_change(tiny_model, fast):
    found = Predictor.load(tiny_model, precision="auto")
    assert found.task is None
    assert next(found.model.parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        ({"metric": "f1", "loss": 0.003, "change": 0.02}, None),
        (
            {"metric": "f1", "loss": 0.0137, "change": 0.02},
            "int8 costs 1.37 points of f1 on the dev",
        ),
        (None, "int8 was not compared with float32 on labelled rows: filbert convert --to int8"),
    ],
    ids=["bearable", "dear", "unknown"],
)
def test_what_int8_costs_is_told_where_it_is_more_than_a_little(noted, said, film_run):
    checkpoint, task = film_run.model.checkpoint, film_run.model.task
    known = replace(checkpoint, filbert={**(checkpoint.filbert or {}), "int8_loss": noted})
    warning = formats.int8_warning(precision.Precision("int8", "as asked"), known, task)
    assert (warning is None) == (said is None)
    assert said is None or said in warning
    assert formats.int8_warning(precision.Precision("float32", "default"), known, task) is None
    calibrated = replace(known, filbert={**known.filbert, "int8": {"float_layers": []}})
    assert formats.int8_warning(precision.Precision("int8", "as asked"), calibrated, task) is None
