"""Checks a SentencePiece model before its C++ code, which trusts it, sees it.

First the protobuf and the table of characters in it, here; then, if somebody else made the model,
in a process of its own that may crash.
"""

from __future__ import annotations

import functools
import math
import struct
import subprocess
import sys

import numpy as np

from ..errors import BundleError
from ..protobuf import read_fields

_MAX_BYTES, _MAX_PIECES, _MAX_PIECE = 1 << 26, 1 << 20, 4096
_PIECE_KINDS = range(1, 7)  # normal, unknown, control, user-defined, unused, byte
_UNKNOWN = 2
# Loads a model from standard input and encodes with it.
_TRIAL = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, OSError, ValueError):
    pass
import sentencepiece
model = sentencepiece.SentencePieceProcessor()
model.LoadFromSerializedProto(sys.stdin.buffer.read())
size = model.vocab_size()
names = [model.id_to_piece(i) for i in range(size)]
texts = ["", "a", "The house \\u00e9\\u4e2d\\U0001f600 " * 50, "".join(names[:2000])]
for text in [*texts, *names[:2000]]:
    assert all(0 <= i < size for i in model.encode(text))
"""


def check_pieces_model(data: bytes, where: str) -> None:
    """Raise BundleError if the bytes are no SentencePiece model, or one that could do harm."""
    if problem := _find_problem(data):
        raise BundleError(f"{where} is not a SentencePiece model: {problem}; make it again")


@functools.lru_cache(maxsize=16)
def try_pieces_model(data: bytes, where: str) -> None:
    """Raise BundleError if a process that loads the model does not live to its end."""
    if not sys.executable:  # inside another program: nothing to start
        return
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _TRIAL], input=data, capture_output=True, timeout=120
        )
        code = tried.returncode
    except subprocess.TimeoutExpired:
        code = -1
    if code:
        raise BundleError(
            f"{where} is not a SentencePiece model that can be loaded: the trial of it ended with "
            f"{code}; make it again"
        )


def _find_problem(data: bytes) -> str | None:
    """Return what is wrong with a model, if anything is."""
    if not 0 < len(data) <= _MAX_BYTES:
        return f"it has {len(data):,} bytes"
    kinds: list[int] = []
    try:
        for number, value, *_ in read_fields(data):
            if number == 1:
                kinds.append(_read_piece(_as_bytes(value)))
            elif number in (3, 5):  # normalizer, denormalizer
                for inner, table, *_ in read_fields(_as_bytes(value)):
                    if inner == 2:
                        _check_characters(_as_bytes(table))
    except (IndexError, ValueError, struct.error) as error:
        return str(error) or "it is damaged"
    if not 0 < len(kinds) <= _MAX_PIECES:
        return f"it has {len(kinds):,} pieces"
    if kinds.count(_UNKNOWN) != 1:
        return "it has no single unknown piece"
    return None


def _read_piece(message: memoryview) -> int:
    """Check a piece: text, score, kind; return its kind."""
    text, kind = b"", 1
    for number, value, *_ in read_fields(message):
        if number == 1:
            text = bytes(_as_bytes(value))
        elif number == 2 and not math.isfinite(struct.unpack("<f", _as_bytes(value))[0]):
            raise ValueError("a score is not finite")
        elif number == 3 and isinstance(value, int):
            kind = value
    if not 0 < len(text) <= _MAX_PIECE or kind not in _PIECE_KINDS:
        raise ValueError("a piece has no text, too much of it, or an unknown kind")
    text.decode("utf-8")
    return kind


def _check_characters(table: memoryview) -> None:
    """Check the table that replaces characters: the bytes of a trie, the trie, the new texts.

    A unit of the trie leads to others at its own place XOR an offset, or to a text at an offset.
    The C++ code follows both without looking whether they are there.
    """
    if not table:
        return
    (size,) = struct.unpack("<I", table[:4])
    if size % 1024 or not 0 < size < len(table) - 4:
        raise ValueError("its table of characters is cut")
    units = np.frombuffer(table[4 : 4 + size], "<u4").astype(np.int64)
    texts = table[4 + size :]
    if not texts or texts[-1] != 0:
        raise ValueError("its table of characters has no end")
    leaves = units >> 31 == 1
    if (units[leaves] & 0x7FFFFFFF >= len(texts)).any():
        raise ValueError("its table of characters leads outside")
    # Bit 9 says that an offset counts blocks of 256; bit 8 that there is a leaf.
    offsets = (units >> 10) << ((units & 512) >> 6)
    reached = (np.arange(len(units)) ^ offsets) | 255
    if (reached[~leaves] >= len(units)).any():
        raise ValueError("its table of characters leads outside")


def _as_bytes(value: memoryview | int) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where text should be")
    return value
