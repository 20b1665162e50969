"""Large answers are written in parts, and other requests get their turn meanwhile."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from filbert.serve.errors import Refusal
from filbert.serve.routes import shared
from filbert.serve.routes.shared import json_parts

WORDS = [{"word": "film", "tag": "O", "score": 0.5}] * 3_000


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (WORDS, 413),
        (float("nan"), 424),
        ([{"words": [float("inf")]}], 424),
        (np.array([np.nan], np.float32), 424),
    ],
)
def test_an_answer_that_is_too_large_or_not_finite_is_refused(value, status, monkeypatch):
    monkeypatch.setattr(shared, "MAX_RESPONSE_BYTES", 1_000)
    with pytest.raises(Refusal) as refused:
        asyncio.run(json_parts([value], is_limited=True))
    assert refused.value.status_code == status


def test_thousands_of_texts_do_not_block_single_ones(serve):
    with serve("vectors", "words") as server:
        large = {"inputs": ["the film was very good"] * 6_000, "model": "vectors"}
        found: list[int] = []
        thread = threading.Thread(
            target=lambda: found.append(server.post("/embed", json=large).status_code)
        )
        thread.start()
        answered = 0
        while thread.is_alive():
            one = server.post("/embed", json={"inputs": "a play", "model": "vectors"})
            assert one.status_code == 200
            answered += thread.is_alive()
        thread.join()
    assert found == [200]
    assert answered >= 5
