"""filbert neighbours: sentences, files and stdin; tables, JSON and a page; refusals."""

from __future__ import annotations

import json

import pytest

SENTENCES = ("he was to play it", "a very bad play", "to play and to see")


def test_sentences_on_the_command_line_are_compared(call, tiny_model, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    done = call("neighbours", tiny_model, "--word", "play", *SENTENCES)
    assert done.status == 0, done.err
    for text in SENTENCES:
        assert text in done.out
    assert "layer 2 below the diagonal, word table above" in done.out
    assert "one vector for all 3" in " ".join(done.out.split())
    assert "too few to tell groups from chance" in done.err


def test_json_and_page_come_together(call, tiny_model, tmp_path):
    out = tmp_path / "play.html"
    done = call("neighbours", tiny_model, "--word", "play", *SENTENCES, "--json", "--out", out)
    told = json.loads(done.out)
    assert [one["where"] for one in told["occurrences"]] == [f"sentence {i}" for i in (1, 2, 3)]
    assert told["layer"] == 2
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert f"Wrote {out} (" in done.err


def test_a_file_may_say_the_senses_under_its_own_names(call, tiny_model, tmp_path):
    file = tmp_path / "play.csv"
    rows = [f'"{text}, {i}",{"ab"[i % 2]}' for i, text in enumerate(SENTENCES * 2)]
    file.write_text("body,meaning\n" + "\n".join(rows) + "\n", encoding="utf-8")
    done = call(
        "neighbours", tiny_model, file, "--word", "play", "--text-column", "body",
        "--sense-column", "meaning", "--layer", "-2", "--json",
    )  # fmt: skip
    told = json.loads(done.out)
    assert [one["sense"] for one in told["occurrences"]] == list("ababab")
    assert told["layer"] == 1
    assert told["layers"][1]["nearest_same"] is not None


@pytest.mark.parametrize("nothing", ["", " "])
def test_a_place_without_a_sense_is_named(call, tiny_model, tmp_path, nothing):
    file = tmp_path / "play.csv"
    rows = [f'"{text}",{sense}' for text, sense in zip(SENTENCES, ["a", nothing, "b"], strict=True)]
    # A row without the word may lack it.
    file.write_text("\n".join(["text,sense", *rows, "the film,"]) + "\n", encoding="utf-8")
    asked = ["neighbours", tiny_model, file, "--word", "play", "--sense-column", "sense"]
    done = call(*asked)
    assert done.status == 2 and f"{file}:3: no sense. Fill it in" in done.err
    file.write_text(file.read_text().replace(f",{nothing}\n", ",b\n", 1), encoding="utf-8")
    assert json.loads(call(*asked, "--json").out)["layers"][1]["nearest_same"] is not None


def test_texts_come_from_stdin_and_several_forms_are_looked_for(call, tiny_model):
    stdin = "he plays it\n\nto play it\nthe film\n"
    done = call(
        "neighbours", tiny_model, "-", "--word", "play", "--word", "plays", "--json", stdin=stdin
    )
    told = json.loads(done.out)
    assert [one["pieces"] for one in told["occurrences"]] == [["play", "##s"], ["play"]]
    assert told["other_texts"] == 1


def test_one_long_text_is_a_text_and_its_page_is_alone_on_stdout(call, tiny_model):
    # Longer than any file name: the system refuses to look for it.
    text = "the film was very good . " * 12 + "he was to play a play"
    done = call("neighbours", tiny_model, text, "--word", "play", "--out", "-")
    assert done.status == 0, done.err
    assert done.out.startswith("<!doctype html>") and done.out.endswith("</html>\n")
    assert "“play” in 2 places" in done.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--word", "play", *SENTENCES, "--json", "--out", "-"], "both go to stdout"),
        (["--word", "play", "my notes.txt"], "my notes.txt: no such file"),
        (["--word", "play"], "There is nothing to read: give a file"),
        (["--word", "play", "nofile.txt"], "nofile.txt: no such file"),
        (["--word", "play", "a play", " "], "Sentence 2 is empty"),
        (["--word", "", "a play", "to play"], "--word is empty"),
        (["--word", "zebra", "a play", "to play"], "in none of the 2 texts"),
        (["--word", "play", "a play", "the film"], "only once in the 2 texts"),
        (["--word", "play", *SENTENCES, "--layer", "7"], "--layer 7 is not in -3..2"),
        (["--word", "play", *SENTENCES, "--plot", "tsne"], "--plot 'tsne' is not one of"),
        (["--word", "play", *SENTENCES, "--senses", "4"], "the word has 3 places"),
        (["--word", "play", *SENTENCES, "--sense-column", "x"], "--sense-column is for a file"),
        (["--word", "play", "pyproject.toml", "a play"], "pyproject.toml is a file; give one"),
        (["--wrod", "play", *SENTENCES], "--word"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(call, tiny_model, arguments, sentence, monkeypatch):
    from pathlib import Path

    monkeypatch.chdir(Path(__file__).parents[2])
    done = call("neighbours", tiny_model, *arguments)
    assert done.status == 2
    assert sentence in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not done.out


def test_a_long_list_is_cut_in_the_terminal_only(call, tiny_model, tmp_path):
    file = tmp_path / "play.txt"
    file.write_text("".join(f"he was to play it {i}\n" for i in range(40)), encoding="utf-8")
    done = call("neighbours", tiny_model, file, "--word", "play")
    assert "and 10 more" in done.out
    assert "below the diagonal" not in done.out
    told = json.loads(call("neighbours", tiny_model, file, "--word", "play", "--json").out)
    assert len(told["occurrences"]) == 40
