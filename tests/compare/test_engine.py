"""A whole study in child processes: finished, failed, killed, stopped, and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import filbert
from filbert.compare.runs import run_study
from filbert.errors import ConfigError, InputError

KEYS = {
    "filbert", "name", "finished", "task", "positive", "labels", "data", "options", "machine",
    "contestants", "pairs", "slices",
}  # fmt: skip
COSTS = {"training_seconds", "rows_per_second", "parameters", "bytes_on_disk", "peak_bytes"}


def toml(recipe) -> str:
    """A recipe as a file."""
    flat = {k: v for k, v in recipe.items() if k != "contestants"}
    lines = [f"{k} = {json.dumps(v)}" for k, v in flat.items()]
    for name, table in recipe["contestants"].items():
        lines += [f'[contestants."{name}"]', *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def begin(recipe, out, tmp_path, *flags) -> subprocess.Popen[str]:
    """`filbert compare` in a process that can be killed."""
    path = tmp_path / "recipe.toml"
    path.write_text(toml(recipe))
    return subprocess.Popen(
        [sys.executable, "-m", "filbert", "compare", str(path), "--out", str(out), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        if any(path.glob(pattern)):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    pytest.fail(f"no {pattern}: {process.communicate()[1][-2000:]}")


def wait_until_free(out: Path) -> None:
    """The orphaned child of a killed comparison holds the folder until it has ended."""
    import fcntl

    with (out / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)


@pytest.fixture(scope="module")
def finished(tiny_model, films, tmp_path_factory, one_process):
    """A study with two seeds, a cleaned variant, every kind, and one contestant that fails."""
    folder = tmp_path_factory.mktemp("study")
    strange = folder / "strange.txt"
    strange.write_text("qqq 0.1 0.2\nzzz 0.3 0.4\n")
    recipe = {
        "train": str(films / "train.csv"),
        "dev": str(films / "dev.csv"),
        "test": str(films / "test.csv"),
        "positive": "pos",
        "precision": "float32",
        "max_length": 32,
        "steps": 6,
        "seeds": 2,
        "resamples": 200,
        "contestants": {
            "tiny": {"model": str(tiny_model), "lr": 3e-3},
            "bigru": {"kind": "bigru", "dim": 8, "hidden": 4, "min_count": 1, "cleaning": "study"},
            "tfidf": {"kind": "tfidf", "C": 10.0},
            "tfidf-cleaned": {"kind": "tfidf", "C": 10.0, "cleaning": "study"},
            "static": {"kind": "static", "model": str(tiny_model), "C": 1.0},
            "broken": {"kind": "bigru", "vectors": str(strange), "min_count": 1},
        },
    }
    with one_process():
        compared = filbert.compare(recipe, out=folder / "out", name="Films")
    return recipe, compared


def test_every_contestant_leaves_a_run_folder_figures_and_costs(finished):
    _, compared = finished
    results = compared.results
    assert results.keys() >= KEYS
    assert results == json.loads((compared.folder / "results.json").read_text())
    assert results["name"] == "Films"
    by_name = {c["name"]: c for c in results["contestants"]}
    assert list(by_name) == [
        "tiny",
        "bigru",
        "tfidf",
        "tfidf-cleaned",
        "static",
        "broken",
    ]
    rows = len((compared.folder / "contestants/tiny/seed-0/predictions/test.jsonl").read_text()
               .splitlines())  # fmt: skip
    assert rows == results["data"]["test"]["rows"] == 64
    for name, one in by_name.items():
        if name == "broken":
            continue
        assert one["status"] == "finished" and one["error"] is None
        assert one["best_seed"] in (0, 1)
        assert one["test"]["pr_auc"]["low"] <= one["test"]["pr_auc"]["high"]
        assert one["costs"].keys() >= COSTS and all(v > 0 for v in one["costs"].values())
        assert [s["seed"] for s in one["seeds"]] == (
            [0, 1] if one["kind"] in ("encoder", "bigru") else [0]
        )
        for seed in one["seeds"]:
            folder = compared.folder / seed["folder"]
            assert (folder / "model").is_dir() and not (folder / "state").exists()
            facts = json.loads((folder / "run.json").read_text())
            assert facts["costs"] == seed["costs"] and facts["status"] == "done"
            for split in ("dev", "test"):
                lines = (folder / "predictions" / f"{split}.jsonl").read_text().splitlines()
                if one["kind"] in ("tfidf", "static"):
                    assert not any(json.loads(line)["truncated"] for line in lines)
                line = lines[0]
                assert {
                    "row", "line", "gold", "label", "score", "scores", "num_tokens", "truncated",
                } <= json.loads(line).keys()  # fmt: skip
                assert seed[split]["accuracy"] >= 0
    assert by_name["tfidf-cleaned"]["cleaning"][0] == "urls"
    assert len(results["pairs"]) == 10
    assert (compared.folder / "report.html").is_file()


def test_the_same_call_again_does_only_what_is_left(finished, capsys):
    recipe, compared = finished
    tiny = compared.folder / "contestants/tiny/seed-0/run.json"
    before = tiny.stat().st_mtime_ns
    again = filbert.compare(
        recipe,
        out=compared.folder,
        name="Films",
        only=["tiny", "tfidf", "tfidf-cleaned", "bigru", "static"],
    )
    assert tiny.stat().st_mtime_ns == before
    assert "all 7 requested runs are finished" in capsys.readouterr().err
    for key in ("contestants", "pairs"):
        assert again.results[key] == compared.results[key]


def test_other_rows_are_refused(finished, read, films):
    recipe, compared = finished
    with pytest.raises(ConfigError, match="other rows or options"):
        run_study(read(recipe | {"test": str(films / "dev.csv")}), compared.folder)
    with pytest.raises(ConfigError, match="other rows or options"):
        run_study(read(recipe | {"positive": "neg"}), compared.folder)


def test_rows_that_cannot_be_read_cost_no_run(recipe, read, tmp_path, one_process):
    recipe["contestants"] = {"one": {"kind": "tfidf", "C": 10.0}}
    with one_process():
        run_study(read(recipe), tmp_path / "out")
    run = tmp_path / "out/contestants/one/seed-0/run.json"
    before = run.stat().st_mtime_ns
    with pytest.raises(InputError, match="labell"):
        run_study(read(recipe | {"label_column": "labell"}), tmp_path / "out", overwrite=True)
    assert run.stat().st_mtime_ns == before
    assert not (tmp_path / "out/.data").exists()
    with one_process():
        run_study(read(recipe), tmp_path / "out")
    assert run.stat().st_mtime_ns == before, "the study is whole as it was"


def test_overwrite_runs_anew_what_has_changed_and_nothing_else(
    recipe, read, tmp_path, capsys, one_process
):
    recipe["contestants"] = {name: {"kind": "tfidf", "C": 10.0} for name in ("first", "second")}
    with one_process():
        run_study(read(recipe), tmp_path / "out")
    first = tmp_path / "out/contestants/first/seed-0/run.json"
    before = first.stat().st_mtime_ns
    recipe["contestants"]["second"]["C"] = 1.0
    with one_process():
        results = run_study(read(recipe), tmp_path / "out", overwrite=True)
    assert first.stat().st_mtime_ns == before
    assert "second, seed 0: its rows or options changed" in capsys.readouterr().err
    assert results["contestants"][1]["status"] == "finished"
    # With other rows everything is done anew.
    with one_process():
        results = run_study(read(recipe | {"positive": "neg"}), tmp_path / "out", overwrite=True)
    assert first.stat().st_mtime_ns != before
    assert results["positive"] == "neg"


def test_a_killed_comparison_goes_on_where_it_was(recipe, read, tmp_path, one_process, capsys):
    recipe |= {"steps": 120, "save_every": 10}
    out = tmp_path / "out"
    killed = begin(recipe, out, tmp_path)
    wait_for(out, "contestants/tiny/seed-0/state/step-*", killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    wait_until_free(out)
    with one_process():
        results = run_study(read(recipe), out)
        assert "resumed after step" in capsys.readouterr().err
        assert [c["status"] for c in results["contestants"]] == ["finished", "finished"]
        run_study(read(recipe), tmp_path / "whole")
    place = "contestants/tiny/seed-0/predictions/test.jsonl"
    assert (out / place).read_bytes() == (tmp_path / "whole" / place).read_bytes()


def test_a_signal_stops_in_good_order_and_says_how_to_go_on(recipe, read, tmp_path):
    recipe |= {"steps": 100_000, "save_every": 1_000_000}
    out = tmp_path / "out"
    process = begin(recipe, out, tmp_path)
    wait_for(out, "contestants/tiny/seed-0/metrics.jsonl", process)
    with pytest.raises(ConfigError, match="Another comparison is running"):
        run_study(read(recipe), out)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert "0 of 2 runs finished" in err and "The same command" in err
    facts = json.loads((out / "contestants/tiny/seed-0/run.json").read_text())
    assert facts["status"] == "interrupted"
    assert list((out / "contestants/tiny/seed-0/state").glob("step-*"))
    state = json.loads((out / "study.json").read_text())
    assert state["runs"]["tiny/seed-0"]["status"] == "interrupted"


def test_a_contestant_that_is_killed_is_named_and_the_others_go_on(recipe, tmp_path):
    recipe |= {"steps": 100_000, "save_every": 1_000_000}
    out = tmp_path / "out"
    process = begin(recipe, out, tmp_path)
    wait_for(out, "contestants/tiny/seed-0/metrics.jsonl", process)
    (child,) = children_of(process.pid)
    os.kill(child, signal.SIGKILL)
    _, err = process.communicate()
    assert process.returncode == 1
    results = json.loads((out / "results.json").read_text())
    tiny, tfidf = results["contestants"]
    assert tiny["status"] == "failed" and "SIGKILL, probably for want of memory" in tiny["error"]
    assert tfidf["status"] == "finished"
    assert "tiny, seed 0 failed: The process was ended by SIGKILL" in err


def children_of(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found


def test_a_folder_with_something_else_is_left_alone(recipe, read, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no study"):
        run_study(read(recipe), tmp_path, overwrite=True)
    with pytest.raises(ConfigError, match="is a file"):
        run_study(read(recipe), tmp_path / "mine.txt")
    assert (tmp_path / "mine.txt").read_text() == "mine"
