"""Divide a corpus into blocks of lines that any machine can read by itself: text, JSONL, Parquet.

Knows where lines lie in files that all machines see. Does not know who reads them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..errors import InputError, MxError
from ..text.corpus import is_tab_separated, split_columns
from ..text.files import find_line_starts, read_byte_range
from ..text.tokens.detection import PLAIN_WORDS, TokenPlan

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
# Chunks in a block, and bytes of text after which it takes no more of them. Few, since a block is
# made again if its machine is lost; not fewer, since each is a file and a line of the journal.
_MAX_CHUNKS = 8
_MAX_BYTES = 1 << 26


Span = tuple[str, int, int]  # file, start, end; Parquet counts rows, others bytes


@dataclass(frozen=True)
class CorpusBlock:
    """Consecutive pairs of a corpus and where they lie; can be read as a `LineSource`."""

    number: int
    first: int  # pair, counted from 0
    pairs: int
    spans: tuple[Span, ...]  # one for each side, or for each file in turn
    kind: str  # "text" (two files); "bars", "tab", "jsonl", "parquet" (one)
    errors: str
    names: tuple[str, str]  # of the two sides in JSONL and Parquet
    tokens: TokenPlan = PLAIN_WORDS  # which the first lines of the corpus decide

    def open_lines(self, multiple: int) -> tuple[int, int | None, Iterator[tuple[str, str]]]:
        """Return the first line, the line after the last one, and the two sides of all lines."""
        return self.first, self.first + self.pairs, self._read_lines()

    def open_sample(self) -> Iterator[tuple[str, str]]:
        """Return its own first lines."""
        return self._read_lines()

    def _read_lines(self) -> Iterator[tuple[str, str]]:
        if self.kind == "parquet":
            return _read_parquet_rows(self)
        line = self.first + 1
        sides = [read_byte_range(*span, line, errors=self.errors) for span in self.spans]
        if self.kind == "text":
            return zip(*sides, strict=True)
        if self.kind == "jsonl":
            return _read_json_lines(self, sides[0])
        return (split_columns(text, self.kind == "tab") for text in sides[0])


# ---- dividing ----


def divide_corpus(
    src: str, tgt: str | None, chunk: int, *, separator: str = "auto", errors: str = "strict",
    names: tuple[str, str] = ("src", "tgt"),
) -> list[CorpusBlock]:  # fmt: skip
    """Return the blocks of a corpus; all but the last one have a multiple of `chunk` pairs."""
    for name in (src, tgt):
        if name == "-" or str(name).endswith((".gz", ".zst")):
            raise InputError(
                f"{'standard input' if name == '-' else name} can be read by one machine only, "
                "from its beginning: unpack it into a file, or give Parquet or JSONL"
            )
    if tgt is not None:
        kind = "text"
    elif Path(src).is_dir() or src.endswith(".parquet"):
        kind = "parquet"
    elif src.endswith(_JSON_SUFFIXES):
        kind = "jsonl"
    else:  # decided once for all blocks: a block cannot see the first line
        kind = "tab" if is_tab_separated(src, separator) else "bars"
    files = [str(Path(name).absolute()) for name in (src, tgt) if name is not None]
    if kind == "parquet":
        divided = _divide_parquet(Path(files[0]), chunk, names)
    else:
        divided = _divide_lines(files, chunk)
    return [CorpusBlock(n, *part, kind, errors, names) for n, part in enumerate(divided)]


def _divide_lines(files: list[str], chunk: int) -> Iterator[tuple[int, int, tuple[Span, ...]]]:
    """Yield first pair, number of pairs and spans of each block of one file, or of two.

    With chunks of 10 lines, `starts` of a file of 25 lines are the bytes where the lines 0, 10 and
    20 begin, and its end; a block from chunk 1 to chunk 3 has its bytes starts[1]:starts[3].
    """
    sides = [find_line_starts(file, chunk) for file in files]
    counts = [lines for _, lines in sides]
    if counts[0] != counts[-1]:
        short, long = (0, 1) if counts[0] < counts[1] else (1, 0)
        raise InputError(
            f"{files[short]} ends after {counts[short]:,} lines but {files[long]} goes on "
            f"({counts[long]:,} lines); the files must have equal line counts"
        )
    starts = [places for places, _ in sides]
    first = 0
    for end in range(1, len(starts[0])):
        size = sum(places[end] - places[first] for places in starts)
        if end - first == _MAX_CHUNKS or size >= _MAX_BYTES or end == len(starts[0]) - 1:
            both = zip(files, starts, strict=True)
            spans = tuple((file, places[first], places[end]) for file, places in both)
            yield first * chunk, min(end * chunk, counts[0]) - first * chunk, spans
            first = end


def _divide_parquet(
    path: Path, chunk: int, names: tuple[str, str]
) -> Iterator[tuple[int, int, tuple[Span, ...]]]:
    """Yield the blocks of a file, or of all files of a folder in the order of their names.

    Blocks go across files: with files of 70 and 50 rows and blocks of 80, the second block has the
    rows 10 to 50 of the second file.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} has no file *.parquet")
    ends = [0]
    for file in files:
        ends.append(ends[-1] + _open_parquet(str(file), names).metadata.num_rows)
    size = chunk * _MAX_CHUNKS
    for first in range(0, ends[-1], size):
        end = min(first + size, ends[-1])
        spans = tuple(
            (str(file), max(first, start) - start, min(end, stop) - start)
            for file, (start, stop) in zip(files, pairwise(ends), strict=True)
            if start < end and first < stop
        )
        yield first, end - first, spans


def fingerprint_corpus(blocks: list[CorpusBlock]) -> str:
    """Return a digest of where the blocks lie and how the files begin and end.

    It is enough to notice that a run goes on with another corpus, without reading all of it.
    """
    digest = hashlib.blake2b(digest_size=16)
    files: dict[str, None] = {}
    for block in blocks:
        places = [(start, end) for _, start, end in block.spans]
        form = {"kind": block.kind, "errors": block.errors, "names": block.names}
        digest.update(json.dumps([block.first, block.pairs, places, form]).encode())
        files |= dict.fromkeys(file for file, _, _ in block.spans)
    for name in files:
        # A change in between is noticed only if lines have moved.
        with open(name, "rb") as file:
            digest.update(file.read(1 << 16))
            size = file.seek(0, 2)
            file.seek(max(0, size - (1 << 16)))
            digest.update(file.read())
    return digest.hexdigest()


# ---- reading ----


def _read_json_lines(block: CorpusBlock, lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for n, line in enumerate(lines, block.first + 1):
        where = f"{block.spans[0][0]}, line {n:,}"
        if not line.strip(" \t\r"):
            yield "", ""
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: not JSON ({error})") from None
        if not isinstance(row, dict) or any(name not in row for name in block.names):
            raise InputError(
                f"{where}: no object with {' and '.join(block.names)}; "
                "name its two sides with --columns SRC,TGT"
            )
        src, tgt = (format_side(row[name], where) for name in block.names)
        yield src, tgt


def _read_parquet_rows(block: CorpusBlock) -> Iterator[tuple[str, str]]:
    """Yield the rows of a block; only the groups of rows that it touches are read."""
    line = block.first + 1
    for name, start, end in block.spans:
        file = _open_parquet(name, block.names)
        place = 0  # of the first row of the group
        for group in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if place < end and start < place + size:
                table = file.read_row_group(group, columns=list(block.names))
                begin = max(start, place) - place
                table = table.slice(begin, min(end, place + size) - place - begin)
                sides = [table.column(side).to_pylist() for side in block.names]
                for src, tgt in zip(*sides, strict=True):
                    where = f"{name}, pair {line:,}"
                    yield format_side(src, where), format_side(tgt, where)
                    line += 1
            place += size


def _open_parquet(name: str, sides: Sequence[str]) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise MxError('Parquet needs pyarrow: pip install "mx-align[ray]"') from None
    try:
        file = parquet.ParquetFile(name)
    except FileNotFoundError:
        raise InputError(f"{name} does not exist; check the path") from None
    except (OSError, ValueError) as error:  # what pyarrow raises for other files
        raise InputError(f"cannot read {name} as Parquet: {error}") from None
    missing = [side for side in sides if side not in file.schema_arrow.names]
    if missing:
        raise InputError(
            f"{name} has no column {missing[0]!r} but {', '.join(file.schema_arrow.names)}; "
            "name the two sides with --columns SRC,TGT"
        )
    return file


def format_side(value: Any, where: str) -> str:
    """Return a side as a line: a string as it is, words of a list with spaces, None as no words."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise InputError(f"{where}: a side must be a string or a list of words, not {value!r:.60}")
    for word in value:
        if not word or " " in word or "\t" in word:
            raise InputError(f"{where}: the word {word!r} is empty or has a blank in it")
    return " ".join(value)
