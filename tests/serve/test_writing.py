"""Large answers are written in pieces, and others get their turn meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from filbert.serve.errors import Refusal
from filbert.serve.routes.common import json_of

WORDS = [{"word": "film", "tag": "O", "score": 0.5}] * 3_000
VALUES = [
    [],
    {},
    "a \u2028 \u00e9",
    [1, 2.5, None, True],
    {"a": [1, {"b": []}]},
    [[{"label": "a", "score": 1.0}] * 3] * 250,
    {"words": WORDS, "entities": [], "truncated": False},
    [{"words": WORDS[:200]}, {"words": []}],
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_pieces_make_the_same_json(value):
    written = asyncio.run(json_of(value, 10**7))
    assert written == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_an_answer_without_end_is_refused_and_so_is_one_that_is_no_number():
    with pytest.raises(Refusal) as refused:
        asyncio.run(json_of({"words": WORDS}, 1_000))
    assert refused.value.status == 413
    for value in (float("nan"), [{"words": [float("inf")] * 200}]):
        with pytest.raises(Refusal) as refused:
            asyncio.run(json_of(value, 10**6))
        assert refused.value.status == 424


def test_others_get_their_turn_while_it_is_written():
    async def count() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        await json_of({"words": WORDS * 30}, 10**8)
        beside.cancel()
        return turns

    assert asyncio.run(count()) >= 3


def test_thousands_of_texts_do_not_keep_single_ones_waiting(serve):
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
