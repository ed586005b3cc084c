"""Scores links against gold: AER, precision, recall, F1, their intervals, tests between systems.

Every number is a function of five counts per sentence, summed over the set. 0/0 counts as
perfect: no link made is no wrong link, no sure link is none missed. With gold that has only sure
links, AER is then 1 - F1 in every case. Does not read files or print.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..types import IntArray, Link, ScoredLink
from .link_files import Gold, LinkFile

MEASURES = ("aer", "precision", "recall", "f1")

Interval = tuple[float, float]  # ends of a 95 % confidence interval
_Doubles = NDArray[np.float64]

_TAIL = 50 * (1 - 0.95)  # percent on each side of such an interval
_MAX_CELLS = 2_000_000  # entries of a resampling matrix held at once: 16 MB


class LinkCounts(NamedTuple):
    """Counts of one sentence or of a set: |A|, |S|, |P|, |A∩S|, |A∩P|, A the links made."""

    links: int
    sure: int
    possible: int
    links_in_sure: int
    links_in_possible: int


@dataclass(frozen=True)
class Score:
    """Measures as fractions of 1, with the counts they come from."""

    aer: float
    precision: float
    recall: float
    f1: float
    counts: LinkCounts


@dataclass(frozen=True)
class Comparison:
    """System B against system A: by measure, B − A, its interval, and how likely a difference
    as large would be if the two were equally good (two-sided p)."""

    difference: dict[str, float]
    interval_95: dict[str, Interval]
    p_value: dict[str, float]


# ---- counts and measures ----


def count_sentences(links: Sequence[Collection[Link]], gold: Sequence[Gold]) -> IntArray:
    """Return one row of LinkCounts per sentence, (N, 5); a link given twice counts once."""
    if len(links) != len(gold):
        raise InputError(f"links for {len(links)} sentences, but gold for {len(gold)}")
    rows = [
        LinkCounts(
            len(made := set(given)),
            len(wanted.sure),
            len(wanted.possible),
            len(wanted.sure & made),
            len(wanted.possible & made),
        )
        for given, wanted in zip(links, gold, strict=True)
    ]
    return np.array(rows, dtype=np.int64).reshape(len(rows), 5)


def compute_measures(counts: IntArray | _Doubles) -> _Doubles:
    """Return the MEASURES of each row of counts: (..., 5) to (..., 4)."""
    links, sure, _, in_sure, in_possible = np.moveaxis(np.asarray(counts, dtype=np.float64), -1, 0)
    # Och and Ney (2003): AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|).
    aer = 1.0 - _safe_ratio(in_sure + in_possible, links + sure)
    precision = _safe_ratio(in_possible, links)
    recall = _safe_ratio(in_sure, sure)
    both = precision + recall
    f1 = np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both > 0)
    return np.stack([aer, precision, recall, f1], axis=-1)


def _safe_ratio(part: _Doubles, whole: _Doubles) -> _Doubles:
    return np.divide(part, whole, out=np.ones_like(whole), where=whole > 0)


def score_counts(counts: IntArray) -> Score:
    """Score a set by its (N, 5) table, or one row: by sums, not by a mean of sentences."""
    total = counts.reshape(-1, 5).sum(axis=0)
    aer, precision, recall, f1 = compute_measures(total).tolist()
    return Score(aer, precision, recall, f1, LinkCounts(*total.tolist()))


def score_links(links: Sequence[Collection[Link]], gold: Sequence[Gold]) -> Score:
    """Score a system's links against gold, sentence by sentence in the same order."""
    return score_counts(count_sentences(links, gold))


# ---- intervals and significance ----


def _split_samples(samples: int, sentences: int) -> Iterator[int]:
    """Yield sizes that add up to `samples` and keep the matrix of each within _MAX_CELLS."""
    step = max(1, _MAX_CELLS // max(1, sentences))
    for start in range(0, samples, step):
        yield min(step, samples - start)


def _resample_measures(tables: IntArray, samples: int, seed: int) -> _Doubles:
    """Return the measures of `samples` sets drawn with replacement from the sentences, the same
    draw for every system: (K, N, 5) to (K, samples, 4)."""
    if not tables.shape[1]:
        tables = np.zeros((len(tables), 1, 5), dtype=np.int64)  # no sentences count as an empty one
    systems, sentences, _ = tables.shape
    flat = tables.transpose(1, 0, 2).reshape(sentences, systems * 5).astype(np.float64)
    rng = np.random.default_rng(seed)
    parts: list[_Doubles] = []
    for size in _split_samples(samples, sentences):
        drawn = rng.integers(0, sentences, (size, sentences))
        # How often each sample has each sentence, by one bincount over all samples: with N = 3,
        # sample 0 drawing 2 2 0 and sample 1 drawing 1 0 1 count in the cells 2 2 0 4 3 4, which
        # gives the rows 1 0 2 and 1 2 0. Times the counts of the sentences, that is the sums.
        drawn += np.arange(size)[:, None] * sentences
        times = np.bincount(drawn.ravel(), minlength=size * sentences)
        sums = times.reshape(size, sentences).astype(np.float64) @ flat
        parts.append(compute_measures(sums.reshape(size, systems, 5).transpose(1, 0, 2)))
    return np.concatenate(parts, axis=1)


def _percentile_intervals(values: _Doubles) -> dict[str, Interval]:
    ends = np.percentile(values, [_TAIL, 100 - _TAIL], axis=0)
    return dict(zip(MEASURES, zip(*ends.tolist(), strict=True), strict=True))


def bootstrap_intervals(
    counts: IntArray, samples: int = 10_000, seed: int = 1
) -> dict[str, Interval]:
    """Return the percentile interval of each measure, sentences drawn with replacement."""
    return _percentile_intervals(_resample_measures(counts[None], samples, seed)[0])


def compare_systems(
    first: IntArray, second: IntArray, samples: int = 10_000, seed: int = 1
) -> Comparison:
    """Compare `second` with `first`, tables of the same gold.

    Paired bootstrap for the intervals, approximate randomization (swapping the two systems'
    sentences at random) for p.
    """
    if first.shape != second.shape or not np.array_equal(first[:, 1:3], second[:, 1:3]):
        raise ValueError("both tables must count against the same gold")
    # Both systems have the same sentences drawn: what is hard for both does not widen the interval.
    drawn = _resample_measures(np.stack([first, second]), samples, seed)
    difference = compute_measures(second.sum(axis=0)) - compute_measures(first.sum(axis=0))
    p_value = _randomized_p_values(first, second, difference, samples, seed)
    return Comparison(
        dict(zip(MEASURES, difference.tolist(), strict=True)),
        _percentile_intervals(drawn[1] - drawn[0]),
        dict(zip(MEASURES, p_value.tolist(), strict=True)),
    )


def _randomized_p_values(
    first: IntArray, second: IntArray, difference: _Doubles, samples: int, seed: int
) -> _Doubles:
    """Return the two-sided p of each measure: (r + 1) / (samples + 1), r swaps differ as much."""
    # Swapping a sentence takes its difference from one sum and adds it to the other, so a matrix
    # of 0 and 1 (samples, N) times the differences (N, 5) is what all swaps of a sample change.
    rng = np.random.default_rng(seed)
    change = (second - first).astype(np.float64)
    total_first, total_second = first.sum(axis=0), second.sum(axis=0)
    as_large = np.zeros(len(MEASURES))
    for size in _split_samples(samples, len(first)):
        swapped = rng.integers(0, 2, (size, len(first))).astype(np.float64) @ change
        found = compute_measures(total_second - swapped) - compute_measures(total_first + swapped)
        # Equal differences may be computed by different sums: do not lose them to rounding.
        as_large += (np.abs(found) >= np.abs(difference) - 1e-12).sum(axis=0)
    return np.asarray((as_large + 1) / (samples + 1), dtype=np.float64)


@dataclass(frozen=True)
class ScoredSystem:
    """One link file and what was found out about it; `compared` is against the first system."""

    name: str
    table: IntArray  # (N, 5), a row of LinkCounts for each sentence
    score: Score
    intervals: dict[str, Interval] | None
    compared: Comparison | None


def score_systems(
    gold: LinkFile, files: Sequence[LinkFile], samples: int = 10_000, seed: int = 1
) -> list[ScoredSystem]:
    """Score each file, and compare all but the first with the first.

    Without samples there are no intervals and no comparison.
    """
    systems: list[ScoredSystem] = []
    for file in files:
        table = count_sentences(file.all_links(), gold.sentences)
        intervals = bootstrap_intervals(table, samples, seed) if samples else None
        compared = None
        if samples and systems:
            compared = compare_systems(systems[0].table, table, samples, seed)
        systems.append(ScoredSystem(file.name, table, score_counts(table), intervals, compared))
    return systems


# ---- thresholds ----


def _rank_candidates(
    scored: Sequence[Iterable[ScoredLink]], gold: Sequence[Gold]
) -> tuple[_Doubles, IntArray]:
    """Return the scores of the distinct candidates from high to low (n,), and the set's counts
    when the first 0, 1, ... n of them are links (n + 1, 5)."""
    rows: list[tuple[float, bool, bool]] = []
    for triples, wanted in zip(scored, gold, strict=True):
        best: dict[Link, float] = {}
        for i, j, value in triples:
            if value == value:  # NaN reaches no threshold
                best[i, j] = max(value, best.get((i, j), value))
        rows += [(v, link in wanted.sure, link in wanted.possible) for link, v in best.items()]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 3)
    table = table[np.argsort(-table[:, 0], kind="stable")]
    # Row n: the counts if the n best candidates are links. With candidates that are sure, neither
    # and sure, the column of links in sure is 0 1 1 2.
    counts = np.zeros((len(rows) + 1, 5), dtype=np.int64)
    counts[:, 0] = np.arange(len(rows) + 1)
    counts[:, 1] = sum(len(wanted.sure) for wanted in gold)
    counts[:, 2] = sum(len(wanted.possible) for wanted in gold)
    counts[1:, 3:] = np.cumsum(table[:, 1:], axis=0)
    return table[:, 0], counts


def sweep_thresholds(
    scored: Sequence[Iterable[ScoredLink]], gold: Sequence[Gold], thresholds: Sequence[float]
) -> list[Score]:
    """Score each threshold: a candidate (i, j, score) is a link if score >= threshold.

    A candidate given twice in a sentence has its highest score.
    """
    scores, counts = _rank_candidates(scored, gold)
    kept = np.searchsorted(-scores, -np.asarray(thresholds, dtype=np.float64), side="right")
    return [score_counts(counts[k]) for k in kept]


def best_threshold(
    scored: Sequence[Iterable[ScoredLink]], gold: Sequence[Gold]
) -> tuple[float, Score]:
    """Find the threshold of lowest AER, halfway between the last candidate kept and the first
    dropped, so that rounding moves no link.

    Of equal ones the one with the fewest links; without candidates the threshold is 1.
    """
    scores, counts = _rank_candidates(scored, gold)
    if not len(scores):
        return 1.0, score_counts(counts[0])
    # Candidates of one score cannot be told apart: a threshold lies only where the score changes.
    ends = np.append(np.flatnonzero(np.diff(scores)) + 1, len(scores))
    best = int(ends[np.argmin(compute_measures(counts[ends])[:, 0])])
    below = scores[best] if best < len(scores) else scores[best - 1]
    return float((scores[best - 1] + below) / 2), score_counts(counts[best])


def link_f1(first: Sequence[set[Link]], second: Sequence[set[Link]]) -> float:
    """Return how far two alignments of the same pairs agree: the F1 of their links.

    1 if neither has any.
    """
    both = sum(len(a & b) for a, b in zip(first, second, strict=True))
    total = sum(len(a) + len(b) for a, b in zip(first, second, strict=True))
    return 2 * both / total if total else 1.0
