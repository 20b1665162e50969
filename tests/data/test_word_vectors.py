"""Files of word vectors: what is read, and every way in which they are broken."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from filbert.data.word_vectors import read_vectors
from filbert.errors import InputError

# As word2vec writes it: words, a space, the numbers as they lie in memory.
BINARY = b"".join(w + b" " + np.float32([0.1, -2, 3]).tobytes() + b"\n" for w in (b"sun", b"sea"))
GLOVE = "sun 0.5 -1 2e-1\nsea 1 2 3\n. . 4 5 6\nmoon 7 8 9\n"


@pytest.fixture
def file(tmp_path: Path):
    def write(content: str | bytes, name: str = "v.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_words_and_numbers_of_a_glove_file(file):
    vectors = read_vectors(file(GLOVE))
    assert vectors.words == ["sun", "sea", ". .", "moon"]
    assert vectors.table.dtype == np.float32
    np.testing.assert_array_equal(vectors.table[0], np.float32([0.5, -1, 0.2]))
    np.testing.assert_array_equal(vectors.table[2], [4, 5, 6])


def test_only_wanted_words_are_kept(file):
    vectors = read_vectors(file(GLOVE), {"moon", "sea", "stone"})
    assert vectors.words == ["sea", "moon"]
    np.testing.assert_array_equal(vectors.table, [[1, 2, 3], [7, 8, 9]])


def test_a_header_and_spaces_at_the_ends_are_word2vecs(file):
    vectors = read_vectors(file("2 3\r\nsun 1 2 3 \r\n7 4 5 6 \r\n"))
    assert vectors.words == ["sun", "7"]
    np.testing.assert_array_equal(vectors.table, [[1, 2, 3], [4, 5, 6]])


def test_of_a_word_that_stands_there_twice_the_first_vector_counts(file):
    vectors = read_vectors(file("sun 1 2\nsun 3 4\n"))
    assert vectors.words == ["sun"] and vectors.table.tolist() == [[1, 2]]


def test_memory_does_not_grow_with_what_is_not_wanted(file):
    numbers = " ".join(["0.25"] * 300)
    path = file("".join(f"w{i} {numbers}\n" for i in range(4_000)))
    tracemalloc.start()
    try:
        assert len(read_vectors(path, {"w7"}).words) == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Some of the megabyte pieces that a file is read in, as bytes and as text; the file has 6 MiB.
    assert peak < 2 * 2**20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GLOVE + "stone 1 2\n", "v.txt:5: 'stone' does not have 3 finite numbers"),
        (GLOVE + "stone 1 2 3 4\n", "v.txt:5: 'stone' does not have 3"),
        (GLOVE + " 1 2 3\n", "v.txt:5: '1' does not have 3"),
        (GLOVE + "stone 1 x 3\n", "v.txt:5: 'stone' does not have 3"),
        (GLOVE + "stone 1 nan 3\n", "v.txt:5: 'stone' does not have 3"),
        (GLOVE + "stone 1 1e39 3\n", "v.txt:5: 'stone' does not have 3"),
        ("1 3\nsun 1 2\n", "v.txt:2: 'sun' does not have 3"),
        ("1 0\nsun\n", "v.txt:1: 0 numbers a word; 1 to 4,096 are"),
        ("", "v.txt:1: 0 numbers a word"),
        (GLOVE.encode() + b"st\xff 1 2 3\n", "v.txt:5: the byte 0xFF is not UTF-8"),
        (b"2 3\n" + BINARY, "v.txt:2: .*A binary file has to be saved as text first"),
    ],
)
def test_a_broken_file_is_refused_in_a_sentence_with_its_line(file, content, message):
    with pytest.raises(InputError, match=message) as caught:
        read_vectors(file(content))
    assert "\n" not in str(caught.value)


def test_a_file_that_breaks_off_is_refused(file):
    whole = gzip.compress((GLOVE * 5000).encode())
    with pytest.raises(InputError, match="cut off or damaged"):
        read_vectors(file(whole[: len(whole) // 2], "v.txt.gz"))
