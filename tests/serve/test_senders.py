"""Who sends slowly, or what nobody asked for, over real servers."""

from __future__ import annotations

import socket
import time

ASK = {"inputs": "the film was good"}


def raw(client, content):
    """A connection on which these bytes were sent."""
    connection = socket.create_connection((client.base_url.host, client.base_url.port), timeout=10)
    connection.sendall(content)
    return connection


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


def test_only_post_has_a_body(serve):
    with serve("vectors") as server:
        for path in ("/", "/info", "/nowhere"):
            for options in ({"content": b"a"}, {"content": iter([b"a"])}):
                found = server.request("GET", path, **options)
                assert (found.status_code, found.json()["error_type"]) == (413, "Validation")
        assert server.request("GET", "/info", content=b"").status_code == 200
