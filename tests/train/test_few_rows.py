"""A classifier on few rows: the contrastive loss, the start of the head, and when both are used."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tests.train.conftest import tune

from filbert.checkpoints.opening import read_checkpoint
from filbert.errors import ConfigError
from filbert.inference.forward import run_model
from filbert.losses.contrastive import label_contrast
from filbert.model.precision import Precision
from filbert.tasks.classification import Classification
from filbert.tasks.rows import row_of_value
from filbert.train.base_model import build, load_for_task
from filbert.train.defaults import contrast_weight
from filbert.train.linear import start_head
from filbert.train.options import BaseModelOptions, FinetuneOptions

EXACT = Precision("float32", "test")
TEXTS = ("the film was good", "it was bad", "good", "the bad film", "he was it", "a film")
LABELS = [0, 1, 0, 1, 2, 2]


def test_the_contrastive_loss_is_the_sum_of_the_formula():
    torch.manual_seed(1)
    vectors = torch.randn(6, 5, dtype=torch.float64)
    labels = [0, 1, 0, 2, 1, 0]  # the only text of label 2 adds nothing
    unit = [vector / vector.norm() for vector in vectors]
    expected = 0.0
    for one in range(6):
        others = [other for other in range(6) if other != one]
        total = sum(math.exp(unit[one] @ unit[other] / 0.1) for other in others)
        same = [other for other in others if labels[other] == labels[one]]
        for other in same:
            share = math.exp(unit[one] @ unit[other] / 0.1) / total
            expected -= math.log(share) / len(same)
    found = label_contrast(vectors, torch.tensor(labels))
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_the_head_starts_as_scikit_learns_logistic_regression(tiny_model: Path):
    task = Classification(labels=("a", "b", "c"))
    checkpoint, tokenizer, length = load_for_task(BaseModelOptions(name=str(tiny_model)), task)
    model = build(checkpoint, task)
    rows = [row_of_value(task, text, index) for index, text in enumerate(TEXTS)]
    examples = task.examples(rows, tokenizer, max_length=length, with_targets=False)
    start_head(model, examples, LABELS)
    found = torch.stack(run_model(model, examples, precision=EXACT)).numpy()

    model.head.out.weight.data, model.head.out.bias.data = torch.eye(32), torch.zeros(32)
    vectors = torch.stack(run_model(model, examples, precision=EXACT)).double().numpy()
    scaled = (vectors - vectors.mean(0)) / np.sqrt(vectors.var(0).sum())
    reference = LogisticRegression(C=10, max_iter=1000).fit(scaled, LABELS)
    np.testing.assert_allclose(found, reference.decision_function(scaled), atol=1e-4)
    assert found.argmax(1).tolist() == LABELS


def weight(num_rows: int = 50, *, is_new: bool = True, labels: int = 2, **given: object) -> float:
    files = {"model": "minilm", "train": "rows.csv", "out": "run", "task": "classification"}
    options = FinetuneOptions.from_keywords(files | given)
    spec = Classification(labels=tuple("abc"[:labels]), multilabel=options.task.options.multilabel)
    return contrast_weight(options, spec.spec, num_rows=num_rows, has_new_head=is_new)


def test_few_rows_have_the_contrastive_loss_where_nothing_is_given():
    assert weight() == 1.0
    assert weight(contrast=0.3, epochs=3) == 0.3
    assert weight(num_rows=1_000) == weight(is_new=False) == weight(multilabel=True) == 0.0
    for given in ({"lr": 1e-4}, {"steps": 5}, {"freeze": "embeddings"}, {"lora": 4}):
        assert weight(**given) == 0.0
    for refused in ({"multilabel": True}, {"is_new": False}):
        with pytest.raises(ConfigError, match="new head, and rows of one label each"):
            weight(contrast=1, **refused)


def test_a_run_adds_the_contrastive_loss_and_saves_a_plain_classifier(
    tiny_model: Path, films: Path, tmp_path: Path
):
    run = tune(tiny_model, films, tmp_path / "run", steps=3, contrast=0.5)
    lines = (tmp_path / "run/metrics.jsonl").read_text("utf-8").splitlines()
    first = json.loads(lines[0])
    assert first["loss"] == pytest.approx(first["label_loss"] + first["contrast_loss"])
    assert run.facts["options"]["contrast"] == 0.5
    plain = read_checkpoint(tmp_path / "run/model")
    assert plain.head == "sequence"
