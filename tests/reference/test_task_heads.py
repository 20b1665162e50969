"""Labels and problem types of every family's task classes, there and back through transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.conftest import sizes
from tests.reference.theirs import transformers

from filbert.checkpoints import huggingface

LABELS = {0: "né", 1: "B-PER", 2: "of two words"}
SIZES: dict[str, Any] = sizes(vocab_size=31, layers=2, width=16, heads=2, inner=24, positions=20)
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": SIZES,
    "roberta": {**SIZES, "type_vocab_size": 1},
    "xlm-roberta": {**SIZES, "type_vocab_size": 1},
    "camembert": {**SIZES, "type_vocab_size": 1},
    "distilbert": {
        "vocab_size": 31,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 24,
        "max_position_embeddings": 20,
    },
    "albert": {**SIZES, "embedding_size": 8},
    "electra": {**SIZES, "embedding_size": 8},
}
# The head, the problem, and whether there are labels.
TASKS = {
    "AutoModelForMaskedLM": [("masked_lm", None)],
    "AutoModelForSequenceClassification": [
        ("sequence", None),
        ("sequence", "single_label_classification"),
        ("sequence", "multi_label_classification"),
        ("sequence", "regression"),
    ],
    "AutoModelForTokenClassification": [("tokens", None)],
    "AutoModelForQuestionAnswering": [("spans", None)],
    "AutoModelForMultipleChoice": [("choices", None)],
}
CASES = [(auto, *case) for auto, cases in TASKS.items() for case in cases]


@pytest.mark.parametrize(("auto", "head", "problem"), CASES)
@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_task_class_keeps_its_labels_and_its_problem_there_and_back(
    family, auto, head, problem, tmp_path
):
    labels = {0: "LABEL_0"} if problem == "regression" else LABELS
    settings = FAMILIES[family] | ({"problem_type": problem} if problem else {})
    if head in ("sequence", "tokens"):
        back = {name: id_ for id_, name in labels.items()}
        settings |= {"id2label": labels, "label2id": back}
    config = transformers.AutoConfig.for_model(family, **settings)
    torch.manual_seed(0)
    model = getattr(transformers, auto).from_config(config)
    model.save_pretrained(tmp_path / "theirs")

    checkpoint = huggingface.read(tmp_path / "theirs")
    has_labels = head in ("sequence", "tokens")
    assert checkpoint.labels == (tuple(labels.values()) if has_labels else None)
    assert (checkpoint.head, checkpoint.problem_type) == (head, problem)
    assert checkpoint.notes == ()

    huggingface.write(checkpoint, tmp_path / "ours")
    again, report = getattr(transformers, auto).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert {name: found for name, found in report.items() if found} == {}
    assert type(again) is type(model)
    assert again.config.problem_type == problem
    assert not has_labels or again.config.id2label == labels
    old, new = model.state_dict(), again.state_dict()
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], value) for name, value in new.items())
