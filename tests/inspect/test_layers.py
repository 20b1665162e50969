"""Linear probes on the features of every layer."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.errors import ConfigError
from filbert.inference.predictor import Predictor
from filbert.inspect.layers import probe_layers, states_by_layer


@pytest.fixture(scope="module")
def predictor(tiny_model) -> Predictor:
    return Predictor.load(tiny_model)


def test_states_are_the_model_s_hidden_states_of_every_layer(predictor):
    examples = predictor.text_examples(["the film was good", "he"])
    states = list(states_by_layer(predictor, examples))
    for number, text in enumerate(["the film was good", "he"]):
        (wanted,) = predictor.embed([text], pooling="none", layers=(0, 1, 2))
        # Batches of another composition differ in the last bits of float32.
        np.testing.assert_allclose(states[number].flatten(1).numpy(), wanted, atol=1e-5)


def test_a_word_that_decides_the_label_is_found_in_the_embeddings(predictor, tmp_path):
    rows = ["text,label"] + ["the film was good,pos", "he was bad,neg", "a good play,pos"] * 8
    (tmp_path / "train.csv").write_text("\n".join(rows) + "\n")
    path = str(tmp_path / "train.csv")
    scores = probe_layers(predictor, "classification", train=path, dev=path)
    assert scores["metric"] == "roc_auc" and len(scores["layers"]) == 3
    assert scores["layers"][0]["accuracy"] == 1.0
    assert scores["rows"] == {"train": 24, "dev": 24}
    assert scores["layers"][scores["best"]]["roc_auc"] == 1.0


def test_tags_are_probed_at_the_first_token_of_each_word(predictor, tmp_path):
    # The tag I-x never occurs in these rows.
    sentences = ["greatly O\nfilm B-x\n", "the O\nfilm B-x\nwas O\nplayed O\n", "he O\nwas O\n"]
    path = tmp_path / "train.conll"
    path.write_text("\n".join(sentences * 6))
    scores = probe_layers(predictor, "tagging", train=str(path), dev=str(path))
    assert scores["metric"] == "f1" and scores["layers"][0]["f1"] == 1.0


@pytest.mark.parametrize("task", ["regression", "span_qa"])
def test_other_tasks_are_refused(predictor, task):
    with pytest.raises(ConfigError, match="classification and tagging are probed"):
        probe_layers(predictor, task, train="t.csv", dev="d.csv")


def test_rows_with_several_labels_are_refused(predictor, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "good", "labels": ["a", "b"]}\n' * 3)
    path = str(tmp_path / "rows.jsonl")
    with pytest.raises(ConfigError, match="one label a row"):
        probe_layers(predictor, "classification", train=path, dev=path)
