"""benchmarks/against/inference.py and latency.py: what is made again, and what the tables say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sides.turns import Turns

FOLDER = Path(__file__).parents[2] / "benchmarks" / "against"


@pytest.mark.parametrize("script", ["inference", "latency"])
def test_the_small_version_runs_and_records_nothing(script, tmp_path):
    records = {path: path.stat().st_mtime for path in FOLDER.parent.glob("results/*.jsonl")}
    done = subprocess.run(
        [sys.executable, FOLDER / f"{script}.py", "--small", "--sides", "filbert-float32"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "filbert-float32 |" in done.stdout
    assert {path: path.stat().st_mtime for path in FOLDER.parent.glob("results/*.jsonl")} == records
    assert not list(tmp_path.iterdir())


class Ready:
    """Stands for the processes of all sides."""

    made: list[tuple[str, str]] = []
    broken: set[str] = set()


@pytest.fixture
def bench(load, monkeypatch):
    """The script, with sides that answer at once."""
    from contextlib import contextmanager

    module = load("inference")
    Ready.made, Ready.broken = [], set()

    class Side:
        def close(self):
            pass

    @contextmanager
    def children(jobs, logs, *, together):
        yield {job.side: Side() for job in jobs}, []

    def take_turns(ready, requests, *, rounds, on_round):
        replies = {}
        for side, asked in requests.items():
            if side not in Ready.broken:
                Ready.made += [(side, setting) for setting in asked]
                replies[side] = {setting: [{"seconds": 2.0}] * rounds for setting in asked}
        return Turns(replies, [f"{side}: broken." for side in Ready.broken & set(ready)], 0.0)

    monkeypatch.setattr(module, "children", children)
    monkeypatch.setattr(module, "take_turns", take_turns)
    monkeypatch.setattr(module, "least_cosines", lambda sides, out: dict.fromkeys(sides, 0.99999))
    monkeypatch.setattr(module, "product_rates", lambda shapes, **_: {"float32": 100.0})
    return module


def test_turns_that_are_there_are_not_made_again(bench, load, tmp_path):
    words = ["--models", "tiny", "--texts", "8", "--rounds", "2", "--settings", "sorted, 8"]
    given = bench.parse([*words, "--sides", "filbert-float32", "plain-torch-float32"])
    Ready.broken = {"plain-torch-float32"}
    records, failures = bench.compare(given, tmp_path, None)
    assert ([r["side"] for r in records], failures) == (["filbert-float32"], 1)
    Ready.broken = set()
    with (tmp_path / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"model": "tiny", "side"')  # a process that was killed while writing
    records, failures = bench.compare(given, tmp_path, tmp_path / "kept.jsonl")
    assert (len(records), failures) == (2, 0)
    assert Ready.made == [("filbert-float32", "sorted, 8"), ("plain-torch-float32", "sorted, 8")]
    kept = load("runs").read_results(tmp_path / "kept.jsonl")
    assert [record["side"] for record in kept] == ["plain-torch-float32"]
    assert kept[0]["machine"]["torch"]
    assert kept[0]["ids"] == records[0]["ids"]


def test_only_those_who_make_batches_get_all_texts_in_one_call(bench, tmp_path):
    words = ["--models", "tiny", "--texts", "8", "--rounds", "1"]
    given = bench.parse([*words, "--sides", "filbert-float32", "transformers-float32"])
    bench.compare(given, tmp_path, None)
    settings = {side: [s for name, s in Ready.made if name == side] for side, _ in Ready.made}
    assert settings["filbert-float32"] == list(bench.SETTINGS)
    if "transformers-float32" in settings:
        assert settings["transformers-float32"] == list(bench.SETTINGS)[:3]


def record(side, setting, seconds, model="base"):
    return {
        "model": model,
        "label": "BERT-base (random weights of that shape)",
        "side": side,
        "setting": setting,
        "texts": 256,
        "tokens": 18_000,
        "threads": 2,
        "device": "cpu",
        "useful_gflop": 3_000.0,
        "seconds": seconds,
        "cosine": 0.999,
        "products": {"float32": 200.0, "bf16": 430.0},
        "others": 0.5 if setting == "sorted, 8" else 0.0,
    }


RECORDS = [
    record("filbert-float32", "sorted, 8", [10.0, 10.0, 10.0]),
    record("filbert-float32", "unsorted, all", [15.0, 14.0, 16.0]),
    record("ctranslate2-float32", "sorted, 8", [20.0, 19.0, 30.0]),
    record("ctranslate2-float32", "unsorted, 32", [40.0, 40.0, 40.0]),
]


def test_the_table_sets_filbert_with_all_texts_against_the_best_of_each_peer(load):
    table = load("inference_table").markdown(RECORDS, ["unsorted, 32", "sorted, 8"])
    assert "| ctranslate2-float32 | 75 (75 to 75) | 150 (100 to 158) | 13 | 0.99900 |" in table
    assert (
        "float32: filbert 200, the best peer 150 (ctranslate2-float32, sorted, 8): 1.33 times; "
        "goal on two Zen 4 cores 170." in table
    )
    assert "Beware: other programs were at work during sorted, 8." in table


def test_latencies_are_percentiles_and_the_first_request_a_multiple_of_the_median(load):
    times = [0.010] * 98 + [0.020, 0.030]
    found = load("latency").figures({"seconds": times, "first": 0.015})
    assert found["p50_ms"] == pytest.approx(10)
    assert found["p99_ms"] == pytest.approx(20.1)
    assert found["first_ratio"] == pytest.approx(1.5)
    several = load("latency").figures({"seconds": times, "firsts": [0.03, 0.012, 0.015]})
    assert several["first_ratio"] == pytest.approx(1.5)
    assert several["worst_first_ratio"] == pytest.approx(3.0)
