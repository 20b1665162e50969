"""Kills writers of training states with kill -9, and looks at what they leave.

    python benchmarks/stress_state.py --kills 300

First a writer is killed at every single file operation of a save, one after the other. Then writers
that save in a loop are killed at random moments. After each kill the newest state must hold exactly
what was saved at its step, must be no older than the last one that was confirmed, and no damaged
state may stand under a valid name. Exits with 1 at the first that does not.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from filbert.train.state import State, clean_state, digest_of, newest_state, save_state

FILE_OPERATIONS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")


def state_at(step: int, megabytes: float = 0.01) -> State:
    """What a run holds at a step: another content at each; the best weights at every third."""
    size = int(megabytes * 2**20 / 12) + 1
    pattern = torch.arange(size, dtype=torch.float32)
    return State(
        step=step,
        tensors={
            "model.weight": pattern + step,
            "model.half": torch.full((3, 5), step, dtype=torch.bfloat16).t(),
            "optimizer.moment": pattern * -step,
            "optimizer.count": torch.tensor(step),
            "best.weight": pattern + step // 3 * 3,
        },
        facts={"step": step, "value": random.Random(step).random()},
    )


def save(folder: Path, step: int, megabytes: float, keep: int) -> None:
    save_state(folder, state_at(step, megabytes), keep=keep)


def fork(work: Callable[[], None]) -> int:
    """Run `work` in a child process, which never returns from here."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"writer: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child


def check(folder: Path, confirmed: int, megabytes: float) -> int:
    """The step of the newest state; exits where the promise is broken."""
    state, skipped = newest_state(folder)
    if skipped:
        sys.exit(f"a damaged state stands under a valid name: {skipped}")
    if state is None or state.step < confirmed:
        sys.exit(f"step {confirmed} was confirmed, but the newest is {state and state.step}")
    expected = state_at(state.step, megabytes)
    same = digest_of(state.tensors) == digest_of(expected.tensors)
    if not same or state.facts != expected.facts:
        sys.exit(f"the state of step {state.step} is not what was saved")
    return state.step


def check_each(folder: Path) -> None:
    """Every state under a valid name must be whole, not only the newest."""
    for path in folder.glob("step-*"):
        if skipped := damage_of(path):
            sys.exit(f"{path.name} is not whole: {skipped}")


def check_growing(folder: Path) -> None:
    """A manifest comes last, so whatever has one must be whole, unless the writer died over it."""
    for path in folder.glob(".step-*.tmp"):
        skipped = damage_of(path) if (path / "manifest.json").exists() else []
        if skipped and "not valid JSON" not in skipped[0]:
            sys.exit(f"a manifest was there before what it lists: {skipped}")


def damage_of(path: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as alone:
        (Path(alone) / path.name.strip(".").split(".")[0]).symlink_to(path.absolute())
        return newest_state(Path(alone))[1]


def kill_at_every_operation(step: int) -> int:
    """Save `step` in a folder with steps 3 and 4, killed at the first operation, the second ...

    Returns:
        The number of kills.
    """
    kills = 0
    while True:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "state"
            for earlier in (3, 4):
                save(folder, earlier, 0.01, keep=2)

            def work(folder: Path = folder, left: int = kills + 1) -> None:
                def hook(event: str, _: object) -> None:
                    nonlocal left
                    if event in FILE_OPERATIONS:
                        left -= 1
                        if left == 0:
                            os.kill(os.getpid(), signal.SIGKILL)

                sys.addaudithook(hook)
                save(folder, step, 0.01, keep=2)

            status = os.waitpid(fork(work), 0)[1]
            check_each(folder)
            check_growing(folder)
            if step > 4:
                check(folder, 4, 0.01)
            clean_state(folder)
            newest = check(folder, 4, 0.01)
            if hidden := [path.name for path in folder.iterdir() if path.name[0] == "."]:
                sys.exit(f"left behind: {hidden}")
            if not os.WIFSIGNALED(status):
                if os.waitstatus_to_exitcode(status) or newest != step:
                    sys.exit("the undisturbed writer failed")
                return kills
            kills += 1


def kill_at_random(folder: Path, kills: int, megabytes: float, seed: int) -> tuple[int, int]:
    """Kill writers that save one step after the other, each going on from the newest state.

    Returns:
        How many kills hit a save and left something to clean, and the last step.
    """
    chance = random.Random(seed)
    started = time.perf_counter()
    for step in range(1, 6):
        save(folder, step, megabytes, keep=2)
    a_save = (time.perf_counter() - started) / 5
    confirmed, hits = 5, 0
    for _ in range(kills):
        reader, writer = os.pipe()
        keep = chance.choice([1, 2, 3])

        def work(first: int = confirmed + 1, keep: int = keep, writer: int = writer) -> None:
            clean_state(folder)
            step = first
            while True:
                save(folder, step, megabytes, keep)
                os.write(writer, struct.pack("q", step))
                step += 1

        child = fork(work)
        os.close(writer)
        time.sleep(chance.uniform(0, 4 * a_save))
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        with os.fdopen(reader, "rb") as pipe:
            told = [number for (number,) in struct.iter_unpack("q", pipe.read())]
        if not os.WIFSIGNALED(status):
            sys.exit("the writer failed by itself")
        check_each(folder)
        newest = check(folder, told[-1] if told else confirmed, megabytes)
        if newest > (told[-1] if told else confirmed) + 1:
            sys.exit(f"step {newest} was never begun")
        confirmed = newest
        hits += any(path.name[0] == "." for path in folder.iterdir())
    clean_state(folder)
    return hits, check(folder, confirmed, megabytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=300, help="kills at random moments")
    parser.add_argument("--megabytes", type=float, default=3.0, help="size of a state")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)  # threads do not survive a fork
    for step, what in ((5, "a new step"), (4, "a step that is there already")):
        kills = kill_at_every_operation(step)
        print(f"{what}: killed at each of {kills} file operations, nothing wrong")
    with tempfile.TemporaryDirectory() as place:
        hits, step = kill_at_random(Path(place) / "state", asked.kills, asked.megabytes, asked.seed)
    print(
        f"killed {asked.kills} times at random, {hits} within a save, {step} steps: nothing wrong"
    )


if __name__ == "__main__":
    main()
