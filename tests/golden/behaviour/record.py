"""The behaviour of filbert on tiny inputs, as numbers: how it is made and kept.

    python -m tests.golden.behaviour.record --write [NAME ...]

A case is a function that gives JSON values and arrays by name. The record holds what it gave when
the record was written; tests/golden/test_behaviour.py runs it again and compares. Everything goes
through the command line, the public Python interface and files; internals.py has the exceptions.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from . import cases, internals, serving, training  # noqa: F401  (they fill the table)
from .place import CASES, Found, Place, read_json

HERE = Path(__file__).parent
VALUES, ARRAYS = HERE / "record.json", HERE / "record.safetensors"


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
