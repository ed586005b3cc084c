"""Which pieces are computed together: long pairs cut into windows, pairs of one size in a batch.
Knows lengths and ids as arrays; text, models and links are the matter of others.

A pair is padded to a size that depends on its own lengths alone, so its neighbours in a batch,
the budget and the number of threads never change the shape it is computed in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..types import Batch, IntArray, Pieces, Units, WordIds

# A sentence of more pieces gets no links: one line must not hold up or fill the machine.
MAX_PIECES = 1 << 16


# ---- windows ----


def too_long(src_lengths: IntArray, tgt_lengths: IntArray) -> npt.NDArray[np.bool_]:
    """Pairs beyond what is aligned even in windows; they get no links."""
    return np.maximum(src_lengths, tgt_lengths) > MAX_PIECES


def plan(src_lengths: IntArray, tgt_lengths: IntArray, max_length: int) -> Units:
    """Units of pairs with these numbers of pieces; none for pairs with an empty side."""
    usable = (np.minimum(src_lengths, tgt_lengths) > 0) & ~too_long(src_lengths, tgt_lengths)
    pair = np.flatnonzero(usable)
    zero = np.zeros_like(pair)
    return plan_parts(
        np.stack([pair, zero, src_lengths[pair], zero, tgt_lengths[pair]], axis=1), max_length
    )


def plan_parts(parts: IntArray, max_length: int) -> Units:
    """Units of parts of pairs: rows of the pair's number, where the part begins and ends in the
    source and where in the target."""
    pair, src_start, src_end, tgt_start, tgt_end = parts.T
    whole = np.maximum(src_end - src_start, tgt_end - tgt_start) <= max_length
    rows = [
        pair, src_start, src_end - src_start, tgt_start, tgt_end - tgt_start,
        src_start, src_end, tgt_start, tgt_end, np.ones_like(pair),
    ]  # fmt: skip
    tables = [np.stack(rows, axis=1)[whole]]
    tables += [_windows(part, max_length) for part in parts[~whole].tolist()]
    table = np.concatenate(tables).astype(np.int64)
    pair, src_start, src_length, tgt_start, tgt_length = table.T[:5]
    own_src, own_tgt, by_src = table[:, 5:7], table[:, 7:9], table[:, 9] > 0
    several = np.bincount(pair, minlength=1)[pair] > 1
    return Units(
        pair, src_start, src_length, tgt_start, tgt_length, own_src, own_tgt, by_src, several
    )


def _windows(part: list[int], size: int) -> IntArray:
    """Overlapping windows along the longer side, half a window apart, each with what lies around
    the same share of the other side."""
    pair, src_first, src_end, tgt_first, tgt_end = part
    n_src, n_tgt = src_end - src_first, tgt_end - tgt_first
    by_src = n_src >= n_tgt
    long, short = (n_src, n_tgt) if by_src else (n_tgt, n_src)
    steps = -(-(long - size) // max(1, size // 2))
    starts = np.arange(steps + 1) * (long - size) // steps
    cuts = (starts[1:] + starts[:-1] + size) // 2  # the middle of each overlap
    own, short_own = _between(cuts, long), _between(cuts * short // long, short)
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


def _between(cuts: IntArray, end: int) -> IntArray:
    bounds = np.concatenate([[0], cuts, [end]])
    return np.stack([bounds[:-1], bounds[1:]], axis=1)


# ---- batches ----


def padded(lengths: IntArray) -> IntArray:
    """The size a sentence is padded to: multiples of 4, of 8 above 64, of 16 above 128."""
    step = np.where(lengths <= 64, 4, np.where(lengths <= 128, 8, 16))
    return -(-lengths // step) * step


def batches(units: Units, tokens: int, grain: int = 1) -> Iterator[tuple[IntArray, int, int]]:
    """Places of units of one padded size (S, T), which has at most `tokens` places on its longer
    side, or one unit; the largest sizes first. Sizes are multiples of `grain`: the coarser it is,
    the fewer and larger the batches."""
    src, tgt = (
        -(-padded(lengths) // grain) * grain for lengths in (units.src_length, units.tgt_length)
    )
    key = src * (2 * MAX_PIECES) + tgt
    order = np.argsort(-key, kind="stable")
    key = key[order]
    ends = np.append(np.flatnonzero(np.diff(key)) + 1, len(key)).tolist()
    start = 0
    for end in ends if len(key) else []:
        n_src, n_tgt = int(src[order[start]]), int(tgt[order[start]])
        rows = max(1, tokens // max(n_src, n_tgt))
        for first in range(start, end, rows):
            yield order[first : min(first + rows, end)], n_src, n_tgt
        start = end


def pack(units: Units, places: IntArray, n_src: int, n_tgt: int, src: Pieces, tgt: Pieces) -> Batch:
    """The ids of these units, padded to (n_src, n_tgt)."""
    pair = units.pair[places]
    src_lengths, tgt_lengths = units.src_length[places], units.tgt_length[places]
    return Batch(
        places,
        _rows(src.ids, src.offsets[pair] + units.src_start[places], src_lengths, n_src),
        src_lengths,
        _rows(tgt.ids, tgt.offsets[pair] + units.tgt_start[places], tgt_lengths, n_tgt),
        tgt_lengths,
    )


def _rows(
    ids: npt.NDArray[np.int32], starts: IntArray, lengths: IntArray, size: int
) -> npt.NDArray[np.int32]:
    column = np.arange(size)
    places = starts[:, None] + column
    rows = ids.take(places, mode="clip")  # (B, size), with strangers behind each sentence
    rows[column >= lengths[:, None]] = 0
    return rows


def word_ids(units: Units, batch: Batch, src: Pieces, tgt: Pieces) -> WordIds:
    """The words that the pieces of a batch belong to."""
    pair, by_src = units.pair[batch.units], units.by_src[batch.units]
    sides = [
        (src, units.src_start, batch.src_lengths, units.own_src, by_src, batch.src.shape[1]),
        (tgt, units.tgt_start, batch.tgt_lengths, units.own_tgt, ~by_src, batch.tgt.shape[1]),
    ]
    words, spans = [], []
    for pieces, starts, lengths, own, counts, size in sides:
        first = starts[batch.units]
        rows = _rows(pieces.words, pieces.offsets[pair] + first, lengths, size)
        place = first[:, None] + np.arange(size)
        owned = (own[batch.units, :1] <= place) & (place < own[batch.units, 1:])
        inside = np.arange(size) < lengths[:, None]
        rows[~inside | (counts[:, None] & ~owned)] = -1
        words.append(rows)
        spans.append(_longest_run(rows))
    return WordIds(words[0], words[1], np.stack(spans, axis=1).astype(np.int32))


def _longest_run(rows: npt.NDArray[np.int32]) -> IntArray:
    """How often the most repeated number of each row stands there in a row, -1 not counted."""
    new = np.ones(rows.shape, bool)
    new[:, 1:] = rows[:, 1:] != rows[:, :-1]
    column = np.arange(rows.shape[1])
    start = np.maximum.accumulate(np.where(new, column, 0), axis=1)
    return np.asarray(np.where(rows >= 0, column - start + 1, 0).max(axis=1, initial=0))
