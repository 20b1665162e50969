"""Bad input gives a sentence or two, exit status 2, no traceback, and leaves nothing behind."""

import json
import shutil
from pathlib import Path

import pytest

GOOD = "text,label\ngood,a\nbad,b\nfilm,a\nplay,b\n"


def check_refusal(done, *words: str) -> None:
    assert done.status == 2, (done.status, done.err)
    assert "Traceback" not in done.err
    message = done.err.strip().splitlines()[-1]
    assert message.startswith("filbert: ")
    for word in words:
        assert word in message, message


def finetune(call, model, tmp_path, train, *more):
    return call(
        "finetune", "--task", "classification", "--model", model, "--train", train,
        "--out", tmp_path / "out", "--steps", 1, *more,
    )  # fmt: skip


FINETUNE = ["finetune", "--task", "classification", "--model", "m", "--train", "t", "--out", "o"]
BAD_FILES = {
    "a row with too few fields": (GOOD.encode() + b"good\n", ["rows.csv:6", "1", "2"]),
    "a missing label": (GOOD.encode() + b"good,\n", ["rows.csv:6", "label"]),
    "one label only": (b"text,label\ngood,a\nbad,a\n", ["1 label"]),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_training_file_is_named_by_its_line_and_nothing_is_written(
    call, tiny_model, tmp_path, name
):
    content, words = BAD_FILES[name]
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    check_refusal(finetune(call, tiny_model, tmp_path, path), *words)
    assert [p.name for p in tmp_path.iterdir()] == ["rows.csv"]


def test_a_label_outside_the_declared_ones_is_named(call, tiny_model, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(GOOD + "good,z\n")
    check_refusal(
        finetune(call, tiny_model, tmp_path, path, "--labels", "a,b"),
        "rows.csv:6",
        "'z'",
        "['a', 'b']",
    )
    dev = tmp_path / "dev.csv"
    path.write_text(GOOD)
    dev.write_text("text,label\ngood,a\nbad,q\n")
    check_refusal(finetune(call, tiny_model, tmp_path, path, "--dev", dev), "dev.csv:3", "'q'")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_model_is_refused_with_what_it_holds(call, tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    check_refusal(call("predict", tmp_path, stdin="x"), "no model", "config.json", "notes.txt")
    check_refusal(call("predict", tmp_path / "nowhere/", stdin="x"), "no such folder")


def damaged(film_run, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(film_run.folder / "model", folder)
    return folder


@pytest.mark.parametrize("at", ["header", "data"])
def test_a_bit_flipped_weight_file_is_refused(call, film_run, tmp_path, at):
    folder = damaged(film_run, tmp_path)
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[9 if at == "header" else -100] ^= 0x10
    path.write_bytes(content)
    check_refusal(call("predict", folder, stdin="x"), "model.safetensors")


def test_a_truncated_weight_file_is_refused(call, film_run, tmp_path):
    folder = damaged(film_run, tmp_path)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    check_refusal(call("predict", folder, stdin="x"), "model.safetensors")


def test_a_config_that_contradicts_the_weights_is_refused(call, tiny_model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 65}))
    check_refusal(call("embed", folder, "--out", tmp_path / "v.npy", stdin="x"), "intermediate")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_an_earlier_run_is_refused_without_overwrite(call, tiny_model, films, film_run):
    done = call(
        "finetune", "--task", "classification", "--model", tiny_model,
        "--train", films / "train.csv", "--out", film_run.folder,
    )  # fmt: skip
    check_refusal(done, "already holds a run", "--overwrite")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["finetun"], ["Did you mean", "finetune"]),
        (["finetune", "--modle", "x"], ["--modle", "Did you mean --model"]),
        (["predict", "m", "--max-lenght", "3"], ["--max-length"]),
        (["check", "--task", "clasification", "x.csv"], ["Did you mean 'classification'"]),
        ([*FINETUNE, "--lr", "x"], ["--lr"]),
        ([*FINETUNE, "--batch-sise", "3"], ["--batch-sise", "Did you mean --batch-size"]),
        (["embed", "m", "--out", "v.txt"], [".npy"]),
        (["embed", "m", "--out", "v.npy", "--pooling", "none"], ["--pooling none"]),
        (["embed", "m", "--out", "v.npy", "--layers", "last"], ["--layers"]),
        (["evaluate", "--data", "d.csv"], ["MODEL"]),
        (["predict"], ["MODEL"]),
        (["finetune", "--recipe", "nowhere.toml"], ["nowhere.toml"]),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)  # fmt: skip
def test_a_wrong_command_line_gets_the_nearest_name(call, arguments, words):
    check_refusal(call(*arguments), *words)


def test_a_failed_prediction_leaves_the_old_answers(call, film_run, tmp_path):
    rows, out = tmp_path / "rows.csv", tmp_path / "answers.jsonl"
    rows.write_bytes(b"text\n" + b"good\n" * 5000 + b"caf\xe9\n")
    out.write_text("old\n")
    done = call("predict", film_run.folder / "model", rows, "--out", out)
    check_refusal(done, "rows.csv:5002", "UTF-8")
    assert out.read_text() == "old\n"
    unfinished = "answers.jsonl.unfinished"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["answers.jsonl", unfinished, "rows.csv"]


def test_a_model_without_a_head_says_what_to_do(call, tiny_model):
    check_refusal(call("predict", tiny_model, stdin="x"), "no task head", "finetune")


@pytest.mark.parametrize("out", ["/proc/answers.jsonl", "/nowhere/answers.jsonl", "x" * 300])
def test_a_place_that_cannot_be_written_is_a_sentence(call, film_run, out):
    check_refusal(
        call("predict", film_run.folder / "model", "--out", out, stdin="good\n"), out[:20]
    )


@pytest.mark.parametrize("device", ["foo", "cuda:77", "meta"])
def test_a_device_that_is_not_here_is_a_sentence(call, film_run, device):
    model = film_run.folder / "model"
    check_refusal(call("predict", model, "--device", device, stdin="x"), device, "there is cpu")


def test_options_that_would_be_ignored_are_refused(call, film_run, films):
    model, data = film_run.folder / "model", films / "test.csv"
    check_refusal(call("evaluate", model, "--data", data, "--labels", "neg,pos"), "--predictions")
    check_refusal(call("evaluate", model, "--data", data, "--task", "classification"), "MODEL")


def test_a_full_disk_while_predicting_is_a_sentence(call, film_run):
    check_refusal(
        call("predict", film_run.folder / "model", "--out", "/dev/full", stdin="good\n"),
        "disk is full",
    )
