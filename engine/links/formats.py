"""Link arrays as lines of text: Pharaoh, talp, scores, JSON lines, GIZA A3.
Knows `Links` and words; files and the choice of links are the matter of others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..types import IntArray, Links, Pairs

FORMATS = ("pharaoh", "scored", "talp", "jsonl", "a3")

Calibrate = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float64]]

# Sentences of up to this many words have all their link strings made once: 16,384 of them.
_FAST = 128


@cache
def _table(mark: str) -> npt.NDArray[np.object_]:
    return np.array([f"{i}{mark}{j}" for i in range(_FAST) for j in range(_FAST)], dtype=object)


def _strings(src: IntArray, tgt: IntArray, mark: str) -> list[str]:
    if len(src) and max(int(src.max()), int(tgt.max())) >= _FAST:
        return [f"{i}{mark}{j}" for i, j in zip(src.tolist(), tgt.tolist(), strict=True)]
    strings: list[str] = _table(mark)[src * _FAST + tgt].tolist()
    return strings


def _cut(strings: list[str], offsets: IntArray) -> list[str]:
    """The strings of each pair, with spaces between."""
    return [" ".join(strings[a:b]) for a, b in pairwise(offsets.tolist())]


class Format:
    """Lines of one format. `one_based` counts words from 1; `reverse` puts the target first, in
    which case links are still sorted, by target and then source."""

    def __init__(
        self, kind: str, *, one_based: bool = False, reverse: bool = False,
        calibrate: Calibrate | None = None,
    ) -> None:  # fmt: skip
        self.base = int(one_based)
        self.reverse = reverse
        self.calibrate = calibrate
        self._lines = {
            "pharaoh": self._pharaoh, "scored": self._scored, "talp": self._talp,
            "scores": self._scores, "jsonl": self._jsonl, "a3": self._a3,
        }[kind]  # fmt: skip

    def __call__(self, pairs: Pairs, links: Links) -> list[str]:
        return self._lines(pairs, links)

    def _order(self, links: Links) -> tuple[IntArray, IntArray, Any]:
        """Both sides as they are written, and where each link came from (None: as it was)."""
        if not self.reverse:
            return links.src + self.base, links.tgt + self.base, None
        pair = np.repeat(np.arange(len(links.offsets) - 1), np.diff(links.offsets))
        order = np.lexsort((links.src, links.tgt, pair))
        return links.tgt[order] + self.base, links.src[order] + self.base, order

    def _pharaoh(self, pairs: Pairs, links: Links) -> list[str]:
        first, second, _ = self._order(links)
        return _cut(_strings(first, second, "-"), links.offsets)

    def _scored(self, pairs: Pairs, links: Links) -> list[str]:
        """Links with their scores: `0-0:0.9312`."""
        first, second, _ = self._order(links)
        both = zip(_strings(first, second, "-"), self._values(links), strict=True)
        return _cut([f"{link}:{value}" for link, value in both], links.offsets)

    def _talp(self, pairs: Pairs, links: Links) -> list[str]:
        first, second, order = self._order(links)
        sure = links.sure if order is None else links.sure[order]
        strings = np.array(_strings(first, second, "-"), dtype=object)
        strings[~sure] = _strings(first[~sure], second[~sure], "p")
        return _cut(strings.tolist(), links.offsets)

    def _scores(self, pairs: Pairs, links: Links) -> list[str]:
        """One number per link, in the order of the links."""
        return _cut(self._values(links), links.offsets)

    def _values(self, links: Links) -> list[str]:
        _, _, order = self._order(links)
        score = links.score if order is None else links.score[order]
        return [f"{value:.4f}" for value in score.tolist()]

    def _jsonl(self, pairs: Pairs, links: Links) -> list[str]:
        first, second, order = self._order(links)
        score = links.score if order is None else links.score[order]
        sentence = sentence_scores(pairs, links)
        src_null = null_rows(links.src_null, pairs.src)
        tgt_null = null_rows(links.tgt_null, pairs.tgt)
        lines = []
        for k in range(len(pairs.src)):
            part = slice(int(links.offsets[k]), int(links.offsets[k + 1]))
            row = {
                "src": list(pairs.src[k]),
                "tgt": list(pairs.tgt[k]),
                "links": list(
                    map(list, zip(first[part].tolist(), second[part].tolist(), strict=True))
                ),
                "scores": [round(value, 4) for value in score[part].tolist()],
                "src_null": [round(value, 4) for value in src_null[k]],
                "tgt_null": [round(value, 4) for value in tgt_null[k]],
                "score": round(sentence[k], 4),
            }
            if self.calibrate is not None:
                chances = self.calibrate(score[part]).tolist()
                row["probabilities"] = [round(value, 4) for value in chances]
            lines.append(json.dumps(row, ensure_ascii=False))
        return lines

    def _a3(self, pairs: Pairs, links: Links) -> list[str]:
        """Three lines per pair; the second language's words of each word of the first, from 1."""
        sentence = sentence_scores(pairs, links)
        given, found = links.src.tolist(), links.tgt.tolist()
        if self.reverse:
            given, found = found, given
        blocks = []
        for k in range(len(pairs.src)):
            part = slice(int(links.offsets[k]), int(links.offsets[k + 1]))
            words, others = pairs.src[k], pairs.tgt[k]
            if self.reverse:
                words, others = others, words
            partners: list[list[int]] = [[] for _ in words]
            for i, j in zip(given[part], found[part], strict=True):
                partners[i].append(j + 1)
            free = sorted(set(range(1, len(others) + 1)).difference(*partners))
            rows = [("NULL", free), *zip(words, map(sorted, partners), strict=True)]
            blocks.append(
                f"# Sentence pair ({pairs.first + k + 1}) source length {len(words)} "
                f"target length {len(others)} alignment score : {sentence[k]:.4f}\n"
                f"{' '.join(others)}\n" + " ".join(_a3_word(*row) for row in rows)
            )
        return blocks


def _a3_word(word: str, partners: Sequence[int]) -> str:
    return f"{word} ({{ {''.join(f'{n} ' for n in partners)}}})"


def sentence_scores(pairs: Pairs, links: Links) -> list[float]:
    """For each pair the mean, over the words of both sides, of a word's best link; a word
    without a link counts 0, and a pair without words is 0."""
    n_words = np.array([len(src) + len(tgt) for src, tgt in zip(pairs.src, pairs.tgt, strict=True)])
    if not len(links.src):
        return [0.0] * len(n_words)
    pair = np.repeat(np.arange(len(n_words)), np.diff(links.offsets))
    best = _best_sums(pair, links.src, links.score) + _best_sums(pair, links.tgt, links.score)
    scores = np.zeros(len(n_words))
    scores[: len(best)] = best
    values: list[float] = (scores / np.maximum(n_words, 1)).tolist()
    return values


def _best_sums(
    pair: IntArray, word: IntArray, score: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """The sum of the best scores of the words of each pair, up to the last pair with links."""
    order = np.lexsort((word, pair))
    pair, word = pair[order], word[order]
    new = np.ones(len(pair), bool)
    new[1:] = (pair[1:] != pair[:-1]) | (word[1:] != word[:-1])
    starts = np.flatnonzero(new)
    best = np.maximum.reduceat(score[order], starts).astype(np.float64)
    return np.asarray(np.bincount(pair[starts], best), np.float64)


def null_rows(
    nulls: npt.NDArray[np.float32] | None, side: Sequence[Sequence[str]]
) -> list[list[float]]:
    """NULL probabilities of the words of each sentence; none if they were not asked for."""
    if nulls is None:
        return [[] for _ in side]
    ends = np.cumsum([0, *map(len, side)]).tolist()
    values = nulls.tolist()
    return [values[a:b] for a, b in pairwise(ends)]
