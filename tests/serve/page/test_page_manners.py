"""How the page behaves in a real browser: in trouble, by keyboard, narrow, with hostile texts."""

import pytest

from filbert.serve.routes import shared

expect = pytest.importorskip("playwright.sync_api").expect


def test_markup_in_a_text_stays_text(open_page, write):
    text = "<img src=x onerror=alert(1)> <script>alert(2)</script> good"
    page = open_page("fill")
    write(page, text + " [MASK]", "Text with a [MASK]")
    page.get_by_role("tab", name="Tokens").click()
    write(page, text)
    page.get_by_role("tab", name="Entities").click()
    write(page, text)
    expect(page.locator(".passage")).to_contain_text("onerror")
    assert page.locator("main img, main script").count() == 0


def test_the_browser_itself_refuses_scripts_that_are_not_the_pages_own(open_page):
    page = open_page()
    script = "document.head.appendChild(document.createElement('script'))"
    refused = page.evaluate(
        f"() => {{ try {{ {script}.text = 'x = 1' }} catch (e) {{ return e.name }} }}"
    )
    assert refused == "TypeError", "trusted types"
    assert page.evaluate("typeof x") == "undefined"


def test_a_refusal_is_said_in_the_servers_words(open_page, serve, write, post, monkeypatch):
    monkeypatch.setattr(shared, "MAX_CHARACTERS", 40)
    with serve("masks") as client:
        page = open_page("tokens", base=client.base_url)
        write(page, "good " * 10)
        said = client.post("/tokenize", json={"inputs": "good " * 10}).json()["error"]
        expect(page.locator("article .caution")).to_have_text(said)
        expect(page.locator("#summary")).to_have_text(said)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": 429, "headers": {"retry-after": "7"}, "json": {}}, "busy. Try again in 7 s."),
        ({"status": 502, "body": "<html>"}, "status 502 and no JSON"),
        (None, "The server does not answer"),
    ],
)
def test_a_server_in_trouble_is_told_apart(open_page, answer, said, settled):
    page = settled(open_page("fill"))
    give = (lambda route: route.abort()) if answer is None else lambda r: r.fulfill(**answer)
    page.route("**/fill", give)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("article .caution")).to_contain_text(said)
    page.unroute("**/fill")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".bar")).to_have_count(5)


def test_a_key_opens_the_page(open_page, serve, tmp_path, settled):
    (tmp_path / "keys").write_text("a-long-key\n")
    with serve("masks", api_keys=str(tmp_path / "keys")) as client:
        page = open_page(base=client.base_url)
        page.get_by_label("Key").fill("a-wrong-key")
        page.get_by_role("button", name="Use this key").click()
        expect(page.get_by_role("alert").first).to_have_text("The server does not accept this key.")
        page.get_by_label("Key").fill("a-long-key")
        page.get_by_role("button", name="Use this key").click()
        expect(settled(page).locator(".bar")).to_have_count(5)
        page.get_by_text("Request", exact=True).click()
        assert "$FILBERT_KEY" in page.locator(".snippet code").first.inner_text()
        assert "a-long-key" not in page.content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(open_page, settled, findings, scheme):
    page = settled(open_page("fill", color_scheme=scheme, reduced_motion="reduce"))
    assert findings(page) == []


def test_everything_can_be_done_from_the_keyboard(open_page, settled):
    page = settled(open_page("fill"))
    page.get_by_role("tab", name="Fill in").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Classes")).to_be_focused()
    expect(page.get_by_role("tabpanel")).to_have_accessible_name("Classes")
    page.keyboard.press("End")
    expect(page.get_by_role("tab", name="Attention")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Text with a [MASK]")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("a [MASK] film")
    page.keyboard.press("Control+Enter")
    settled(page)
    expect(page.locator("#summary")).to_contain_text("%")
    for _ in range(6):
        page.keyboard.press("Tab")
    expect(page.locator(".take").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Text with a [MASK]")).not_to_have_value("a [MASK] film")
