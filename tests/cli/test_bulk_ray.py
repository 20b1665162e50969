"""The same files from a Ray cluster of two workers on this machine; `make test-ray` runs them."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from filbert.data.records import Row
from filbert.errors import ConfigError, RunError
from filbert.inference import ray as on_ray
from filbert.inference.bulk import Answers, Chunk, Job, rows_digest

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: make test-ray")

# Ray warns of settings of its own that it copies.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# The command line with chunks of 256 rows, and one thread as each of two workers has on two cores.
START = """
import sys, torch, filbert.data.texts as c
c.CHUNK_ROWS = 256
torch.set_num_threads(1)
from filbert.cli.main import main
main()
"""
ON_RAY = ["--engine", "ray", "--workers", "2"]


def write(path: Path, count: int, bad: int | None = None) -> Path:
    draw = random.Random(7)
    words = ["the", "film", "was", "good", "bad", "very", "play", "!", "he"]
    rows = [" ".join(draw.choices(words, k=draw.randint(0, 30))).encode() for _ in range(count)]
    if bad is not None:
        rows[bad] = b"caf\xe9"
    path.write_bytes(b"\n".join(rows) + b"\n")
    return path


def filbert(*arguments: object, token: str = "") -> subprocess.Popen[str]:
    """The verb in a process of its own, whose workers can be told by a word in their environment.

    A worker has a share of the cores as threads; more cores than two would mean more threads.
    """
    return subprocess.Popen(
        [sys.executable, "-c", START, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"FILBERT_TEST": token, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": ""},
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


def workers(token: str, name: bytes = b"MapWorker(MapBatches(Worker))") -> list[int]:
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
    source = write(tmp_path / "rows.txt", 30_000)
    model = film_run.folder / "model"
    local, ray = tmp_path / "local.npy", tmp_path / "ray.npy"
    done(filbert("embed", model, source, "--out", local))
    process = filbert("embed", model, source, "--out", ray, *ON_RAY, token=tmp_path.name)
    journal = tmp_path / "ray.npy.unfinished" / "journal.jsonl"
    killed: list[int] = []

    def kill() -> None:
        while process.poll() is None and not journal.exists():
            time.sleep(0.01)
        for worker in workers(tmp_path.name)[:1]:
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)

    killer = threading.Thread(target=kill)
    killer.start()
    errors = done(process)
    killer.join()
    assert killed, "the run ended before a worker could be killed"
    assert "30,000 rows" in errors
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


def test_auto_is_settled_once_for_all_workers():
    job = Job("model", {"precision": "auto"}, Answers)
    assert job.with_precision("bf16").options["precision"] == "bf16"
    fixed = Job("model", {"precision": "float32"}, Answers)
    assert fixed.with_precision("bf16") is fixed
    # An export cannot be opened with the precision that it was exported in.
    export = Job("model", {"precision": "auto", "backend": "onnxruntime"}, Answers)
    assert export.with_precision("int8") is export


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_its_engine_says_how_to_get_it(call, film_run, tmp_path):
    source = write(tmp_path / "rows.txt", 3)
    answer = call("predict", film_run.folder / "model", source, "--engine", "ray")
    assert answer.status == 2
    assert 'pip install -e ".[ray]"' in answer.err


def sizes(cores: list[int], workers: int | None = None, gpus: list[int] | None = None):
    machines = [on_ray.Machine(*both) for both in zip(cores, gpus or [0] * 9, strict=False)]
    return on_ray.sizes(machines, workers, gpus is not None)


@pytest.mark.parametrize(
    ("cores", "workers", "wanted"),
    [
        ([8, 8], None, (2, 8)),
        ([8, 8], 3, (3, 4)),  # and not 5: one machine has room for one such worker only
        ([8, 8], 4, (4, 4)),
        ([7, 3], None, (2, 3)),
        ([8], 3, (3, 2)),
        ([2], 2, (2, 1)),
        ([1, 1, 1], 3, (3, 1)),
    ],
)
def test_every_worker_finds_a_place_on_one_machine(cores, workers, wanted):
    assert sizes(cores, workers) == wanted
    assert sum(count // wanted[1] for count in cores) >= wanted[0]


def test_a_worker_on_a_gpu_has_its_threads_beside_it():
    assert sizes([16, 4], gpus=[2, 2]) == (4, 2)
    assert sizes([16, 64], gpus=[4, 0]) == (4, 4), "the cores of the other machine are far away"
    assert sizes([1, 8], gpus=[4, 1]) == (2, 1)


@pytest.mark.parametrize(
    ("cores", "workers", "gpus"), [([2, 2], 5, None), ([], None, None), ([8], None, [0])]
)
def test_a_cluster_without_room_is_told_with_what_there_is(cores, workers, gpus):
    with pytest.raises(ConfigError, match=rf"has {len(cores)} machines \(cores of each: "):
        sizes(cores, workers, gpus)


def test_dead_machines_and_a_head_without_cores_do_no_work():
    nodes = [
        {"Alive": True, "Resources": {"memory": 1e9}},
        {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 1.0}},
        {"Alive": False, "Resources": {"CPU": 8.0}},
        {"Alive": False, "Resources": {}},
    ]
    assert on_ray.machines(nodes) == [(8, 1)]


@pytest.fixture(scope="module")
def two_cores():
    """A cluster of two cores in this process, which the engine joins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILBERT_TEST", "in-process")
        patch.delenv("RAY_ADDRESS", raising=False)
        with on_ray.cluster(2) as ray:
            ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
            yield ray


def jobs(film_run, source: Path, rows: int = 600) -> tuple[Job, list[Chunk]]:
    write(source, rows)
    texts = source.read_text().split("\n")[:rows]
    found = [Row({"text": text}, source.name, number + 1) for number, text in enumerate(texts)]
    pieces = [found[first : first + 100] for first in range(0, rows, 100)]
    chunks = [
        Chunk(number, 100 * number, piece, rows_digest(piece))
        for number, piece in enumerate(pieces)
    ]
    return Job(str(film_run.folder / "model"), {"precision": "float32"}, Answers), chunks


def wait_until(is_so) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


class Holder:
    """Of cores."""

    def is_tlocal_engine(self):
        return True


@needs_ray
def test_a_lost_machine_loses_no_rows(film_run, tmp_path):
    import ray
    from ray.cluster_utils import Cluster

    assert not ray.is_initialized(), "stands before all that share a cluster"
    job, chunks = jobs(film_run, tmp_path / "rows.txt", rows=4000)
    work = job.open()
    soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300}
    soon["health_check_failure_threshold"] = 2
    head = {"num_cpus": 0, "_system_config": soon}
    machines = Cluster(initialize_head=True, head_node_args=head)
    lost = machines.add_node(num_cpus=1)
    machines.add_node(num_cpus=1)
    machines.connect()
    try:
        with on_ray.on_ray(job, work, 2) as engine:
            answers = engine(iter(chunks))
            found = [next(answers)]
            machines.remove_node(lost, allow_graceful=False)
            # The lost worker's chunk waits for a place.
            machines.add_node(num_cpus=1)
            found += answers
    finally:
        ray.shutdown()
        machines.shutdown()
    wanted = [work.answer(chunk, work.encode(chunk), lambda tokens: None) for chunk in chunks]
    assert found == wanted


class Deadly(Answers):
    """Ends its process at the third chunk, whoever gets it."""

    def answer(self, chunk, examples, on_batch):
        if chunk.number == 2:
            os._exit(1)
        return super().answer(chunk, examples, on_batch)


@needs_ray
def test_a_chunk_that_kills_every_worker_is_given_up_after_four(film_run, tmp_path, two_cores):
    job, chunks = jobs(film_run, tmp_path / "rows.txt")
    work = job.open()
    numbers = []
    with (
        pytest.raises(RunError, match="one chunk were lost 4 times"),
        on_ray.on_ray(replace(job, make=Deadly), work, 1) as engine,
    ):
        for part in engine(iter(chunks)):
            numbers.append(part.number)
    # The second chunk is in the same process, and may be lost with it.
    assert numbers in ([0], [0, 1])


@needs_ray
def test_another_model_of_that_name_answers_nothing(film_run, tiny_model, tmp_path, two_cores):
    job, chunks = jobs(film_run, tmp_path / "rows.txt")
    other = replace(job, options={"precision": "bf16"})
    with (
        pytest.raises(ConfigError, match="another model under the name"),
        on_ray.on_ray(replace(job, model=str(tiny_model)), other.open(), 2) as engine,
    ):
        next(engine(iter(chunks)))


@needs_ray
def test_a_worker_that_finds_no_place_is_not_waited_for_forever(
    film_run, tmp_path, two_cores, monkeypatch
):
    job, chunks = jobs(film_run, tmp_path / "rows.txt")
    monkeypatch.setattr(on_ray, "_PLACING_SECONDS", 3)
    held = two_cores.remote(num_cpus=2)(Holder).remote()
    two_cores.get(held.is_there.remote())
    try:
        with (
            pytest.raises(ConfigError, match="no place for 2 workers of 1 threads"),
            on_ray.on_ray(job, job.open(), 2) as engine,
        ):
            next(engine(iter(chunks)))
    finally:
        two_cores.kill(held)


@needs_ray
def test_nobody_works_on_when_the_driver_has_had_enough(film_run, tmp_path, two_cores):
    job, chunks = jobs(film_run, tmp_path / "rows.txt")
    work = job.open()
    with on_ray.on_ray(job, work, 2) as engine:
        answers = engine(iter(chunks))
        first = next(answers)
        assert workers("in-process") and workers("in-process", b"PendingChunks")
        answers.close()
    assert first == work.answer(chunks[0], work.encode(chunks[0]), lambda tokens: None)
    wait_until(lambda: not workers("in-process") and not workers("in-process", b"PendingChunks"))
