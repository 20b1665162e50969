"""filbert fill: one text as a table or JSON, files as JSON lines, refusals as sentences."""

import gzip
import json

import pytest

import filbert
from filbert.cli.arguments import STDIO
from filbert.cli.verbs import answers as verb

fill = verb.fill


@pytest.fixture
def model(masked_lm):
    return str(masked_lm)


def test_json_is_what_python_gives(model, capsys):
    fill(model, "the film was [MASK] and [MASK]", top=3, json=True)
    answer = json.loads(capsys.readouterr().out)
    from filbert.inference.answer_file import rounded
    from filbert.inference.predictor import Predictor

    assert answer == rounded(Predictor.load(model).fill("the film was [MASK] and [MASK]", top=3))
    assert answer.keys() == {"candidates", "truncated", "num_tokens"}
    assert [len(mask) for mask in answer["candidates"]] == [3, 3]
    assert {"token", "score", "sequence"} <= answer["candidates"][0][0].keys()


def test_the_table_shows_every_candidate_with_its_score_and_its_text(model, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    fill(model, "the film was [MASK] and [MASK]", json=True)
    answer = json.loads(capsys.readouterr().out)
    fill(model, "the film was [MASK] and [MASK]")
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "mask 1 of 2: the film was [MASK] and [MASK]"
    assert "mask 2 of 2" in out
    for candidates, block in zip(answer["candidates"], (lines[1:6], lines[8:13]), strict=True):
        for candidate, line in zip(candidates, block, strict=True):
            assert line.split()[0] == candidate["token"]
            assert f"{100 * candidate['score']:.1f} %" in line
            assert line.rstrip().endswith(candidate["sequence"])


def test_a_file_gets_one_json_line_a_text(model, capsys, tmp_path):
    path = tmp_path / "texts.csv.gz"
    path.write_bytes(gzip.compress(b'n,comment\n1,"the [MASK], good"\n2,[MASK] [MASK]\n'))
    out = tmp_path / "out.jsonl"
    fill(model, file=str(path), text_column="comment", out=str(out), top=2)
    assert capsys.readouterr().out == ""
    first, second = (json.loads(line) for line in out.read_text("utf-8").splitlines())
    assert len(first["candidates"]) == 1
    assert len(second["candidates"]) == 2
    assert first["candidates"][0][0]["sequence"].endswith(", good")
    fill(model, file=str(path), text_column="comment", out=STDIO, top=2)
    assert capsys.readouterr().out == out.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "sentence"),
    [
        ([], {}, filbert.ConfigError, "nothing to fill"),
        (["m", "the [MASK]"], {"file": "f"}, filbert.ConfigError, "A text and --input are given"),
        (["m", "the [MASK]"], {"out": "f"}, filbert.ConfigError, "--out is for --input"),
        (["bert-base-uncased"], {}, filbert.InputError, r"'bert-base-uncased' has no \[MASK\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_anything_is_loaded(
    arguments, options, kind, sentence, monkeypatch
):
    def load(*names, **options):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("filbert.inference.predictor.Predictor.load", load)
    with pytest.raises(kind, match=sentence):
        fill(*arguments, **options)
