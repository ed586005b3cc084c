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

from ..types import Links, Pairs
from .average import LinkTable, align_tables
from .formats import sentence_scores

# Scores are cut off here: a 0 only says that the link was not found.
_LEAST, _MOST = 0.01, 0.99
# Lowest scores at which both are asked for links: less than either needs alone, as the other one
# may believe more. From 0.01 to 0.05 nothing changes but the time.
LOWEST_SCORE = 0.03
# Score from which each would give a link alone.
_GIVEN = 0.4
# Probabilities from which on a link is given. From 0.3 to 0.42 the mean AER of the development
# golds is within 0.1 of the lowest; the other two are round numbers.
THRESHOLDS = {"aer": 0.38, "precision": 0.6, "recall": 0.25}
# Bias and weights of the model and of statistics for a text of 5,000 pairs, and what is added for
# each time that it is e times as large: of statistics alone, and of both where the two agree. By
# logistic regression on 16 development golds with 2,000 and 10,000 pairs to learn from each;
# chosen without a language, they serve it as well (docs/lab/2026-11-18-combination-by-fit.md).
_ALONE = np.array([-0.228, 0.0, 0.601]), np.array([0.063, 0.0, 0.023])
_JOINT = np.array([0.446, 0.416, 0.394]), np.array([0.009, -0.038, 0.034])
# Agreement of the two at which the model counts for nothing, and from which it counts in full. A
# pilot model of 16 languages had 0.50 (Japanese) to 0.91 (Swedish).
_AGREEMENT = 0.4, 0.9
# Fewer or more pairs were not measured and count as so many.
_SIZES = 500, 50_000


@dataclass(frozen=True)
class Combination:
    """How much each score counts for the probability of a link; None: there is no such score."""

    bias: float
    model: float | None
    statistics: float | None
    threshold: float  # least probability of a link
    sure: float  # of one that is sure

    def __call__(self, *found: Links) -> Links:
        """Return the links whose probability reaches the threshold, with it as their score.

        `found` are those of the model, then those of statistics, as far as they count.
        """
        tables, scores = align_tables([_as_table(links) for links in found])
        weights = [weight for weight in (self.model, self.statistics) if weight is not None]
        total = self.bias + sum(
            weight * logit(column) for weight, column in zip(weights, scores.T, strict=True)
        )
        chance = (1 / (1 + np.exp(-total))).astype(np.float32)
        kept = chance >= np.float32(self.threshold)
        chance = chance[kept]
        first = found[0]
        return Links(
            np.searchsorted(tables.pair[kept], np.arange(len(first.offsets))),
            tables.src[kept],
            tables.tgt[kept],
            chance,
            chance >= np.float32(self.sure),
            first.src_null,
            first.tgt_null,
        )

    def describe(self) -> str:
        """Return the numbers, as a signature has them."""
        weights = "/".join("-" if w is None else f"{w:.2f}" for w in (self.model, self.statistics))
        return f"{self.bias:.2f}/{weights}@{self.threshold:.6g}"


def logit(score: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the log odds of scores, cut off at both ends."""
    cut = np.clip(score, _LEAST, _MOST)
    return np.asarray(np.log(cut / (1 - cut)))


def as_probabilities(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the scores of a combination, which are probabilities."""
    return np.asarray(scores, np.float64)


def _as_table(links: Links) -> LinkTable:
    pair = np.repeat(np.arange(len(links.offsets) - 1), np.diff(links.offsets))
    return LinkTable(pair, links.src, links.tgt, links.score.astype(np.float64))


# ---- weights ----


@dataclass(frozen=True)
class Fit:
    """How well a model and statistics explain a sample of a text."""

    model: float | None  # mean over words of the score of their best link; None: no model
    statistics: float
    agreement: float | None  # F1 of the links that each would give alone


def measure_fit(pairs: Pairs, model: Links | None, statistics: Links) -> Fit:
    """Measure on a sample of a text, given the links of both down to low scores."""
    covered = [
        None if links is None else float(np.mean(sentence_scores(pairs, links) or [0.0]))
        for links in (model, statistics)
    ]
    agreement = None
    if model is not None:
        _, scores = align_tables([_as_table(model), _as_table(statistics)])
        given = scores >= _GIVEN
        agreement = 2 * float(given.all(axis=1).sum()) / max(1, int(given.sum()))
    return Fit(covered[0], float(covered[1] or 0), agreement)


def weigh_by_fit(
    fit: Fit, n_pairs: int, optimize_for: str = "aer", threshold: float | None = None
) -> Combination:
    """Return the combination for a text with `n_pairs` pairs to learn from."""
    bounds = threshold or THRESHOLDS[optimize_for], THRESHOLDS["precision"]
    size = math.log(min(max(n_pairs, _SIZES[0]), _SIZES[1]) / 5000)
    alone, joint = (start + size * step for start, step in (_ALONE, _JOINT))
    if fit.agreement is None:
        return Combination(float(alone[0]), None, float(alone[2]), *bounds)
    least, most = _AGREEMENT
    share = min(max((fit.agreement - least) / (most - least), 0), 1)
    # Rounded, so that what differs between machines in the last bit makes no other links.
    bias, model, statistics = np.round((1 - share) * alone + share * joint, 2).tolist()
    return Combination(bias, model, statistics, *bounds)
