"""The same files from a Ray cluster of two workers on this machine; `make test-ray` runs them."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from filbert.errors import ConfigError
from filbert.inference.ray import placing

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: make test-ray")

# The command line with one thread, as each of two workers has on two cores.
START = """
import torch
torch.set_num_threads(1)
from filbert.cli.main import main
main()
"""
# Every process imports this as sitecustomize.py: chunks of 256 rows.
SMALL = "import filbert.data.texts as c; c.CHUNK_ROWS = 256"
SITE = Path(tempfile.mkdtemp())
(SITE / "sitecustomize.py").write_text(SMALL)
ON_RAY = ["--engine", "ray", "--workers", "2"]


def write(path: Path, count: int, bad: int | None = None) -> Path:
    draw = random.Random(7)
    words = ["the", "film", "was", "good", "bad", "very", "play", "!", "he"]
    rows = [" ".join(draw.choices(words, k=draw.randint(0, 30))).encode() for _ in range(count)]
    if bad is not None:
        rows[bad] = b"caf\xe9"
    path.write_bytes(b"\n".join(rows) + b"\n")
    return path


def filbert(*arguments: object, token: str = "", code: str = START) -> subprocess.Popen[str]:
    """The verb in a process of its own, whose workers can be told by a word in their environment.

    A worker has a share of the cores as threads; more cores than two would mean more threads.
    """
    path = os.pathsep.join([str(SITE), *sys.path[1:]])
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"FILBERT_TEST": token, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": "", "PYTHONPATH": path},
    )


def done(process: subprocess.Popen[str], status: int = 0) -> str:
    try:
        _, errors = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == status, errors
    return errors


def workers(token: str, name: bytes = b"_Worker") -> list[int]:
    """Process ids of the actors of a run."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if (folder / "cmdline").read_bytes().startswith(
                b"ray::" + name
            ) and f"FILBERT_TEST={token}\0".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@needs_ray
@pytest.mark.parametrize(("verb", "name"), [("predict", "a.jsonl"), ("embed", "v.parquet")])
def test_two_workers_write_the_bytes_of_the_local_engine(film_run, tmp_path, verb, name):
    source = write(tmp_path / "rows.txt", 3000)
    model = film_run.folder / "model"
    local, ray = tmp_path / f"local.{name}", tmp_path / f"ray.{name}"
    done(filbert(verb, model, source, "--out", local))
    done(filbert(verb, model, source, "--out", ray, *ON_RAY))
    assert ray.read_bytes() == local.read_bytes()


@needs_ray
def test_a_killed_worker_loses_no_rows(film_run, tmp_path):
    source = write(tmp_path / "rows.txt", 6_000)
    model = film_run.folder / "model"
    local, ray = tmp_path / "local.npy", tmp_path / "ray.npy"
    done(filbert("embed", model, source, "--out", local))
    process = filbert("embed", model, source, "--out", ray, *ON_RAY, token=tmp_path.name)
    journal = tmp_path / "ray.npy.unfinished" / "journal.jsonl"
    killed: list[int] = []

    def kill() -> None:
        while process.poll() is None and not (
            journal.exists() and journal.read_bytes().count(b"\n") > 1
        ):
            time.sleep(0.01)
        for worker in workers(tmp_path.name)[:1]:
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)

    killer = threading.Thread(target=kill)
    killer.start()
    errors = done(process)
    killer.join()
    assert killed, "the run ended before a worker could be killed"
    assert "6,000 rows" in errors
    assert ray.read_bytes() == local.read_bytes()


@needs_ray
def test_a_run_on_ray_is_continued_here_after_a_bad_row(film_run, tmp_path):
    source = write(tmp_path / "rows.txt", 3000, bad=2000)
    model = film_run.folder / "model"
    out, local = tmp_path / "a.jsonl", tmp_path / "local.jsonl"
    errors = done(filbert("predict", model, source, "--out", out, *ON_RAY), status=2)
    assert "rows.txt:2001" in errors
    assert "Traceback" not in errors
    assert "1,792 rows are kept" in errors, "all chunks of 256 before the one with the bad row"
    write(source, 3000)
    assert "continuing after" in done(filbert("predict", model, source, "--out", out, "--resume"))
    done(filbert("predict", model, source, "--out", local))
    assert out.read_bytes() == local.read_bytes()


@needs_ray
def test_another_model_of_that_name_answers_nothing(film_run, tmp_path):
    source = write(tmp_path / "rows.txt", 30)
    code = START.replace(
        "main()",
        "import filbert.inference.ray as r; r.model_digest = lambda predictor: 'other'; main()",
    )
    process = filbert("predict", film_run.folder / "model", source, *ON_RAY, code=code)
    assert "another model under the name" in done(process, status=2)


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_its_engine_says_how_to_get_it(call, film_run, tmp_path):
    source = write(tmp_path / "rows.txt", 3)
    answer = call("predict", film_run.folder / "model", source, "--engine", "ray")
    assert answer.status == 2
    assert 'pip install -e ".[ray]"' in answer.err


@pytest.mark.parametrize(
    ("cores", "gpus", "workers", "wanted"),
    [
        ([8, 8], None, None, (2, 8)),
        ([8, 8], None, 3, (3, 4)),  # and not 5: one machine has room for one such worker only
        ([7, 3, 0], None, None, (2, 3)),  # the third machine lends no core
        ([8], None, 3, (3, 2)),
        ([16, 4], [2, 2], None, (4, 2)),
        ([16, 64], [4, 0], None, (4, 4)),  # the cores of the other machine are far away
        ([2, 2], None, 5, None),
        ([], None, None, None),
        ([8], [0], None, None),
        ([8], [1], 2, None),
    ],
)
def test_every_worker_finds_a_place_or_the_cluster_is_refused(cores, gpus, workers, wanted):
    resources = [
        {"CPU": float(c)} | ({"GPU": float(gpus[i])} if gpus else {}) for i, c in enumerate(cores)
    ]
    if wanted is None:
        with pytest.raises(ConfigError, match="too few for"):
            placing(resources, workers, on_gpu=gpus is not None)
    else:
        assert placing(resources, workers, on_gpu=gpus is not None) == wanted
