"""bert-as-service's dialect: POST /encode, and the BertClient that speaks it."""

from __future__ import annotations

import inspect
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from filbert.client import BertClient, Response
from filbert.errors import ConfigError, InputError, RunError
from filbert.serve.engines import Engines

# What an engine promises: float32 sums may be taken in another order in other company.
TOLERANCE = 1e-6

TEXTS = ["the film was good", "a very bad play", "she was not"]


@pytest.fixture(scope="module")
def expected(predictors):
    return predictors["vectors"].embed(TEXTS)


@pytest.fixture(scope="module")
def bert(client):
    with BertClient(client.base_url.host, client.base_url.port, model="vectors") as made:
        yield made


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
        ({"texts": ["a"], "is_tokenized": True}, 422, "lists of tokens where `is_tokenized`"),
        ({"texts": [["a"]]}, 422, "lists of tokens where `is_tokenized`"),
        ({"texts": "a"}, 422, "texts"),
        ({"texts": ["a"], "model": "classy"}, 404, "no model 'classy'"),
    ],
)
def test_what_cannot_be_encoded_is_refused_in_a_sentence(client, asked, status, message):
    answer = client.post("/encode", json={"id": 1, **asked})
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "error_type"}
    assert message in answer.json()["error"]


def test_the_client_gets_an_array(bert, expected):
    found = bert.encode(TEXTS)
    assert (found.shape, found.dtype) == ((3, 32), np.float32)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_the_client_sends_tokens_when_told_so(bert, predictors):
    found = bert.encode([["the", "play", "##ing"]], is_tokenized=True)
    np.testing.assert_allclose(found, predictors["vectors"].embed(["the playing"]), atol=TOLERANCE)


def test_the_client_cuts_a_long_list_into_requests_and_keeps_its_order(bert, expected):
    # The server takes 1,000 at once.
    found = bert.encode(TEXTS * 400)
    np.testing.assert_allclose(found, np.tile(expected, (400, 1)), atol=TOLERANCE)


def test_answers_that_are_fetched_later_come_with_their_numbers(bert, expected):
    for text in TEXTS:
        assert bert.encode([text], blocking=False) is None
    joined = bert.fetch_all(concat=True)
    np.testing.assert_allclose(joined, expected, atol=TOLERANCE)
    assert bert.fetch_all() == []


def test_answers_are_sorted_by_their_calls_unless_that_is_not_wanted(monkeypatch):
    come = [Response(1, np.ones((1, 2))), Response(0, np.zeros((2, 2)))]
    with BertClient() as bert:
        monkeypatch.setattr(bert, "fetch", lambda: iter(come))
        assert [len(vectors) for vectors in bert.fetch_all()] == [2, 1]
        assert [len(vectors) for vectors in bert.fetch_all(sort=False)] == [1, 2]
        assert bert.fetch_all(concat=True).sum(axis=1).tolist() == [0, 0, 2]


def test_a_stream_of_lists_is_answered_to_its_end(bert, expected):
    batches = ([TEXTS[i % 3]] for i in range(50))
    found = sorted(bert.encode_async(batches, max_num_batch=40, delay=0), key=lambda r: r.id)
    assert len(found) == 40
    joined = np.concatenate([response.embedding for response in found])
    np.testing.assert_allclose(joined, np.tile(expected, (14, 1))[:40], atol=TOLERANCE)


def test_a_call_brings_what_the_server_lets_in_at_once(serve, expected):
    with serve("vectors", max_inputs=2) as client:
        host, port = client.base_url.host, client.base_url.port
        with BertClient(host, port) as bert:
            np.testing.assert_allclose(bert.encode(TEXTS), expected, atol=TOLERANCE)


def test_lists_in_place_of_arrays(client, expected):
    with BertClient(str(client.base_url), output_fmt="list", model="vectors") as bert:
        found = bert.encode(TEXTS)
    assert isinstance(found[0][0], float)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    with pytest.raises(AttributeError, match="ndarray"):
        BertClient(output_fmt="tensor")


@pytest.mark.parametrize(
    ("texts", "options", "error", "message"),
    [
        ([], {}, ValueError, "texts is empty"),
        ("one text", {}, TypeError, "a list is wanted"),
        (["a", 3], {}, TypeError, r"texts\[1\] is a int"),
        (["a", "  "], {}, ValueError, r"texts\[1\] is blank"),
        (["a"], {"is_tokenized": True}, TypeError, r"texts\[0\]: texts is a str"),
        ([["a"], []], {"is_tokenized": True}, ValueError, r"texts\[1\]: texts is empty"),
    ],
)
def test_the_client_refuses_what_bert_as_services_did(bert, texts, options, error, message):
    with pytest.raises(error, match=message):
        bert.encode(texts, **options)


def test_the_servers_refusal_reaches_the_caller_in_its_words(client):
    with (
        BertClient(str(client.base_url), model="classy") as bert,
        pytest.raises(InputError, match="There is no model 'classy'"),
    ):
        bert.encode(["a"])


def test_a_server_that_is_not_there_is_said_to_be_so():
    with BertClient("127.0.0.1", 9) as bert, pytest.raises(RunError, match="gives no answer"):
        bert.encode(["a"])


@contextmanager
def answering(content: bytes | None) -> Iterator[BertClient]:
    """A client of something that answers one connection with these bytes; None: not at all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(2**16)
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                # Closed with bytes unread, it would reset the connection.
                with suppress(OSError):
                    while connection.recv(2**16):
                        pass

        if content is not None:
            Thread(target=answer, daemon=True).start()
        with BertClient("127.0.0.1", listener.getsockname()[1], timeout=100) as bert:
            yield bert


def test_an_answer_that_takes_too_long_is_a_timeout():
    with answering(None) as bert, pytest.raises(TimeoutError, match="in 100 ms"):
        bert.encode(["a"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "gives no answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "does not answer as filbert serve does"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno", "status 500"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "gives no answer"),
    ],
)
def test_something_else_behind_the_address_is_said_to_be_so(content, message):
    with answering(content) as bert, pytest.raises(RunError, match=message):
        bert.timeout = 20_000
        bert.encode(["a"])


def test_a_key_is_sent_and_the_servers_status_shown(serve, tmp_path, capsys):
    keys = tmp_path / "keys"
    keys.write_text("correct-key\n")
    with serve("vectors", api_keys=str(keys)) as client:
        address = str(client.base_url)
        with BertClient(address, api_key="correct-key", show_server_config=True) as bert:
            assert bert.encode(["a"]).shape == (1, 32)
        assert "model_id = vectors" in capsys.readouterr().out
        with BertClient(address) as bert, pytest.raises(InputError, match="key is wanted"):
            bert.encode(["a"])


@pytest.mark.parametrize(
    ("asked", "waits"), [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0)], ids=["s", "date"]
)
def test_the_client_waits_when_the_server_is_overloaded(monkeypatch, client, bert, asked, waits):
    import io
    import urllib.error
    import urllib.request
    from email.message import Message

    real, waited, calls = urllib.request.urlopen, [], []

    def busy_once(request, timeout):
        calls.append(request)
        if len(calls) == 1:
            headers = Message()
            headers["Retry-After"] = asked
            raise urllib.error.HTTPError(request.full_url, 429, "", headers, io.BytesIO(b"{}"))
        return real(request, timeout=timeout)

    monkeypatch.setattr("urllib.request.urlopen", busy_once)
    monkeypatch.setattr("filbert.client.time.sleep", waited.append)
    assert bert.encode(["a"]).shape == (1, 32)
    assert waited == [waits]


def test_the_timeout_holds_for_the_whole_call(monkeypatch):
    import io
    import urllib.error
    from email.message import Message

    def busy(request, timeout):
        headers = Message()
        headers["Retry-After"] = "7"
        raise urllib.error.HTTPError(request.full_url, 429, "", headers, io.BytesIO(b"{}"))

    now = [0.0]
    monkeypatch.setattr("urllib.request.urlopen", busy)
    monkeypatch.setattr("filbert.client.time.monotonic", lambda: now[0])
    monkeypatch.setattr("filbert.client.time.sleep", lambda s: now.__setitem__(0, now[0] + s))
    with BertClient(timeout=10_000) as bert, pytest.raises(TimeoutError, match="in 10000 ms"):
        bert.encode(["a"])
    assert now == [10.0]


def test_the_client_takes_what_the_original_took(bert):
    names = list(inspect.signature(BertClient).parameters)
    checks = ["check_version", "check_length", "check_token_info", "ignore_all_checks", "timeout"]
    assert names[6:11] == checks
    BertClient(ignore_all_checks=True, check_token_info=False).close()
    assert bert.encode(["a"], True, False, False).shape == (1, 32)
    with pytest.raises(ConfigError, match="show_tokens"):
        bert.encode(["a"], show_tokens=True)


def test_an_id_that_is_half_a_character_comes_back_whole(client):
    asked = b'{"id": "\\ud800", "texts": ["a"]}'
    headers = {"content-type": "application/json"}
    answer = client.post("/encode", content=asked, headers=headers)
    assert (answer.status_code, answer.json()["id"]) == (200, "\ufffd")


@pytest.mark.parametrize("path", ["/encode", "/v1/embeddings"])
def test_a_model_that_cannot_embed_is_told_as_elsewhere(client, monkeypatch, path):
    def get(engines, name, needs):
        raise ConfigError(f"No loaded model can {needs}.")

    monkeypatch.setattr(Engines, "get", get)
    answer = client.post(path, json={"texts": ["a"], "input": "a"})
    assert (answer.status_code, "can embed" in answer.text) == (424, True)


def test_the_client_loads_neither_torch_nor_fastapi():
    code = (
        "import filbert.client, sys; sys.exit(any(m in sys.modules for m in ('torch','fastapi')))"
    )
    assert subprocess.run([sys.executable, "-W", "error", "-c", code]).returncode == 0


def test_the_python_of_the_page_runs(serve, predictors, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.setitem(predictors, "minilm", predictors["vectors"])
    with serve("minilm") as client:
        port = client.base_url.port
        for block in blocks:
            made: dict = {}
            exec(re.sub(r"(localhost:|\"localhost\", )8080", rf"\g<1>{port}", block), made)
            made["client"].close()
