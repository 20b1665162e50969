"""filbert bias: tables and JSON, a page that needs no other, and one sentence for what is wrong."""

from __future__ import annotations

import json

import pytest

OWN = """
[[association]]
name = "a question"
x = ["film", "play", "run"]
y = ["see", "good", "it"]
a = ["great", "very"]
b = ["bad", "zebra", "not"]

[[group]]
name = "words <b>bold</b></script>"
terms = ["great", "bad"]

[templates]
plain = ["the {} film", "he was {}.", "<i>the {} play</i>"]
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    path = tmp_path_factory.mktemp("bias") / "own.toml"
    path.write_text(OWN, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def source(film_run):
    return film_run.model.checkpoint.source


def test_tables_say_what_was_found_and_what_that_does_not_say(call, source, own):
    done = call("bias", source, "--words", own, "--resamples", "50")
    assert done.status == 0, done.err
    assert "words <b>bold</b></script>: gap 0." in done.out
    assert "vectors: effect size" in done.out
    assert "* No figure here shows that a model is free of bias." in done.out
    assert "log-probability: left out. This model has no masked-LM head" in done.out


def test_json_holds_every_figure_the_words_and_the_limits(call, source, own, tmp_path):
    out = tmp_path / "page.html"
    done = call(
        "bias", source, "--words", own, "--json", "--out", out, "--vectors", "table",
        "--resamples", "50",
    )  # fmt: skip
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["label"] == "pos" and len(found["limits"]) == 7
    (answer,) = found["associations"]
    assert answer["unknown"] == ["zebra"] and answer["test"]["b"]["words"] == ["bad", "not"]
    assert -2 <= answer["low"] <= answer["high"] <= 2
    assert found["log_probabilities"] is None
    page = out.read_text(encoding="utf-8")
    assert "Left out, unknown to the vocabulary: zebra." in page


def test_the_page_needs_nothing_from_outside_and_shows_markup_as_text(call, source, own, tmp_path):
    out = tmp_path / "page.html"
    assert call("bias", source, "--words", own, "--out", out, "--resamples", "50").status == 0
    page = out.read_text(encoding="utf-8")
    assert "words &lt;b&gt;bold&lt;/b&gt;&lt;/script&gt;" in page
    assert "&lt;i&gt;the {} play&lt;/i&gt;" in page
    assert "<script" not in page and "<b>bold" not in page and "<i>the" not in page
    for outside in ("http:", "https:", "src=", "url(", "@import"):
        assert outside not in page
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert "What these figures cannot say" in page
    assert 'style="left:nan' not in page


def test_a_fixed_seed_gives_the_same_page(call, source, own, tmp_path):
    pages = []
    for name in ("one.html", "two.html"):
        call("bias", source, "--words", own, "--out", tmp_path / name, "--resamples", "20")
        pages.append((tmp_path / name).read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    alone = call("bias", source, "--words", own, "--out", "-", "--resamples", "20")
    assert alone.out == pages[0]


def test_what_is_wrong_is_one_sentence(call, source, tiny_model, own, tmp_path):
    wrong = {
        (source, "--only", "log-probability"): "no masked-LM head",
        (tiny_model, "--only", "identity-terms"): "no task head; identity terms need one",
        (source, "--only", "weat"): "--only 'weat' is not one of associations",
        (source, "--vectors", "tables"): "Did you mean 'table'",
        (source, "--label", "nice"): "choose whose score to compare: neg, pos",
        (source, "--words", tmp_path / "none.toml"): "there is no such file",
        (source, "--resamples", "0"): "resamples is 0",
        (source, "--json", "--out", "-"): "both go to stdout",
        (source, "--words", own, "--out", tmp_path): "is a folder; --out names a file",
    }
    for options, message in wrong.items():
        done = call("bias", *options)
        assert done.status == 2, (options, done.err)
        assert message in done.err
        assert done.err.count("\n") == 1 and done.out == ""
