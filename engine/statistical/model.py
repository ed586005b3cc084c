"""What the statistical aligner has learned, and the links that follow from it for any text.

Does not learn and does not read files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..types import Floats, IntArray, Links, Pairs
from . import blocks
from .blocks import Ints, Vocabulary
from .hmm import HmmPair
from .settings import LearningSettings
from .spelling import SpellingPrior, number_prefixes

# What an impossible translation is worth: small, yet a forced path stays finite.
LEAST_PROBABILITY = 1e-8


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

    def find_links(self, pairs: Pairs, threshold: float) -> Links:
        """Return the links whose confidence is at least the threshold, sorted, for each pair.

        Confidence is the geometric mean of both directions' posteriors. A pair has none if a side
        is empty or too long (`make_blocks`).
        """
        src, tgt = (Vocabulary(self.settings.lowercase, known) for known in self._word_ids)
        sides = blocks.encode_sentences(pairs.src, src), blocks.encode_sentences(pairs.tgt, tgt)
        model = self._add_words(src.new_words, tgt.new_words)
        none = np.zeros(0, np.int64)
        found: list[tuple[Any, ...]] = [(none, none, none, none.astype(np.float32))]
        for group in blocks.make_blocks(*sides):
            # Look each pair of words up once, not in every cell where it stands.
            keys, place = np.unique(blocks.cell_keys(group, *sides), return_inverse=True)
            fwd, bwd = model._translations(keys)
            for block, cells in blocks.cells_by_block(group, place):
                p, q = self.hmms.link_posteriors(block, sides, (fwd[cells], bwd[cells]))
                # A rare word may collect links in one direction that the other does not believe.
                score = np.sqrt(p * q)
                j, b, i = np.nonzero(score >= threshold)
                found.append((block.rows[b], i, j, np.minimum(score[j, b, i], 1)))
        row, i, j, score = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((j, i, row))
        offsets: IntArray = np.searchsorted(row[order], np.arange(len(pairs.src) + 1))
        sure = np.ones(len(order), np.bool_)
        return Links(offsets, i[order], j[order], score[order], sure)

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

    def _translations(self, keys: Ints) -> tuple[Floats, Floats]:
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
