"""CONTRIBUTING's promise: a task is one file in `tasks/`, and nothing has to be registered."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator

import pytest

import filbert.tasks

# How often something happens: the head gives the logarithm of a rate (Poisson regression).
SOURCE = '''
"""Counts: how often, for a text."""

from dataclasses import dataclass

from torch.nn import functional as F

from filbert.model.pooling import mean_of_groups
from filbert.tasks.regression import Regression


@dataclass(frozen=True)
class Counts(Regression):
    """The logarithm of a rate."""

    name = "counts"

    def loss(self, output, targets):
        """Sum of the negative log-likelihoods, without the faculty."""
        rates = mean_of_groups(output.float().squeeze(-1), targets.groups or ())
        return F.poisson_nll_loss(rates, targets.values, reduction="sum")

    def decode(self, outputs, examples):
        """The rate."""
        return [one | {"value": 2.718281828459045 ** one["value"]}
                for one in super().decode(outputs, examples)]


TASK = Counts
'''


@pytest.fixture
def new_file(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if it lay beside the others."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "counts.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setattr(filbert.tasks, "__path__", [*filbert.tasks.__path__, str(folder)])
    yield
    sys.modules.pop("filbert.tasks.counts", None)
    vars(filbert.tasks).pop("counts", None)


def test_one_file_is_a_task_of_every_verb(call, new_file, tiny_model, tmp_path):
    rows = tmp_path / "rows.csv"
    with rows.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows((f"film {'good ' * (i % 9)}", i % 9) for i in range(72))
    checked = call("check", "--task", "counts", rows, "--model", tiny_model)
    assert checked.status == 0, checked.err
    out = tmp_path / "run"
    trained = call(
        "finetune", "--task", "counts", "--model", tiny_model, "--train", rows, "--dev", rows,
        "--out", out, "--steps", 60, "--lr", 3e-3, "--precision", "float32",
    )  # fmt: skip
    assert trained.status == 0, trained.err
    model = out / "model"
    assert json.loads((model / "filbert.json").read_text("utf-8"))["task"]["name"] == "counts"
    measured = call("evaluate", model, "--data", rows, "--json")
    assert json.loads(measured.out)["pearson"] > 0.8, measured.err
    answered = call("predict", model, rows)
    rates = [json.loads(line)["value"] for line in answered.out.splitlines()]
    assert len(rates) == 72 and min(rates) > 0 and math.isfinite(max(rates))
    # Rates, and not their logarithms.
    assert max(rates) > 4
    assert "counts" in call("info", model).out
