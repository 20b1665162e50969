from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from filbert.data.columns import ColumnNames
from filbert.data.examples import collate
from filbert.errors import ConfigError
from filbert.predict import Predictor
from filbert.shrink.importance import head_importance, masked_heads, metrics_without
from filbert.tasks.embedding import Embedding


@pytest.fixture(scope="module")
def predictor(film_run):
    return Predictor.load(film_run.model.checkpoint.source)


@pytest.fixture(scope="module")
def labelled(predictor, films):
    task = predictor.task
    rows = list(task.read(films / "dev.csv", ColumnNames()))[:12]
    examples = task.examples(rows, predictor.tokenizer, max_length=32, with_targets=True)
    return [task.gold(row) for row in rows], examples


def scaled_losses(predictor, example, layer, head, factor):
    """The loss of one row with a head's share multiplied."""
    model, size = predictor.model, predictor.model.config.head_size
    weight = model.encoder.layers[layer].attention_out.weight
    columns = slice(head * size, (head + 1) * size)
    before = weight.detach().clone()
    with torch.no_grad():
        weight[:, columns] *= factor
        loss = predictor.task.loss(model(collate([example])), predictor.task.targets([example]))
        weight.copy_(before)
    return float(loss)


def test_importance_is_the_mean_size_of_each_rows_difference_quotient(predictor, labelled):
    _, examples = labelled
    found = head_importance(predictor.model, predictor.task, examples)
    step = 1e-2
    for layer, head in ((0, 0), (0, 3), (1, 2)):
        quotients = [
            scaled_losses(predictor, e, layer, head, 1 + step)
            - scaled_losses(predictor, e, layer, head, 1 - step)
            for e in examples
        ]
        wanted = sum(map(abs, quotients)) / (2 * step) / len(examples)
        # The error of a central difference in float32.
        assert float(found[layer, head]) == pytest.approx(wanted, rel=0.02, abs=2e-4)
        # A gradient of the mean loss would let rows cancel each other.
        assert abs(sum(quotients)) / (2 * step) / len(examples) < 0.98 * wanted


def test_a_loss_that_compares_rows_says_nothing_about_one(predictor, labelled):
    with pytest.raises(ConfigError, match="row by row"):
        head_importance(predictor.model, Embedding(loss_kind="contrastive"), labelled[1])


def test_importance_does_not_depend_on_how_rows_are_batched(predictor, labelled):
    _, examples = labelled
    whole = head_importance(predictor.model, predictor.task, examples)
    alone = head_importance(predictor.model, predictor.task, examples, max_tokens=1)
    assert torch.allclose(whole, alone, rtol=1e-4, atol=1e-7)


def test_the_windows_of_a_row_count_as_one_row(predictor, films):
    task = replace(predictor.task, on_overflow="window", stride=4)
    rows = [r for r in task.read(films / "dev.csv", ColumnNames()) if len(r.values["text"]) > 40]
    examples = task.examples(rows[:3], predictor.tokenizer, max_length=8, with_targets=True)
    assert len(examples) > 3
    together = head_importance(predictor.model, task, examples)
    by_row = [
        head_importance(predictor.model, task, [e for e in examples if e.row == row])
        for row in range(3)
    ]
    assert torch.allclose(together, sum(by_row) / 3, rtol=1e-4, atol=1e-7)


def test_the_metrics_without_a_head_are_those_of_a_model_in_which_it_adds_nothing(
    predictor, labelled
):
    gold, examples = labelled
    found = {
        (layer, head): metrics
        for layer, head, metrics in metrics_without(predictor, gold, examples)
    }
    assert sorted(found) == [(layer, head) for layer in range(2) for head in range(4)]
    with masked_heads(predictor.model, [(1, 2)]):
        masked = predictor.task.metrics(gold, predictor.answers(examples))
    assert found[1, 2]["loss"] == masked["loss"]
    whole = predictor.task.metrics(gold, predictor.answers(examples))
    assert found[1, 2]["loss"] != whole["loss"]


def test_nothing_is_left_behind_in_the_model(predictor, labelled):
    model = predictor.model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    head_importance(model, predictor.task, labelled[1])
    with pytest.raises(RuntimeError), masked_heads(model, [(0, 1)]):
        raise RuntimeError
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    hooks = [layer.attention_out._forward_pre_hooks for layer in model.encoder.layers]
    assert not any(hooks)


def test_models_without_heads_of_their_own_in_every_layer_are_refused(drawn):
    shared = drawn(kind=None, num_hidden_groups=1).build()
    with pytest.raises(ConfigError, match="share their weights"), masked_heads(shared, [(0, 0)]):
        pass
