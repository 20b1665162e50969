"""Each panel of the page in a real browser: it shows what the server answers."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

expect = pytest.importorskip("playwright.sync_api").expect

TEXT = "the film was very good , and he was not bad"


def share_of(element: Any) -> float:
    return float(element.evaluate("(e) => e.style.getPropertyValue('--share')"))


def test_there_is_a_tab_for_each_thing_that_the_models_can_do(open_page, serve):
    page = open_page()
    names = ["Fill in", "Classes", "Choice", "Entities", "Answer", "Similarity", "Tokens"]
    expect(page.get_by_role("tab")).to_have_text([*names, "Attention"])
    with serve("words") as other:
        page = open_page(base=other.base_url)
        expect(page.get_by_role("tab")).to_have_text(
            ["Entities", "Similarity", "Tokens", "Attention"]
        )
        expect(page.locator("#models")).to_be_hidden()


def test_fill_shows_the_candidates_and_puts_one_in(open_page, write, post):
    page = write(open_page("fill"), "the [MASK] was [MASK] .", "Text with a [MASK]")
    answer = post("/fill", inputs="the [MASK] was [MASK] .")
    rows = page.locator(".gaps .bar")
    wanted = [one["token"] for gap in answer["candidates"] for one in gap]
    expect(rows.locator(".name")).to_have_text(wanted)
    best, second = answer["candidates"][0][:2]
    assert rows.nth(1).locator(".share").inner_text() == f"{100 * second['score']:.1f} %"
    relative = share_of(rows.nth(1).locator(".length"))
    assert relative == pytest.approx(second["score"] / best["score"], abs=1e-4)
    rows.nth(1).get_by_role("button").click()
    expect(page.get_by_label("Text with a [MASK]")).to_have_value(second["sequence"])


def test_classes_stand_against_their_thresholds(open_page, write, post):
    page = write(open_page("classes"), TEXT)
    block = page.get_by_role("article", name="judged")
    scores = {s["label"]: s["score"] for s in post("/predict", inputs=TEXT, model="judged")}
    assert 0.25 <= scores["pos"] < 0.5, "the threshold, not the likelier label, decides"
    expect(block.locator(".verdict")).to_have_text("pos")
    row = block.locator(".bar", has_text="pos")
    assert share_of(row.locator(".line")) == 0.25
    assert share_of(row.locator(".length")) == pytest.approx(scores["pos"], abs=1e-4)
    expect(block.locator(".line")).to_have_count(1)
    several = page.get_by_role("article", name="kinds")
    expect(several.locator(".line")).to_have_count(3)
    found = post("/predict", inputs=TEXT, model="kinds")
    given = [one["label"] for one in found if one["score"] >= 0.5]
    expect(several.locator(".verdict")).to_have_text(", ".join(given) or "No label")


def test_entities_are_marked_where_they_stand_also_after_an_emoji(open_page, write, post):
    text = "🌰🌰 " + TEXT
    page = write(open_page("entities"), text)
    entities = post("/tag", inputs=text)["entities"]
    assert entities
    marks = page.locator("mark")
    expect(marks).to_have_text([one["text"] + one["label"] for one in entities])
    shown = page.locator(".passage").inner_text()
    assert shown.startswith("🌰🌰 ") or entities[0]["start"] == 0


def test_the_answer_is_marked_in_its_paragraph(open_page, write, post):
    page = open_page("answer")
    page.get_by_role("textbox", name="Question").fill("was it good ?")
    write(page, TEXT, "Paragraph")
    answer = post("/answer", question="was it good ?", context=TEXT)
    assert answer["answer"]
    expect(page.locator(".verdict")).to_have_text(answer["answer"])
    before = page.locator("mark").evaluate("(mark) => mark.previousSibling.textContent")
    expect(page.locator("mark")).to_have_text(answer["answer"])
    assert len(before) == answer["start"]


def test_attention_follows_layer_head_and_token(open_page, settled, write, post):
    page = open_page("fill")
    for name in ("masks", "judged", "kinds", "words", "spans", "choices"):
        page.get_by_role("checkbox", name=name).uncheck()
    page.get_by_role("tab", name="Attention").click()
    write(page, TEXT)
    layer = page.get_by_label("Layer")
    layer.focus()
    layer.press("ArrowUp")
    settled(page)
    expect(page.get_by_label("Layer")).to_be_focused()
    chosen = int(page.get_by_label("Layer").input_value())
    answer = post("/attention", inputs=TEXT, layers=[chosen], model="vectors")
    page.locator(".thumbs input[value='2']").check(force=True)
    page.get_by_role("combobox", name="Token").select_option("3")
    row = np.array(answer["maps"][0][2][3])
    best = int(row.argmax())
    told = page.locator(".attention > .hint")
    looks = f"“{answer['tokens'][3]}” looks at “{answer['tokens'][best]}” {100 * row[best]:.1f} %"
    expect(told).to_contain_text(looks)
    expect(page.locator(".drawing line")).to_have_count(int((row >= 0.005).sum()))
    page.get_by_label("Matrix").check(force=True)
    expect(page.locator(".drawing rect.band")).to_have_count(1)
    page.locator(".drawing .from").nth(5).click()
    expect(told).to_contain_text(f"“{answer['tokens'][5]}” looks at")


RUN_IT = {"curl": ["sh", "-c"], "Python": [sys.executable, "-c"]}


@pytest.mark.parametrize("shown", RUN_IT)
def test_the_request_shown_gives_the_answer_when_copied(open_page, shown, write, post):
    if shown == "curl" and shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    text = """it's a [MASK] "film" $HOME `ls` \\ 🌰"""
    page = open_page("fill", permissions=["clipboard-read", "clipboard-write"])
    write(page, text, "Text with a [MASK]")
    page.get_by_text("Request", exact=True).click()
    page.get_by_role("button", name=f"Copy {shown}").click()
    expect(page.locator(".snippet").get_by_text("Copied")).to_be_visible()
    code = page.evaluate("() => navigator.clipboard.readText()")
    command = [*RUN_IT[shown], code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    read = json.loads if shown == "curl" else ast.literal_eval
    assert read(said) == post("/fill", inputs=text)
