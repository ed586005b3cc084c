"""What the statistical aligner has learned, and the links that follow from it for any text.

Does not learn and does not read files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..links.heuristics import JOIN_METHODS, join_links
from ..types import Floats, IntArray, Links, Pairs
from . import blocks
from .blocks import Ints, PairBlock, SentenceIds, Vocabulary
from .hmm import HmmPair
from .settings import LearningSettings
from .spelling import SpellingPrior, number_prefixes

# What an impossible translation is worth: small, yet a forced path stays finite.
LEAST_PROBABILITY = 1e-8
# What makes a link likely, and how often links grow from likely ones, in `score_links`. Chosen on
# the golds of 14 languages and the En-Fr and Ja-En dev sets: 0.35 to 0.45, and 1 to 3, differ by
# 0.05 AER on average.
_LIKELY, _GROWING = 0.4, 2
# Both directions together, as models do it; the other modes are those of `links.heuristics`.
SOFT = "soft"
MODES = (SOFT, "forward", "backward", *JOIN_METHODS)

Sides = tuple[SentenceIds, SentenceIds]


@dataclass
class StatisticalModel:
    """Translation probabilities of the pairs of words that were linked, and what else is needed
    to link any text of the same languages."""

    settings: LearningSettings
    src_words: list[str]
    tgt_words: list[str]
    keys: Ints  # sorted pairs of word ids that were linked
    fwd: Floats  # (keys,) target word given source word
    bwd: Floats
    src_totals: npt.NDArray[np.float64]  # (source words,) counts that fwd was divided by
    tgt_totals: npt.NDArray[np.float64]
    n_learned: int  # pairs it learned from
    prior: SpellingPrior
    hmms: HmmPair

    @cached_property
    def digest(self) -> str:
        """What tells apart models that were learned from different texts."""
        found = hashlib.blake2b(digest_size=16)
        for values in (self.keys, self.fwd, self.bwd):
            found.update(np.ascontiguousarray(values).data)
        return found.hexdigest()

    @cached_property
    def _word_ids(self) -> list[dict[str, int]]:
        both = (self.src_words, self.tgt_words)
        return [{word: number for number, word in enumerate(words)} for words in both]

    @cached_property
    def _prefixes(self) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for words in (self.src_words, self.tgt_words):
            number_prefixes(words, self.settings.prefix_length, numbers)
        return numbers

    def find_links(
        self, pairs: Pairs, threshold: float, *, mode: str = SOFT, nulls: bool = False
    ) -> Links:
        """Return the links of each pair, sorted; a pair has none if a side is empty or too long
        (`make_blocks`).

        Args:
            threshold: lowest confidence of a soft link (`score_links`). A link is sure if both
                directions take it for more likely than not.
            mode: "soft"; "forward": each target word with its most likely source word, unless the
                empty word is more likely; "backward"; or a way to join these two.
            nulls: also give the probability that a word has no counterpart.
        """
        return self.find_modes(pairs, threshold, {mode}, nulls=nulls)[mode]

    def find_modes(
        self, pairs: Pairs, threshold: float, modes: Set[str], *, nulls: bool = False
    ) -> dict[str, Links]:
        """Return the links of each mode, all found in one pass."""
        sides, posteriors = self._open_pairs(pairs)
        kinds = {
            kind
            for mode in modes
            for kind in ((mode,) if mode in MODES[:3] else ("forward", "backward"))
        }
        found = {kind: _FoundLinks(sides, nulls) for kind in kinds}
        for block, p, q in posteriors:
            empty = np.maximum(1 - p.sum(2), 0), np.maximum(1 - q.sum(0), 0)  # (T, B), (B, S)
            for kind, links in found.items():
                if kind == SOFT:
                    score = score_links(p, q)
                    marks = score >= threshold
                else:
                    score, axis = (p, 2) if kind == "forward" else (q, 0)
                    marks = _mark_best(score, axis, empty[kind != "forward"])
                links.add_links(block, marks, score, np.minimum(p, q) > 0.5)
                links.add_nulls(block, *empty)
        links_of = {kind: links.sort_links() for kind, links in found.items()}
        for mode in modes - kinds:
            joined = join_links(mode, links_of["forward"], links_of["backward"])
            empty_words = links_of["forward"].src_null, links_of["forward"].tgt_null
            links_of[mode] = replace(joined, src_null=empty_words[0], tgt_null=empty_words[1])
        return links_of

    def _open_pairs(self, pairs: Pairs) -> tuple[Sides, Iterator[tuple[PairBlock, Floats, Floats]]]:
        """Return the words of the pairs, and for each block of them the posteriors of the links by
        fwd and by bwd, (T, B, S)."""
        src, tgt = (Vocabulary(self.settings.lowercase, known) for known in self._word_ids)
        sides = blocks.encode_sentences(pairs.src, src), blocks.encode_sentences(pairs.tgt, tgt)
        model = self._add_words(src.new_words, tgt.new_words)

        def compute_posteriors() -> Iterator[tuple[PairBlock, Floats, Floats]]:
            for group in blocks.make_blocks(*sides):
                # Look each pair of words up once, not in every cell where it stands.
                keys, place = np.unique(blocks.cell_keys(group, *sides), return_inverse=True)
                fwd, bwd = model.translations(keys)
                for block, cells in blocks.cells_by_block(group, place):
                    yield block, *self.hmms.link_posteriors(block, sides, (fwd[cells], bwd[cells]))

        return sides, compute_posteriors()

    def number_words(
        self, src_words: Sequence[str], tgt_words: Sequence[str]
    ) -> tuple[StatisticalModel, Ints, Ints]:
        """Return the model with these words added where it has not met them, and their numbers."""
        src, tgt = (Vocabulary(self.settings.lowercase, known) for known in self._word_ids)
        both = ((src_words, src), (tgt_words, tgt))
        left, right = (np.array([known[word] for word in words], np.int64) for words, known in both)
        return self._add_words(src.new_words, tgt.new_words), left, right

    def _add_words(self, new_src: Sequence[str], new_tgt: Sequence[str]) -> StatisticalModel:
        """Return the model with words it has never met, which it knows by their beginnings."""
        if not (new_src or new_tgt):
            return self
        new: dict[str, int] = {}
        src_class, tgt_class = (
            number_prefixes(words, self.settings.prefix_length, new, self._prefixes)
            for words in (new_src, new_tgt)
        )
        return replace(
            self,
            src_totals=np.pad(self.src_totals, (0, len(new_src)), constant_values=1),
            tgt_totals=np.pad(self.tgt_totals, (0, len(new_tgt)), constant_values=1),
            prior=self.prior.add_words(src_class, tgt_class),
        )

    def translations(self, keys: Ints) -> tuple[Floats, Floats]:
        """Return what each pair of words is worth, fwd and bwd: as learned, or what its prior
        alone gives where the two were never linked."""
        place, known = blocks.find_keys(self.keys, keys)
        src, tgt = blocks.split_keys(keys)
        fwd, bwd = self.prior.pseudo_counts(src, tgt)

        def choose_value(learned: Floats, counts: Any, totals: Any) -> Floats:
            guess = np.clip(counts / np.maximum(totals, 1e-3), LEAST_PROBABILITY, 1)
            chosen = np.where(known, learned[place], guess).astype(np.float32)
            chosen[keys == blocks.PADDING_KEY] = 0
            return chosen

        return (
            choose_value(self.fwd, fwd, self.src_totals[src]),
            choose_value(self.bwd, bwd, self.tgt_totals[tgt]),
        )


def score_links(p: Floats, q: Floats) -> Floats:
    """Return the confidence of each link, given its posteriors in both directions, (T, B, S).

    It is their geometric mean: a rare word may collect links in one direction that the other does
    not believe. One direction alone cannot link two words with one, though, and where words are
    left over that is what is missing. So a link counts by the arithmetic mean if one of its words
    has no likely link yet, and either the other has none, too, or a likely link is beside it.
    """
    score = np.sqrt(p * q)
    mean = (p + q) / 2
    for _ in range(_GROWING):
        likely = score >= _LIKELY
        src_free, tgt_free = ~likely.any(0, keepdims=True), ~likely.any(2, keepdims=True)
        backed = (src_free | tgt_free) & (_mark_neighbours(likely) | (src_free & tgt_free))
        np.copyto(score, mean, where=backed)
    return np.asarray(score, np.float32)


def _mark_neighbours(marks: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mark what has a mark beside it, straight or diagonal, or is marked itself."""
    wide = marks.copy()
    wide[1:] |= marks[:-1]
    wide[:-1] |= marks[1:]
    out: npt.NDArray[np.bool_] = wide.copy()
    out[:, :, 1:] |= wide[:, :, :-1]
    out[:, :, :-1] |= wide[:, :, 1:]
    return out


def _mark_best(posterior: Floats, axis: int, empty: Floats) -> npt.NDArray[np.bool_]:
    """Mark the most likely state of each step, unless the empty word is more likely.

    Of equals the first is taken, so that a step has one state at most.
    """
    best = posterior.argmax(axis)
    top = np.take_along_axis(posterior, np.expand_dims(best, axis), axis)
    marks = np.zeros(posterior.shape, np.bool_)
    likely = (top > np.expand_dims(empty, axis)) & (top > 0)
    np.put_along_axis(marks, np.expand_dims(best, axis), likely, axis)
    return marks


class _FoundLinks:
    """Collects the links of blocks, which come in any order of pairs."""

    def __init__(self, sides: Sides, nulls: bool) -> None:
        self._sides = sides
        none = np.zeros(0, np.int64)
        self._found: list[tuple[Any, ...]] = [(none, none, none, none.astype(np.float32), none > 0)]
        # A word of a pair that is not looked at has no counterpart.
        self._nulls = [np.ones(len(side.ids), np.float32) for side in sides] if nulls else None

    def add_links(
        self, block: PairBlock, marks: npt.NDArray[np.bool_], score: Floats, sure: Any
    ) -> None:
        j, b, i = np.nonzero(marks)
        scores = np.minimum(score[j, b, i], 1)
        self._found.append((block.rows[b], i, j, scores, sure[j, b, i]))

    def add_nulls(self, block: PairBlock, of_tgt: Floats, of_src: Floats) -> None:
        """Keep the NULL probabilities of the target words, (T, B), and of the source words."""
        if self._nulls is None:
            return
        for side, null, values in zip(self._sides, self._nulls, (of_src, of_tgt.T), strict=True):
            b, place = np.nonzero(np.arange(values.shape[1]) < side.lengths[block.rows][:, None])
            null[side.offsets[block.rows[b]] + place] = np.minimum(values[b, place], 1)

    def sort_links(self) -> Links:
        row, i, j, score, sure = (
            np.concatenate(column) for column in zip(*self._found, strict=True)
        )
        order = np.lexsort((j, i, row))
        n_pairs = len(self._sides[0].offsets) - 1
        offsets: IntArray = np.searchsorted(row[order], np.arange(n_pairs + 1))
        nulls = self._nulls or (None, None)
        return Links(offsets, i[order], j[order], score[order], sure[order], *nulls)
