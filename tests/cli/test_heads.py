from __future__ import annotations

import csv
import json
import logging
import re
import shlex
from pathlib import Path

import pytest

from filbert import samples

PAGE = (Path(__file__).parents[2] / "docs" / "heads.md").read_text(encoding="utf-8")
TEXTS = "the film was good\n\nhe was playing , she was not\n"


@pytest.fixture(scope="module")
def treebanks(tmp_path_factory):
    """The sentences that ship, without the longest documents, as train.conllu and dev.conllu."""
    folder = tmp_path_factory.mktemp("treebanks")
    text = samples.path("sentences.conllu").read_text(encoding="utf-8")
    documents = ["# newdoc" + part for part in text.split("# newdoc")[1:]]
    (folder / "train.conllu").write_text(documents[1], encoding="utf-8")
    (folder / "dev.conllu").write_text("".join(documents[3:5]), encoding="utf-8")
    return folder


def flat(count: int) -> str:
    """A sentence in which every word depends on the one before it."""
    rows = [(i + 1, i, "x" if i else "root") for i in range(count)]
    return "".join("{}\tfilm\t_\t_\t_\t_\t{}\t{}\t_\t_\n".format(*row) for row in rows) + "\n"


@pytest.fixture(scope="module")
def quick():
    """Classifiers are trained for a moment only, and plots have few pixels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("filbert.probe.dependency.MIN_STEPS", 3)
        patch.setattr("filbert.probe.dependency.EPOCHS", 1)
        patch.setattr("filbert.report.canvas.PIXELS_PER_INCH", 30)
        yield


def test_a_table_has_a_line_for_every_head(call, tiny_model, monkeypatch):
    # A model with fewer heads than the usual number of clusters is no mistake.
    monkeypatch.setattr("filbert.cli.head_study.CLUSTERS", 9)
    done = call("heads", tiny_model, "-", stdin=TEXTS)
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("3 texts, ")
    assert lines[0].endswith(": stdin")
    headings = "head entr. dist. conf. [CLS] [SEP] itself prev. next word same cl."
    assert lines[1].split() == headings.split()
    names = [f"{layer}-{head}" for layer in range(2) for head in range(4)]
    assert [line.split()[0] for line in lines[2:]] == names


def test_json_and_the_folder_hold_the_same_figures(call, tiny_model, tmp_path, quick, treebanks):
    out = tmp_path / "heads"
    done = call(
        "heads", tiny_model, "--treebank", treebanks / "dev.conllu", "--probe",
        treebanks / "train.conllu", "--clusters", "3", "--min-count", "4", "--out", out, "--json",
    )  # fmt: skip
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert json.loads((out / "heads.json").read_text()) == found
    assert {file.name for file in out.iterdir()} == {
        "heads.json", "heads.tsv", "numbers.png", "agreement.png", "relations.png",
    }  # fmt: skip
    with (out / "heads.tsv").open() as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert [float(row["entropy"]) for row in table] == [row["entropy"] for row in found["heads"]]
    assert {row["cluster"] for row in found["heads"]} == {0, 1, 2}
    treebank = found["treebank"]
    assert treebank["sentences"] == 14
    assert treebank["relations"][0]["relation"] == "all"
    coreference = treebank["coreference"]
    assert coreference["mentions"] > 5
    assert (coreference["documents"], coreference["truncated"]) == (2, 1)
    assert coreference["mentions_left_out"] > 0
    assert [row["kind"] for row in treebank["probes"]["scores"]][0] == "fixed offset"
    again = call("heads", tiny_model, "--out", out)
    assert (again.status, "exists. Name another folder" in again.err) == (2, True)


def test_what_the_metric_loses_stands_beside_every_head(call, film_run, films, tmp_path):
    model = film_run.model.checkpoint.source
    done = call("heads", model, "--data", films / "dev.csv", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    worth = found["worth"]
    assert (worth["metric"], worth["rows"]) == ("roc_auc", 64)
    for row in found["heads"]:
        # Each is rounded to six digits.
        assert row["lost"] == pytest.approx(worth["value"] - row["without"], abs=2e-6)
        assert row["importance"] > 0
    shrunk = call("shrink", model, "--importance", "--data", films / "dev.csv", "--json")
    without = json.loads(shrunk.out)["without"]
    assert [row["without"] for row in found["heads"]] == pytest.approx(sum(without, []), abs=1e-6)


def test_worth_is_counted_on_texts_cut_as_all_others_are(call, film_run, films, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "filbert.cli.head_study.study_heads", lambda *_, max_length: asked.append(max_length)
    )
    model = film_run.model.checkpoint.source
    for options, wanted in ((["--max-length", 5], 5), ([], 7)):
        monkeypatch.setattr("filbert.cli.head_study.LONGEST", 7)
        done = call("heads", model, "--data", films / "dev.csv", "--json", *options)
        assert json.loads(done.out)["texts"]["max_length"] == asked[-1] == wanted


def test_a_mistake_is_told_before_anything_is_computed(
    call, film_run, tmp_path, treebanks, monkeypatch
):
    monkeypatch.setattr("filbert.cli.head_study.study", None)
    broken = tmp_path / "broken.conllu"
    broken.write_text("1\tHe\n\n")
    long, unmarked = tmp_path / "long.conllu", tmp_path / "unmarked.conllu"
    long.write_text(flat(600))
    model, dev = film_run.model.checkpoint.source, treebanks / "dev.conllu"
    unmarked.write_text(dev.read_text(encoding="utf-8").replace("Entity=(", "Entity=", 1))
    for options, sentence in {
        ("--treebank", dev, "--probe", broken): "broken.conllu:1: 2 columns",
        ("--treebank", dev, "--probe", long): "long.conllu: every sentence has more than the 64",
        ("--treebank", long): "long.conllu: every sentence has more than the 64 tokens that",
        ("--treebank", unmarked): "has no beginning",
        ("--treebank", dev, "--min-count", "98"): "no relation has 98 words, all together have 97",
        ("--data", tmp_path / "none.csv"): "no such file",
        ("--clusters", "99"): "clusters is 99; this model has",
    }.items():
        done = call("heads", model, *options)
        assert (done.status, len(done.err.splitlines())) == (2, 1), (options, done.err)
        assert sentence in done.err


def test_long_texts_are_cut_and_counted_and_long_sentences_left_out(
    call, tiny_model, tmp_path, caplog
):
    texts = tmp_path / "long.txt"
    texts.write_text("film " * 600 + "\nthe film\n")
    done = call("heads", tiny_model, texts)
    assert done.out.startswith("2 texts, 68 tokens, 1 of them cut: long.txt")
    (tmp_path / "mixed.conllu").write_text(flat(600) + flat(6))
    caplog.set_level(logging.INFO, logger="filbert")
    done = call("heads", tiny_model, "--treebank", tmp_path / "mixed.conllu", "--min-count", "1")
    assert "1 sentences of mixed.conllu, 1 too long and left out" in done.out
    told = "mixed.conllu: 1 of 2 sentences have more than the 64 tokens that the model reads"
    assert caplog.messages[0].startswith(told)


def test_wrong_input_is_told_in_a_sentence(call, tiny_model, films, tmp_path, treebanks):
    broken = tmp_path / "broken.conllu"
    broken.write_text("1\tHe\n\n")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    dev = treebanks / "dev.conllu"
    wrong = {
        ("--treebank", broken): "broken.conllu:1: 2 columns between tabs",
        ("--treebank", tmp_path / "no.conllu"): "no such file",
        ("--probe", dev): "give --treebank FILE too",
        ("--treebank", dev, "--probe", dev): "are one file",
        (empty,): "every one of them is empty",
        ("--data", films / "dev.csv"): "has no task head",
        ("--clusters", "9"): "clusters is 9; this model has 8 heads",
        ("--limit", "0"): "must be above zero",
        ("--max-length", "600"): "max_length 600",
    }
    for options, sentence in wrong.items():
        done = call("heads", tiny_model, *options)
        assert (done.status, len(done.err.splitlines())) == (2, 1), (options, done.err)
        assert sentence in done.err, (options, done.err)


def test_the_commands_of_the_page_run(call, tiny_model, film_run, films, monkeypatch, tmp_path,
                                      treebanks, quick):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    names = {
        "minilm": tiny_model,
        "filbert-mini": tiny_model,
        "runs/polarity/model": film_run.model.checkpoint.source,
        "dev.csv": films / "dev.csv",
        "dev.conllu": treebanks / "dev.conllu",
        "train.conllu": treebanks / "train.conllu",
    }
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) >= 3
    for command in commands:
        done = call(*(names.get(word, word) for word in command[1:]))
        assert done.status == 0, (command, done.err)
