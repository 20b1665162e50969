"""Protocol buffers on the wire, against the documentation's examples and by round trips."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.protobuf import (
    Damaged,
    as_number,
    encode_field,
    encode_varint,
    fields,
    varint,
)


def test_the_examples_of_the_documentation_come_out():
    assert encode_field(1, 150) == b"\x08\x96\x01"
    assert encode_field(2, "testing") == b"\x12\x07testing"
    assert encode_field(3, encode_field(1, 150)) == b"\x1a\x03\x08\x96\x01"
    assert encode_varint(-2) == b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 2**29 - 1),
            st.integers(0, 2**64 - 1) | st.binary(max_size=200),
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_what_was_written_is_read_again(message, as_view):
    data = b"".join(encode_field(number, value) for number, value in message)
    assert list(fields(memoryview(data) if as_view else data)) == message


@settings(max_examples=50, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_a_negative_number_comes_back(number):
    value, end = varint(encode_varint(number) + b"more", 0)
    assert as_number(value) == number
    assert end == len(encode_varint(number))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x08", "ends at byte 1, in the middle of a number"),
        (b"\x08\x80", "in the middle of a number"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "does not end"),
        (b"\x08" + b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (b"\x0a\x05abc", "ends at byte 5, in the middle of a field"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "in the middle of a field"),
        (b"\x09abc", "in the middle of a field"),
        (b"\x0dabc", "in the middle of a field"),
        (b"\x0b", "unknown field kind 3"),
        (b"\x0f\x00", "unknown field kind 7"),
        (b"\x00\x00", "field number 0"),
        (encode_varint(2**29 << 3) + b"\x00", "field number 536870912"),
    ],
)
def test_a_damaged_message_is_refused(data, says):
    with pytest.raises(Damaged, match=says):
        list(fields(data))
