"""Write the checkpoints in tests/golden/tensorflow, by TensorFlow itself.

Run with an interpreter that has TensorFlow: python make_tensorflow_bundles.py [FOLDER]. Beside the
checkpoints it writes expected.json: what TensorFlow reads from them, and the SHA-256 of a larger
one with several blocks of index that is not kept, since a test makes its tensors again.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

NUM_LARGE = 6000  # as in tests/checkpoints/test_tensor_bundle.py


def draw(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    values = np.random.RandomState(seed).randint(0, 200, size=shape)
    return (np.asarray(values) % 2 if dtype == "bool" else values - 100).astype(dtype)


def save(prefix: Path, make, *, sharded: bool = False) -> None:
    """Variables as `make` makes them, written by a Saver of TensorFlow 1."""
    config = tf.compat.v1.ConfigProto(device_count={"CPU": 3})
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        make()
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(sharded=sharded)
        saver.save(session, str(prefix), write_meta_graph=False, write_state=False)


def variable(name: str, value: np.ndarray, dtype: str | None = None) -> None:
    tf.compat.v1.get_variable(
        name, initializer=tf.constant(value, dtype=dtype), use_resource=False, trainable=False
    )


def small() -> None:
    """More names than a restart interval has, all dtypes of NumPy, scalars, an empty tensor."""
    for i in range(120):
        variable(f"bert/encoder/layer_{i}/dense/kernel", draw((1 + i % 3, 2), "float32", i))
    shapes = [(), (3,), (2, 3), (2, 0, 3), (1, 2, 1, 2)]
    dtypes = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
    for dtype in [*dtypes.split(), "complex64", "complex128"]:
        for shape in shapes:
            variable(f"{dtype}/{len(shape)}", draw(shape, dtype, len(shape)))
    variable("global_step", np.int64(10**12))
    variable("long", draw((5000,), "int16", 7))


def sharded() -> None:
    """Three data files, bfloat16 among the tensors."""
    for i in range(9):
        with tf.device(f"/cpu:{i % 3}"):
            variable(f"layer_{i}/kernel", draw((2, 4), "float32", i))
            variable(f"layer_{i}/bfloat16", draw((3, 2), "float32", i), "bfloat16")


def expected(prefix: Path) -> dict[str, list[object]]:
    """Name to shape, dtype and SHA-256 of the content as TensorFlow reads it."""
    reader = tf.train.load_checkpoint(str(prefix))
    dtypes = reader.get_variable_to_dtype_map()
    found = {}
    for name, shape in sorted(reader.get_variable_to_shape_map().items()):
        value = reader.get_tensor(name)
        if dtypes[name] == tf.bfloat16:
            value = value.astype(np.float32)
        data = value if isinstance(value, bytes) else value.tobytes()
        found[name] = [shape, dtypes[name].name, hashlib.sha256(data).hexdigest()]
    return found


def save_op(prefix: Path, names: list[str], slices: list[str], values: list[np.ndarray]) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(
            tf.raw_ops.SaveV2(
                prefix=str(prefix), tensor_names=names, shape_and_slices=slices, tensors=values
            )
        )


def large(prefix: Path) -> None:
    names = sorted(f"bert/layer_{i}/output/{'x' * (i % 40)}" for i in range(NUM_LARGE))
    values = [np.arange(i % 5, dtype=np.float32) + i for i in range(NUM_LARGE)]
    save_op(prefix, names, [""] * NUM_LARGE, values)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "tensorflow")
    folder.mkdir(exist_ok=True, parents=True)
    save(folder / "small.ckpt", small)
    save(folder / "sharded.ckpt", sharded, sharded=True)
    facts = {name: expected(folder / f"{name}.ckpt") for name in ("small", "sharded")}
    with tempfile.TemporaryDirectory() as temporary:
        prefix = Path(temporary) / "large.ckpt"
        large(prefix)
        digests = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(Path(temporary).iterdir())
        }
        print("large index:", prefix.with_name("large.ckpt.index").stat().st_size)
    text = json.dumps({"tensorflow": tf.__version__, "large": digests, **facts}, indent=0)
    (folder / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
