"""Keeps the teachers' word links of cached pairs on disk and maps them into memory.

A folder: `links.bin` has rows of three 16-bit numbers (source word, target word, 65535 times the
weight), `offsets.bin` where each pair's rows start (one more than there are pairs), little-endian.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...engine.storage import atomic_write
from ...engine.types import ScoredLink
from .token_cache import CachedSide, TokenCache


class TeacherLinks:
    """The word links of the pairs of a cache, and how sure they are."""

    def __init__(self, folder: Path) -> None:
        self.offsets = np.memmap(folder / "offsets.bin", "<i8", "r")
        full = self.offsets[-1] > 0  # an empty file cannot be mapped
        links = np.memmap(folder / "links.bin", "<u2", "r") if full else np.zeros(0, "<u2")
        self.links = links.reshape(-1, 3)

    def cells(self, cache: TokenCache, indices: np.ndarray, join: int = 1) -> np.ndarray:
        """Return (B, T, S) float32: the weight of the link between the words of two pieces, or 0.

        A link between words is one between all their pieces: of source words 0 0 1 (three pieces)
        and target words 0 1, the link 0-1 gives  0 0 0
                                                  w w 0
        """
        src, tgt = (side.padded_words(indices, join) for side in (cache.src, cache.tgt))
        counts = self.offsets[indices + 1] - self.offsets[indices]
        places = np.concatenate([np.arange(self.offsets[i], self.offsets[i + 1]) for i in indices])
        links = self.links[places.astype(np.int64)].astype(np.int64)
        pair = np.repeat(np.arange(len(indices)), counts)
        if join > 1:  # words count on from the sentence before in the same row
            links[:, 0] += words_before(cache.src, indices, join)[pair]
            links[:, 1] += words_before(cache.tgt, indices, join)[pair]
        # One more row and column, never linked, is what padding (word -1) falls on.
        words = np.zeros((len(src), int(tgt.max()) + 2, int(src.max()) + 2), np.float32)
        words[pair // join, links[:, 1], links[:, 0]] = links[:, 2] / np.float32(65535)
        return words[np.arange(len(src))[:, None, None], tgt[:, :, None], src[:, None, :]]

    def iterate_pairs(self) -> Iterator[list[tuple[int, int, float]]]:
        """Yield the links of each pair, in order."""
        for start, end in pairwise(self.offsets):
            yield [(int(i), int(j), int(w) / 65535) for i, j, w in self.links[start:end]]


def words_before(side: CachedSide, indices: np.ndarray, join: int) -> np.ndarray:
    """Count the words of its row that come before each sentence, if `join` make a row."""
    words = side.padded_words(indices).max(1) + 1
    before = np.cumsum(words) - words
    return before - np.repeat(before[::join], join)[: len(before)]


def write_links(folder: Path, links: Iterable[list[ScoredLink]]) -> int:
    """Write what `TeacherLinks` reads and return the number of links."""
    folder.mkdir(parents=True, exist_ok=True)
    # The last file opened is the first in its place: where there are offsets, there is all.
    with (
        atomic_write(folder / "offsets.bin") as offsets,
        atomic_write(folder / "links.bin") as file,
    ):
        end = 0
        offsets.write(end.to_bytes(8, "little"))
        for found in links:
            # Words beyond 65535 do not fit into 16 bits; no sentence has so many to learn from.
            rows = [(i, j, round(65535 * weight)) for i, j, weight in found if max(i, j) < 65536]
            file.write(np.array(rows, "<u2").tobytes())
            end += len(rows)
            offsets.write(end.to_bytes(8, "little"))
    return end
