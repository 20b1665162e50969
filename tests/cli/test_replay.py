"""`filbert replay`: its table, its JSON, its exit status."""

from __future__ import annotations

import json
import re

import pytest

import filbert
from filbert.cli.verbs.train import replay


@pytest.fixture(scope="module")
def run(tiny_model, films, tmp_path_factory) -> filbert.Run:
    return filbert.finetune(
        task="classification", model=str(tiny_model), train=str(films / "train.csv"),
        dev=str(films / "dev.csv"), out=str(tmp_path_factory.mktemp("replay") / "x"), steps=2,
        precision="float32", device="cpu",
    )  # fmt: skip


def test_the_same_run_ends_with_status_0_and_a_table(run, capsys):
    assert replay(str(run.folder), device="cpu") == 0
    text = capsys.readouterr().out
    assert "dev roc auc" in text
    assert "weights: the same, bit for bit" in text
    assert re.search(r"metrics: (\d+) of \1 are equal", text)


def test_another_run_ends_with_status_1_and_says_by_how_much(run, capsys, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for path in (run.folder / "model").iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    story = json.loads((model / "filbert.json").read_text())
    story["metrics"]["dev"]["loss"] += 0.25
    story["options"]["dev"] = str(run.facts["data"]["dev"]["path"])
    story["options"]["train"] = str(run.facts["data"]["train"]["path"])
    for split in ("train", "dev"):
        story["data"][split]["path"] = story["options"][split]
    story["options"]["model"] = run.facts["options"]["model"]
    (model / "filbert.json").write_text(json.dumps(story))
    given = {"out": str(tmp_path / "out"), "device": "cpu"}
    assert replay(str(model), **given, json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["same"], found["same_weights"]) == (False, True)
    loss = next(one for one in found["metrics"] if one["metric"] == "loss")
    assert loss["difference"] == pytest.approx(0.25)
    assert sum(one["difference"] != 0 for one in found["metrics"]) == 1
    assert replay(str(model), **given, overwrite=True, tolerance=0.3) == 0
