"""How long the rest of a study takes."""

from __future__ import annotations

import pytest

from filbert.study.contestant_options import Contestant
from filbert.study.engine import RunProgress, Times, fraction_done, num_steps, told
from filbert.train.log import progress_bar


def contestant(name, kind="encoder"):
    return Contestant(name, name, kind, {}, None, (), (0,))


ONE, OTHER, COUNTS = contestant("one"), contestant("other"), contestant("counts", "tfidf")


def test_nothing_is_promised_before_anything_was_measured():
    assert Times({}).left([ONE], [ONE, OTHER]) is None
    assert Times({}).left([COUNTS], [ONE, COUNTS]) == 20.0


def test_a_run_takes_as_long_as_its_other_seeds_else_as_those_of_its_kind():
    times = Times({"one": [100.0, 200.0], "counts": [3.0]})
    assert times.expected(ONE, [OTHER]) == 150.0
    assert times.expected(OTHER, [ONE, OTHER, COUNTS]) == 150.0
    times.add(OTHER, 50.0)
    assert times.left([ONE, OTHER, COUNTS], [ONE, OTHER, COUNTS]) == 203.0


def test_the_run_in_progress_is_measured_by_what_it_has_done():
    times = Times({})
    # Of 90 % that are training a half is done after 45 s: 100 s in all.
    left = times.left([OTHER], [ONE, OTHER], current=ONE, elapsed=45.0, fraction=0.5)
    assert left == pytest.approx(55.0 + 100.0)
    assert times.left([], [ONE], current=ONE, elapsed=45.0, fraction=None) is None


def test_a_resumed_run_is_measured_by_what_its_own_process_has_done():
    times = Times({})
    # From 50 % to 60 % of the training in 9 s: 10 % are 9 % of the run, which takes 100 s in all.
    # 55 % of it were left when the process began.
    rest = times.left([OTHER], [ONE, OTHER], current=ONE, elapsed=9.0, fraction=0.6, begun=0.5)
    assert rest == pytest.approx(55.0 - 9.0 + 100.0)
    # Before its first step, and while its log still tells of steps that are done again.
    for fraction in (0.5, 0.45):
        known = Times({"one": [200.0]})
        rest = known.left([], [ONE], current=ONE, elapsed=1.0, fraction=fraction, begun=0.5)
        assert rest == pytest.approx(110.0 - 1.0)


def test_steps_that_a_killed_run_does_again_count_as_work():
    asked = []

    class Noted(Times):
        def left(self, *args, begun, **kwargs):
            asked.append(begun)

    with progress_bar("left") as bar:
        tell = RunProgress(
            bar, bar.add_task("", left=""), title="[1 of 1] one", times=Noted({}), current=ONE,
            waiting=[], everyone=[ONE], steps=100, begun=0.5,
        )  # fmt: skip
        # Killed at 50 %; the log falls back to the state of 40 %, and then goes on.
        for fraction in (None, 0.5, 0.41, 0.51):
            tell(1.0, fraction)
    assert asked == [0.5, 0.5, 0.41, 0.41]


def test_without_a_terminal_a_line_is_told_every_minute(capsys):
    with progress_bar("left") as bar:
        tell = RunProgress(
            bar, bar.add_task("", left=""), title="[1 of 1] one", times=Times({}), current=ONE,
            waiting=[], everyone=[ONE], steps=100, begun=0.0,
        )  # fmt: skip
        for second in range(0, 130, 10):
            tell(float(second), second / 1000)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["[1 of 1] one"] * 2
    # 6 % after 60 s: 90 % of the run take 1,000 s.
    assert "6% trained, about 18 min left" in lines[0]


def test_a_run_that_takes_longer_than_expected_has_nothing_left_rather_than_less():
    assert Times({"one": [10.0]}).left([], [ONE], current=ONE, elapsed=60.0) == 0.0


def test_the_fraction_is_that_of_the_last_whole_line(tmp_path):
    assert fraction_done(tmp_path, 100) is None
    (tmp_path / "metrics.jsonl").write_text('{"step": 10}\n{"step": 25}\n{"st')
    assert fraction_done(tmp_path, 100) == 0.25
    assert fraction_done(tmp_path, 20) == 1.0
    assert fraction_done(tmp_path, None) is None


@pytest.mark.parametrize(
    ("training", "steps"),
    [({}, 12), ({"steps": 7}, 7), ({"epochs": 0.5}, 2), ({"time": "1m"}, None),
     ({"batch_size": 100, "epochs": 2}, 2), ({"method": "tinybert", "steps": 7}, None),
     ({"extra": "more.txt"}, None), ({"augment_with": "minilm"}, None)],
)  # fmt: skip
def test_steps_are_known_unless_the_clock_or_other_rows_rule(training, steps):
    assert num_steps(training, 100) == steps


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [(None, "not known yet"), (0.0, "about 1 s"), (80, "80 s"), (600, "10 min"), (9000, "2.5 h")],
)
def test_the_time_left_is_told_in_its_unit(seconds, sentence):
    assert sentence in told(seconds)
