"""Writes the links of a chunk as lines: Pharaoh, scored, talp, JSON lines, GIZA A3.

Does not choose links, and does not write files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..types import IntArray, Links, Pairs

OUTPUT_FORMATS = ("pharaoh", "scored", "talp", "jsonl", "a3")

Calibrate = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float64]]

# Sentences of up to this many words have all their link strings made once: 16,384 of them.
_FAST_WORDS = 128


class LinkFormat:
    """Lines of one of OUTPUT_FORMATS, or `scores`, the numbers alone.

    `one_based` counts words from 1; `reverse` puts the target first, in which case links are still
    sorted, by target and then source. `calibrate` adds probabilities to JSON lines.
    """

    def __init__(
        self,
        kind: str,
        *,
        one_based: bool = False,
        reverse: bool = False,
        calibrate: Calibrate | None = None,
    ) -> None:
        self.base = int(one_based)
        self.reverse = reverse
        self.calibrate = calibrate
        self._format: Callable[[Pairs, Links], list[str]] = getattr(self, f"_format_{kind}")

    def __call__(self, pairs: Pairs, links: Links) -> list[str]:
        return self._format(pairs, links)

    def _order_links(self, links: Links) -> tuple[IntArray, IntArray, Any]:
        """Return both sides as they are written, and the index that puts other columns in order."""
        if not self.reverse:
            return links.src + self.base, links.tgt + self.base, slice(None)
        pair = np.repeat(np.arange(len(links.offsets) - 1), np.diff(links.offsets))
        order = np.lexsort((links.src, links.tgt, pair))
        return links.tgt[order] + self.base, links.src[order] + self.base, order

    def _format_pharaoh(self, pairs: Pairs, links: Links) -> list[str]:
        first, second, _ = self._order_links(links)
        return _join_pairs(_link_strings(first, second, "-"), links.offsets)

    def _format_scored(self, pairs: Pairs, links: Links) -> list[str]:
        """Return links with their scores: `0-0:0.9312`."""
        first, second, _ = self._order_links(links)
        both = zip(_link_strings(first, second, "-"), self._score_strings(links), strict=True)
        return _join_pairs([f"{link}:{value}" for link, value in both], links.offsets)

    def _format_talp(self, pairs: Pairs, links: Links) -> list[str]:
        """Return sure links as `0-0`, possible ones as `1p2`."""
        first, second, order = self._order_links(links)
        sure = links.sure[order]
        strings = np.array(_link_strings(first, second, "-"), dtype=object)
        strings[~sure] = _link_strings(first[~sure], second[~sure], "p")
        return _join_pairs(strings.tolist(), links.offsets)

    def _format_scores(self, pairs: Pairs, links: Links) -> list[str]:
        return _join_pairs(self._score_strings(links), links.offsets)

    def _score_strings(self, links: Links) -> list[str]:
        _, _, order = self._order_links(links)
        return [f"{value:.4f}" for value in links.score[order].tolist()]

    def _format_jsonl(self, pairs: Pairs, links: Links) -> list[str]:
        first, second, order = self._order_links(links)
        score = links.score[order]
        sentence = sentence_scores(pairs, links)
        src_null = split_nulls(links.src_null, pairs.src)
        tgt_null = split_nulls(links.tgt_null, pairs.tgt)
        lines = []
        for k, (start, end) in enumerate(pairwise(links.offsets.tolist())):
            both = zip(first[start:end].tolist(), second[start:end].tolist(), strict=True)
            row = {
                "src": list(pairs.src[k]),
                "tgt": list(pairs.tgt[k]),
                "links": [list(link) for link in both],
                "scores": [round(value, 4) for value in score[start:end].tolist()],
                "src_null": [round(value, 4) for value in src_null[k]],
                "tgt_null": [round(value, 4) for value in tgt_null[k]],
                "score": round(sentence[k], 4),
            }
            if self.calibrate is not None:
                chances = self.calibrate(score[start:end]).tolist()
                row["probabilities"] = [round(value, 4) for value in chances]
            lines.append(json.dumps(row, ensure_ascii=False))
        return lines

    def _format_a3(self, pairs: Pairs, links: Links) -> list[str]:
        """Return three lines per pair; the last names, after each word of the first language, the
        words of the second it is linked to, counted from 1: `NULL ({ 2 }) das ({ 1 })`."""
        sentence = sentence_scores(pairs, links)
        sides = (pairs.src, pairs.tgt), (links.src.tolist(), links.tgt.tolist())
        if self.reverse:
            sides = sides[0][::-1], sides[1][::-1]
        (first, second), (ones, others) = sides
        blocks = []
        for k, (start, end) in enumerate(pairwise(links.offsets.tolist())):
            partners: list[list[int]] = [[] for _ in first[k]]
            for i, j in zip(ones[start:end], others[start:end], strict=True):
                partners[i].append(j + 1)
            free = sorted(set(range(1, len(second[k]) + 1)).difference(*partners))
            rows = [("NULL", free), *zip(first[k], map(sorted, partners), strict=True)]
            words = (f"{word} ({{ {''.join(f'{n} ' for n in places)}}})" for word, places in rows)
            blocks.append(
                f"# Sentence pair ({pairs.first + k + 1}) source length {len(first[k])} "
                f"target length {len(second[k])} alignment score : {sentence[k]:.4f}\n"
                f"{' '.join(second[k])}\n{' '.join(words)}"
            )
        return blocks


def _link_strings(src: IntArray, tgt: IntArray, mark: str) -> list[str]:
    if len(src) and max(int(src.max()), int(tgt.max())) >= _FAST_WORDS:
        return [f"{i}{mark}{j}" for i, j in zip(src.tolist(), tgt.tolist(), strict=True)]
    strings: list[str] = _link_string_table(mark)[src * _FAST_WORDS + tgt].tolist()
    return strings


@cache
def _link_string_table(mark: str) -> npt.NDArray[np.object_]:
    words = range(_FAST_WORDS)
    return np.array([f"{i}{mark}{j}" for i in words for j in words], dtype=object)


def _join_pairs(strings: list[str], offsets: IntArray) -> list[str]:
    """Return for each pair its strings, with spaces between."""
    return [" ".join(strings[start:end]) for start, end in pairwise(offsets.tolist())]


# ---- numbers about pairs ----


def sentence_scores(pairs: Pairs, links: Links) -> list[float]:
    """Return for each pair the mean, over the words of both sides, of a word's best link.

    A word without a link counts 0, and a pair without words is 0.
    """
    n_words = np.array([len(src) + len(tgt) for src, tgt in zip(pairs.src, pairs.tgt, strict=True)])
    if not len(links.src):
        return [0.0] * len(n_words)
    pair = np.repeat(np.arange(len(n_words)), np.diff(links.offsets))
    best = _sum_best(pair, links.src, links.score) + _sum_best(pair, links.tgt, links.score)
    scores = np.zeros(len(n_words))
    scores[: len(best)] = best
    values: list[float] = (scores / np.maximum(n_words, 1)).tolist()
    return values


def _sum_best(
    pair: IntArray, word: IntArray, score: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """Return for each pair, up to the last with links, the sum of its words' best scores.

    Sorted by pair and word, each word is a run whose highest score is taken, then added up:
        pair 0 0 0 1, word 0 0 2 1, score .2 .9 .5 .4  ->  best .9 .5 .4  ->  sums 1.4 .4
    """
    order = np.lexsort((word, pair))
    pair, word = pair[order], word[order]
    new = np.ones(len(pair), bool)
    new[1:] = (pair[1:] != pair[:-1]) | (word[1:] != word[:-1])
    starts = np.flatnonzero(new)
    best = np.maximum.reduceat(score[order], starts).astype(np.float64)
    return np.asarray(np.bincount(pair[starts], best), np.float64)


def split_nulls(
    nulls: npt.NDArray[np.float32] | None, side: Sequence[Sequence[str]]
) -> list[list[float]]:
    """Return the NULL probabilities of each sentence's words; none if they were not asked for."""
    if nulls is None:
        return [[] for _ in side]
    ends = np.cumsum([0, *map(len, side)]).tolist()
    values = nulls.tolist()
    return [values[start:end] for start, end in pairwise(ends)]
