"""POST /encode, the route of bert-as-service."""

from __future__ import annotations

import numpy as np
import pytest

# What an engine promises: float32 sums may be taken in another order in other company.
TOLERANCE = 1e-6

TEXTS = ["the film was good", "a very bad play", "she was not"]


@pytest.fixture(scope="module")
def expected(predictors):
    return predictors["vectors"].embed(TEXTS)


def test_the_route_answers_in_the_shape_of_bert_as_service(client, expected):
    answer = client.post("/encode", json={"id": 123, "texts": TEXTS, "is_tokenized": False})
    content = answer.raise_for_status().json()
    assert set(content) == {"id", "result", "status"}
    assert (content["id"], content["status"]) == (123, 200)
    np.testing.assert_allclose(np.array(content["result"]), expected, atol=TOLERANCE)
    assert answer.headers["x-truncated"] == "false"


def test_tokens_are_the_vocabularys_own_and_others_are_unknown(client, predictors):
    asked = {"id": "x", "texts": [["the", "play", "##ing"], ["quux"]], "is_tokenized": True}
    found = client.post("/encode", json=asked).raise_for_status().json()["result"]
    wanted = predictors["vectors"].embed(["the playing", "[UNK]"])
    np.testing.assert_allclose(np.array(found), wanted, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("asked", "status", "message"),
    [
        ({"texts": []}, 400, "`texts` cannot be empty"),
        ({"texts": ["a", ""]}, 400, "input 1 is empty"),
        ({"texts": [["a"], []], "is_tokenized": True}, 400, "input 1 is empty"),
        ({"texts": ["a"], "is_tokenized": True}, 422, "lists of tokens if `is_tokenized`"),
        ({"texts": [["a"]]}, 422, "lists of tokens if `is_tokenized`"),
        ({"texts": "a"}, 422, "texts"),
        ({"texts": ["a"], "model": "classy"}, 404, "no model 'classy'"),
    ],
)
def test_what_cannot_be_encoded_is_refused_in_a_sentence(client, asked, status, message):
    answer = client.post("/encode", json={"id": 1, **asked})
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "error_type"}
    assert message in answer.json()["error"]
