"""Decode a model's weights into word links: which pieces are linked, and the words they belong to.

Knows arrays of scores and the word of each piece. Does not run models or write lines.

A word link has the highest score of its piece links; all arrays of links are sorted by pair,
source word, target word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..bundle.bundle import Bundle
from ..bundle.manifest import OptimizeFor
from ..errors import MxError
from ..links.heuristics import JOIN_METHODS, join_links
from ..types import Floats, IntArray, Links, PackedLinks, Pieces, Units
from .batching import find_own_targets

SOFT = "soft"
# Cells outside the sentences are 0 and must not be links.
LEAST_THRESHOLD = float(np.finfo(np.float32).tiny)
MODES = (SOFT, "forward", "backward", *JOIN_METHODS)
# What is needed of the model for each kind of links.
_OUTPUTS = {SOFT: ["scores"], "forward": ["fwd", "fwd_null"], "backward": ["bwd", "bwd_null"]}


@dataclass(frozen=True)
class LinkRule:
    """How links are chosen. `threshold` None, possible for directions, means: better than NULL."""

    mode: str = SOFT
    threshold: float | None = 0.2
    sure: float = 1.0  # lowest score of a sure link
    nulls: bool = False  # whether NULL weights are wanted, too

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of links that are found: soft ones, or those of one direction or both."""
        return (self.mode,) if self.mode in _OUTPUTS else ("forward", "backward")

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs of the model that are needed."""
        needed = [name for kind in self.kinds for name in _OUTPUTS[kind]]
        needed += ["fwd_null", "bwd_null"] if self.nulls else []
        return tuple(dict.fromkeys(needed))


def make_rule(
    bundle: Bundle | None,
    mode: str,
    threshold: float | None,
    optimize_for: OptimizeFor,
    nulls: bool,
) -> LinkRule:
    """Return how links are chosen, in the model's terms; checks mode and threshold."""
    if mode not in MODES:
        raise MxError(f"no symmetrization {mode!r}; there are {', '.join(MODES)}")
    if threshold is not None and not 0 < threshold <= 1:
        raise MxError(f"the threshold must be above 0 and at most 1, not {threshold}")
    if bundle is None:
        return LinkRule(mode, threshold, nulls=nulls)
    if mode == SOFT:
        threshold = max(threshold or bundle.threshold(optimize_for), LEAST_THRESHOLD)
    return LinkRule(mode, threshold, bundle.threshold("precision"), nulls)


@dataclass(frozen=True)
class PieceLinks:
    """Links between pieces, which are named by their places in their sentences."""

    pair: IntArray
    src: IntArray
    tgt: IntArray
    score: Floats

    def select(self, wanted: IntArray) -> PieceLinks:
        """Return the links at these places, in their order."""
        return PieceLinks(*(column[wanted] for column in vars(self).values()))


@dataclass(frozen=True)
class PieceNulls:
    """NULL weights of single pieces of one side."""

    pair: IntArray
    place: IntArray
    weight: Floats


@dataclass(frozen=True)
class BatchLinks:
    """What one batch says about its pairs, before words are looked at."""

    links: tuple[PieceLinks, ...]  # one for each of the rule's kinds
    src_null: PieceNulls | None = None
    tgt_null: PieceNulls | None = None


# ---- pieces ----


def find_piece_links(rule: LinkRule, outputs: Mapping[str, Floats], units: Units) -> BatchLinks:
    """Find the piece links of the units of a batch in the model's outputs."""
    links = []
    if SOFT in rule.kinds:
        links.append(_find_soft(outputs["scores"], rule.threshold, units))
    if "forward" in rule.kinds:
        links.append(_find_best(outputs["fwd"], outputs["fwd_null"], rule.threshold, units))
    if "backward" in rule.kinds:
        bwd, null = outputs["bwd"].transpose(0, 2, 1), outputs["bwd_null"]
        found = _find_best(bwd, null, rule.threshold, units.swap_sides())
        links.append(replace(found, src=found.tgt, tgt=found.src))
    if not rule.nulls:
        return BatchLinks(tuple(links))
    src_null = _find_nulls(outputs["bwd_null"], units.swap_sides())
    return BatchLinks(tuple(links), src_null, tgt_null=_find_nulls(outputs["fwd_null"], units))


def unpack_links(packed: PackedLinks, units: Units) -> BatchLinks:
    """Place links that a GPU found in their sentences, between the first pieces of their words."""
    # Two pairs with counts [2 1] at starts [5 0] have row [0 0 1] and order [5 6 0].
    counts = packed.counts
    row = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    order = np.repeat(packed.starts - before, counts) + np.arange(len(row))
    links = PieceLinks(
        units.pair[row],
        packed.src[order] + units.src_start[row],
        packed.tgt[order] + units.tgt_start[row],
        packed.scores[order],
    )
    return BatchLinks((links,))


def _find_soft(scores: Floats, threshold: float | None, units: Units) -> PieceLinks:
    """Find the cells of (B, S, T) that reach the threshold and that their unit owns."""
    _, n_src, n_tgt = scores.shape
    # In the scores' own type: every machine must make the same comparison. A flat search and two
    # divisions take 30 us for 36 pairs of 28 pieces, `nonzero` over three axes 105.
    flat = np.flatnonzero(scores >= scores.dtype.type(threshold))
    row, cell = np.divmod(flat, n_src * n_tgt)
    src, tgt = np.divmod(cell, n_tgt)
    score = scores.reshape(-1)[flat].astype(np.float32)
    if not units.window.any():
        return PieceLinks(units.pair[row], src, tgt, score)
    links = PieceLinks(
        units.pair[row], src + units.src_start[row], tgt + units.tgt_start[row], score
    )
    by_src = units.by_src[row]
    place = np.where(by_src, links.src, links.tgt)
    own = np.where(by_src[:, None], units.own_src[row], units.own_tgt[row])
    return links.select(np.flatnonzero((own[:, 0] <= place) & (place < own[:, 1])))


def _find_best(weights: Floats, null: Floats, threshold: float | None, units: Units) -> PieceLinks:
    """Find the best source piece of each target piece, where it beats NULL or the threshold.

    Weights are (B, S, T), NULL weights (B, T).
    """
    _, n_src, n_tgt = weights.shape
    own_sources = find_own_targets(units.swap_sides(), n_src)
    masked = np.where(own_sources[:, :, None], weights, -1)
    src = masked.argmax(axis=1)  # (B, T)
    score = np.take_along_axis(masked, src[:, None], axis=1)[:, 0]
    enough = score > null if threshold is None else score >= score.dtype.type(threshold)
    row, tgt = np.nonzero(enough & find_own_targets(units, n_tgt))
    return PieceLinks(
        units.pair[row],
        src[row, tgt] + units.src_start[row],
        tgt + units.tgt_start[row],
        score[row, tgt].astype(np.float32),
    )


def _find_nulls(null: Floats, units: Units) -> PieceNulls:
    """Return the NULL weights (B, T) of the target pieces that each unit owns."""
    row, tgt = np.nonzero(find_own_targets(units, null.shape[1], shared=False))
    weights = null[row, tgt].astype(np.float32)
    return PieceNulls(units.pair[row], tgt + units.tgt_start[row], weights)


# ---- words ----


def link_words(rule: LinkRule, found: list[BatchLinks], src: Pieces, tgt: Pieces) -> Links:
    """Return the word links of a chunk, from what was found in all of its batches."""
    empty = np.zeros(0, np.int64)
    nothing = PieceLinks(empty, empty, empty, np.zeros(0, np.float32))  # if there were no batches
    pooled = []
    for place, kind in enumerate(rule.kinds):
        parts = [nothing, *(batch.links[place] for batch in found)]
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        every = PieceLinks(*map(np.concatenate, columns))
        if kind != SOFT:
            every = _keep_best_partner(every, of_targets=kind == "forward")
        pooled.append(_pool_pieces(every, src, tgt, rule.sure))
    links = pooled[0] if len(pooled) == 1 else join_links(rule.mode, *pooled)
    if not rule.nulls:
        return links
    return replace(
        links,
        src_null=_pool_nulls([batch.src_null for batch in found], src),
        tgt_null=_pool_nulls([batch.tgt_null for batch in found], tgt),
    )


def join_parts(parts: Sequence[Links]) -> Links:
    """Return the links of consecutive groups of pairs as those of all of them."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.src) for part in parts)])
    offsets = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
    columns = ("src", "tgt", "score", "sure", "src_null", "tgt_null")
    found = {name: [getattr(part, name) for part in parts] for name in columns}
    joined: dict[str, Any] = {
        name: None if of[0] is None else np.concatenate(of) for name, of in found.items()
    }
    return Links(np.concatenate([[0], *offsets]), **joined)


def _keep_best_partner(links: PieceLinks, of_targets: bool) -> PieceLinks:
    """Keep one source piece per target piece, or one target piece per source piece.

    In one window a piece has one partner already; overlapping windows may disagree.
    """
    one, many = (links.tgt, links.src) if of_targets else (links.src, links.tgt)
    order = np.lexsort((many, -links.score, one, links.pair))
    pair, one = links.pair[order], one[order]
    first = np.ones(len(pair), bool)
    first[1:] = (pair[1:] != pair[:-1]) | (one[1:] != one[:-1])
    return links.select(order[first])


def _pool_pieces(links: PieceLinks, src: Pieces, tgt: Pieces, sure: float) -> Links:
    """Return word links: each pair of words once, with the highest score of its pieces."""
    src_word = src.words[src.offsets[links.pair] + links.src]
    tgt_word = tgt.words[tgt.offsets[links.pair] + links.tgt]
    # Pair, source word and target word become one number whose order is theirs, so a single sort
    # brings links of the same words together. A sentence has fewer than 2^20 words, a chunk fewer
    # than 2^23 pairs. With 10 in place of 2^20, links 1-2, 0-0, 1-2 of pair 0 with scores .5 .9 .7:
    #     key     [12 0 12], sorted [0 12 12] with scores [.9 .5 .7]
    #     starts  [0 1], so that keys are [0 12], scores [.9 .7] and offsets [0 2]
    key = (links.pair << 40) | (src_word.astype(np.int64) << 20) | tgt_word
    order = np.argsort(key, kind="stable")
    key = key[order]
    score = links.score[order]
    new = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    if len(starts) < len(key):
        score = np.maximum.reduceat(score, starts)
        key = key[starts]
    offsets = np.searchsorted(key, np.arange(len(src.n_words) + 1) << 40)
    mask = (1 << 20) - 1
    return Links(offsets, (key >> 20) & mask, key & mask, score, score >= np.float32(sure))


def _pool_nulls(parts: list[PieceNulls | None], side: Pieces) -> Floats:
    """Return the NULL weights of words: the lowest of their pieces.

    A word is unlinked only if all its pieces are. Words the model did not see, as in a pair with
    an empty side, can have no partner: 1.
    """
    weights = np.ones(len(side.ids), np.float32)
    for part in parts:
        if part is not None:
            weights[side.offsets[part.pair] + part.place] = part.weight
    new = np.ones(len(weights), bool)
    new[1:] = side.words[1:] != side.words[:-1]
    new[side.offsets[:-1][np.diff(side.offsets) > 0]] = True
    starts = np.flatnonzero(new)
    return np.minimum.reduceat(weights, starts) if len(starts) else weights
