"""How a hostile file must be refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from filbert.errors import FormatError


def _refused(read: Callable[[], object], *words: str) -> str:
    with pytest.raises(FormatError) as caught:
        read()
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 1000
    assert all(word in text for word in words), text
    return text


@pytest.fixture
def refused() -> Callable[..., str]:
    """Call it with a function that reads, and words that the refusal must hold."""
    return _refused
