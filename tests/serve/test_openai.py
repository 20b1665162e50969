"""OpenAI's API, tested with OpenAI's own Python client, and POST /encode of bert-as-service."""

import base64

import numpy as np
import openai
import pytest

# What an engine promises: float32 sums may be taken in another order in other company.
TOLERANCE = 1e-6

TEXTS = ["the film was good", "a very bad play", "she was not"]


@pytest.fixture(scope="module")
def openai_client(client):
    """The official client, unchanged but for its address."""
    with openai.OpenAI(
        base_url=f"{client.base_url}/v1", api_key="none is asked for", max_retries=0
    ) as made:
        yield made


@pytest.fixture(scope="module")
def expected(predictors):
    return predictors["vectors"].embed(TEXTS, normalize=True)


def vectors_of(answer):
    return np.array([entry.embedding for entry in answer.data], dtype=np.float32)


@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}])
def test_the_official_client_gets_the_models_vectors(openai_client, expected, options):
    answer = openai_client.embeddings.create(model="vectors", input=TEXTS, **options)
    np.testing.assert_allclose(vectors_of(answer), expected, atol=TOLERANCE)
    assert [entry.index for entry in answer.data] == [0, 1, 2]
    assert {entry.object for entry in answer.data} == {"embedding"}
    assert (answer.object, answer.model) == ("list", "vectors")


def test_base64_is_little_endian_float32_of_the_same_vectors(openai_client, expected):
    answer = openai_client.embeddings.create(model="vectors", input=TEXTS, encoding_format="base64")
    rows = [np.frombuffer(base64.b64decode(entry.embedding), "<f4") for entry in answer.data]
    np.testing.assert_allclose(np.stack(rows), expected, atol=TOLERANCE)


def test_usage_counts_the_tokens_that_were_read(openai_client, predictors):
    lengths = [e.num_tokens for e in predictors["vectors"].tokenizer.encode(TEXTS)]
    usage = openai_client.embeddings.create(model="vectors", input=TEXTS).usage
    assert usage.prompt_tokens == usage.total_tokens == sum(lengths)
    usage = openai_client.embeddings.create(model="vectors", input="film " * 100).usage
    assert usage.prompt_tokens == 64, "the model reads no more"


@pytest.mark.parametrize("specials", [True, False])
def test_token_ids_stand_for_their_text_with_or_without_special_tokens(
    openai_client, predictors, expected, specials
):
    encodings = predictors["vectors"].tokenizer.encode(TEXTS)
    ids = [encoding.input_ids.tolist() for encoding in encodings]
    if not specials:
        ids = [row[1:-1] for row in ids]
    several = openai_client.embeddings.create(model="vectors", input=ids)
    np.testing.assert_allclose(vectors_of(several), expected, atol=TOLERANCE)
    one = openai_client.embeddings.create(model="vectors", input=ids[1])
    np.testing.assert_allclose(vectors_of(one), expected[1:2], atol=TOLERANCE)


def test_the_models_are_listed_and_found_by_name(openai_client, predictors):
    listed = list(openai_client.models.list())
    assert [entry.id for entry in listed] == list(predictors)
    assert openai_client.models.retrieve("words") == listed[list(predictors).index("words")]
    assert {(entry.object, entry.owned_by) for entry in listed} == {("model", "filbert")}


def test_a_model_whose_name_has_a_slash_is_found(predictors, serve, monkeypatch):
    monkeypatch.setitem(predictors, "some/model", predictors["vectors"])
    with (
        serve("some/model") as client,
        openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none") as openai_client,
    ):
        assert openai_client.models.retrieve("some/model").id == "some/model"
        assert len(openai_client.embeddings.create(model="some/model", input="a film").data) == 1


def test_the_only_model_answers_to_the_name_of_any_other_servers(serve):
    with (
        serve("vectors") as client,
        openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none") as openai_client,
    ):
        answer = openai_client.embeddings.create(model="text-embeddings-inference", input="a film")
        assert answer.model == "vectors"
        with pytest.raises(openai.NotFoundError):
            openai_client.models.retrieve("text-embeddings-inference")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"model": "nobody", "input": "a"}, openai.NotFoundError, "no model 'nobody'"),
        ({"model": "vectors", "input": ""}, openai.BadRequestError, "input 0 is empty"),
        ({"model": "vectors", "input": []}, openai.BadRequestError, "cannot be empty"),
        (
            {"model": "vectors", "input": [1, 10**6]},
            openai.UnprocessableEntityError,
            "Token id 1000000 is not among",
        ),
        (
            {"model": "vectors", "input": "a", "dimensions": 1000},
            openai.UnprocessableEntityError,
            "vectors of this model have 32",
        ),
        (
            {"model": "vectors", "input": "a", "encoding_format": "int8"},
            openai.UnprocessableEntityError,
            "'float' or 'base64'",
        ),
    ],
)
def test_what_cannot_be_answered_raises_the_clients_own_errors(openai_client, call, error, message):
    with pytest.raises(error, match=message) as raised:
        openai_client.embeddings.create(**call)
    assert raised.value.type == "invalid_request_error"
    assert isinstance(raised.value.message, str)


def test_too_many_inputs_a_wrong_key_and_an_unknown_address_have_openais_shape(serve, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("correct-key\n")
    with serve("vectors", max_inputs=2, api_keys=str(keys)) as client:
        address = f"{client.base_url}/v1"
        with openai.OpenAI(base_url=address, api_key="wrong-key", max_retries=0) as stranger:
            with pytest.raises(openai.AuthenticationError) as raised:
                stranger.embeddings.create(model="vectors", input="a")
            assert raised.value.code == "invalid_api_key"
        with openai.OpenAI(base_url=address, api_key="correct-key", max_retries=0) as openai_client:
            with pytest.raises(openai.APIStatusError, match="at most 2") as raised:
                openai_client.embeddings.create(model="vectors", input=["a", "a", "a"])
            assert raised.value.status_code == 413
            with pytest.raises(openai.NotFoundError, match="nothing at this address"):
                openai_client.completions.create(model="vectors", prompt="a")
            with pytest.raises(openai.APIStatusError) as raised:
                openai_client.get("/embeddings", cast_to=object)
            assert raised.value.status_code == 405


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["a", None], "input.1: input should be a valid string."),
        (["a", [5]], "input.1: input should be a valid string."),
        ([3, -1], "input.1: input should be greater than or equal to 0."),
        ([[3], [4, -1]], "input.1.1: input should be greater than or equal to 0."),
    ],
)
def test_what_is_wrong_in_a_list_is_named_by_its_place(client, wrong, said):
    answer = client.post("/v1/embeddings", json={"model": "vectors", "input": wrong})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"] == said


def test_the_route_answers_in_the_shape_of_bert_as_service(client, predictors):
    answer = client.post("/encode", json={"id": 123, "texts": TEXTS, "is_tokenized": False})
    content = answer.raise_for_status().json()
    assert set(content) == {"id", "result", "status"}
    assert (content["id"], content["status"]) == (123, 200)
    expected = predictors["vectors"].embed(TEXTS)
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
