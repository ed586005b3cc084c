"""The classic ways to join two directional link sets: intersect, union, and the grow-diag family.
Knows sets of word links (source, target); where they come from is the matter of `decode`.

Definitions are those of Koehn et al. (2003) and Moses: the target is the outer loop, points added
are seen at once, `final` goes over the forward links before the backward ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from heapq import heapify, heappop, heappush

from ..errors import MxError
from ..types import Link

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrize(method: str, fwd: Set[Link], bwd: Set[Link]) -> list[Link]:
    """Sorted links of two sets of (source, target) links, by one of METHODS."""
    if method not in METHODS:
        raise MxError(f"no symmetrization {method!r}; there are {', '.join(METHODS)}")
    return sorted(METHODS[method](fwd, bwd))


def _intersect(fwd: Set[Link], bwd: Set[Link]) -> set[Link]:
    return set(fwd & bwd)


def _union(fwd: Set[Link], bwd: Set[Link]) -> set[Link]:
    return set(fwd | bwd)


def _target_first(link: Link) -> Link:
    return link[1], link[0]


def _grow_diag(fwd: Set[Link], bwd: Set[Link]) -> set[Link]:
    """The intersection and, again and again, points of the union beside a point, as long as they
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


def _final(links: set[Link], candidates: Iterable[Link], both: bool) -> None:
    """Add candidates that link a word without a link, or two such words if `both`."""
    src_done = {i for i, _ in links}
    tgt_done = {j for _, j in links}
    for i, j in sorted(candidates, key=_target_first):
        src_free, tgt_free = i not in src_done, j not in tgt_done
        if (src_free and tgt_free) if both else (src_free or tgt_free):
            links.add((i, j))
            src_done.add(i)
            tgt_done.add(j)


def _grow_diag_final(fwd: Set[Link], bwd: Set[Link]) -> set[Link]:
    links = _grow_diag(fwd, bwd)
    _final(links, fwd, both=False)
    _final(links, bwd, both=False)
    return links


def _grow_diag_final_and(fwd: Set[Link], bwd: Set[Link]) -> set[Link]:
    links = _grow_diag(fwd, bwd)
    _final(links, fwd, both=True)
    _final(links, bwd, both=True)
    return links


METHODS: dict[str, Callable[[Set[Link], Set[Link]], set[Link]]] = {
    "intersect": _intersect,
    "union": _union,
    "grow-diag": _grow_diag,
    "grow-diag-final": _grow_diag_final,
    "grow-diag-final-and": _grow_diag_final_and,
}
