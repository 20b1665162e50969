"""The behaviour of filbert on tiny inputs, as numbers: how it is made and kept.

    python -m tests.golden.behaviour.record --write [NAME ...]

A case is a function that gives JSON values and arrays by name. The record holds what it gave when
the record was written; tests/golden/test_behaviour.py runs it again and compares. Everything goes
through the command line, the public Python interface and files; internals.py has the exceptions.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from . import inputs, internals
from .commands import COMMANDS

HERE = Path(__file__).parent
VALUES, ARRAYS = HERE / "record.json", HERE / "record.safetensors"

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


def case(name: str, **settings: Any) -> Callable[[Any], Any]:
    """Put a function into the table, with some of its arguments."""

    def put(function: Any) -> Any:
        assert name not in CASES
        CASES[name] = lambda place: function(place, **settings)
        return function

    return put


# Text


@case("tokenize")
def tokenize(place: Place) -> Found:
    found: Found = {}
    for name, folder in {"uncased": place.folder / "vocab", **place.vocabularies}.items():
        stdin = "\n".join(inputs.TEXTS) + "\n"
        found[name] = lines(place.call("tokenize", model=folder, stdin=stdin))
    found["cut"] = lines(place.call("tokenize cut", model=place.folder / "vocab", stdin=stdin))
    return found


@case("vocab")
def vocab(place: Place) -> Found:
    return {
        kind: {path.name: sha(path.read_bytes()) for path in sorted(folder.iterdir())}
        for kind, folder in place.vocabularies.items()
    }


# Models


def _items(head: str) -> list[Any]:
    return {
        "choices": [
            {"context": "the film was", "choices": ["good", "very bad", "old , he see"]},
            {"context": inputs.TEXTS[2], "choices": ["a play", "not", ""]},
        ],
        "spans": [
            {"question": "what was good ?", "context": "he and she see the long film . " * 3},
            {"question": "what ?", "context": "the very long film was great , not bad ! " * 8},
        ],
    }.get(head, [*inputs.TEXTS, inputs.PAIRS[1]] if head == "sequence" else inputs.TEXTS)


def family_case(place: Place, family: str) -> Found:
    """Every head of a family: loaded from Hugging Face's layout, logits, answers and vectors."""
    import filbert

    found: Found = {}
    for head in inputs.HEADS:
        folder = place.model(family, head)
        model = filbert.load(folder)
        if head == "bare":
            found["vectors"] = model.embed([*inputs.TEXTS, inputs.PAIRS[0]])
        else:
            rows = internals.logits(folder, _items(head))
            found[f"{head} logits"] = np.concatenate([np.atleast_2d(row) for row in rows])
        if model.task is not None:
            found[head] = model.predict(_items(head))
    return found


for _family in inputs.PREFIXES:
    case(f"family {_family}", family=_family)(family_case)


# Fine-tuning


def finetune_case(place: Place, rows: str) -> Found:
    run = place.run(rows)
    facts = read_json(run / "run.json")
    log = lines((run / "metrics.jsonl").read_text())
    model = run / "model"
    dev = place.rows / f"{rows}.dev.jsonl"
    return {
        "metrics": facts["metrics"],
        "steps": [
            {k: line[k] for k in ("step", "loss", "lr", "grad_norm")}
            for line in log
            if "lr" in line
        ],
        "run.json": sorted(facts),
        "filbert.json": sorted(read_json(model / "filbert.json")),
        "files": sorted(path.name for path in model.iterdir()),
        "evaluate": json.loads(place.call("evaluate", model=model, data=dev)),
        "predict": lines(place.call("predict", model=model, data=dev)),
    }


for _rows in inputs.ROWS:
    case(f"finetune {_rows}", rows=_rows)(finetune_case)


# Conversion


@case("convert google")
def convert_google(place: Place) -> Found:
    import filbert

    found: Found = {}
    for family, head in (("bert", "pretraining"), ("bert", "bare"), ("albert", "masked")):
        source, there = place.model(family, head), place.folder / "google" / f"{family}-{head}"
        back = place.folder / "back" / f"{family}-{head}"
        place.call("convert", source=source, out=there, to="google")
        place.call("convert", source=there, out=back, to="huggingface")
        found[f"{family} {head}"] = {p.name: sha(p.read_bytes()) for p in sorted(there.iterdir())}
        found[f"{family} {head} back"] = tensors_sha(back / "model.safetensors")
        found[f"{family} {head} config"] = read_json(back / "config.json")
        found[f"{family} {head} vectors"] = filbert.load(there).embed(inputs.TEXTS)
    return found


# The record


def split(found: Found) -> tuple[Found, dict[str, np.ndarray]]:
    """JSON values and arrays of a case."""
    values = {k: v for k, v in found.items() if not isinstance(v, np.ndarray)}
    arrays = {k: np.ascontiguousarray(v) for k, v in found.items() if isinstance(v, np.ndarray)}
    return json.loads(json.dumps(values)), arrays


def read() -> tuple[dict[str, Found], dict[str, np.ndarray]]:
    """The record: values by case, arrays by "case/name"."""
    return (read_json(VALUES), load_file(ARRAYS)) if VALUES.exists() else ({}, {})


def write(names: list[str]) -> None:
    """Make some cases again, or all; cases that are gone are dropped."""
    values, arrays = read()
    chosen = names or list(CASES)
    arrays = {k: v for k, v in arrays.items() if k.partition("/")[0] not in chosen}
    with tempfile.TemporaryDirectory() as folder, internals.cheap():
        place = Place(Path(folder))
        for name in chosen:
            print(name, file=sys.stderr)
            values[name], found = split(CASES[name](place))
            arrays |= {f"{name}/{key}": value for key, value in found.items()}
    kept = {name: values[name] for name in CASES if name in values}
    text = ",\n".join(f"{json.dumps(n)}: {json.dumps(v)}" for n, v in kept.items())
    VALUES.write_text("{\n" + text + "\n}\n", "utf-8")
    save_file({k: v for k, v in sorted(arrays.items()) if k.partition("/")[0] in kept}, ARRAYS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", required=True)
    parser.add_argument("names", nargs="*", help="cases; all when not given")
    write(parser.parse_args().names)
