"""Writes the links of a chunk as lines: Pharaoh, scored, talp, JSON lines, GIZA A3.

Does not choose links, and does not write files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..types import Floats, IntArray, Links, Pairs

# Sentences of up to this many words have all their link strings made once: 16,384 of them.
_FAST_WORDS = 128


@dataclass(frozen=True)
class LinkFormat:
    """Makes lines: `pharaoh`, `scored`, `talp`, `jsonl`, `a3`, or `scores`, the numbers alone.

    `one_based` counts words from 1; `reverse` puts the target first, in which case links are still
    sorted, by target and then source. `calibrate` adds probabilities to JSON lines.
    """

    kind: str
    one_based: bool = False
    reverse: bool = False
    calibrate: Callable[[Floats], npt.NDArray[np.float64]] | None = None

    def __call__(self, pairs: Pairs, links: Links) -> list[str]:
        # From here on the source of links is what comes first; pairs stay as they are.
        links = links.swap_sides() if self.reverse else links
        lines: list[str] = getattr(self, f"_format_{self.kind}")(pairs, links)
        return lines

    def _format_pharaoh(self, pairs: Pairs, links: Links) -> list[str]:
        return _join_pairs(self._link_strings(links, "-"), links.offsets)

    def _format_scored(self, pairs: Pairs, links: Links) -> list[str]:
        """Return links with their scores: `0-0:0.9312`."""
        both = zip(self._link_strings(links, "-"), _score_strings(links), strict=True)
        return _join_pairs([f"{link}:{score}" for link, score in both], links.offsets)

    def _format_talp(self, pairs: Pairs, links: Links) -> list[str]:
        """Return sure links as `0-0`, possible ones as `1p2`."""
        both = (np.array(self._link_strings(links, mark), object) for mark in ("-", "p"))
        return _join_pairs(np.where(links.sure, *both).tolist(), links.offsets)

    def _format_scores(self, pairs: Pairs, links: Links) -> list[str]:
        return _join_pairs(_score_strings(links), links.offsets)

    def _format_sentences(self, pairs: Pairs, links: Links) -> list[str]:
        """Return how well each side is covered by links: `0.9312 TAB 0.8875`."""
        first, second = (pairs.tgt, pairs.src) if self.reverse else (pairs.src, pairs.tgt)
        sides = Pairs(pairs.first, first, second)
        return [f"{one:.4f}\t{other:.4f}" for one, other in side_scores(sides, links)]

    def _format_jsonl(self, pairs: Pairs, links: Links) -> list[str]:
        sentence = sentence_scores(pairs, links)
        nulls = links.src_null, links.tgt_null
        src_null, tgt_null = nulls[::-1] if self.reverse else nulls
        src_nulls, tgt_nulls = split_nulls(src_null, pairs.src), split_nulls(tgt_null, pairs.tgt)
        both = (np.stack([links.src, links.tgt], axis=1) + self.one_based).tolist()
        lines = []
        for k, (start, end) in enumerate(pairwise(links.offsets.tolist())):
            score = links.score[start:end]
            row: dict[str, Any] = {
                "src": list(pairs.src[k]),
                "tgt": list(pairs.tgt[k]),
                "links": both[start:end],
                "scores": [round(value, 4) for value in score.tolist()],
                "src_null": [round(value, 4) for value in src_nulls[k]],
                "tgt_null": [round(value, 4) for value in tgt_nulls[k]],
                "score": round(sentence[k], 4),
            }
            for side, given in (("src", pairs.src_tokens), ("tgt", pairs.tgt_tokens)):
                if given is not None:
                    row |= {f"{side}_text": given.texts[k], f"{side}_spans": given.spans[k]}
            if self.calibrate is not None:
                chances = self.calibrate(score).tolist()
                row["probabilities"] = [round(value, 4) for value in chances]
            lines.append(json.dumps(row, ensure_ascii=False))
        return lines

    def _format_a3(self, pairs: Pairs, links: Links) -> list[str]:
        """Return three lines per pair; the last names, after each word of the first language, the
        words of the second it is linked to, counted from 1: `NULL ({ 2 }) das ({ 1 })`."""
        sentence = sentence_scores(pairs, links)
        first, second = (pairs.tgt, pairs.src) if self.reverse else (pairs.src, pairs.tgt)
        ones, others = links.src.tolist(), links.tgt.tolist()
        blocks = []
        for k, (start, end) in enumerate(pairwise(links.offsets.tolist())):
            partners: list[list[int]] = [[] for _ in first[k]]
            for i, j in zip(ones[start:end], others[start:end], strict=True):
                partners[i].append(j + 1)
            free = sorted(set(range(1, len(second[k]) + 1)).difference(*partners))
            rows = [("NULL", free), *zip(first[k], partners, strict=True)]
            words = (f"{word} ({{ {''.join(f'{n} ' for n in places)}}})" for word, places in rows)
            blocks.append(
                f"# Sentence pair ({pairs.first + k + 1}) source length {len(first[k])} "
                f"target length {len(second[k])} alignment score : {sentence[k]:.4f}\n"
                f"{' '.join(second[k])}\n{' '.join(words)}"
            )
        return blocks

    def _link_strings(self, links: Links, mark: str) -> list[str]:
        src, tgt = links.src + self.one_based, links.tgt + self.one_based
        if len(src) and max(int(src.max()), int(tgt.max())) >= _FAST_WORDS:
            return [f"{i}{mark}{j}" for i, j in zip(src.tolist(), tgt.tolist(), strict=True)]
        strings: list[str] = _link_string_table(mark)[src * _FAST_WORDS + tgt].tolist()
        return strings


@cache
def _link_string_table(mark: str) -> npt.NDArray[np.object_]:
    words = range(_FAST_WORDS)
    return np.array([f"{i}{mark}{j}" for i in words for j in words], dtype=object)


def _score_strings(links: Links) -> list[str]:
    return [f"{value:.4f}" for value in links.score.tolist()]


def _join_pairs(strings: list[str], offsets: IntArray) -> list[str]:
    """Return for each pair its strings, with spaces between."""
    return [" ".join(strings[start:end]) for start, end in pairwise(offsets.tolist())]


# ---- numbers about pairs ----


def sentence_scores(pairs: Pairs, links: Links) -> list[float]:
    """Return for each pair the mean, over the words of both sides, of a word's best link.

    A word without a link counts 0, and a pair without words is 0.
    """
    n_words = sum(_count_words(side) for side in (pairs.src, pairs.tgt))
    best = sum(_sum_best(word, links) for word in (links.src, links.tgt))
    values: list[float] = (best / np.maximum(n_words, 1)).tolist()
    return values


def side_scores(pairs: Pairs, links: Links) -> list[tuple[float, float]]:
    """Return for each pair the same means over the source alone and over the target alone."""
    sides = (pairs.src, links.src), (pairs.tgt, links.tgt)
    means = [_sum_best(word, links) / np.maximum(_count_words(side), 1) for side, word in sides]
    return list(zip(*(mean.tolist() for mean in means), strict=True))


def _count_words(side: Sequence[Sequence[str]]) -> IntArray:
    return np.fromiter(map(len, side), np.int64, len(side))


def _sum_best(word: IntArray, links: Links) -> npt.NDArray[Any]:
    """Return for each pair the sum of its words' best scores.

    Sorted by pair and word, each word is a run whose highest score is taken, then added up:
        pair 0 0 0 1, word 0 0 2 1, score .2 .9 .5 .4  ->  best .9 .5 .4  ->  sums 1.4 .4
    """
    n_pairs = len(links.offsets) - 1
    if not len(word):
        return np.zeros(n_pairs)
    pair = np.repeat(np.arange(n_pairs), np.diff(links.offsets))
    key = pair * (int(word.max()) + 1) + word
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    best = np.maximum.reduceat(links.score[order], starts).astype(np.float64)
    return np.bincount(pair[order][starts], best, minlength=n_pairs)


def split_nulls(nulls: Floats | None, side: Sequence[Sequence[str]]) -> list[list[float]]:
    """Return the NULL probabilities of each sentence's words; none if they were not asked for."""
    if nulls is None:
        return [[] for _ in side]
    ends = np.cumsum([0, *map(len, side)]).tolist()
    values = nulls.tolist()
    return [values[start:end] for start, end in pairwise(ends)]
