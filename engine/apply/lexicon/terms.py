"""Find terms of one or several words and their translations: groups of words that links join.

Memory is bounded: what was met rarely is forgotten now and then (lossy counting).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ...types import Link, Links, Pairs, Words
from .dictionary import Entry, has_letters

MAX_WORDS = 4
# A word that is more than this share of a text says little where a term begins or ends; articles
# and prepositions are. Chosen by reading one list of En-Fr terms, of 447 pairs.
_COMMON_SHARE = 0.0015
# Marks that may stand inside a term where hyphens and apostrophes are words of their own.
_JOINTS = frozenset("-\u2010\u2013'\u2019&/·・")
# Pairs of terms held; about 300 bytes each.
_MAX_HELD = 2_000_000


class TermCollector:
    """Counts which groups of up to four words are linked to each other and to nothing else."""

    def __init__(self, *, lowercase: bool = False) -> None:
        self._lowercase = lowercase
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._example: dict[tuple[str, str], int] = {}
        self._words: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        self._terms: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        self._dropped_below = 0

    def add_chunk(self, pairs: Pairs, links: Links) -> None:
        """Count the terms of a chunk."""
        both = list(zip(links.src.tolist(), links.tgt.tolist(), strict=True))
        for k, (start, end) in enumerate(pairwise(links.offsets.tolist())):
            src, tgt = self._fold(pairs.src[k]), self._fold(pairs.tgt[k])
            self._words[0].update(src)
            self._words[1].update(tgt)
            for (i, i_end), (j, j_end) in find_blocks(len(src), len(tgt), both[start:end]):
                term = " ".join(src[i:i_end]), " ".join(tgt[j:j_end])
                if _reads_like_term(src[i:i_end]) and _reads_like_term(tgt[j:j_end]):
                    self._pairs[term] += 1
                    self._terms[0][term[0]] += 1
                    self._terms[1][term[1]] += 1
                    self._example.setdefault(term, pairs.first + k)
        if len(self._pairs) > _MAX_HELD:
            self._forget_rare()

    def _fold(self, words: Words) -> Words:
        return [word.lower() for word in words] if self._lowercase else words

    def _forget_rare(self) -> None:
        self._dropped_below += 1
        rare = [term for term, n in self._pairs.items() if n <= self._dropped_below]
        for term in rare:
            del self._pairs[term], self._example[term]

    def list_terms(
        self, *, min_count: int = 3, min_probability: float = 0.2, best: int = 3
    ) -> list[tuple[Entry, int]]:
        """Return terms with a word group on either side, and the pair of an example, best first.

        Terms are ranked by their C-value: how often they occur on their own, and how long they are.
        """
        common = [_list_common(words) for words in self._words]
        found = defaultdict(list)
        for (src, tgt), n in self._pairs.items():
            fwd, bwd = n / self._terms[0][src], n / self._terms[1][tgt]
            sides = src.split(" "), tgt.split(" ")
            if (
                n < min_count
                or min(fwd, bwd) < min_probability
                or any(side[0] in c or side[-1] in c for side, c in zip(sides, common, strict=True))
            ):
                continue
            found[src].append(Entry(src, tgt, n, fwd, bwd))
        values = _c_values({src: sum(int(e.count) for e in rows) for src, rows in found.items()})
        listed = []
        for src in sorted(found, key=lambda src: (-values[src], src)):
            rows = sorted(found[src], key=lambda entry: (-entry.count, entry.tgt))[:best]
            if any(" " in entry.src or " " in entry.tgt for entry in rows) and values[src] > 0:
                listed += [(entry, self._example[entry.src, entry.tgt]) for entry in rows]
        return listed


def find_blocks(
    n_src: int, n_tgt: int, links: Sequence[Link], longest: int = MAX_WORDS
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the ranges of words that are linked to each other only, both ends of each linked.

    Of "0-1 1-0 2-2": 0:1 and 1:2, 0:2 and 0:2, 0:3 and 0:3, 1:2 and 0:1, 2:3 and 2:3.
    """
    of_src: list[list[int]] = [[] for _ in range(n_src)]
    of_tgt: list[list[int]] = [[] for _ in range(n_tgt)]
    for i, j in links:
        of_src[i].append(j)
        of_tgt[j].append(i)
    for start in range(n_src):
        low, high = n_tgt, -1
        for end in range(start, min(start + longest, n_src)):
            if of_src[end]:
                low, high = min(low, *of_src[end]), max(high, *of_src[end])
            if not of_src[start] or high - low >= longest:
                break
            inside = (start <= i <= end for j in range(low, high + 1) for i in of_tgt[j])
            if of_src[end] and all(inside):
                yield (start, end + 1), (low, high + 1)


def _reads_like_term(words: Words) -> bool:
    """Tell whether words begin and end with letters, and hold no marks between but joints."""
    inner = all(any(map(str.isalnum, word)) or word in _JOINTS for word in words[1:-1])
    return inner and has_letters(words[0]) and has_letters(words[-1])


def _list_common(words: Counter[str]) -> set[str]:
    """Return the words that are too frequent to begin or end a term."""
    least = max(_COMMON_SHARE * sum(words.values()), 3)
    return {word for word, n in words.items() if n > least}


def _c_values(counts: dict[str, int]) -> dict[str, float]:
    """Return for each term log2(words + 1) times how often it stands outside longer terms.

    "house of commons" 9 times, "commons" 12 times: (12 - 9) for "commons".
    """
    inside: dict[str, list[int]] = defaultdict(list)
    for term, n in counts.items():
        words = term.split(" ")
        parts = {
            " ".join(words[a:b])
            for a in range(len(words))
            for b in range(a + 1, len(words) + 1)
            if b - a < len(words)
        }
        for part in parts:
            if part in counts:
                inside[part].append(n)
    return {
        term: math.log2(len(term.split(" ")) + 1)
        * (n - (sum(inside[term]) / len(inside[term]) if term in inside else 0))
        for term, n in counts.items()
    }
