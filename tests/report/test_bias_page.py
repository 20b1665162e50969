"""The page of a bias report: every word is on it, dots and lines stand where the numbers are."""

from __future__ import annotations

import html

import pytest

from filbert.inspection.bias.check import BiasReport
from filbert.inspection.bias.words import read_words
from filbert.report.bars import Scale, bar_of
from filbert.report.bias_drawing import between, chance, range_of, signed
from filbert.report.bias_page import bias_page


def test_every_word_and_sentence_of_every_question_is_on_the_page():
    words = read_words()
    report = BiasReport("m", words, {}, "pos", 0.95, 10, 0, (), (), ())
    page = html.unescape(bias_page(report).partition("All words and sentences")[2])
    # Two questions have "male terms", and they are other words.
    lists = [one.words for test in words.associations for one in (test.x, test.y, test.a, test.b)]
    lists += [one.words for asked in words.log_probabilities for one in (asked.a, asked.b)]
    lists += [asked.templates for asked in words.log_probabilities]
    lists += [one.terms for one in words.groups]
    lists += [words.bleached, *words.templates.values()]
    for one in lists:
        assert " · ".join(one) in page
    for pair in (pair for asked in words.log_probabilities for pair in asked.targets):
        assert " over ".join(pair) in page


def test_zero_and_all_values_are_on_the_scale():
    scale = Scale.over([0.5, None, 1.0])
    assert scale.low < 0 < scale.high
    assert 0 < scale.at(0.0) < scale.at(0.5) < scale.at(1.0) < 100
    assert Scale.over([]).at(0.0) == pytest.approx(50)
    assert Scale.over([0.0, 0.0]).at(0.0) == pytest.approx(50)


def test_a_dot_lies_within_its_line():
    scale = Scale(-1.0, 1.0)
    drawn = range_of(0.5, 0.0, 0.8, scale)
    assert "left:50.0%;width:40.0%" in drawn
    assert '<b class="" style="left:75.0%">' in drawn
    assert "--zero:50.0%" in drawn
    assert 'class="over"' in range_of(-0.5, -0.6, 0.1, scale)
    assert range_of(None, None, None, scale) == ""
    assert "<i" not in range_of(0.5, None, None, scale)


def test_a_bar_goes_from_zero_to_either_side():
    scale = Scale(-2.0, 2.0)
    assert "left:50.0%;width:25.0%" in bar_of(1.0, scale)
    assert "left:25.0%;width:25.0%" in bar_of(-1.0, scale)


def test_figures_are_written_with_their_sign():
    assert signed(0.5) == "+0.50"
    assert signed(-0.123, 3) == "−0.123"
    assert between(-0.1, None) == "–"
    assert between(-0.1, 0.2) == "−0.10 to +0.20"
    assert [chance(p) for p in (None, 0.0004, 0.25)] == ["–", "< 0.001", "0.250"]
