"""A parallel corpus as piece ids on disk, memory-mapped: tokenised once, never held in RAM.
Knows which pairs are fit for training; order and batches are the matter of the trainer.

A cache is a folder: `meta.json`; `lines.bin`, the line number of each kept pair; and per side
`ids.bin`, all pieces one after the other with the top bit set on the first piece of a word, and
`offsets.bin`, where each sentence starts (one more than there are pairs). Little-endian."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...engine.errors import MxError
from ...engine.text.files import sync_folder
from ...engine.text.words import Tokenizer, split
from ...engine.types import Pieces

IntArray = npt.NDArray[np.int64]

FORMAT = 1
# Two short sentences may well differ by a large factor: "Ja ." and a clause of eight words.
RATIO_FROM = 10
_BLOCK = 8192  # pairs tokenised and written at a time
_SIDES = ("src", "tgt")


@dataclass
class Counts:
    """How many pairs were read, how many kept, and why the others were left out."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    one_piece: int = 0
    too_long: int = 0
    ratio: int = 0


# ---- building ----


def build(
    pairs: Iterable[tuple[str, str]],
    src_tok: Tokenizer,
    tgt_tok: Tokenizer,
    folder: Path,
    *,
    max_length: int,
    max_ratio: float,
    key: dict[str, Any],
    progress: Callable[[Counts], None] | None = None,
) -> Counts:
    """Tokenise the pairs into `folder`, replacing it; it appears only when complete.

    Left out are pairs with an empty side, a side of one piece, a side of more than `max_length`
    pieces, or (from RATIO_FROM pieces up) one side more than `max_ratio` times the other.
    `key` says what the content depends on; `TokenCache.open` compares it.
    """
    temp = folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        temp.mkdir(parents=True)
        counts = _write(pairs, (src_tok, tgt_tok), temp, max_length, max_ratio, key, progress)
        _replace(temp, folder)
    except OSError as error:
        raise MxError(
            f"cannot write the token cache {folder}: {error.strerror or error}"
        ) from error
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    return counts


def _write(
    pairs: Iterable[tuple[str, str]],
    toks: tuple[Tokenizer, Tokenizer],
    temp: Path,
    max_length: int,
    max_ratio: float,
    key: dict[str, Any],
    progress: Callable[[Counts], None] | None,
) -> Counts:
    counts = Counts()
    with ExitStack() as stack:

        def create(name: str) -> BinaryIO:
            return stack.enter_context(open(temp / f"{name}.bin", "wb"))

        lines_file = create("lines")
        writers = [_SideWriter(create, side, tok) for side, tok in zip(_SIDES, toks, strict=True)]
        for block in _blocks(pairs):
            both = [
                tok.encode_many([split(pair[side]) for pair in block])
                for side, tok in enumerate(toks)
            ]
            keep = _select(both, max_length, max_ratio, counts)
            lines_file.write((counts.read + np.flatnonzero(keep)).astype("<i8").tobytes())
            for writer, pieces in zip(writers, both, strict=True):
                writer.write(pieces, keep)
            counts.read += len(block)
            counts.kept += int(keep.sum())
            if progress:
                progress(counts)
    meta = {
        "format": FORMAT,
        "key": key,
        "n": counts.kept,
        "counts": asdict(counts),
        "src": writers[0].meta(),
        "tgt": writers[1].meta(),
    }
    (temp / "meta.json").write_text(json.dumps(meta, indent=1, ensure_ascii=False), "utf-8")
    return counts


def _blocks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    source = iter(pairs)
    while block := list(islice(source, _BLOCK)):
        yield block


def _select(
    both: list[Pieces], max_length: int, max_ratio: float, counts: Counts
) -> npt.NDArray[np.bool_]:
    """Which pairs to keep; adds each of the others to the first reason that holds."""
    lengths = np.stack([np.diff(pieces.offsets) for pieces in both])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    reasons = {
        "empty": shorter == 0,
        "one_piece": shorter == 1,
        "too_long": longer > max_length,
        "ratio": (longer > RATIO_FROM) & (longer > max_ratio * shorter),
    }
    keep = np.ones(len(shorter), bool)
    for name, holds in reasons.items():
        setattr(counts, name, getattr(counts, name) + int((keep & holds).sum()))
        keep &= ~holds
    return keep


class _SideWriter:
    """Appends the kept sentences of one language to its two files."""

    def __init__(self, create: Callable[[str], BinaryIO], side: str, tok: Tokenizer) -> None:
        self._ids = create(f"{side}.ids")
        self._offsets = create(f"{side}.offsets")
        self._dtype = np.dtype("<u2" if tok.vocab_size <= 1 << 15 else "<u4")
        self._end = 0
        self._offsets.write(np.zeros(1, "<i8").tobytes())

    def write(self, pieces: Pieces, keep: npt.NDArray[np.bool_]) -> None:
        lengths = np.diff(pieces.offsets)
        ends = self._end + np.cumsum(lengths[keep])
        first = np.ones(len(pieces.ids), bool)
        first[1:] = pieces.words[1:] != pieces.words[:-1]
        # A sentence of one word may follow another: both have word 0 at the border.
        first[pieces.offsets[:-1][lengths > 0]] = True
        ids = pieces.ids.astype(self._dtype)
        ids |= first.astype(self._dtype) << self._dtype.type(8 * self._dtype.itemsize - 1)
        self._ids.write(ids[np.repeat(keep, lengths)].tobytes())
        self._offsets.write(ends.astype("<i8").tobytes())
        self._end = int(ends[-1]) if len(ends) else self._end

    def meta(self) -> dict[str, Any]:
        return {"dtype": self._dtype.str, "pieces": self._end}


def _replace(temp: Path, folder: Path) -> None:
    """Put a finished folder in place; an older one goes only when the new one is there."""
    for path in temp.iterdir():
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
    old = temp.with_suffix(".old")
    if folder.exists():
        os.replace(folder, old)
    os.replace(temp, folder)
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


# ---- reading ----


class TokenCache:
    """A built cache, mapped into memory. Pairs count from 0; `lines` has their line numbers."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.folder = folder
        self.key: dict[str, Any] = meta["key"]
        self.counts = Counts(**meta["counts"])
        n = int(meta["n"])
        self.lines = _map(folder / "lines.bin", "<i8", n)
        self.src, self.tgt = (
            Side(
                _map(folder / f"{side}.ids.bin", meta[side]["dtype"], meta[side]["pieces"]),
                _map(folder / f"{side}.offsets.bin", "<i8", n + 1),
            )
            for side in _SIDES
        )

    @classmethod
    def open(cls, folder: Path, key: dict[str, Any] | None = None) -> TokenCache | None:
        """The cache in `folder`, or None when there is none or it was built for another key
        (None fits any): then build it. A damaged one raises MxError."""
        try:
            meta = json.loads((folder / "meta.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _damaged(folder, f"meta.json cannot be read ({error})") from error
        if not isinstance(meta, dict):
            raise _damaged(folder, "meta.json does not hold an object")
        if meta.get("format") != FORMAT:
            return None
        # Through JSON and back, so that tuples and int keys compare as they were stored.
        if key is not None and meta.get("key") != json.loads(json.dumps(key)):
            return None
        try:
            return cls(folder, meta)
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(folder, f"meta.json is incomplete ({error})") from error

    def __len__(self) -> int:
        return len(self.lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenCache.open, (self.folder, self.key)  # other processes map it themselves


class Side:
    """One language of a cache."""

    def __init__(self, ids: npt.NDArray[Any], offsets: IntArray) -> None:
        self._ids = ids
        self._offsets = offsets
        self._first = ids.dtype.type(1 << (8 * ids.dtype.itemsize - 1))  # top bit

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def lengths(self, indices: npt.ArrayLike) -> IntArray:
        """Number of pieces of each sentence, (B,)."""
        rows = np.asarray(indices, np.int64)
        return np.asarray(self._offsets[rows + 1] - self._offsets[rows], np.int64)

    def pieces(self, i: int) -> IntArray:
        """The piece ids of sentence i."""
        return np.asarray(self._stored(i) & (self._first - 1), np.int64)

    def words(self, i: int) -> IntArray:
        """For each piece of sentence i the index of its word."""
        return np.cumsum(self._stored(i) >= self._first, dtype=np.int64) - 1

    def padded(self, indices: npt.ArrayLike, join: int = 1) -> tuple[IntArray, IntArray]:
        """Piece ids (B, L), padded with 0, and lengths (B,). `join` sentences make a row each,
        and what is left over makes a last, shorter one."""
        stored, lengths = self._gather(indices, join)
        return (stored & (self._first - 1)).astype(np.int64), lengths

    def word_ids_padded(self, indices: npt.ArrayLike, join: int = 1) -> IntArray:
        """Word index of each piece (B, L), padded with -1; it counts on in a joined row."""
        stored, lengths = self._gather(indices, join)
        words: IntArray = np.cumsum(stored >= self._first, axis=1, dtype=np.int64) - 1
        words[np.arange(words.shape[1]) >= lengths[:, None]] = -1
        return words

    def _stored(self, i: int) -> npt.NDArray[Any]:
        if not 0 <= i < len(self):
            raise IndexError(f"sentence {i} of {len(self)}")
        return np.asarray(self._ids[self._offsets[i] : self._offsets[i + 1]])

    def _gather(self, indices: npt.ArrayLike, join: int) -> tuple[npt.NDArray[Any], IntArray]:
        """Stored values (B, L) with zero padding, and lengths (B,), without a loop over rows."""
        rows = np.asarray(indices, np.int64)
        lengths = self.lengths(rows)
        ends = np.cumsum(lengths)
        places = np.repeat(self._offsets[rows] - ends + lengths, lengths)
        places += np.arange(len(places))
        if len(rows):
            lengths = np.add.reduceat(lengths, np.arange(0, len(rows), join))
        width = int(lengths.max(initial=0))
        inside = np.arange(width) < lengths[:, None]  # (B, L)
        stored = np.zeros((len(lengths), width), self._ids.dtype)
        stored[inside] = self._ids[places]  # row by row: the order of `places`
        return stored, lengths


def _map(path: Path, dtype: str, count: int) -> npt.NDArray[Any]:
    """The file as an array of `count` numbers, read from disk as they are used."""
    kind = np.dtype(dtype)
    size = path.stat().st_size if path.exists() else -1
    if size != count * kind.itemsize:
        raise _damaged(path.parent, f"{path.name} has {size} bytes, not {count * kind.itemsize}")
    if not count:
        return np.zeros(0, kind)  # an empty file cannot be mapped
    return np.asarray(np.memmap(path, kind, "r", shape=(count,)))


def _damaged(folder: Path, what: str) -> MxError:
    return MxError(f"the token cache {folder} is damaged: {what}; delete it to have it built again")
