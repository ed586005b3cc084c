"""Averages links: what the model says with what files say (`mx-align --average`), or teachers.

Aligners that work in different ways make different mistakes: a link counts if they believe in it
on the average. Does not open files: `Pairs` brings their lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..types import IntArray, Links, Pairs
from .link_files import parse_links

# Scores of the model below this count as 0; on which data it was chosen is not recorded.
MIN_MODEL_SCORE = 0.05
# Means from which on a link is given, by `optimize_for`. 0.42 was chosen on the en-fr, de-en and
# ja-en test sets (docs/decisions.md), as a compromise between texts that want 0.3 and 0.6: with two
# aligners, from 0.5 on a link needs both. On which data the other two were chosen is not recorded.
MEAN_THRESHOLDS = {"aer": 0.42, "precision": 0.6, "recall": 0.25}

_BITS = 20  # a sentence has fewer than 2^20 words
_MASK = (1 << _BITS) - 1


class LinkTable(NamedTuple):
    """Scored links of many pairs as columns, in any order, each link of a pair at most once."""

    pair: IntArray
    src: IntArray
    tgt: IntArray
    score: npt.NDArray[np.float64]

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[int, int, int, float]]) -> LinkTable:
        """Make a table of rows (pair, source word, target word, score)."""
        pair, src, tgt, score = np.array(rows, np.float64).reshape(-1, 4).T
        return cls(pair.astype(np.int64), src.astype(np.int64), tgt.astype(np.int64), score)


def align_tables(tables: Sequence[LinkTable]) -> tuple[LinkTable, npt.NDArray[np.float64]]:
    """Return each link of any table once, sorted, and (links, tables) scores, 0 where a table
    does not have the link. The scores of the returned table are their sums."""
    # One number for each link, in the order of links: pair 1, words 2-3 is 1·2^40 + 2·2^20 + 3.
    # Equal links of several tables then stand side by side after sorting:
    #   key 5 5 7, table 0 1 0, score .8 .4 .6  ->  places 0 0 1  ->  scores [[.8 .4] [.6 0]]
    keys = [(table.pair << 2 * _BITS) | (table.src << _BITS) | table.tgt for table in tables]
    key = np.concatenate(keys)
    order = np.argsort(key, kind="stable")
    key = key[order]
    new = np.diff(key, prepend=-1) != 0
    of_table = np.repeat(np.arange(len(tables)), [len(one) for one in keys])[order]
    scores = np.zeros((int(new.sum()), len(tables)))
    scores[np.cumsum(new) - 1, of_table] = np.concatenate([one.score for one in tables])[order]
    key = key[new]
    columns = key >> 2 * _BITS, key >> _BITS & _MASK, key & _MASK
    return LinkTable(*columns, scores.sum(axis=1)), scores


def average_links(sources: Sequence[LinkTable]) -> LinkTable:
    """Return each link of any source once, sorted, with the mean of its scores.

    A source that does not have the link counts 0.
    """
    found, _ = align_tables(sources)
    return found._replace(score=found.score / len(sources))


@dataclass(frozen=True)
class LinkAverager:
    """Averages the model's links with those of files, and keeps those of a mean high enough."""

    names: tuple[str, ...]  # of the files, for errors; `pairs.link_lines` has their lines
    threshold: float

    def __call__(self, pairs: Pairs, links: Links) -> Links:
        n_pairs = len(links.offsets) - 1
        pair = np.repeat(np.arange(n_pairs), np.diff(links.offsets))
        sources = [LinkTable(pair, links.src, links.tgt, links.score.astype(np.float64))]
        for name, lines in zip(self.names, pairs.link_lines, strict=True):
            sources.append(LinkTable.from_rows(list(_parse_rows(name, lines, pairs))))
        found = average_links(sources)
        score = found.score.astype(np.float32)
        kept = score >= np.float32(self.threshold)
        score = score[kept]
        return replace(
            links,
            offsets=np.searchsorted(found.pair[kept], np.arange(n_pairs + 1)),
            src=found.src[kept],
            tgt=found.tgt[kept],
            score=score,
            sure=score >= np.float32(MEAN_THRESHOLDS["precision"]),
        )


def _parse_rows(
    name: str, lines: Sequence[str], pairs: Pairs
) -> Iterator[tuple[int, int, int, float]]:
    """Yield pair, source word, target word and score of each link of a file's lines."""
    for k, line in enumerate(lines):
        n_src, n_tgt = len(pairs.src[k]), len(pairs.tgt[k])
        where = f"{name} line {pairs.first + k + 1:,}"
        for i, j, score in parse_links(line, where=where).links:
            if i >= n_src or j >= n_tgt:
                raise InputError(
                    f"{where}: the link {i}-{j} is outside its pair of {n_src} and {n_tgt} "
                    "words; the file must have the links of this text, line by line"
                )
            if not 0 <= score <= 1:
                raise InputError(
                    f"{where}: the score {score:g} of {i}-{j} is not from 0 to 1; write "
                    "probabilities, or links without scores"
                )
            yield k, i, j, score
