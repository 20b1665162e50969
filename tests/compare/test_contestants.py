"""One contestant with one seed: what its seconds hold, and how it goes on."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from filbert.compare import contestants
from filbert.compare.contestants import Job, carry_out, finished_mark


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
        return Job("it", kind, options or {}, training, None, 0, data, ("neg", "pos"), "pos", out,
                   "mark")  # fmt: skip

    return make


def facts_of(job):
    with open(f"{job.out}/run.json", encoding="utf-8") as file:
        return json.load(file)


def test_training_seconds_are_texts_to_weights_without_dev(job, capsys):
    frozen = job(freeze="encoder", eval_every=1)
    carry_out(frozen)
    run = facts_of(frozen)
    parts = [run[name] for name in (
        "training_seconds", "train_tokenise_seconds", "features_seconds",
    )]  # fmt: skip
    assert run["costs"]["training_seconds"] == pytest.approx(sum(parts))
    assert all(part > 0 for part in parts)
    # Of three splits one.
    assert run["train_tokenise_seconds"] < run["tokenise_seconds"]
    assert run["costs"]["cpu_seconds"] == run["training_cpu_seconds"] > 0
    # A run that begins has nothing to resume, and says nothing about it.
    assert "resume" not in capsys.readouterr().err


def test_lost_predictions_are_made_by_the_model_that_is_there(job):
    one = job()
    carry_out(one)
    folder = Path(one.out)
    before = facts_of(one)
    lines = (folder / "predictions/dev.jsonl").read_text().splitlines()
    (folder / "predictions/dev.jsonl").unlink()
    weights = (folder / "model/model.safetensors").read_bytes()
    carry_out(one)
    assert finished_mark(folder) == "mark"
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


def test_an_interrupted_run_goes_on_with_the_format_it_began_with(job, monkeypatch):
    """Its own mark holds "auto", which the study settles only for runs that begin."""
    one = job(precision="bf16")
    folder = Path(one.out)
    folder.mkdir()
    (folder / "run.json").write_text(
        json.dumps(
            {"status": "interrupted", "precision": "float32", "options": {"precision": "auto"}}
        )
    )
    carry_out(one)
    assert facts_of(one)["precision"] == "float32"


def test_texts_of_linear_contestants_are_cleaned_once_for_training(job, monkeypatch):
    calls = []
    real = contestants.joined

    def counted(row, cleaning=None):
        calls.append(row.line)
        return real(row, cleaning)

    monkeypatch.setattr(contestants, "joined", counted)
    monkeypatch.setattr(sys.modules["filbert.compare.linear"], "joined", counted)
    trained, fit = [], contestants.fit_linear

    def watched(*given, **more):
        trained.append(len(calls))
        return fit(*given, **more)

    monkeypatch.setattr(contestants, "fit_linear", watched)
    carry_out(job("tfidf", {"C": 1.0, "ngrams": 1, "min_df": 1}))
    assert trained == [256]
    # Then dev for temperature and threshold, dev and test for predictions, and what is timed: the
    # warm-up and five passes, then single texts, five of them before it counts.
    assert len(calls) == 256 + 3 * 64 + 6 * 64 + (5 + 64)


def test_a_label_with_a_comma_stays_one_label(job, tmp_path):
    labels = ("Business, finance", "arts", "sports, games")
    path = tmp_path / "news.jsonl"
    rows = [{"text": f"a story {i}", "label": labels[i % 3]} for i in range(9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {name: str(path) for name in ("train", "dev", "test")}
    one = replace(job(), labels=labels, positive=None, data=data)
    carry_out(one)
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
    carry_out(one)
    facts = json.loads((Path(one.out) / "model/linear.json").read_text())
    assert facts["words"] == ["the", "unheard"]
