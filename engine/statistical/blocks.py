"""Lays parallel text out as flat arrays of word ids, in blocks of pairs of about one size.

Does not know what is computed on the blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ..text.words import normalize_word
from ..types import Pairs

Ints = npt.NDArray[np.signedinteger[Any]]

# Stands where there is no pair of words, only padding.
PADDING_KEY = -1
# A few arrays of so many cells stay in the cache of a core.
_BLOCK_CELLS = 60_000
# Cells whose pairs of words are sorted at a time; bounds the memory for it.
_GROUP_CELLS = 6_000_000
# A pair larger than this, or with a longer side, gets no links: the arrays of its cells and of its
# jumps from word to word would no longer fit in memory.
_MAX_CELLS, _MAX_WORDS = 4_000_000, 4096


# ---- words as numbers ----


class Vocabulary(dict[str, int]):
    """Gives each word a number, a new one to a new word; words are compared as the model sees them.

    It is filled as it is asked: a word that was asked for before costs one look-up.
    """

    def __init__(self, lowercase: bool, known: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self._lowercase = lowercase
        self._known = known or {}
        self._new: dict[str, int] = {}  # numbered on from those that are known

    def __missing__(self, word: str) -> int:
        seen = normalize_word(word, self._lowercase)
        number = self._known.get(seen)
        if number is None:
            number = self._new.setdefault(seen, len(self._known) + len(self._new))
        self[word] = number
        return number

    @property
    def new_words(self) -> list[str]:
        """The words that were not known, in the order of their numbers."""
        return list(self._new)


@dataclass(frozen=True)
class SentenceIds:
    """The sentences of one language as word ids, one after the other."""

    ids: npt.NDArray[np.int32]
    offsets: Ints  # (sentences + 1,)

    @classmethod
    def join(cls, parts: Sequence[SentenceIds]) -> SentenceIds:
        """Put several texts together; of none, an empty one."""
        lengths = np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)])
        ids = np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)])
        return cls(ids, np.concatenate([[0], np.cumsum(lengths)]))

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def pad(self, rows: Ints, width: int) -> Ints:
        """Return (rows, width) word ids, -1 behind the end of a sentence."""
        starts = self.offsets[rows][:, None]
        inside = np.arange(width) < (self.offsets[rows + 1][:, None] - starts)
        places = np.minimum(starts + np.arange(width), len(self.ids) - 1)
        return np.where(inside, self.ids[places], -1).astype(np.int64)

    def take(self, rows: Ints) -> SentenceIds:
        """Return some of the sentences."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        # Rows 0 and 2 of sentences of 2, 5 and 3 words: the new places 0 1 | 2 3 4 are the old
        # ones 0 1 | 7 8 9, that is 0 and 5 more than the new.
        places = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return SentenceIds(self.ids[places], offsets)


def encode_sentences(sentences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> SentenceIds:
    """Turn sentences into the ids of their words."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    words = map(vocabulary.__getitem__, chain.from_iterable(sentences))
    ids = np.fromiter(words, np.int32, int(lengths.sum()))
    return SentenceIds(ids, np.concatenate([[0], np.cumsum(lengths)]))


# ---- which pairs to learn from ----


def sample_pairs(
    chunks: Iterable[Pairs], max_pairs: int, src: Vocabulary, tgt: Vocabulary
) -> tuple[SentenceIds, SentenceIds, int]:
    """Return at most max_pairs pairs spread evenly over the text, and how many pairs it had.

    When too many are held, every second one is dropped and from then on every second one read, so
    that at least half of max_pairs are kept.
    """
    # Kept is every `every`-th pair of the text: 0 4 8 ..., whatever the chunks are.
    every, n_read, n_held = 1, 0, 0
    held: list[list[SentenceIds]] = [[], []]
    for chunk in chunks:
        first = -n_read % every
        n_read += len(chunk.src)
        n_held += len(chunk.src[first::every])
        for parts, side, words in zip(held, (chunk.src, chunk.tgt), (src, tgt), strict=True):
            parts.append(encode_sentences(side[first::every], words))
        while n_held > max_pairs:
            second = np.arange(0, n_held, 2)
            held = [[SentenceIds.join(parts).take(second)] for parts in held]
            every, n_held = 2 * every, len(second)
    return SentenceIds.join(held[0]), SentenceIds.join(held[1]), n_read


def limit_cells(
    src: SentenceIds, tgt: SentenceIds, max_words: int, max_cells: int
) -> tuple[SentenceIds, SentenceIds]:
    """Return the pairs short enough to learn from, or an even sample with max_cells cells."""
    longest = np.maximum(src.lengths, tgt.lengths)
    rows = np.flatnonzero((src.lengths > 0) & (tgt.lengths > 0) & (longest <= max_words))
    n_cells = int((src.lengths * tgt.lengths)[rows].sum())
    if n_cells > max_cells:
        n_kept = max(1, len(rows) * max_cells // n_cells)
        rows = rows[np.arange(n_kept) * len(rows) // n_kept]
    return src.take(rows), tgt.take(rows)


# ---- blocks of pairs ----


@dataclass(frozen=True)
class PairBlock:
    """Pairs of about the same size, padded to S source and T target words."""

    rows: Ints
    S: int
    T: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of its arrays: the target words, which are the steps of direction fwd, come first."""
        return self.T, len(self.rows), self.S

    @property
    def cells(self) -> int:
        return len(self.rows) * self.S * self.T


def make_blocks(src: SentenceIds, tgt: SentenceIds) -> list[list[PairBlock]]:
    """Sort all pairs with words on both sides into blocks, by their numbers of words.

    Returns groups of consecutive blocks, of about _GROUP_CELLS cells each.
    """
    n_src, n_tgt = src.lengths, tgt.lengths
    use = (n_src > 0) & (n_tgt > 0) & (n_src * n_tgt <= _MAX_CELLS)
    use &= np.maximum(n_src, n_tgt) <= _MAX_WORDS
    rows = np.flatnonzero(use)
    if not len(rows):
        return []
    # Pairs of the same padded size come together; within a size they keep their order, so that the
    # same text gives the same sums.
    S, T = _round_lengths(n_src[rows]), _round_lengths(n_tgt[rows])
    order = np.lexsort((rows, T, S))
    rows, S, T = rows[order], S[order], T[order]
    changes = np.flatnonzero((np.diff(S) != 0) | (np.diff(T) != 0)) + 1
    groups: list[list[PairBlock]] = []
    size = _GROUP_CELLS  # cells of the last group
    for start, end in zip([0, *changes], [*changes, len(rows)], strict=True):
        s, t = int(S[start]), int(T[start])
        step = max(1, _BLOCK_CELLS // (s * t))
        for first in range(start, end, step):
            block = PairBlock(rows[first : min(end, first + step)], s, t)
            if size + block.cells > _GROUP_CELLS:
                groups.append([])
                size = 0
            groups[-1].append(block)
            size += block.cells
    return groups


def _round_lengths(lengths: Ints) -> Ints:
    """Round up to few values, so that blocks fill: 1 to 16, then by 2, from 32 on by 4, ..."""
    unit = 1 << np.maximum(0, np.ceil(np.log2(np.maximum(lengths, 1) / 16))).astype(np.int64)
    return np.asarray(-(-lengths // unit) * unit)


def cells_by_block(blocks: Iterable[PairBlock], cells: Ints) -> Iterator[tuple[PairBlock, Ints]]:
    """Yield each block with its part (T, B, S) of an array over the cells of all blocks."""
    start = 0
    for block in blocks:
        yield block, cells[start : start + block.cells].reshape(block.shape)
        start += block.cells


# ---- pairs of words ----


def pair_keys(src: Ints, tgt: Ints) -> Ints:
    """Return one number for each pair of ids; numbers sort as the pairs do."""
    # Ids have at most 31 bits, so two fit into an int64: (5, 3) is 5 * 2**32 + 3.
    return (src.astype(np.int64) << 32) | tgt


def split_keys(keys: Ints) -> tuple[Ints, Ints]:
    """Return the ids that pair_keys has put together; 0 and 0 for PADDING_KEY."""
    keys = np.maximum(keys, 0)
    return keys >> 32, keys & 0xFFFFFFFF


def find_keys(keys: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the place of each wanted key among the sorted keys, and whether it is there."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return place, keys[place] == wanted


def cell_keys(blocks: Sequence[PairBlock], src: SentenceIds, tgt: SentenceIds) -> Ints:
    """Return the key of each cell's pair of words, block after block; PADDING_KEY in padding."""
    keys = []
    for block in blocks:
        left = src.pad(block.rows, block.S)[None]  # (1, B, S)
        right = tgt.pad(block.rows, block.T).T[:, :, None]  # (T, B, 1)
        cells = np.where((left >= 0) & (right >= 0), pair_keys(left, right), PADDING_KEY)
        keys.append(cells.ravel())
    return np.concatenate(keys)


def merge_counts(keys: Ints, counts: Ints, more: Ints, more_counts: Ints) -> tuple[Ints, Ints]:
    """Merge two sorted lists of keys with their counts; changes `counts`."""
    place, known = find_keys(keys, more)
    counts[place[known]] += more_counts[known]
    new = ~known
    place = np.searchsorted(keys, more[new])
    return np.insert(keys, place, more[new]), np.insert(counts, place, more_counts[new])
