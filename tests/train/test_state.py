"""Saved states: bit for bit what was saved, complete or not used, whenever the writer dies."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from filbert.errors import RunError
from filbert.train.state import State, clean_state, digest_of, newest_state, save_state

STRESS = Path(__file__).parents[2] / "benchmarks" / "stress_state.py"


def state_at(step: int, best: int = 0, size: int = 8) -> State:
    tensors = {
        "model.weight": torch.arange(float(size)) + step,
        "optimizer.moment": torch.arange(float(size)) * step,
        "best.weight": torch.full((size,), float(best)),
    }
    return State(step=step, tensors=tensors, facts={"step": step, "value": step / 7})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def is_same(state: State | None, expected: State) -> bool:
    return (
        state is not None
        and state.step == expected.step
        and state.facts == expected.facts
        and digest_of(state.tensors) == digest_of(expected.tensors)
    )


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A folder with the states of steps 100 and 120."""
    folder = tmp_path / "state"
    for step in (100, 120):
        save_state(folder, state_at(step))
    return folder


def test_what_is_read_is_bit_for_bit_what_was_saved(tmp_path):
    base = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    odd = torch.tensor([0x7FC00001, 0x80000000 - 2**32, 1], dtype=torch.int32).view(torch.float32)
    tensors = {
        "model.turned": base.t(),
        "model.every_second": base[::2, 1],
        "model.shared": base,
        "model.spread": torch.ones(1).expand(3, 2),
        "model.nan_and_minus_zero": odd,
        "model.none": torch.empty(0, 3),
        "model.learns": base.clone().requires_grad_(),
        "optimizer.count": torch.tensor(7),
        "optimizer.flag": torch.tensor([True, False, True]),
        "optimizer.byte": torch.tensor([1, 2, 3], dtype=torch.uint8),
        "best": torch.tensor(1.5, dtype=torch.float64),
    } | {
        f"best.{dtype}": torch.tensor([1, 2, 3], dtype=dtype)
        for dtype in (torch.bfloat16, torch.float16, torch.int64, torch.int16, torch.int8)
    }
    facts = {"best": 0.1 + 0.2, "small": 5e-324, "none": -math.inf, "digest": "é", "tokens": 2**60}
    path = save_state(tmp_path / "run" / "state", State(3, tensors, facts))
    assert path == tmp_path / "run" / "state" / "step-00000003"
    assert names(path) == ["manifest.json", "state.safetensors"]
    state, skipped = newest_state(tmp_path / "run" / "state")
    assert state is not None and not skipped
    assert state.facts == facts and state.step == 3
    assert state.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        read = state.tensors[name]
        assert read.dtype == tensor.dtype and read.shape == tensor.shape
        assert (
            read.flatten()
            .view(torch.uint8)
            .equal(tensor.detach().contiguous().flatten().view(torch.uint8))
        )
    assert digest_of(load_file(path / "state.safetensors")) == digest_of(tensors)


def test_every_tensor_starts_at_a_multiple_of_its_element_size(tmp_path):
    tensors = {
        "model.a": torch.ones(3, dtype=torch.bool),
        "model.b": torch.ones(3, dtype=torch.bfloat16),
        "model.c": torch.ones(3),
        "model.d": torch.ones(3, dtype=torch.int64),
    }
    content = (save_state(tmp_path, State(1, tensors, {})) / "state.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    assert header.pop("__metadata__") == {"facts": "{}"}
    for name, entry in header.items():
        assert entry["data_offsets"][0] % tensors[name].element_size() == 0


def test_a_state_without_tensors_is_a_state(tmp_path):
    save_state(tmp_path, State(0, {}, {}))
    assert is_same(newest_state(tmp_path)[0], State(0, {}, {}))


def test_a_folder_without_states_gives_none(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        clean_state(folder)
        assert newest_state(folder) == (None, [])


def test_tensors_that_were_read_do_not_depend_on_the_files(two):
    state = newest_state(two)[0]
    assert state is not None
    state.tensors["model.weight"].zero_()
    assert is_same(newest_state(two)[0], state_at(120))
    for path in two.rglob("*.safetensors"):
        path.write_bytes(b"")
    assert state.tensors["optimizer.moment"].equal(state_at(120).tensors["optimizer.moment"])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def other_step(path: Path) -> None:
    shutil.copy(path.parents[1] / "step-00000100" / path.name, path)


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("manifest.json", Path.unlink, r"manifest\.json cannot be read"),
        ("manifest.json", cut, r"manifest\.json is not valid JSON"),
        ("manifest.json", lambda path: path.write_text("[]"), "not an object"),
        ("manifest.json", lambda path: path.write_text("{}"), "of format 2"),
        ("manifest.json", other_step, "not of this step"),
        ("state.safetensors", Path.unlink, "is missing or has another size"),
        ("state.safetensors", cut, "is missing or has another size"),
        ("state.safetensors", grow, "is missing or has another size"),
        ("state.safetensors", flip, "SHA-256"),
        ("state.safetensors", other_step, "SHA-256"),
    ],
)
def test_a_damaged_state_is_skipped_with_a_sentence_and_the_older_is_used(
    two, name, damage, reason
):
    damage(two / "step-00000120" / name)
    state, skipped = newest_state(two)
    assert is_same(state, state_at(100))
    assert len(skipped) == 1
    assert re.fullmatch(rf"state/step-00000120: .*{reason}.*; skipped", skipped[0])


def test_no_single_flipped_bit_changes_what_is_read(two):
    for path in sorted((two / "step-00000120").iterdir()):
        whole = path.read_bytes()
        for at in range(len(whole)):
            content = bytearray(whole)
            content[at] ^= 1 << at % 8
            path.write_bytes(content)
            state, skipped = newest_state(two)
            # White space in the manifest means nothing.
            assert is_same(state, state_at(100)) or is_same(state, state_at(120)) and not skipped
            assert skipped or path.name == "manifest.json"
        path.write_bytes(whole)


def test_when_all_are_damaged_each_is_named_newest_first(two):
    for path in two.glob("step-*/state.safetensors"):
        path.unlink()
    state, skipped = newest_state(two)
    assert state is None
    assert [sentence.split(":")[0] for sentence in skipped] == [
        "state/step-00000120",
        "state/step-00000100",
    ]


def test_the_latest_is_found_by_number_and_only_under_the_right_name(tmp_path):
    for step in (99_999_999, 100_000_000):
        save_state(tmp_path, state_at(step))
    for name in ("step-0200000000", "step-900000000.bak", "step-9"):
        (tmp_path / name).mkdir()
    assert newest_state(tmp_path)[0].step == 100_000_000
    assert newest_state(tmp_path)[1] == []


def test_older_states_go_and_damaged_ones_do_not_count(two):
    save_state(two, state_at(140))
    assert names(two) == ["step-00000120", "step-00000140"]
    cut(two / "step-00000140" / "state.safetensors")
    save_state(two, state_at(160))
    assert names(two) == ["step-00000120", "step-00000140", "step-00000160"]
    save_state(two, state_at(180), keep=3)
    assert names(two) == ["step-00000120", "step-00000140", "step-00000160", "step-00000180"]
    save_state(two, state_at(200), keep=1)
    assert names(two) == ["step-00000200"]


def test_a_run_that_went_back_replaces_what_it_went_back_from(two):
    flip(two / "step-00000120" / "state.safetensors")
    save_state(two, state_at(110))
    assert names(two) == ["step-00000100", "step-00000110"]


@pytest.mark.parametrize("damage", [None, flip, Path.unlink])
def test_a_state_of_the_same_step_is_replaced(two, damage):
    if damage:
        damage(two / "step-00000120" / "manifest.json")
    save_state(two, state_at(120, best=9))
    assert names(two) == ["step-00000100", "step-00000120"]
    assert is_same(newest_state(two)[0], state_at(120, best=9))


@pytest.fixture(params=["no room for the file", "no room found when flushing"])
def full_disk(request, monkeypatch) -> Iterator[None]:
    """No file may grow beyond 64 KiB; or flushing finds no room, as where it is given late."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if "file" in request.param:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    else:

        def refuse(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", refuse)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_keeps_the_last_good_state_and_names_it(two, full_disk):
    with pytest.raises(RunError) as caught:
        save_state(two, state_at(140, size=10**5))
    message = str(caught.value)
    assert re.match(r"The state of step 140 cannot be saved in .*: [A-Z].*\. ", message)
    assert "The last good state is step-00000120." in message and "--resume" in message
    assert names(two) == ["step-00000100", "step-00000120"]
    assert is_same(newest_state(two)[0], state_at(120))


def test_a_full_disk_before_the_first_state_is_told_as_well(tmp_path, full_disk):
    with pytest.raises(RunError, match=r"There is no earlier state\..*--resume"):
        save_state(tmp_path / "state", state_at(1, size=10**5))
    assert newest_state(tmp_path / "state") == (None, [])


def test_a_place_that_cannot_be_written_is_told_in_a_sentence(tmp_path):
    (tmp_path / "state").write_text("a file")
    with pytest.raises(RunError, match="step 1 cannot be saved in .*: "):
        save_state(tmp_path / "state", state_at(1))
    assert newest_state(tmp_path / "state") == (None, [])


def test_a_save_that_is_interrupted_leaves_nothing(two, monkeypatch):
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_state(two, state_at(140))
    assert names(two) == ["step-00000100", "step-00000120"]


def test_cleaning_removes_only_what_our_writers_left(two):
    (two / "step-00000120").rename(two / ".step-00000120.0123456789ab.old")
    shutil.copytree(two / "step-00000100", two / ".step-00000100.0123456789ab.old")
    for ours in (".step-00000140.0123456789ab.tmp", ".step-00000080.0123456789ab.gone"):
        (two / ours).mkdir()
        (two / ours / "model.safetensors").write_bytes(b"half")
    shutil.copytree(two / "step-00000100", half := two / ".step-00000090.0123456789ab.old")
    (half / "state.safetensors").unlink()
    others = [".git", ".step-00000140.tmp", "step-00000140.0123456789ab.tmp", ".step-1.old"]
    for name in others:
        (two / name).mkdir()
    clean_state(two)
    assert names(two) == sorted([*others, "step-00000100", "step-00000120"])
    assert is_same(newest_state(two)[0], state_at(120))


def test_a_digest_tells_names_dtypes_shapes_and_bits_apart_but_not_order_or_layout():
    base = {"a": torch.tensor([[0.0, 1.0], [2.0, 3.0]]), "b": torch.tensor(1)}
    others = [
        base | {"a": base["a"].flatten()},
        base | {"a": base["a"].view(torch.int32)},
        base | {"a": -(-base["a"] * 1.0)},
        base | {"a": torch.tensor([[-0.0, 1.0], [2.0, 3.0]])},
        base | {"c": torch.empty(0)},
        {"a": base["a"], "c": base["b"]},
        {},
    ]
    assert digest_of(others[2]) == digest_of(base), "a control: these are the same bits"
    digests = {digest_of(tensors) for tensors in others}
    assert len(digests) == len(others)
    assert digest_of({"b": base["b"], "a": base["a"].t().contiguous().t()}) == digest_of(base)


def test_kills_at_every_file_operation_and_at_random_leave_the_newest_state_whole():
    done = subprocess.run(
        [sys.executable, str(STRESS), "--kills", "2", "--megabytes", "0.1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    every, again, _ = done.stdout.splitlines()
    assert int(re.search(r"each of (\d+) file", every)[1]) > 10
    assert int(re.search(r"each of (\d+) file", again)[1]) > 10
