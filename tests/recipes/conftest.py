"""Runs of recipes are looked at for other things than their plots."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _undrawn(undrawn: None) -> None:
    pass
