"""Sizes, keys, slow senders, clients that leave, too many at once: over real servers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time

import httpx
import pytest
import uvicorn
from pydantic import ValidationError

from filbert.errors import ConfigError
from filbert.serve.limits import Limits
from filbert.serve.routes import shared
from filbert.serve.schema import (
    AttentionRequest,
    EmbedRequest,
    FillRequest,
    PredictRequest,
    SimilarityRequest,
)
from filbert.serve.settings import KEYS_VARIABLE, ModelSettings, Settings

ASK = {"inputs": "the film was good"}


def refused(response, status, kind):
    assert response.status_code == status
    content = response.json()
    assert set(content) == {"error", "error_type"}
    assert content["error_type"] == kind
    assert "Traceback" not in content["error"]
    return content["error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": []}),
        ("/embed", {"inputs": ""}),
        ("/embed", {"inputs": ["a", ""]}),
        ("/predict", {"inputs": [["a", ""], ["", ""]], "model": "classes"}),
        ("/predict", {"inputs": {"context": "a", "choices": ["a", ""]}, "model": "choices"}),
        ("/rerank", {"query": "a", "texts": []}),
        ("/tag", {"inputs": [[]]}),
        ("/answer", {"question": "", "context": "a"}),
        ("/attention", {"inputs": "a", "layers": []}),
        ("/decode", {"ids": []}),
    ],
)
def test_empty_inputs_get_400(client, path, body):
    refused(client.post(path, json=body), 400, "Empty")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"inputs": NaN}',
        b"\xff\xfe",
        b'{"inputs": {"a": 1}}',
        b'{"inputs": "a", "truncate": "yes"}',
        b'{"inputs": [1, "a", []]}',
        b'{"inputs": [-1]}',
        b'{"inputs": [' + b"9" * 5000 + b"]}",
    ],
    ids=range(10),
)
def test_malformed_bodies_get_422(client, content):
    headers = {"content-type": "application/json"}
    refused(client.post("/embed", content=content, headers=headers), 422, "Validation")


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (EmbedRequest, {"inputs": [[0.5]] * 9999}),
        (PredictRequest, {"inputs": [{"context": 1, "choices": [1] * 99}] * 99}),
        (SimilarityRequest, {"inputs": {"source_sentence": "a", "sentences": [1] * 9999}}),
        (FillRequest, {"inputs": "a"} | {f"key{i}": 1 for i in range(9999)}),
        (AttentionRequest, {"inputs": [1] * 9999, "heads": ["a"] * 9999}),
    ],
)
def test_a_body_full_of_mistakes_is_given_up_at_the_first_ones(model, body):
    # A megabyte of mistakes, all listed, would keep the server busy for a minute.
    with pytest.raises(ValidationError) as caught:
        model.model_validate(body)
    assert caught.value.error_count() < 10


def test_lists_beyond_any_use_get_413_unread(client):
    body = {"inputs": [[]] * 20_001}
    told = refused(client.post("/embed", json=body), 413, "Validation")
    assert told.startswith("A list has more than 20,000 entries")


@pytest.mark.parametrize("text", ["\\u0000", "\\ud800", "\\udc00 a \\ud83d", "\\u202e"])
def test_odd_characters_are_read_like_any_others(client, text):
    bodies = {
        "/embed": '{"inputs": "%s"}',
        "/tokenize": '{"inputs": "%s"}',
        "/tag": '{"inputs": "%s film"}',
        "/fill": '{"inputs": "%s [MASK]"}',
        "/answer": '{"question": "%s", "context": "a %s b"}',
        "/rerank": '{"query": "%s", "texts": ["%s"], "return_text": true}',
        "/attention": '{"inputs": ["%s", "%s"]}',
    }
    headers = {"content-type": "application/json"}
    for path, body in bodies.items():
        found = client.post(path, content=body.replace("%s", text), headers=headers)
        assert found.status_code == 200, (path, found.text)
    unknown = '{"inputs": "a", "model": "%s", "%s": 1}'.replace("%s", text)
    assert client.post("/embed", content=unknown, headers=headers).status_code == 404
    assert client.post("/fill", content=unknown, headers=headers).status_code == 422


def test_an_unknown_address_or_method_is_told_in_json(client):
    refused(client.get("/nowhere"), 404, "NotFound")
    refused(client.get("/page/../settings.py"), 404, "NotFound")
    refused(client.get("/page/%2e%2e%2fsettings.py"), 404, "NotFound")
    refused(client.post("/embed/", json=ASK), 404, "NotFound")
    wrong = client.get("/embed")
    refused(wrong, 405, "MethodNotAllowed")
    assert wrong.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/health", "/ping", "/info", "/metrics", "/v1/models", "/"])
def test_head_is_get_without_a_body(client, path):
    found = client.head(path)
    assert (found.status_code, found.content) == (200, b"")
    assert client.head("/embed").status_code == 405


def test_an_unknown_model_and_one_that_cannot_are_told_apart(client):
    assert "vectors" in refused(client.post("/embed", json=ASK | {"model": "no"}), 404, "NotFound")
    refused(client.post("/tag", json=ASK | {"model": "vectors"}), 424, "Backend")


def test_too_many_and_too_long_inputs_get_413(serve, monkeypatch):
    monkeypatch.setattr(shared, "MAX_CHARACTERS", 9)
    with serve("vectors", max_inputs=2) as small:
        refused(small.post("/embed", json={"inputs": ["a"] * 3}), 413, "Validation")
        assert "input 1 has 10" in refused(
            small.post("/embed", json={"inputs": ["a", "a" * 10]}), 413, "Validation"
        )
        assert small.post("/embed", json={"inputs": ["a" * 9] * 2}).status_code == 200


def test_a_text_of_too_many_tokens_gets_413_where_all_of_it_is_read(serve):
    words = ["film"] * 200
    with serve("words", "vectors", model_settings=ModelSettings(max_input_tokens=100)) as small:
        answer = small.post("/tag", json={"inputs": ["a", words]})
        assert "Input 1 has" in refused(answer, 413, "Validation")
        assert small.post("/tag", json={"inputs": [words[:50]] * 9}).status_code == 200
        cut = small.post("/embed", json={"inputs": " ".join(words), "model": "vectors"})
        assert cut.status_code == 200


def test_a_body_beyond_the_limit_gets_413_whether_or_not_its_size_is_declared(serve):
    with serve("vectors", max_body_bytes=1000) as small:
        content = b'{"inputs": "' + b"a" * 300_000 + b'"}'
        headers = {"content-type": "application/json"}
        refused(small.post("/embed", content=content, headers=headers), 413, "Validation")

        def in_parts():
            for begin in range(0, len(content), 50_000):
                yield content[begin : begin + 50_000]

        refused(small.post("/embed", content=in_parts(), headers=headers), 413, "Validation")
        # The same connections still serve.
        assert small.post("/embed", json=ASK).status_code == 200


def raw(client, content):
    """A connection on which these bytes were sent."""
    connection = socket.create_connection((client.base_url.host, client.base_url.port), timeout=10)
    connection.sendall(content)
    return connection


def test_a_body_declared_too_large_is_refused_before_it_is_sent(serve):
    head = b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"
    with serve("vectors", max_body_bytes=1000) as small, raw(small, head) as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_sender_that_stops_in_the_middle_is_told_so(serve):
    head = b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    with serve("vectors", request_seconds=0.2) as hasty:
        with raw(hasty, head + b'Content-Length: 100\r\n\r\n{"inputs"') as connection:
            answer = b""
            while part := connection.recv(4096):  # to its end: the connection is closed
                answer += part
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"error_type":"Timeout"' in answer


def test_keys_are_asked_for_everywhere_but_for_health_metrics_and_the_page(serve, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nfirst-key\nsecond-key\n")
    with serve("vectors", api_keys=str(keys)) as locked:
        for headers in (
            {},
            {"Authorization": "Bearer first-kez"},
            {"Authorization": "Bearer"},
            {"Authorization": "Basic first-key"},
        ):
            answer = locked.post("/embed", json=ASK, headers=headers)
            refused(answer, 401, "Unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/info", "/openapi.json", "/nowhere", "/v1/models"):
            assert locked.get(path).status_code == 401
        for path in ("/", "/health"):
            assert locked.post(path, json=ASK).status_code == 401
        for path in ("/health", "/ping", "/metrics", "/"):
            assert locked.get(path).status_code == 200
        for key in ("first-key", "second-key"):
            headers = {"Authorization": f"Bearer {key}"}
            assert locked.post("/embed", json=ASK, headers=headers).status_code == 200


def test_a_key_file_that_cannot_be_meant_is_refused_without_showing_a_key(tmp_path, monkeypatch):
    for content in ("", "# nothing\n", "short\n", "with a blank\n", "ünïcödé-key\n"):
        path = tmp_path / "keys"
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            Settings(api_keys=str(path)).bearer_keys()
        assert "blank\n" not in str(caught.value) and "short" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        Settings(api_keys=str(tmp_path / "none")).bearer_keys()
    path.write_bytes(b"latin-key-\xfc\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        Settings(api_keys=str(path)).bearer_keys()
    monkeypatch.setenv(KEYS_VARIABLE, "one-key-1, two-key-2")
    assert Settings().bearer_keys() == ("one-key-1", "two-key-2")


def test_other_origins_are_let_in_only_where_the_operator_says_so(serve):
    origin = {"Origin": "https://example.org"}
    asking = origin | {"Access-Control-Request-Method": "POST"}
    asking |= {"Access-Control-Request-Headers": "authorization,x-request-id,x-stainless-os"}
    with serve("vectors") as closed:
        assert "access-control-allow-origin" not in closed.get("/info", headers=origin).headers
    with serve("vectors", cors="https://example.org") as opened:
        allowed = opened.options("/embed", headers=asking)
        assert allowed.headers["access-control-allow-origin"] == "https://example.org"
        assert "x-stainless-os" in allowed.headers["access-control-allow-headers"]
        other = opened.get("/info", headers={"Origin": "https://example.com"})
        assert "access-control-allow-origin" not in other.headers
        asked = opened.options("/embed", headers=asking | {"Origin": "https://example.com"})
        assert asked.status_code == 400
    with pytest.raises(ConfigError):
        Settings(cors="example.org").origins()


class Held:
    """A predictor's model that waits until it is let go."""

    def __init__(self, predictor, monkeypatch):
        self.entered, self.go = threading.Event(), threading.Event()
        real = type(predictor).vectors

        def vectors(this, *args, **options):
            self.entered.set()
            assert self.go.wait(20)
            return real(this, *args, **options)

        monkeypatch.setattr(type(predictor), "vectors", vectors)


def test_more_requests_than_allowed_at_once_get_429_at_once(serve, predictors, monkeypatch):
    with serve("vectors", max_concurrent_requests=1) as narrow:
        held = Held(predictors["vectors"], monkeypatch)
        first: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: first.append(narrow.post("/embed", json=ASK)))
        thread.start()
        assert held.entered.wait(20)
        second = narrow.post("/embed", json=ASK)
        refused(second, 429, "Overloaded")
        assert int(second.headers["retry-after"]) >= 1
        assert narrow.get("/info").status_code == 200
        held.go.set()
        thread.join()
        assert first[0].status_code == 200
        assert narrow.post("/embed", json=ASK).status_code == 200


def test_an_answer_that_takes_too_long_is_503(serve, predictors, monkeypatch):
    with serve("vectors", request_seconds=0.1, grace_seconds=0.1) as hasty:
        held = Held(predictors["vectors"], monkeypatch)
        refused(hasty.post("/embed", json=ASK), 503, "Unhealthy")
        held.go.set()


def test_the_work_of_a_client_that_leaves_is_dropped(serve, predictors, monkeypatch):
    model_settings = ModelSettings(max_batch_tokens=16)
    body = json.dumps({"inputs": ["the film was good"] * 20}).encode()
    head = b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    with serve("vectors", model_settings=model_settings) as server:
        held = Held(predictors["vectors"], monkeypatch)
        connection = raw(server, head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert held.entered.wait(20)
        connection.close()
        until = time.monotonic() + 10
        while "filbert_dropped_rows_total{" not in (text := server.get("/metrics").text):
            assert time.monotonic() < until, "nothing was dropped"
            time.sleep(0.01)
        (line,) = [line for line in text.splitlines() if line.startswith("filbert_dropped_rows_")]
        held.go.set()
        assert float(line.split()[-1]) >= 16, "what did not fit into the first batches"
        assert server.post("/embed", json=ASK).status_code == 200


def test_a_model_that_fails_is_424_without_a_word_of_the_text(serve, predictors, monkeypatch):
    def broken(this, *args, **options):
        raise RuntimeError("secret words of a text")

    with serve("vectors") as server:
        monkeypatch.setattr(type(predictors["vectors"]), "vectors", broken)
        message = refused(server.post("/embed", json=ASK), 424, "Backend")
        assert "secret" not in message
        monkeypatch.undo()
        assert server.post("/embed", json=ASK).status_code == 200


def test_health_is_503_while_the_model_does_not_work(serve, predictors, monkeypatch):
    with serve("vectors") as server:
        assert server.get("/health").status_code == 200

        def broken(this, *args, **options):
            raise RuntimeError

        monkeypatch.setattr(type(predictors["vectors"].model), "forward", broken)
        refused(server.get("/health"), 503, "Unhealthy")
        monkeypatch.undo()
        assert server.get("/ping").status_code == 200


def test_who_is_not_answered_at_the_end_of_grace_is_told_so_in_json():
    reached = threading.Event()

    async def app(scope, receive, send):
        reached.set()
        await asyncio.sleep(60)

    gate, found = Limits(app, Settings()), []
    config = uvicorn.Config(
        gate, port=0, lifespan="off", log_config=None, timeout_graceful_shutdown=0
    )
    server = uvicorn.Server(config)
    serving = threading.Thread(target=server.run)
    serving.start()
    while not server.started:
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]

    def ask():
        found.append(httpx.post(f"http://127.0.0.1:{port}/embed", json=ASK))

    asking = threading.Thread(target=ask)
    asking.start()
    assert reached.wait(20)
    server.should_exit = True
    asking.join(20)
    serving.join(20)
    refused(found[0], 503, "Unhealthy")


def test_senders_that_stop_take_nobody_s_place(serve):
    head = b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    part = head + b"Content-Length: 190000\r\n\r\n" + b" " * 150_000
    with (
        serve("vectors", max_concurrent_requests=1, max_body_bytes=200_000) as narrow,
        raw(narrow, head + b"Content-Length: 9\r\n\r\n"),
        raw(narrow, part),
    ):
        assert narrow.post("/embed", json=ASK).status_code == 200
        # What they hold is bounded, too.
        until = time.monotonic() + 10
        while narrow.post("/embed", content=b" " * 150_000).status_code != 429:
            assert time.monotonic() < until, "more is held than may be"
        assert narrow.post("/embed", json=ASK).status_code == 200
