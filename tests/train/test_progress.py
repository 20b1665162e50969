"""The schedule of a run in steps or in seconds, and the choice of its best step."""

from __future__ import annotations

import math

import pytest
import torch

from filbert.train.options import TrainOptions
from filbert.train.schedule import Phase, Progress, Schedule, rate_at


class Rows:
    """A loader that knows only how long an epoch is."""

    def __init__(self, steps_per_epoch: int) -> None:
        self.steps_per_epoch = steps_per_epoch

    def steps_for(self, epochs: float) -> int:
        return math.ceil(epochs * self.steps_per_epoch)


def schedule_of(share: float = 0.2, **options) -> Schedule:
    phases = [Phase(Rows(6), 1.0 - share), Phase(Rows(4), share)]
    return Schedule(phases, TrainOptions(**{"lr": 1e-3, "warmup": 0.2} | options))


def walk(schedule: Schedule, seconds: float = 1.0, so_far: Progress | None = None) -> list[tuple]:
    """(step, phase, steps inside it, rate) of every step, each of which takes so long."""
    so_far = so_far or Progress("")
    found = []
    while not schedule.is_over(so_far):
        schedule.enter(so_far)
        inside = so_far.step - so_far.phase_start
        found.append((so_far.step, so_far.phase, inside, schedule.learning_rate(so_far)))
        so_far.step += 1
        so_far.clock += seconds
    return found


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("steps", [2, 10, 30, 97])
def test_the_second_phase_takes_its_share_of_the_steps_to_the_nearest(share, steps):
    made = walk(schedule_of(share, steps=steps))
    assert len(made) == steps
    second = [inside for _, phase, inside, _ in made if phase == 1]
    assert second == list(range(len(second))), "its steps are counted from its beginning"
    assert abs(len(second) - share * steps) <= 0.5 + 1e-9
    assert [phase for _, phase, _, _ in made] == sorted(phase for _, phase, _, _ in made)


def test_the_switch_is_told_once_at_its_step():
    plan, so_far, told = schedule_of(0.3, steps=10), Progress(""), []
    for step in range(10):
        so_far.step = step
        if plan.enter(so_far):
            told.append(step)
    assert told == [7] and so_far.phase_start == 7


@pytest.mark.parametrize("schedule", ["linear", "bert", "electra", "cosine", "trapezoid"])
def test_one_schedule_spans_both_phases(schedule):
    made = walk(schedule_of(0.3, steps=40, schedule=schedule))
    wanted = [rate_at(schedule, step, 40, warmup=0.2, peak=1e-3) for step in range(40)]
    assert [rate for *_, rate in made] == wanted
    assert made[28][1] == 1 and 0 < wanted[39] < wanted[27]


def test_epochs_are_passes_over_the_rows_of_the_first_phase():
    assert schedule_of(epochs=2.5).steps == 15
    assert schedule_of(epochs=2.5, steps=7).steps == 7


def test_a_time_budget_decides_phases_rate_and_end_by_the_clock():
    plan = schedule_of(0.25, time="20s", steps=3)
    assert plan.steps is None and plan.length == "20 seconds of steps"
    made = walk(plan, seconds=0.5)
    assert len(made) == 40
    assert [step for step, phase, inside, _ in made if phase == 1 and inside == 0] == [30]
    wanted = [rate_at("linear", i / 2, 20, warmup=0.2, peak=1e-3) for i in range(40)]
    assert [rate for *_, rate in made] == pytest.approx(wanted)


def test_a_run_in_time_ends_with_the_first_step_behind_its_budget_but_not_before_one_step():
    for seconds, steps in ((3.0, 4), (10.0, 1), (1000.0, 1)):
        assert len(walk(schedule_of(time="10s"), seconds=seconds)) == steps
    late = Progress("", step=3, clock=11.0)
    assert walk(schedule_of(time="10s"), so_far=late) == []


def test_a_resumed_run_goes_on_with_the_clock_where_it_was():
    straight = walk(schedule_of(0.25, time="20s"), seconds=0.5)
    resumed = Progress("", step=33, phase=1, phase_start=30, clock=16.5)
    assert walk(schedule_of(0.25, time="20s"), seconds=0.5, so_far=resumed) == straight[33:]


def test_dev_is_measured_once_an_epoch_or_as_asked_and_at_the_end():
    def due(plan: Schedule, steps: int, seconds: float = 1.0, beside: float = 0.0) -> list[int]:
        so_far, found = Progress(""), []
        for _ in range(steps):
            plan.enter(so_far)
            before = so_far.clock
            so_far.step += 1
            so_far.clock += seconds
            so_far.seconds += seconds
            if plan.is_due(so_far, before):
                found.append(so_far.step)
                so_far.clock += beside
        return found

    assert due(schedule_of(0.001, steps=20), 20) == [6, 12, 18, 20]
    assert due(schedule_of(0.001, steps=20, eval_every=7), 20) == [7, 14, 20]
    # Every twentieth of the time, but no step twice.
    assert due(schedule_of(0.001, time="20s"), 40, 0.5) == list(range(2, 41, 2))
    assert due(schedule_of(0.001, time="20s"), 10, 2.0) == list(range(1, 11))
    assert due(schedule_of(0.001, time="20s", eval_every=4), 10, 2.0) == [4, 8, 10]
    # Measuring that takes as long as four steps waits until it is a twentieth of the time.
    rare = due(schedule_of(0.001, time="400s"), 300, 1.0, beside=4.0)
    assert len(rare) <= 6 and min(b - a for a, b in zip(rare, rare[1:], strict=False)) >= 50


def offered(metric, *found):
    so_far = Progress(metric)
    for step, metrics in enumerate(found, 1):
        so_far.step = step
        so_far.offer(metrics, {"w": torch.tensor(float(step))})
    return so_far


def test_the_best_is_the_highest_or_of_a_loss_the_lowest():
    values = [0.2, 0.9, 0.5]
    assert offered("accuracy", *({"accuracy": v} for v in values)).best_step == 2
    assert offered("loss", *({"loss": v} for v in values)).best_step == 1


def test_where_dev_has_no_such_metric_the_loss_decides():
    found = offered("roc_auc", *({"roc_auc": None, "loss": v} for v in (8.5, 8.0, 8.1)))
    assert (found.metric, found.best_step, found.best_value) == ("loss", 2, -8.0)


def test_where_dev_has_no_metric_at_all_the_last_weights_are_kept():
    found = offered("spearman", *({"spearman": None} for _ in range(3)))
    assert found.best_step == 3 and found.best["w"] == 3.0
    assert found.best_value == -math.inf
