"""TensorFlow's checkpoints: files that TensorFlow wrote, byte-equal files of ours, and damage."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from filbert.errors import FormatError
from filbert.formats.bundle_entries import slice_key
from filbert.formats.tensor_bundle import TensorBundle, data_file, index_file, write_bundle

GOLDEN = Path(__file__).parents[1] / "golden" / "tensorflow"
EXPECTED: dict[str, dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text("utf-8"))
CHECKPOINTS = ("small", "sharded", "partitioned", "odd_names", "objects")
DTYPES = ["float16", "float32", "float64", "bool"]
DTYPES += [f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64)]


def content(bundle: TensorBundle, name: str) -> bytes:
    if bundle.dtypes[name] == "string":
        return bundle.read_bytes(name)
    return bundle.read(name).tobytes()


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_what_tensorflow_wrote_is_read_as_tensorflow_reads_it(checkpoint):
    bundle = TensorBundle.open(GOLDEN / f"{checkpoint}.ckpt")
    found = {
        name: [list(shape), str(bundle.dtypes[name]), sha256(content(bundle, name))]
        for name, shape in bundle.shapes.items()
    }
    assert found == EXPECTED[checkpoint]
    assert list(found) == sorted(found)
    for name, path in bundle.files.items():
        assert path.is_file()
        if bundle.dtypes[name] not in ("string", "bfloat16"):
            assert bundle.read(name).shape == bundle.shapes[name]
            assert bundle.read(name).dtype == bundle.dtypes[name]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_same_tensors_give_the_files_that_tensorflow_wrote_byte_for_byte(tmp_path):
    golden = GOLDEN / "small.ckpt"
    bundle = TensorBundle.open(golden)
    write_bundle(tmp_path / "x", {name: bundle.read(name) for name in reversed(bundle.shapes)})
    for file in (index_file, data_file):
        assert file(tmp_path / "x").read_bytes() == file(golden).read_bytes()


def test_an_index_of_several_blocks_is_the_one_that_tensorflow_writes(tmp_path):
    names = sorted(f"bert/layer_{i}/output/{'x' * (i % 40)}" for i in range(6000))
    tensors = {n: np.arange(i % 5, dtype=np.float32) + i for i, n in enumerate(names)}
    prefix = tmp_path / "large.ckpt"
    write_bundle(prefix, tensors)
    found = {p.name: sha256(p.read_bytes()) for p in (index_file(prefix), data_file(prefix))}
    assert found == EXPECTED["large"]
    assert index_file(prefix).stat().st_size > 262_144
    bundle = TensorBundle.open(prefix)
    assert list(bundle.shapes) == names
    assert all(np.array_equal(bundle.read(name), tensors[name]) for name in names[::500])


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1),
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=4, min_side=0))
        ),
        max_size=20,
    )
)
def test_what_was_written_is_read_again(tmp_path_factory, tensors):
    prefix = tmp_path_factory.mktemp("bundle") / "x.ckpt"
    write_bundle(prefix, tensors)
    bundle = TensorBundle.open(prefix)
    assert bundle.shapes == {name: array.shape for name, array in tensors.items()}
    for name, array in tensors.items():
        assert bundle.read(name).tobytes() == array.tobytes()
        assert bundle.read(name).dtype == array.dtype


def test_arrays_in_any_order_of_bytes_and_axes_can_be_written(tmp_path):
    array = np.arange(12, dtype=">f4").reshape(3, 4).T
    write_bundle(tmp_path / "x", {"a": array, "b": array[::2, ::-1]})
    bundle = TensorBundle.open(tmp_path / "x")
    assert np.array_equal(bundle.read("a"), array)
    assert np.array_equal(bundle.read("b"), array[::2, ::-1])
    assert bundle.dtypes["a"] == np.float32


def test_what_has_no_place_in_the_format_is_not_written(tmp_path):
    for name, array in [
        ("", np.zeros(1)),
        ("\0a", np.zeros(1)),
        ("a", np.array(["text"])),
        ("a", np.array([None])),
        ("a", np.zeros(1, "M8[s]")),
    ]:
        with pytest.raises(ValueError, match="cannot be written"):
            write_bundle(tmp_path / "x", {name: array})


def test_a_tensor_is_a_read_only_view_of_the_file(tmp_path):
    write_bundle(tmp_path / "x", {"a": np.arange(8.0), "b": np.zeros((2, 2), np.int8)})
    bundle = TensorBundle.open(tmp_path / "x")
    array = bundle.read("a")
    assert not array.flags.writeable
    assert not array.flags.owndata
    assert np.shares_memory(array, bundle.read("a"))


def test_what_does_not_lie_at_a_multiple_of_its_word_is_copied(tmp_path):
    write_bundle(tmp_path / "x", {"a": np.array(True), "b": np.arange(5.0)})
    array = TensorBundle.open(tmp_path / "x").read("b")
    assert array.flags.aligned
    assert np.array_equal(array, np.arange(5.0))


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (0, "80"),
        (63, "bf"),
        (64, "c040"),
        (8191, "dfff"),
        (8192, "e02000"),
        (2**20, "f0100000"),
        (2**62, "ffc04000000000000000"),
        (-1, "7f"),
    ],
)
def test_numbers_in_the_keys_of_parts_take_7_bits_a_byte(number, code):
    """By hand from the description in ordered_code.cc; the golden files hold 0 to 10000, and -1."""
    both = bytes.fromhex(code + "80")
    assert slice_key(b"a\0b\xff", ((number, 0),)) == b"\0a\0\xffb\xff\0\0\1\1\1" + both


def test_a_text_is_no_array_and_an_array_no_text():
    bundle = TensorBundle.open(GOLDEN / "objects.ckpt")
    with pytest.raises(FormatError, match="has dtype string, which holds no numbers"):
        bundle.read("_CHECKPOINTABLE_OBJECT_GRAPH")
    with pytest.raises(FormatError, match=r"is int64 \(\), not one string"):
        bundle.read_bytes("step/.ATTRIBUTES/VARIABLE_VALUE")


# Damage.


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN, tmp_path / "golden")
    return tmp_path / "golden"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_a_flipped_bit_in_any_tensor_is_found_by_its_crc(golden, checkpoint):
    bundle = TensorBundle.open(golden / f"{checkpoint}.ckpt")
    for path in sorted(set(bundle.files.values())):
        for at in range(0, path.stat().st_size, 1 + path.stat().st_size // 20):
            flip(path, at)
            damaged = TensorBundle.open(golden / f"{checkpoint}.ckpt")
            refused = []
            for name in damaged.shapes:
                try:
                    content(damaged, name)
                except FormatError as error:
                    refused.append(str(error))
            assert len(refused) == 1
            assert path.name in refused[0]
            flip(path, at)


def test_missing_files_are_named(golden):
    index_file(golden / "small.ckpt").unlink()
    with pytest.raises(FormatError, match=r"small\.ckpt\.index is missing"):
        TensorBundle.open(golden / "small.ckpt")
    data_file(golden / "sharded.ckpt", 1, 3).unlink()
    with pytest.raises(FormatError, match=r"sharded\.ckpt\.data-00001-of-00003 is missing beside"):
        TensorBundle.open(golden / "sharded.ckpt")
    data_file(golden / "sharded.ckpt", 0, 3).unlink()
    with pytest.raises(FormatError, match="00000-of-00003, .*00001-of-00003 are missing"):
        TensorBundle.open(golden / "sharded.ckpt")


def test_a_data_file_that_was_cut_off_is_refused_when_opened(golden):
    path = data_file(golden / "small.ckpt")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match=r"has 12,893 bytes, but uint8/4 ends at byte 12,894 by"):
        TensorBundle.open(golden / "small.ckpt")


@pytest.mark.parametrize("left", [0, 1])
def test_a_data_file_that_shrinks_behind_our_back_is_refused(golden, left):
    bundle = TensorBundle.open(golden / "small.ckpt")
    data_file(golden / "small.ckpt").write_bytes(bytes(left))
    with pytest.raises(FormatError, match="has changed since"):
        bundle.read("long")


def test_a_flipped_bit_in_the_length_of_a_text_or_in_its_crc_is_found(golden):
    name = "_CHECKPOINTABLE_OBJECT_GRAPH"
    path = data_file(golden / "objects.ckpt")
    text = TensorBundle.open(golden / "objects.ckpt").read_bytes(name)
    start = path.read_bytes().index(text)
    for at in range(start - 6, start + 1):  # two bytes of length, four of its CRC, the first letter
        flip(path, at)
        with pytest.raises(FormatError, match=f"{name} is damaged"):
            TensorBundle.open(golden / "objects.ckpt").read_bytes(name)
        flip(path, at)
