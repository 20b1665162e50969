"""A real browser for the pages of this room."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def open_file(browser):
    """`open_file(path)`: that page. An error in a script fails the test, and so does a request for
    anything but the file itself.
    """
    problems: list[Any] = []
    contexts = []

    def make(path: Any, **options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: problems.append(error))
        page.on("request", lambda asked: asked.url == path.as_uri() or problems.append(asked.url))
        page.goto(path.as_uri())
        return page

    yield make
    for context in contexts:
        context.close()
    assert not [p for p in problems if not str(p).startswith("blob:")]
