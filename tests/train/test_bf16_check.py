"""What bf16 costs is measured after training, and `--precision auto` goes by it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tests.train.conftest import stress

from filbert.data.columns import ColumnNames
from filbert.evaluate import evaluate_model
from filbert.predict import Predictor
from filbert.speed import precision
from filbert.train.finetune import finetune

TASKS = ["classification", "embedding"]


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor on which bf16 is three times as fast."""
    monkeypatch.setattr(precision, "bf16_gain", lambda: 3.0)


def trained(task: str, place: Path) -> tuple[dict, Path]:
    """What a short run says, and its dev rows."""
    module = stress()
    module.make_model(place / "start")
    files = module.make_rows(place, task)
    given = module.options(task, place / "start", files, place / "run", steps=20, lr=3e-3)
    return finetune(given), Path(files["dev"])


@pytest.mark.parametrize("task", TASKS)
def test_the_loss_is_that_of_the_folder_in_bf16(task: str, fast: None, tmp_path: Path) -> None:
    run, dev = trained(task, tmp_path)
    said = run["bf16_loss"]
    folder = tmp_path / "run" / "model"
    assert json.loads((folder / "filbert.json").read_text("utf-8"))["bf16_loss"] == said

    def measured(name: str) -> dict:
        return evaluate_model(Predictor.load(folder, precision=name), str(dev), ColumnNames())

    exact, rounded = measured("float32"), measured("bf16")
    names = [n for n in Predictor.load(folder).known_task().metric_names if exact[n] is not None]
    shares = [name for name in names if name not in ("loss", "mse")]
    worst = max(exact[name] - rounded[name] for name in shares)
    assert said["loss"] == pytest.approx(worst, abs=1e-6)
    assert said["float32"] == pytest.approx(exact[said["metric"]], abs=1e-6)
    assert said["rows"] == run["data"]["dev"]["rows"] > 10


def test_where_bf16_is_slow_nobody_waits_for_it(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(precision, "bf16_gain", lambda: 1.0)
    run, _ = trained("classification", tmp_path)
    assert run["bf16_loss"] is None


@pytest.mark.parametrize(
    ("record", "taken", "why"),
    [
        ({"metric": "mcc", "loss": -0.01}, torch.bfloat16, ""),
        ({"metric": "mcc", "loss": 0.003}, torch.bfloat16, ""),
        ({"metric": "mcc", "loss": 0.0068}, torch.float32, "0.68 points of mcc on its dev rows"),
        (None, torch.float32, "nobody has measured"),
        ({"loss": "none"}, torch.float32, "nobody has measured"),
        (3, torch.float32, "nobody has measured"),
    ],
    ids=["better", "just", "worse", "unknown", "broken", "no record"],
)
def test_auto_takes_what_keeps_the_answers(
    record, taken, why, film_run, fast, tmp_path, caplog
) -> None:
    folder = shutil.copytree(film_run.folder / "model", tmp_path / "model")
    story = json.loads((folder / "filbert.json").read_text("utf-8"))
    (folder / "filbert.json").write_text(json.dumps(story | {"bf16_loss": record}), "utf-8")
    caplog.set_level("INFO")
    found = Predictor.load(folder, precision="auto")
    assert next(found.model.parameters()).dtype == taken
    assert why in caplog.text
    assert bool(why) == ("precision auto" in caplog.text)
    # What is asked for by name is taken all the same.
    rounded = Predictor.load(folder, precision="bf16")
    assert next(rounded.model.parameters()).dtype == torch.bfloat16


def test_vectors_have_no_sides_to_change(tiny_model: Path, fast: None) -> None:
    found = Predictor.load(tiny_model, precision="auto")
    assert found.task is None
    assert next(found.model.parameters()).dtype == torch.bfloat16
