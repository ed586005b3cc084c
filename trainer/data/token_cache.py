"""Keeps a parallel corpus as piece ids on disk, memory-mapped: tokenised once, never all in RAM.

Decides which pairs are fit for training. Does not know in which order they are used.

A cache is a folder: `meta.json`; `lines.bin`, the line number of each kept pair; and per side
`ids.bin`, all pieces one after the other with the top bit set on the first piece of a word, and
`offsets.bin`, where each sentence starts (one more than there are pairs). Little-endian."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...engine.errors import MxError
from ...engine.storage import replace_path
from ...engine.text.pieces import PieceTokenizer
from ...engine.text.words import split_words
from ...engine.types import IntArray, Pieces

FORMAT = 1
# Two short sentences may well differ by a large factor: "Ja ." and a clause of eight words. Judged,
# not measured.
RATIO_FROM = 10
_CHUNK = 8192  # pairs tokenised and written at a time
_SIDES = ("src", "tgt")


@dataclass
class CacheCounts:
    """How many pairs were read, how many kept, and why the others were left out."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    one_piece: int = 0
    too_long: int = 0
    ratio: int = 0


# ---- building ----


def build_token_cache(
    pairs: Iterable[tuple[str, str]],
    folder: Path,
    *,
    tokenizers: tuple[PieceTokenizer, PieceTokenizer],
    max_length: int,
    max_ratio: float,
    key: dict[str, Any],
    progress: Callable[[CacheCounts], None] | None = None,
) -> CacheCounts:
    """Tokenise the pairs into `folder`, replacing it; it appears only when complete.

    Left out are pairs with an empty side, a side of one piece, a side of more than `max_length`
    pieces, or (from RATIO_FROM pieces up) one side more than `max_ratio` times the other.
    `key` says what the content depends on; `TokenCache.open` compares it.
    """
    counts, source = CacheCounts(), iter(pairs)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replace_path(folder) as temp, ExitStack() as stack:
            temp.mkdir()

            def create(name: str) -> BinaryIO:
                return stack.enter_context(open(temp / f"{name}.bin", "wb"))

            lines = create("lines")
            src, tgt = (_SideWriter(create, *side) for side in zip(_SIDES, tokenizers, strict=True))
            while chunk := list(islice(source, _CHUNK)):
                both = [
                    tokenizer.encode_many([split_words(line) for line in side])
                    for tokenizer, side in zip(tokenizers, zip(*chunk, strict=True), strict=True)
                ]
                keep = _keep_pairs(both, max_length, max_ratio, counts)
                # Line numbers find the pairs again in the text: teachers give links line by line.
                lines.write((counts.read + np.flatnonzero(keep)).astype("<i8").tobytes())
                src.write(both[0], keep)
                tgt.write(both[1], keep)
                counts.read += len(chunk)
                counts.kept += int(keep.sum())
                if progress:
                    progress(counts)
            meta = {
                "format": FORMAT,
                "key": key,
                "n": counts.kept,
                "counts": asdict(counts),
                "src": src.meta(),
                "tgt": tgt.meta(),
            }
            (temp / "meta.json").write_text(json.dumps(meta, indent=1, ensure_ascii=False), "utf-8")
    except OSError as error:
        raise MxError(
            f"cannot write the token cache {folder}: {error.strerror or error}"
        ) from error
    return counts


def _keep_pairs(
    both: list[Pieces], max_length: int, max_ratio: float, counts: CacheCounts
) -> npt.NDArray[np.bool_]:
    """Return which pairs to keep; count each of the others under the first reason that holds."""
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

    def __init__(self, create: Callable[[str], BinaryIO], side: str, tok: PieceTokenizer) -> None:
        self._ids = create(f"{side}.ids")
        self._offsets = create(f"{side}.offsets")
        # 16 bits where ids leave the top bit free, which halves what is read from the disk.
        self._dtype = np.dtype("<u2" if tok.vocab_size <= 1 << 15 else "<u4")
        self._end = 0
        self._offsets.write(np.zeros(1, "<i8").tobytes())

    def write(self, pieces: Pieces, keep: npt.NDArray[np.bool_]) -> None:
        """Append the sentences that are to be kept."""
        lengths = np.diff(pieces.offsets)
        ends = self._end + np.cumsum(lengths[keep])
        first = np.ones(len(pieces.ids), bool)
        first[1:] = pieces.words[1:] != pieces.words[:-1]
        # A sentence of one word may follow another: both have word 0 at the border.
        first[pieces.offsets[:-1][lengths > 0]] = True
        # The top bit marks first pieces: of the words [7 8] [9], in 16 bits, 0x8007 0x0008 0x8009.
        ids = pieces.ids.astype(self._dtype)
        ids |= first.astype(self._dtype) << self._dtype.type(8 * self._dtype.itemsize - 1)
        self._ids.write(ids[np.repeat(keep, lengths)].tobytes())
        self._offsets.write(ends.astype("<i8").tobytes())
        self._end = int(ends[-1]) if len(ends) else self._end

    def meta(self) -> dict[str, Any]:
        """Return what `meta.json` says about this side."""
        return {"dtype": self._dtype.str, "pieces": self._end}


# ---- reading ----


class TokenCache:
    """A built cache, mapped into memory. Pairs count from 0; `lines` has their line numbers."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.counts = CacheCounts(**meta["counts"])
        n = int(meta["n"])
        self.lines = _map_file(folder / "lines.bin", "<i8", n)
        self.src, self.tgt = (
            CachedSide(
                _map_file(folder / f"{side}.ids.bin", meta[side]["dtype"], meta[side]["pieces"]),
                _map_file(folder / f"{side}.offsets.bin", "<i8", n + 1),
            )
            for side in _SIDES
        )

    @classmethod
    def open(cls, folder: Path, key: dict[str, Any] | None = None) -> TokenCache | None:
        """Open the cache in `folder`; None if there is none or it was built for another key.

        A `key` of None fits any. A damaged cache raises MxError.
        """
        try:
            meta = json.loads((folder / "meta.json").read_text("utf-8"))
            # Through JSON and back, so that tuples and int keys compare as they were stored.
            fits = key is None or meta.get("key") == json.loads(json.dumps(key))
            return cls(folder, meta) if fits and meta.get("format") == FORMAT else None
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError, json.JSONDecodeError) as error:
            raise _damage_error(folder, f"meta.json cannot be read ({error})") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _damage_error(folder, f"meta.json is incomplete ({error})") from error

    def __len__(self) -> int:
        return len(self.lines)


class CachedSide:
    """One language of a cache."""

    def __init__(self, ids: npt.NDArray[Any], offsets: IntArray) -> None:
        self._ids = ids
        self._offsets = offsets
        self._first = ids.dtype.type(1 << (8 * ids.dtype.itemsize - 1))  # top bit

    def lengths(self, indices: IntArray) -> IntArray:
        """Return the number of pieces of each sentence, (B,)."""
        return self._offsets[indices + 1] - self._offsets[indices]

    def pieces(self, i: int) -> IntArray:
        """Return the piece ids of sentence i."""
        stored = self._ids[self._offsets[i] : self._offsets[i + 1]]
        return (stored & (self._first - 1)).astype(np.int64)

    def words(self, i: int) -> IntArray:
        """Return for each piece of sentence i the index of its word."""
        stored = self._ids[self._offsets[i] : self._offsets[i + 1]]
        return np.cumsum(stored >= self._first, dtype=np.int64) - 1

    def padded_pieces(self, indices: IntArray, join: int = 1) -> tuple[IntArray, IntArray]:
        """Return piece ids (B, L), padded with 0, and lengths (B,).

        `join` sentences make a row each, and what is left over makes a last, shorter one.
        """
        stored, lengths = self._gather_rows(indices, join)
        return (stored & (self._first - 1)).astype(np.int64), lengths

    def padded_words(self, indices: IntArray, join: int = 1) -> IntArray:
        """Return the word of each piece (B, L), padded with -1; it counts on in a joined row."""
        stored, lengths = self._gather_rows(indices, join)
        words: IntArray = np.cumsum(stored >= self._first, axis=1, dtype=np.int64) - 1
        words[np.arange(words.shape[1]) >= lengths[:, None]] = -1
        return words

    def _gather_rows(self, indices: IntArray, join: int) -> tuple[npt.NDArray[Any], IntArray]:
        """Return stored values (B, L) with zero padding, and lengths (B,).

        Without a loop over rows: sentences of 2 and 3 pieces that start at 10 and 40 have the
        `places` 10 11 40 41 42, which is their start minus the pieces before them, plus 0 1 2 3 4.
        """
        lengths = self.lengths(indices)
        ends = np.cumsum(lengths)
        places = np.repeat(self._offsets[indices] - ends + lengths, lengths)
        places += np.arange(len(places))
        if len(indices):
            lengths = np.add.reduceat(lengths, np.arange(0, len(indices), join))
        width = int(lengths.max(initial=0))
        inside = np.arange(width) < lengths[:, None]  # (B, L)
        stored = np.zeros((len(lengths), width), self._ids.dtype)
        stored[inside] = self._ids[places]  # row by row: the order of `places`
        return stored, lengths


def _map_file(path: Path, dtype: str, count: int) -> npt.NDArray[Any]:
    """Map a file of `count` numbers, which are read from disk as they are used."""
    kind = np.dtype(dtype)
    size = path.stat().st_size if path.exists() else -1
    if size != count * kind.itemsize:
        raise _damage_error(
            path.parent, f"{path.name} has {size} bytes, not {count * kind.itemsize}"
        )
    if not count:
        return np.zeros(0, kind)  # an empty file cannot be mapped
    return np.asarray(np.memmap(path, kind, "r", shape=(count,)))


def _damage_error(folder: Path, what: str) -> MxError:
    return MxError(f"the token cache {folder} is damaged: {what}; delete it to have it built again")
