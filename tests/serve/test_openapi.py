"""The OpenAPI document tells the truth: schemathesis makes requests of it, right and wrong ones."""

import os
import warnings

import pytest
from hypothesis import HealthCheck, Phase, given, settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.core.failures import FailureGroup

# `make test-openapi` sets more.
EXAMPLES = int(os.environ.get("FILBERT_OPENAPI_EXAMPLES", "4"))

OPERATIONS = {
    *(f"POST /{name}" for name in ("embed", "embed_all", "predict", "rerank", "similarity")),
    *(f"POST /{name}" for name in ("tokenize", "decode", "fill", "tag", "answer", "attention")),
    *("POST /encode", "POST /v1/embeddings", "GET /v1/models", "GET /v1/models/{model}"),
    *("GET /info", "GET /health", "GET /ping", "GET /metrics"),
}


@pytest.fixture(scope="module")
def document(client):
    return schemathesis.openapi.from_url(str(client.base_url.join("/openapi.json")))


def test_the_document_lists_every_route(document):
    assert {result.ok().label for result in document.get_all_operations()} == OPERATIONS


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_answers_are_as_the_document_says(document, label):
    (operation,) = (
        found for result in document.get_all_operations() if (found := result.ok()).label == label
    )
    check(operation, GenerationMode.POSITIVE)
    if label.startswith("POST"):
        check(operation, GenerationMode.NEGATIVE)


def check(operation, mode):
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def run(case):
        response = case.call()
        try:
            case.validate_response(response)
        except FailureGroup as group:
            failures = [e for e in group.exceptions if not is_beyond_a_schema(e, response)]
            assert not failures, (response.request.body, response.text, failures)

    run()


def is_beyond_a_schema(failure, response):
    """A well-formed request for what the model does not have: a mask, a layer, so many numbers."""
    return (
        type(failure).__name__ == "RejectedPositiveData"
        and response.status_code in (413, 422, 424)
        and "input should be" not in response.text
    )
