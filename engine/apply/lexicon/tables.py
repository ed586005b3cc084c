"""Lexical tables: how probable each translation of a word is, both ways; and shortlists.

Numbers are those of Moses' and Marian's extract_lex, to the last digit. Does not count (`counts`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...text.files import open_output
from ...types import Floats, IntArray
from .counts import LexicalCounts, rank_words, split_rows

if TYPE_CHECKING:
    from ...statistical.model import StatisticalModel

_NO_EXAMPLE = -1


@dataclass(frozen=True)
class LexicalTable:
    """Pairs of words with their counts and probabilities; word 0 of each side is NULL."""

    src_words: list[str]
    tgt_words: list[str]
    src: IntArray  # (rows,)
    tgt: IntArray
    count: Floats  # whole numbers, unless a statistical model expects them
    fwd: Floats  # target word given source word
    bwd: Floats
    example: IntArray  # number of a pair, or -1

    @classmethod
    def from_counts(cls, counts: LexicalCounts) -> LexicalTable:
        """Divide counts by those of their words."""
        src, tgt, n = counts.columns()
        src_total = np.bincount(src, n, minlength=len(counts.src.words))
        tgt_total = np.bincount(tgt, n, minlength=len(counts.tgt.words))
        # extract_lex divides floats of 32 bits, which shows in the seventh digit.
        single = n.astype(np.float32)
        return cls(
            counts.src.words, counts.tgt.words, src, tgt, single,
            single / src_total.astype(np.float32)[src],
            single / tgt_total.astype(np.float32)[tgt],
            counts.examples(),
        )  # fmt: skip

    @classmethod
    def from_model(cls, model: StatisticalModel) -> LexicalTable:
        """Take the probabilities that the statistical aligner has learned, which know no NULL."""
        src, tgt = model.keys >> 32, model.keys & 0xFFFFFFFF
        return cls(
            ["NULL", *model.src_words], ["NULL", *model.tgt_words], src + 1, tgt + 1,
            (model.fwd * model.src_totals[src]).astype(np.float32), model.fwd, model.bwd,
            np.full(len(src), _NO_EXAMPLE),
        )  # fmt: skip

    def select(self, rows: np.ndarray) -> LexicalTable:
        """Return the rows at these places, or where the array is true."""
        names = ("src", "tgt", "count", "fwd", "bwd", "example")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def swap_sides(self) -> LexicalTable:
        """Return the table of the other direction."""
        return LexicalTable(
            self.tgt_words, self.src_words, self.tgt, self.src, self.count, self.bwd, self.fwd,
            self.example,
        )  # fmt: skip

    def sort_rows(self) -> LexicalTable:
        """Return the rows by source word, its best translations first."""
        order = np.lexsort(
            (rank_words(self.tgt_words)[self.tgt], -self.fwd, rank_words(self.src_words)[self.src])
        )
        return self.select(order)

    def drop_null(self) -> LexicalTable:
        """Return the rows that have a word on both sides."""
        return self.select((self.src > 0) & (self.tgt > 0))

    def prune(
        self, *, best: int | None = None, min_count: float = 0, min_probability: float = 0
    ) -> LexicalTable:
        """Return, sorted, the best translations of each source word that are frequent enough."""
        # What a model expects may be a little below the whole number that it means.
        enough = (self.count >= min_count - 1e-3) & (self.fwd >= min_probability)
        table = self.select(enough).sort_rows()
        if best is None or not len(table.src):
            return table
        first = np.flatnonzero(np.diff(table.src, prepend=-1))
        place = np.arange(len(table.src)) - np.repeat(first, np.diff([*first, len(table.src)]))
        return table.select(place < best)


def write_lexicons(prefix: str, table: LexicalTable) -> None:
    """Write PREFIX.s2t, lines `target source p(target|source)`, and PREFIX.t2s, `source target
    p(source|target)`: what extract_lex writes, sorted."""
    write_table(f"{prefix}.s2t", table.sort_rows())
    write_table(f"{prefix}.t2s", table.swap_sides().sort_rows())


def write_shortlist(path: str | Path, table: LexicalTable, best: int = 100) -> int:
    """Write the lexical shortlist that Marian and `marian-conv --shortlist` read; count its rows.

    It has no NULL, and only the `best` translations of each source word.
    """
    table = table.drop_null().prune(best=best)
    write_table(path, table)
    return len(table.src)


def write_table(path: str | Path, table: LexicalTable) -> None:
    """Write lines `target source probability` in the order of the rows."""
    with open_output(path, whole=True) as file:
        for rows in split_rows(np.arange(len(table.src))):
            columns = (table.src[rows].tolist(), table.tgt[rows].tolist(), table.fwd[rows].tolist())
            lines = [
                f"{table.tgt_words[t]} {table.src_words[s]} {p:.7f}\n"
                for s, t, p in zip(*columns, strict=True)
            ]
            file.write("".join(lines).encode())
