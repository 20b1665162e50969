"""Bad input gives one message, exit status 2, no traceback, and leaves nothing behind.

The rules themselves are tested where they are; here is one case of each kind.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROWS = b"text,label\ngood,a\nbad,b\nfilm,a\nplay,b\n"
FILES = {
    "rows.csv": ROWS,
    "text.txt": b"the film was good\n\nthe play was bad\n",
    "empty.csv": b"text,label\n,a\n ,b\n,a\n",
    "other.csv": b"comment,toxic\nx,1\ny,0\n",
    "short.csv": ROWS + b"good\n",
    "orphan.conll": b"good O\nfilm I-x\n\nbad O\n",
    "answers.jsonl": b'{"label": "a"}\n',
    "torn.toml": b"lr = \n",
    "typo.toml": b'task = "classification"\nmodel = "TINY"\ntrian = "rows.csv"\nout = "out"\n',
    "taken/notes.txt": b"x",
}  # fmt: skip
FINETUNE = "finetune --task classification --model m --train t.csv --out out "
RUN = "finetune --task classification --model TINY --train rows.csv --steps 1 --out "
TRAIN = "finetune --model TINY --out out --steps 1 --task "
CLASSIFY = "check --task classification "
SCORE = "evaluate --predictions answers.jsonl --task classification --data "
# A command, in which capitals name a model, and words of the message.
COMMAND_LINES = (
    ("finetun", "finetune"),
    (FINETUNE + "--batch-sise 3", "--batch-size"),
    (FINETUNE + "--leraning-rate 1e-5", "Did you mean --lr?"),
    ("trian", "Did you mean 'train'?"),
    ("compare rows.csv --out out", "--data rows.csv"),
    (FINETUNE + "--lr fast", "--lr", "fast", "number"),
    ("finetune --recipe typo.toml", "typo.toml", "trian", "train"),
    ("pretrain torn.toml --out out", "torn.toml", "line 1"),
    (
        "finetune --task ner --model m --train t --out out", "ner", "Did you mean 'tagging'",
    ),
    ("predict m 'Where is my card?'", "no such file", "| filbert predict MODEL"),
    ("fill filbert-mini '-5 degrees is [MASK].'", "behind --"),
)  # fmt: skip
MODELS = (
    ("predict ./nowhere", "./nowhere", "no such folder"),
    ("info filbert-mni", "no folder 'filbert-mni'", "no built-in model", "'filbert-mini'?"),
    ("info bert-base-uncasd", "Did you mean 'bert-base-uncased'?"),
    ("predict TINY", "no task head", "finetune"),
    ("fill FILM 'a [MASK]'", "masked"),
    ("predict FILM --max-length 999", "999", "64"),
    (
        "finetune --task classification --model TINY --train rows.csv --dev rows.csv --out out "
        "--metric f2", "f2", "f1",
    ),
)  # fmt: skip
PLACES = (
    (RUN + "rows.csv", "rows.csv", "--out"),
    ("predict FILM rows.csv --out rows.csv", "rows.csv"),
    ("predict FILM rows.csv --out no/a.jsonl", "no/a.jsonl"),
    ("convert TINY new --to onnx", "static-int8", "filbert export --format onnx"),
    ("predict FILM rows.csv --out a.txt", "a.txt", "ends in .jsonl or .csv or .parquet"),
    ("score MASKED rows.csv --out a.jsonl.gz", ".gz is no ending of JSON Lines"),
    (
        "convert TINY taken --to int8 --data taken/notes.txt", "taken",
    ),
    ("serve FILM --host not.an.address.invalid", "not.an.address"),
)  # fmt: skip
BAD_ROWS = (
    (CLASSIFY + "nowhere.csv", "nowhere.csv", "no such file"),
    (CLASSIFY + "other.csv --text-column coment", 'no column "coment"', "comment", "--text-column"),
    (SCORE + "short.csv", "short.csv:6"),
    (
        TRAIN + "classification --train rows.csv --labels aa,bbb", "rows.csv:2", "mean 'aa'?",
    ),
    (
        TRAIN + "tagging --train orphan.conll", "orphan.conll:2", "I-x", "--repair-tags",
    ),
    (TRAIN + "classification --train empty.csv", "3 of 3 train rows", "--text-column"),
    (
        "fill MASKED --input rows.csv", "rows.csv:2", "[MASK]",
    ),
)  # fmt: skip


@pytest.fixture
def refused(
    call,
    tiny_model: Path,
    masked_lm: Path,
    film_run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., None]]:
    """`refused(command, *words)` runs a command that must fail and leave all files as they are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    models = {"TINY": tiny_model, "FILM": film_run.folder / "model", "MASKED": masked_lm}
    loggers = [logging.getLogger(), logging.getLogger("filbert")]
    handlers = [list(logger.handlers) for logger in loggers]

    def files() -> dict[Path, bytes | None]:
        return {p: p.read_bytes() if p.is_file() else None for p in tmp_path.rglob("*")}

    def go(command: str, *words: str, status: int = 2) -> None:
        for name, content in FILES.items():
            if name in command:
                (tmp_path / name).parent.mkdir(exist_ok=True)
                (tmp_path / name).write_bytes(content)
        before = files()
        arguments = [
            re.sub(r"\b(TINY|FILM|MASKED)\b", lambda m: str(models[m[0]]), word)
            for word in shlex.split(command)
        ]
        done = call(*arguments, stdin="good\n")
        assert done.status == status, (done.status, done.out, done.err)
        assert "Traceback" not in done.err
        message = done.err.strip().splitlines()[-1]
        assert message.startswith("filbert: ") and len(message) < 600
        assert all(word in message for word in words), message
        assert files() == before

    yield go
    for logger, kept in zip(loggers, handlers, strict=True):
        logger.handlers[:] = kept


@pytest.mark.parametrize("case", COMMAND_LINES, ids=lambda case: case[0])
def test_a_wrong_command_line_is_refused(refused, case):
    refused(*case)


@pytest.mark.parametrize(
    "variables", ["", "FORCE_COLOR", "FORCE_COLOR NO_COLOR", "FORCE_COLOR TERM"]
)
def test_an_error_is_red_where_colours_are_allowed(call, monkeypatch, variables):
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name in variables.split():
        monkeypatch.setenv(name, "dumb")
    assert ("\x1b[1;31mfilbert: " in call("finetun").err) == (variables == "FORCE_COLOR")


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case[0])
def test_a_model_that_is_missing_or_unsuitable_is_refused(refused, case):
    refused(*case)


@pytest.mark.parametrize("case", PLACES, ids=lambda case: case[0])
def test_a_target_that_is_taken_or_closed_is_refused(refused, case):
    refused(*case)


@pytest.mark.parametrize("case", BAD_ROWS, ids=lambda case: case[0])
def test_rows_that_cannot_be_read_are_refused(refused, case):
    refused(*case)


def test_wrong_command_lines_are_refused_without_importing_torch(tmp_path):
    lines = [case[0] for case in COMMAND_LINES if not case[0].startswith("serve")]
    for name, content in FILES.items():
        if "/" not in name:
            (tmp_path / name).write_bytes(content)
    code = """
import json, shlex, sys
sys.modules["torch"] = None
from filbert.cli.main import run
print([line for line in json.load(sys.stdin) if run(shlex.split(line)) != 2])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(lines),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[]", (done.stdout, done.stderr[-2000:])


def edited(name: str, **changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text()) | changes
        left = {key: value for key, value in content.items() if value is not None}
        (folder / name).write_text(json.dumps(left))

    return change


def shortened(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:99])


DAMAGE = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
    "cut weights": (shortened("model.safetensors"), "model.safetensors"),
    "cut tokenizer": (shortened("tokenizer.json"), "tokenizer.json"),
    "an unknown task": (edited("filbert.json", task={"name": "poetry"}), "poetry"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_model_is_refused_by_the_file_that_is_wrong(refused, film_run, tmp_path, kind):
    change, word = DAMAGE[kind]
    folder = tmp_path / "model"
    shutil.copytree(film_run.folder / "model", folder)
    # Without the recorded hashes, so that the content itself is checked.
    edited("filbert.json", files={})(folder)
    change(folder)
    refused("predict model", word)


def test_a_run_folder_means_its_model_and_other_tools_words_for_verbs_are_understood(
    call, film_run
):
    one, other = (
        call("info", place, "--json") for place in (film_run.folder, film_run.folder / "model")
    )
    assert one.status == 0
    assert json.loads(one.out)["folder"] == json.loads(other.out)["folder"]
    assert "finetune needs --task" in call("train").err
    assert call("help").out == call("--help").out != ""


FAILURES = {
    "no space": (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "v.npy"), 2, "disk is full"),
    "no permission": (PermissionError(errno.EACCES, "Permission denied", "v.npy"), 2, "v.npy"),
    "no memory": (MemoryError(), 2, "Out of memory"),
    "no memory for a tensor": (RuntimeError("can't allocate memory"), 2, "Out of memory"),
    "Ctrl-C": (KeyboardInterrupt(), 130, "interrupted"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_of_the_machine_is_one_message(refused, monkeypatch, kind):
    error, status, word = FAILURES[kind]

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("filbert.checkpoints.opening.find_model", fail)
    monkeypatch.setattr("filbert.inference.predictor.find_model", fail)
    refused("info TINY", word, status=status)


EXTRAS = {
    "serve FILM --port 0": ("uvicorn", '".[serve]"'),
    "predict FILM rows.csv --out a.jsonl --engine ray": ("ray", '".[ray]"'),
}


@pytest.mark.parametrize("command", EXTRAS)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(refused, monkeypatch, command):
    import importlib.util

    module, words = EXTRAS[command]
    real = importlib.util.find_spec

    def find_spec(name, package=None):
        return None if name.split(".")[0] == module else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setattr("filbert.cli.verbs.answers.find_spec", find_spec)
    monkeypatch.setitem(sys.modules, module, None)
    refused(command, "pip install", words)


def test_a_failed_prediction_leaves_the_old_answers(call, film_run, tmp_path):
    rows, out = tmp_path / "rows.csv", tmp_path / "answers.jsonl"
    rows.write_bytes(b"text\n" + b"good\n" * 5000 + b"caf\xe9\n")
    out.write_text("old\n")
    done = call("predict", film_run.folder / "model", rows, "--out", out)
    assert done.status == 2 and "rows.csv:5002" in done.err
    assert out.read_text() == "old\n"
