"""A task is one file in `tasks/`, nothing is registered, and a complete one has 80 lines."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import filbert.tasks

# How often something happens: the head gives the logarithm of a rate (Poisson regression).
SOURCE = '''
"""Counts: how often something happens, for a text or a pair of texts."""

from dataclasses import dataclass

import numpy as np
from torch.nn import functional as F

from filbert.data.examples import lengths_of
from filbert.errors import InputError
from filbert.metrics.similarity import regression_metrics
from filbert.model.pooling import mean_of_groups
from filbert.tasks.base import TaskSpec
from filbert.tasks.regression import SCORED
from filbert.tasks.rows import row_outputs, row_targets, text_examples


@dataclass(frozen=True)
class Counts:
    """The logarithm of a rate, learnt from counts."""

    spec = TaskSpec(
        name="counts",
        row_format=SCORED,
        head_kind="sequence",
        num_labels=1,
        problem_type="regression",
        metric_names=("spearman", "pearson", "mse"),
        selection_metric="spearman",
    )

    @classmethod
    def from_options(cls, options, names):
        return cls()

    def fit(self, rows):
        for row in rows:
            self.gold(row)
        return self

    def gold(self, row):
        value = str(row.values.get("label"))
        if not value.isdecimal():
            raise InputError(f"{row.where}: label {value!r} is not a count.")
        return int(value)

    def examples(self, rows, tokenizer, *, max_length, with_targets):
        return text_examples(
            self, rows, tokenizer, max_length=max_length, with_targets=with_targets
        )

    def targets(self, examples):
        return row_targets(examples, np.float32)

    def count(self, targets):
        return float(len(targets.values))

    def loss(self, output, targets):
        rates = mean_of_groups(output.float().squeeze(-1), targets.groups)
        return F.poisson_nll_loss(rates, targets.values, reduction="sum")

    def decode(self, outputs, examples):
        rates = row_outputs(outputs, examples).exp().squeeze(-1).tolist()
        lengths = lengths_of(examples)
        return [{"value": r} | length for r, length in zip(rates, lengths, strict=True)]

    def calibrate(self, gold, outputs, examples):
        return self

    def metrics(self, gold, predictions):
        return dict(regression_metrics(gold, [p["value"] for p in predictions]))


TASK = Counts
'''


@pytest.fixture
def new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The source as a file of `tasks/`."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "counts.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setattr(filbert.tasks, "__path__", [*filbert.tasks.__path__, str(folder)])
    yield
    sys.modules.pop("filbert.tasks.counts", None)
    vars(filbert.tasks).pop("counts", None)


def test_a_task_of_80_lines_is_checked_trained_evaluated_predicted_and_served(
    call, new_file, tiny_model, tmp_path, monkeypatch
):
    assert len(SOURCE.strip().splitlines()) <= 80
    rows = tmp_path / "rows.csv"
    lines = [f"film {'good ' * (i % 9)},{i % 9}" for i in range(72)]
    rows.write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    checked = call("check", "--task", "counts", rows, "--model", tiny_model)
    assert checked.status == 0, checked.err
    out = tmp_path / "run"
    trained = call(
        "finetune", "--task", "counts", "--model", tiny_model, "--train", rows, "--dev", rows,
        "--out", out, "--steps", 60, "--lr", 3e-3, "--precision", "float32",
    )  # fmt: skip
    assert trained.status == 0, trained.err
    model = out / "model"
    measured = call("evaluate", model, "--data", rows, "--json")
    assert json.loads(measured.out)["pearson"] > 0.8, measured.err
    predicted = call("predict", model, rows)
    rates = [json.loads(line)["value"] for line in predicted.out.splitlines()]
    # Rates, not their logarithms.
    assert len(rates) == 72 and min(rates) > 0 and 4 < max(rates) < math.inf
    served = []

    def ask(server) -> None:
        with TestClient(server.config.app) as client:
            served.append(client.post("/predict", json={"inputs": "film good"}).json())

    monkeypatch.setattr("uvicorn.Server.run", ask)
    before = signal.getsignal(signal.SIGTERM)
    assert call("serve", model).status == 0
    signal.signal(signal.SIGTERM, before)
    assert served[0][0]["score"] == pytest.approx(rates[1], rel=1e-4)
