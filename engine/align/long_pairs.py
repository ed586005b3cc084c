"""Split long pairs where hardly a link crosses, so that their parts can be aligned on their own.

In a long line every word has many more words to be mistaken for, and the sentences of a paragraph
drift off the diagonal. The links of a first look at the whole line still show where it can be
split, and its parts are then as easy as single sentences. Does not look at characters
(`text/sentence_ends.py` does) and does not run models.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..text.sentence_ends import (
    FULL_END,
    HALF_END,
    NO_MARK,
    PAUSE,
    SentenceEnds,
    find_sentence_ends,
    have_inner_ends,
)
from ..types import Floats, IntArray, Links, Pieces, Words

Costs = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# The history of these numbers is in docs/decisions.md and docs/lab/. "Agreement" is that of the
# links of joined training lines with those of the single lines (benchmarks/long_lines.py); where
# test sets are named, their AER was in view when the number was chosen.

# Words of the longer side above which pairs are looked at: CPU time of 6,000 de-en training pairs.
LONG = 60
# Pairs of over LONG, 2 LONG, 4 LONG, … words are looked at 1, 2, 3, … times, up to LOOKS: the
# longer a part, the less can be seen in it. Agreement of ten joined pairs, and the ja-en test set.
LOOKS = 4
# Pairs of more words are looked at if a sentence ends inside both lines: agreement on en-fr (12
# would be better, 30 is worse) against CPU time, and all test sets.
SEVERAL = 20

# Costs are counted in links, each weighted by its score. A part of n words costs (n / _EASY)^2: so
# many links may be lost to split it off. Chosen on the en-fr and de-en test sets.
_EASY = 17.0
# What a split after two linked words costs besides the links that cross it, by the lower kind of
# the two; without a mark it is one between neighbours. Ends are a gain, or short sentences would
# stay together: agreement, with all test sets in view.
_AFTER_LINK = {NO_MARK: 10.0, PAUSE: 4.0, HALF_END: -2.0, FULL_END: -2.0}
# A split between ends that are not linked costs nothing more. One after a full end of one side,
# wherever that is on the other, costs this: agreement on 4,000 ja-en pairs.
_ONE_SIDED = 6.0
# What a part costs for each full end that one side has more, as most sentences are translated by
# one: agreement on 4,000 ja-en pairs, where 2, 6 and 8 were no different.
_UNEVEN = 4.0
# No split crosses more than this, however long the line is: so many links are meant. Agreement on
# 10,000 de-en and 15,000 en-fr pairs: 8 was worse without marks at ends, 3 worse with them.
_MAX_CROSSING = 5.0
# Splits that are kept at one place of a side, so that _REACH goes far. Nobody noted why 3; without
# a limit only lines with hundreds of sentences that the other side lacks are split differently.
_NEAREST = 3

# Memory: if a table of crossing links has more cells, ends are only tried as they are linked.
_MAX_CELLS = 1 << 20
# Time: a part that ends at a split may begin at so many before it, and further back at ever fewer.
_REACH = 64


class Look(NamedTuple):
    """What is known of a pair after a look at it."""

    src: SentenceEnds
    tgt: SentenceEnds
    i: IntArray  # (links,) source words, sorted
    j: IntArray  # (links,) target words
    scores: Floats  # (links,)

    def select_links(self, chosen: Bools) -> Look:
        return self._replace(i=self.i[chosen], j=self.j[chosen], scores=self.scores[chosen])

    def link_kinds(self) -> npt.NDArray[np.uint8]:
        """Return the lower kind of the two words of each link."""
        return np.minimum(self.src.kinds[self.i], self.tgt.kinds[self.j])


class Split(NamedTuple):
    """A place where a pair may be split: before source word `src` and target word `tgt`."""

    src: int
    tgt: int
    is_end: bool  # of a sentence, on one side at least
    cost: float
    surplus: int  # full ends inside the line up to here that the source has more than the target


Candidates = list[tuple[float, int, int]]  # cost, place in the source, place in the target


def count_looks(
    src_words: Sequence[Words], tgt_words: Sequence[Words], src: Pieces, tgt: Pieces
) -> IntArray:
    """Return how often each pair must be looked at, each time in the parts of the time before.

    0 for pairs that are short, or not long and of one sentence.
    """
    sizes = np.maximum(src.n_words, tgt.n_words)
    looks = np.ceil(np.log2(np.clip(sizes / LONG, 1, 2**LOOKS))).astype(np.int64)
    several = np.flatnonzero((sizes > SEVERAL) & (sizes <= LONG))
    for words in (src_words, tgt_words):
        several = several[have_inner_ends([words[pair] for pair in several.tolist()])]
    looks[several] = 1
    return looks


def split_long_pairs(
    pairs: IntArray,
    again: Bools,
    links: Links,
    src_words: Sequence[Words],
    tgt_words: Sequence[Words],
    src: Pieces,
    tgt: Pieces,
) -> IntArray:
    """Return the parts of these pairs by the links of a look; one part if there is no good split.

    Rows of the pair's number, the part's first and end piece in the source, and in the target.
    Pairs that will be looked at `again` are hardly split inside sentences: a look at one alone may
    show more.
    """
    numbers = pairs.tolist()
    ends = find_sentence_ends([src_words[k] for k in numbers], [tgt_words[k] for k in numbers])
    firsts, lasts = links.offsets[pairs].tolist(), links.offsets[pairs + 1].tolist()
    bounds: list[tuple[int, int]] = []
    counts = []
    for src_ends, tgt_ends, first, last, more in zip(
        *ends, firsts, lasts, again.tolist(), strict=True
    ):
        i, j, scores = links.src[first:last], links.tgt[first:last], links.score[first:last]
        found = split_pair(src_ends, tgt_ends, i, j, scores, more)
        bounds += found
        counts.append(len(found))
    pair = np.repeat(pairs, counts)
    start = np.flatnonzero(pair[1:] == pair[:-1])  # all bounds but the last of each pair
    columns = [pair[start]]
    for side, words in zip((src, tgt), np.array(bounds).T, strict=True):
        pieces = _find_first_pieces(side, pair, words)
        columns += [pieces[start], pieces[start + 1]]
    return np.stack(columns, axis=1)


def _find_first_pieces(side: Pieces, pair: IntArray, word: IntArray) -> IntArray:
    """Return where in its sentence each word begins, in pieces; the length for the word after the
    last one."""
    # A sentence has fewer than 2^20 words.
    keys = np.repeat(np.arange(len(side.n_words)) << 20, np.diff(side.offsets)) + side.words
    return np.asarray(np.searchsorted(keys, (pair << 20) + word) - side.offsets[pair])


def split_pair(
    src: SentenceEnds,
    tgt: SentenceEnds,
    i: IntArray,
    j: IntArray,
    scores: Floats,
    again: bool = False,
) -> list[tuple[int, int]]:
    """Return the bounds of a pair's parts in words, (0, 0) and both lengths included.

    Splits at ends of sentences first, and only what is long then, inside: so a sentence mostly has
    the parts that it has in a line of its own.
    """
    look = Look(src, tgt, i, j, scores)
    at_ends = _find_end_splits(look)
    chosen = choose_splits(at_ends)
    bounds = chosen[:1]
    every: list[Split] = []
    for first, last in pairwise(chosen):
        inside = [first, last]
        if max(last.src - first.src, last.tgt - first.tgt) > (2 * LONG if again else LONG):
            every = every or sorted(at_ends + _find_inner_splits(look))
            inside = choose_splits(every[every.index(first) : every.index(last) + 1])
        bounds += inside[1:]
    return [(split.src, split.tgt) for split in bounds]


# ---- where a pair may be split ----


def _find_end_splits(look: Look) -> list[Split]:
    """Return splits at ends of sentences of at least one side, between the ends of the line."""
    found: Candidates = []
    is_end = look.link_kinds() >= HALF_END
    if is_end.any():
        found += _split_after_links(look, is_end)
    # Marks that are linked to the end of another sentence say nothing about the words.
    words = look.select_links(~is_end)
    if len(words.i) and len(look.src.ends) + len(look.tgt.ends):
        found += _split_between_ends(words)
        found += _split_after_ends(words)
        turned = words._replace(src=look.tgt, tgt=look.src, i=words.j, j=words.i)
        found += [(cost, p, q) for cost, q, p in _split_after_ends(turned)]
    surplus = len(look.src.full_ends) - len(look.tgt.full_ends)
    return [
        Split(0, 0, True, 0.0, 0),
        *_keep_cheapest(found, look, is_end=True),
        Split(len(look.src.kinds), len(look.tgt.kinds), True, 0.0, surplus),
    ]


def _find_inner_splits(look: Look) -> list[Split]:
    """Return splits after linked pauses, and between neighbours that are linked to neighbours."""
    kinds, width = look.link_kinds(), len(look.tgt.kinds) + 1
    cells = look.i * width + look.j
    next_cells = look.src.after[look.i] * width + look.tgt.after[look.j]
    place = np.minimum(cells.searchsorted(next_cells), len(cells) - 1)
    has_next = cells[place] == next_cells  # the words behind the split are linked, too
    found = _split_after_links(look, (kinds == PAUSE) | ((kinds == NO_MARK) & has_next))
    return _keep_cheapest(found, look, is_end=False)


def _split_after_links(look: Look, chosen: Bools) -> Candidates:
    """Return splits after the words of the chosen links."""
    links = look.select_links(chosen)
    p, q = look.src.after[links.i], look.tgt.after[links.j]
    rows = p.tolist(), q.tolist(), sum_crossing(p, q, look).tolist(), links.link_kinds().tolist()
    n_src, n_tgt = len(look.src.kinds), len(look.tgt.kinds)
    return [
        (crossing + _AFTER_LINK[kind], p, q)
        for p, q, crossing, kind in zip(*rows, strict=True)
        if p < n_src and q < n_tgt and crossing <= _MAX_CROSSING
    ]


def _split_between_ends(look: Look) -> Candidates:
    """Return splits between ends of both sides, linked or not."""
    p, q = look.src.ends, look.tgt.ends
    if len(p) * len(q) > _MAX_CELLS:
        return []
    crossing = tabulate_crossing(p, q, look)
    row, column = np.nonzero(crossing <= _MAX_CROSSING)
    columns = crossing[row, column], p[row], q[column]
    return list(zip(*(values.tolist() for values in columns), strict=True))


def _split_after_ends(look: Look) -> Candidates:
    """Return splits after full ends of the source, each where the fewest links cross it."""
    ends, n_tgt = look.src.full_ends, len(look.tgt.kinds)
    if not len(ends) or n_tgt < 2 or len(ends) * n_tgt > _MAX_CELLS:
        return []
    table = tabulate_crossing(ends, np.arange(1, n_tgt), look)
    # The last of equal places: words without links rather end a sentence than begin one.
    places = n_tgt - 1 - table[:, ::-1].argmin(axis=1)
    rows = ends.tolist(), places.tolist(), table.min(axis=1).tolist()
    return [
        (crossing + _ONE_SIDED, p, q)
        for p, q, crossing in zip(*rows, strict=True)
        if crossing <= _MAX_CROSSING
    ]


def _keep_cheapest(found: Candidates, look: Look, is_end: bool) -> list[Split]:
    """Return each split once, and only few at one place of a side, so that _REACH goes far."""
    src_ends, tgt_ends = look.src.full_ends.tolist(), look.tgt.full_ends.tolist()
    kept: list[Split] = []
    seen: set[tuple[int, int]] = set()
    by_src: dict[int, int] = defaultdict(int)
    by_tgt: dict[int, int] = defaultdict(int)
    for cost, p, q in sorted(found):
        if (p, q) in seen:
            continue
        seen.add((p, q))
        by_src[p] += 1
        by_tgt[q] += 1
        if by_src[p] <= _NEAREST and by_tgt[q] <= _NEAREST:
            surplus = bisect_right(src_ends, p) - bisect_right(tgt_ends, q)
            kept.append(Split(p, q, is_end, cost, surplus))
    return sorted(kept)


# ---- what crosses a split: links before it on one side and behind it on the other ----


def tabulate_crossing(p: IntArray, q: IntArray, look: Look) -> Costs:
    """Return the scores that cross a split at each p with each q, added up, (len(p), len(q)).

    Both are sorted. With the links 0-0, 1-2 and 2-1, all of score 1, and p = q = [1, 2]:

        links by the parts they are in   1 0 0   before p and q   1 1 1   crossing   0 1
                                         0 0 1                    1 1 2              1 2
                                         0 1 0                    1 2 3
    """
    rows, columns = len(p) + 1, len(q) + 1
    cells = p.searchsorted(look.i, "right") * columns + q.searchsorted(look.j, "right")
    sums = np.bincount(cells, look.scores, rows * columns).reshape(rows, columns)
    before = sums.cumsum(0).cumsum(1)
    # What is before p or before q, less what is before both and was counted twice.
    return np.asarray(before[:-1, -1:] + before[-1, :-1] - 2 * before[:-1, :-1])


def sum_crossing(p: IntArray, q: IntArray, look: Look) -> Costs:
    """Return the scores that cross each of the splits at p and q, added up, (len(p),).

    They are sorted by p.
    """
    found = np.zeros(len(p))
    # In blocks: one table would grow with the square of the line.
    for start in range(0, len(p), _REACH):
        block = slice(start, start + _REACH)
        columns = np.sort(q[block])
        table = tabulate_crossing(p[block], columns, look)
        found[block] = table[np.arange(len(table)), columns.searchsorted(q[block])]
    return found


# ---- which of the splits ----


def choose_splits(splits: Sequence[Split]) -> list[Split]:
    """Return the splits that are cheapest together with the parts they make.

    The first and the last, which are the ends of the line, are among them. Splits are sorted.
    Dynamic programming: `costs[k]` is the least that the line up to split k can cost, by the best
    split before it. Three sentences of 20 words on each side, with linked marks:

        split           0     20                  40                        60
        own cost        0     -2                  -2                        0
        from 0                (20/17)^2 = 1.4     (40/17)^2 = 5.5           (60/17)^2 = 12.5
        from 20                                   -0.6 + 1.4 = 0.8          -0.6 + 5.5 = 4.9
        from 40                                                             -1.2 + 1.4 = 0.2
        costs           0     1.4 - 2 = -0.6      0.8 - 2 = -1.2            0.2

    Going back from 60 to the best split before each: 40, 20, 0.
    """
    src, tgt, _, own, surplus = zip(*splits, strict=True)
    costs, before, least = [0.0], [0], 0.0
    for k in range(1, len(splits)):
        best, best_start = inf, 0
        p, q, uneven = src[k], tgt[k], surplus[k]
        for start in _list_starts(k):
            if costs[start] > best:
                continue  # without looking at the part, which costs something, too
            n, m = p - src[start], q - tgt[start]
            if n > 0 < m:
                size = n if n > m else m
                cost = costs[start] + (size / _EASY) ** 2 + _UNEVEN * abs(uneven - surplus[start])
                # Of equal ones the first of all or the furthest: a longer part.
                if cost < best or (cost == best and best_start):
                    best, best_start = cost, start
                elif least + (n / _EASY) ** 2 > best:
                    break  # all parts that begin further back are longer
        costs.append(best + own[k])
        before.append(best_start)
        least = min(least, costs[k])
    chosen = [len(splits) - 1]
    while chosen[-1]:
        chosen.append(before[chosen[-1]])
    return [splits[k] for k in reversed(chosen)]


def _list_starts(k: int) -> list[int]:
    """Return the splits that a part which ends at split k may begin at: the first, whose cost
    rules out many others, and from the nearest backwards."""
    starts = [0, *range(k - 1, max(0, k - _REACH - 1), -1)]
    back = 2 * _REACH
    while back < k:
        starts.append(k - back)
        back *= 2
    return starts
