"""The page of `explain` in a real browser: phone and desktop, light and dark."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from filbert.formats import huggingface
from filbert.formats.checkpoint import with_new_head
from filbert.inspection.attributions import METHODS, explain
from filbert.predict import Predictor
from filbert.report.explanation import explanation_page
from filbert.tasks.classification import Classification
from filbert.text.tokenizer import Tokenizer

# Wider than a phone, without a place to break.
LONG = "Donaudampfschifffahrtsgesellschaft" * 3
SHOWN = {"phone": (390, "dark"), "desk": (1280, "light")}


@pytest.fixture(scope="module")
def pages(tiny_model, tmp_path_factory):
    torch.manual_seed(3)
    model = with_new_head(huggingface.read(tiny_model), "sequence", 2).build()
    task = Classification(labels=("neg", "pos"))
    predictor = Predictor(model, Tokenizer.load(tiny_model), task)
    text = f"the film </script><b> was not {LONG} very good, and he was to see it 1 2 3"
    found = [explain(predictor, text, method=method) for method in METHODS]
    # The longest unit there is.
    claim = replace(found[0].claim, unit="log-odds of start and end")
    found = [replace(one, claim=claim) for one in found]
    folder = tmp_path_factory.mktemp("pages")
    path = folder / "explain.html"
    path.write_text(explanation_page(found, LONG), encoding="utf-8")
    return path


@pytest.mark.parametrize("shown", SHOWN)
def test_nothing_sticks_out_and_the_dark_is_dark(open_file, pages, shown):
    width, scheme = SHOWN[shown]
    page = open_file(pages, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    background, ink = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        ".map(text => text.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0))"
    )
    assert (background < 150 < 500 < ink) if scheme == "dark" else (ink < 150 < 500 < background)
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1
    assert page.locator("b", has_text="was not").count() == 0
    # Drawings are seen, and their figures are on the screen beside them.
    row = "tr:has(.bar)"
    box = page.locator(f"{row} .bar").first.bounding_box()
    assert box["width"] > 80 and box["x"] + box["width"] <= width
    figure = page.locator(f"{row} td.number").last.bounding_box()
    assert figure["x"] + figure["width"] <= width
    # A short word is not broken over lines.
    assert page.get_by_role("cell", name="good", exact=True).first.bounding_box()["height"] < 40
