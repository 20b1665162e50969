"""One file of rows becomes train, dev and test, the same ones every time."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import filbert
from filbert.cli.main import run as cli
from filbert.errors import ConfigError
from filbert.train.options import FinetuneOptions
from filbert.train.replay import replay
from filbert.train.splits import read_splits

WORDS = ["the", "film", "was", "not", "very", "good", "bad", "and", "he", "she"]
WORDS += ["it", "to", "see", "great", "play", "run"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 rows of two labels, and one row of a third."""
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("table") / "all.csv"
    lines = [
        f"{' '.join(draw.sample(WORDS, 8))},{draw.choice(['pos', 'neg'])},{i % 7}"
        for i in range(120)
    ]
    path.write_text("\n".join(["text,label,author", *lines, "a very rare play,odd,7"]) + "\n")
    return path


def options(table: Path, **more) -> FinetuneOptions:
    given = {"task": "classification", "model": "m", "data": str(table), "out": "x"}
    return FinetuneOptions.from_keywords(given | more)


def lines_by_part(given: FinetuneOptions) -> dict[str, set[int]]:
    _, rows, _ = read_splits(given)
    return {name: {row.line for row in part} for name, part in rows.items()}


def test_a_table_is_split_into_eighty_ten_and_ten_percent(table):
    task, rows, division = read_splits(options(table))
    assert {name: len(part) for name, part in rows.items()} == {"train": 97, "dev": 12, "test": 12}
    assert set(task.spec.labels) == {"pos", "neg", "odd"}
    assert division.only_in_train == ("odd",)
    assert division.lines()[0] == (
        "split: 97 train, 12 dev, 12 test rows (stratified by label; near-duplicates kept "
        "together; seed 42)"
    )


def test_the_split_is_drawn_from_the_seed_of_the_run_unless_it_has_its_own(table):
    first = lines_by_part(options(table, seed=7))
    assert lines_by_part(options(table, seed=7)) == first
    assert lines_by_part(options(table, seed=8)) != first
    assert lines_by_part(options(table, seed=8, split_seed=7)) == first


def test_rows_of_one_group_are_in_one_part(table):
    _, rows, _ = read_splits(options(table, group_column="author", dev=0.2, test="0.2"))
    authors = table.read_text().splitlines()
    by_part = [{authors[row.line - 1][-1] for row in part} for part in rows.values()]
    assert not by_part[0] & by_part[1] and not by_part[0] & by_part[2] and by_part[1]


def test_near_duplicates_are_in_one_part(tmp_path, table):
    path = tmp_path / "twice.csv"
    header, *lines = table.read_text().splitlines()
    twins = [line.replace(",", " !,", 1) for line in lines]
    path.write_text("\n".join([header, *lines, *twins]) + "\n")
    for part in lines_by_part(options(path)).values():
        assert {n for n in part if n <= 122} == {n - 121 for n in part if n > 122}


def test_rows_from_templates_are_split_although_they_are_near_duplicates(tmp_path):
    path = tmp_path / "templates.csv"
    kinds = ["good", "bad"] * 50
    lines = [f"the {kind} film of the director number {i},{kind}" for i, kind in enumerate(kinds)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    _, rows, division = read_splits(options(path))
    assert {name: len(part) for name, part in rows.items()} == {"train": 80, "dev": 10, "test": 10}
    assert "near-duplicates in all parts" in division.rule


def test_dev_is_cut_out_of_train_by_a_share_and_a_test_file_stays(table):
    given = options(table, data=None, train=str(table), dev="0.25", test=str(table))
    sizes = {name: len(lines) for name, lines in lines_by_part(given).items()}
    assert sizes == {"train": 91, "dev": 30, "test": 121}


def test_no_part_is_cut_where_its_share_is_zero(table):
    assert lines_by_part(options(table, dev=0, test=0)).keys() == {"train"}


def test_few_dev_rows_of_a_table_do_not_choose_the_step(table, tiny_model, tmp_path, monkeypatch):
    def best(name):
        given = {"task": "classification", "model": str(tiny_model), "data": str(table), "lr": 0.01}
        more = {"steps": 12, "eval_every": 3, "baseline": False}
        return filbert.finetune(**given, **more, out=str(tmp_path / name)).facts["best"]

    last = best("last")
    # The labels are drawn, so the accuracy stays as it is, and the first step is the best.
    monkeypatch.setattr("filbert.train.finetune.FEWEST_TO_CHOOSE", 12)
    chosen = best("chosen")
    assert last["step"] == 12 > chosen["step"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"train": "t.csv"}, "both given"),
        ({"data": None}, "No rows are given"),
        ({"dev": "0.5", "test": "0.5"}, "leave nothing"),
        ({"dev": "1.5"}, "must be in"),
        ({"data": None, "train": "t.csv", "group_column": "g"}, "--group-column is for"),
    ],
)
def test_options_that_make_no_split_are_refused(table, given, problem):
    with pytest.raises(ConfigError, match=problem):
        options(table, **given)


def test_scores_have_the_same_spread_in_every_part(tmp_path):
    path = tmp_path / "scores.jsonl"
    rows = [{"text": f"{i} {i * 7919 % 1000}", "label": i / 10} for i in range(400)]
    path.write_text("\n".join(map(json.dumps, rows)))
    _, parts, division = read_splits(options(path, task="regression"))
    assert "stratified by score" in division.rule
    for rows in parts.values():
        assert abs(sum(row.values["label"] for row in rows) / len(rows) - 20) < 1


def test_questions_on_one_context_are_in_one_part(tmp_path):
    path = tmp_path / "questions.jsonl"
    rows = [
        {"id": str(i), "question": f"What is {i}?", "context": f"Text {i % 20} of many {i % 20}."}
        | {"answers": [{"text": "Text", "answer_start": 0}]}
        for i in range(100)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    _, parts, _ = read_splits(options(path, task="span_qa", dev=0.2, test=0.2))
    contexts = [{row.values["context"] for row in part} for part in parts.values()]
    assert sum(map(len, contexts)) == 20 and all(contexts)


def test_a_run_writes_its_split_and_a_replay_repeats_it(tiny_model, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"task": "classification", "model": str(tiny_model), "steps": 2, "device": "cpu"}
    given |= {"data": str(table), "precision": "float32"}
    run = filbert.finetune(**given, out=tmp_path / "x")
    split = json.loads((tmp_path / "x" / "split.json").read_text())
    assert {n: len(rows) for n, rows in split["parts"].items()} == {
        "train": 97,
        "dev": 12,
        "test": 12,
    }
    assert split["sha256"] == run.facts["data"]["train"]["sha256"]
    assert run.metrics.keys() == {"dev", "test"}
    assert replay(str(tmp_path / "x"), device="cpu").is_same
    assert json.loads((tmp_path / "x-replay" / "split.json").read_text()) == split
    assert "x" in filbert.finetune(**given, out=tmp_path / "x", resume=True).facts["name"]


def test_a_model_remembers_columns_that_were_recognised(tiny_model, table, tmp_path, capfd):
    path = tmp_path / "messages.csv"
    path.write_text(table.read_text().replace("text,label,author", "message,intent,author"))
    given = ["--task", "classification", "--model", tiny_model, "--precision", "float32"]
    given += ["--data", path, "--group-column", "author", "--steps", "2", "--out", tmp_path / "x"]
    assert cli(["finetune", *map(str, given)]) == 0
    said = 'Using column "message" as text and "intent" as label.'
    assert capfd.readouterr().err.count(said) == 1
    model = tmp_path / "x" / "model"
    for words in (["predict", model, path], ["evaluate", model, "--data", path]):
        assert cli([*map(str, words)]) == 0
        assert "Using column" not in capfd.readouterr().err


def test_folds_measure_every_row_once_and_the_model_is_trained_on_all(
    tiny_model, table, tmp_path, capfd
):
    given = ["--task", "classification", "--model", tiny_model, "--precision", "float32"]
    given += ["--data", table, "--folds", "3", "--steps", "2", "--out", tmp_path / "x"]
    assert cli(["finetune", *map(str, given)]) == 0
    run = json.loads((tmp_path / "x" / "run.json").read_text())
    parts = [json.loads((tmp_path / f"x/folds/{n}/split.json").read_text()) for n in (1, 2, 3)]
    tested = sorted(row for part in parts for row in part["parts"]["test"])
    # The last row has a label of its own, which no fold can measure.
    assert tested == list(range(120))
    assert all(120 in part["parts"]["train"] for part in parts)
    assert run["data"]["train"]["rows"] == 121 and run["data"].keys() == {"train"}
    accuracy = run["folds"]["metrics"]["accuracy"]
    assert accuracy["values"] == [
        one["metrics"]["accuracy"] for one in run["folds"]["runs"].values()
    ]
    assert accuracy["mean"] == pytest.approx(sum(accuracy["values"]) / 3)
    assert "3 folds; the model of the run is trained on all rows" in capfd.readouterr().out
    assert {path.name for path in (tmp_path / "x" / "folds").iterdir()} == {"1", "2", "3"}
    assert cli(["finetune", *map(str, given), "--resume"]) == 0


def test_folds_without_a_table_are_refused(table):
    with pytest.raises(ConfigError, match="--folds measures every row"):
        options(table, folds=3, dev="0.1")
    with pytest.raises(ConfigError, match="give 2 folds or more"):
        options(table, folds=1)
