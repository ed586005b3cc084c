"""The arrays that travel between the rooms of the engine.

Their methods only select, swap or add up. In shapes, B is the number of pairs in a batch, S and T
are its padded numbers of source and target pieces, U is a number of units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Words = Sequence[str]
Link = tuple[int, int]  # source word, target word, from 0
ScoredLink = tuple[int, int, float]
Span = tuple[int, int]  # start and end of some characters of a line

# ---- text ----


@dataclass(frozen=True)
class SideTokens:
    """The user's tokens of one side of a chunk, and where they stand in the text of their line.

    Word w of the chunk, counted through all pairs, lies on the tokens first[w]:end[w] of its pair.
    With the tokens "hou", "se.", "!" and the words "house", ".", "!": first [0 1 2], end [2 2 3].
    """

    tokens: list[Words]
    texts: list[str]  # the plain text of each line
    spans: list[list[Span]]  # of each token in it; empty for a token that only stands for a blank
    first: IntArray | None = None  # (words,) None: the words are the tokens
    end: IntArray | None = None  # (words,)


@dataclass(frozen=True)
class Pairs:
    """A chunk of the corpus: the words of consecutive pairs."""

    first: int  # number of the first pair in the corpus, from 0
    src: list[Words]
    tgt: list[Words]
    # Of chunks that come from files:
    digest: str = ""  # of all lines
    whole: bool = True  # it ended where chunks end, not only because the input did
    link_lines: tuple[list[str], ...] = ()  # those of each file of links
    # Where tokens are not words, or their places are wanted:
    src_tokens: SideTokens | None = None
    tgt_tokens: SideTokens | None = None


@dataclass(frozen=True)
class Pieces:
    """The pieces of many sentences in flat arrays; sentence n is at offsets[n]:offsets[n + 1].

    The sentences "a bird" and "a" with "bird" in two pieces: ids [5 7 8 5], words [0 1 1 0],
    offsets [0 3 4], n_words [2 1].
    """

    ids: npt.NDArray[np.int32]  # (pieces,)
    words: npt.NDArray[np.int32]  # (pieces,) index of the piece's word in its sentence
    offsets: IntArray  # (sentences + 1,)
    n_words: npt.NDArray[np.int32]  # (sentences,)


# ---- what a model computes ----


@dataclass(frozen=True)
class Units:
    """What a model is run on: whole pairs, parts of pairs, or windows of what is too long.

    Starts and ends count pieces in their sentence. Windows overlap, so each owns a part: the
    `own` ranges of a pair's units divide both sentences, and a cell belongs to the window that
    owns it on the longer side (`by_src`). Cells between two parts of a pair belong to nobody.
    All arrays are (U,) but for the `own` ranges.
    """

    pair: IntArray
    src_start: IntArray
    src_length: IntArray
    tgt_start: IntArray
    tgt_length: IntArray
    own_src: IntArray  # (U, 2) start and end
    own_tgt: IntArray  # (U, 2)
    by_src: npt.NDArray[np.bool_]
    window: npt.NDArray[np.bool_]  # one of several units of its pair

    def select(self, wanted: npt.NDArray[Any] | slice) -> Units:
        """Return the units at these places, or where `wanted` (U,) is true."""
        return Units(*(column[wanted] for column in vars(self).values()))

    def swap_sides(self) -> Units:
        """Return the units as a model of the other direction sees them."""
        return Units(
            self.pair, self.tgt_start, self.tgt_length, self.src_start, self.src_length,
            self.own_tgt, self.own_src, ~self.by_src, self.window,
        )  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """Units of one padded size, ready for a model: ids are padded with 0."""

    src: npt.NDArray[np.int32]  # (B, S) piece ids
    src_lengths: IntArray  # (B,)
    tgt: npt.NDArray[np.int32]  # (B, T)
    tgt_lengths: IntArray  # (B,)


@dataclass(frozen=True)
class WordIds:
    """The word of each piece of a batch; -1 for padding and for what another window owns."""

    src: npt.NDArray[np.int32]  # (B, S)
    tgt: npt.NDArray[np.int32]  # (B, T)
    spans: npt.NDArray[np.int32]  # (B, 2) pieces of the longest word of each side


# ---- links ----


@dataclass(frozen=True)
class PackedLinks:
    """Word links of a batch: pair b has counts[b] of them, sorted, from starts[b] on.

    A word is named by its first piece in the batch's row.
    """

    counts: npt.NDArray[np.int32]  # (B,)
    starts: npt.NDArray[np.int32]  # (B,)
    src: npt.NDArray[np.int32]  # (links,) and maybe room between pairs
    tgt: npt.NDArray[np.int32]
    scores: Floats
    sentence: Floats  # (B,) mean over all words of the score of their best link, 0 without one


@dataclass(frozen=True)
class Links:
    """Word links of a chunk: those of pair k are at offsets[k]:offsets[k + 1], sorted."""

    offsets: IntArray  # (pairs + 1,)
    src: IntArray  # (links,) index of the source word in its sentence
    tgt: IntArray
    score: Floats
    sure: npt.NDArray[np.bool_]  # links that would be kept when optimizing for precision
    src_null: Floats | None = None  # of each source word, one pair after the other
    tgt_null: Floats | None = None

    def swap_sides(self) -> Links:
        """Return the links with source and target exchanged, sorted by the new source."""
        pair = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        order = np.lexsort((self.src, self.tgt, pair))
        return Links(
            self.offsets, self.tgt[order], self.src[order], self.score[order], self.sure[order],
            self.tgt_null, self.src_null,
        )  # fmt: skip


# Finds the links of some pairs without a model.
LinkFinder = Callable[[Pairs], Links]
# Makes one set of links of a model's and those of statistics, for the same pairs.
LinkJoin = Callable[[Links, Links], Links]
# Changes the links of a chunk, in the user's order of sides, before they are rendered.
LinkChange = Callable[[Pairs, Links], Links]
# Makes one item for each pair of the chunk: a line, an `Alignment`.
Renderer = Callable[[Pairs, Links], Sequence[Any]]


@dataclass(frozen=True)
class Counts:
    """What happened to some pairs."""

    pairs: int = 0
    empty: int = 0  # a side without words
    windowed: int = 0  # too long for one look of the model
    skipped: int = 0  # too long even for windows
    links: int = 0
    words: int = 0  # of both sides

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))
