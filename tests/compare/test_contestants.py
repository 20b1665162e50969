"""One contestant with one seed: what its seconds hold, and how it goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from filbert.compare.contestants import ContestantRun, finished_fingerprint, run_contestant


@pytest.fixture
def job(films, tiny_model, tmp_path):
    def make(kind="encoder", options=None, **training):
        training = {
            "steps": 2,
            "max_length": 32,
            "precision": "float32",
            "device": "cpu",
        } | training
        if kind == "encoder":
            training["model"] = str(tiny_model)
        data = {name: str(films / f"{name}.csv") for name in ("train", "dev", "test")}
        out = str(tmp_path / "seed-0")
        return ContestantRun(
            contestant="it", kind=kind, options=options or {}, training=training, cleaning=None,
            seed=0, data=data, labels=("neg", "pos"), positive="pos", out=out, fingerprint="mark",
        )  # fmt: skip

    return make


def facts_of(job):
    with open(f"{job.out}/run.json", encoding="utf-8") as file:
        return json.load(file)


def test_training_seconds_are_texts_to_weights_without_dev(job, capsys):
    frozen = job(freeze="encoder", eval_every=1)
    run_contestant(frozen)
    run = facts_of(frozen)
    parts = [run[name] for name in (
        "training_seconds", "train_tokenise_seconds", "features_seconds",
    )]  # fmt: skip
    assert run["costs"]["training_seconds"] == pytest.approx(sum(parts))
    assert all(part > 0 for part in parts)
    # Of three splits one.
    assert run["train_tokenise_seconds"] < run["tokenise_seconds"]
    # A run that begins has nothing to resume, and says nothing about it.
    assert "resume" not in capsys.readouterr().err


def test_lost_predictions_are_made_by_the_model_that_is_there(job):
    one = job()
    run_contestant(one)
    folder = Path(one.out)
    before = facts_of(one)
    lines = (folder / "predictions/dev.jsonl").read_text().splitlines()
    (folder / "predictions/dev.jsonl").unlink()
    weights = (folder / "model/model.safetensors").read_bytes()
    run_contestant(one)
    assert finished_fingerprint(folder) == "mark"
    again = [
        json.loads(line) for line in (folder / "predictions/dev.jsonl").read_text().splitlines()
    ]
    for mine, line in zip(again, lines, strict=True):
        wanted = json.loads(line)
        assert (mine["row"], mine["gold"]) == (wanted["row"], wanted["gold"])
        # Batches of other sizes round otherwise.
        assert mine["scores"] == pytest.approx(wanted["scores"], abs=1e-5)
    assert facts_of(one)["costs"] == before["costs"]
    assert (folder / "model/model.safetensors").read_bytes() == weights


def test_a_label_with_a_comma_stays_one_label(job, tmp_path):
    labels = ("Business, finance", "arts", "sports, games")
    path = tmp_path / "news.jsonl"
    rows = [{"text": f"a story {i}", "label": labels[i % 3]} for i in range(9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {name: str(path) for name in ("train", "dev", "test")}
    one = replace(job(), labels=labels, positive=None, data=data)
    run_contestant(one)
    assert facts_of(one)["labels"] == list(labels)


def test_words_of_dev_and_test_have_their_vectors_out_of_a_file(job, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("the 1 0\nunheard 0 1\n")
    films = job().data
    lines = Path(films["test"]).read_text().splitlines()
    test = tmp_path / "test.csv"
    test.write_text("\n".join([lines[0], *lines[1:], "unheard,pos"]) + "\n")
    one = replace(job("static", {"vectors": str(path), "model": None, "C": 1.0}),
                  data=films | {"test": str(test)})  # fmt: skip
    run_contestant(one)
    facts = json.loads((Path(one.out) / "model/linear.json").read_text())
    assert facts["words"] == ["the", "unheard"]
