"""Where cases work: a folder with the inputs, and the table into which they put themselves."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from safetensors.numpy import load_file

from . import inputs, internals
from .commands import COMMANDS

Found = dict[str, Any]


class Place:
    """A folder in which cases work, with the inputs; what several cases need is made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = folder / "rows"
        self.text = folder / "text"
        inputs.write_rows(self.rows)
        inputs.write_corpora(self.text)
        inputs.write_vocabulary(folder / "vocab")

    def call(self, name: str, *, stdin: str = "", status: int = 0, **values: object) -> str:
        """What a command of the table prints; `values` fill its braces."""
        words = [word.format(place=self.folder, **values) for word in COMMANDS[name].split()]
        out = io.TextIOWrapper(io.BytesIO(), "utf-8")
        said = io.StringIO()
        kept = sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
                found = internals.command_line(words)
        finally:
            sys.stdin = kept
        out.flush()
        printed = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
        assert found == status, f"{' '.join(words)}: {found}\n{said.getvalue()}\n{printed}"
        return printed.replace(str(self.folder), "PLACE")

    @cached_property
    def vocabularies(self) -> dict[str, Path]:
        """A folder with a learnt tokenizer of each kind."""
        found = {}
        for kind, size in (("wordpiece", 90), ("bytebpe", 300), ("unigram", 60)):
            found[kind] = self.folder / f"vocab-{kind}"
            self.call("vocab", kind=kind, size=size)
        return found

    def model(self, family: str = "bert", head: str = "bare", kind: str = "") -> Path:
        """A folder with a model and its tokenizer. `kind`: binary, multilabel or regression."""
        folder = self.folder / "models" / f"{family}-{head}{kind}"
        if folder.exists():
            return folder
        labels, problem = (), ""
        if kind:
            count, problem = {
                "binary": (2, ""),
                "multilabel": (3, "multi_label_classification"),
                "regression": (1, "regression"),
            }[kind]
            labels = ("value",) if count == 1 else inputs.LABELS[:count]
        if family in ("bert", "distilbert", "electra"):
            inputs.write_vocabulary(folder)
            size = len(inputs.VOCABULARY)
        else:
            unigram = family in ("albert", "camembert")
            source = self.vocabularies["unigram" if unigram else "bytebpe"]
            folder.mkdir(parents=True)
            for file in source.iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
            size = 60 if unigram else 300
        inputs.write_model(folder, family, head, size, labels, problem)
        return folder

    def google(self, family: str, head: str) -> Path:
        """The same model as a TensorFlow checkpoint."""
        folder = self.folder / "google" / f"{family}-{head}"
        if not folder.exists():
            self.call("convert", source=self.model(family, head), out=folder, to="google")
        return folder

    def sentence_model(self) -> Path:
        """A model folder as sentence-transformers writes it: first token, unit length."""
        folder = self.folder / "models" / "sentences"
        if not folder.exists():
            inputs.write_vocabulary(folder)
            inputs.write_model(folder, "bert", "bare", len(inputs.VOCABULARY))
            kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
            modules = [
                {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{k}"}
                for i, (k, p) in enumerate(kinds)
            ]
            (folder / "modules.json").write_text(json.dumps(modules))
            (folder / "1_Pooling").mkdir()
            pooling = {"word_embedding_dimension": inputs.HIDDEN, "pooling_mode_cls_token": True}
            (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        return folder

    def corpus(self, part: str) -> Path:
        """Token shards of the text."""
        folder = self.folder / "shards" / part
        if not folder.exists():
            self.call("corpus", part=part, out=folder)
        return folder

    @contextlib.contextmanager
    def server(self, models: dict[str, Path]) -> Iterator[httpx.Client]:
        """`filbert serve` in a process of its own, and a client of it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        named = [f"{name}={folder}" for name, folder in models.items()]
        words = [word.format(port=port) for word in COMMANDS["serve"].split()]
        command = [sys.executable, "-m", "filbert", *words, *named]
        with (self.folder / "serve.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                for _ in range(600):
                    assert process.poll() is None, (self.folder / "serve.log").read_text()
                    with contextlib.suppress(httpx.TransportError):
                        if client.get("/health").status_code == 200:
                            break
                    time.sleep(0.1)
                yield client
        finally:
            process.terminate()
            process.wait(30)

    def run(self, rows: str) -> Path:
        """The folder of a finished fine-tuning run on a set of rows."""
        out, task = self.folder / "runs" / rows, inputs.ROWS[rows]
        if not out.exists():
            command = "finetune span_qa" if task == "span_qa" else "finetune"
            self.call(command, task=task, rows=rows, model=self.model(), out=out)
        return out


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def tensors_sha(path: Path) -> str:
    """Of names, types, shapes and values; not of the order or of what else a file notes."""
    whole = hashlib.sha256()
    for name, value in sorted(load_file(path).items()):
        whole.update(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes())
    return whole.hexdigest()[:16]


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


CASES: dict[str, Callable[[Place], Found]] = {}


def case(name: str, /, **settings: Any) -> Callable[[Any], Any]:
    """Put a function into the table, with some of its arguments."""

    def put(function: Any) -> Any:
        assert name not in CASES
        CASES[name] = lambda place: function(place, **settings)
        return function

    return put
