"""A real browser before a real server with tiny models."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest


@pytest.fixture(scope="package")
def server(serve, predictors):
    """A client of all tiny models, with a threshold on "pos", which is not the likelier label."""
    judged = copy.copy(predictors["classes"])
    judged.task = dataclasses.replace(judged.task, thresholds=(0.25,), positive="pos")
    names = ["masks", "judged", "kinds", "words", "spans", "choices", "vectors"]
    with serve(*names, others={"judged": judged}) as client:
        yield client


@pytest.fixture
def open_page(browser, server):
    """`open_page("fill")`: the panel of that name, of `server` or another.

    A script's error anywhere fails the test, and so does a request to anybody but the server.
    """
    errors: list[Any] = []
    contexts = []

    def make(panel: str = "", *, base: Any = None, **options: Any) -> Any:
        place = str(base or server.base_url)
        contexts.append(browser.new_context(**options))
        made = contexts[-1].new_page()
        made.set_default_timeout(60_000)
        made.on("pageerror", lambda error: errors.append(error))
        made.on("request", lambda asked: asked.url.startswith(place) or errors.append(asked.url))
        made.goto(f"{place}#{panel}")
        return made

    yield make
    for context in contexts:
        context.close()
    assert not errors


@pytest.fixture(scope="session")
def settled():
    """`settled(page)`: the page once no answer is under way."""
    expect = pytest.importorskip("playwright.sync_api").expect

    def wait(page: Any) -> Any:
        page.wait_for_selector("article:not([aria-busy])")
        expect(page.locator("[aria-busy]")).to_have_count(0)
        return page

    return wait


@pytest.fixture(scope="session")
def write(settled):
    """`write(page, text, "Text")`: put a text into the field of that label, and run."""

    def put(page: Any, text: str, label: str = "Text") -> Any:
        page.get_by_label(label, exact=True).fill(text)
        page.get_by_role("button", name="Run", exact=True).click()
        return settled(page)

    return put


@pytest.fixture
def post(server):
    """`post("/fill", inputs=...)`: what the server answers without the page."""

    def ask(path: str, **body: Any) -> Any:
        reply = server.post(path, json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    return ask
