"""Where a long pair is cut, so that its parts can be aligned on their own.
Knows the links of a first look, as arrays, and the words; running models is the matter of others.

In a long line every word has many more words to be mistaken for, and the sentences of a paragraph
drift off the diagonal. Most lines can be cut where hardly a link crosses, best at the end of a
sentence: the parts are then as easy as single sentences, and their links are those of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt

from mx.engine.batching import IntArray
from mx.engine.decode import Floats, Links
from mx.engine.text import Pieces, Words

# Words of the longer side: longer pairs are looked at, those of more than twice as many twice, and
# once more with every doubling up to a limit: the longer a part, the less can be seen in it.
LONG, LOOKS = 60, 4
# From here on pairs that have several sentences are looked at, too.
SEVERAL = 20
# What a part of n words costs is (n / _EASY)^2, in links: its cuts may lose so many.
_EASY = 17.0
# What a cut costs, besides the links that cross it: after linked marks that end sentences on both
# sides (it wins something even between short ones), after other linked punctuation, and anywhere
# else; between ends of sentences that are not linked, nothing.
_ENDED, _PAUSED, _INSIDE = -2.0, 4.0, 10.0
# Words between a cut without punctuation and the nearest one with it.
_APART = 10
# What ends a sentence, or something that can stand alone like one, in some scripts.
_ENDS = frozenset(".!?…:;。！？：；｡؟؛۔।॥።፧")
_END = 2
# No cut loses more than this, however long the line is: what crosses there is meant. Less if
# there is another look: it sees more, but never across what was cut before.
_CROSSING, _AT_FIRST = 8.0, 3.0
# Ends of sentences on one side that are tried with one on the other, if they are not linked; with
# more pairs of ends than this, none are.
_NEAREST, _MOST = 3, 1 << 20
# Cuts before one that its part may begin at, so that the time grows with the line, not its square.
_REACH = 64


@dataclass(frozen=True)
class Cuts:
    """Places between words where a pair may be cut: before source word `src` and target word
    `tgt`; sorted by `src`."""

    src: IntArray
    tgt: IntArray
    cost: npt.NDArray[np.float64]


def looks(
    src_words: Sequence[Words], tgt_words: Sequence[Words], src: Pieces, tgt: Pieces
) -> IntArray:
    """How often each pair is to be looked at for cuts, each time in the parts of the time before:
    not at all if it is short, or of one sentence and not long."""
    size = np.maximum(src.n_words, tgt.n_words)
    found = np.ceil(np.log2(np.clip(size / LONG, 1, 2**LOOKS))).astype(np.int64)
    for pair in np.flatnonzero((size > SEVERAL) & (size <= LONG)).tolist():
        found[pair] = all(_has_end(side[pair]) for side in (src_words, tgt_words))
    return found


def _has_end(words: Words) -> bool:
    """Whether a sentence ends before the last word."""
    return _END in map(_mark, islice(words, max(0, len(words) - 1)))


def parts(
    pairs: IntArray,
    again: npt.NDArray[np.bool_],
    links: Links,
    src_words: Sequence[Words],
    tgt_words: Sequence[Words],
    src: Pieces,
    tgt: Pieces,
) -> IntArray:
    """The parts of these pairs, by their links; the whole if one cannot be cut. Rows of the pair's
    number, where the part begins and ends in the source and where in the target, in pieces. Of
    pairs that will be looked at `again` only the surest cuts are made."""
    found = []
    for pair, limit in zip(pairs.tolist(), np.where(again, _AT_FIRST, _CROSSING), strict=True):
        own = slice(*links.offsets[pair : pair + 2].tolist())
        words = src_words[pair], tgt_words[pair]
        bounds = cut(*words, links.src[own], links.tgt[own], links.score[own], limit)
        found.append(_in_pieces(pair, bounds, src, tgt))
    return np.concatenate(found)


def _in_pieces(pair: int, bounds: IntArray, src: Pieces, tgt: Pieces) -> IntArray:
    columns = [np.full(len(bounds) - 1, pair)]
    for side, words in ((src, bounds[:, 0]), (tgt, bounds[:, 1])):
        start, end = side.offsets[pair : pair + 2]
        pieces = np.searchsorted(side.words[start:end], words)
        columns += [pieces[:-1], pieces[1:]]
    return np.stack(columns, axis=1)


def cut(
    src: Words, tgt: Words, i: IntArray, j: IntArray, scores: Floats, limit: float = _CROSSING
) -> IntArray:
    """Bounds (parts + 1, 2) of a pair's parts, in words of both sides, by its sorted links."""
    ends = np.array([[0, 0], [len(src), len(tgt)]])
    cuts = _possible(src, tgt, i, j, scores, limit)
    chosen = _cheapest(cuts, len(src), len(tgt))
    inner = np.stack([cuts.src[chosen], cuts.tgt[chosen]], axis=1)
    return np.concatenate([ends[:1], inner, ends[1:]])


def _possible(
    src: Words, tgt: Words, i: IntArray, j: IntArray, scores: Floats, limit: float
) -> Cuts:
    """Cuts after a link of two punctuation marks, between ends of sentences that are not linked,
    and, where there are no linked marks for a while, between two links of neighbours."""
    p, q, wide = i + 1, j + 1, len(tgt) + 1
    marks = [np.array([_mark(word) for word in side], np.int64) for side in (src, tgt)]
    mark = np.minimum(marks[0][i], marks[1][j])
    tight = np.isin(p * wide + q, i * wide + j)
    crossing = _crossing(i, j, scores)
    good = (p < len(src)) & (q < len(tgt)) & (crossing <= limit)
    good &= (mark > 0) | tight & (_distance(p, p[good & (mark > 0)]) >= _APART)
    own = np.array([_INSIDE, _PAUSED, _ENDED])[mark]
    linked = Cuts(p[good], q[good], crossing[good] + own[good])
    words = mark < _END  # a mark that is linked to the end of another sentence says nothing
    src_ends, tgt_ends = (np.flatnonzero(side[:-1] == _END) + 1 for side in marks)
    free = _between_ends(src_ends, tgt_ends, i[words], j[words], scores[words], limit)
    return _joined(linked, free)


def _between_ends(
    src: IntArray, tgt: IntArray, i: IntArray, j: IntArray, scores: Floats, limit: float
) -> Cuts:
    """Cuts between ends of sentences of both sides, of each source sentence with the target ones
    that the fewest links cross; none if there are very many of them, or no links."""
    if not len(i) or not 0 < len(src) * len(tgt) <= _MOST:
        return Cuts(src[:0], tgt[:0], np.zeros(0))
    sums = np.zeros((len(src) + 1, len(tgt) + 1))  # by the sentences that links are in
    np.add.at(sums, (np.searchsorted(src, i, "right"), np.searchsorted(tgt, j, "right")), scores)
    by_src, by_tgt = sums.sum(1).cumsum()[:-1, None], sums.sum(0).cumsum()[:-1]
    crossing = by_src + by_tgt - 2 * sums.cumsum(0).cumsum(1)[:-1, :-1]
    nearest = np.argsort(crossing, axis=1, kind="stable")[:, :_NEAREST]
    row, column = np.indices(nearest.shape)[0].ravel(), nearest.ravel()
    good = crossing[row, column] <= limit
    row, column = row[good], column[good]
    return Cuts(src[row], tgt[column], crossing[row, column])


def _joined(first: Cuts, second: Cuts) -> Cuts:
    src, tgt = np.append(first.src, second.src), np.append(first.tgt, second.tgt)
    order = np.lexsort((tgt, src))
    return Cuts(src[order], tgt[order], np.append(first.cost, second.cost)[order])


def _distance(places: IntArray, others: IntArray) -> IntArray:
    """Of each place from the nearest of the others; both are sorted."""
    if not len(others):
        return np.full_like(places, np.iinfo(np.int64).max)
    after = np.searchsorted(others, places)
    near = others[np.stack([np.maximum(after - 1, 0), np.minimum(after, len(others) - 1)])]
    return np.asarray(np.abs(near - places).min(axis=0))


@lru_cache(1 << 16)
def _mark(word: str) -> int:
    """_END for punctuation that ends a sentence, 1 for any other, 0 for words."""
    if not word or any(unicodedata.category(character)[0] != "P" for character in word):
        return 0
    return 1 if _ENDS.isdisjoint(word) else _END


def _crossing(i: IntArray, j: IntArray, scores: Floats) -> npt.NDArray[np.float64]:
    """The scores, added up, of the links that cross the cut after each link: those before it on
    one side and after it on the other."""
    sums = np.concatenate([[0.0], np.cumsum(scores, dtype=np.float64)])
    by_src = sums[np.searchsorted(i, i, "right")]
    order = np.argsort(j, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(scores[order], dtype=np.float64)])
    by_tgt = sums[np.searchsorted(j[order], j, "right")]
    return np.asarray(by_src + by_tgt - 2 * _before(i, j, scores))


def _before(i: IntArray, j: IntArray, scores: Floats) -> npt.NDArray[np.float64]:
    """The scores, added up, of the links before the cut after each link, on both sides."""
    rows, columns, values = i.tolist(), j.tolist(), scores.tolist()
    size = max(columns, default=0) + 2
    tree = [0.0] * size  # sums over ranges of target words, a Fenwick tree
    found, known = [], 0
    for row, column in zip(rows, columns, strict=True):
        while known < len(rows) and rows[known] <= row:
            place = columns[known] + 1
            while place < size:
                tree[place] += values[known]
                place += place & -place
            known += 1
        total, place = 0.0, column + 1
        while place:
            total += tree[place]
            place &= place - 1
        found.append(total)
    return np.array(found)


def _cheapest(cuts: Cuts, n_src: int, n_tgt: int) -> IntArray:
    """Places of the cuts that are cheapest together with the parts they make."""
    src, tgt = [0, *cuts.src.tolist(), n_src], [0, *cuts.tgt.tolist(), n_tgt]
    own = [0.0, *cuts.cost.tolist(), 0.0]
    costs, before = [0.0], [0]
    for k in range(1, len(src)):
        # From the beginning of the line, or from a cut not too far back.
        best, start = (max(src[k], tgt[k]) / _EASY) ** 2, 0
        for early in range(max(1, k - _REACH), k):
            n, m = src[k] - src[early], tgt[k] - tgt[early]
            if n > 0 < m:
                cost = costs[early] + (max(n, m) / _EASY) ** 2
                if cost < best:
                    best, start = cost, early
        costs.append(best + own[k])
        before.append(start)
    chosen = []
    k = before[-1]
    while k:
        chosen.append(k - 1)
        k = before[k]
    return np.array(chosen[::-1], np.int64)
