"""Read two parallel texts together with the links between them, chunk by chunk.

Checks that every link lies inside its pair. Does not make links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from ..links.link_files import parse_links
from ..text.corpus import ChunkReader, ParallelFiles
from ..types import Links, Pairs

CHUNK = 8192
_BITS = 24  # indices in link files have at most seven digits
_MASK = (1 << _BITS) - 1


@dataclass(frozen=True)
class LinkedFiles:
    """Two parallel files and a file of links, as their user has them.

    `tokens` is "words" for what stands between spaces, which is what nearly all files of links
    count, or "raw" if the links count the words that mx-align finds in raw text.
    """

    src: str
    tgt: str
    links: str
    tokens: str = "words"
    errors: str = "strict"
    keep_spans: bool = False

    def read_chunks(self, size: int = CHUNK) -> Iterator[tuple[Pairs, Links]]:
        """Yield pairs and their links; holds one chunk."""
        if [self.src, self.tgt, self.links].count("-") > 1:
            raise InputError("`-` (stdin) was given more than once; name a file for the others")
        reader = ChunkReader(
            ParallelFiles(self.src, self.tgt, errors=self.errors),
            size,
            tokens=self.tokens,
            link_files=[self.links],
            keep_spans=self.keep_spans,
        )
        for pairs in reader.read_chunks():
            yield pairs, parse_chunk(self.links, pairs.link_lines[0], pairs)


class _LinkCodes(dict[str, int]):
    """Turns `3-5` into one number; remembers links without scores, of which there are few."""

    def __missing__(self, token: str) -> int:
        rows = parse_links(token).tokens
        if not rows:  # two spaces
            return -1
        code = (rows[0].i << _BITS) | rows[0].j
        if ":" not in token:
            self[token] = code
        return code


_CODES = _LinkCodes()


def parse_chunk(name: str, lines: Sequence[str], pairs: Pairs) -> Links:
    """Return the links of a chunk; an error names the line of the file `name`.

    Scores of links are read over, a link given twice counts once.
    """
    codes: list[int] = []
    counts: list[int] = []
    for k, line in enumerate(lines):
        before = len(codes)
        try:
            codes += [_CODES[token] for token in line.rstrip("\r").replace("\t", " ").split(" ")]
        except InputError:
            parse_links(line, where=f"{name} line {pairs.first + k + 1:,}")  # names the place
            raise
        counts.append(len(codes) - before)
    flat = np.array(codes, np.int64)
    pair = np.repeat(np.arange(len(lines)), counts)[flat >= 0]
    flat = flat[flat >= 0]
    order = np.lexsort((flat, pair))
    pair, flat = pair[order], flat[order]
    fresh = np.ones(len(flat), bool)
    fresh[1:] = (np.diff(pair) != 0) | (np.diff(flat) != 0)
    pair, flat = pair[fresh], flat[fresh]
    src, tgt = flat >> _BITS, flat & _MASK
    _check_bounds(name, pairs, pair, src, tgt)
    offsets = np.searchsorted(pair, np.arange(len(lines) + 1))
    return Links(offsets, src, tgt, np.ones(len(src), np.float32), np.ones(len(src), np.bool_))


def _check_bounds(
    name: str, pairs: Pairs, pair: np.ndarray, src: np.ndarray, tgt: np.ndarray
) -> None:
    """Fail at the first link outside its pair."""
    n_src = np.fromiter(map(len, pairs.src), np.int64, len(pairs.src))
    n_tgt = np.fromiter(map(len, pairs.tgt), np.int64, len(pairs.tgt))
    outside = np.flatnonzero((src >= n_src[pair]) | (tgt >= n_tgt[pair]))
    if len(outside):
        k = int(pair[outside[0]])
        raise InputError(
            f"{name} line {pairs.first + k + 1:,}: link {src[outside[0]]}-{tgt[outside[0]]} "
            f"(counted from 0) lies outside the pair, which has {n_src[k]} and {n_tgt[k]} words; "
            "the links must be of this text and its tokens (--tokens raw if mx-align had that)"
        )
