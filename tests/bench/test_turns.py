"""Taking turns: who goes first, what counts, and what becomes of a side that breaks off."""

import time

import pytest

from filbert.bench.job import Job
from filbert.bench.turns import children, take_turns
from filbert.errors import RunError


class Pretender:
    """Answers without a process."""

    def __init__(self, name, asked, breaks_at=None):
        self.name, self.asked, self.breaks_at, self.count = name, asked, breaks_at, 0

    def ask(self, request):
        self.count += 1
        if self.count == self.breaks_at:
            raise RunError(f"{self.name}: it fell over.")
        self.asked.append((self.name, request["size"]))
        return {"seconds": float(self.count)}


def sides(asked, **breaks):
    return {name: Pretender(name, asked, breaks.get(name)) for name in ("a", "b", "c")}


REQUESTS = dict.fromkeys("abc", {"small": {"size": 1}, "large": {"size": 2}})


def test_every_side_gets_every_request_and_another_goes_first_in_each_round():
    asked = []
    turns = take_turns(sides(asked), REQUESTS, rounds=2, pause=0)
    whole = [(name, size) for name in "abcbcacab" for size in (1, 2)]
    assert asked == whole
    assert turns.rounds == 2
    # The first round warms up and does not count.
    assert turns.replies["a"]["small"] == [{"seconds": 3.0}, {"seconds": 5.0}]


def test_a_side_that_breaks_off_is_told_and_the_others_go_on():
    asked = []
    turns = take_turns(sides(asked, b=3), REQUESTS, rounds=2, pause=0)
    assert turns.failed == ["b: it fell over."]
    assert set(turns.replies) == {"a", "c"}
    assert all(len(found) == 2 for replies in turns.replies.values() for found in replies.values())


def test_no_round_begins_that_would_end_after_the_time_but_one_is_always_made():
    class Slow(Pretender):
        def ask(self, request):
            time.sleep(0.01)
            return super().ask(request)

    requests = {"a": {"small": {"size": 1}}}
    turns = take_turns({"a": Slow("a", [])}, requests, rounds=50, seconds=0.0, pause=0)
    assert turns.rounds == 1
    assert len(turns.replies["a"]["small"]) == 1


def test_a_side_without_a_model_is_told_in_a_sentence_and_leaves_no_process(tmp_path):
    from filbert.bench.workload import drawn

    drawn([4], vocab_size=30, cls_id=2, sep_id=3).save(tmp_path / "ids.npz")
    missing = str(tmp_path / "nothing")
    job = Job("encode", "filbert-float32", missing, str(tmp_path / "ids.npz"), missing, 1)
    with children([job], tmp_path / "logs") as (ready, failed):
        assert ready == {}
    assert len(failed) == 1
    assert failed[0].startswith("filbert-float32: InputError: ")
    assert (tmp_path / "logs" / "filbert-float32.log").is_file()


def test_a_job_is_the_same_after_its_line():
    job = Job("encode", "filbert-bf16", "model", "ids", "place", 2, "cpu")
    assert Job.read(job.line()) == job


def test_an_unknown_field_in_a_job_is_refused():
    with pytest.raises(TypeError):
        Job.read('{"work": "encode", "colour": "red"}')
