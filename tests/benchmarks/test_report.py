"""benchmarks/report.py: rows from records, and a README that says what they say."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def report(load, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("report")
    sys.modules.pop("report", None)


@pytest.fixture
def place(report, tmp_path):
    """Results of one comparison beside a README with markers."""
    results = tmp_path / "results"
    results.mkdir()
    lines = [
        {"side": "sentence-transformers", "seconds": [60.0, 50.0, 55.0], "rows": 5500},
        {"side": "filbert-float32", "seconds": [90.0], "rows": 5500, "cosine_min": 1.0},
        {"side": "filbert-float32", "seconds": [25.0], "rows": 5500, "cosine_min": 0.99997},
    ]
    (results / "embed.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{report.BEGIN}\nold\n{report.END}\n\nafter\n", encoding="utf-8")
    return readme, ["--results", str(results), "--readme", str(readme)]


ROW = (
    "| embed 5,500 comments with MiniLM, float32 | `make bench-embed` | 220 rows/s | "
    "sentence-transformers: 100 rows/s | **2.2 x**, cosine to float32 at least 0.9999 |"
)


def test_a_row_is_made_from_the_newest_record_of_each_side(report, place, capsys):
    assert report.main(place[1]) == 0
    assert capsys.readouterr().out.splitlines() == [*report.HEAD, ROW]


def test_the_check_fails_until_the_readme_says_what_the_results_say(report, place, capsys):
    readme, words = place
    assert report.main([*words, "--check"]) == 1
    assert "differ" in capsys.readouterr().err
    assert report.main([*words, "--write"]) == 0
    assert report.main([*words, "--check"]) == 0
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n\n")
    assert text.endswith("\n\nafter\n")
    readme.write_text(text.replace("2.2 x", "3.2 x"), encoding="utf-8")
    assert report.main([*words, "--check"]) == 1


@pytest.mark.parametrize("text", ["nothing", "{END}\n{BEGIN}", "{BEGIN}\n{BEGIN}\n{END}"])
def test_a_readme_without_the_two_markers_is_left_alone(report, place, text, capsys):
    readme, words = place
    wrong = text.format(BEGIN=report.BEGIN, END=report.END)
    readme.write_text(wrong, encoding="utf-8")
    assert report.main([*words, "--write"]) == 1
    assert "marker" not in readme.read_text(encoding="utf-8")
    assert readme.read_text(encoding="utf-8") == wrong
    assert "README.md must hold" in capsys.readouterr().err


def test_every_file_of_results_that_the_table_reads_gives_a_row(report):
    table = report.table(FOLDER / "results").splitlines()
    for name, maker in report.MAKERS.items():
        records = report.read_results(FOLDER / "results" / f"{name}.jsonl")
        assert bool(maker(records)) == bool(records), name
    assert all(line.startswith("| ") and line.count("|") >= 6 for line in table[2:])


def test_inference_and_latency_get_rows_that_name_the_peer(report):
    def inference(side, setting, seconds):
        return {
            "model": "base",
            "label": "BERT-base",
            "side": side,
            "setting": setting,
            "device": "cpu",
            "texts": 256,
            "useful_gflop": 3_000.0,
            "seconds": seconds,
            "products": {"bf16": 430.0},
        }

    records = [
        inference("filbert-bf16", "unsorted, all", [99.0]),
        inference("filbert-bf16", "unsorted, all", [10.0]),
        inference("transformers-bf16", "sorted, 8", [15.0]),
    ]
    assert report.inference(records) == [
        "| vectors of 256 texts as they come, BERT-base, bf16 | `make bench-inference` | 300 "
        "useful GFLOP/s of 430 possible | transformers-bf16, sorted, 8: 200 | **1.5 x** |"
    ]
    # A peer of another day says nothing about today's machine.
    for record, day in zip(records, (1, 2, 1), strict=True):
        record["time"] = f"2026-01-0{day} 08:00:00"
    (row,) = report.inference(records)
    assert row.endswith("| 300 useful GFLOP/s of 430 possible |  |  |")
    single = {"model": "base", "label": "BERT-base", "tokens": 16, "device": "cpu"}
    rows = report.latency(
        [
            single | {"side": "filbert-int8", "seconds": [0.010] * 3, "first": 0.015},
            single | {"side": "onnxruntime-int8", "seconds": [0.030] * 3, "first": 0.09},
        ]
    )
    assert rows[0].endswith("| **3.0 x** |")
    assert "filbert-int8: p50 10.0 ms, p99 10.0 ms, first request 1.5 medians" in rows[0]


def test_a_latency_stands_beside_the_peers_of_its_own_session_only(report):
    def record(side, seconds, time, others=0.0):
        return {
            "model": "base", "label": "BERT-base", "tokens": 16, "device": "cpu", "side": side,
            "seconds": [seconds] * 3, "first": seconds, "time": time, "others": others,
            "beside": sorted(["filbert-int8", "peer-int8"]),
        }  # fmt: skip

    first = [
        record("filbert-int8", 0.010, "2026-01-01 08:00:00"),
        record("peer-int8", 0.012, "2026-01-01 08:05:00"),
    ]
    # Three hours later the machine is twice as slow, and another program takes a core.
    later = [record("peer-int8", 0.024, "2026-01-01 11:00:00", 1.0)]
    (row,) = report.latency([*first, *later])
    assert row.endswith("| **1.20 x** |")
    later.append(record("filbert-int8", 0.016, "2026-01-01 11:05:00"))
    (row,) = report.latency([*first, *later])
    assert row.endswith("| **1.5 x**, but other programs took 1.0 cores |")


def test_our_own_readme_says_what_our_own_results_say(report):
    assert report.main(["--check"]) == 0


def test_a_server_stands_beside_the_best_peer_at_sixteen_clients(report):
    def record(side, rate, clients=16):
        figures = {"rate": rate, "p99_ms": 5000.0 / rate, "difference": 2.5e-7}
        return {"side": side, "clients": clients, **figures}

    sides = [record("filbert", 80.0), record("a", 40.0), record("b", 20.0), record("c", 90.0, 64)]
    # The newest counts.
    (line,) = report.serve([record("filbert", 10.0), *sides, record("filbert, bf16", 120.0)])
    assert "| 80 requests/s, p99 62 ms | a: 40 requests/s, p99 125 ms | **2.0 x**, " in line
    assert report.serve(sides[:1]) == report.serve(sides[1:]) == []
