"""Expected counts of links: what a round of learning has counted in a text, or in a part of it.

Counts of several parts add up to those of the whole, so that machines can share the work. Does not
count, and does not make models of counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .blocks import Ints, pair_keys, split_keys
from .hmm import MoveCounts


@dataclass(frozen=True)
class ExpectedCounts:
    """How often words occur and pairs of words are expected to be linked, and how links move."""

    src_words: list[str]
    tgt_words: list[str]
    src_occurrences: Ints
    tgt_occurrences: Ints
    keys: Ints  # sorted pairs of words that meet
    counts: npt.NDArray[np.float64]  # (keys,)
    moves: tuple[MoveCounts, MoveCounts]  # of fwd and bwd
    n_pairs: int
    digest: str  # of the model that it was counted with

    @classmethod
    def zeros(cls, max_jump: int, digest: str) -> ExpectedCounts:
        """Return the counts of no text."""
        none = np.zeros(0, np.int64)
        moves = MoveCounts.zeros(max_jump), MoveCounts.zeros(max_jump)
        return cls([], [], none, none, none, np.zeros(0), moves, 0, digest)

    def __add__(self, other: ExpectedCounts) -> ExpectedCounts:
        """Return the counts of both texts together."""
        if self.digest != other.digest:
            raise InputError(
                "counts of different models cannot be added up; count all parts with one model"
            )
        src_words, src = _join_words(self.src_words, other.src_words)
        tgt_words, tgt = _join_words(self.tgt_words, other.tgt_words)
        left, right = split_keys(other.keys)
        keys = np.concatenate([self.keys, pair_keys(src[left], tgt[right])])
        keys, place = np.unique(keys, return_inverse=True)
        both = np.concatenate([self.counts, other.counts])
        counts = np.bincount(place, both, len(keys)).astype(np.float64)
        return ExpectedCounts(
            src_words,
            tgt_words,
            _add_at(self.src_occurrences, other.src_occurrences, src, len(src_words)),
            _add_at(self.tgt_occurrences, other.tgt_occurrences, tgt, len(tgt_words)),
            keys,
            counts,
            (self.moves[0] + other.moves[0], self.moves[1] + other.moves[1]),
            self.n_pairs + other.n_pairs,
            self.digest,
        )


def _join_words(words: Sequence[str], more: Sequence[str]) -> tuple[list[str], Ints]:
    """Return all words, and the number of each of the `more`."""
    numbers = {word: number for number, word in enumerate(words)}
    places = [numbers.setdefault(word, len(numbers)) for word in more]
    return list(numbers), np.array(places, np.int64)


def _add_at(values: Ints, more: Ints, places: Ints, n: int) -> Ints:
    out = np.pad(values, (0, n - len(values)))
    out[places] += more
    return out
