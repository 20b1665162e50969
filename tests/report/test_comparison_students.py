"""The part of a study's report about teachers and students."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from filbert.report import comparison_plots
from filbert.report.comparison_students import students, training_in_all
from filbert.report.comparison_study import read_study
from filbert.report.comparison_words import headline

_spec = importlib.util.spec_from_file_location("studies", Path(__file__).with_name("studies.py"))
studies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(studies)
HOSTILE = "<script>alert('&\")</script>"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """minilm, a student of it, and the student in int8; one seed."""
    folder = tmp_path_factory.mktemp("students")
    results = studies.write_study(
        folder, contestants=studies.CONTESTANTS[:3], seeds=1, num_rows=300, with_cleaning=False,
        failed=False,
    )  # fmt: skip
    minilm, int8, student = results["contestants"]
    minilm |= {"source": None, "share": None}
    student |= {"kind": "distilled", "source": "minilm", "options": {"method": "pkd"}}
    student["share"] = {"of": "minilm", "value": 0.975, "low": None, "high": None}
    student["costs"] |= {"latency_seconds": 0.00321, "training_seconds": 60.0}
    student["costs"] |= {"flops_per_row": 0.7e9}
    minilm["costs"] |= {"latency_seconds": 0.01, "training_seconds": 3600.0}
    minilm["costs"] |= {"flops_per_row": 1.4e9}
    int8 |= {"kind": "quantised", "source": "minilm-3"}
    int8["options"] = {"precision": "int8", "backend": "torch"}
    int8["share"] = {"of": "minilm", "value": 0.9, "low": 0.85, "high": 0.93}
    int8["costs"] |= {"weight_bytes": 5e6, "latency_seconds": 0.002}
    del int8["costs"]["training_seconds"]
    results["choice"] = {"why": f"Because {HOSTILE}."}
    studies.save(folder, results)
    return read_study(folder)


def rows_of(html):
    rows = re.findall(r"<tr>(.*?)</tr>", html, flags=re.S)
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in re.split(r"</t[dh]>", row)[:-1]]
            for row in rows]  # fmt: skip


def test_the_teacher_stands_first_and_everybody_beside_it(study):
    head, *rows = rows_of(students(study).html)
    by_name = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert rows[0][0] == "minilm" and by_name.keys() == {"minilm", "minilm-3", "filbert-mini"}
    student = by_name["minilm-3"]
    assert student["made"] == "distilled, pkd" and student["one text"] == "3.21 ms"
    assert student["share, 95\xa0% interval"].startswith("97.5")
    assert student["differs by"].startswith("−") and student["against"] == "1.9 times"
    assert student["compute"] == "50.0\xa0%" and by_name["minilm"]["compute"] == "1.4 GFLOP"
    assert by_name["filbert-mini"]["compute"] == "–"
    assert student["training in all"] == "61 min 0 s"
    assert by_name["minilm"]["training in all"] == "60 min 0 s"
    int8 = by_name["filbert-mini"]
    assert int8["made"] == "int8, torch" and int8["weights"] == "5.0 MB"
    assert int8["share, 95\xa0% interval"] == "90.0\xa0% [85.0\xa0%, 93.0\xa0%]"
    assert int8["training in all"] == "61 min 0 s"


def test_what_was_chosen_is_said_and_never_as_markup(study):
    html = students(study).html
    assert "Because" in html and "<script>" not in html and "&lt;script&gt;" in html
    assert headline(study)[-1] == f"Because {HOSTILE}."


def test_the_cost_of_a_chain_is_that_of_all_its_parts(study):
    by_name = {one.name: one for one in study.contestants}
    assert training_in_all(study, by_name["minilm"]) == 3600
    assert training_in_all(study, by_name["filbert-mini"]) == 3660
    by_name["minilm"].entry["costs"].pop("training_seconds")
    try:
        assert training_in_all(study, by_name["filbert-mini"]) is None
    finally:
        by_name["minilm"].entry["costs"]["training_seconds"] = 3600.0


def test_quality_stands_against_the_time_of_a_single_text_in_milliseconds(study):
    (latency,) = [c for c in comparison_plots.FRONTIERS if c.key == "latency_seconds"]
    axes = comparison_plots.frontier(study, latency).axes[0]
    low, high = axes.get_xlim()
    assert low < 2 < 10 < high < 100 and "milliseconds" in axes.get_xlabel()
