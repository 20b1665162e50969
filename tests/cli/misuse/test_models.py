"""Folders that are no model, or no longer one, are named, and so is what is wrong in them."""

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest


def edited(name: str, **changes: object) -> Callable[[Path], None]:
    """Change keys of a JSON file; None takes one away."""

    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text()) | changes
        left = {key: value for key, value in content.items() if value is not None}
        (folder / name).write_text(json.dumps(left))

    return change


def written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content)


def without(*names: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink(missing_ok=True)

    return change


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def flipped(name: str, at: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[at] ^= 0x10
        (folder / name).write_bytes(content)

    return change


def pickled(folder: Path) -> None:
    """Weights that would run a program when they are read."""

    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    (folder / "model.safetensors").unlink()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil()))
    (folder / "pytorch_model.bin").write_bytes(stream.getvalue())


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


WEIGHTS, VOCAB, TOKENIZER = "model.safetensors", "vocab.txt", "tokenizer.json"
PREDICT = "predict model"
# The model that is spoilt, how, the command, and words of the message.
SPOILT = {
    "an empty folder": ("PLAIN", emptied, PREDICT, "model", "config.json"),
    "a folder without weights": ("PLAIN", without(WEIGHTS), PREDICT, "model.safetensors"),
    "a folder without a config": ("PLAIN", without("config.json"), PREDICT, "config.json"),
    "a folder without a tokenizer": (
        "PLAIN", without(VOCAB, TOKENIZER), PREDICT, "tokenizer.json", "vocab.txt",
    ),
    "weights that are cut short": ("PLAIN", cut(WEIGHTS, 5_000), PREDICT, WEIGHTS),
    "weights of no bytes": ("PLAIN", cut(WEIGHTS, 0), PREDICT, WEIGHTS),
    "weights with a damaged header": ("PLAIN", flipped(WEIGHTS, 9), PREDICT, WEIGHTS),
    "weights with a flipped bit": ("FILM", flipped(WEIGHTS, -100), PREDICT, WEIGHTS, "sha256"),
    "a pointer of Git LFS": (
        "PLAIN", written(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        PREDICT, WEIGHTS, "LFS",
    ),
    "weights that are a program": ("TINY", pickled, "embed model --out v.npy", "pytorch_model.bin"),
    "a config that is torn": ("PLAIN", cut("config.json", 40), PREDICT, "config.json"),
    "a config of no bytes": ("PLAIN", cut("config.json", 0), PREDICT, "config.json"),
    "a config that is a list": ("PLAIN", written("config.json", b"[]"), PREDICT, "config.json"),
    "a config in Latin-1": (
        "PLAIN", written("config.json", b'{"a": "\xe9"}'), PREDICT, "config.json",
    ),
    "a config of another width": (
        "PLAIN", edited("config.json", intermediate_size=65), PREDICT, "intermediate", "65",
    ),
    "a config of more layers": (
        "PLAIN", edited("config.json", num_hidden_layers=9), PREDICT, "layer",
    ),
    "a config of words for numbers": (
        "PLAIN", edited("config.json", hidden_size="wide"), PREDICT, "hidden_size", "wide",
    ),
    "a config of negative numbers": (
        "PLAIN", edited("config.json", num_attention_heads=-4), PREDICT,
        "num_attention_heads", "-4",
    ),
    "heads that do not divide the width": (
        "PLAIN", edited("config.json", num_attention_heads=5), PREDICT, "5", "32",
    ),
    "a config without a family": (
        "PLAIN", edited("config.json", model_type=None, architectures=None), PREDICT,
        "architectures",
    ),
    "a decoder": (
        "TINY", edited("config.json", model_type="gpt2", architectures=["GPT2LMHeadModel"]),
        "embed model --out v.npy", "gpt2",
    ),
    "an activation that there is not": (
        "PLAIN", edited("config.json", hidden_act="swiglu"), PREDICT, "swiglu", "gelu",
    ),
    "labels that do not fit the head": (
        "PLAIN", edited("config.json", id2label={"0": "a", "1": "b", "2": "c"}), PREDICT, "3", "2",
    ),
    "two labels of one name": (
        "PLAIN", edited("config.json", id2label={"0": "a", "1": "a"}), PREDICT, "id2label",
    ),
    "labels with a gap": (
        "PLAIN", edited("config.json", id2label={"0": "a", "2": "b"}), PREDICT, "id2label",
    ),
    "a tokenizer that is torn": ("PLAIN", cut(TOKENIZER, 99), PREDICT, TOKENIZER),
    "a tokenizer of no bytes": ("PLAIN", cut(TOKENIZER, 0), PREDICT, TOKENIZER),
    "a tokenizer of another program": (
        "PLAIN", written(TOKENIZER, b'{"model": {"type": "Mystery"}}'), PREDICT, TOKENIZER,
    ),
    "a tokenizer with more entries than the model": (
        "PLAIN", lambda folder: (
            without(TOKENIZER)(folder),
            written(VOCAB, (folder / VOCAB).read_bytes() + b"new\nnewer\n")(folder),
        ), PREDICT, "35", "34",
    ),
    "a vocabulary without its special tokens": (
        "TINY", lambda folder: (without(TOKENIZER)(folder), written(VOCAB, b"the\nfilm\n")(folder)),
        "tokenize model", "[UNK]",
    ),
    "a vocabulary in Latin-1": (
        "TINY", lambda folder: (without(TOKENIZER)(folder), written(VOCAB, b"caf\xe9\n")(folder)),
        "tokenize model", "vocab.txt", "UTF-8",
    ),
    "a story that is torn": ("PLAIN", cut("filbert.json", 40), PREDICT, "filbert.json"),
    "a task that there is not": (
        "PLAIN", edited("filbert.json", task={"name": "poetry"}), PREDICT, "poetry",
    ),
    "a half-written folder": ("PLAIN", without(WEIGHTS, TOKENIZER, VOCAB), "info model", "model"),
    "a story without options": (
        "PLAIN", edited("filbert.json", options=None), "replay model", "options",
    ),
    "a model that nobody trained": ("TINY", without(), "replay model", "filbert.json"),
    "a folder in the way of another": (
        "TINY", without(), "convert model model --to huggingface", "source",
    ),
    "a damaged model to push": (
        "TINY", without(WEIGHTS), "push model me/mine --dry-run", "safetensors",
    ),
    "a damaged model to serve": ("PLAIN", cut(WEIGHTS, 5_000), "serve model --port 0", WEIGHTS),
}  # fmt: skip
MODELS = {
    # The wrong place
    "no such folder": ("predict ./nowhere", "./nowhere", "no such folder"),
    "no such checkpoint": ("info nowhere/bert_model.ckpt", "bert_model.ckpt"),
    "a file in place of a folder": ("predict rows.csv", "rows.csv", "folder"),
    "a weight file in place of its folder": ("embed w/model.safetensors --out v.npy", "folder"),
    "an archive that is none": ("info model.zip", "model.zip"),
    "an empty name": ("info ''", "folder"),
    "a name that is too long": ("info " + "x" * 300, "xxx"),
    "a name that no Hub would have": ("info 'a b/c?d'", "a b/c?d"),
    "a revision of a built-in model": ("info filbert-mini@v2", "filbert-mini"),
    "a revision that cannot be": ("info me/mine@../x", "../x"),
    "a built-in name that is misspelt": ("info filbert-mni", "filbert-mni"),
    "a repository without an owner": ("push TINY mine --dry-run", "owner"),
    "a half of a TensorFlow checkpoint": ("info half/bert_model.ckpt.data-00000-of-00001", "index"),
    # The wrong kind
    "a bare encoder to predict": ("predict TINY", "no task head", "finetune"),
    "a bare encoder to evaluate": ("evaluate TINY --data rows.csv", "no task head"),
    "a bare encoder to fill": ("fill TINY 'a [MASK]'", "masked"),
    "a classifier to fill": ("fill FILM 'a [MASK]'", "masked"),
    "a classifier to score texts": ("score FILM rows.csv", "masked"),
    "a classifier of texts to explain a choice by": (
        "explain FILM 'the film' --target great", "great", "pos",
    ),
    "a masked model to serve beside one that is not there": (
        "serve MASKED ./nowhere --port 0", "./nowhere",
    ),
    "a teacher without a task": ("distill --teacher TINY --train rows.csv --out out", "task"),
    "an export of a format that does not go": ("predict FILM --backend onnxruntime", "export"),
    # Beyond the model
    "a length beyond its positions": ("predict FILM --max-length 999", "999", "64"),
    "a layer that it has not": ("embed TINY --out v.npy --layers 97", "97", "-3..2"),
    "a layer to inspect that it has not": ("inspect TINY hello --text --layer 97", "97"),
    "a head to inspect that it has not": ("inspect TINY hello --text --layer 0 --head 97", "97"),
    "layers to keep that it has not": ("shrink TINY --out out --keep-layers 5", "5", "2"),
    "layers to freeze that it has not": (
        "finetune --task classification --model TINY --train rows.csv --out out --freeze 0-97",
        "97",
    ),
    "layers to draw anew that it has not": (
        "finetune --task classification --model TINY --train rows.csv --out out --reinit-layers 97",
        "97",
    ),
    "a metric that the task has not": (
        "finetune --task classification --model TINY --train rows.csv --dev rows.csv --out out "
        "--metric f2", "f2", "f1",
    ),
    "a positive class that there is not": (
        "finetune --task classification --model TINY --train rows.csv --out out --positive zebra",
        "zebra",
    ),
    "weights of classes that do not fit": (
        "finetune --task classification --model TINY --train rows.csv --out out "
        "--class-weights 1,2,3", "3", "2",
    ),
    "a precision of answers": ("predict FILM --precision fp8", "fp8", "bf16"),
    "a device": ("predict FILM --device gpu", "gpu", "cpu"),
    "a batch of no tokens": ("predict FILM --max-tokens 0", "max_tokens", "0"),
    "more candidates than words": ("fill MASKED 'a [MASK]' --top 99", "99", "34"),
}  # fmt: skip
FILES = {
    "films.csv": b"text,label\ngood,pos\nbad,neg\n",
    "rows.csv": b"text,label\ngood,a\nbad,b\nfilm,a\nplay,b\n",
    "w/model.safetensors": b"x",
    "model.zip": b"x",
    "half/bert_model.ckpt.data-00000-of-00001": b"x",
}
KINDS = {**SPOILT, **MODELS}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("kind", SPOILT)
def test_a_spoilt_model_is_named_by_the_file_that_is_wrong(refused, models, tmp_path, kind):
    name, spoil, command, *words = SPOILT[kind]
    shutil.copytree(models[name], tmp_path / "model")
    spoil(tmp_path / "model")
    refused(command, *words, stdin="good\n")


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_cannot_do_this_is_refused(refused, kind):
    command, *words = MODELS[kind]
    refused(command, *words, files=FILES, stdin="good\n")
