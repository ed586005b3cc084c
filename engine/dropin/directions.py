"""Align a text by statistics in both directions, each with a score for every pair of sentences.

What eflomal and fast_align give: links in which each word of one side has one partner at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from ..alignment import chunk_sentences
from ..statistical.aligner import StatisticalAligner
from ..types import Floats, Link, Links, Pairs, Words
from .priors import Priors, show_priors

_CHUNK = 8192
# Links down to this confidence count as partners of their words.
_WEAK = 0.05
# What a word costs for which the other side has no translation: -log of it.
_FLOOR = 1e-6


@dataclass(frozen=True)
class DirectedPair:
    """The links of a pair by both directions, sorted, and what they cost: 0 is best."""

    fwd: list[Link]  # each target word has one partner at most
    bwd: list[Link]
    fwd_cost: float  # mean of -log p(target word | its best source word)
    bwd_cost: float


def learn_text(
    src: Sequence[str], tgt: Sequence[str], priors: Priors | None = None
) -> StatisticalAligner:
    """Learn from a text and from priors, without regard to case."""
    shown = list(show_priors(priors, src, tgt)) if priors else []
    return StatisticalAligner.learn(
        chain(src, (pair[0] for pair in shown)),
        chain(tgt, (pair[1] for pair in shown)),
        lowercase=True,
    )


def align_directions(
    aligner: StatisticalAligner, src: Iterable[str | Words], tgt: Iterable[str | Words]
) -> Iterator[DirectedPair]:
    """Yield the links of both directions for each pair; holds one chunk."""
    costs = TranslationCosts(aligner)
    for pairs in chunk_sentences(src, tgt, _CHUNK):
        links = aligner.model.find_links(pairs, _WEAK)
        for k, (start, end) in enumerate(pairwise(links.offsets.tolist())):
            yield DirectedPair(
                pick_partners(links, start, end, by_target=True),
                pick_partners(links, start, end, by_target=False),
                *costs.measure_pair(pairs, k),
            )


def pick_partners(links: Links, start: int, end: int, *, by_target: bool) -> list[Link]:
    """Return the best link of each target word, or of each source word; the first of equals."""
    best: dict[int, tuple[float, Link]] = {}
    columns = (links.src[start:end], links.tgt[start:end], links.score[start:end])
    for i, j, score in zip(*(column.tolist() for column in columns), strict=True):
        word = j if by_target else i
        if word not in best or score > best[word][0]:
            best[word] = score, (i, j)
    return sorted(link for _, link in best.values())


class TranslationCosts:
    """How well the words of each side of a pair are explained by those of the other."""

    def __init__(self, aligner: StatisticalAligner) -> None:
        model = aligner.model
        self._model = model
        self._lowercase = model.settings.lowercase
        self._numbers = [
            {word: n for n, word in enumerate(words)}
            for words in (model.src_words, model.tgt_words)
        ]

    def measure_pair(self, pairs: Pairs, k: int) -> tuple[float, float]:
        """Return the costs of the target given the source, and the other way round.

        A side without words costs nothing itself and explains nothing.
        """
        src, tgt = (
            np.array([numbers.get(w.lower() if self._lowercase else w, -1) for w in side], np.int64)
            for numbers, side in zip(self._numbers, (pairs.src[k], pairs.tgt[k]), strict=True)
        )
        if not (len(src) and len(tgt)):
            worst = -float(np.log(_FLOOR))
            return (worst if len(tgt) else 0.0), (worst if len(src) else 0.0)
        keys = (src[:, None] << 32) | tgt[None, :]
        place = np.searchsorted(self._model.keys, keys)
        place = np.minimum(place, max(len(self._model.keys) - 1, 0))
        known = (self._model.keys[place] == keys) & (src >= 0)[:, None] & (tgt >= 0)[None, :]
        # The same word on both sides is a translation of itself, though it was never met.
        same = np.array([[s.lower() == t.lower() for t in pairs.tgt[k]] for s in pairs.src[k]])
        return (
            _mean_cost(self._model.fwd[place], known, same, 0),
            _mean_cost(self._model.bwd[place], known, same, 1),
        )


def _mean_cost(values: Floats, known: np.ndarray, same: np.ndarray, axis: int) -> float:
    found = np.where(known, values, np.where(same, 0.5, _FLOOR)).max(axis)
    return max(0.0, -float(np.log(np.maximum(found, _FLOOR)).mean()))
