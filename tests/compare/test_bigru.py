"""The BiGRU contestant: what it learns, what it is given, and that it repeats itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from filbert.compare.classifiers import BiGRU, Network, fit_bigru
from filbert.compare.contestants import ContestantRun, run_contestant
from filbert.compare.recipe import BIGRU
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError
from filbert.tasks.base import TaskOptions
from filbert.tasks.classification import Classification
from filbert.tasks.rows import read_task_rows
from filbert.train.linear import joined

SMALL = BIGRU | {"dim": 8, "hidden": 6, "min_count": 1, "lr": 0.02, "batch_size": 16}


def fit(films: Path, **changes) -> BiGRU:
    options, seed = SMALL | changes, changes.pop("seed", 0)
    task = Classification.from_options(TaskOptions(labels=("neg", "pos")), ColumnNames())
    rows = {
        name: list(read_task_rows(task, films / f"{name}.csv", ColumnNames()))
        for name in ("train", "dev")
    }
    texts = [joined(row) for row in rows["train"]]
    fitted, seconds = fit_bigru(
        task, options, train=(texts, rows["train"]), dev=rows["dev"], seed=seed
    )
    assert seconds > 0
    return fitted


def scores(model: BiGRU, films: Path) -> list[float]:
    rows = list(read_task_rows(model.task, films / "test.csv", ColumnNames()))
    return [prediction["scores"]["pos"] for prediction in model.predict_rows(rows)]


def test_it_learns_and_the_same_seed_gives_the_same_model(films):
    first, again, other = fit(films), fit(films), fit(films, seed=1)
    assert scores(first, films) == scores(again, films) != scores(other, films)
    rows = list(read_task_rows(first.task, films / "test.csv", ColumnNames()))
    gold = [first.task.gold(row) for row in rows]
    assert first.task.metrics(gold, first.predict_rows(rows))["accuracy"] > 0.9


def test_padding_changes_nothing():
    torch.manual_seed(0)
    network = Network(20, 3, SMALL).eval()
    short, long = torch.tensor([4, 5, 6]), torch.tensor([7, 8, 9, 10, 11])
    alone = network(short[None], torch.tensor([3]))
    padded = torch.nn.utils.rnn.pad_sequence([short, long], batch_first=True)
    torch.testing.assert_close(network(padded, torch.tensor([3, 5]))[0], alone[0])


def test_words_have_their_vectors_out_of_a_file(films, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("the " + " ".join("7" * 8) + "\nqqq 0 1 0 0 0 0 0 0\n")
    model = fit(films, vectors=str(path), steps=1, lr=1e-9)
    assert model.num_with_vectors == 1
    row = model.network.words.weight[model.words["the"]]
    torch.testing.assert_close(row, torch.full((8,), 7.0))
    path.write_text("qqq 0 1 0 0 0 0 0 0\n")
    with pytest.raises(ConfigError, match="has none of the"):
        fit(films, vectors=str(path))


def test_a_run_writes_facts_predictions_and_the_model(films, tmp_path, capsys):
    data = {name: str(films / f"{name}.csv") for name in ("train", "dev", "test")}
    path = tmp_path / "v.txt"
    path.write_text("the 1 0 0 0 0 0 0 0\n")
    options = SMALL | {"vectors": str(path), "steps": 3, "max_length": 4}
    job = ContestantRun(
        contestant="it", kind="bigru", options=options, training={}, cleaning=None, seed=0,
        data=data, labels=("neg", "pos"), positive="pos", out=str(tmp_path / "seed-0"),
        fingerprint="mark",
    )  # fmt: skip
    run_contestant(job)
    run = json.loads((tmp_path / "seed-0/run.json").read_text())
    assert (
        run["word_vectors"]["with_vectors"] == 1 and "v.txt has 1 of the" in capsys.readouterr().err
    )
    assert run["costs"]["parameters"] > 8 * run["word_vectors"]["words"]
    lines = (tmp_path / "seed-0/predictions/test.jsonl").read_text().splitlines()
    assert any(json.loads(line)["truncated"] for line in lines)
    assert {path.name for path in (tmp_path / "seed-0/model").iterdir()} == {
        "bigru.json", "bigru.safetensors",
    }  # fmt: skip
