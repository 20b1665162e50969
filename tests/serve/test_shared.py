"""Large answers are written in parts, and other requests get their turn meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading

import numpy as np
import pytest

from filbert.serve.errors import Refusal
from filbert.serve.routes.shared import json_list, json_parts

WORDS = [{"word": "film", "tag": "O", "score": 0.5}] * 3_000


@pytest.mark.parametrize("value", [{}, "a \u2028 \u00e9", [1, 2.5, None, True], {"words": WORDS}])
def test_parts_form_the_same_json(value):
    written = json_list(asyncio.run(json_parts([value, value])))
    assert written == json.dumps([value] * 2, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize("shape", [(3,), (300, 200), (2, 260, 200), (0, 4)])
def test_arrays_are_written_with_all_or_some_of_their_digits(shape):
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    written = json_list(asyncio.run(json_parts([array, array[:1]])))
    assert json.loads(written) == [array.tolist(), array[:1].tolist()]
    (rounded,) = asyncio.run(json_parts([array], digits=2))
    assert json.loads(rounded) == np.round(array.astype(float), 2).tolist()


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (WORDS, 413),
        (float("nan"), 424),
        ([{"words": [float("inf")]}], 424),
        (np.array([np.nan], np.float32), 424),
    ],
)
def test_an_answer_that_is_too_large_or_not_finite_is_refused(value, status):
    with pytest.raises(Refusal) as refused:
        asyncio.run(json_parts([value], 1_000))
    assert refused.value.status == status


def test_others_get_their_turn_while_it_is_written():
    async def count() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        await json_parts([WORDS] * 30)
        beside.cancel()
        return turns

    assert asyncio.run(count()) >= 3


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
