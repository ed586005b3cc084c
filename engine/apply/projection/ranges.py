"""Choose the words of the target that a group of source words became: the base of all projection.

One rule serves labels and markup: a target word is worth what its links into the group weigh, less
what its links out of the group weigh, and the run of words that is worth most is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from ...types import ScoredLink, Span, Words

Policy = Literal["best", "cover", "split"]
# What a word without links costs inside a range: less than any link, so that it bridges two linked
# words and never begins or ends a range.
_UNLINKED = -1e-3


@dataclass(frozen=True)
class LinkedPair:
    """The words of a pair and the links between them."""

    src: Words
    tgt: Words
    links: Sequence[ScoredLink]
    totals: list[float] = field(init=False)  # scores of the links of each target word

    def __post_init__(self) -> None:
        totals = [0.0] * len(self.tgt)
        for _, j, score in self.links:
            totals[j] += score
        object.__setattr__(self, "totals", totals)

    def weigh_words(self, group: Collection[int]) -> list[float]:
        """Return for each target word from 1 (all its links lead into the group) to -1 (none)."""
        inside = [0.0] * len(self.tgt)
        for i, j, score in self.links:
            if i in group:
                inside[j] += score
        return [
            2 * part / total - 1 if total else _UNLINKED
            for part, total in zip(inside, self.totals, strict=True)
        ]


def find_ranges(
    pair: LinkedPair, spans: Sequence[Span], policy: Policy = "best"
) -> list[list[Span]]:
    """Return for each span of source words its ranges of target words, none if it has no place.

    - `best`: the run of words that is worth most; words linked to elsewhere end it where they
      weigh more than what lies behind them, words without links do not.
    - `cover`: from the first linked word to the last.
    - `split`: every run of words that are worth something, with unlinked words between them.

    Words that two spans want go to the span that is worth more, unless the spans overlap in the
    source as well. A span without links goes where its words stand literally.
    """
    wanted = [(span, pair.weigh_words(range(*span))) for span in spans]
    ranked = sorted(
        range(len(spans)), key=lambda n: (-sum(w for w in wanted[n][1] if w > 0), spans[n])
    )
    found: list[list[Span]] = [[] for _ in spans]
    for n in ranked:
        span, weights = wanted[n]
        for other, ranges in zip(spans, found, strict=True):
            if other[1] <= span[0] or span[1] <= other[0]:
                for start, end in ranges:
                    weights[start:end] = [-inf] * (end - start)
        found[n] = _take_ranges(weights, policy) or find_literally(pair, span, weights)
    return found


def _take_ranges(weights: list[float], policy: Policy) -> list[Span]:
    """Return the ranges of a policy; words of no use to anybody have the weight -inf."""
    if policy == "best":
        best = best_run(weights)
        return [best] if best else []
    runs: list[Span] = []
    bridged = False
    for j, weight in enumerate(weights):
        if weight > 0:
            start = runs.pop()[0] if runs and bridged else j
            runs.append((start, j + 1))
            bridged = True
        elif weight == -inf or (policy == "split" and weight < _UNLINKED):
            bridged = False
    if policy == "cover" and len(runs) > 1:  # something of another span lies between
        return [max(runs, key=lambda run: (sum(weights[run[0] : run[1]]), -run[0]))]
    return runs


def best_run(weights: Sequence[float]) -> Span | None:
    """Return the run of words with the highest sum, the first of several, None if none is above 0.

    Of .5 -.001 1 -1 1: the first three words.
    """
    best, found = 0.0, None
    start, total = 0, 0.0
    for j, weight in enumerate(weights):
        if total <= 0:
            start, total = j, 0.0
        total += weight
        if total > best:
            best, found = total, (start, j + 1)
    return found


def find_literally(pair: LinkedPair, span: Span, weights: Sequence[float]) -> list[Span]:
    """Return where the words of a span stand in the target, without links and in either case."""
    words = [word.casefold() for word in pair.src[span[0] : span[1]]]
    for j in range(len(pair.tgt) - len(words) + 1):
        end = j + len(words)
        free = all(weight == _UNLINKED for weight in weights[j:end])
        if words and free and [word.casefold() for word in pair.tgt[j:end]] == words:
            return [(j, end)]
    return []
