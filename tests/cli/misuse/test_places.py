"""Places that are taken or closed, machines that lack something: a sentence each, nothing left."""

import errno
import os
import resource
import socket
import sys
from pathlib import Path

import pytest

FILES = {
    "rows.csv": b"text,label\ngood,a\nbad,b\nfilm,a\nplay,b\n",
    "text.txt": b"the film was good\n\nthe play was bad\n",
    "taken/notes.txt": b"x",
    "v.npy/notes.txt": b"x",
    "page.html": b"old",
    "study.toml": b'data = "rows.csv"\nseeds = 1\n[contestants.one]\nmodel = "filbert-mini"\n',
}
TRAIN = "finetune --task classification --model TINY --train rows.csv --steps 1 --out "
PRETRAIN = "pretrain --tokenizer TINY --num-hidden-layers 1 --hidden-size 32 --steps 1 --corpus "
KINDS = {
    # Places to write to
    "a run where a file is": (TRAIN + "rows.csv", "rows.csv", "--out"),
    "a run among other files": (TRAIN + "taken --dev taken/notes.txt", "taken", "--out"),
    "a run below a file": (TRAIN + "rows.csv/run", "rows.csv"),
    "a run where nobody may write": (TRAIN + "/proc/run", "/proc"),
    "vectors where a folder is": ("embed TINY v.npy/notes.txt --out v.npy", "v.npy", "folder"),
    "vectors in a missing folder": ("embed TINY rows.csv --out no/v.npy", "no/v.npy"),
    "answers in a missing folder": ("predict FILM rows.csv --out no/a.jsonl", "no/a.jsonl"),
    "answers over the rows": ("predict FILM rows.csv --out rows.csv", "rows.csv"),
    "scores over the texts": ("score MASKED rows.csv --out rows.csv", "rows.csv", "lost"),
    "answers where a folder is": ("predict FILM rows.csv --out . ", "folder"),
    "words in a missing folder": ("fill MASKED --input rows.csv --out no/a.jsonl", "no/a.jsonl"),
    "a page in a missing folder": ("explain FILM 'the film' --out no/page.html", "no/page.html"),
    "an attention page in a missing folder": (
        "inspect TINY hello --out no/page.html", "no/page.html",
    ),
    "a page that is no page": ("explain FILM 'the film' --out page.pdf", "page.pdf", "page.html"),
    "a conversion where files are": (
        "convert TINY taken --to huggingface --part taken/notes.txt", "taken",
    ),
    "a vocabulary where files are": (
        "vocab text.txt --out taken --kind wordpiece --size 60 --held-out taken/notes.txt", "taken",
    ),
    "a vocabulary where a file is": (
        "vocab text.txt --out text.txt --kind wordpiece --size 60", "text.txt",
    ),
    "a corpus where files are": (
        "corpus text.txt taken/notes.txt --tokenizer TINY --out taken", "taken",
    ),
    "a smaller model where files are": (
        "shrink TINY --out taken --keep-layers 1 --vocabulary-from taken/notes.txt", "taken",
    ),
    "an export where files are": (
        "export TINY --out taken --format onnx --data taken/notes.txt", "taken",
    ),
    "a study among other files": ("compare study.toml --out taken --data taken/notes.txt", "taken"),
    "pre-training where a file is": (PRETRAIN + "text.txt --out text.txt", "text.txt"),
    "distillation where a file is": (
        "distill --teacher FILM --train rows.csv --out rows.csv", "rows.csv",
    ),
    "a quickstart where a file is": ("quickstart --out rows.csv", "rows.csv"),
    # Nothing to go on with
    "a run to resume that is another's": (TRAIN + "taken --resume --dev taken/notes.txt", "taken"),
    "an address that is not ours": ("serve FILM --host 203.0.113.9 --port 0", "203.0.113.9"),
    "an address that is none": ("serve FILM --host not.an.address.invalid", "not.an.address"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_that_is_taken_or_closed_is_named(refused, kind):
    command, *words = KINDS[kind]
    refused(command, *words, files=FILES, stdin="good\n")


def full(*args: object, **kwargs: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "v.npy")


def closed(*args: object, **kwargs: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "v.npy")


def no_memory(*args: object, **kwargs: object) -> None:
    raise MemoryError


def no_memory_on_the_gpu(*args: object, **kwargs: object) -> None:
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def no_memory_for_torch(*args: object, **kwargs: object) -> None:
    raise RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"
    )


def no_memory_to_load_torch(*args: object, **kwargs: object) -> None:
    raise ImportError("libtorch_cpu.so: failed to map segment from shared object")


def stopped(*args: object, **kwargs: object) -> None:
    raise KeyboardInterrupt


MACHINE = {
    "no space": (full, 2, ["disk is full", "v.npy", "Free some space"]),
    "no permission": (closed, 2, ["v.npy", "Permission denied"]),
    "no memory": (no_memory, 2, ["Out of memory", "--max-tokens"]),
    "no memory on the GPU": (no_memory_on_the_gpu, 2, ["Out of memory", "--max-tokens"]),
    "no memory for a tensor": (no_memory_for_torch, 2, ["Out of memory", "--max-tokens"]),
    "no memory to begin": (no_memory_to_load_torch, 2, ["Out of memory", "end other programs"]),
}


@pytest.mark.parametrize("kind", MACHINE)
@pytest.mark.parametrize("command", ["predict FILM --out a.jsonl", "embed TINY --out v.npy"])
def test_a_machine_that_cannot_go_on_says_so_and_leaves_nothing(
    refused, monkeypatch, kind, command
):
    raising, status, words = MACHINE[kind]
    monkeypatch.setattr("filbert.inference.bulk.work.Vectors.answer", raising)
    monkeypatch.setattr("filbert.inference.bulk.work.Answers.answer", raising)
    refused(command, *words, stdin="good\n", status=status)


def test_ctrl_c_is_no_error_of_anybody(refused, monkeypatch):
    monkeypatch.setattr("filbert.checkpoints.opening.find_model", stopped)
    refused("info TINY", "interrupted", status=130)


def test_a_file_that_grows_beyond_its_limit_is_a_sentence(refused, monkeypatch):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
    try:
        refused("convert TINY out --to huggingface", "Free some space")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_port_that_is_taken_is_named(refused):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(f"serve FILM --port {port}", str(port), "--port")


EXTRAS = {
    "serve": ("serve FILM --port 0", "uvicorn", '".[serve]"'),
    "onnx": ("export TINY --out out --format onnx", "onnx", '".[onnx]"'),
    "ray": ("predict FILM rows.csv --out a.jsonl --engine ray", "ray", '".[ray]"'),
    "tensorboard": (TRAIN + "out --tensorboard", "tensorboard", '".[tensorboard]"'),
}  # fmt: skip


@pytest.mark.parametrize("kind", EXTRAS)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(refused, monkeypatch, kind):
    command, module, words = EXTRAS[kind]
    import importlib.util

    real = importlib.util.find_spec
    hidden = {module, "onnx", "onnxscript"} if module == "onnx" else {module}

    def find_spec(name, package=None):
        return None if name.split(".")[0] in hidden else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    for name in [*sys.modules]:
        if name.split(".")[0] in hidden:
            monkeypatch.delitem(sys.modules, name)
    for name in hidden:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("filbert.cli.verbs.serve",):
        if name in sys.modules:
            monkeypatch.setattr(sys.modules[name], "find_spec", find_spec)
    refused(command, "pip install", words, files=FILES, stdin="good\n")


HUB = {
    "a Hub that is switched off": ("info me/mine", "me/mine", "HF_HUB_OFFLINE"),
    "a Hub to push to that is switched off": ("push TINY me/mine", "HF_HUB_OFFLINE"),
    "a teacher on a Hub that is switched off": (
        "distill --teacher me/mine --train rows.csv --out out", "me/mine",
    ),
    "a model to serve on a Hub that is switched off": ("serve me/mine --port 0", "me/mine"),
    "a tokenizer on a Hub that is switched off": (
        "corpus text.txt --tokenizer me/mine --out out", "me/mine",
    ),
    "a built-in name that is misspelt": ("fill filbert-mni 'a [MASK]'", "filbert-mini"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HUB)
def test_a_model_that_cannot_be_fetched_is_named(refused, kind):
    command, *words = HUB[kind]
    refused(command, *words, files=FILES)


@pytest.mark.parametrize("command", ["info me/mine", "predict me/mine"])
def test_a_hub_that_does_not_answer_is_a_sentence(refused, monkeypatch, tmp_path, command):
    from huggingface_hub import HfApi, constants

    def unreachable(*args, **kwargs):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(HfApi, "model_info", unreachable)
    refused(command, "me/mine", "Network is unreachable", "Check the network")


def test_a_processor_without_fast_bf16_is_told_and_not_refused(
    call, films, models, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("filbert.model.precision.bf16_gain", lambda: 0.1)
    done = call(
        "finetune", "--task", "classification", "--model", models["TINY"], "--train",
        films / "dev.csv", "--out", tmp_path / "out", "--steps", 1, "--precision", "auto",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "float32 (this CPU has no fast bf16)" in done.err
    # Who asks for it by name gets it, and advice.
    done = call("predict", models["FILM"], films / "dev.csv", "--precision", "bf16")
    assert done.status == 0
    assert "This CPU has no fast bf16" in caplog.text


def test_two_hundred_kinds_and_more():
    import runpy

    tables = [
        table
        for path in sorted(Path(__file__).parent.glob("test_*.py"))
        for name, table in runpy.run_path(str(path)).items()
        if name in ("KINDS", "EXTRAS", "HUB", "MACHINE")
    ]
    assert len({kind for table in tables for kind in table}) >= 250
