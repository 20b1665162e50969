"""GET /info, the prompts of a model, and what happens when the server itself is wrong."""

import numpy as np

from filbert import __version__
from filbert.checkpoints.sentence_transformers import SentenceVectors
from filbert.serve.routes import about


def test_info_tells_what_every_model_can_and_the_limits(client):
    info = client.get("/info").json()
    models = {model["name"]: model for model in info["models"]}
    assert info["version"] == __version__
    assert list(models) == [
        *("vectors", "classes", "kinds", "value", "words", "spans", "choices", "masks")
    ]
    classes = models["classes"]
    assert (classes["task"], classes["labels"]) == ("classification", ["neg", "pos"])
    assert classes["positive"] == "pos"
    assert classes["can"][0] == "predict"
    assert models["masks"]["can"][0] == "fill"
    assert (models["vectors"]["task"], models["vectors"]["labels"]) == (None, None)
    assert (classes["max_length"], classes["hidden_size"]) == (64, 32)
    assert (classes["num_hidden_layers"], classes["num_attention_heads"]) == (2, 4)
    assert (info["model_id"], info["model_dtype"]) == ("vectors", "float32")
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert (info["max_input_length"], info["max_client_batch_size"]) == (64, 10_000)
    assert info["auto_truncate"] is True


def test_a_prompt_of_the_model_is_put_before_a_text(serve, predictors, monkeypatch):
    prompts = {"query": "the play ", "document": "he "}
    way = SentenceVectors(prompts=prompts, default_prompt="document")
    monkeypatch.setattr(predictors["vectors"], "sentence_vectors", way)
    assert predictors["vectors"].vector_settings(prompt="query").prompt == "the play "
    with serve("vectors") as server:
        asked = {"inputs": "a film", "prompt_name": "query"}
        found = server.post("/embed", json=asked).json()
        bare = predictors["vectors"].embed("the play a film", pooling="mean", normalize=True)
        assert np.abs(np.array(found) - bare).max() < 1e-6
        last = {"truncation_direction": "left", **asked}
        assert np.abs(np.array(server.post("/embed", json=last).json()) - bare).max() < 1e-6
        tokens = server.post("/tokenize", json=asked).json()[0]
        assert [token["token"] for token in tokens[1:3]] == ["the", "play"]
        ids = server.post("/embed", json={**asked, "inputs": [5, 6]})
        assert (ids.status_code, "token ids" in ids.json()["error"]) == (422, True)
        other = server.post("/embed", json={"inputs": "a film", "prompt_name": "other"})
        assert (other.status_code, "query" in other.json()["error"]) == (422, True)


def test_a_mistake_of_ours_is_told_without_traceback_or_text(serve, monkeypatch, caplog):
    def broken(*given):
        raise RuntimeError("secret words")

    with serve("vectors") as server:
        monkeypatch.setattr(about, "_card", broken)
        found = server.get("/info")
        assert found.status_code == 500
        assert set(found.json()) == {"error", "error_type"}
        assert found.json()["error_type"] == "Internal"
        assert "secret" not in found.text + caplog.text
        assert "test_about.py" in caplog.text, "the log says where it was"
