"""Our own routes, over a real server."""

import numpy as np
import pytest

from filbert.data.examples import Example, collate
from filbert.inspect.attention import attention_maps
from filbert.serve.routes import own, shared
from filbert.serve.routes.own import rank_answers

SENTENCE = "the film was very good"


def post(client, path, **body):
    found = client.post(path, json=body)
    assert found.status_code == 200, found.text
    return found.json()


def test_fill_answers_as_the_predictor_does(client, predictors):
    texts = ["the [MASK] was good", "a [MASK] and a [MASK]"]
    expected = predictors["masks"].fill(texts, top=3)
    found = post(client, "/fill", inputs=texts, top=3)
    for one, other in zip(found, expected, strict=True):
        assert (one["truncated"], one["num_tokens"]) == (False, other["num_tokens"])
        for mine, theirs in zip(one["candidates"], other["candidates"], strict=True):
            assert [c["sequence"] for c in mine] == [c["sequence"] for c in theirs]
            scores = [c["score"] for c in theirs]
            assert [c["score"] for c in mine] == pytest.approx(scores, abs=1e-6)
    alone = post(client, "/fill", inputs=texts[0], top=3)
    best = [candidate["sequence"] for candidate in found[0]["candidates"][0]]
    assert [candidate["sequence"] for candidate in alone["candidates"][0]] == best


def test_fill_refuses_a_text_without_mask(client):
    refused = client.post("/fill", json={"inputs": SENTENCE})
    assert refused.status_code == 422
    assert "[MASK]" in refused.json()["error"]


def test_tag_gives_every_word_its_tag_however_long_the_text_is(client, predictors):
    text = " ".join(["film", "good"] * 300)
    found = post(client, "/tag", inputs=[text, ["he", "plays", "."]])
    assert [len(one["tags"]) for one in found] == [600, 3]
    assert found[1]["tokens"] == ["he", "plays", "."]
    expected = predictors["words"].predict([text])[0]
    assert found[0]["tags"] == expected["tags"]
    assert post(client, "/tag", inputs=text)["tags"] == expected["tags"]
    assert all(text[e["start"] : e["end"]] == e["text"] for e in found[0]["entities"])


def test_answer_finds_its_place_in_a_text_of_any_length(client, predictors):
    context = "he was bad . " * 60 + "the film was great !"
    expected = predictors["spans"].answer("what was great ?", context)
    found = post(client, "/answer", question="what was great ?", context=context)
    assert (found["answer"], found["start"]) == (expected["answer"], expected["start"])
    assert context[found["start"] : found["end"]] == found["answer"]
    assert found["score"] == pytest.approx(expected["score"], abs=1e-6)
    assert (found["truncated"], found["num_tokens"]) == (False, expected["num_tokens"])
    assert "answers" not in found


def test_answer_picks_the_best_of_many_documents(client, predictors):
    documents = ["he plays .", "the film was great", "a very good play"]
    found = post(client, "/answer", question="what ?", context=documents)
    singles = [predictors["spans"].answer("what ?", text) for text in documents]
    best = max(
        range(3),
        key=lambda i: singles[i]["nbest"][0]["start_logit"] + singles[i]["nbest"][0]["end_logit"],
    )
    assert (found["document"], found["answer"]) == (best, singles[best]["answer"])
    assert found["num_tokens"] == sum(single["num_tokens"] for single in singles)
    scores = [answer["score"] for answer in found["answers"]]
    assert scores == sorted(scores, reverse=True)
    assert {a["document"]: a["answer"] for a in found["answers"]} == {
        i: single["answer"] for i, single in enumerate(singles)
    }


def entry(text, total):
    return {"text": text, "start_logit": total, "end_logit": 0.0}


def prediction(answer, *nbest):
    about = {"start": 0, "end": 1, "null_score": 0.0, "truncated": False, "num_tokens": 9}
    return {"answer": answer, "nbest": list(nbest), **about}


def test_scores_of_documents_are_shares_of_one_softmax():
    found = rank_answers(
        [
            prediction("no", entry("no", 0.0)),
            prediction("", entry("", 5.0), entry("maybe", 1.0)),
            prediction("yes", entry("yes", 2.0), entry("ye", 1.0)),
            prediction(""),
        ]
    )
    mass = np.exp([0.0, 5.0, 1.0, 2.0, 1.0]).sum()
    assert [(one["answer"], one["document"]) for one in found] == [
        ("yes", 2),
        ("no", 0),
        ("", 1),
        ("", 3),
    ]
    shares = [np.exp(2.0) / mass, 1.0 / mass, np.exp(5.0) / mass, 0.0]
    assert [one["score"] for one in found] == pytest.approx(shares, abs=1e-12)


def test_attention_shows_the_maps_of_the_model(client, predictors):
    predictor = predictors["vectors"]
    (encoding,) = predictor.tokenizer.encode([SENTENCE])
    example = Example(0, encoding.input_ids, encoding.token_type_ids, encoding.num_tokens)
    (expected,) = attention_maps(predictor.model, collate([example]))
    found = post(client, "/attention", inputs=SENTENCE, model="vectors")
    assert np.abs(np.array(found["maps"]) - expected.numpy()).max() <= 0.5e-4 + 1e-6
    assert (found["layers"], found["heads"]) == ([0, 1], [0, 1, 2, 3])
    assert found["tokens"] == ["[CLS]", "the", "film", "was", "very", "good", "[SEP]"]
    assert found["ids"] == encoding.input_ids.tolist()
    assert found["words"] == [-1, 0, 1, 2, 3, 4, -1]
    last = post(client, "/attention", inputs=SENTENCE, model="vectors", layers=[-1], heads=[2, 0])
    assert last["layers"] == [1]
    assert last["maps"] == [[found["maps"][1][2], found["maps"][1][0]]]


def test_attention_is_cut_and_bounded(serve, monkeypatch):
    text = "the film was good " * 30
    monkeypatch.setattr(shared, "MAX_RESPONSE_BYTES", 60_000)
    with serve("vectors") as small, monkeypatch.context() as context:
        context.setattr(own, "_MAX_ATTENTION_TOKENS", 30)
        cut = small.post("/attention", json={"inputs": text})
        assert cut.status_code == 200
        assert (cut.json()["truncated"], cut.json()["num_tokens"]) == (True, 122)
        assert len(cut.json()["tokens"]) == 30
        assert len(cut.content) < 60_000
    with serve("vectors") as small:
        refused = small.post("/attention", json={"inputs": text})
        assert (refused.status_code, refused.json()["error_type"]) == (413, "Validation")
        one = small.post("/attention", json={"inputs": text, "layers": [0], "heads": [0]})
        assert one.status_code == 200


def test_a_misspelt_key_of_our_routes_is_refused(client):
    refused = client.post("/fill", json={"inputs": "a [MASK]", "topp": 3})
    assert refused.status_code == 422
    assert "topp" in refused.json()["error"]
