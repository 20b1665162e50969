"""Tags that stand for their words alone, as parts of speech do."""

from __future__ import annotations

import json
import random

import pytest
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

import filbert
from filbert.cli.main import run
from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.errors import ConfigError, InputError
from filbert.metrics.entities import entities_of, entity_metrics
from filbert.tasks.base import TaskOptions, task_from_dict, task_to_dict
from filbert.tasks.rows import row_labels
from filbert.tasks.tagging import Tagging

# "IN" and "B" words begin as tags of entities do.
TAGS = ("CC", "IN", "NN", "PRP$", "B2", "-LRB-", ".")


def _row(tags: str, line: int = 1) -> Row:
    words = [f"w{index}" for index in range(len(tags.split()))]
    return Row({"tokens": words, "tags": tags.split()}, "f.jsonl", line)


def test_every_word_is_an_entity_of_its_own():
    assert entities_of(["NN", "NN", "IN", "O"]) == [("NN", 0, 1), ("NN", 1, 2), ("IN", 2, 3)]


def test_figures_are_those_of_scikit_learn_word_by_word():
    draw = random.Random(0)
    gold = [draw.choices(TAGS, k=draw.randint(1, 20)) for _ in range(50)]
    given = [[draw.choice([tag, draw.choice(TAGS)]) for tag in tags] for tags in gold]
    found = entity_metrics(gold, given)
    flat = [sum(tags, []) for tags in (gold, given)]
    accuracy = accuracy_score(*flat)
    for name in ("accuracy", "f1", "precision", "recall"):
        assert found[name] == pytest.approx(accuracy, abs=1e-12)
    kinds = sorted(TAGS)
    wanted = zip(*precision_recall_fscore_support(*flat, labels=kinds), strict=True)
    keys = ("precision", "recall", "f1", "support")
    for kind, figures in zip(kinds, wanted, strict=True):
        assert [found["per_label"][kind][key] for key in keys] == pytest.approx(figures, abs=1e-12)


def test_labels_are_the_tags_of_the_rows_or_the_declared_ones():
    rows = [_row("NN IN"), _row("CC NN")]
    task = Tagging().fit(rows)
    assert task.labels == ("CC", "IN", "NN")
    assert [task.gold(row).tags for row in rows] == [["NN", "IN"], ["CC", "NN"]]
    assert row_labels(task, rows[0]) == ["NN", "IN"]
    assert task_from_dict(Tagging, task_to_dict(task)) == task
    declared = Tagging.from_options(TaskOptions(labels=("NN", "IN", "CC", "VB")), ColumnNames())
    assert declared.fit(rows).labels == ("NN", "IN", "CC", "VB")
    with pytest.raises(InputError, match=r"tag 'VB' is not one of \['CC', 'IN', 'NN'\]"):
        task.gold(_row("NN VB"))
    with pytest.raises(InputError, match=r"tag 'NN' is not one of \['IN', 'CC'\]"):
        Tagging.from_options(TaskOptions(labels=("IN", "CC")), ColumnNames()).fit(rows)


def test_a_file_has_tags_of_one_form():
    rows = [_row("O B-a I-a", 3), _row("a a", 7)]
    with pytest.raises(InputError, match=r'f\.jsonl:7: the tag "a" is neither .* f\.jsonl:3'):
        Tagging().fit(rows)
    with pytest.raises(InputError, match="tag 'a' is not one of"):
        Tagging(("O", "B-a", "I-a")).gold(rows[1])
    with pytest.raises(InputError, match="tag 'B-NN' is not one of"):
        Tagging(("NN",)).gold(_row("B-NN"))
    with pytest.raises(ConfigError, match='the tag "X" is neither'):
        Tagging.from_options(TaskOptions(labels=("O", "B-a", "X")), ColumnNames())
    with pytest.raises(ConfigError, match='lack the tag "O"'):
        Tagging.from_options(TaskOptions(labels=("B-a", "I-a")), ColumnNames())


def test_a_model_of_parts_of_speech_is_trained_used_and_measured(tiny_model, tmp_path, capsys):
    sentences = ["the film", "a film", "the best film of the year", "a bad year"]
    kinds = {"the": "DT", "a": "DT", "of": "IN", "best": "JJ", "bad": "JJ"}
    lines = [
        "\n".join(f"{word}\t{kinds.get(word, 'NN')}" for word in sentence.split()) + "\n"
        for sentence in sentences * 4
    ]
    path = tmp_path / "pos.conll"
    path.write_text("\n".join(lines), encoding="utf-8")
    out = tmp_path / "run"
    command = ["finetune", "--task", "tagging", "--model", str(tiny_model), "--train", str(path)]
    given = ["--dev", str(path), "--out", str(out), "--epochs", "20", "--lr", "1e-2", "--json"]
    assert run(command + given) == 0
    metrics = json.loads(capsys.readouterr().out)["dev"]
    assert metrics["f1"] == metrics["accuracy"] > 0.9
    assert set(metrics["per_label"]) == {"DT", "IN", "JJ", "NN"}
    (answer,) = filbert.load(str(out / "model")).predict(["the bad film"])
    assert answer["tokens"] == ["the", "bad", "film"]
    assert [entity["label"] for entity in answer["entities"]] == answer["tags"]
    assert answer["tags"] == ["DT", "JJ", "NN"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Metrics by tag" in page and "gold entities" not in page
