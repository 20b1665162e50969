"""A run is compared with a simple predictor and says when it does not beat it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import filbert
from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.metrics.similarity import regression_metrics
from filbert.tasks.base import TaskOptions, task_class
from filbert.train import measure
from filbert.train.measure import measure_baselines
from filbert.train.splits import Split

CPU = torch.device("cpu")
# Of the encoder that training starts from, only the kind of vocabulary is read.
START = (None, SimpleNamespace(kind="wordpiece"), 64)


def measured(task_name, metric, model, train, dev, *, start=START, dev_name="dev", **options):
    """`train` and `dev` are lists of a row's values; `model` is the value of the trained model."""
    task = task_class(task_name).from_options(TaskOptions(**options), ColumnNames())
    rows = {
        name: [Row(values, name, line) for line, values in enumerate(part)]
        for name, part in (("train", train), (dev_name, dev))
    }
    task = task.fit(rows["train"])
    splits = {
        name: Split(name, part, [task.gold(row) for row in part], [], "")
        for name, part in rows.items()
    }
    metrics = {dev_name: {metric: model}}
    return measure_baselines(task, splits, metrics, metric, start, CPU)[0]


def test_the_interval_of_a_difference_excludes_zero_only_for_a_better_model():
    labels = ["a", "b"] * 40
    rows = [{"text": "x", "label": label} for label in labels]
    task = task_class("classification").from_options(TaskOptions(), ColumnNames())
    task = task.fit([Row(values, "train", line) for line, values in enumerate(rows)])

    def answers(share_of_a):
        scores = {"a": share_of_a, "b": 1 - share_of_a}
        return {"label": max(scores, key=scores.get), "scores": scores}

    gold = [task.labels.index(label) for label in labels]
    right = [answers(0.9 if label == "a" else 0.1) for label in labels]
    same = [answers(0.4)] * len(labels)
    found = measure.differences(task, gold, right, same)
    # Areas of 1 and 0.5 in every resample.
    assert found["roc_auc"] == {"low": 0.5, "high": 0.5, "p": 2 / 1001}
    equal = {"low": 0.0, "high": 0.0, "p": 1.0}
    assert measure.differences(task, gold, same, same)["f1"] == equal


def test_spearman_of_resamples_is_that_of_their_rows():
    draw = np.random.default_rng(0)
    gold, values = draw.integers(0, 5, 12), draw.integers(0, 9, 12)
    weights = draw.multinomial(12, np.full(12, 1 / 12), size=50).T
    weights[:, 0] = 12 * (np.arange(12) == 3)  # one row twelve times: no correlation
    found = measure._spearman(gold, [{"value": value} for value in values])(weights)
    wanted = [
        regression_metrics(np.repeat(gold, w), np.repeat(values, w))["spearman"] or 0.0
        for w in weights.T
    ]
    assert found["spearman"] == pytest.approx(np.array(wanted), abs=1e-12)


def test_several_labels_and_tags_have_baselines_that_read_the_words():
    rows = [{"text": f"{w} film", "labels": [w]} for w in ("good", "bad", "long")] * 8
    found = measured("classification", "micro_f1", 0.0, rows, rows, multilabel=True)
    assert (found["name"], found["value"]) == ("TF-IDF + logistic regression", 1.0)
    rows = [{"tokens": ["Bo", "met", "Al"], "tags": ["B-PER", "O", "B-PER"]}]
    other = [{"tokens": ["Bo", "saw", "Cy"], "tags": ["B-PER", "O", "B-PER"]}]
    found = measured("tagging", "f1", 0.0, rows, other)
    # One of two entities is found, and it is right.
    assert found["value"] == pytest.approx(2 / 3)


WORDS = [{"text": f"a {word} film", "label": word} for word in ("good", "bad", "bad")] * 8


def test_a_classifier_is_compared_with_tfidf_and_with_the_majority_where_that_is_left_out(
    monkeypatch,
):
    found = measured("classification", "accuracy", 0.8, WORDS, WORDS[:3])
    assert found == {
        "name": "TF-IDF + logistic regression", "split": "dev", "metric": "accuracy",
        "value": 1.0, "model": 0.8, "is_beaten": False,
    }  # fmt: skip
    monkeypatch.setattr(measure, "TFIDF_ROWS", len(WORDS) - 1)
    found = measured("classification", "accuracy", 0.8, WORDS, WORDS[:3], dev_name="test")
    assert (found["name"], found["split"]) == ("the majority class", "test")
    assert (found["value"], found["is_beaten"]) == (pytest.approx(2 / 3), True)


def test_of_the_loss_less_is_better():
    found = measured("classification", "loss", 0.001, WORDS, WORDS[:3])
    assert found["value"] > 0.001 and found["is_beaten"]


def test_a_multi_label_model_is_compared_with_the_most_frequent_label():
    rows = [{"text": "x", "labels": ["a"]}] * 3 + [{"text": "x", "labels": ["b"]}] + [
        {"text": "x", "labels": []}
    ] * 6  # fmt: skip
    found = measured("classification", "micro_f1", 0.0, rows, rows, multilabel=True)
    # "a" for all ten rows: 3 right of 10 given, 3 of 4 found.
    assert found["value"] == pytest.approx(2 * 3 / (10 + 4))
    assert found["name"] == "the most frequent label" and not found["is_beaten"]


def test_a_regression_of_pairs_is_compared_with_cosines_of_the_untrained_model(
    tiny_model, monkeypatch
):
    monkeypatch.setattr(measure, "TFIDF_ROWS", 0)
    from filbert.checkpoints.opening import read_checkpoint, read_tokenizer

    texts = ["the film was good", "bad", "a great film", "it was very very bad", "good"]
    rows = [
        {"text": one, "text_pair": other, "label": float(number)}
        for number, (one, other) in enumerate(zip(texts, texts[1:], strict=False))
    ]
    start = (read_checkpoint(tiny_model), read_tokenizer(tiny_model), 32)
    found = measured("regression", "pearson", 0.0, rows, rows, start=start)
    vectors = filbert.load(tiny_model).embed(texts, pooling="mean", normalize=True)
    cosines = (vectors[1:] * vectors[:-1]).sum(1)
    wanted = max(0.0, np.corrcoef(cosines, range(4))[0, 1])
    # float32 sums in batches of other shapes.
    assert found["value"] == pytest.approx(wanted, abs=1e-4)


def test_other_tasks_and_runs_without_measured_rows_have_no_baseline():
    assert measured("classification", "accuracy", 0.8, WORDS, WORDS, dev_name="other") is None
    rows = [
        {"text": "a", "text_pair": "b", "label": 1.0},
        {"text": "a", "text_pair": "c", "label": 0},
    ]
    assert measured("embedding", "spearman", 0.5, rows, rows, loss="cosine") is None


def test_a_run_that_does_not_beat_its_baseline_says_so(tiny_model, tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    words = ("good", "bad", "great", "film")
    rows = [{"text": f"it was a {word}", "label": word} for word in words] * 3
    path.write_text("\n".join(json.dumps(row) for row in rows))
    run = filbert.finetune(
        task="classification", model=str(tiny_model), train=str(path), dev=str(path),
        out=str(tmp_path / "run"), steps=1, lr=1e-9, metric="accuracy", precision="float32",
    )  # fmt: skip
    assert run.baseline == json.loads((run.folder / "run.json").read_text())["baseline"]
    assert run.baseline["value"] == 1.0
    assert run.baseline["model"] == run.metrics["dev"]["accuracy"] < 1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("baseline:")]
    assert len(said) == 1 and f"{run.baseline['model']:.4f}" in said[0] and "1.0000" in said[0]


def test_a_run_whose_model_predicts_no_label_at_one_half_says_so(tiny_model, tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    rows = [{"text": "a film", "labels": labels} for labels in (["a"], ["b"], *[[]] * 8)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    filbert.finetune(
        task="classification", model=str(tiny_model), train=str(path), dev=str(path),
        out=str(tmp_path / "run"), steps=15, lr=3e-3, metric="loss", precision="float32",
    )  # fmt: skip
    assert "no label for any dev row" in capsys.readouterr().err
