"""Plan what a model computes together: long pairs as windows, units of one size in a batch.

Knows lengths and ids as arrays. Does not know text, models or links.

A pair is padded to a size that depends on its own lengths alone, so its neighbours in a batch,
the budget and the number of threads never change the shape it is computed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..runtime.backends import pad_lengths
from ..types import Batch, IntArray, Pieces, Units, WordIds

Bools = npt.NDArray[np.bool_]

# A sentence of more pieces gets no links: one line must not hold up or fill the machine.
MAX_PIECES = 1 << 16

# ---- units ----


def find_too_long(src_lengths: IntArray, tgt_lengths: IntArray) -> Bools:
    """Tell which pairs are too long even for windows; they get no links."""
    return np.maximum(src_lengths, tgt_lengths) > MAX_PIECES


def plan_units(src_lengths: IntArray, tgt_lengths: IntArray, max_length: int) -> Units:
    """Plan the units of pairs with these numbers of pieces; none for pairs with an empty side."""
    usable = np.minimum(src_lengths, tgt_lengths) > 0
    usable &= ~find_too_long(src_lengths, tgt_lengths)
    pair = np.flatnonzero(usable)
    zero = np.zeros_like(pair)
    return plan_parts(
        np.stack([pair, zero, src_lengths[pair], zero, tgt_lengths[pair]], axis=1), max_length
    )


def plan_parts(parts: IntArray, max_length: int) -> Units:
    """Plan the units of parts of pairs: a window each, or several if a part is too long.

    Rows of `parts` are the pair's number, where the part begins and ends in the source, and where
    in the target.
    """
    pair, src_start, src_end, tgt_start, tgt_end = parts.T
    whole = np.maximum(src_end - src_start, tgt_end - tgt_start) <= max_length
    rows = [
        pair, src_start, src_end - src_start, tgt_start, tgt_end - tgt_start,
        src_start, src_end, tgt_start, tgt_end, np.ones_like(pair),
    ]  # fmt: skip
    tables = [np.stack(rows, axis=1)[whole]]
    tables += [_plan_windows(part, max_length) for part in parts[~whole].tolist()]
    table = np.concatenate(tables).astype(np.int64)
    pair, src_start, src_length, tgt_start, tgt_length = table.T[:5]
    own_src, own_tgt, by_src = table[:, 5:7], table[:, 7:9], table[:, 9] > 0
    several = np.bincount(pair, minlength=1)[pair] > 1
    return Units(
        pair, src_start, src_length, tgt_start, tgt_length, own_src, own_tgt, by_src, several
    )


def _plan_windows(part: list[int], size: int) -> IntArray:
    """Lay overlapping windows along the longer side, at most half a window apart.

    Each sees what lies around the same share of the other side. Columns are those of `plan_parts`.
    """
    # 100 source and 50 target pieces with windows of 80:
    #     source  0-80 and 20-100, of which the windows own 0-50 and 50-100 (halves of the overlap)
    #     target  0-50 for both (it fits as a whole), of which they own 0-25 and 25-50
    pair, src_first, src_end, tgt_first, tgt_end = part
    n_src, n_tgt = src_end - src_first, tgt_end - tgt_first
    by_src = n_src >= n_tgt
    long, short = (n_src, n_tgt) if by_src else (n_tgt, n_src)
    steps = -(-(long - size) // max(1, size // 2))
    starts = np.arange(steps + 1) * (long - size) // steps
    bounds = (starts[1:] + starts[:-1] + size) // 2  # the middle of each overlap
    own, short_own = _ranges_between(bounds, long), _ranges_between(bounds * short // long, short)
    width = min(short, size)
    spare = width - (short_own[:, 1] - short_own[:, 0])
    short_starts = np.clip(short_own[:, 0] - spare // 2, 0, short - width)
    sides = [
        (starts, np.full_like(starts, size), own),
        (short_starts, np.full_like(starts, width), short_own),
    ]
    (src_start, src_size, own_src), (tgt_start, tgt_size, own_tgt) = (
        sides if by_src else sides[::-1]
    )
    ones = np.ones_like(starts)
    return np.stack(
        [
            pair * ones, src_start + src_first, src_size, tgt_start + tgt_first, tgt_size,
            *(own_src + src_first).T, *(own_tgt + tgt_first).T, int(by_src) * ones,
        ],
        axis=1,
    )  # fmt: skip


def _ranges_between(bounds: IntArray, end: int) -> IntArray:
    """Return starts and ends (n + 1, 2) of what n bounds divide 0-end into."""
    every = np.concatenate([[0], bounds, [end]])
    return np.stack([every[:-1], every[1:]], axis=1)


# ---- batches ----


@dataclass(frozen=True)
class PlannedBatch:
    """A batch to be run: units (B,) that are padded to one size.

    Links of a `look` only tell where long pairs are split.
    """

    units: Units
    n_src: int  # S
    n_tgt: int  # T
    look: bool = False


def plan_batches(
    units: Units, tokens: int, grain: int = 1, look: bool = False
) -> list[PlannedBatch]:
    """Group units of one padded size (S, T) into batches, the largest sizes first.

    A batch has at most `tokens` places on its longer side, or one unit. Sizes are multiples of
    `grain`: the coarser it is, the fewer and larger the batches.
    """
    src, tgt = pad_lengths(units.src_length, grain), pad_lengths(units.tgt_length, grain)
    # Source sizes [8 4 8] and target sizes [4 4 4] make, with 100 as factor, keys [804 404 804]
    # and the order [0 2 1]: units 0 and 2 share a batch, unit 1 comes after them.
    key = src * (2 * MAX_PIECES) + tgt
    order = np.argsort(-key, kind="stable")
    units, src, tgt, key = units.select(order), src[order], tgt[order], key[order]
    bounds = [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(key)]
    found = []
    for start, end in pairwise(bounds if len(key) else []):
        n_src, n_tgt = int(src[start]), int(tgt[start])
        rows = max(1, tokens // max(n_src, n_tgt))
        for first in range(start, end, rows):
            part = units.select(slice(first, min(first + rows, end)))
            found.append(PlannedBatch(part, n_src, n_tgt, look))
    return found


def pack_batch(planned: PlannedBatch, src: Pieces, tgt: Pieces) -> Batch:
    """Gather the ids of a planned batch from the pieces of the chunk."""
    units = planned.units
    src_starts = src.offsets[units.pair] + units.src_start
    tgt_starts = tgt.offsets[units.pair] + units.tgt_start
    return Batch(
        _gather_rows(src.ids, src_starts, units.src_length, planned.n_src),
        units.src_length,
        _gather_rows(tgt.ids, tgt_starts, units.tgt_length, planned.n_tgt),
        units.tgt_length,
    )


def _gather_rows(
    values: npt.NDArray[np.int32], starts: IntArray, lengths: IntArray, size: int
) -> npt.NDArray[np.int32]:
    """Return rows (B, size) of the values that begin at `starts`, with 0 behind their lengths."""
    column = np.arange(size)
    places = starts[:, None] + column
    rows = values.take(places, mode="clip")  # with what follows behind each sentence
    rows[column >= lengths[:, None]] = 0
    return rows


def find_own_targets(units: Units, n_tgt: int, *, shared: bool = True) -> Bools:
    """Tell which target places (B, T) count for their unit; padding does not.

    Along the side that windows run along, only those that the unit owns. On the other side all
    (`shared`), or again only its own.
    """
    columns = np.arange(n_tgt)
    place = units.tgt_start[:, None] + columns
    found = (units.own_tgt[:, :1] <= place) & (place < units.own_tgt[:, 1:])
    if shared:
        found |= units.by_src[:, None]
    return np.asarray(found & (columns < units.tgt_length[:, None]))


def find_word_ids(planned: PlannedBatch, src: Pieces, tgt: Pieces) -> WordIds:
    """Find the words that the pieces of a batch belong to."""
    src_words = _target_word_ids(planned.units.swap_sides(), src, planned.n_src)
    tgt_words = _target_word_ids(planned.units, tgt, planned.n_tgt)
    spans = [_longest_run(src_words), _longest_run(tgt_words)]
    return WordIds(src_words, tgt_words, np.stack(spans, axis=1).astype(np.int32))


def _target_word_ids(units: Units, tgt: Pieces, n_tgt: int) -> npt.NDArray[np.int32]:
    starts = tgt.offsets[units.pair] + units.tgt_start
    rows = _gather_rows(tgt.words, starts, units.tgt_length, n_tgt)
    rows[~find_own_targets(units, n_tgt)] = -1
    return rows


def _longest_run(rows: npt.NDArray[np.int32]) -> IntArray:
    """Return how often the most repeated number of each row stands there in a row, -1 not counted.

    It is for words, whose pieces stand together.
    """
    # In [3 3 4 -1] the run of each place began at [0 0 2 3] and has [1 2 1 0] members by then.
    new = np.ones(rows.shape, bool)
    new[:, 1:] = rows[:, 1:] != rows[:, :-1]
    column = np.arange(rows.shape[1])
    start = np.maximum.accumulate(np.where(new, column, 0), axis=1)
    return np.asarray(np.where(rows >= 0, column - start + 1, 0).max(axis=1, initial=0))
