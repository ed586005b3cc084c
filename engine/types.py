"""The arrays that travel between the rooms of the engine, and nothing that acts on them.

B pairs in a batch, S and T padded pieces of a source and a target sentence, U units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Words = Sequence[str]


@dataclass(frozen=True)
class Pieces:
    """Many sentences as flat arrays; sentence n has the places offsets[n]:offsets[n + 1]."""

    ids: npt.NDArray[np.int32]  # (pieces,)
    words: npt.NDArray[np.int32]  # (pieces,) index of the piece's word in its sentence
    offsets: IntArray  # (sentences + 1,)
    n_words: npt.NDArray[np.int32]  # (sentences,)


@dataclass(frozen=True)
class Units:
    """What a model is run on: whole pairs, parts of pairs, or windows of what is too long;
    arrays (U,).

    Starts and ends count pieces in their sentence. Windows overlap, so each owns a part: the
    `own` ranges of a pair's units divide both sentences, and a cell belongs to the window that
    owns it on the longer side (`by_src`). Cells between two parts of a pair belong to nobody.
    """

    pair: IntArray
    src_start: IntArray
    src_length: IntArray
    tgt_start: IntArray
    tgt_length: IntArray
    own_src: IntArray  # (U, 2)
    own_tgt: IntArray  # (U, 2)
    by_src: npt.NDArray[np.bool_]
    window: npt.NDArray[np.bool_]  # one of several units of its pair

    def only(self, wanted: npt.NDArray[np.bool_]) -> Units:
        return Units(*(column[wanted] for column in vars(self).values()))


@dataclass(frozen=True)
class Batch:
    """Units of one padded size, ready for a model: ids are padded with 0."""

    units: IntArray  # (B,) places in Units
    src: npt.NDArray[np.int32]  # (B, S)
    src_lengths: IntArray
    tgt: npt.NDArray[np.int32]  # (B, T)
    tgt_lengths: IntArray


@dataclass(frozen=True)
class WordIds:
    """The word of each piece of a batch; -1 for padding and for what another window owns."""

    src: npt.NDArray[np.int32]  # (B, S)
    tgt: npt.NDArray[np.int32]  # (B, T)
    spans: npt.NDArray[np.int32]  # (B, 2) pieces of the longest word of each side

    def rows(self, part: slice) -> WordIds:
        return WordIds(self.src[part], self.tgt[part], self.spans[part])


@dataclass(frozen=True)
class Links:
    """Word links of a chunk: those of pair k stand at offsets[k]:offsets[k + 1]."""

    offsets: IntArray  # (pairs + 1,)
    src: IntArray
    tgt: IntArray
    score: Floats
    sure: npt.NDArray[np.bool_]  # links that a wish for precision would keep too
    src_null: Floats | None = None  # of each source word, one pair after the other
    tgt_null: Floats | None = None

    def swapped(self) -> Links:
        """The same links with the sides changed over, sorted by the new source."""
        pair = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        order = np.lexsort((self.src, self.tgt, pair))
        return Links(
            self.offsets,
            self.tgt[order],
            self.src[order],
            self.score[order],
            self.sure[order],
            self.tgt_null,
            self.src_null,
        )


@dataclass(frozen=True)
class PackedLinks:
    """Word links of a batch; those of pair b stand one after the other at starts[b], counts[b]
    many, sorted. A word is named by its first piece. `sentence` is the mean over all words of the
    score of their best link, 0 for words without one."""

    counts: npt.NDArray[np.int32]  # (B,)
    starts: npt.NDArray[np.int32]  # (B,)
    src: npt.NDArray[np.int32]
    tgt: npt.NDArray[np.int32]
    scores: Floats
    sentence: Floats  # (B,)


@dataclass(frozen=True)
class Pairs:
    """A chunk of the corpus: the words of consecutive pairs, the first of which has number
    `first`. `others` are lines of links, of each file one for every pair. `note` travels along
    untouched."""

    first: int
    src: list[Words]
    tgt: list[Words]
    note: Any = None
    others: tuple[list[str], ...] = ()


# What becomes of links, in the user's terms, before they are rendered.
Change = Callable[[Pairs, Links], Links]


# One item for each pair of the chunk.
Render = Callable[[Pairs, Links], Sequence[Any]]


@dataclass(frozen=True)
class Counts:
    """What happened to some pairs."""

    pairs: int = 0
    empty: int = 0  # a side without words
    windowed: int = 0
    skipped: int = 0  # too long even for windows
    links: int = 0
    words: int = 0  # of both sides

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self.row(), other.row(), strict=True)))

    def row(self) -> tuple[int, ...]:
        """The numbers in the order of the fields."""
        return self.pairs, self.empty, self.windowed, self.skipped, self.links, self.words


Link = tuple[int, int]


ScoredLink = tuple[int, int, float]
