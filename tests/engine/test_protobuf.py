"""Protobuf fields: what is written is read again, and what is none is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...engine.protobuf import Field, encode_field, encode_varint, read_fields


def test_the_bytes_of_a_varint():
    assert [encode_varint(n) for n in (0, 127, 300)] == [b"\x00", b"\x7f", b"\xac\x02"]


def test_fields_of_every_kind_have_their_places():
    message = b"\x08\xac\x02" + encode_field(2, b"text") + b"\x1d1234" + b"\x2112345678"
    assert list(read_fields(message)) == [
        Field(1, 300, 0, 3),
        Field(2, memoryview(b"text"), 3, 9),
        Field(3, memoryview(b"1234"), 9, 14),
        Field(4, memoryview(b"12345678"), 14, 23),
    ]


@given(st.lists(st.tuples(st.integers(1, 1 << 20), st.binary(max_size=300))))
def test_what_is_written_is_read_again(fields):
    message = b"".join(encode_field(number, content) for number, content in fields)
    assert [(found.number, bytes(found.value)) for found in read_fields(message)] == fields
    assert b"".join(message[found.start : found.end] for found in read_fields(message)) == message


@pytest.mark.parametrize("message", [b"\x0a\x05ab", b"\x0b", b"\x08", b"\xff" * 11, b"\x09123"])
def test_what_is_no_message_is_refused(message):
    with pytest.raises((IndexError, ValueError)):
        list(read_fields(message))
