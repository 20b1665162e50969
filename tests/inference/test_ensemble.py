"""Several models that answer as one."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch

import filbert
from filbert.cli.main import run as cli
from filbert.data.examples import Example, collate
from filbert.errors import ConfigError
from filbert.inference.bulk import model_digest
from filbert.inference.ensemble import ensemble
from filbert.inference.predictor import Predictor
from filbert.tasks.base import changed


@pytest.fixture(scope="module")
def members(film_run, tiny_model, films, tmp_path_factory) -> list[str]:
    """Two classifiers of one task from one checkpoint."""
    other = filbert.finetune(
        task="classification",
        model=str(tiny_model),
        train=str(films / "train.csv"),
        dev=str(films / "dev.csv"),
        out=str(tmp_path_factory.mktemp("second") / "run"),
        positive="pos",
        steps=12,
        seed=1,
        precision="float32",
        baseline=False,
    )
    return [str(film_run.folder), str(other.folder)]


TEXTS = ["the film was very good", "he was not bad, the play", "great great"]


def test_probabilities_are_the_mean_of_the_members(members):
    alone = [filbert.load(one).predict(TEXTS) for one in members]
    together = filbert.load(members)
    for number, answer in enumerate(together.predict(TEXTS)):
        for label, value in answer["scores"].items():
            mean = np.mean([answers[number]["scores"][label] for answers in alone])
            assert value == pytest.approx(mean, abs=1e-6)
    thresholds = [filbert.load(one).task.spec.thresholds for one in members]
    assert together.task.spec.thresholds == pytest.approx(np.mean(thresholds, 0))
    assert alone[0] != alone[1]


def test_the_command_line_takes_names_between_commas_and_evaluates_them_as_one(
    members, films, tmp_path, capsys
):
    out = tmp_path / "answers.jsonl"
    name, data = ",".join(members), str(films / "test.csv")
    assert cli(["predict", name, data, "--out", str(out)]) == 0
    answers = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    with (films / "test.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    labels = [answer["label"] for answer in answers]
    expected = filbert.predict(members, [row["text"] for row in rows])
    assert labels == [answer["label"] for answer in expected]
    capsys.readouterr()
    assert cli(["evaluate", name, "--data", data, "--json"]) == 0
    right = [label == row["label"] for label, row in zip(labels, rows, strict=True)]
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(np.mean(right))


def test_work_is_resumed_only_with_the_same_members(members):
    digests = [model_digest(filbert.load(names)) for names in (members, members[::-1], members[:1])]
    assert len(set(digests)) == 3
    assert digests[0] == model_digest(filbert.load(members))


def test_start_and_end_scores_are_averaged(tiny_model, with_head, tmp_path):
    names = [str(with_head(tiny_model, tmp_path / name, "spans")) for name in "ab"]
    first, second = (Predictor.load(name, device="cpu") for name in names)
    with torch.no_grad():
        for weight in second.model.head.parameters():
            weight.mul_(-0.5)
    model, _ = ensemble([first.model, second.model], [first.task, second.task])
    ids = np.array([2, 5, 6, 3], dtype=np.int64)
    batch = collate([Example(0, ids, np.zeros_like(ids), 2)])
    with torch.inference_mode():
        mean = (first.model(batch) + second.model(batch)) / 2
        torch.testing.assert_close(model.eval()(batch), mean, atol=1e-6, rtol=0)


def test_what_cannot_be_averaged_is_refused(members, tiny_model, tmp_path):
    with pytest.raises(ConfigError, match="no task head"):
        filbert.load([str(tiny_model), str(tiny_model)])
    small = tmp_path / "small"
    (tmp_path / "few.txt").write_text("the film was good\n")
    filbert.shrink(members[0], out=small, vocabulary_from=tmp_path / "few.txt")
    with pytest.raises(ConfigError, match="different tokenizers or lengths"):
        filbert.load([members[0], small])
    with pytest.raises(ConfigError, match="different tasks or labels"):
        first, second = (filbert.load(one) for one in members)
        ensemble([first.model, second.model], [first.task, changed(second.task, positive="neg")])
