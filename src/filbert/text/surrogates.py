"""Halves of surrogate pairs: JSON and Python's texts can hold them, and UTF-8 cannot."""

from __future__ import annotations

import re

_HALF = re.compile("[\ud800-\udfff]")


def without_halves(text: str) -> str:
    """The text with U+FFFD in place of each half, one for one, so that offsets stay right."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)
