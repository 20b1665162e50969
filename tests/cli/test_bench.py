"""`filbert bench`: every table has its metrics, and bad requests are refused."""

import json


def test_every_table_has_its_metrics(call, tiny_model):
    done = call("bench", "--model", tiny_model, "--seconds", "0.1", "--threads", "1", "--json")
    assert done.status == 0, done.err
    results = json.loads(done.out)["results"]
    assert {"tokenize", "encode float32", "latency float32"} <= set(results)
    assert results["encode float32"]["least cosine to float32"] > 0.99999
    assert all(value > 0 for row in results.values() for value in row.values())
    latency = results["latency float32"]
    assert latency["16 tokens: p50 ms"] <= latency["16 tokens: p99 ms"]


def test_a_table_is_printed(call, tiny_model):
    done = call("bench", "tokenize", "--model", tiny_model, "--seconds", "0.1")
    assert done.status == 0
    assert "texts/s" in done.out


def test_an_unknown_table_is_refused(call):
    done = call("bench", "encod")
    assert done.status == 2
    assert "Available: tokenize, encode, latency" in done.err
