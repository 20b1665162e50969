"""Learning-rate curves at their corners, and times as people write them."""

import math

import pytest

from filbert.errors import ConfigError
from filbert.train.options import SCHEDULES, TrainOptions, parse_time
from filbert.train.schedule import rate_at

PEAK = 8.0


# 100 steps, 20 of them rising: (step, rate).
@pytest.mark.parametrize(
    ("name", "corners"),
    [
        ("linear", {0: 0, 10: 4, 20: 8, 60: 4, 90: 1, 99: 0.1}),
        # 8 * (1 - 20 / 100): the jump at the end of the rise.
        ("bert", {0: 0, 10: 4, 19: 7.6, 20: 6.4, 60: 3.2, 99: 0.08}),
        # 8 * (1 - t / 100) * min(1, t / 20).
        ("electra", {0: 0, 10: 3.6, 19: 6.156, 20: 6.4, 60: 3.2, 99: 0.08}),
        ("cosine", {0: 0, 10: 4, 20: 8, 40: 4 + 2 * math.sqrt(2), 60: 4, 100: 0}),
        ("trapezoid", {0: 0, 10: 4, 20: 8, 80: 8, 85: 4, 95: 8 - 4 * math.sqrt(3), 100: 0}),
        ("constant", {0: 0, 10: 4, 20: 8, 60: 8, 99: 8}),
    ],
)
def test_a_schedule_has_the_values_computed_by_hand(name, corners):
    for step, wanted in corners.items():
        found = rate_at(name, step, 100, warmup=0.2, peak=PEAK)
        assert found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_warm_up_a_run_begins_at_the_peak_and_even_one_step_learns(name):
    assert rate_at(name, 0, 50, warmup=0.0, peak=PEAK) == PEAK
    assert rate_at(name, 0, 1, warmup=0.9, peak=PEAK) == PEAK


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("warmup", [0.0, 0.06, 0.5, 0.95, 1 - 2**-53])
def test_a_rate_is_never_negative_nor_above_the_peak(name, warmup):
    for steps in (1, 7, 1000):
        rates = [rate_at(name, step, steps, warmup=warmup, peak=PEAK) for step in range(steps)]
        assert all(0 <= rate <= PEAK for rate in rates)
        assert rates[-1] > 0
    for part in (0.0, 0.3, 0.5, 0.96, 1 - 1e-6, 1 - 2**-53):
        assert 0 <= rate_at(name, part * 90.5, 90.5, warmup=warmup, peak=PEAK) <= PEAK


def test_an_unknown_schedule_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="must be one of .* Did you mean 'cosine'"):
        TrainOptions(schedule="cosin")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200),
        ("20m", 1200),
        ("90s", 90),
        ("1h30m", 5400),
        ("1d", 86_400),
        ("1d2h3m4s", 93_784),
        ("0.5h", 1800),
        (" 1H ", 3600),
        ("0h5s", 5),
    ],
)
def test_a_time_is_read_in_days_hours_minutes_and_seconds(text, seconds):
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "20",
        "h",
        "0s",
        "-1h",
        "1h-5m",
        "30m1h",
        "1h1h",
        "1 h",
        "2w",
        "1e3s",
        "٢h",
        "x" * 999,
    ]
    + ["9" * 400 + "d", ".h", "1.h", "nans", "infs"],
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ConfigError, match="such as 90s, 20m or 1h30m") as caught:
        parse_time(text)
    assert len(str(caught.value)) < 200
