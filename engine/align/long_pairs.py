"""Where a long pair is cut, so that its parts can be aligned on their own.
Knows the links of a first look, as arrays, and the words; running models is the matter of others.

In a long line every word has many more words to be mistaken for, and the sentences of a paragraph
drift off the diagonal. Most lines can be cut where hardly a link crosses, best at the end of a
sentence: the parts are then as easy as single sentences, and their links are those of them."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import inf

import numpy as np
import numpy.typing as npt

from ..types import Floats, IntArray, Links, Pieces, Words

Costs = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
# Cuts as arrays: source and target words they are before, what they cost, if sentences end there.
Places = tuple[IntArray, IntArray, Costs, Bools]

# Words of the longer side: longer pairs are looked at, those of more than twice as many twice, and
# once more with every doubling up to a limit: the longer a part, the less can be seen in it.
LONG, LOOKS = 60, 4
# From here on pairs that have several sentences are looked at, too.
SEVERAL = 20
# What a part of n words costs is (n / _EASY)^2, in links: its cuts may lose so many.
_EASY = 17.0
# What a cut costs, besides the links that cross it: after two linked marks, by the weaker one of
# them (an end wins something even between short sentences), or between linked neighbours anywhere;
# and after a full end of one side, wherever that is on the other. Between two ends that are not
# linked it costs nothing.
_COSTS, _ALONE = np.array([10.0, 4.0, -2.0, -2.0]), 6.0
# What a part costs for every full end that one side has more: most sentences are translated by one.
_UNEVEN = 4.0
# What a word is: no mark, a pause, what can end a sentence, what does.
_PAUSE, _HALF, _FULL = 1, 2, 3
_HALVES, _FULLS = frozenset(":;：；؛"), frozenset(".!?…。！？．｡؟۔।॥።፧։។။")
_COMMAS = frozenset(",，、،")
# Letters of a word that a dot follows and that is hardly an abbreviation.
_WHOLE = 4
# Quotes, double and single ones: what opens in one language closes in another, so every second one
# of a side closes, or nobody knows.
_QUOTES = frozenset('"“”„‟«»') | {"``", "''"}, frozenset("'‘’‚‛‹›`")
# No cut loses more than this, however long the line is: what crosses there is meant. Less if
# there is another look: it sees more, but never across what was cut before. Between full ends more.
_CROSSING, _AT_FIRST, _FULL_CROSSING = 8.0, 3.0, 1.5
# Places on one side that are tried, and cuts that are kept, with one on the other.
_NEAREST = 3
# Places of both sides that are tried with each other; of more, none are.
_MOST = 1 << 20
# Cuts before one that its part may begin at, and ever fewer further back, so that the time does not
# grow with the square of the line.
_REACH = 64


@dataclass(frozen=True)
class Cuts:
    """Places where a pair may be cut: before source word `src` and target word `tgt`; sorted. The
    first and the last are the ends of the line. `surplus` is by how many more full ends inside the
    line the source has before it than the target."""

    src: IntArray
    tgt: IntArray
    cost: Costs
    end: Bools  # of sentences
    surplus: IntArray

    def only(self, wanted: IntArray) -> Cuts:
        return Cuts(*(column[wanted] for column in vars(self).values()))


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
    return not {_HALF, _FULL}.isdisjoint(map(_mark, islice(words, max(0, len(words) - 1))))


def parts(
    pairs: IntArray,
    again: Bools,
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
    for pair, more in zip(pairs.tolist(), again.tolist(), strict=True):
        own = slice(*links.offsets[pair : pair + 2].tolist())
        words = src_words[pair], tgt_words[pair]
        bounds = cut(*words, links.src[own], links.tgt[own], links.score[own], more)
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
    src: Words, tgt: Words, i: IntArray, j: IntArray, scores: Floats, again: bool = False
) -> IntArray:
    """Bounds (parts + 1, 2) of a pair's parts, in words of both sides, by its sorted links.

    Cut at ends of sentences first, and only then, if it is still long, inside: so a sentence
    mostly has the parts that it has in a line of its own."""
    src, tgt = ([_plain(word) for word in side] for side in (src, tgt))
    quotes = _trusted(src, tgt)
    cuts = _possible(_side(src, quotes), _side(tgt, quotes), i, j, scores, again)
    ends = np.flatnonzero(cuts.end)
    bounds = ends[_cheapest(cuts.only(ends))]
    chosen = [bounds[:1]]
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        inner = np.array([first, last])
        size = max(cuts.src[last] - cuts.src[first], cuts.tgt[last] - cuts.tgt[first])
        if size > (2 * LONG if again else LONG):
            inner = np.arange(first, last + 1)
            inner = inner[_cheapest(cuts.only(inner))]
        chosen.append(inner[1:])
    found = np.concatenate(chosen)
    return np.stack([cuts.src[found], cuts.tgt[found]], axis=1)


# ---- where a pair may be cut ----


@dataclass(frozen=True)
class _Side:
    """The words of a side: what each of them is, and where a cut after it is made."""

    marks: IntArray
    after: IntArray

    def ends(self, mark: int) -> IntArray:
        """Where the line may be cut after ends of sentences, of this kind at least."""
        places = np.unique(self.after[self.marks >= mark])
        return places[places < len(self.marks)]


def _side(words: Words, quotes: Sequence[frozenset[str]]) -> _Side:
    """Brackets and these quotes that close behind the end of a sentence belong to it."""
    marks = np.array([_mark(word) for word in words], np.int64)
    after = np.arange(1, len(words) + 1)
    second = {k for kind in quotes for k in _places(words, kind)[1::2]}
    closing = []
    for k in (np.flatnonzero(marks[1:] == _PAUSE) + 1).tolist():
        if marks[k - 1] == _FULL and (k in second or _is_bracket(words[k])):
            marks[k] = _FULL
            closing.append(k)
    for k in reversed(closing):
        after[k - 1] = after[k]
    return _Side(marks, after)


def _trusted(src: Words, tgt: Words) -> list[frozenset[str]]:
    """The kinds of quotes that come in pairs on both sides: what closes on one side only would be
    cut off from its link."""
    return [kind for kind in _QUOTES if all(len(_places(s, kind)) % 2 == 0 for s in (src, tgt))]


def _places(words: Words, kind: frozenset[str]) -> list[int]:
    return [k for k, word in enumerate(words) if word in kind]


def _plain(word: str) -> str:
    """Without SentencePiece's sign for a space, and with what Moses writes as `&quot;`."""
    return html.unescape(word.strip("▁"))


def _is_bracket(word: str) -> bool:
    """Whether it closes, as quotes of Chinese and Japanese do as well."""
    return {unicodedata.category(character) for character in word} == {"Pe"}


@lru_cache(1 << 16)
def _mark(word: str) -> int:
    """_FULL or _HALF for what ends a sentence, _PAUSE for other punctuation, 0 for words. In text
    that is not tokenised the marks are at the ends of words."""
    if word[-1:].isalnum():  # nearly all
        return 0
    word = _plain(word)
    kinds = [unicodedata.category(character) for character in word]
    size = len(word)
    while size and (kinds[size - 1][0] == "P" or kinds[size - 1] in ("Zs", "Cf")):
        size -= 1  # a no-break space or a direction mark may stand between marks
    stem = word[:size]
    marks = [word[k] for k in range(size, len(word)) if kinds[k][0] == "P"]
    if not _FULLS.isdisjoint(marks) and not (stem and _is_short(stem, marks)):
        return _FULL
    if not _HALVES.isdisjoint(marks):
        return _HALF
    return _PAUSE if marks and (not stem or not _COMMAS.isdisjoint(marks)) else 0


def _is_short(stem: str, marks: Sequence[str]) -> bool:
    """Whether the dot behind this may stand for the rest of a word, or make it an ordinal. Scripts
    without capitals have no such abbreviations."""
    letters = sum(map(str.isalpha, stem.rpartition(".")[2]))
    cased = stem.lower() != stem.upper()
    one_dot = [mark for mark in marks if mark in _FULLS] == ["."]
    return one_dot and letters < _WHOLE and (cased or not letters)


def _possible(
    src: _Side, tgt: _Side, i: IntArray, j: IntArray, scores: Floats, again: bool
) -> Cuts:
    """All cuts that do not lose too much, between the ends of the line."""
    limits = np.full(_FULL + 1, _AT_FIRST if again else _CROSSING)
    limits[_FULL] *= _FULL_CROSSING
    n_src, n_tgt = len(src.marks), len(tgt.marks)
    found = [_linked(src, tgt, i, j, scores, limits)]
    # Marks that are linked to the end of another sentence say nothing.
    words = np.minimum(src.marks[i], tgt.marks[j]) < _HALF
    if words.any():
        i, j, scores = i[words], j[words], scores[words]
        found.append(_between_ends(src, tgt, i, j, scores, limits))
        found.append(_after_one(src.ends(_FULL), n_tgt, i, j, scores, limits))
        q, p, cost, end = _after_one(tgt.ends(_FULL), n_src, j, i, scores, limits)
        found.append((p, q, cost, end))
    line = np.array([0, n_src]), np.array([0, n_tgt]), np.zeros(2), np.array([True, True])
    p, q, cost, end = map(np.concatenate, zip(line, *found, strict=True))
    # Of equal places only the cheapest, and few at one place of a side, so that _REACH goes far;
    # but of ends and others apart: a cut inside a sentence may be cheaper, and comes too late.
    order = np.lexsort((cost, end, q, p))
    same = np.stack([p, q, end])[:, order]
    order = order[np.append(True, (np.diff(same, axis=1) != 0).any(axis=0))]
    few = [_few(2 * side[order] + end[order], cost[order]) for side in (p, q)]
    order = order[few[0] & few[1]]
    before = (np.searchsorted(side.ends(_FULL), x, "right") for side, x in ((src, p), (tgt, q)))
    return Cuts(p, q, cost, end, np.subtract(*before)).only(order)


def _few(keys: IntArray, cost: Costs) -> Bools:
    """Which are among the _NEAREST cheapest of their key."""
    order = np.lexsort((cost, keys))
    found = np.zeros(len(keys), bool)
    found[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order]) < _NEAREST
    return found


def _linked(
    src: _Side, tgt: _Side, i: IntArray, j: IntArray, scores: Floats, limits: Costs
) -> Places:
    """Cuts after links of two marks, and between two links of neighbours."""
    p, q, wide = src.after[i], tgt.after[j], len(tgt.marks) + 1
    mark = np.minimum(src.marks[i], tgt.marks[j])
    tight = np.isin(p * wide + q, i * wide + j)
    crossing = _crossing(i, j, scores, p, q)
    good = (p < len(src.marks)) & (q < len(tgt.marks)) & (crossing <= limits[mark])
    good &= (mark > 0) | tight
    return p[good], q[good], (crossing + _COSTS[mark])[good], mark[good] >= _HALF


def _between_ends(
    src: _Side, tgt: _Side, i: IntArray, j: IntArray, scores: Floats, limits: Costs
) -> Places:
    """Cuts between ends of sentences of both sides, of each one in the source with those in the
    target that the fewest links cross."""
    p, q = src.ends(_HALF), tgt.ends(_HALF)
    crossing = _grid(p, q, i, j, scores)
    nearest = np.argsort(crossing, axis=1, kind="stable")[:, :_NEAREST]
    row, column = np.indices(nearest.shape)[0].ravel(), nearest.ravel()
    p, q, crossing = p[row], q[column], crossing[row, column]
    mark = np.minimum(src.marks[p - 1], tgt.marks[q - 1])
    good = crossing <= limits[mark]
    return p[good], q[good], crossing[good], mark[good] >= _HALF


def _after_one(
    ends: IntArray, n_other: int, i: IntArray, j: IntArray, scores: Floats, limits: Costs
) -> Places:
    """Cuts after ends of sentences of one side, each where the fewest links cross it."""
    others = np.arange(1, n_other)
    crossing = _grid(ends, others, i, j, scores)
    if not crossing.size:
        return ends[:0], ends[:0], np.zeros(0), np.zeros(0, bool)
    # The last of equal places: words without links rather end a sentence than begin one.
    last = others[::-1][crossing[:, ::-1].argmin(axis=1)]
    least = crossing.min(axis=1)
    good = least <= limits[_HALF]
    return ends[good], last[good], least[good] + _ALONE, np.ones(int(good.sum()), bool)


# ---- what crosses a cut: links before it on one side and after it on the other ----


def _grid(p: IntArray, q: IntArray, i: IntArray, j: IntArray, scores: Floats) -> Costs:
    """The scores of the links that cross cuts at each of the places `p` with each of `q`, added
    up; an empty table if there are too many."""
    if len(p) * len(q) > _MOST:
        return np.zeros((0, 0))
    sums = np.zeros((len(p) + 1, len(q) + 1))  # by the parts that links are in
    np.add.at(sums, (np.searchsorted(p, i, "right"), np.searchsorted(q, j, "right")), scores)
    by_src, by_tgt = sums.sum(1).cumsum()[:-1, None], sums.sum(0).cumsum()[:-1]
    return np.asarray(by_src + by_tgt - 2 * sums.cumsum(0).cumsum(1)[:-1, :-1])


def _crossing(i: IntArray, j: IntArray, scores: Floats, p: IntArray, q: IntArray) -> Costs:
    """The same of the cuts at `p` and `q`, one by one; both `i` and `p` are sorted."""
    sums = np.concatenate([[0.0], np.cumsum(scores, dtype=np.float64)])
    by_src = sums[np.searchsorted(i, p)]
    order = np.argsort(j, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(scores[order], dtype=np.float64)])
    by_tgt = sums[np.searchsorted(j[order], q)]
    return np.asarray(by_src + by_tgt - 2 * _before(i, j, scores, p, q))


def _before(i: IntArray, j: IntArray, scores: Floats, p: IntArray, q: IntArray) -> Costs:
    """The scores, added up, of the links before each cut, on both sides."""
    rows, columns, values = i.tolist(), j.tolist(), scores.tolist()
    size = max(columns, default=0) + 2
    tree = [0.0] * size  # sums over ranges of target words, a Fenwick tree
    found, known = [], 0
    for row, column in zip(p.tolist(), q.tolist(), strict=True):
        while known < len(rows) and rows[known] < row:
            place = columns[known] + 1
            while place < size:
                tree[place] += values[known]
                place += place & -place
            known += 1
        total, place = 0.0, min(column, size - 1)
        while place:
            total += tree[place]
            place &= place - 1
        found.append(total)
    return np.array(found)


# ---- which of the cuts ----


def _cheapest(cuts: Cuts) -> IntArray:
    """Places of the cuts that are cheapest together with the parts they make, the first and the
    last among them."""
    src, tgt, own = cuts.src.tolist(), cuts.tgt.tolist(), cuts.cost.tolist()
    surplus = cuts.surplus.tolist()
    costs, before = [0.0], [0]
    for k in range(1, len(src)):
        best, start = inf, 0
        for early in _starts(k):
            n, m = src[k] - src[early], tgt[k] - tgt[early]
            if n > 0 < m:
                uneven = _UNEVEN * abs(surplus[k] - surplus[early])
                cost = costs[early] + (max(n, m) / _EASY) ** 2 + uneven
                if cost < best:
                    best, start = cost, early
        costs.append(best + own[k])
        before.append(start)
    chosen = [len(src) - 1]
    while chosen[-1]:
        chosen.append(before[chosen[-1]])
    return np.array(chosen[::-1], np.int64)


def _starts(k: int) -> Iterator[int]:
    """The cuts that a part which ends with cut k may begin with: the first, and those not too far
    back."""
    yield 0
    back = 2 * _REACH
    while back < k:
        yield k - back
        back *= 2
    yield from range(max(1, k - _REACH), k)
