"""Reads and writes protobuf messages field by field, as far as ONNX and SentencePiece need it.

Does not know the definition of any message: fields have numbers, not names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _EIGHT_BYTES, _SIZED, _FOUR_BYTES = 0, 1, 2, 5
_FIXED_SIZES = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}


class Field(NamedTuple):
    """One field of a message, which takes its bytes start:end with the tag."""

    number: int
    value: memoryview | int  # an int for varints, else the content: text, a message, a number
    start: int
    end: int


def read_fields(message: bytes | memoryview) -> Iterator[Field]:
    """Yield the fields of a message in order; IndexError or ValueError if it is none."""
    view, place = memoryview(message), 0
    while place < len(view):
        start = place
        tag, place = _read_varint(view, place)
        if tag >> 32:  # readers that keep 32 bits would see another field than we do
            raise ValueError("tag too large")
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, place = _read_varint(view, place)
            yield Field(number, value, start, place)
            continue
        if kind == _SIZED:
            size, place = _read_varint(view, place)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise ValueError(f"unknown kind of field {kind}")
        if place + size > len(view):
            raise ValueError("field beyond the end")
        yield Field(number, view[place : place + size], start, place + size)
        place += size


def encode_field(number: int, content: bytes) -> bytes:
    """Return a field that holds text or a message."""
    return encode_varint(number << 3 | _SIZED) + encode_varint(len(content)) + content


def encode_varint(value: int) -> bytes:
    """Return a number as seven bits a byte, the lowest first; all bytes but the last have bit 8.

    For instance 300 = 0b10_0101100 becomes 0b1_0101100, 0b0_0000010: AC 02.
    """
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _read_varint(view: memoryview, place: int) -> tuple[int, int]:
    """Return the number at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = view[place]
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("number too long")
