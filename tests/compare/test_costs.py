"""Costs: what is timed, how often, and what of an interrupted run can be told."""

from __future__ import annotations

import pytest

from filbert.compare import contestants as costs
from filbert.compare.contestants import latency, measure
from filbert.data.records import Row


@pytest.fixture
def rows():
    return [Row({"text": str(i)}, "x", i + 1) for i in range(5000)]


class Clock:
    """A predictor that takes so many seconds a row, and the clock that it moves."""

    def __init__(self, *paces: float) -> None:
        self.now, self.paces, self.seen = 0.0, list(paces), []

    def predict(self, rows):
        self.seen.append([row.line for row in rows])
        pace = self.paces.pop(0) if len(self.paces) > 1 else self.paces[0]
        self.now += len(rows) * pace
        return []


def timed(monkeypatch, clock, rows, tmp_path):
    monkeypatch.setattr(costs.time, "perf_counter", lambda: clock.now)
    return measure(clock.predict, rows, tmp_path)


def test_the_rows_that_are_timed_are_spread_from_the_first_to_the_last(rows, tmp_path, monkeypatch):
    clock = Clock(0.001)
    timed(monkeypatch, clock, rows, tmp_path)
    # A warm-up and five passes.
    assert [len(lines) for lines in clock.seen] == [64, *[1024] * 5]
    lines = clock.seen[-1]
    assert (lines[0], lines[-1]) == (1, 5000)
    gaps = {b - a for a, b in zip(lines, lines[1:], strict=False)}
    assert gaps <= {4, 5}


def test_the_pace_is_the_median_pass(rows, tmp_path, monkeypatch):
    clock = Clock(0.001, 0.001, 0.002, 0.004, 0.001, 0.002)
    found = timed(monkeypatch, clock, rows, tmp_path)
    assert found["rows_per_second"] == pytest.approx(500)


def test_a_slow_model_is_timed_on_fewer_rows_and_in_fewer_passes(rows, tmp_path, monkeypatch):
    clock = Clock(0.1)
    timed(monkeypatch, clock, rows, tmp_path)
    # The warm-up, and three passes.
    assert [len(lines) for lines in clock.seen] == [64, *[100] * 3]
    assert clock.now == pytest.approx(36.4)


def test_the_latency_is_the_median_of_single_texts_after_a_warm_up(rows, monkeypatch):
    clock = Clock(*[9.0] * 5, *[0.001] * 120, *[0.003] * 60, 0.5)
    monkeypatch.setattr(costs.time, "perf_counter", lambda: clock.now)
    found = latency(clock.predict, rows)
    assert {len(seen) for seen in clock.seen} == {1}
    assert found["latency_seconds"] == pytest.approx(0.001)
    # The last twenty take half a second each: time was over after ten seconds.
    assert 190 < len(clock.seen) - 5 <= 200
