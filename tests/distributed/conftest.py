"""One torchrun command of two processes, whose measurements the tests here read."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("worker.py")
# Far more than it takes; a meeting that one process misses would otherwise wait for a day.
LONGEST = 120


def torchrun(*arguments: str) -> tuple[int, str, float]:
    """Exit status, all output and seconds of the worker under two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(WORKER), *arguments]
    inherited = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    started = time.monotonic()
    # A session of its own, so that all of it can be ended.
    process = subprocess.Popen(
        command,
        env=inherited | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        for number in processes_with(arguments[0]):
            os.kill(number, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"the processes waited for each other:\n{output[-2000:]}")
    return process.returncode, output, time.monotonic() - started


def processes_with(argument: str) -> list[int]:
    """Numbers of the running processes that were started with this argument."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if argument in arguments:
            found.append(int(folder.name))
    return found


@pytest.fixture(scope="session")
def place(tiny_model: Path, films: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the worker reads, what it writes, and the runs of one process to compare with."""
    out = tmp_path_factory.mktemp("distributed")
    lines = ["he was very good . it was a film .", "she was not bad , and he was not ."]
    text = [f"{line}\n{'very ' * n}good ." for n in range(20) for line in lines]
    # Words of four pieces are too long to be masked in rows of 16.
    text += [f"{'seeinginged ' * n}" for n in range(1, 40)]
    (out / "text.txt").write_text("\n\n".join(text))
    (out / "vocab").mkdir()
    shutil.copy(tiny_model / "vocab.txt", out / "vocab")
    (out / "model").symlink_to(tiny_model)
    for split in ("train", "dev"):
        shutil.copy(films / f"{split}.csv", out)
    return out


@pytest.fixture(scope="session")
def measured(place: Path) -> list[dict[str, Any]]:
    """What each of two real processes measured, by rank."""
    status, output, _ = torchrun(str(place))
    assert status == 0, output[-4000:]
    assert processes_with(str(place)) == []
    (place / "output.txt").write_text(output)
    sys.path.insert(0, str(WORKER.parent))
    try:
        import pretraining
    finally:
        sys.path.pop(0)
    pretraining.pretrain.pretrain(pretraining.pretrain_options(place, place / "text-alone"))
    pretraining.finetune.finetune(pretraining.finetune_options(place, place / "films-alone"))
    return [json.loads((place / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="session")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """How a command ends whose second process fails while the first waits for it."""
    out = tmp_path_factory.mktemp("failing")
    status, output, seconds = torchrun(str(out), "fail")
    return {
        "status": status,
        "output": output,
        "seconds": seconds,
        "left": processes_with(str(out)),
    }
