"""Read parallel text as chunks of word pairs: two files or one file of pairs, all or a shard.

Knows lines, separators and line numbers. Does not decode bytes (`files`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from typing import Any, Protocol

from ..errors import InputError
from ..types import Pairs
from .files import count_lines, read_lines, read_pairs
from .tokens.detection import SAMPLE, SAMPLE_CHARS, TokenPlan, plan_tokens

# A chunk also ends at this many characters, so that very long lines do not fill the memory.
MAX_CHARS = 1 << 22
# A file of pairs must have a separator in one of so many first lines with words.
MAX_BARE = 1000

PieceModels = tuple[str | None, str | None]  # paths of SentencePiece models

# ---- lines ----


class LineSource(Protocol):
    """A share of a corpus, or all of it."""

    def open_lines(self, multiple: int) -> tuple[int, int | None, Iterator[tuple[str, str]]]:
        """Return the first line, from 0, the line after the last (None: the end), and the sides.

        If the corpus is only divided now, that is at multiples of `multiple`.
        """

    def open_sample(self) -> Iterator[tuple[str, str]] | None:
        """Return the first lines of the whole corpus, None if they can be read only once."""


@dataclass(frozen=True)
class ParallelFiles:
    """Two parallel files or, without `tgt`, a file of pairs; all of it, or shard i of n."""

    src: str
    tgt: str | None = None
    separator: str = "auto"  # or bars, tab
    errors: str = "strict"
    shard: tuple[int, int] = (1, 1)

    def line_range(self, multiple: int = 1) -> tuple[int, int | None]:
        """Return the first line of this shard, and the line after its last (None: the end).

        Shards are runs of lines, of equal size as far as bounds at multiples of `multiple` allow:
        10 lines in 3 shards are 0-3, 3-6, 6-end, with `multiple` 4 they are 0-4, 4-8, 8-end.
        """
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

    def open_lines(self, multiple: int) -> tuple[int, int | None, Iterator[tuple[str, str]]]:
        """Return the bounds of `line_range` and the two sides of the lines between them."""
        first, end = self.line_range(multiple)
        return first, end, islice(self.read_from(first), None if end is None else end - first)

    def open_sample(self) -> Iterator[tuple[str, str]] | None:
        """Return the first lines of the files, whatever the shard."""
        names = [name for name in (self.src, self.tgt) if name is not None]
        return self.read_from() if all(map(os.path.isfile, names)) else None

    def read_from(self, first: int = 0) -> Iterator[tuple[str, str]]:
        """Return the two sides of each line, but for the `first` ones.

        In a file of pairs, a line without separator has an empty target: it gets no links, and
        the others keep their places.
        """
        if self.tgt is not None:
            return read_pairs(self.src, self.tgt, errors=self.errors, first=first)
        lines = read_lines(self.src, errors=self.errors, first=first)
        if first or os.path.isfile(self.src):  # else it can be read only once
            tab = is_tab_separated(self.src, self.separator)
            return (split_columns(line, tab) for line in lines)
        watched = _watch_separators(self.src, self.separator, lines)
        return (split_columns(line, tab) for line, tab, _ in watched)


def is_tab_separated(path: str, separator: str = "auto") -> bool:
    """Tell whether TAB separates the sides of a file of pairs.

    Its first line with words decides, unless `separator` does. Raises InputError if no line seems
    to have a separator.
    """
    lines = read_lines(path, errors="replace")
    for _, tab, found in _watch_separators(path, separator, lines):
        if found:
            return tab
    return separator == "tab"


def split_columns(line: str, tab: bool) -> tuple[str, str]:
    """Return the two sides of a line of pairs; columns after the second are left out."""
    if tab:
        src, _, rest = line.partition("\t")
        return src, rest.partition("\t")[0]
    # With the blanks around it, a side may be empty; only the first ||| separates.
    src, mark, tgt = f" {line} ".partition(" ||| ")
    return (src[1:], tgt[:-1]) if mark else (line, "")


def _watch_separators(
    path: str, separator: str, lines: Iterator[str]
) -> Iterator[tuple[str, bool, bool]]:
    """Yield each line, whether TAB separates its sides, and whether there was a separator by now.

    Raises InputError after the first lines with words, or at the end, if none of them had one.
    """
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


# ---- chunks ----


@dataclass(frozen=True)
class ChunkLines:
    """Consecutive lines of both sides and of the files of links, equally many."""

    first: int  # number of the first line in the corpus, from 0
    src: list[str]
    tgt: list[str]
    link_lines: tuple[list[str], ...] = ()
    whole: bool = True  # it ended where chunks end, not only because the input did

    def __reduce__(self) -> tuple[Any, ...]:
        # A text is sent to another process in a tenth of the time that its lines would take.
        sides = ("\n".join(lines) for lines in (self.src, self.tgt, *self.link_lines))
        return _restore_lines, (self.first, self.whole, *sides)

    def digest(self) -> str:
        """Return what tells the lines from any others."""
        # A line has no line end in it, so no two lists of lines give the same bytes.
        text = "\n".join(chain(self.src, self.tgt, *self.link_lines))
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _restore_lines(first: int, whole: bool, *texts: str) -> ChunkLines:
    src, tgt, *links = (text.split("\n") for text in texts)
    return ChunkLines(first, src, tgt, tuple(links), whole)


@dataclass(frozen=True)
class PairSplitter:
    """Makes the pairs of words of a chunk of lines."""

    plan: TokenPlan
    keep_spans: bool

    def __call__(self, lines: ChunkLines) -> Pairs:
        src, src_tokens = self.plan.src.read_side(lines.src, self.keep_spans)
        tgt, tgt_tokens = self.plan.tgt.read_side(lines.tgt, self.keep_spans)
        found = (lines.digest(), lines.whole, lines.link_lines)
        return Pairs(lines.first, src, tgt, *found, src_tokens, tgt_tokens)


class ChunkReader:
    """Reads the chunks of a source; can go over those that were done before.

    `link_files` are files of links with a line for each pair. `tokens` says how lines are read, or
    is one of `tokens.detection.KINDS`; the first lines then decide, and `plan` has what they did.
    """

    def __init__(
        self, source: LineSource, size: int, *, multiple: int = 1,
        tokens: TokenPlan | str = "words", models: PieceModels = (None, None),
        keep_spans: bool = False, link_files: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._size = size
        self.first, end, self._pairs = source.open_lines(multiple)
        if isinstance(tokens, str):
            tokens = self._plan_tokens(source, tokens, models)
        self.plan = tokens
        self.split_lines = PairSplitter(tokens, keep_spans)
        self._next = self.first
        self._link_files = [(name, read_lines(name, first=self.first)) for name in link_files]
        self._to_the_end = end is None

    def read_chunks(self) -> Iterator[Pairs]:
        """Yield the chunks of `read_lines` as pairs of words."""
        return map(self.split_lines, self.read_lines())

    def read_lines(self) -> Iterator[ChunkLines]:
        """Yield chunks that end at multiples of `size`, or before if lines are very long.

        With size 4, a shard that begins at line 3 has chunks of the lines 3, 4-7, 8-11 and so on.
        """
        while True:
            size = self._size - self._next % self._size
            lines, error = self._take_lines(size, MAX_CHARS)
            if lines.src:
                yield lines
            if error is not None:
                raise error
            if not lines.whole:
                break
        for name, rest in self._link_files:
            if self._to_the_end and next(rest, None) is not None:
                raise InputError(
                    f"{name} has more lines than the text, which ends after {self._next:,}; "
                    "it must have a line for each pair"
                )

    def skip_chunk(self, pairs: int, digest: str) -> None:
        """Pass over a chunk that must have this digest."""
        first = self._next + 1
        lines, _ = self._take_lines(pairs)
        if len(lines.src) < pairs or lines.digest() != digest:
            raise InputError(
                f"the input has changed since the first run, at lines {first:,} to "
                f"{first + pairs - 1:,}; give --restart to begin anew"
            )

    def _plan_tokens(self, source: LineSource, kind: str, models: PieceModels) -> TokenPlan:
        """Decide by the first lines of the corpus; of a pipe, by those of the first chunk."""
        if kind in ("words", "raw") and models == (None, None):
            return plan_tokens(kind, ())
        sample = source.open_sample()
        if sample is not None:
            return plan_tokens(kind, take_sample(sample)[0], models=models)
        # What was taken from a pipe goes back before the rest of it.
        seen, error = take_sample(self._pairs, min(SAMPLE, self._size))
        self._pairs = chain(seen, self._pairs if error is None else _raise_error(error))
        return plan_tokens(kind, seen, models=models)

    def _take_lines(self, size: int, chars: float = inf) -> tuple[ChunkLines, InputError | None]:
        """Return up to `size` lines, or up to `chars` characters, and the error that comes next."""
        first = self._next
        src: list[str] = []
        tgt: list[str] = []
        total = 0
        error = None
        try:
            for src_line, tgt_line in islice(self._pairs, size):
                src.append(src_line)
                tgt.append(tgt_line)
                total += len(src_line) + len(tgt_line)
                if total >= chars:
                    break
        except InputError as found:
            error = found
        link_lines: list[list[str]] = []
        for name, rest in self._link_files:
            lines: list[str] = []
            try:
                for line in islice(rest, len(src)):  # after an error, what came before it counts
                    lines.append(line)
                if len(lines) < len(src):
                    raise InputError(
                        f"{name} has no line {self._next + len(lines) + 1:,}, where the text goes "
                        "on; it must have a line for each pair"
                    )
            except InputError as found:
                error = found
            del src[len(lines) :], tgt[len(lines) :]
            link_lines.append(lines)
        self._next += len(src)
        # A chunk of fewer lines is whole if they are very long.
        whole = len(src) == size or (error is None and total >= chars)
        links = tuple(lines[: len(src)] for lines in link_lines)
        return ChunkLines(first, src, tgt, links, whole), error


def take_sample(
    pairs: Iterator[tuple[str, str]], size: int = SAMPLE
) -> tuple[list[tuple[str, str]], InputError | None]:
    """Return some first pairs, fewer if they are very long, and the error that ended them."""
    seen: list[tuple[str, str]] = []
    chars = 0
    try:
        for src, tgt in islice(pairs, size):
            seen.append((src, tgt))
            chars += len(src) + len(tgt)
            if chars > SAMPLE_CHARS:
                break
    except InputError as error:
        return seen, error
    return seen, None


def _raise_error(error: InputError) -> Iterator[tuple[str, str]]:
    raise error
    yield  # which makes it an iterator
