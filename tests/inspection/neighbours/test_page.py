"""The page of a word: one file, every place on it, nothing taken for markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from filbert.inspection.neighbours import word_in_context
from filbert.inspection.occurrences import Source
from filbert.report.neighbours_drawing import (
    MOST_NUMBERED,
    curves_of,
    map_of,
    matrix_of,
    reach_of,
    short,
)
from filbert.report.neighbours_page import around, neighbours_page, notes, verdict

NASTY = "</script><b>the play</b> was & \"bad\" <img src='http://a.example/x.png'>"


class Seen(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.addresses = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page(found):
    return neighbours_page(found)


def test_every_place_every_layer_and_the_verdict_are_on_the_page(page, found):
    text = " ".join("".join(Seen(page).text).split())
    for one in found.occurrences:
        assert " ".join(one.source.text.split()) in text
    assert verdict(found) in text
    for figures in found.layers:
        assert f"{figures.self_similarity:.3f}" in text
        assert f"layer {figures.layer}" in text
    assert "stage" in text
    assert f"{found.similarity[0, found.nearest(0)]:.2f}" in text


def test_the_page_has_no_script_and_asks_for_nothing(page):
    seen = Seen(page)
    assert "script" not in seen.tags
    assert all(address.startswith("#") for address in seen.addresses)
    assert "default-src 'none'" in page
    targets = set(re.findall(r' id="([^"]+)"', page))
    assert {address[1:] for address in seen.addresses} <= targets


def test_a_text_with_markup_shows_as_text(predictor):
    sources = [
        Source(NASTY, "a", "<i>x"),
        Source("to play it", "b", "y"),
        Source("a play", "c", "y"),
    ]
    made = neighbours_page(word_in_context(predictor, "play", sources, name="<model>"))
    seen = Seen(made)
    assert not {"b", "img", "i", "model"} & set(seen.tags)
    assert NASTY in "".join(seen.text)
    assert "<model>" in "".join(seen.text)


def test_points_of_one_vector_are_one_disc_that_says_how_many():
    drawing = map_of(np.zeros((5, 2)), [0] * 5, list("abcde"), reach=1, label="")
    assert drawing.count("<circle") == 1
    assert "×5" in drawing
    assert "a; b; c; d; e" in drawing


def test_the_map_keeps_distances_and_shows_everything():
    points = np.array([[0.0, 0], [2, 0], [0, 1]])
    drawing = map_of(points, [0, 1, 1], list("abc"), reach=reach_of([points]), label="")
    at = [tuple(map(int, pair)) for pair in re.findall(r'cx="(\d+)" cy="(\d+)"', drawing)]
    assert at[1][0] - at[0][0] == pytest.approx(2 * (at[0][1] - at[2][1]), abs=2)
    assert all(0 <= value <= 320 for pair in at for value in pair)
    assert re.findall(r'class="dot k(\d)"', drawing) == ["0", "1", "1"]


def test_a_matrix_is_ordered_and_as_deep_as_its_cosines():
    cosines = np.array([[1, 0.2, 0.9], [0.2, 1, 0.3], [0.9, 0.3, 1]])
    drawing = matrix_of(cosines, [0, 2, 1], lowest=0.2, label="")
    figures = re.findall(r'class="figure[ a-z]*" x="[\d.]+" y="[\d.]+">([^<]+)<', drawing)
    assert figures == [".90", ".20", ".90", ".30", ".20", ".30"]
    heads = re.findall(r'class="mid"[^>]*>(\d)<', drawing)
    assert heads == ["1", "3", "2"]
    # Equal to the palest: no ink at all. Ones: full ink, three cells.
    (deepest,) = re.findall(r'd="([^"]+)" fill-opacity="1.000"', drawing)
    assert deepest.count("M") == 3


def test_a_large_matrix_stays_small():
    size = 100
    cosines = np.clip(np.random.default_rng(0).random((size, size)), 0, 1)
    drawing = matrix_of(cosines, range(size), lowest=0.0, label="")
    assert len(drawing) < 500_000
    assert drawing.count("<text") == 0
    assert size > MOST_NUMBERED


def test_curves_leave_out_what_is_not_known_and_go_below_zero_where_figures_do():
    drawing = curves_of(
        [("a", [0.5, None, 1.0], 0, False), ("b", [-0.15, 0, 0], 1, True)], label=""
    )
    assert drawing.count("<circle") == 5
    assert "a, layer 2: 1.000" in drawing
    ys = [float(y) for y in re.findall(r'cy="([\d.]+)"', drawing)]
    assert max(ys) < 216.5


@pytest.mark.parametrize(
    ("value", "text"), [(0.874, ".87"), (1.0, "1"), (0.999, "1"), (-0.2, "-.20"), (0.0, ".00")]
)
def test_cosines_are_short_in_cells(value, text):
    assert short(value) == text


def test_long_sentences_are_cut_around_the_word_at_whole_words(found):
    from filbert.inspection.occurrences import Occurrence

    text = "one two three play four five six"
    one = Occurrence(Source(text, ""), 14, 18)
    assert around(one, 10, 10) == ("…three ", "play", " four…")
    assert "".join(around(one)) == text


def test_groups_that_could_not_be_made_and_a_form_with_two_vectors_are_named(found):
    assert not [note for note in notes(found) if "asked for" in note or "tokenised" in note]
    more = replace(found, asked=found.groups.count + 1)
    assert any(f"{more.asked} groups were asked for" in note for note in notes(more))
    # As byte-level vocabularies have it: a blank before a word makes it another token.
    two = replace(found, num_static=2)
    assert "2 vectors, one for each way it is tokenised" in verdict(two)
    assert any("tokenised in more than one way" in note for note in notes(two))
    drawn = neighbours_page(replace(found, shares=None, projection="umap"))
    assert "Word table (PCA)" in drawn and "UMAP" in drawn


def test_what_a_reader_must_know_is_said(predictor, sources):
    long = "the film was bad . " * 120 + "he was to play it"
    result = word_in_context(predictor, "play", [long, *sources, "a play"], layer=0, most=4)
    said = " ".join(notes(result))
    assert "places; 4 drawn at random are shown" in said
    assert "Layer 0 has seen no other word" in said
    assert "too few to tell groups from chance" in said or result.groups.count == 1
    cut = word_in_context(predictor, "play", [long, "a play"])
    assert "1 text is longer than the model reads" in " ".join(notes(cut))
