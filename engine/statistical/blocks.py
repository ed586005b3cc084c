"""Parallel text as flat arrays, in blocks of pairs of about one size, for the seed aligner.
Knows words and lengths; what is computed on the blocks is the matter of seed_hmm and seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ..text.words import visible

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.signedinteger[Any]]
Pair = tuple[Sequence[str], Sequence[str]]

# The key of padding, which is no pair of words.
PADDING = -1
# Pairs read at a time.
_READ = 1 << 15
# Cells of one block: a few arrays of this size stay in a core's cache.
_BLOCK_CELLS = 60_000
# Cells sorted at a time while cells are given their parameters.
_GROUP_CELLS = 6_000_000
# A pair larger than this, or with a longer side, is not aligned: the arrays of its cells and of
# its jumps from word to word would no longer fit in memory.
_MAX_CELLS, _MAX_WORDS = 4_000_000, 4096


class Vocabulary(dict[str, int]):
    """Word -> id, a new one for each new word; what the model sees is cached with it."""

    def __init__(self, lowercase: bool, words: Iterable[str] = ()) -> None:
        super().__init__()
        self.lowercase = lowercase
        self.words = list(words)  # by id, as the model sees them
        self._ids = {word: number for number, word in enumerate(self.words)}

    def __missing__(self, word: str) -> int:
        seen = visible(word, self.lowercase)
        number = self._ids.setdefault(seen, len(self.words))
        if number == len(self.words):
            self.words.append(seen)
        self[word] = number
        return number


@dataclass(frozen=True)
class Side:
    """The sentences of one language, flat."""

    ids: npt.NDArray[np.int32]
    offsets: Ints  # (sentences + 1,)

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def padded(self, rows: Ints, width: int) -> Ints:
        """(rows, width) word ids, -1 behind the end of a sentence."""
        starts = self.offsets[rows][:, None]
        inside = np.arange(width) < (self.offsets[rows + 1][:, None] - starts)
        places = np.minimum(starts + np.arange(width), len(self.ids) - 1)
        return np.where(inside, self.ids[places], -1).astype(np.int64)

    def take(self, rows: Ints) -> Side:
        """Some of the sentences."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Side(self.ids[places], offsets)


def encode(sentences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> Side:
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    words = map(vocabulary.__getitem__, chain.from_iterable(sentences))
    ids = np.fromiter(words, np.int32, int(lengths.sum()))
    return Side(ids, np.concatenate([[0], np.cumsum(lengths)]))


def _joined(sides: Sequence[Side]) -> Side:
    lengths = [side.lengths for side in sides]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]))])
    return Side(np.concatenate([np.zeros(0, np.int32), *(side.ids for side in sides)]), offsets)


def sample(
    pairs: Iterable[Pair], max_pairs: int, src: Vocabulary, tgt: Vocabulary
) -> tuple[Side, Side, int]:
    """At most max_pairs pairs spread evenly over the text, and how many pairs it had. When
    too many are held, every second one is dropped and from then on every second one read."""
    every, n_read, held = 1, 0, 0
    parts: list[tuple[Side, Side]] = []
    stream = iter(pairs)
    while chunk := list(islice(stream, _READ)):
        first = -n_read % every
        n_read += len(chunk)
        chunk = chunk[first::every]
        parts.append((encode([p[0] for p in chunk], src), encode([p[1] for p in chunk], tgt)))
        held += len(chunk)
        while held > max_pairs:
            sides = _joined([part[0] for part in parts]), _joined([part[1] for part in parts])
            second = np.arange(0, held, 2)
            parts = [(sides[0].take(second), sides[1].take(second))]
            every, held = 2 * every, (held + 1) // 2
    return _joined([part[0] for part in parts]), _joined([part[1] for part in parts]), n_read


def thinned(src: Side, tgt: Side, max_words: int, max_cells: int) -> tuple[Side, Side]:
    """The pairs short enough to learn from, or an even sample of max_cells of their cells."""
    longest = np.maximum(src.lengths, tgt.lengths)
    rows = np.flatnonzero((src.lengths > 0) & (tgt.lengths > 0) & (longest <= max_words))
    n_cells = int((src.lengths * tgt.lengths)[rows].sum())
    if n_cells > max_cells:
        n_kept = max(1, len(rows) * max_cells // n_cells)
        rows = rows[np.arange(n_kept) * len(rows) // n_kept]
    return src.take(rows), tgt.take(rows)


@dataclass(frozen=True)
class Block:
    """Pairs of about the same size, padded to S source and T target words."""

    rows: Ints
    S: int
    T: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of its arrays: steps of the fwd direction first, see seed_hmm."""
        return self.T, len(self.rows), self.S

    @property
    def cells(self) -> int:
        return len(self.rows) * self.S * self.T


def make_blocks(n_src: Ints, n_tgt: Ints) -> list[Block]:
    """All pairs with words on both sides, sorted by size; long ones are padded a little."""
    use = (n_src > 0) & (n_tgt > 0) & (n_src * n_tgt <= _MAX_CELLS)
    use &= np.maximum(n_src, n_tgt) <= _MAX_WORDS
    rows = np.flatnonzero(use)
    S, T = _rounded(n_src[rows]), _rounded(n_tgt[rows])
    order = np.lexsort((rows, T, S))
    rows, S, T = rows[order], S[order], T[order]
    cuts = np.flatnonzero((np.diff(S) != 0) | (np.diff(T) != 0)) + 1
    blocks = []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        if start < end:
            s, t = int(S[start]), int(T[start])
            step = max(1, _BLOCK_CELLS // (s * t))
            blocks += [Block(rows[i : min(end, i + step)], s, t) for i in range(start, end, step)]
    return blocks


def _rounded(lengths: Ints) -> Ints:
    """Up to 16 as they are, then to the next multiple of 2, 4, 8, ...: few, well-filled blocks."""
    unit = 1 << np.maximum(0, np.ceil(np.log2(np.maximum(lengths, 1) / 16))).astype(np.int64)
    return -(-lengths // unit) * unit


# ---- pairs of words ----


def pair_keys(src: Ints, tgt: Ints) -> Ints:
    """One number for each pair of ids, in the order of the pairs."""
    return (src.astype(np.int64) << 32) | tgt


def ids_of(keys: Ints) -> tuple[Ints, Ints]:
    """The ids that pair_keys has put together; 0 and 0 for PADDING."""
    keys = np.maximum(keys, 0)
    return keys >> 32, keys & 0xFFFFFFFF


def cell_keys(blocks: Sequence[Block], src: Side, tgt: Side) -> Ints:
    """The key of each cell's pair of words, one block after the other; PADDING in padding."""
    return np.concatenate([_block_keys(block, src, tgt).ravel() for block in blocks])


def _block_keys(block: Block, src: Side, tgt: Side) -> Ints:
    left = src.padded(block.rows, block.S)[None]  # (1, B, S)
    right = tgt.padded(block.rows, block.T).T[:, :, None]  # (T, B, 1)
    return np.where((left >= 0) & (right >= 0), pair_keys(left, right), PADDING)


def by_block(blocks: Iterable[Block], cells: Ints) -> Iterator[tuple[Block, Ints]]:
    """Each block with its part (T, B, S) of an array over the cells of all."""
    start = 0
    for block in blocks:
        yield block, cells[start : start + block.cells].reshape(block.shape)
        start += block.cells


def merged(keys: Ints, counts: Ints, more: Ints, more_counts: Ints) -> tuple[Ints, Ints]:
    """Two lists of sorted keys with their counts as one."""
    place = np.searchsorted(keys, more)
    known = keys[np.minimum(place, len(keys) - 1)] == more
    counts[place[known]] += more_counts[known]
    new, place = ~known, place[~known]
    return np.insert(keys, place, more[new]), np.insert(counts, place, more_counts[new])


def make_groups(blocks: Sequence[Block]) -> list[list[Block]]:
    """Consecutive blocks of about _GROUP_CELLS cells together."""
    groups: list[list[Block]] = []
    size = _GROUP_CELLS
    for block in blocks:
        if size + block.cells > _GROUP_CELLS:
            groups.append([])
            size = 0
        groups[-1].append(block)
        size += block.cells
    return groups
