"""The pages of `explain` and `bias` in a real browser: phone and desktop, light and dark."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.inspection.attributions import METHODS, explain
from filbert.inspection.bias.association import Associated
from filbert.inspection.bias.check import BiasReport
from filbert.inspection.bias.identity import Compared, Term
from filbert.inspection.bias.log_probability import Shifted
from filbert.inspection.bias.words import read_words
from filbert.predict import Predictor
from filbert.report.bias_page import bias_page
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
    for name, page in (("explain", explanation_page(found, LONG)), ("bias", bias_page(_report()))):
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder


def _report() -> BiasReport:
    """Figures of all kinds, made up: the page is what is looked at."""
    words = read_words()
    ends = {"low": -0.4, "high": 1.3}
    leanings = [
        Associated(
            test, kind, (LONG,), 0.9, **ends, p_one_sided=0.01, p_two_sided=0.02, p_holm=0.0001,
            nearer=dict(zip((*test.x.words, *test.y.words), (0.1, -0.2) * 99, strict=False)),
        )
        for kind in ("table", "context")
        for test in words.associations
    ]  # fmt: skip
    leanings[1] = replace(leanings[1], effect=-0.9, low=-1.8, high=0.1)
    shifted = [
        Shifted(
            test, (), 0.3, dict.fromkeys((*test.a.words, *test.b.words), -0.31), 0.44, **ends,
            effect=0.5, effect_low=0.1, effect_high=0.9, p_two_sided=0.02, p_holm=0.06,
            by_template=dict.fromkeys(test.templates, 0.2),
        )
        for test in words.log_probabilities
    ]  # fmt: skip
    compared = [
        Compared(
            group,
            tuple(
                Term(name, 0.3, 0.1, -0.05, 0.12, dict.fromkeys(words.templates, 0.31))
                for name in (*group.terms, LONG)
            ),
            0.1, 0.05, 0.01, None if group.is_control else 0.02, 0.1, (LONG,),
        )
        for group in words.groups
    ]  # fmt: skip
    return BiasReport(
        LONG, words, {"a part": "left out"}, "pos", 0.95, 10, 0, tuple(leanings), tuple(shifted),
        tuple(compared),
    )  # fmt: skip


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("name", ["explain", "bias"])
def test_nothing_sticks_out_and_the_dark_is_dark(open_file, pages, name, shown):
    width, scheme = SHOWN[shown]
    page = open_file(
        pages / f"{name}.html", viewport={"width": width, "height": 900}, color_scheme=scheme
    )
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
    row = "tr:has(.bar)" if name == "explain" else ".answers tr:has(.range)"
    box = page.locator(f"{row} .bar, {row} .range").first.bounding_box()
    assert box["width"] > 80 and box["x"] + box["width"] <= width
    figure = page.locator(f"{row} td.number").last.bounding_box()
    assert figure["x"] + figure["width"] <= width
    if name == "explain":  # short words stand on one line
        assert page.get_by_role("cell", name="good", exact=True).first.bounding_box()["height"] < 40
