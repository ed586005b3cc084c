"""Weights to word links: which pieces are linked, and the word links that follow from them.
Knows arrays of scores and the word of each piece; running models and writing lines are others'.

A word link has the highest score of its piece links; all arrays of links are sorted by pair,
source word, target word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..links.heuristics import METHODS, symmetrize
from ..types import Batch, Floats, IntArray, Links, PackedLinks, Pieces, Units

SOFT = "soft"
MODES = (SOFT, "forward", "backward", *METHODS)


@dataclass(frozen=True)
class Hits:
    """Piece links (places in their sentences) of one kind."""

    pair: IntArray
    src: IntArray
    tgt: IntArray
    score: Floats


@dataclass(frozen=True)
class Nulls:
    """NULL weights of single pieces of one side."""

    pair: IntArray
    place: IntArray
    weight: Floats


@dataclass(frozen=True)
class Found:
    """What one batch says about its pairs, before words are looked at."""

    hits: tuple[Hits, ...]  # one, or forward and backward
    src_null: Nulls | None
    tgt_null: Nulls | None


@dataclass(frozen=True)
class Rule:
    """How links are chosen. `threshold` None, possible for directions, means: better than NULL."""

    mode: str = SOFT
    threshold: float | None = 0.2
    sure: float = 1.0
    nulls: bool = False

    @property
    def links_alone(self) -> bool:
        """Whether the soft links are all that is needed of a batch."""
        return self.mode == SOFT and not self.nulls

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs of the model that are needed."""
        if self.mode == SOFT:
            needed = ["scores"]
        else:
            fwd, bwd = ["fwd", "fwd_null"], ["bwd", "bwd_null"]
            needed = {"forward": fwd, "backward": bwd}.get(self.mode, fwd + bwd)
        if self.nulls:
            needed += ["fwd_null", "bwd_null"]
        return tuple(dict.fromkeys(needed))


# ---- pieces ----


def find(rule: Rule, outputs: Mapping[str, Floats], units: Units, batch: Batch) -> Found:
    """The piece links of a batch."""
    window = bool(units.window[batch.units].any())
    hits = []
    if rule.mode == SOFT:
        hits.append(_soft(outputs["scores"], rule.threshold, units, batch, window))
    if rule.mode not in (SOFT, "backward"):
        weights, null = outputs["fwd"], outputs["fwd_null"]
        hits.append(_best(weights, null, rule.threshold, units, batch))
    if rule.mode not in (SOFT, "forward"):
        weights, null = outputs["bwd"].transpose(0, 2, 1), outputs["bwd_null"]
        hits.append(_swapped(_best(weights, null, rule.threshold, _flipped(units), _turned(batch))))
    src_null = tgt_null = None
    if rule.nulls:
        tgt_null = _nulls(outputs["fwd_null"], units, batch)
        src_null = _nulls(outputs["bwd_null"], _flipped(units), _turned(batch))
    return Found(tuple(hits), src_null, tgt_null)


def placed(packed: PackedLinks, units: Units, batch: Batch) -> Found:
    """The same for links that a GPU found: each stands between the first pieces of its words."""
    counts = packed.counts
    row = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    order = np.repeat(packed.starts - before, counts) + np.arange(len(row))
    unit = batch.units[row]
    hits = Hits(
        units.pair[unit],
        packed.src[order] + units.src_start[unit],
        packed.tgt[order] + units.tgt_start[unit],
        packed.scores[order],
    )
    return Found((hits,), None, None)


def _soft(
    scores: Floats, threshold: float | None, units: Units, batch: Batch, window: bool
) -> Hits:
    # In the scores' own type: every machine must make the same comparison.
    _, n_src, n_tgt = scores.shape
    flat = np.flatnonzero(scores >= scores.dtype.type(threshold))
    row, cell = np.divmod(flat, n_src * n_tgt)
    src, tgt = np.divmod(cell, n_tgt)
    score = scores.reshape(-1)[flat].astype(np.float32)
    unit = batch.units[row]
    if window:
        src, tgt = src + units.src_start[unit], tgt + units.tgt_start[unit]
        own = _owned(units, unit, src, tgt)
        unit, src, tgt, score = unit[own], src[own], tgt[own], score[own]
    return Hits(units.pair[unit], src, tgt, score)


def _owned(units: Units, unit: IntArray, src: IntArray, tgt: IntArray) -> npt.NDArray[np.bool_]:
    by_src = units.by_src[unit]
    place = np.where(by_src, src, tgt)
    own = np.where(by_src[:, None], units.own_src[unit], units.own_tgt[unit])
    return np.asarray((own[:, 0] <= place) & (place < own[:, 1]))


def _best(
    weights: Floats, null: Floats, threshold: float | None, units: Units, batch: Batch
) -> Hits:
    """The best source piece of each target piece, where it beats NULL or reaches the threshold."""
    _, n_src, n_tgt = weights.shape
    unit = batch.units
    src_places = units.src_start[unit][:, None] + np.arange(n_src)  # (B, S)
    inside = np.arange(n_src) < batch.src_lengths[:, None]
    own = (units.own_src[unit, :1] <= src_places) & (src_places < units.own_src[unit, 1:])
    rows = inside & (own | ~units.by_src[unit][:, None])
    masked = np.where(rows[:, :, None], weights, -1)
    src = masked.argmax(axis=1)  # (B, T)
    score = np.take_along_axis(masked, src[:, None], axis=1)[:, 0]
    enough = score > null if threshold is None else score >= score.dtype.type(threshold)
    tgt_places = units.tgt_start[unit][:, None] + np.arange(n_tgt)
    own = (units.own_tgt[unit, :1] <= tgt_places) & (tgt_places < units.own_tgt[unit, 1:])
    own |= units.by_src[unit][:, None]
    row, tgt = np.nonzero(enough & own & (np.arange(n_tgt) < batch.tgt_lengths[:, None]))
    return Hits(
        units.pair[unit[row]],
        src[row, tgt] + units.src_start[unit[row]],
        tgt + units.tgt_start[unit[row]],
        score[row, tgt].astype(np.float32),
    )


def _nulls(null: Floats, units: Units, batch: Batch) -> Nulls:
    """NULL weights of the target pieces each unit owns."""
    unit = batch.units
    place = units.tgt_start[unit][:, None] + np.arange(null.shape[1])
    own = (units.own_tgt[unit, :1] <= place) & (place < units.own_tgt[unit, 1:])
    row, tgt = np.nonzero(own & (np.arange(null.shape[1]) < batch.tgt_lengths[:, None]))
    return Nulls(units.pair[unit[row]], place[row, tgt], null[row, tgt].astype(np.float32))


def _flipped(units: Units) -> Units:
    """The same units seen from the other language."""
    return Units(
        units.pair, units.tgt_start, units.tgt_length, units.src_start, units.src_length,
        units.own_tgt, units.own_src, ~units.by_src, units.window,
    )  # fmt: skip


def _turned(batch: Batch) -> Batch:
    return Batch(batch.units, batch.tgt, batch.tgt_lengths, batch.src, batch.src_lengths)


def _swapped(hits: Hits) -> Hits:
    return Hits(hits.pair, hits.tgt, hits.src, hits.score)


# ---- words ----


def link(rule: Rule, found: list[Found], src: Pieces, tgt: Pieces) -> Links:
    """Word links of a chunk, from what was found in all of its batches."""
    empty = np.zeros(0, np.int64)
    # Even without batches there is one kind of hits, which is empty.
    nothing = Hits(empty, empty, empty, np.zeros(0, np.float32))
    kinds = zip(*(part.hits for part in found), strict=True) if found else [(nothing,)]
    hits = [Hits(*_concatenated(kind)) for kind in kinds]
    if rule.mode != SOFT:
        hits = _unique(rule, hits)
    pooled = [_pool(part, src, tgt, rule.sure) for part in hits]
    links = pooled[0] if len(pooled) == 1 else _joined(rule.mode, *pooled)
    if not rule.nulls:
        return links
    return replace(
        links,
        src_null=_word_nulls([part.src_null for part in found], src),
        tgt_null=_word_nulls([part.tgt_null for part in found], tgt),
    )


def _concatenated(parts: Iterable[Hits] | Iterable[Nulls]) -> list[npt.NDArray[Any]]:
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return [np.concatenate(column) for column in columns]


def _unique(rule: Rule, hits: list[Hits]) -> list[Hits]:
    """One source piece per target piece forward, one target piece per source piece backward."""
    directions = ["forward", "backward"] if len(hits) == 2 else [rule.mode]
    kept = []
    for direction, part in zip(directions, hits, strict=True):
        one, many = (part.tgt, part.src) if direction == "forward" else (part.src, part.tgt)
        order = np.lexsort((many, -part.score, one, part.pair))
        pair, one = part.pair[order], one[order]
        first = np.ones(len(pair), bool)
        first[1:] = (pair[1:] != pair[:-1]) | (one[1:] != one[:-1])
        kept.append(Hits(*(column[order[first]] for column in vars(part).values())))
    return kept


def _pool(hits: Hits, src: Pieces, tgt: Pieces, sure: float) -> Links:
    """Word links: each pair of words once, with the highest score of its pieces."""
    src_word = src.words[src.offsets[hits.pair] + hits.src]
    tgt_word = tgt.words[tgt.offsets[hits.pair] + hits.tgt]
    # A sentence has fewer than 2^20 words, a chunk fewer than 2^23 pairs.
    key = (hits.pair << 40) | (src_word.astype(np.int64) << 20) | tgt_word
    order = np.argsort(key, kind="stable")
    key = key[order]
    score = hits.score[order]
    new = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    if len(starts) < len(key):
        score = np.maximum.reduceat(score, starts)
        key = key[starts]
    offsets = np.searchsorted(key, np.arange(len(src.n_words) + 1) << 40)
    mask = (1 << 20) - 1
    return Links(offsets, (key >> 20) & mask, key & mask, score, score >= np.float32(sure))


def _word_nulls(parts: list[Nulls | None], side: Pieces) -> Floats:
    """Of a word the lowest of its pieces: it is unlinked only if all of them are. Words the model
    did not see, as in a pair with an empty side, can have no partner: 1."""
    weights = np.ones(len(side.ids), np.float32)
    for part in parts:
        if part is not None:
            weights[side.offsets[part.pair] + part.place] = part.weight
    new = np.ones(len(weights), bool)
    new[1:] = side.words[1:] != side.words[:-1]
    new[side.offsets[:-1][np.diff(side.offsets) > 0]] = True
    starts = np.flatnonzero(new)
    return np.minimum.reduceat(weights, starts) if len(starts) else weights


def _joined(method: str, fwd: Links, bwd: Links) -> Links:
    """Both directions of each pair, by a classic heuristic. A link's score is the higher of the
    two directions'; it is sure if both have it."""
    counts, rows = [], []
    for k in range(len(fwd.offsets) - 1):
        first, second = _scores(fwd, k), _scores(bwd, k)
        links = symmetrize(method, first.keys(), second.keys())
        counts.append(len(links))
        for one in links:
            a, b = first.get(one, 0.0), second.get(one, 0.0)
            rows.append((*one, max(a, b), one in first and one in second))
    src, tgt, score, sure = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Links(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array(src, np.int64),
        np.array(tgt, np.int64),
        np.array(score, np.float32),
        np.array(sure, bool),
    )


def _scores(links: Links, k: int) -> dict[tuple[int, int], float]:
    part = slice(int(links.offsets[k]), int(links.offsets[k + 1]))
    keys = zip(links.src[part].tolist(), links.tgt[part].tolist(), strict=True)
    return dict(zip(keys, links.score[part].tolist(), strict=True))
