"""Joins a model's links with those of statistics: one probability for each link.

    P(link) = sigmoid(bias + u logit(m) + v logit(s))

with m and s the two scores of a pair of words. The weights u and v follow from how well each of the
two explains the text at hand (`measure_fit`), so that a model that does not know the language, or
statistics of a few pairs, hardly count. Does not find links.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..types import Links
from .average import LinkTable, align_tables

# Scores are cut off here: a 0 only says that the link was not found.
_LEAST, _MOST = 0.01, 0.99


@dataclass(frozen=True)
class Combination:
    """How much each score counts for the probability of a link."""

    bias: float
    model: float
    statistics: float
    threshold: float  # least probability of a link

    def __call__(self, model: Links, statistics: Links) -> Links:
        """Return the links whose probability reaches the threshold, with it as their score."""
        found, scores = align_tables([_as_table(model), _as_table(statistics)])
        chance = self.probabilities(scores[:, 0], scores[:, 1]).astype(np.float32)
        kept = chance >= np.float32(self.threshold)
        chance = chance[kept]
        return Links(
            np.searchsorted(found.pair[kept], np.arange(len(model.offsets))),
            found.src[kept],
            found.tgt[kept],
            chance,
            chance >= np.float32(SURE),
            model.src_null,
            model.tgt_null,
        )

    def probabilities(
        self, model: npt.NDArray[np.float64], statistics: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Return the probability of each link, given both scores."""
        total = self.bias + self.model * _logit(model) + self.statistics * _logit(statistics)
        return np.asarray(1 / (1 + np.exp(-total)))


def _logit(score: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    cut = np.clip(score, _LEAST, _MOST)
    return np.asarray(np.log(cut / (1 - cut)))


def _as_table(links: Links) -> LinkTable:
    pair = np.repeat(np.arange(len(links.offsets) - 1), np.diff(links.offsets))
    return LinkTable(pair, links.src, links.tgt, links.score.astype(np.float64))
