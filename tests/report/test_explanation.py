"""The page of `filbert explain`: texts as text, nothing from outside, true colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.inspection.attributions import METHODS, Explanation, explain
from filbert.inspection.claims import Word
from filbert.inspection.coloured import texts_html
from filbert.predict import Predictor
from filbert.report.explanation import explanation_page
from filbert.tasks.classification import Classification
from filbert.text.tokenizer import Tokenizer

HOSTILE = ("the film </script><b>was</b> \"good\" & 'not' bad", "play {{ x }} <!-- it --> \ud83d")


class Page(HTMLParser):
    """Tags, addresses and visible texts of a page whose tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str | None] = []
        self.styles: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.coloured: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.addresses += [found[name] for name in ("src", "href") if name in found]
        self.styles.append(found.get("style") or "")
        if found.get("class") == "coloured":
            self.coloured.append("")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)
        if "p" in self.open and "small" not in self.open and self.coloured:
            self.coloured[-1] += data


@pytest.fixture(scope="module")
def found(tiny_model: Path) -> Iterator[list[Explanation]]:
    torch.manual_seed(3)
    model = with_new_head(huggingface.read(tiny_model), "sequence", 2).build()
    task = Classification(labels=("</title><i>neg", "<i>pos"))
    predictor = Predictor(model, Tokenizer.load(tiny_model), task)
    yield [explain(predictor, HOSTILE, method=method) for method in METHODS]


def test_the_page_shows_hostile_texts_and_labels_as_text(found: list[Explanation]) -> None:
    page = explanation_page(found, "runs/<b>x</b>/model")
    page.encode("utf-8")
    read = Page(page)
    assert not {"script", "b", "i"} & set(read.tags) - {"i"}
    # The bars are the only <i>: each has a style.
    styled = [style for tag, style in zip(read.tags, read.styles, strict=True) if tag == "i"]
    assert styled and all(style.startswith("left:") for style in styled)
    text = " ".join(read.words)
    assert "runs/<b>x</b>/model" in text
    assert "<i>" in text
    first, second = HOSTILE[0], HOSTILE[1].replace("\ud83d", "?")
    for shown in read.coloured[::2]:
        assert first in shown
    assert any(second in shown for shown in read.coloured)


def test_a_word_that_is_markup_itself_is_shown_as_text(found: list[Explanation]) -> None:
    text = HOSTILE[0]
    start = text.index("</script>")
    word = Word("</script><b>", 0, start, start + 12, (1, 2))
    shares = np.array([1.0])
    one = replace(found[0], claim=replace(found[0].claim, words=(word,)), shares=shares)
    read = Page(explanation_page([one], "model"))
    assert "b" not in read.tags
    assert "script" not in read.tags
    assert read.coloured[0].endswith(text)


def test_bars_go_right_for_what_speaks_for_it_and_left_for_what_speaks_against(
    found: list[Explanation],
) -> None:
    one = found[0]
    assert (one.shares < 0).any() and (one.shares > 0).any()
    styles = Page(explanation_page([one], "model")).styles
    bars = [re.findall(r"left:([\d.]+)%;width:([\d.]+)%", style) for style in styles]
    found_bars = [(float(left), float(width)) for ((left, width),) in filter(None, bars)]
    for (_, share), (left, width) in zip(one.ranked()[:12], found_bars, strict=False):
        end = left if share > 0 else left + width
        assert end == pytest.approx(50.0, abs=0.11)  # printed with one digit


def test_the_page_asks_for_nothing_from_outside(found: list[Explanation]) -> None:
    page = explanation_page(found, "model")
    assert "default-src 'none'" in page
    assert all(address and address.startswith("#") for address in Page(page).addresses)
    assert not re.search(r"https?://|@import|url\(", page)


def test_the_largest_word_has_the_strongest_colour_and_the_sign_its_own(
    found: list[Explanation],
) -> None:
    for one in found:
        markup = texts_html(one)
        (word, share), *_ = one.ranked()
        hue = "0,158,115" if one.value is None else ("0,114,178" if share > 0 else "213,94,0")
        assert re.search(rf"rgba\({hue},0\.650\)[^>]*>{re.escape(word.text)}<", markup)
        assert one._repr_html_() == markup


def test_the_page_says_whether_the_shares_add_up_and_what_to_doubt(
    found: list[Explanation],
) -> None:
    page = " ".join(Page(explanation_page(found, "model")).words)
    assert page.count("Completeness error") == 3
    # Gradient times input starts where the special tokens are zero too.
    assert page.count("for every word: ") == 2 and page.count("for every token: ") == 1
    assert ("underlined" in page) == bool(found[0].claim.marks)
    assert f"{found[0].steps} steps" in page
    assert "the same for every answer" in page
    assert "special tokens:" in page
