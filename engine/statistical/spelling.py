"""Guesses how words translate from how they begin: pseudo-counts for any pair of words.

Rare forms share what frequent ones with the same beginning have learned, and words that begin alike
in both languages (names, numbers, cognates) are taken for translations:

    fwd(s, t) = w P(class of t | class of s) P(t | class of t) + c [class of s = class of t]

where a class is all words with the same first characters, w the prefix weight, c the cognate
weight; bwd likewise. Does not know what was learned about whole words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .blocks import Ints, find_keys, pair_keys, split_keys

# How much of its class's mass a word never met is thought to have. Never varied.
_NEW_WORD_SHARE = 0.1
# Where the scripts begin whose characters stand for syllables or words.
_FIRST_CJK = "\u2e80"


def number_prefixes(
    words: Sequence[str], length: int, new: dict[str, int], known: Mapping[str, int] | None = None
) -> Ints:
    """Return the number of each word's first characters; those not known yet are added to `new`.

    Both languages are numbered together, so that words which begin alike have the same number. A
    Chinese or Japanese word counts by one character (chosen on the Ja-En dev set).
    """
    known = known or {}
    numbers = np.empty(len(words), np.int64)
    for k, word in enumerate(words):
        prefix = word[: 1 if word[:1] >= _FIRST_CJK else length]
        number = known.get(prefix)
        numbers[k] = new.setdefault(prefix, len(known) + len(new)) if number is None else number
    return numbers


def prefix_shares(counts: Ints, classes: Ints) -> npt.NDArray[np.float64]:
    """Return the share of each word in the occurrences of its class; a guess if it has none."""
    in_class = np.bincount(classes, counts)[classes]
    return np.where(counts > 0, counts / np.maximum(in_class, 1), _NEW_WORD_SHARE)


@dataclass
class SpellingPrior:
    """Pseudo-counts for pairs of words, from their beginnings."""

    prefix_weight: float
    cognate_weight: float
    src_class: Ints  # (source words,)
    tgt_class: Ints
    src_share: npt.NDArray[np.float64]  # (source words,) of a word among those that begin alike
    tgt_share: npt.NDArray[np.float64]
    keys: Ints  # sorted pairs of classes
    fwd: npt.NDArray[np.float64]  # (keys,) target class given source class
    bwd: npt.NDArray[np.float64]

    def update(self, counts: npt.NDArray[np.float64]) -> None:
        """Learn from expected counts of the pairs of classes, (keys,)."""
        src, tgt = split_keys(self.keys)
        self.fwd = counts / np.maximum(np.bincount(src, counts), 1e-9)[src]
        self.bwd = counts / np.maximum(np.bincount(tgt, counts), 1e-9)[tgt]

    def pseudo_counts(self, src: Ints, tgt: Ints, place: Ints | None = None) -> tuple[Any, Any]:
        """Return the pseudo-counts of each pair of words, for fwd and for bwd.

        `place` is that of the pair's classes among the keys, where all of them are there.
        """
        known: Any = True
        if place is None:
            place, known = find_keys(self.keys, pair_keys(self.src_class[src], self.tgt_class[tgt]))
        weight = self.prefix_weight * known
        alike = self.cognate_weight * (self.src_class[src] == self.tgt_class[tgt])
        fwd = weight * self.fwd[place] * self.tgt_share[tgt] + alike
        bwd = weight * self.bwd[place] * self.src_share[src] + alike
        return fwd, bwd

    def prune(self) -> SpellingPrior:
        """Return it without the pairs of classes that are hardly ever linked."""
        # Most pairs of classes that meet have next to nothing; they would make the table large.
        keep = np.maximum(self.fwd, self.bwd) > 1e-5
        keep[0] = True  # never empty
        return replace(self, keys=self.keys[keep], fwd=self.fwd[keep], bwd=self.bwd[keep])

    def add_words(self, src: Ints, tgt: Ints) -> SpellingPrior:
        """Return it with words that were never met, given the numbers of their classes."""
        return replace(
            self,
            src_class=np.concatenate([self.src_class, src]),
            tgt_class=np.concatenate([self.tgt_class, tgt]),
            src_share=np.pad(self.src_share, (0, len(src)), constant_values=_NEW_WORD_SHARE),
            tgt_share=np.pad(self.tgt_share, (0, len(tgt)), constant_values=_NEW_WORD_SHARE),
        )
