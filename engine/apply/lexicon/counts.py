"""Count which words are linked to which, over any number of pairs, shards and machines.

Memory grows with the number of different pairs of words, not with the text. Does not divide
(`tables`), and does not write what people read (`dictionary`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from ...errors import InputError
from ...text.files import open_output, read_lines
from ...types import IntArray, Links, Pairs, Words

NULL = "NULL"  # extract_lex's name for the partner of a word without links
# Keys that are counted anew at the least before they are merged: 16 bytes each.
_BUFFER = 1 << 21
_FEW_WORDS = 40  # bits of a pair's number, below its length, in `examples`


class WordNumbers(dict[str, int]):
    """Numbers words as they come; 0 is NULL, and so is a word of the text that is spelt so.

    With `lowercase`, words are told apart without case.
    """

    def __init__(self, lowercase: bool = False) -> None:
        super().__init__({NULL: 0})
        self.words = [NULL]
        self._lowercase = lowercase

    def __missing__(self, word: str) -> int:
        lowered = word.lower() if self._lowercase else word
        if lowered != word:
            number = self[lowered]
        else:
            number = len(self.words)
            self.words.append(word)
        self[word] = number
        return number

    def encode(self, sentences: Sequence[Words]) -> IntArray:
        """Return the numbers of all words, one sentence after the other."""
        words = chain.from_iterable(sentences)
        return np.fromiter(map(self.__getitem__, words), np.int64)


class LexicalCounts:
    """How often each pair of words was linked, and each word left without a link.

    Equal text gives equal counts in whatever order it comes, and however it is divided.
    """

    def __init__(self, *, lowercase: bool = False) -> None:
        self.src = WordNumbers(lowercase)
        self.tgt = WordNumbers(lowercase)
        self._keys: IntArray = np.zeros(0, np.int64)
        self._counts: IntArray = np.zeros(0, np.int64)
        self._examples: IntArray = np.zeros(0, np.int64)
        self._new: list[tuple[IntArray, IntArray, IntArray]] = []
        self._n_new = 0

    def add_chunk(self, pairs: Pairs, links: Links) -> None:
        """Count the links of a chunk, and its words without links as linked to NULL."""
        n_pairs = len(pairs.src)
        src, tgt = self.src.encode(pairs.src), self.tgt.encode(pairs.tgt)
        n_src = np.fromiter(map(len, pairs.src), np.int64, n_pairs)
        n_tgt = np.fromiter(map(len, pairs.tgt), np.int64, n_pairs)
        pair = np.repeat(np.arange(n_pairs), np.diff(links.offsets))
        src_place = (np.cumsum(n_src) - n_src)[pair] + links.src
        tgt_place = (np.cumsum(n_tgt) - n_tgt)[pair] + links.tgt
        # A word without a link counts once for NULL, as extract_lex counts.
        src_free, tgt_free = np.ones(len(src), bool), np.ones(len(tgt), bool)
        src_free[src_place], tgt_free[tgt_place] = False, False
        keys = [(src[src_place] << 32) | tgt[tgt_place], src[src_free] << 32, tgt[tgt_free]]
        # Short pairs are the best examples, then early ones: both fit into one number to minimize.
        rank = (n_src + n_tgt << _FEW_WORDS) | (np.arange(n_pairs) + pairs.first)
        places = [
            rank[pair],
            np.repeat(rank, n_src)[src_free],
            np.repeat(rank, n_tgt)[tgt_free],
        ]
        key = np.concatenate(keys)
        self._add_keys(key, np.ones(len(key), np.int64), np.concatenate(places))

    def add_links(self, rows: Iterable[tuple[str, str, int]]) -> None:
        """Add counts of pairs of words; "NULL" stands for no word."""
        numbered = [(self.src[s] << 32 | self.tgt[t], n) for s, t, n in rows]
        if numbered:
            key, counts = np.array(numbered, np.int64).T
            self._add_keys(key, counts, np.full(len(key), np.iinfo(np.int64).max))

    def _add_keys(self, keys: IntArray, counts: IntArray, examples: IntArray) -> None:
        self._new.append(_merge_keys(keys, counts, examples))
        self._n_new += len(self._new[-1][0])
        # Merging when there is as much new as old keeps the work in proportion to the text.
        if self._n_new > max(_BUFFER, len(self._keys)):
            self._merge_new()

    def _merge_new(self) -> None:
        if self._new:
            parts = [(self._keys, self._counts, self._examples), *self._new]
            self._new, self._n_new = [], 0
            merged = _merge_keys(*(np.concatenate(part) for part in zip(*parts, strict=True)))
            self._keys, self._counts, self._examples = merged

    def columns(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return source numbers, target numbers and counts of all pairs, 0 for NULL."""
        self._merge_new()
        return self._keys >> 32, self._keys & 0xFFFFFFFF, self._counts

    def examples(self) -> IntArray:
        """Return for each row of `columns` the number of the shortest pair that has it, or -1."""
        self._merge_new()
        told = self._examples != np.iinfo(np.int64).max
        return np.where(told, self._examples & ((1 << _FEW_WORDS) - 1), -1)


def _merge_keys(
    keys: IntArray, counts: IntArray, examples: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return each key once, sorted, with the sum of its counts and its least example."""
    if not len(keys):
        return keys, counts, examples
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    summed = np.add.reduceat(counts[order], starts)
    return keys[starts], summed, np.minimum.reduceat(examples[order], starts)


# ---- files of counts ----


def write_counts(path: str | Path, counts: LexicalCounts) -> None:
    """Write lines `count TAB source TAB target`, sorted by words; NULL stands for no word."""
    src, tgt, n = counts.columns()
    order = np.lexsort((rank_words(counts.tgt.words)[tgt], rank_words(counts.src.words)[src]))
    with open_output(path, whole=True) as file:
        for rows in split_rows(order):
            columns = (src[rows].tolist(), tgt[rows].tolist(), n[rows].tolist())
            lines = [
                f"{c}\t{counts.src.words[s]}\t{counts.tgt.words[t]}\n"
                for s, t, c in zip(*columns, strict=True)
            ]
            file.write("".join(lines).encode())


def read_counts(path: str | Path, counts: LexicalCounts) -> None:
    """Add what `write_counts` wrote."""

    def read_rows() -> Iterator[tuple[str, str, int]]:
        for number, line in enumerate(read_lines(path), 1):
            fields = line.split("\t")
            if len(fields) != 3 or not (fields[0].isascii() and fields[0].isdigit()):
                raise InputError(
                    f"{path} line {number:,}: {line[:40]!r} is not a count; wanted count TAB "
                    "source word TAB target word, as `mx-lex --save-counts` writes"
                )
            yield fields[1], fields[2], int(fields[0])

    counts.add_links(read_rows())


def rank_words(words: Sequence[str]) -> IntArray:
    """Return the place of each word in the sorted list of them."""
    order = sorted(range(len(words)), key=words.__getitem__)
    ranks = np.empty(len(words), np.int64)
    ranks[order] = np.arange(len(words))
    return ranks


def split_rows(order: IntArray, size: int = 1 << 16) -> Iterator[IntArray]:
    """Yield the rows in parts that are small enough to write as text."""
    for start in range(0, len(order), size):
        yield order[start : start + size]
