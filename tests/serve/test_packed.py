"""A server's weights are packed, and what it answers stays."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

import filbert
from filbert.data.examples import Example, collate
from filbert.inspect.attention import attention_maps
from filbert.model.packed import PackedLinear
from filbert.serve import process
from filbert.serve.engine import Engine
from filbert.serve.operation import Operation
from filbert.serve.settings import Settings

from .conftest import running

TEXT = "A harbour lay below the [MASK] town."


@pytest.fixture(scope="module")
def plain():
    return filbert.load("filbert-mini")


def test_vectors_words_and_attention_are_those_of_the_model(plain, monkeypatch):
    engines = []

    def kept(*arguments):
        engines.append(Engine(*arguments))
        return engines[-1]

    monkeypatch.setattr("filbert.serve.engine.Engine", kept)
    app, _ = process.open_app({"mini": "filbert-mini"}, Settings(), Operation())
    layers = engines[0].predictor.model.encoder.layers
    assert all(isinstance(layer.up, PackedLinear) for layer in layers)
    with running(app) as address, httpx.Client(base_url=address) as client:
        vectors = client.post("/embed", json={"inputs": ["A harbour.", TEXT]}).json()
        words = client.post("/fill", json={"inputs": TEXT, "top": 3}).json()
        maps = client.post("/attention", json={"inputs": TEXT}).json()["maps"]
    expected = plain.embed(["A harbour.", TEXT], normalize=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    ((found,), (best,)) = words["candidates"], plain.fill([TEXT], top=3)[0]["candidates"]
    assert [word["sequence"] for word in found] == [word["sequence"] for word in best]
    (encoding,) = plain.tokenizer.encode([TEXT])
    example = Example(0, encoding.input_ids, encoding.token_type_ids, encoding.num_tokens)
    (attention,) = attention_maps(plain.model, collate([example]))
    # Four digits are sent.
    assert np.abs(np.array(maps) - attention.numpy()).max() <= 0.5e-4 + 1e-5
