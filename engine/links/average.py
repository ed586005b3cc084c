"""The model's links averaged with those that others found: `mx-align --average`.
Knows lines of scored links and arrays of them; where the lines come from is `corpus`'s matter.

Aligners that work in different ways make different mistakes: a link counts if they believe in it
on the average, one that a file does not have counting 0 there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..types import IntArray, Links, Pairs
from .link_files import parse_scored

# Scores of the model below this count as 0.
LOWEST = 0.05
# Means from which on a link is given, by what is wished for.
THRESHOLDS = {"aer": 0.42, "precision": 0.6, "recall": 0.25}

_BITS = 20  # a sentence has fewer than 2^20 words


@dataclass(frozen=True)
class Average:
    """The names of files of links, a line for each pair, and the lowest mean of a link."""

    names: tuple[str, ...]
    threshold: float

    def __call__(self, pairs: Pairs, links: Links) -> Links:
        """The links of a chunk, of which `pairs.others` has the lines of the files."""
        count = len(links.offsets) - 1
        pair = np.repeat(np.arange(count), np.diff(links.offsets))
        keys = [_keys(pair, links.src, links.tgt)]
        scores = [links.score.astype(np.float64)]
        for name, lines in zip(self.names, pairs.others, strict=True):
            found = np.array(list(_rows(name, lines, pairs)), np.float64).reshape(-1, 4)
            keys.append(_keys(*found[:, :3].T.astype(np.int64)))
            scores.append(found[:, 3])
        key, score = _mean(np.concatenate(keys), np.concatenate(scores), len(keys))
        kept = score >= np.float32(self.threshold)
        key, score = key[kept], score[kept]
        mask = (1 << _BITS) - 1
        return replace(
            links,
            offsets=np.searchsorted(key, np.arange(count + 1) << 2 * _BITS),
            src=(key >> _BITS) & mask,
            tgt=key & mask,
            score=score,
            sure=score >= np.float32(THRESHOLDS["precision"]),
        )


def _rows(name: str, lines: Sequence[str], pairs: Pairs) -> Iterator[tuple[int, int, int, float]]:
    """Pair, source word, target word and score of each link of a file's lines."""
    for k, line in enumerate(lines):
        words = len(pairs.src[k]), len(pairs.tgt[k])
        where = f"{name} line {pairs.first + k + 1:,}"
        for i, j, score in parse_scored(line, where=where):
            if i >= words[0] or j >= words[1]:
                raise InputError(
                    f"{where}: the link {i}-{j} is outside its pair of {words[0]} and {words[1]} "
                    "words; the file must have the links of this text, line by line"
                )
            if not 0 <= score <= 1:
                raise InputError(
                    f"{where}: the score {score:g} of {i}-{j} is not from 0 to 1; write "
                    "probabilities, or links without scores"
                )
            yield k, i, j, score


def _keys(pair: IntArray, src: IntArray, tgt: IntArray) -> IntArray:
    """One number for each link, in the order of links."""
    return (pair << 2 * _BITS) | (src << _BITS) | tgt


def _mean(
    key: IntArray, score: npt.NDArray[np.float64], sources: int
) -> tuple[IntArray, npt.NDArray[np.float32]]:
    """Each link once, with the sum of its scores by the number of sources."""
    order = np.argsort(key, kind="stable")
    key, score = key[order], score[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    if len(starts) < len(key):
        score = np.add.reduceat(score, starts)
    return key[starts], (score / sources).astype(np.float32)
