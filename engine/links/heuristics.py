"""Joins the links of two directions the classic ways: intersect, union, the grow-diag family.

Definitions are those of Koehn et al. (2003) and Moses: the target is the outer loop, points added
are seen at once, `final` goes over the forward links before the backward ones.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from heapq import heapify, heappop, heappush

import numpy as np

from ..types import Link, Links

# (target, source) steps, in the order of Moses: straight ones first.
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def join_directions(method: str, fwd: Set[Link], bwd: Set[Link]) -> list[Link]:
    """Join two sets of (source, target) links by one of JOIN_METHODS; returns them sorted."""
    return sorted(JOIN_METHODS[method](fwd, bwd))


def join_links(method: str, fwd: Links, bwd: Links) -> Links:
    """Join both directions of each pair by a classic heuristic.

    A link's score is the higher of the two directions'; it is sure if both have it.
    """
    counts, rows = [], []
    for pair in range(len(fwd.offsets) - 1):
        first, second = _link_scores(fwd, pair), _link_scores(bwd, pair)
        links = join_directions(method, first.keys(), second.keys())
        counts.append(len(links))
        for link in links:
            score = max(first.get(link, 0.0), second.get(link, 0.0))
            rows.append((*link, score, link in first and link in second))
    table = np.array(rows, np.float64).reshape(-1, 4)
    src, tgt = table[:, :2].astype(np.int64).T
    return Links(np.cumsum([0, *counts]), src, tgt, table[:, 2].astype(np.float32), table[:, 3] > 0)


def _link_scores(links: Links, pair: int) -> dict[Link, float]:
    part = slice(int(links.offsets[pair]), int(links.offsets[pair + 1]))
    keys = zip(links.src[part].tolist(), links.tgt[part].tolist(), strict=True)
    return dict(zip(keys, links.score[part].tolist(), strict=True))


def _grow_diag(fwd: Set[Link], bwd: Set[Link]) -> set[Link]:
    """Start from the intersection and add points of the union beside a point, as long as they
    give a link to a word that has none.

    The definition scans the whole grid, target by target, until a scan adds nothing. Only links
    have neighbours to look at, so a scan goes through a heap of them instead.
    """
    links = set(fwd & bwd)
    free = set(fwd | bwd) - links
    src_done = {i for i, _ in links}
    tgt_done = {j for _, j in links}
    added = bool(free)
    while added:
        added = False
        scan = [(j, i) for i, j in links]
        heapify(scan)
        while scan:
            place = heappop(scan)
            for dj, di in _NEIGHBOURS:
                i, j = place[1] + di, place[0] + dj
                if (i, j) in free and (i not in src_done or j not in tgt_done):
                    links.add((i, j))
                    free.discard((i, j))
                    src_done.add(i)
                    tgt_done.add(j)
                    added = True
                    if (j, i) > place:  # still ahead in this scan
                        heappush(scan, (j, i))
    return links


def _grow_diag_final(fwd: Set[Link], bwd: Set[Link], *, both: bool = False) -> set[Link]:
    """Add to grow-diag the links of a word without a link, or of two such words if `both`."""
    links = _grow_diag(fwd, bwd)
    for direction in (fwd, bwd):
        src_done = {i for i, _ in links}
        tgt_done = {j for _, j in links}
        for i, j in sorted(direction, key=lambda link: (link[1], link[0])):
            src_free, tgt_free = i not in src_done, j not in tgt_done
            if (src_free and tgt_free) if both else (src_free or tgt_free):
                links.add((i, j))
                src_done.add(i)
                tgt_done.add(j)
    return links


JOIN_METHODS: dict[str, Callable[[Set[Link], Set[Link]], set[Link]]] = {
    "intersect": lambda fwd, bwd: set(fwd & bwd),
    "union": lambda fwd, bwd: set(fwd | bwd),
    "grow-diag": _grow_diag,
    "grow-diag-final": _grow_diag_final,
    "grow-diag-final-and": lambda fwd, bwd: _grow_diag_final(fwd, bwd, both=True),
}
