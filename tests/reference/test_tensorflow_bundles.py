"""Checkpoints of ours against TensorFlow itself, which runs in an interpreter of its own.

Set FILBERT_TENSORFLOW_PYTHON to a Python that can import tensorflow; without it the tests here are
skipped, and tests/checkpoints/test_tensor_bundle.py keeps to files that TensorFlow wrote before.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from filbert.checkpoints.tensor_bundle import data_file, index_file, write_bundle

JUDGE = """
import json, sys
import numpy as np
import tensorflow as tf

ours, theirs, values = sys.argv[1:]
reader = tf.train.load_checkpoint(ours)
old = tf.compat.v1.train.NewCheckpointReader(ours)
arrays = dict(np.load(values))
found = {}
for name, shape in reader.get_variable_to_shape_map().items():
    found[name] = [shape, reader.get_variable_to_dtype_map()[name].name]
    for value in (reader.get_tensor(name), old.get_tensor(name)):
        assert np.array_equal(value, arrays[name]), name
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    names = sorted(arrays)
    session.run(tf.raw_ops.SaveV2(
        prefix=theirs, tensor_names=names, shape_and_slices=[""] * len(names),
        tensors=[arrays[name] for name in names]))
print(json.dumps(found))
"""


def tensorflow_python() -> str:
    named = os.environ.get("FILBERT_TENSORFLOW_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("no TensorFlow: FILBERT_TENSORFLOW_PYTHON names no interpreter that has it")
    return sys.executable


def test_tensorflow_reads_what_we_write_and_writes_the_same_bytes(tmp_path: Path):
    python = tensorflow_python()
    draw = np.random.default_rng(0)
    dtypes = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
    tensors = {
        f"model/{dtype}/{len(shape)}": (100 * draw.random(shape)).astype(dtype)
        for dtype in dtypes.split()
        for shape in [(), (7,), (3, 0), (2, 3, 5)]
    }
    tensors |= {f"{i:03}/{'x' * (300 + i)}": np.float32(i) for i in range(100)}
    tensors |= {"y" * 3000: np.ones(3, np.float32), "größe/\U0001f600": np.zeros(2, np.int64)}
    tensors["large"] = draw.integers(0, 255, 3_000_001, dtype=np.uint8)
    write_bundle(tmp_path / "ours.ckpt", tensors)
    np.savez(tmp_path / "values.npz", **{name: tensors[name] for name in tensors})
    places = [tmp_path / name for name in ("ours.ckpt", "theirs.ckpt", "values.npz")]
    done = subprocess.run(
        [python, "-c", JUDGE, *map(str, places)],
        capture_output=True,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        name: [list(np.shape(value)), np.asarray(value).dtype.name]
        for name, value in tensors.items()
    }
    for file in (index_file, data_file):
        assert file(places[0]).read_bytes() == file(places[1]).read_bytes()
