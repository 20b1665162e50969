"""`filbert.inspect` and `filbert inspect`: what they give, and what they refuse."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

import filbert
from filbert.cli.heat_map import print_heat_map
from filbert.cli.main import run
from filbert.errors import ConfigError, InputError
from filbert.inspection.page import most_telling
from filbert.predict import Predictor


@pytest.fixture(scope="module")
def predictor(tiny_model) -> Predictor:
    return Predictor.load(tiny_model)


@pytest.fixture
def call(capsys):
    def go(*arguments):
        status = run([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return go


def test_every_model_sees_every_text_and_a_pair_is_one_text(predictor, tiny_model):
    found = filbert.inspect([predictor, tiny_model], ["the film", ("a film", "a play")])
    assert [(view.model, view.texts) for view in found.views] == [
        (name, texts)
        for name in ("model 1", "model 2")
        for texts in (("the film",), ("a film", "a play"))
    ]
    assert filbert.inspect(predictor, "a film", "a play").views[0].texts == ("a film", "a play")
    assert repr(found).startswith("Inspection(model 1: 4 tokens, model 1: 7 tokens")


def test_models_of_one_name_are_told_apart_by_their_folders(predictor, tiny_model, deep_model):
    above, name = tiny_model.parent.name, tiny_model.name
    assert [view.model for view in filbert.inspect(predictor, "a film").views] == [name]
    found = filbert.inspect([predictor, deep_model], "a film")
    assert deep_model.name == name
    assert [view.model for view in found.views] == [
        f"{above}/{name}",
        f"{deep_model.parent.name}/{name}",
    ]


def test_a_loaded_model_is_cut_as_asked_and_stays_on_its_device(predictor):
    (view,) = filbert.inspect(predictor, "film " * 12, max_length=5).views
    assert (len(view.tokens), view.num_tokens) == (5, 14)
    with pytest.raises(ConfigError, match="max_length 65 is not in 3..64"):
        filbert.inspect(predictor, "a film", max_length=65)
    with pytest.raises(ConfigError, match="stays on its device"):
        filbert.inspect(predictor, "a film", device="cpu")


def test_the_page_asks_nobody_for_anything(predictor, tmp_path):
    found = filbert.inspect(predictor, "the film was good")
    path = found.save(tmp_path / "page.html")
    content = path.read_text(encoding="utf-8")
    assert content == found.html
    assert "default-src 'none'" in content
    for address in ("http://", "https://", "@import", "url(h", "src="):
        assert address not in content.replace("http://www.w3.org/2000/svg", "")


def test_a_page_opens_at_the_head_that_looks_at_other_words(predictor):
    (view,) = filbert.inspect(predictor, "the film was very good , he").views
    view.maps[:] = np.eye(len(view.tokens))
    view.maps[1, 3] = np.roll(np.eye(len(view.tokens)), 3, axis=1)
    assert most_telling(view) == (1, 3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"text": ["a film"] * 7}, "7 texts make 7 views side by side; at most 6"),
        ({"text": []}, "nothing to look at"),
        ({"text": ["a", "b"], "text_b": "c"}, "second text of one pair"),
        ({"neurons": [(2, 0)]}, "no head 0 in layer 2"),
        ({"layer": 2}, r"layer 2 is not in 0\.\.1"),
        ({"head": 4}, r"head 4 is not in 0\.\.3"),
    ],
)
def test_what_cannot_be_shown_is_refused(predictor, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        filbert.inspect(predictor, **{"text": "the film"} | options)


def test_a_place_that_cannot_be_written_to_is_named(predictor, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        filbert.inspect(predictor, "the film").save(tmp_path / "none" / "page.html")


def test_a_place_for_no_page_is_told_before_the_model_is_loaded(call, tmp_path):
    (tmp_path / "there.html").write_text("kept")
    wrong = {
        tmp_path / "none" / "page.html": "cannot be written: No such file or directory. Make the",
        tmp_path: "is a folder; --out names a file",
        tmp_path / "page.png": "a page is one HTML file",
        "-": "--text and --out - both go to stdout",
    }
    for out, sentence in wrong.items():
        status, printed, told = call("inspect", "no/model", "a film", "--text", "--out", out)
        assert (status, printed, told.count("\n")) == (2, "", 1)
        assert sentence in told
    # A place that will do is left as it was.
    status, _, told = call("inspect", "./none", "a film", "--out", tmp_path / "there.html")
    assert status == 2 and "none" in told
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("there.html", "kept")]


def test_any_one_of_the_texts_may_come_from_stdin(call, tiny_model, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("a play\n"))
    status, out, told = call("inspect", tiny_model, "a film", "-", "--text")
    assert (status, told) == (0, "")
    assert [line.split()[1] for line in out.splitlines()[2:]] == [
        "[CLS]", "a", "film", "[SEP]", "a", "play", "[SEP]",
    ]  # fmt: skip
    status, _, told = call("inspect", tiny_model, "-", "--and-text", "-", "--text")
    assert (status, told) == (2, "filbert: Only one of the texts can come from stdin.\n")


def test_the_verb_writes_a_page_and_prints_a_map(call, tiny_model, tmp_path):
    page = tmp_path / "page.html"
    status, out, told = call(
        "inspect", tiny_model, "he was greatly good", "playing", "--out", page, "--text",
        "--layer", 1, "--head", 2, "--words", "--and-text", "a film", "--neurons", "1.2",
    )  # fmt: skip
    assert status == 0, told
    assert f"Wrote {page} (0." in told
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    lines = out.splitlines()
    assert lines[0] == "model, layer 1, head 2: per cent, rows look at columns"
    assert lines[5].split()[:2] == ["4", "greatly"]
    for line in lines[2:8]:
        assert sum(int(cell) for cell in line.split()[2:] if cell != "·") in range(96, 105)
    assert "2 a" in out.split("\n\n")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a film"], "Where shall it be shown? Name a page with --out"),
        (["", "--text"], "The text is empty. Give a sentence."),
        (["the film " * 300, "--text"], "The text has 602 tokens, model reads 64."),
        (["a film", "--text", "--max-length", "900"], "max_length 900 is not in 3..64"),
        (["a film", "--text", "--neurons", "3"], "--neurons '3' is no head; write layer.head"),
        (["a film", "--text", "--layer", "7"], "layer 7 is not in 0..1, those of model."),
    ],
)
def test_a_wrong_call_gets_one_sentence(call, tiny_model, arguments, sentence):
    status, out, told = call("inspect", tiny_model, *arguments)
    assert (status, out) == (2, "")
    assert told.startswith(f"filbert: {sentence}")
    assert told.count("\n") == 1


def test_a_long_text_is_cut_when_asked_and_that_is_said(call, tiny_model):
    status, out, told = call("inspect", tiny_model, "the film " * 300, "--text", "--max-length", 9)
    assert status == 0
    assert told == "model sees the first 9 of 602 tokens.\n"
    assert len(out.splitlines()) == 11


@pytest.mark.parametrize(("width", "wanted"), [(60, " 100"), (24, "█"), (20, "right 100 …")])
def test_the_map_takes_another_shape_where_the_terminal_is_narrow(width, wanted):
    stream = io.StringIO()
    weights = np.roll(np.eye(12), 1, axis=1)
    labels = ["right" if at % 2 else "left" for at in range(12)]
    print_heat_map(weights, labels, Console(file=stream, width=width))
    lines = stream.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    assert wanted in next(line for line in lines if line.lstrip().startswith("1 left"))
