"""`filbert bench`: its tables, its sentences, and what it refuses."""

import json

import numpy as np
import pytest

from filbert.bench import measure
from filbert.bench.turns import Turns
from filbert.cli.setup_bench import chosen_sides, chosen_tables
from filbert.cli.verbs.bench import bench
from filbert.errors import ConfigError


def test_encode_is_measured_in_processes_of_their_own_and_printed(call, tiny_model):
    flags = ("--sides", "filbert-float32", "--seconds", "0.1", "--texts", "3", "--threads", "1")
    done = call("bench", "encode", "--model", tiny_model, *flags)
    assert done.status == 0
    assert "Vectors of 3 texts" in done.out
    assert "The best of filbert is filbert-float32 with" in done.out
    assert "encode: 1 side gets ready" in done.err


def test_texts_one_at_a_time_are_measured_from_the_first_one_on(call, tiny_model):
    flags = ("--sides", "filbert-float32,filbert-int8", "--seconds", "0.1", "--threads", "1")
    done = call("bench", "latency", "--model", tiny_model, *flags, "--json")
    assert done.status == 0, done.err
    rows = json.loads(done.out)["latency"]["rows"]
    assert set(rows) == {"filbert-float32", "filbert-int8"}
    for row in rows.values():
        for length in ("16", "64"):
            half, most, first = (
                row[f"{length} tokens: {what} ms"] for what in ("p50", "p99", "first")
            )
            assert 0 < half <= most and first > 0


def test_a_server_is_measured_with_clients_beside_it(call, tiny_model):
    flags = ("--sides", "filbert-float32", "--seconds", "0.9", "--threads", "1")
    done = call("bench", "serve", "--model", tiny_model, *flags)
    assert done.status == 0, done.err
    lines = {line.split("  ")[0]: line.split() for line in done.out.splitlines()}
    for clients in ("1 client", "16 clients", "64 clients"):
        figures = [word.replace(",", "") for word in lines[f"filbert-float32, {clients}"]]
        *_, rate, p50, p99, errors, memory = figures
        assert float(rate) > 0 and float(p50) <= float(p99) and float(memory) > 10
        assert errors == "0"


def test_a_misspelt_table_is_the_users_error(call):
    done = call("bench", "encod")
    assert done.status == 2
    assert "Did you mean encode?" in done.err


def pretended(monkeypatch, replies):
    """Sides that answer at once; the first text of each takes 4 ms."""

    class Ready:
        def __init__(self, name):
            self.vector = [3.0, 4.0] if name.endswith("int8") else [0.0, 2.0]

        def ask(self, request):
            if request["do"] == "vectors":
                np.save(request["out"], [self.vector])
            return {"seconds": [0.004] * request.get("count", 0)}

    def measured(setup, work, wanted, workload, requests, say, first=lambda ready: None):
        names = wanted or ("filbert",)
        first({name: Ready(name) for name in names})
        found = {key: replies[work][key] for key in requests} if work == "encode" else replies[work]
        return Turns(dict.fromkeys(names, found), rounds=1), [
            "openvino-bf16: openvino is not here."
        ]

    monkeypatch.setattr(measure, "_measured", measured)


REPLIES = {
    "encode": {
        "unsorted": [{"seconds": 2.0}],
        "sorted": [{"seconds": 1.0}],
        "16": [{"seconds": [0.001, 0.002]}, {"seconds": [0.003]}],
        "64": [{"seconds": [0.02]}],
    },
    "tokenize": {"all": [{"seconds": 0.5, "texts": 10, "tokens": 100, "bytes": 1_000_000}]},
    "train": {"all": [{"seconds": 2.0, "texts": 64, "tokens": 4_000}]},
    "serve": {
        clients: [
            {"seconds": 2.0, "requests": 100 * n, "errors": n, "p50": 0.01, "p99": 0.02}
            | {"megabytes": 500.0}
            for n in (1, 3, 2)
        ]
        for clients in ("1", "16", "64")
    },
}


def test_json_holds_every_figure_of_every_table(tiny_model, monkeypatch, capsys):
    pretended(monkeypatch, REPLIES)
    bench(model=str(tiny_model), texts=4, threads=2, json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["threads"] == 2
    assert found["encode"]["rows"]["filbert-bf16"]["sorted: texts/s"] == 4.0
    assert found["encode"]["rows"]["filbert-bf16"]["least cosine"] == 1.0
    assert found["encode"]["rows"]["filbert-int8"]["least cosine"] == pytest.approx(0.8)
    assert found["latency"]["rows"]["filbert-bf16"] == {
        "16 tokens: p50 ms": 2.0,
        "16 tokens: p99 ms": 3.0,
        "16 tokens: first ms": 4.0,
        # The model has 64 positions.
        "64 tokens: p50 ms": 20.0,
        "64 tokens: p99 ms": 20.0,
        "64 tokens: first ms": 4.0,
    }
    assert found["encode"]["products"]["float32"] > 0
    assert found["tokenize"]["rows"]["filbert"]["MB/s"] == 2.0
    assert found["train"]["rows"]["filbert"]["rows/s"] == 32.0
    assert found["serve"]["rows"]["filbert, 1 client"] == {
        "requests/s": 100.0,
        "p50 ms": 10.0,
        "p99 ms": 20.0,
        "errors": 6,
        "MiB": 500.0,
    }
    assert found["train"]["left_out"] == ["openvino-bf16: openvino is not here."]


def test_a_table_that_there_is_not_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"no bench 'encod'.*Did you mean encode\?"):
        chosen_tables("encod")
    assert chosen_tables("serve") == ("serve",)
    assert chosen_tables(None) == ("tokenize", "encode", "latency", "train", "serve")


def test_a_side_that_there_is_not_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"no side 'filbert-fp32'.*Did you mean filbert-"):
        chosen_sides(["encode"], "filbert-fp32")
    with pytest.raises(ConfigError, match="no side 'ctranslate2-int8' of tokenize"):
        chosen_sides(["tokenize"], "ctranslate2-int8")


def test_each_table_gets_those_of_the_named_sides_that_it_has():
    assert chosen_sides(["tokenize", "encode"], None) == {"tokenize": None, "encode": None}
    asked = "filbert-bf16, filbert-int8,filbert-bf16"
    assert chosen_sides(["tokenize", "encode", "train"], asked) == {
        "encode": ["filbert-bf16", "filbert-int8"],
        "train": ["filbert-bf16"],
    }


@pytest.mark.parametrize("wrong", [{"texts": 0}, {"seconds": 0.0}, {"threads": 0}])
def test_numbers_that_cannot_be_are_refused(wrong, tiny_model):
    with pytest.raises(ConfigError, match="above zero"):
        bench("encode", model=str(tiny_model), **wrong)


def test_the_bare_products_get_the_threads_of_the_sides(tiny_model, monkeypatch):
    threads = []

    def rates(shapes, **options):
        threads.append(options["threads"])
        return {"float32": 1.0}

    monkeypatch.setattr("filbert.bench.products.product_rates", rates)
    pretended(monkeypatch, REPLIES)
    bench("encode", model=str(tiny_model), texts=4, threads=3)
    assert threads == [3]


@pytest.mark.parametrize(("said", "wanted"), [("2", 2), ("3,2", 3), ("64", 8), ("", 8), ("x", 8)])
def test_threads_are_those_that_openmp_is_allowed(said, wanted, monkeypatch):
    monkeypatch.setattr(measure, "available_cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert measure.threads_of(None) == wanted
    assert measure.threads_of(5) == 5
