"""The routes of text-embeddings-inference, over a real server."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from filbert.serve.routes import own, shared

SENTENCE = "the film was very good"
LONG = "the film was good " * 40
ALIKE = 1e-6  # float32, in batches of other shapes


def vectors(client, **body):
    found = client.post("/embed", json={"model": "vectors", **body})
    assert found.status_code == 200, found.text
    return np.array(found.json())


def unit(predictor, *texts):
    return predictor.embed(list(texts), normalize=True)


def test_embed_gives_the_vectors_of_the_predictor_at_unit_length(client, predictors):
    expected = unit(predictors["vectors"], SENTENCE, "a play")
    assert np.abs(vectors(client, inputs=[SENTENCE, "a play"]) - expected).max() < ALIKE
    raw = predictors["vectors"].embed([SENTENCE])
    assert np.abs(vectors(client, inputs=SENTENCE, normalize=False) - raw).max() < ALIKE


def test_token_ids_are_read_as_the_text_they_were_made_of(client, predictors):
    ids = predictors["vectors"].tokenizer.encode([SENTENCE])[0].input_ids[1:-1].tolist()
    expected = vectors(client, inputs=SENTENCE)
    assert np.abs(vectors(client, inputs=ids) - expected).max() < ALIKE
    assert np.abs(vectors(client, inputs=[ids, SENTENCE]) - expected).max() < ALIKE


def test_dimensions_are_cut_before_the_unit_length(client, predictors):
    whole = predictors["vectors"].embed([SENTENCE])[0, :8]
    found = vectors(client, inputs=SENTENCE, dimensions=8)[0]
    assert np.abs(found - whole / np.linalg.norm(whole)).max() < ALIKE
    refused = client.post("/embed", json={"inputs": SENTENCE, "dimensions": 33})
    assert (refused.status_code, refused.json()["error_type"]) == (422, "Validation")


def test_pooling_and_layers_can_be_named(client, predictors):
    expected = predictors["vectors"].embed([SENTENCE], pooling="cls", layers=[0, -1])
    found = vectors(
        client, inputs=SENTENCE, pooling="cls", layers=[0, -1], normalize=False, model="vectors"
    )
    assert np.abs(found - expected).max() < ALIKE


def test_embed_all_gives_a_vector_for_every_token(client, predictors):
    found = client.post("/embed_all", json={"inputs": [SENTENCE, "a"], "model": "vectors"}).json()
    (expected, _) = predictors["vectors"].embed([SENTENCE, "a"], pooling="none")
    assert [len(matrix) for matrix in found] == [7, 3]
    assert np.abs(np.array(found[0]) - expected).max() < ALIKE


def test_what_is_cut_is_told_and_on_request_refused(client):
    cut = client.post("/embed", json={"inputs": [SENTENCE, LONG], "truncate": True})
    assert cut.headers["x-truncated"] == "true"
    whole = client.post("/embed", json={"inputs": SENTENCE})
    assert whole.headers["x-truncated"] == "false"
    assert whole.headers["x-compute-tokens"] == whole.headers["x-num-tokens"] == "7"
    # Before it was cut to 64.
    assert (cut.headers["x-num-tokens"], cut.headers["x-compute-tokens"]) == ("169", "71")
    times = ("x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time")
    assert all(float(whole.headers[name]) >= 0 for name in times)
    refused = client.post("/embed", json={"inputs": [SENTENCE, LONG], "truncate": False})
    assert refused.status_code == 413
    assert "Input 1 has 162 tokens; this model reads 64" in refused.json()["error"]
    assert refused.json()["error"].endswith("Shorten it, or send truncate: true.")


def test_a_server_may_refuse_to_cut_unless_asked(serve, monkeypatch):
    with serve("vectors", auto_truncate=False) as strict:
        assert strict.post("/embed", json={"inputs": LONG}).status_code == 413
        assert strict.post("/embed", json={"inputs": LONG, "truncate": True}).status_code == 200
    monkeypatch.setattr(own, "_MAX_ATTENTION_TOKENS", 8)
    with serve("masks", auto_truncate=False) as strict:
        masked = strict.post("/fill", json={"inputs": "[MASK] " + LONG})
        assert masked.status_code == 413
        # There is no `truncate` to send here.
        assert masked.json()["error"].endswith("this model reads 64. Shorten it.")
        assert strict.post("/fill", json={"inputs": "the [MASK] was good"}).status_code == 200
        shown = strict.post("/attention", json={"inputs": SENTENCE + " " + SENTENCE})
        assert "this model reads 8" in shown.json()["error"]
        assert strict.post("/attention", json={"inputs": "the film"}).status_code == 200


def test_the_left_side_can_be_cut_instead(client, predictors):
    text, tokenizer = LONG + "he play ##s bad", predictors["vectors"].tokenizer
    whole = tokenizer.encode([text])[0].input_ids
    last = whole[-63:-1].tolist()
    body = {"inputs": text, "truncation_direction": "Left"}
    found = client.post("/embed", json=body | {"model": "vectors"})
    assert np.abs(np.array(found.json()) - vectors(client, inputs=last)).max() < ALIKE
    assert found.headers["x-truncated"] == "true"
    assert found.headers["x-num-tokens"] == str(len(whole))
    left, right = (
        client.post("/predict", json=one | {"model": "classes"}).json()
        for one in (body, {"inputs": text})
    )
    assert left != right
    pair = client.post("/predict", json=body | {"inputs": ["a", "b"], "model": "classes"})
    assert pair.status_code == 422
    short = client.post("/embed", json=body | {"inputs": SENTENCE, "model": "vectors"})
    assert np.abs(np.array(short.json()) - vectors(client, inputs=SENTENCE)).max() < ALIKE
    assert short.headers["x-truncated"] == "false"


def test_predict_lists_labels_the_best_first(client, predictors):
    for name in ("classes", "kinds"):
        (expected,) = predictors[name].predict([SENTENCE])
        found = client.post("/predict", json={"inputs": SENTENCE, "model": name}).json()
        scores = [entry["score"] for entry in found]
        assert scores == sorted(scores, reverse=True)
        assert {e["label"]: e["score"] for e in found} == pytest.approx(
            expected["scores"], abs=1e-6
        )


def test_predict_takes_pairs_and_batches_of_both(client, predictors):
    pair = [SENTENCE, "he"]
    alone = client.post("/predict", json={"inputs": pair, "model": "classes"}).json()
    batch = client.post("/predict", json={"inputs": [[SENTENCE], pair], "model": "classes"}).json()
    expected = predictors["classes"].predict([SENTENCE, tuple(pair)])
    for found, prediction in zip(batch, expected, strict=True):
        scores = {entry["label"]: entry["score"] for entry in found}
        assert scores == pytest.approx(prediction["scores"], abs=1e-6)
    assert {e["label"]: e["score"] for e in alone} == pytest.approx(expected[1]["scores"], abs=1e-6)


def test_raw_scores_are_the_logits(client):
    for name, sum_of in (("classes", np.exp), ("kinds", None)):
        body = {"inputs": SENTENCE, "model": name}
        raw = client.post("/predict", json={**body, "raw_scores": True}).json()
        shares = client.post("/predict", json=body).json()
        logits = np.array([entry["score"] for entry in raw])
        expected = 1 / (1 + np.exp(-logits))
        if sum_of is np.exp:
            expected = np.exp(logits) / np.exp(logits).sum()
        assert [entry["label"] for entry in raw] == [entry["label"] for entry in shares]
        assert np.abs(expected - [entry["score"] for entry in shares]).max() < ALIKE


def test_predict_gives_a_regression_its_value_and_choices_their_texts(client, predictors):
    (expected,) = predictors["value"].predict([SENTENCE])
    found = client.post("/predict", json={"inputs": SENTENCE, "model": "value"}).json()
    assert found == [{"label": "value", "score": pytest.approx(expected["value"], abs=1e-6)}]
    item = {"context": SENTENCE, "choices": ["he", "she", "the play"]}
    (expected,) = predictors["choices"].predict([item])
    found = client.post("/predict", json={"inputs": item}).json()
    order = np.argsort(expected["scores"])[::-1]
    assert [entry["label"] for entry in found] == [item["choices"][i] for i in order]


def test_rerank_orders_texts_by_the_model_of_pairs(client, predictors):
    texts = ["a play", "the film", "he"]
    body = {"query": SENTENCE, "texts": texts}
    answers = predictors["value"].predict([(SENTENCE, text) for text in texts])
    values = [answer["value"] for answer in answers]
    found = client.post("/rerank", json=body | {"return_text": True, "raw_scores": True}).json()
    assert [rank["index"] for rank in found] == np.argsort(values)[::-1].tolist()
    assert [rank["text"] for rank in found] == [texts[rank["index"]] for rank in found]
    assert [rank["score"] for rank in found] == pytest.approx(sorted(values)[::-1], abs=1e-6)
    shares = client.post("/rerank", json=body).json()
    expected = [1 / (1 + np.exp(-value)) for value in sorted(values)[::-1]]
    assert [rank["score"] for rank in shares] == pytest.approx(expected, abs=1e-6)
    assert "text" not in shares[0]


def test_rerank_gives_a_cross_encoder_the_scores_that_predict_gives(serve, predictors):
    scored = copy(predictors["value"])
    scored.task = replace(scored.task, activation="Sigmoid")
    texts = ["a play", "the film", "he"]
    values = [answer["value"] for answer in scored.predict([(SENTENCE, text) for text in texts])]
    logits = [
        answer["value"]
        for answer in predictors["value"].predict([(SENTENCE, text) for text in texts])
    ]
    body = {"query": SENTENCE, "texts": texts}
    with serve("scored", others={"scored": scored}) as server:
        found = {one["index"]: one["score"] for one in server.post("/rerank", json=body).json()}
        raw = server.post("/rerank", json=body | {"raw_scores": True}).json()
    assert [found[index] for index in range(3)] == pytest.approx(values, abs=1e-6)
    raw = {one["index"]: one["score"] for one in raw}
    assert [raw[index] for index in range(3)] == pytest.approx(logits, abs=1e-6)


def test_rerank_works_with_vectors_and_with_two_classes(client, predictors):
    texts = ["a play", SENTENCE]
    body = {"query": SENTENCE, "texts": texts}
    found = client.post("/rerank", json=body | {"model": "vectors"}).json()
    assert found[0] == {"index": 1, "score": pytest.approx(1.0, abs=1e-6)}
    pairs = predictors["classes"].predict([(SENTENCE, text) for text in texts])
    found = client.post("/rerank", json=body | {"model": "classes"}).json()
    by_index = {rank["index"]: rank["score"] for rank in found}
    assert by_index == pytest.approx({i: p["scores"]["pos"] for i, p in enumerate(pairs)}, abs=1e-6)


def test_similarity_is_the_cosine(client, predictors):
    sentences = ["a play", "the film was good"]
    inputs = {"source_sentence": SENTENCE, "sentences": sentences}
    found = client.post("/similarity", json={"inputs": inputs, "model": "vectors"}).json()
    rows = unit(predictors["vectors"], SENTENCE, *sentences)
    assert found == pytest.approx((rows[1:] @ rows[0]).tolist(), abs=ALIKE)
    inputs = {"source_sentence": SENTENCE, "sentences": [SENTENCE] * 40}
    found = client.post("/similarity", json={"inputs": inputs, "model": "vectors"}).json()
    assert max(found) <= 1.0 and min(found) > 0.999


def test_tokenize_tells_ids_pieces_and_places(client):
    (found,) = client.post("/tokenize", json={"inputs": "he plays"}).json()
    assert [token["token"] for token in found] == ["[CLS]", "he", "play", "##s", "[SEP]"]
    last = found[3]
    assert last == {"id": 23, "text": "s", "token": "##s", "special": False, "start": 7, "stop": 8}
    assert found[0]["special"] and found[0]["start"] is None
    bare = client.post("/tokenize", json={"inputs": ["he"], "add_special_tokens": False}).json()
    assert [[token["id"] for token in tokens] for tokens in bare] == [[14]]


def test_decode_reads_ids(client):
    ids = [2, 14, 24, 23, 3]
    assert client.post("/decode", json={"ids": ids}).json() == ["he plays"]
    both = client.post("/decode", json={"ids": [ids, [14]], "skip_special_tokens": False}).json()
    assert both == ["[CLS] he plays [SEP]", "he"]
    assert client.post("/decode", json={"ids": [99]}).status_code == 422


def test_answers_that_would_be_too_large_are_refused_before_they_are_made(
    serve, predictors, monkeypatch
):
    seen = []
    real = type(predictors["vectors"]).vectors

    def counted(this, examples, **options):
        seen.extend(examples)
        return real(this, examples, **options)

    monkeypatch.setattr(type(predictors["vectors"]), "vectors", counted)
    monkeypatch.setattr(shared, "MAX_RESPONSE_BYTES", 32 * 9 * 10)
    with serve("vectors") as small:
        assert "tokens together" in small.post("/embed_all", json={"inputs": "the " * 9}).text
        assert not seen
        assert small.post("/embed_all", json={"inputs": "the"}).status_code == 200
        for path, body in (
            ("/tokenize", {"inputs": "the " * 50}),
            ("/tokenize", {"inputs": ["the"] * 50}),
            ("/decode", {"ids": [[14] * 99] * 99}),
        ):
            found = small.post(path, json=body)
            assert (found.status_code, "is larger than" in found.text) == (413, True)


def test_a_long_text_is_tokenised_whole_and_within_the_time_of_a_request(serve, predictors):
    text = "the film " * 8_000  # more than is written at once, and read by the few large ones
    with serve("vectors") as server:
        (found,) = server.post("/tokenize", json={"inputs": text}).json()
        assert len(found) == 16_002
        last = found[-2]
        assert (text[last["start"] : last["stop"]], last["text"]) == ("film", "film")
    with serve("vectors", request_seconds=1e-3) as hasty:
        assert hasty.post("/tokenize", json={"inputs": text}).status_code == 503


def test_numbers_that_are_not_finite_are_no_answer(serve, predictors, monkeypatch):
    def spoilt(this, examples, **options):
        return [np.full(32, np.nan, dtype=np.float32) for _ in examples]

    def spoilt_scores(this, outputs, examples):
        about = {"truncated": False, "num_tokens": 3}
        return [{"scores": {"a": float("nan")}, **about} for _ in examples]

    with serve("vectors", "classes") as server:
        monkeypatch.setattr(type(predictors["vectors"]), "vectors", spoilt)
        assert server.post("/embed", json={"inputs": SENTENCE}).status_code == 424
        monkeypatch.setattr(type(predictors["classes"].task), "decode", spoilt_scores)
        assert server.post("/predict", json={"inputs": SENTENCE}).status_code == 424
