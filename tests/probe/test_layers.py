"""Heads on frozen layers: they find the layer that knows, and their figures add up."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from filbert.checkpoints.opening import read_checkpoint
from filbert.data.examples import Example
from filbert.errors import ConfigError
from filbert.probe import layer_fit
from filbert.probe.layer_choices import Choice, table_choices
from filbert.probe.layer_fit import Fitted, fit_head, goodness, mean_loss
from filbert.probe.layer_heads import LayerHead
from filbert.probe.layer_options import LayersOptions
from filbert.probe.layer_states import LayerStates
from filbert.probe.layers import compare_layers, spread
from filbert.tasks.classification import Classification
from filbert.tasks.tagging import Tagging
from filbert.train.prepare import Split

Results = dict[str, Any]


# A model whose second layer alone knows the answer, made by hand


def _told() -> tuple[LayerStates, dict[str, Split], Classification]:
    """Noise in five layers of ten elements, but for the sign of one element of layer 2."""
    draw = np.random.default_rng(0)
    task = Classification(labels=("no", "yes"), positive="yes")
    splits, examples = {}, []
    for name, count in (("train", 192), ("dev", 64)):
        gold = draw.integers(0, 2, count).tolist()
        made = [
            Example(row, ids := np.full(draw.integers(1, 6), 7), ids * 0, len(ids), target)
            for row, target in enumerate(gold)
        ]
        splits[name] = Split(name, "", [], gold, made, "")
        examples += made
    starts, total = {}, 0
    for example in examples:
        starts[id(example)] = total
        total += len(example.input_ids)
    rows_TKH = torch.from_numpy(draw.normal(size=(total, 5, 10))).float()
    for example in examples:
        start = starts[id(example)]
        rows_TKH[start : start + len(example.input_ids), 2, 3] = 2.0 * example.target - 1.0
    return LayerStates(rows_TKH, (0, 1, 2, 3, 4), starts, examples), splits, task


class _Rows(NamedTuple):
    rows: np.ndarray


def _fit(choice: Choice, *, told: Classification | None = None, **changes: Any) -> Fitted:
    states, splits, task = _told()
    task = told or task
    given = {"task": "classification", "model": "m", "train": "t", "dev": "d", "head": "linear"}
    options = LayersOptions(**(given | {"epochs": 8, "lr": 0.03, "patience": 0} | changes))

    def new_head() -> LayerHead:
        return LayerHead(
            choice,
            hidden_size=10,
            num_labels=2,
            per_token=False,
            width=None,
            depth=2,
            pooling="mean",
            causal=False,
            dropped=0.0,
        )

    return fit_head(
        new_head,
        choice,
        states,
        splits,
        task,
        options.training(options.seed),
        device=torch.device("cpu"),
        max_tokens=64,
    )


def test_the_layer_that_knows_the_answer_gives_it_and_another_does_not():
    knows = _fit(Choice("k", "k", 2, 3, "one"))
    guesses = _fit(Choice("g", "g", 3, 4, "one"))
    assert knows.metrics["dev"]["roc_auc"] > 0.99
    assert guesses.metrics["dev"]["roc_auc"] < 0.75
    assert knows.weights is None


def test_a_weighted_sum_learns_which_layer_knows():
    found = _fit(Choice("s", "s", 1, 5, "sum"), batch_size=8)
    assert found.weights is not None
    assert sum(found.weights) == pytest.approx(1.0)
    # Of layers 1 to 4 the second.
    assert found.weights[1] == max(found.weights)
    assert found.weights[1] > 0.5
    assert found.metrics["dev"]["roc_auc"] > 0.99


def test_the_best_epoch_counts_and_patience_ends_the_training():
    found = _fit(Choice("g", "g", 3, 4, "one"), epochs=12, patience=1, lr=0.1)
    assert found.epochs == found.best_epoch + 1
    assert found.epochs < 12
    assert _fit(Choice("g", "g", 3, 4, "one"), epochs=5, lr=0.1).epochs == 5


def test_the_weights_of_the_best_epoch_are_what_is_measured(monkeypatch: pytest.MonkeyPatch):
    seen: list[torch.Tensor] = []
    whole = layer_fit.outputs_of

    def watched(*given: Any) -> list[torch.Tensor]:
        seen.append(torch.stack(outputs := whole(*given)))
        return outputs

    monkeypatch.setattr(layer_fit, "outputs_of", watched)
    found = _fit(Choice("g", "g", 3, 4, "one"), epochs=12, patience=1, lr=0.1)
    *by_epoch, last = seen
    assert len(by_epoch) == found.epochs
    assert torch.equal(last, by_epoch[found.best_epoch - 1])
    assert not torch.equal(last, by_epoch[-1])


def test_an_epoch_is_better_by_its_loss_where_the_metric_stands_still():
    unmoved = Classification(labels=("no", "yes"), positive="yes", thresholds=(1.0,))
    # Every row is called "no" in every epoch: its F1 is 0 throughout, and the loss falls.
    found = _fit(
        Choice("k", "k", 2, 3, "one"), epochs=6, patience=1, lr=1e-3, metric="f1", told=unmoved
    )
    assert found.epochs == found.best_epoch == 6


def test_the_mean_loss_is_that_of_the_rows_asked_for():
    task = Tagging(labels=("O", "B-x", "I-x"))
    # Two sentences of which three tokens are judged: those of rows 1, 2 and 4 of all.
    examples = [
        Example(0, np.arange(3), np.zeros(3), 3, np.array([0, 1]), _Rows(np.array([1, 2]))),
        Example(1, np.arange(2), np.zeros(2), 2, np.array([2]), _Rows(np.array([1]))),
    ]
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    by_hand = [-torch.log_softmax(logits[i], -1)[k].item() for i, k in ((1, 0), (2, 1), (4, 2))]
    found = mean_loss(task, [logits[:3], logits[3:]], examples)
    assert found == pytest.approx(statistics.fmean(by_hand), rel=1e-6)


def test_less_is_better_of_a_loss_and_a_missing_figure_falls_back_to_it():
    assert goodness({"loss": 0.2}, "loss") > goodness({"loss": 0.3}, "loss")
    assert goodness({"f1": 0.3}, "f1") > goodness({"f1": 0.2}, "f1")
    assert goodness({"roc_auc": None, "loss": 0.2}, "roc_auc") == -0.2
    assert goodness({"spearman": None}, "spearman") == -np.inf


def test_spread_is_mean_and_sample_deviation_and_nothing_where_a_value_is_missing():
    assert spread([1.0, 2.0, 4.0]) == {
        "mean": pytest.approx(7 / 3),
        "deviation": pytest.approx(1.5275252),
        "values": [1.0, 2.0, 4.0],
    }
    assert spread([1.0]) == {"mean": 1.0, "deviation": None, "values": [1.0]}
    assert spread([1.0, None])["mean"] is None


# Whole comparisons with a tiny model


@pytest.fixture(scope="module")
def options(deep_model: Path, films: Path) -> Callable[..., LayersOptions]:
    def make(**changes: Any) -> LayersOptions:
        given: dict[str, Any] = {
            "task": "classification",
            "model": str(deep_model),
            "train": str(films / "train.csv"),
            "dev": str(films / "dev.csv"),
            "positive": "pos",
            "head": "linear",
            "seeds": 2,
            "epochs": 2,
        }
        return LayersOptions.from_keywords(given | changes)

    return make


@pytest.fixture(scope="module")
def compared(options: Callable[..., LayersOptions], films: Path) -> Results:
    return compare_layers(options(test=str(films / "test.csv")))


def test_a_comparison_has_every_choice_with_mean_and_deviation_of_its_seeds(compared: Results):
    assert [c["name"] for c in compared["choices"]] == [c.name for c in table_choices(4)]
    for choice in compared["choices"]:
        values = [seed["metrics"]["dev"]["roc_auc"] for seed in choice["seeds"]]
        assert choice["dev"]["values"] == values
        assert choice["dev"]["mean"] == pytest.approx(statistics.fmean(values))
        assert choice["dev"]["deviation"] == pytest.approx(statistics.stdev(values))
        assert [seed["seed"] for seed in choice["seeds"]] == [42, 43]
        assert choice["test"]["mean"] is not None
        # As a fine-tuned model: the threshold is fitted on dev, and holds for test.
        chosen = [seed["metrics"] for seed in choice["seeds"]]
        assert all(m["dev"]["threshold"] == m["test"]["threshold"] != 0.5 for m in chosen)
    sizes = [c["size"] for c in compared["choices"]]
    assert sizes == [32, 32, 32, 128, 32]
    assert compared["choices"][3]["parameters"] == 128 * 2 + 2
    assert any("choices that would repeat another" in note for note in compared["notes"])


def test_the_same_seed_gives_the_same_figures(
    compared: Results, options: Callable[..., LayersOptions]
):
    again = compare_layers(options(only=("last",), seeds=1, seed=43))
    (last,) = again["choices"]
    before = next(c for c in compared["choices"] if c["name"] == "last")
    # Alone or in company of other layers: the same states.
    assert last["dev"]["values"] == before["dev"]["values"][1:]


def test_a_bilstm_tags_words_and_fine_tuning_stands_beside_it(
    options: Callable[..., LayersOptions], tmp_path: Path
):
    words = {"he": "B-who", "she": "B-who"}
    draw = np.random.default_rng(0)
    for name in ("train", "dev"):
        lines = []
        for _ in range(48):
            sentence = draw.choice(["he", "she", "film", "was", "good", "run"], 5)
            lines += [f"{word}\t{words.get(word, 'O')}" for word in sentence] + [""]
        (tmp_path / f"{name}.conll").write_text("\n".join(lines) + "\n")
    found = compare_layers(
        options(
            task="tagging",
            positive=None,
            train=str(tmp_path / "train.conll"),
            dev=str(tmp_path / "dev.conll"),
            head="bilstm",
            width=8,
            only=("embeddings",),
            seeds=1,
            epochs=12,
            patience=0,
            batch_size=8,
            lr=0.01,
            finetune=True,
            finetune_epochs=1,
        )
    )
    # Words that are known by their embedding alone.
    assert found["choices"][0]["dev"]["mean"] > 0.95
    assert found["head"] == "BiLSTM, 2 layers of 8 units in each direction"
    assert found["finetuned"]["dev"]["values"][0] == found["finetuned"]["dev"]["mean"]
    encoder = read_checkpoint(Path(found["model"])).build()
    assert found["finetuned"]["parameters"] > sum(
        p.numel() for p in encoder.encoder.layers.parameters()
    )


# What is refused


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"task": "span_qa", "positive": None}, "is not one of classification, tagging"),
        ({"head": "bilsm"}, r"head is 'bilsm'.*Did you mean 'bilstm'"),
        ({"pooling": "none"}, "pooling is 'none'"),
        ({"width": 16}, "a linear head has neither"),
        ({"seeds": 0}, "seeds is 0; it must be above zero"),
        ({"head_dropout": 1.0}, "head_dropout is 1.0"),
        ({"max_length": 600}, "600"),
        ({"only": ("lats",)}, "Did you mean 'last'"),
        ({"metric": "f2"}, "metric 'f2' is not one of"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_computed(
    options: Callable[..., LayersOptions], changes: dict[str, Any], says: str
):
    with pytest.raises(ConfigError, match=says):
        compare_layers(options(**changes))
