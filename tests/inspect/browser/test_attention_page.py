"""The attention page in a real browser: it shows what the model computes."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

import filbert
from filbert.inference.predictor import Predictor

expect = pytest.importorskip("playwright.sync_api").expect

HARMLESS = "he was greatly good </script><script>alert(1)</script> <b>good</b> & playing"


def merge_words(maps, word_of_token):
    """Turn attention between tokens, (..., n, n), into attention between w words, (..., w, w).

    Attention to a word is the sum over its tokens, attention from a word the mean over its tokens.
    Source: Clark et al. 2019, section 4.1.

    Args:
        maps: Float.
        word_of_token: int (n,), from 0.
    """
    belongs = np.zeros((maps.shape[-1], int(word_of_token.max()) + 1), dtype=maps.dtype)
    belongs[np.arange(len(word_of_token)), word_of_token] = 1
    return np.asarray((belongs / belongs.sum(0)).T @ (maps @ belongs))


@pytest.fixture(scope="module")
def predictor(tiny_model) -> Predictor:
    return Predictor.load(tiny_model)


@pytest.fixture(scope="module")
def pair(predictor, tmp_path_factory):
    """A page of a pair, and what it was made of."""
    found = filbert.inspect(
        predictor, "he was greatly good .", "she was playing < &", layer=1, head=2
    )
    return found.save(tmp_path_factory.mktemp("pages") / "pair.html"), found.views[0]


def told(page):
    return page.locator(".summary").first


def follow(page, number):
    page.get_by_label("Follow").select_option(index=number + 1)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def strongest(weights, labels, units) -> str:
    best = sorted(units, key=lambda unit: -weights[unit])[:4]
    return ", ".join(f"“{labels[unit]}” {percent(weights[unit])}" for unit in best)


def test_it_tells_the_weights_of_tokens_of_words_and_between_sentences(pair, open_file):
    path, view = pair
    page = open_file(path)
    expect(told(page)).to_have_text("Each token on the left looks at tokens on the right.")
    at = view.tokens.index("##ly")
    follow(page, at)
    everything = strongest(view.maps[1, 2, at], view.tokens, range(len(view.tokens)))
    expect(told(page)).to_have_text(f"“##ly” looks at {everything}")
    page.get_by_label("Between").select_option("01")
    second = np.flatnonzero(view.sequence == 1).tolist()
    only = strongest(view.maps[1, 2, at], view.tokens, second)
    expect(told(page)).to_have_text(f"“##ly” looks at {only}")
    page.get_by_label("Between").select_option("all")
    page.locator("#level").get_by_text("Words").click()
    words = merge_words(view.maps[1, 2], view.units)[view.words.index("greatly")]
    of_words = strongest(words, view.words, range(len(view.words)))
    expect(told(page)).to_have_text(f"“greatly” looks at {of_words}")
    page.get_by_role("button", name="All heads", exact=True).click()
    mean = merge_words(view.maps[1].mean(0), view.units)[view.words.index("greatly")]
    of_all = strongest(mean, view.words, range(len(view.words)))
    expect(told(page)).to_have_text(f"“greatly” looks at {of_all}")
    page.get_by_label("Special tokens").uncheck()
    plain = [unit for unit, word in enumerate(view.words) if not word.startswith("[")]
    expect(told(page)).to_have_text(f"“greatly” looks at {strongest(mean, view.words, plain)}")


def test_a_word_is_followed_through_the_layers(pair, open_file):
    path, view = pair
    page = open_file(path)
    page.get_by_role("tab", name="Layers").click()
    follow(page, 2)
    best = [view.tokens[int(view.maps[layer].mean(0)[2].argmax())] for layer in range(2)]
    parts = [f"“{token}” in layer {layer}" for layer, token in enumerate(best)]
    said = ", ".join(parts) if best[0] != best[1] else f"“{best[0]}” in layers 0 to 1"
    expect(told(page)).to_have_text(f"“was” looks most at {said}")


def test_neurons_show_scores_made_of_queries_and_keys(pair, open_file):
    path, view = pair
    page = open_file(path)
    page.get_by_role("tab", name="Neurons").click()
    follow(page, 1)
    expect(told(page)).to_contain_text("Layer 1, head 2: the query of “he”")
    # The fourth row; rows begin 78 below the top and are 24 apart.
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 78 + 3 * 24 + 12)
    query, key = view.queries_keys[1, :, 2]
    score = float(query[1] @ key[3]) / math.sqrt(8)
    expect(told(page)).to_contain_text("“he” to “great”: score")
    said = float(re.search(r"score (-?[\d.]+)", told(page).inner_text()).group(1))
    # Shown to a tenth; a byte a neuron costs less than that.
    assert said == pytest.approx(score, abs=0.06)


def test_the_keyboard_does_it_all(pair, open_file):
    path, view = pair
    page = open_file(path)
    page.locator(".stage").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    expect(told(page)).to_contain_text("“[CLS]” looks at")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#chosen")).to_have_text("layer 1, head 3")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#chosen")).to_have_text("layer 0, head 3")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Follow")).to_have_value("")
    page.get_by_label("Layer 0, head 3", exact=True).focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#chosen")).to_have_text("layer 1, head 2")
    expect(page.get_by_label("Layer 1, head 2", exact=True)).to_be_focused()
    page.keyboard.press("2")
    expect(page.get_by_role("tab", name="Matrix")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Matrix").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="All heads")).to_be_focused()
    # Also where a choice, not a text field, has the focus; and the grid opens without a pointer.
    page.get_by_label("Special tokens").focus()
    page.keyboard.press("4")
    expect(page.get_by_role("tab", name="Layers")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("3")
    page.locator(".stage").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Lines")).to_have_attribute("aria-selected", "true")


def test_every_view_draws_and_a_head_of_the_grid_opens(pair, open_file):
    path, _ = pair
    page = open_file(path, color_scheme="dark")
    count = """(canvas) => {
      const { width, height } = canvas;
      const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
      return new Set(new Uint32Array(pixels.buffer)).size;
    }"""
    for name in ("Lines", "Matrix", "Layers", "Neurons", "All heads"):
        page.get_by_role("tab", name=name).click()
        page.wait_for_timeout(150)
        assert page.locator("canvas").evaluate(count) > 20, name
    box = page.locator("canvas").bounding_box()
    cell = min(104, (box["width"] - 26) / 4)
    page.mouse.click(box["x"] + 26 + 1.4 * cell, box["y"] + 26 + 0.4 * cell)
    expect(page.get_by_role("tab", name="Lines")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#chosen")).to_have_text("layer 0, head 1")


def test_a_drawing_is_saved_as_svg_and_as_png(pair, open_file, tmp_path):
    path, view = pair
    page = open_file(path)
    page.locator("#level").get_by_text("Words").click()
    pieces, words = len(view.tokens), len(view.words)
    # A line in each of the shades that there are, a map, eight maps, a cell a word and layer, two
    # pictures of the query's neurons and two strips a token.
    drawn = {"Lines": ("path", 3), "Matrix": ("image", 1), "All heads": ("image", 8),
             "Layers": ("rect", 2 * words), "Neurons": ("image", 2 * pieces + 1)}  # fmt: skip
    for name, (kind, least) in drawn.items():
        page.get_by_role("tab", name=name).click()
        texts, parts = exported(page)
        wanted = {"All heads": {"0", "1"}, "Neurons": {"great", "##ly"}}
        assert wanted.get(name, {"greatly", "<", "&"}) <= texts
        count = len(parts[kind])
        assert count == least if kind == "image" else count >= least, name
    with page.expect_download() as started:
        page.get_by_role("button", name="PNG").click()
    assert started.value.suggested_filename == "attention-neurons-layer-1.png"
    content = started.value.path().read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 5000


def exported(page):
    """The texts of the drawing that SVG saves, and its parts by kind."""
    with page.expect_download() as started:
        page.get_by_role("button", name="SVG").click()
    parts = defaultdict(list)
    for part in ElementTree.parse(started.value.path()).iter():
        parts[part.tag.removeprefix("{http://www.w3.org/2000/svg}")].append(part)
    return {part.text for part in parts["text"]}, parts


def test_a_mean_over_heads_is_over_those_that_the_layer_has(predictor, open_file, tmp_path):
    found = filbert.inspect(predictor, "the film was good")
    (view,) = found.views
    view.maps[1, 2:] = 0
    view.is_pruned[1, 2:] = True
    page = open_file(replace(found, layer=1).save(tmp_path / "page.html"))
    follow(page, 2)
    mean = view.maps[1, :2].mean(0)[2]
    of_all = strongest(mean, view.tokens, range(len(view.tokens)))
    expect(told(page)).to_have_text(f"“film” looks at {of_all}")
    expect(page.locator("#facts")).to_contain_text("2 layers of 2 to 4 heads")
    page.get_by_label("Layer 1, head 3", exact=True).click()
    expect(told(page)).to_have_text("Layer 1 of model has 2 of 4 heads left; this one was pruned.")


def test_markup_in_a_text_is_text_and_the_page_fits_a_phone(predictor, open_file, tmp_path):
    found = filbert.inspect(predictor, HARMLESS)
    assert "<b>good" not in found.html
    page = open_file(found.save(tmp_path / "page.html"), viewport={"width": 390, "height": 844})
    expect(page.locator("#texts")).to_have_text(HARMLESS)
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        box = tab.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    # The policy lets nobody else's script run.
    put = "() => { const s = document.createElement('script'); s.text = 'window.ran = 1'; "
    assert page.evaluate(f"{put} document.body.append(s); return window.ran ?? 0; }}") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(pair, open_file, findings, scheme):
    assert findings(open_file(pair[0], color_scheme=scheme)) == []


def test_two_models_and_two_texts_stand_side_by_side(tiny_model, deep_model, open_file, tmp_path):
    texts = ["the good film", "a film was good"]
    found = filbert.inspect([tiny_model, deep_model], texts, layer=1)
    page = open_file(found.save(tmp_path / "page.html"), viewport={"width": 1280, "height": 900})
    expect(page.locator(".panel")).to_have_count(4)
    follow(page, 3)
    for at in range(4):
        expect(page.locator(".summary").nth(at)).to_contain_text("“film” looks at")
    page.get_by_label("Layer 3, head 0", exact=True).click()
    expect(page.locator(".summary").first).to_contain_text("there is no such head")
    expect(page.locator(".summary").nth(2)).to_contain_text("“film” looks at")


def test_it_shows_itself_in_a_notebook(pair, predictor, browser):
    found = filbert.inspect(predictor, HARMLESS)
    page = browser.new_page()
    page.set_content(f"<body>{found._repr_html_()}</body>")
    frame = page.frame_locator("iframe")
    expect(frame.locator("#texts")).to_have_text(HARMLESS)
    expect(frame.locator(".summary")).to_contain_text("looks at")
    page.close()
