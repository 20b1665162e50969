"""One line a request and its figures, with nothing in it that a client wrote."""

from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest

from filbert.serve.access_log import AccessLog, JsonLines, RouteNames, log_requests
from filbert.serve.metrics import Metrics

SECRET = "the secret film"


class Host:
    routes = ()


def scope_of(path):
    return {"type": "http", "app": Host, "method": "POST", "path": path, "headers": []}


async def _drain(_=None):
    pass


@pytest.fixture
def lines(client):
    """Calls the server and gives the entry that was logged for it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("filbert.access")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def call(method, path, **options):
        before = len(stream.getvalue())
        answer = client.request(method, path, **options)
        return answer, stream.getvalue()[before:]

    yield call
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_a_line_says_what_was_asked_how_much_it_was_and_how_long_it_took(lines):
    answer, text = lines("POST", "/embed", json={"inputs": SECRET}, headers={"x-request-id": "r-1"})
    entry = json.loads(text)
    assert (entry["method"], entry["path"], entry["status"]) == ("POST", "/embed", 200)
    assert (entry["logger"], entry["level"]) == ("filbert.access", "info")
    assert entry["bytes_out"] == len(answer.content)
    assert entry["bytes_in"] == len(answer.request.content)
    assert entry["tokens"] == 5
    assert entry["truncated"] is False
    assert entry["client"] == "127.0.0.1"
    assert entry["request_id"] == answer.headers["x-request-id"] == "r-1"
    assert 0 < entry["inference_ms"] < entry["ms"]
    assert {"tokenization_ms", "queue_ms", "time"} <= set(entry)


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("POST", "/embed", {"json": {"inputs": SECRET}}, 200),
        ("POST", f"/embed?text={SECRET}", {"json": {"inputs": SECRET}}, 200),
        ("POST", "/embed", {"json": {"inputs": [[SECRET]]}}, 422),
        ("POST", "/embed", {"content": SECRET}, 422),
        ("POST", "/fill", {"json": {"inputs": SECRET, "model": "masks"}}, 422),
        ("POST", "/v1/embeddings", {"json": {"input": SECRET, "model": SECRET}}, 404),
        ("GET", f"/v1/models/{SECRET}", {}, 404),
        ("GET", "/metrics", {"headers": {"x-request-id": SECRET}}, 200),
    ],
)
def test_no_text_of_a_client_is_ever_logged(lines, method, path, options, status):
    answer, text = lines(method, path, **options)
    assert answer.status_code == status
    assert "secret" not in text


def test_a_request_without_a_plain_id_gets_one(lines):
    first, _ = lines("GET", "/info")
    second, _ = lines("GET", "/info", headers={"x-request-id": "a b"})
    ids = {answer.headers["x-request-id"] for answer in (first, second)}
    assert len(ids) == 2
    assert all(len(found) == 32 for found in ids)


def test_an_unknown_path_is_shown_but_not_counted_by_its_name(lines, client):
    _, text = lines("GET", "/no/such%1B[31mthing")
    assert json.loads(text)["path"] == r"/no/such\x1b[31mthing"
    figures = client.get("/metrics").text
    assert 'route="unmatched",status="404"' in figures
    assert "such" not in figures


def test_a_request_is_counted_before_the_last_of_its_answer_goes_out():
    metrics, seen = Metrics(), []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})

    async def send(message):
        seen.append(b'status="200"} 1.0' in metrics.exposition())

    asyncio.run(AccessLog(app, metrics)(scope_of("/embed"), _drain, send))
    assert seen == [False, False, True]


def test_the_figures_have_prometheus_own_type(client):
    found = client.get("/metrics").headers["content-type"]
    assert found == "text/plain; version=0.0.4; charset=utf-8"


def test_engines_show_up_in_the_figures(client):
    client.post("/embed", json={"inputs": SECRET, "model": "words"}).raise_for_status()
    figures = client.get("/metrics").text
    assert 'filbert_tokens_total{model="words"}' in figures
    assert 'filbert_queue_rows{model="words"} 0.0' in figures


@pytest.mark.parametrize(
    ("failure", "status"), [(RuntimeError("x"), "500"), (KeyboardInterrupt(), "499")]
)
def test_a_request_that_ends_without_an_answer_is_counted_too(failure, status):
    async def app(scope, receive, send):
        raise failure

    metrics = Metrics()
    call = AccessLog(app, metrics)(scope_of("/embed"), _drain, _drain)
    with pytest.raises(type(failure)):
        call.send(None)
    assert f'status="{status}"}} 1.0' in metrics.exposition().decode()


def test_paths_are_counted_under_the_names_that_the_server_declares():
    names = RouteNames(["/embed", "/v1/models", "/v1/models/{model:path}", "/page/{name}", "/"])
    assert names.of("/embed") == "/embed"
    assert names.of("/v1/models") == "/v1/models"
    assert names.of("/v1/models/a/b") == "/v1/models/{model:path}"
    assert names.of("/page/page.js") == "/page/{name}"
    assert names.of("/page/") == names.of("/embed/") == names.of("/etc/passwd") == "unmatched"
    assert names.of("/") == "/"


def failed() -> tuple:
    import sys

    try:
        raise KeyError(SECRET)
    except KeyError:
        return sys.exc_info()


def test_an_unforeseen_error_is_logged_with_its_place_and_without_its_message():
    record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "it failed", None, failed())
    entry = json.loads(JsonLines().format(record))
    assert entry["error"] == "KeyError"
    assert entry["at"][0].endswith(" failed")
    assert "secret" not in json.dumps(entry)


@pytest.fixture
def logging_as_it_was():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.basicConfig(handlers=handlers, level=level, force=True)
    for name in ("filbert", "uvicorn"):
        logging.getLogger(name).setLevel(logging.NOTSET)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.usefixtures("logging_as_it_was")
def test_a_terminal_gets_short_lines_and_everything_else_json():
    log = logging.getLogger("filbert.access")
    extra = {"fields": {"status": 200}}
    terminal, pipe = Terminal(), io.StringIO()
    log_requests(terminal)
    log.info("POST /embed 200 1.0 ms", extra=extra)
    logging.getLogger("httpx").info("some other library's chatter")
    log_requests(pipe)
    log.info("POST /embed 200 1.0 ms", extra=extra)
    assert terminal.getvalue().endswith(" POST /embed 200 1.0 ms\n")
    assert terminal.getvalue().count("\n") == 1
    assert json.loads(pipe.getvalue())["status"] == 200
    forced = Terminal()
    log_requests(forced, as_json=True)
    log.info("again")
    assert json.loads(forced.getvalue())["message"] == "again"
