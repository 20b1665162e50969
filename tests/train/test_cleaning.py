"""A run with cleaning: the model folder cleans again, and whatever runs it carries the option."""

import asyncio
import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import filbert
from filbert.cli.main import run as command
from filbert.errors import ConfigError
from filbert.serve.engine import Engine
from filbert.text.clean import Cleaning

STUDY = Cleaning.parse("study")
GIVEN = {
    "task": "classification", "model": "base", "epochs": 2, "lr": 3e-3, "batch_size": 16,
    "precision": "float32", "device": "cpu",
}  # fmt: skip


def noisy(text: str, number: int) -> str:
    """What a person might have typed instead."""
    return f"@user{number} {text.upper()} https://example.org/{number} !!!"


@pytest.fixture(scope="module")
def place(tiny_model, films, tmp_path_factory) -> Path:
    """A folder with base/, raw/*.csv, cleaned/*.csv and the two runs on them."""
    folder = tmp_path_factory.mktemp("cleaning")
    shutil.copytree(tiny_model, folder / "base")
    for kind in ("raw", "cleaned"):
        (folder / kind).mkdir()
    for name in ("train", "dev", "test"):
        with (films / f"{name}.csv").open(newline="") as file:
            rows = list(csv.reader(file))
        rows = [(noisy(text, i), label) for i, (text, label) in enumerate(rows[1:])]
        rows[3] = ("The @ann of!", rows[3][1])  # nothing is left of it
        for kind in ("raw", "cleaned"):
            with (folder / kind / f"{name}.csv").open("w", newline="") as file:
                texts = [(STUDY(t) if kind == "cleaned" else t, label) for t, label in rows]
                csv.writer(file).writerows([("text", "label"), *texts])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind, clean in (("raw", "study"), ("cleaned", None)):
            files = {name: f"{kind}/{name}.csv" for name in ("train", "dev", "test")}
            filbert.finetune(**GIVEN, **files, clean=clean, out=f"runs/{kind}")
    return folder


@pytest.fixture(autouse=True)
def _there(place, monkeypatch):
    monkeypatch.chdir(place)


def texts_of(name: str) -> list[str]:
    with Path(name).open(newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def lines_of(name: str) -> list[dict]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def test_a_model_that_cleans_answers_as_one_that_was_given_clean_texts(place):
    cleaning, plain = (filbert.load(f"runs/{kind}/model") for kind in ("raw", "cleaned"))
    raw = texts_of("raw/test.csv")
    assert all("@" in text for text in raw)
    answers = cleaning.predict(raw)
    assert answers == plain.predict([STUDY(text) for text in raw])
    assert answers != plain.predict(raw)
    one, other = (lines_of(f"runs/{k}/predictions/test.jsonl") for k in ("raw", "cleaned"))
    assert one == other


def test_a_server_cleans_too(place):
    cleaning = filbert.load("runs/raw/model")
    raw = texts_of("raw/test.csv")

    async def served():
        engine = Engine("m", cleaning)
        engine.start()
        try:
            return await engine.run("predict", raw), await engine.run("embed", raw)
        finally:
            await engine.close(1)

    predictions, vectors = asyncio.run(served())
    for done, wanted in zip(predictions.items, cleaning.predict(raw), strict=True):
        assert done.value["num_tokens"] == wanted["num_tokens"]
        assert done.value["scores"] == pytest.approx(wanted["scores"], abs=1e-6)
    wanted = cleaning.embed(raw)
    assert np.abs(np.stack([done.value for done in vectors.items]) - wanted).max() < 1e-5


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_rows_that_cleaning_empties_are_told_apart_from_empty_ones(verb, place, capfd):
    Path("some.csv").write_text('text\nThe @ann of!\n" "\na film\n@bob\n')
    out = ["--out", f"{verb}.jsonl"]
    assert command([verb, "runs/raw/model", "some.csv", *out, "--overwrite"]) == 0
    told = capfd.readouterr().err
    assert "3 of them hold an empty text" in told


def test_predict_and_evaluate_clean_and_prediction_files_keep_row_and_line(place, capfd):
    assert command(["predict", "runs/raw/model", "raw/test.csv", "--out", "answers.jsonl"]) == 0
    lines = lines_of("answers.jsonl")
    stored = lines_of("runs/raw/predictions/test.jsonl")
    # Six significant digits.
    for answer, row in zip(lines, stored, strict=True):
        assert answer["scores"] == pytest.approx(row["scores"], rel=1e-5)
    assert [s["row"] for s in stored] == list(range(64))
    assert command(["evaluate", "runs/raw/model", "--data", "raw/test.csv", "--json"]) == 0
    run = json.loads(Path("runs/raw/run.json").read_text())
    capfd.readouterr()
    assert command(["evaluate", "runs/raw/model", "--data", "raw/test.csv", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == pytest.approx(run["metrics"]["test"])


def test_a_run_is_not_resumed_with_another_cleaning(place):
    files = {name: f"raw/{name}.csv" for name in ("train", "dev", "test")}
    run = filbert.finetune(**GIVEN, **files, clean="study", out="runs/raw", resume=True)
    assert run.model.task.clean == STUDY
    with pytest.raises(ConfigError, match="a finished run with other options"):
        filbert.finetune(**GIVEN, **files, clean="urls", out="runs/raw", resume=True)
