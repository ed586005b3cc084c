"""Parallel text as chunks of word pairs: two files or one file of pairs, all of it or a share.
Knows lines, separators and numbers of lines; bytes are the matter of `files`, words of `text`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

from ..errors import InputError
from ..types import Pairs, Words
from .files import count_lines, read_lines, read_pairs
from .words import split

SEPARATORS = ("auto", "bars", "tab")

# A chunk also ends at this many characters, so that very long lines do not fill the memory.
MAX_CHARS = 1 << 24
# A file of pairs must have a separator in one of so many first lines with words.
MAX_BARE = 1000

Split = Callable[[str], Words]


class Lines(Protocol):
    """A share of a corpus: which lines, counted from 0, and their two sides."""

    def share(self, multiple: int = 1) -> tuple[int, int | None]: ...

    def within(self, first: int, end: int | None) -> Iterator[tuple[str, str]]: ...


def tabbed(path: str, separator: str = "auto") -> bool:
    """Whether TAB separates the sides of a file of pairs: its first line with words decides,
    unless `separator` does. An error if no line seems to have a separator."""
    for _, tab, found in _watched(path, separator, read_lines(path, errors="replace")):
        if found:
            return tab
    return separator == "tab"


def _watched(path: str, separator: str, lines: Iterator[str]) -> Iterator[tuple[str, bool, bool]]:
    """Each line, whether TAB separates its sides, and whether there was a separator by now; an
    error after the first lines with words, or at the end, if none of them had one."""
    tab, found, bare = separator == "tab", False, 0
    for line in lines:
        if not found and line.strip(" \t\r"):
            if separator == "auto" and not bare:
                tab = "\t" in line
            found = "\t" in line if tab else " ||| " in f" {line} "
            bare += not found
        yield line, tab, found
        if not found and bare == MAX_BARE:
            break
    if bare and not found:
        name = "standard input" if path == "-" else path
        mark = "TAB" if tab else "` ||| `"
        first = " and no TAB in the very first" if separator == "auto" else ""
        raise InputError(
            f"{name} must have a TAB or ` ||| ` between the sides of each line, unless TGT is "
            f"given, a second file; found no {mark} in its first {bare:,} lines with words{first}"
        )


def columns(line: str, tab: bool) -> tuple[str, str]:
    """The two sides of a line of pairs; columns after the second are left out."""
    if tab:
        src, _, rest = line.partition("\t")
        return src, rest.partition("\t")[0]
    # With the blanks around it, a side may be empty; only the first ||| separates.
    src, _, tgt = f" {line} ".partition(" ||| ")
    return src, tgt


@dataclass(frozen=True)
class Source:
    """Where pairs come from. Without `tgt`, `src` is a file of pairs."""

    src: str
    tgt: str | None = None
    separator: str = "auto"
    errors: str = "strict"
    shard: tuple[int, int] = (1, 1)

    def lines(self, first: int = 0) -> Iterator[tuple[str, str]]:
        """The two sides of each line, but the first few."""
        if self.tgt is not None:
            return read_pairs(self.src, self.tgt, errors=self.errors, first=first)
        return self._columns(first)

    def _columns(self, first: int) -> Iterator[tuple[str, str]]:
        """A line without separator has an empty target: it gets no links, the others keep
        their places."""
        lines = read_lines(self.src, errors=self.errors, first=first)
        if first or os.path.isfile(self.src):  # else it can be read only once
            tab = tabbed(self.src, self.separator)
            return (columns(line, tab) for line in lines)
        watched = _watched(self.src, self.separator, lines)
        return (columns(line, tab) for line, tab, _ in watched)

    def within(self, first: int, end: int | None) -> Iterator[tuple[str, str]]:
        """The lines from `first` to before `end`, counted from 0."""
        return islice(self.lines(first), None if end is None else end - first)

    def share(self, multiple: int = 1) -> tuple[int, int | None]:
        """First line, and line after the last (None: the end), of this shard. Shards are runs of
        lines, equal as far as a cut at multiples of `multiple` allows."""
        number, of = self.shard
        if of == 1:
            return 0, None
        if "-" in (self.src, self.tgt):
            raise InputError(
                "--shard needs files: the lines of standard input cannot be counted beforehand"
            )
        count = count_lines(self.src)
        parts = -(-count // multiple)
        start = parts * (number - 1) // of * multiple
        return start, None if number == of else parts * number // of * multiple


@dataclass(frozen=True)
class Note:
    """What the journal must know of a chunk: a digest of its lines, and whether it ended where
    chunks end, or with the input."""

    digest: str
    whole: bool


class Reader:
    """Gives the chunks of a source; can go over those that were done before. `others` are files
    with a line for each pair."""

    def __init__(
        self, source: Lines, size: int, *, multiple: int = 1,
        splits: tuple[Split, Split] = (split, split), others: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._splits = splits
        self._size = size
        self.first, end = source.share(multiple)
        self._next = self.first
        self._lines = source.within(self.first, end)
        self._others = [(name, read_lines(name, first=self.first)) for name in others]
        self._to_the_end = end is None

    def skip(self, pairs: int, digest: str) -> None:
        """Pass over a chunk that must have this digest."""
        first = self._next + 1
        src, tgt, others, _ = self._take(pairs)
        if len(src) < pairs or _digest(src, tgt, *others) != digest:
            raise InputError(
                f"the input has changed since the first run, at lines {first:,} to "
                f"{first + pairs - 1:,}; give --restart to begin anew"
            )

    def _take(
        self, size: int, chars: int | None = None
    ) -> tuple[list[str], list[str], tuple[list[str], ...], InputError | None]:
        """Up to `size` lines of both sides, or up to `chars` characters, and of the others. An
        error of the input comes with the lines before it."""
        src: list[str] = []
        tgt: list[str] = []
        total = 0
        error = None
        try:
            for src_line, tgt_line in islice(self._lines, size):
                src.append(src_line)
                tgt.append(tgt_line)
                total += len(src_line) + len(tgt_line)
                if chars is not None and total >= chars:
                    break
        except InputError as found:
            error = found
        others: list[list[str]] = []
        for name, every in self._others:
            lines, problem = self._take_others(name, every, len(src))
            del src[len(lines) :], tgt[len(lines) :]
            others.append(lines)
            error = problem or error
        self._next += len(src)
        return src, tgt, tuple(lines[: len(src)] for lines in others), error

    def _take_others(
        self, name: str, every: Iterator[str], size: int
    ) -> tuple[list[str], InputError | None]:
        """Lines of another file; fewer than `size` only with an error."""
        lines: list[str] = []
        try:
            for line in islice(every, size):
                lines.append(line)
        except InputError as error:
            return lines, error
        if len(lines) == size:
            return lines, None
        return lines, InputError(
            f"{name} has no line {self._next + len(lines) + 1:,}, where the text goes on; it must "
            "have a line for each pair"
        )

    def _check_end(self) -> None:
        """At the end of the text the others must end, too."""
        for name, lines in self._others:
            if self._to_the_end and next(lines, None) is not None:
                raise InputError(
                    f"{name} has more lines than the text, which ends after {self._next:,}; "
                    "it must have a line for each pair"
                )

    def chunks(self) -> Iterator[Pairs]:
        """Chunks of `size` pairs, cut at multiples of it, or fewer if lines are very long."""
        while True:
            first = self._next
            wanted = self._size - first % self._size
            src, tgt, others, error = self._take(wanted, MAX_CHARS)
            whole = len(src) == wanted or (error is None and _long(src, tgt))
            if src:
                note = Note(_digest(src, tgt, *others), whole)
                src_words, tgt_words = (
                    list(map(cut, lines))
                    for cut, lines in zip(self._splits, (src, tgt), strict=True)
                )
                yield Pairs(first, src_words, tgt_words, note, others)
            if error is not None:
                raise error
            if not whole:
                self._check_end()
                return


def _long(src: list[str], tgt: list[str]) -> bool:
    return sum(map(len, src)) + sum(map(len, tgt)) >= MAX_CHARS


def _digest(*sides: list[str]) -> str:
    # A line has no line end in it, so no two lists of lines give the same bytes.
    text = "\n".join(chain(*sides)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
