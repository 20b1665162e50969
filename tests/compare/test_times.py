"""How long the rest of a study takes."""

from __future__ import annotations

import pytest

from filbert.compare.child import fraction_done
from filbert.compare.contestant_options import Contestant
from filbert.compare.engine import RunProgress, in_words, num_steps
from filbert.train.log import progress_bar


def contestant(name, kind="encoder"):
    return Contestant(name, name, kind, {}, None, (), (0,))


ONE, OTHER, COUNTS = contestant("one"), contestant("other"), contestant("counts", "tfidf")


def progress(times, current, *waiting, begun=0.0, bar=None):
    everyone = {one.folder: one for one in (ONE, OTHER, COUNTS)}
    line = None if bar is None else bar.add_task("", left="")
    queue = [current, *waiting]
    return RunProgress(bar, line, "[1 of 1] one", times, queue, everyone, 100, begun)


def left(times, current, *waiting, elapsed=0.0, fraction=None, begun=0.0):
    return progress(times, current, *waiting, begun=begun).seconds_left(elapsed, fraction)


def test_there_is_no_estimate_before_anything_was_measured():
    assert left({}, ONE) is None
    assert left({}, COUNTS) == 20.0
    assert left({}, COUNTS, ONE) is None


def test_a_run_takes_as_long_as_its_other_seeds_else_as_those_of_its_kind():
    times = {"one": [100.0, 200.0], "counts": [3.0]}
    assert left(times, ONE) == left(times, OTHER) == 150.0
    assert left({**times, "other": [50.0]}, ONE, OTHER, COUNTS) == 203.0


def test_the_run_in_progress_is_estimated_by_what_it_has_done():
    # Half is done after 45 s; the other encoder is expected to take as long.
    assert left({}, ONE, OTHER, elapsed=45.0, fraction=0.5) == pytest.approx(45.0 + 90.0)
    assert left({}, ONE, elapsed=45.0) is None


def test_a_resumed_run_is_estimated_by_what_its_own_process_has_done():
    # From 50 % to 60 % of the training in 9 s: 90 s in all, 40 % of them are left.
    rest = left({}, ONE, OTHER, elapsed=9.0, fraction=0.6, begun=0.5)
    assert rest == pytest.approx(36.0 + 90.0)
    # Before its first step, and while its log still has steps that are repeated.
    for fraction in (0.5, 0.45):
        rest = left({"one": [200.0]}, ONE, elapsed=1.0, fraction=fraction, begun=0.5)
        assert rest == pytest.approx(100.0 - 1.0)


def test_steps_that_a_killed_run_repeats_count_as_work():
    with progress_bar("left") as bar:
        tell = progress({}, ONE, begun=0.5, bar=bar)
        # Killed at 50 %; the log falls back to the state of 40 %, and then goes on.
        begun = []
        for fraction in (None, 0.5, 0.41, 0.51):
            tell(1.0, fraction)
            begun.append(tell.begun)
    assert begun == [0.5, 0.5, 0.41, 0.41]


def test_without_a_terminal_a_line_is_printed_every_minute(capsys):
    with progress_bar("left") as bar:
        tell = progress({}, ONE, bar=bar)
        for second in range(0, 130, 10):
            tell(float(second), second / 1000)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["[1 of 1] one"] * 2
    assert "6% trained, about 16 min left" in lines[0]


def test_a_run_that_takes_longer_than_expected_has_nothing_left_rather_than_less():
    assert left({"one": [10.0]}, ONE, elapsed=60.0) == 0.0


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
def test_the_time_left_is_in_its_unit(seconds, sentence):
    assert sentence in in_words(seconds)
