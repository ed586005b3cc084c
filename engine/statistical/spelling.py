"""What the beginnings of words tell about their links: pseudo-counts for any pair of words.
Knows words by their first characters; what is learned of whole words is the matter of seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .blocks import Ints, ids_of, pair_keys

# How much of its beginning's mass a word never met is thought to have.
NEW_SHARE = 0.1
# Where the scripts begin whose characters stand for syllables or words.
_CJK = "\u2e80"


def beginnings(words: Sequence[str], length: int, known: dict[str, int]) -> Ints:
    """The number of each word's first characters; new ones are added to `known`. Both languages
    are numbered together, so that words which begin alike can be seen."""
    ids = [known.setdefault(_beginning(word, length), len(known)) for word in words]
    return np.array(ids, np.int64)


def _beginning(word: str, length: int) -> str:
    """The first characters, of which a Chinese or Japanese word needs only one."""
    return word[: 1 if word[:1] >= _CJK else length]


def find(keys: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Place of each wanted key among the sorted keys, and whether it is there."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return place, keys[place] == wanted


def shares(counts: Ints, classes: Ints) -> npt.NDArray[np.float64]:
    """Of each word among those that begin alike; a word never met gets a guess."""
    alike = np.bincount(classes, counts)[classes]
    return np.where(counts > 0, counts / np.maximum(alike, 1), NEW_SHARE)


@dataclass
class Prior:
    """Pseudo-counts for pairs of words, from their beginnings."""

    prefix_weight: float
    cognate_weight: float
    src_class: Ints  # (source words,)
    tgt_class: Ints
    src_share: npt.NDArray[np.float64]  # (source words,) of a word among those that begin alike
    tgt_share: npt.NDArray[np.float64]
    keys: Ints  # sorted pairs of beginnings
    fwd: npt.NDArray[np.float64]  # (keys,) target beginning given source beginning
    bwd: npt.NDArray[np.float64]

    def update(self, counts: npt.NDArray[np.float64]) -> None:
        """Learn from expected counts of the pairs of beginnings, (keys,)."""
        src, tgt = ids_of(self.keys)
        self.fwd = counts / np.maximum(np.bincount(src, counts), 1e-9)[src]
        self.bwd = counts / np.maximum(np.bincount(tgt, counts), 1e-9)[tgt]

    def counts(self, src: Ints, tgt: Ints) -> tuple[Any, Any]:
        """Pseudo-counts of each pair of words, for fwd and for bwd."""
        place, known = find(self.keys, pair_keys(self.src_class[src], self.tgt_class[tgt]))
        return self.counts_at(place, src, tgt, known)

    def counts_at(self, place: Ints, src: Ints, tgt: Ints, known: Any = True) -> tuple[Any, Any]:
        """The same where the place of each pair's beginnings among the keys is known already."""
        weight = self.prefix_weight * known
        alike = self.cognate_weight * (self.src_class[src] == self.tgt_class[tgt])
        fwd = weight * self.fwd[place] * self.tgt_share[tgt] + alike
        bwd = weight * self.bwd[place] * self.src_share[src] + alike
        return fwd, bwd

    def pruned(self) -> Prior:
        """Without the pairs of beginnings that are hardly ever linked."""
        keep = np.maximum(self.fwd, self.bwd) > 1e-5
        keep[0] = True  # never empty
        return replace(self, keys=self.keys[keep], fwd=self.fwd[keep], bwd=self.bwd[keep])

    def with_new(self, src: Ints, tgt: Ints) -> Prior:
        """Also for words that were never met, given the numbers of their beginnings."""
        return replace(
            self,
            src_class=np.concatenate([self.src_class, src]),
            tgt_class=np.concatenate([self.tgt_class, tgt]),
            src_share=np.pad(self.src_share, (0, len(src)), constant_values=NEW_SHARE),
            tgt_share=np.pad(self.tgt_share, (0, len(tgt)), constant_values=NEW_SHARE),
        )
