"""Fine-tuning a fine-tuned model: its head is kept where task and labels are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.opening import read_checkpoint
from filbert.inference.forward import run_model
from filbert.model.heads import Model
from filbert.model.precision import Precision
from filbert.tasks.base import Task
from filbert.tasks.classification import Classification
from filbert.tasks.multiple_choice import MultipleChoice
from filbert.tasks.regression import Regression
from filbert.tasks.rows import row_of_value
from filbert.tasks.span_qa import SpanQA
from filbert.tasks.tagging import Tagging
from filbert.text.tokenizer import Tokenizer
from filbert.train.base_model import build, has_new_head, load_for_task
from filbert.train.options import BaseModelOptions

TEXT = "the film was good"
# Head, labels, problem type as config.json has it; the task, and an item for it.
SAME: dict[str, tuple[str, tuple[str, ...] | None, str | None, Task, Any]] = {
    "classes": ("sequence", ("a", "b", "c"), None, Classification(labels=("a", "b", "c")), TEXT),
    "multilabel": (
        "sequence",
        ("a", "b"),
        "multi_label_classification",
        Classification(labels=("a", "b"), multilabel=True),
        TEXT,
    ),
    "score": ("sequence", ("LABEL_0",), None, Regression(), TEXT),
    "tags": ("tokens", ("O", "B-x", "I-x"), None, Tagging(labels=("O", "B-x", "I-x")), TEXT),
    "squad 2.0 after 1.1": ("spans", None, None, SpanQA(has_unanswerable=True), ("he", TEXT)),
    "choices": (
        "choices",
        None,
        None,
        MultipleChoice(),
        {"context": TEXT, "choices": ["good", "bad"]},
    ),
}


@pytest.fixture
def trained(tiny_model: Path, tmp_path: Path) -> Any:
    """Writes a Hugging Face folder with a head of this kind."""

    def write(kind: str, labels: tuple[str, ...] | None, problem_type: str | None) -> Path:
        torch.manual_seed(3)
        checkpoint = with_new_head(
            read_checkpoint(tiny_model), kind, labels=labels, problem_type=problem_type
        )
        huggingface.write(checkpoint, tmp_path / "trained")
        Tokenizer.load(tiny_model).save(tmp_path / "trained")
        return tmp_path / "trained"

    return write


def start(folder: Path, task: Task, **options: Any) -> tuple[Model, list[str]]:
    """The model before its first step, and what is logged of it."""
    torch.manual_seed(42)
    checkpoint, _, _ = load_for_task(BaseModelOptions(name=str(folder), **options), task)
    notes = [n for n in checkpoint.notes if "head" in n]
    assert has_new_head(checkpoint, task) == notes[-1].startswith("new head: ")
    return build(checkpoint, task), notes


def logits(model: Model, folder: Path, task: Task, item: Any) -> Tensor:
    examples = task.examples(
        [row_of_value(task, item, 0)], Tokenizer.load(folder), max_length=32, with_targets=False
    )
    exact = Precision("float32", "test")
    return torch.stack(run_model(model, examples, max_tokens=100, precision=exact))


@pytest.mark.parametrize("name", SAME)
def test_the_head_of_the_same_task_and_labels_gives_its_logits_before_the_first_step(trained, name):
    kind, labels, problem_type, task, item = SAME[name]
    folder = trained(kind, labels, problem_type)
    model, notes = start(folder, task)
    before = logits(read_checkpoint(folder).build(), folder, task, item)
    assert torch.equal(logits(model, folder, task, item), before)
    assert len(notes) == 1 and notes[0].startswith("head kept: ")


def test_new_head_draws_another(trained):
    kind, labels, problem_type, task, item = SAME["classes"]
    folder = trained(kind, labels, problem_type)
    model, notes = start(folder, task, new_head=True)
    before = logits(read_checkpoint(folder).build(), folder, task, item)
    assert not torch.allclose(logits(model, folder, task, item), before)
    assert notes == ["new head: sequence with 3 outputs."]


def test_labels_in_another_order_keep_their_rows_of_the_head(trained):
    folder = trained("sequence", ("a", "b", "c"), None)
    task = Classification(labels=("c", "a", "b"))
    model, _ = start(folder, task)
    before = logits(read_checkpoint(folder).build(), folder, task, TEXT)
    # The sums of a product may be taken in another order for another column: float32 rounding.
    torch.testing.assert_close(logits(model, folder, task, TEXT), before[:, [2, 0, 1]])


@pytest.mark.parametrize(
    ("problem_type", "task"),
    [
        (None, Classification(labels=("a", "c"))),
        (None, Classification(labels=("a", "b", "c"))),
        (None, Classification(labels=("a", "b"), multilabel=True)),
        ("multi_label_classification", Classification(labels=("a", "b"))),
        (None, Regression()),
        (None, Tagging(labels=("a", "b"))),
    ],
)
def test_another_task_or_other_labels_get_a_new_head(trained, problem_type, task):
    _, notes = start(trained("sequence", ("a", "b"), problem_type), task)
    assert notes[-1].startswith("new head: ")
