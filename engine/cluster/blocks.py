"""A corpus cut into blocks of lines that any machine can read by itself: text, JSONL, Parquet.
Knows where lines lie in files that all machines see; who reads them is the matter of `ray`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..errors import InputError, MxError
from ..text.corpus import columns, tabbed
from ..text.files import line_starts, read_span

JSON = (".jsonl", ".ndjson", ".json")
# Chunks in a block, and bytes of text after which it takes no more of them: losing a block to a
# lost machine must cost little, and a line more for each of them in the journal must, too.
_CHUNKS = 8
_BYTES = 1 << 26


@dataclass(frozen=True)
class Form:
    """How lines are read: "text" (two files), "bars", "tab" (one), "jsonl" or "parquet"."""

    kind: str
    errors: str = "strict"
    names: tuple[str, str] = ("src", "tgt")


@dataclass(frozen=True)
class Block:
    """Consecutive pairs, the first of which has number `first`, and where they lie: (file, start,
    end) for each side, or for each file in turn. Parquet counts rows, other files bytes."""

    number: int
    first: int
    pairs: int
    spans: tuple[tuple[str, int, int], ...]
    form: Form

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Block:
        values = json.loads(text)
        form = Form(values["form"]["kind"], values["form"]["errors"], (*values["form"]["names"],))
        spans = tuple((file, start, end) for file, start, end in values.pop("spans"))
        return cls(**{**values, "spans": spans, "form": form})

    # What a `corpus.Reader` wants to know.

    def share(self, multiple: int = 1) -> tuple[int, int | None]:
        return self.first, self.first + self.pairs

    def within(self, first: int, end: int | None) -> Iterator[tuple[str, str]]:
        """The two sides of all lines of the block."""
        if self.form.kind == "parquet":
            return _parquet_rows(self)
        line, errors = self.first + 1, self.form.errors
        sides = [read_span(*span, line, errors=errors) for span in self.spans]
        if self.form.kind == "text":
            return zip(*sides, strict=True)
        if self.form.kind == "jsonl":
            return _json_rows(self, sides[0])
        return (columns(text, self.form.kind == "tab") for text in sides[0])


# ---- cutting ----


def cut(
    src: str, tgt: str | None, chunk: int, *, separator: str = "auto", errors: str = "strict",
    names: tuple[str, str] = ("src", "tgt"),
) -> list[Block]:  # fmt: skip
    """The blocks of a corpus. All but the last one have a multiple of `chunk` pairs."""
    files = [str(Path(name).absolute()) for name in (src, tgt) if name is not None]
    for name in (src, tgt):
        if name == "-" or str(name).endswith((".gz", ".zst")):
            raise InputError(
                f"{'standard input' if name == '-' else name} can be read by one machine only, "
                "from its beginning: unpack it into a file, or give Parquet or JSONL"
            )
    if tgt is None and (Path(src).is_dir() or src.endswith(".parquet")):
        return _cut_parquet(Path(files[0]), chunk, Form("parquet", errors, names))
    if tgt is not None:
        form = Form("text", errors)
    elif src.endswith(JSON):
        form = Form("jsonl", errors, names)
    else:
        form = Form("tab" if tabbed(src, separator) else "bars", errors)
    return _cut_lines(files, chunk, form)


def _cut_lines(files: list[str], chunk: int, form: Form) -> list[Block]:
    sides = [line_starts(file, chunk) for file in files]
    counts = [lines for _, lines in sides]
    if counts[0] != counts[-1]:
        short, long = (0, 1) if counts[0] < counts[1] else (1, 0)
        raise InputError(
            f"{files[short]} ends after {counts[short]:,} lines but {files[long]} goes on "
            f"({counts[long]:,} lines); the files must have equal line counts"
        )
    starts = [places for places, _ in sides]
    blocks: list[Block] = []
    first = 0  # a chunk, as are the ends
    for end in range(1, len(starts[0])):
        size = sum(places[end] - places[first] for places in starts)
        if end - first == _CHUNKS or size >= _BYTES or end == len(starts[0]) - 1:
            spans = tuple(
                (file, places[first], places[end])
                for file, places in zip(files, starts, strict=True)
            )
            pairs = min(end * chunk, counts[0]) - first * chunk
            blocks.append(Block(len(blocks), first * chunk, pairs, spans, form))
            first = end
    return blocks


def _cut_parquet(path: Path, chunk: int, form: Form) -> list[Block]:
    """Files of a folder follow each other in the order of their names."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} has no file *.parquet")
    ends = [0]
    for file in files:
        ends.append(ends[-1] + _parquet(str(file), form).metadata.num_rows)
    size = chunk * _CHUNKS
    blocks = []
    for number, first in enumerate(range(0, ends[-1], size)):
        end = min(first + size, ends[-1])
        spans = tuple(
            (str(file), max(first, start) - start, min(end, stop) - start)
            for file, (start, stop) in zip(files, pairwise(ends), strict=True)
            if start < end and first < stop
        )
        blocks.append(Block(number, first, end - first, spans, form))
    return blocks


def fingerprint(blocks: list[Block]) -> str:
    """Of where the blocks are cut and of the beginnings and ends of the files: enough to notice
    that a run goes on with another corpus, without reading all of it."""
    digest = hashlib.blake2b(digest_size=16)
    files: dict[str, None] = {}
    for block in blocks:
        cuts = [(start, end) for _, start, end in block.spans]
        digest.update(json.dumps([block.first, block.pairs, cuts, asdict(block.form)]).encode())
        files |= dict.fromkeys(file for file, _, _ in block.spans)
    for name in files:
        with open(name, "rb") as file:
            digest.update(file.read(1 << 16))
            size = file.seek(0, 2)
            file.seek(max(0, size - (1 << 16)))
            digest.update(file.read())
    return digest.hexdigest()


# ---- reading ----


def _json_rows(block: Block, lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for n, line in enumerate(lines, block.first + 1):
        where = f"{block.spans[0][0]}, line {n:,}"
        if not line.strip(" \t\r"):
            yield "", ""
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: not JSON ({error})") from None
        if not isinstance(row, dict) or any(name not in row for name in block.form.names):
            raise InputError(
                f"{where}: no object with {' and '.join(block.form.names)}; "
                "name its two sides with --columns SRC,TGT"
            )
        src, tgt = (as_line(row[name], where) for name in block.form.names)
        yield src, tgt


def _parquet_rows(block: Block) -> Iterator[tuple[str, str]]:
    line = block.first + 1
    for name, start, end in block.spans:
        file = _parquet(name, block.form)
        place = 0  # the first row of the group
        for group in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if place < end and start < place + size:
                table = file.read_row_group(group, columns=list(block.form.names))
                begin = max(start, place) - place
                table = table.slice(begin, min(end, place + size) - place - begin)
                sides = [table.column(side).to_pylist() for side in block.form.names]
                for src, tgt in zip(*sides, strict=True):
                    where = f"{name}, pair {line:,}"
                    yield as_line(src, where), as_line(tgt, where)
                    line += 1
            place += size


def _parquet(name: str, form: Form) -> Any:
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
    missing = [side for side in form.names if side not in file.schema_arrow.names]
    if missing:
        raise InputError(
            f"{name} has no column {missing[0]!r} but {', '.join(file.schema_arrow.names)}; "
            "name the two sides with --columns SRC,TGT"
        )
    return file


def as_line(value: Any, where: str) -> str:
    """A side as a line: a string as it is, or words in a list; nothing gives no words."""
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
