"""Long files through predict and embed: in order, and to be continued whatever ended the run."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from filbert.files import locked
from filbert.inference.predictor import Predictor

ROWS = 330
# The command line with chunks small enough for a test: 64 rows.
FILBERT = [
    sys.executable,
    "-c",
    "import filbert.data.texts as c; c.CHUNK_ROWS = 64; from filbert.cli.main import main; main()",
]
WAYS = {
    "predict": ["answers.jsonl"],
    "predict.csv": ["answers.csv", "--keep-columns", "text"],
    "predict.parquet": ["answers.parquet"],
    "embed.npy": ["v.npy"],
    "embed.jsonl": ["v.jsonl", "--normalize"],
    "embed.parquet": ["v.parquet", "--pooling", "cls"],
    "tokens.parquet": ["t.parquet", "--pooling", "none"],
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("filbert.data.texts.CHUNK_ROWS", 64)


def texts(count: int = ROWS) -> list[str]:
    draw = random.Random(7)
    words = ["the", "film", "was", "good", "bad", "very", "play", "!", "he"]
    return [" ".join(draw.choices(words, k=draw.randint(0, 30))) for _ in range(count)]


def write(path: Path, rows: list[str], bad: int | None = None) -> Path:
    """Texts as a CSV file; row `bad` (from 0) is not UTF-8."""
    lines = ["text", *(f'"{row}"' for row in rows)]
    content = [line.encode() for line in lines]
    if bad is not None:
        content[bad + 1] = b"caf\xe9"
    path.write_bytes(b"\n".join(content) + b"\n")
    return path


def command(way: str, model: Path, source: Path, folder: Path, *more: str) -> list[str]:
    name, *options = WAYS[way]
    verb = "predict" if way.startswith("predict") else "embed"
    return [verb, str(model), str(source), "--out", str(folder / name), *options, *more]


def unfinished(folder: Path) -> Path:
    (found,) = folder.glob("*.unfinished")
    return found


@pytest.fixture
def broken_off(call, model, tmp_path):
    """A folder with the unfinished work of a run that met a bad row, 256 rows later mended."""

    def make(way: str) -> tuple[Path, Path]:
        source = write(tmp_path / "rows.csv", texts(), bad=300)
        folder = tmp_path / "broken"
        folder.mkdir()
        done = call(*command(way, model, source, folder))
        assert done.status == 2
        assert "rows.csv:302" in done.err
        assert "256 rows are kept" in done.err
        write(source, texts())
        return source, folder

    return make


def whole(call, way: str, model: Path, source: Path, folder: Path) -> bytes:
    """The file of an uninterrupted run."""
    folder.mkdir(exist_ok=True)
    done = call(*command(way, model, source, folder))
    assert done.status == 0, done.err
    (path,) = folder.iterdir()
    return path.read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_after_a_bad_row_was_mended_the_run_goes_on_to_the_same_bytes(
    call, model, tmp_path, broken_off, way
):
    source, folder = broken_off(way)
    done = call(*command(way, model, source, folder, "--resume"))
    assert done.status == 0, done.err
    assert "continuing after 256 rows" in done.err
    assert "330 rows" in done.err
    (path,) = folder.iterdir()
    assert path.read_bytes() == whole(call, way, model, source, tmp_path / "whole")


def test_the_chunks_of_a_file_are_what_the_model_says_about_their_rows(
    call, model, tiny_model, tmp_path
):
    source = write(tmp_path / "rows.csv", texts())
    wanted = Predictor.load(tiny_model).embed(texts())
    for way in ("embed.npy", "embed.parquet"):
        assert call(*command(way, tiny_model, source, tmp_path)[:5]).status == 0
    # Other company, other order of additions.
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=1e-6)
    table = pyarrow.parquet.read_table(tmp_path / "v.parquet")
    assert table["row"].to_pylist() == list(range(ROWS))
    np.testing.assert_array_equal(
        np.array(table["embedding"].to_pylist(), dtype=np.float32), np.load(tmp_path / "v.npy")
    )
    answers = Predictor.load(model).predict(texts())
    assert call(*command("predict", model, source, tmp_path)).status == 0
    lines = (tmp_path / "answers.jsonl").read_text().splitlines()
    for line, answer in zip(lines, answers, strict=True):
        assert json.loads(line)["score"] == pytest.approx(answer["score"], abs=1e-6)


def test_unfinished_work_is_neither_forgotten_nor_overwritten_unasked(
    call, model, tmp_path, broken_off
):
    source, folder = broken_off("predict")
    done = call(*command("predict", model, source, folder))
    assert done.status == 2
    assert "256 rows of an unfinished run" in done.err
    assert "--resume" in done.err
    assert "--overwrite" in done.err
    done = call(*command("predict", model, source, folder, "--overwrite"))
    assert done.status == 0
    (path,) = folder.iterdir()
    assert path.read_bytes() == whole(call, "predict", model, source, tmp_path / "whole")


def test_other_options_another_model_and_other_rows_are_refused_by_name(
    call, model, tiny_model, tmp_path, broken_off
):
    source, folder = broken_off("embed.npy")
    before = {path.name: path.read_bytes() for path in unfinished(folder).iterdir()}
    base = command("embed.npy", model, source, folder, "--resume")
    for more, word in (
        (["--max-length", "9"], "--max-length"),
        (["--pooling", "cls"], "--pooling"),
        (["--layers", "-2"], "--layers"),
        (["--precision", "bf16"], "--precision"),
    ):
        done = call(*base, *more)
        assert done.status == 2
        assert word in done.err, done.err
    base[1] = str(tiny_model)
    assert "another model" in call(*base).err
    base[1] = str(model)
    changed = texts()
    changed[100] += " good"
    write(source, changed)
    done = call(*base)
    assert done.status == 2
    assert "rows 65 to 128" in done.err
    write(source, texts(200))
    assert "rows 193 to 200" in call(*base).err
    write(source, texts(128))
    assert "holds only 128" in call(*base).err
    assert before == {path.name: path.read_bytes() for path in unfinished(folder).iterdir()}


def tear_answers(folder: Path) -> None:
    with (folder / "answers").open("ab") as file:
        file.write(b'{"row": 2')


def tear_journal(folder: Path) -> None:
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])


def lose_answers(folder: Path) -> None:
    os.truncate(folder / "answers", (folder / "answers").stat().st_size - 10)


def lose_journal(folder: Path) -> None:
    (folder / "journal.jsonl").unlink()


@pytest.mark.parametrize(
    ("tear", "kept"),
    [
        (tear_answers, 256),
        (tear_journal, 192),
        (lose_answers, 192),
        (lose_journal, 0),
    ],
)
@pytest.mark.parametrize("way", ["predict", "embed.npy", "embed.parquet"])
def test_whatever_a_kill_tears_the_next_run_makes_the_same_bytes(
    call, model, tmp_path, broken_off, tear, kept, way
):
    source, folder = broken_off(way)
    tear(unfinished(folder))
    done = call(*command(way, model, source, folder, "--resume"))
    assert done.status == 0, done.err
    assert (f"continuing after {kept} rows" in done.err) == (kept > 0)
    assert ("are damaged" in done.err) == (tear is lose_answers)
    (path,) = folder.iterdir()
    assert path.read_bytes() == whole(call, way, model, source, tmp_path / "whole")


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*FILBERT, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_killed_again_and_again_ends_with_the_bytes_of_a_whole_one(
    call, model, tmp_path, tiny_model, times
):
    rows = texts(2_500)
    source = write(tmp_path / "rows.csv", rows)
    folder = tmp_path / "killed"
    folder.mkdir()
    draw = random.Random(3)
    kills = 0
    for _ in range(times):
        process = start(command("embed.parquet", tiny_model, source, folder, "--resume"))
        journal = folder / "v.parquet.unfinished" / "journal.jsonl"
        before = journal.stat().st_size if journal.exists() else 0
        while process.poll() is None and not (journal.exists() and journal.stat().st_size > before):
            time.sleep(0.002)
        time.sleep(draw.random() * 0.05)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills == times, "the runs ended before they could be killed"
    done = call(*command("embed.parquet", tiny_model, source, folder, "--resume"))
    assert done.status == 0, done.err
    (path,) = folder.iterdir()
    assert path.read_bytes() == whole(call, "embed.parquet", tiny_model, source, tmp_path / "whole")


def test_sigterm_ends_a_run_with_130_and_a_word_on_how_to_go_on(call, model, tmp_path, monkeypatch):
    source = write(tmp_path / "rows.csv", texts(10_000))
    process = start(command("predict", model, source, tmp_path))
    journal = tmp_path / "answers.jsonl.unfinished" / "journal.jsonl"
    while process.poll() is None and not (
        journal.exists() and journal.read_bytes().count(b"\n") > 1
    ):
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "rows are kept; with --resume" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "answers.jsonl").exists()
    monkeypatch.setattr("filbert.cli.bulk._SPEED_AFTER", 0)
    done = call(*command("predict", model, source, tmp_path, "--resume"))
    assert done.status == 0, done.err
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 10_000
    # Those that were there already took no time now.
    kept, made = re.search(
        r"continuing after ([0-9,]+) rows.*10,000 rows, ([0-9,]+) of them in ", done.err, re.DOTALL
    ).groups()
    assert sum(int(count.replace(",", "")) for count in (kept, made)) == 10_000


def test_a_stream_leaves_nothing_behind_and_cannot_be_resumed(call, model, tmp_path):
    out = tmp_path / "a.jsonl"
    rows = "\n".join(['{"text": "good"}'] * 300 + ["{"])
    done = call("predict", model, "-", "--out", out, stdin=rows)
    assert done.status == 2
    assert "stdin:301" in done.err
    assert list(tmp_path.iterdir()) == []
    assert "Give a file" in call("predict", model, "-", "--out", out, "--resume").err
    source = write(tmp_path / "rows.csv", texts(3))
    assert "--resume needs --out" in call("predict", model, source, "--resume").err


def test_resume_starts_where_nothing_is_and_refuses_where_all_is_done(call, model, tmp_path):
    source = write(tmp_path / "rows.csv", texts(100))
    arguments = command("predict", model, source, tmp_path, "--resume")
    assert call(*arguments).status == 0
    out = tmp_path / "answers.jsonl"
    before = out.read_bytes()
    done = call(*arguments)
    assert done.status == 2
    assert "nothing to resume" in done.err
    assert out.read_bytes() == before


def test_two_runs_do_not_write_the_same_file(call, model, tmp_path):
    source = write(tmp_path / "rows.csv", texts(100))
    with locked(tmp_path / "answers.jsonl.unfinished"):
        done = call(*command("predict", model, source, tmp_path))
    assert done.status == 2
    assert "another filbert is writing there" in done.err


def test_a_folder_that_is_not_ours_is_left_alone(call, model, tmp_path):
    source = write(tmp_path / "rows.csv", texts(100))
    other = tmp_path / "answers.jsonl.unfinished"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    done = call(*command("predict", model, source, tmp_path))
    assert done.status == 2
    assert "holds other files" in done.err
    assert (other / "thesis.txt").read_text() == "mine"


def test_contradictory_options_are_refused_before_a_model_is_loaded(call, tmp_path):
    source = write(tmp_path / "rows.csv", texts(3))
    out = tmp_path / "v.npy"
    both = call("embed", "nowhere", source, "--out", out, "--resume", "--overwrite")
    assert "Give one" in both.err
    assert (
        "'local', 'ray'" in call("embed", "nowhere", source, "--out", out, "--engine", "spark").err
    )
    assert "--engine ray" in call("embed", "nowhere", source, "--out", out, "--workers", 2).err


def test_a_run_that_waits_for_standard_input_ends_at_once_when_told_to(model, tmp_path):
    with subprocess.Popen(
        [*FILBERT, *command("predict", model, Path("-"), tmp_path)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"good\n" * 200)
        process.stdin.flush()
        while process.poll() is None and not list(tmp_path.iterdir()):
            time.sleep(0.01)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert process.returncode == 130
        assert process.stderr.read() == b"filbert: interrupted.\n"
    assert list(tmp_path.iterdir()) == []


def test_speed_and_time_left_are_told_without_a_terminal_too(call, model, tmp_path, monkeypatch):
    monkeypatch.setattr("filbert.cli.output.INTERVAL", 0)
    source = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": texts()}), source)
    done = call("predict", model, source, "--out", tmp_path / "a.jsonl")
    assert done.status == 0
    assert re.search(r"predict: 64 rows of about 330, [0-9,]+ rows/s, [0-9.]+ s left", done.err)
    done = call("predict", model, "-", "--out", tmp_path / "b.jsonl", stdin="good\n" * 130)
    assert re.search(r"predict: 64 rows, [0-9,]+ rows/s\n", done.err)
    assert "left" not in done.err
