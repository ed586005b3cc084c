"""Read and write text files as lines: plain, `.gz`, `.zst`, or `-` for the standard streams.

Knows bytes, compression and UTF-8. Does not split lines into words.
"""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from ..errors import InputError
from ..storage import atomic_write, name_disk_errors, open_to_write

# Large enough that decoding and splitting dominate, small enough to stay in the cache.
_BLOCK = 1 << 18
# One compressed byte can become 32,768, so few are unpacked at a time: 64 MB at most.
_ZST_BLOCK = 1 << 11
# The most that zstd may look back, which it keeps in memory: what `zstd --long=29` writes.
_ZST_WINDOW = 1 << 29
# Bytes of a line; a book has fewer. Its words take thirty times as much memory.
MAX_LINE = 1 << 22
_BOM = b"\xef\xbb\xbf"

# ---- lines ----


def read_lines(path: str | Path, *, errors: str = "strict", first: int = 0) -> Iterator[str]:
    """Yield the lines of a file without their "\\n", which alone ends a line.

    The last line may lack it. With `first`, so many lines are left out: of a plain file they are
    counted but not decoded.

    `errors` is what `bytes.decode` takes: with "strict", bytes that are not UTF-8 raise
    InputError after all lines before them were given.
    """
    if not first:
        return _decode_lines(path, _read_chunks(path), errors)
    if not Path(path).is_file() or str(path).endswith((".gz", ".zst")):
        return islice(_decode_lines(path, _read_chunks(path), errors), first, None)
    starts, lines = find_line_starts(path, first)
    if lines <= first:
        return iter(())
    return read_byte_range(path, starts[1], starts[-1], first + 1, errors=errors)


def count_lines(path: str | Path) -> int:
    """Return how many lines `read_lines` gives."""
    return find_line_starts(path, 1 << 62)[1]


def read_byte_range(
    path: str | Path, start: int, end: int, line: int, *, errors: str = "strict"
) -> Iterator[str]:
    """Yield the lines of a plain file between two bytes, the first of which begins line `line`."""
    return _decode_lines(path, _read_chunks(path, start, end), errors, line - 1, start)


def read_pairs(
    src: str | Path, tgt: str | Path, *, errors: str = "strict", first: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield the lines of two parallel files together, but for the `first` ones.

    Raises InputError, after the last complete pair, when one file has more lines than the other.
    """
    if str(src) == str(tgt) == "-":
        raise InputError(
            "both files are '-' but standard input holds only one; give a path for the other"
        )
    src_lines = read_lines(src, errors=errors, first=first)
    tgt_lines = read_lines(tgt, errors=errors, first=first)
    for n, (src_line, tgt_line) in enumerate(zip_longest(src_lines, tgt_lines), first):
        if src_line is None:
            raise _uneven_error(src, tgt, n, tgt_lines)
        if tgt_line is None:
            raise _uneven_error(tgt, src, n, src_lines)
        yield src_line, tgt_line


def find_line_starts(path: str | Path, every: int) -> tuple[list[int], int]:
    """Return where each `every`-th line begins and the file ends, in bytes; and how many lines.

    With `every` 2, of "a\\nb\\nc\\n" that is [0, 4, 6] and 3. Bytes count after decompression; a
    byte order mark is passed over.
    """
    starts: list[int] = []
    lines = place = 0
    last = b"\n"
    for chunk in _read_chunks(path):
        if place == 0:
            place = len(_BOM) if chunk.startswith(_BOM) else 0
            chunk, starts = chunk[place:], [place]
        count = chunk.count(b"\n")
        while lines // every < (lines + count) // every:  # the next start lies in this chunk
            size = 0
            for _ in range(every - lines % every):
                size = chunk.index(b"\n", size) + 1
            lines += every - lines % every
            count = chunk.count(b"\n", size)
            place += size
            starts.append(place)
            chunk = chunk[size:]
        lines += count
        place += len(chunk)
        last = chunk[-1:] or last
    lines += last != b"\n"
    if not starts or starts[-1] != place:
        starts.append(place)
    return starts, lines


def _decode_lines(
    path: str | Path, chunks: Iterator[bytes], errors: str, n_lines: int = 0, n_bytes: int = 0
) -> Iterator[str]:
    """Yield the lines of these bytes, before which the file has `n_lines` and `n_bytes`."""
    for block in _split_at_line_ends(path, chunks):
        text = block[len(_BOM) :] if n_bytes == 0 and block.startswith(_BOM) else block
        try:
            lines = text.decode("utf-8", errors).split("\n")
        except UnicodeDecodeError as error:
            good = text.rfind(b"\n", 0, error.start) + 1
            yield from text[:good].decode("utf-8").split("\n")[:-1]
            line = n_lines + text.count(b"\n", 0, good) + 1
            offset = n_bytes + len(block) - len(text) + error.start
            raise _encoding_error(path, line, offset, block if n_bytes == 0 else b"") from None
        if not lines[-1]:
            lines.pop()
        yield from lines
        n_lines += len(lines)
        n_bytes += len(block)


def _split_at_line_ends(path: str | Path, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the bytes in blocks that end with a line, so that each decodes by itself."""
    begun: list[bytes] = []  # joined once: a line may be longer than many chunks
    size = lines = 0
    for chunk in _cut_chunks(chunks):
        end = chunk.find(b"\n")
        if size + (end if end >= 0 else len(chunk)) > MAX_LINE:
            raise InputError(
                f"{_shown_name(path)}, line {lines + 1:,}: longer than {MAX_LINE:,} bytes, so it "
                "is no sentence; cut it, or leave it out"
            )
        lines += chunk.count(b"\n")
        size = len(chunk) - chunk.rfind(b"\n") - 1 + (0 if end >= 0 else size)
        end = chunk.rfind(b"\n") + 1
        if end:
            begun.append(chunk[:end])
            yield b"".join(begun)
            begun = []
        if end < len(chunk):
            begun.append(chunk[end:])
    if begun:
        yield b"".join(begun)


def _cut_chunks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the bytes in chunks shorter than the longest line."""
    for chunk in chunks:
        for start in range(0, len(chunk), _BLOCK):
            yield chunk[start : start + _BLOCK]


# ---- bytes ----


def _read_chunks(path: str | Path, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file; all that can go wrong becomes an InputError.

    Of a plain file, those between `start` and `end` only.
    """
    name = str(path)
    try:
        if name == "-":
            # read1 gives what has arrived, so a pipe is answered before it is full.
            stdin = cast(io.BufferedReader, sys.stdin.buffer)
            yield from iter(lambda: stdin.read1(_BLOCK), b"")
            return
        with open(path, "rb") as file:
            if name.endswith((".gz", ".zst")) and not file.peek(1):
                raise EOFError
            if name.endswith(".gz"):
                with gzip.GzipFile(fileobj=file) as unzipped:
                    yield from iter(lambda: unzipped.read(_BLOCK), b"")
            elif name.endswith(".zst"):
                yield from _read_zst_chunks(file)
            elif end is None:
                yield from iter(lambda: file.read(_BLOCK), b"")
            else:
                file.seek(start)
                while start < end:
                    chunk = file.read(min(_BLOCK, end - start))
                    if not chunk:
                        raise InputError(f"{path} has become shorter since it was counted")
                    start += len(chunk)
                    yield chunk
    except FileNotFoundError:
        raise InputError(f"{name} does not exist; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{name} is a folder; a text file is needed") from None
    except EOFError:
        raise _damage_error(name, "ends too early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _damage_error(name, f"is not valid gzip ({error})") from None
    except zstandard.ZstdError as error:
        raise _damage_error(name, f"is not valid zstd ({error})") from None
    except OSError as error:
        raise InputError(f"cannot read {_shown_name(path)}: {error.strerror or error}") from None


def _read_zst_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Decompress frame by frame, because zstandard's own reader takes a torn file for a whole one.

    Raises EOFError where a torn file ends.
    """
    context = zstandard.ZstdDecompressor(max_window_size=_ZST_WINDOW)
    frame = None
    while raw := file.read(_ZST_BLOCK):
        while raw:
            frame = frame or context.decompressobj()
            if chunk := frame.decompress(raw):
                yield chunk
            raw = b""
            if frame.eof:
                raw, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError


# ---- errors ----


def _shown_name(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _uneven_error(short: str | Path, long: str | Path, n: int, rest: Iterator[str]) -> InputError:
    """Make the error for a file that ends after n lines; counts the other one if it is on disk."""
    count = f"{n + 1:,} lines or more"
    if Path(long).is_file():
        with suppress(InputError):  # a bad byte further on: the count stays "or more"
            count = f"{n + 1 + sum(1 for _ in rest):,} lines"
    if Path(short).is_file():
        n = count_lines(short)  # fewer than n if it ended among lines that were left out
    return InputError(
        f"{_shown_name(short)} ends after {n:,} lines but {_shown_name(long)} goes on ({count}); "
        "the files must have equal line counts"
    )


def _encoding_error(path: str | Path, line: int, offset: int, head: bytes) -> InputError:
    where = f"{_shown_name(path)}, line {line:,}, byte {offset:,}"
    if head.startswith(b"\x1f\x8b"):
        return InputError(f"{where}: not text but gzip; give the file a name that ends in .gz")
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return InputError(f"{where}: not text but zstd; give the file a name that ends in .zst")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return InputError(f"{where}: not UTF-8 but UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
    return InputError(
        f"{where}: not valid UTF-8; convert the file to UTF-8, "
        "or read bad bytes as U+FFFD with --errors replace where offered"
    )


def _damage_error(name: str, what: str) -> InputError:
    return InputError(f"{name} {what}; the file is damaged or incomplete, fetch or make it again")


# ---- writing ----


@contextmanager
def open_output(path: str | Path, *, whole: bool = False) -> Iterator[BinaryIO]:
    """Open a binary file to stream results into: plain, `.gz`, `.zst`, or `-` (standard output).

    `whole`: it has its name only when it is complete, unless that is a device or a pipe.
    Equal content gives equal bytes: compressed files store no time or name.
    """
    name = str(path)
    with name_disk_errors(path), ExitStack() as stack:
        if name == "-":
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        device = Path(path).exists() and not Path(path).is_file()
        if whole and not device:
            file = stack.enter_context(atomic_write(path))
        else:
            file = stack.enter_context(open_to_write(path, "wb", shown_as=path))
        if name.endswith(".gz"):
            file = cast(BinaryIO, gzip.GzipFile("", "wb", 6, file, mtime=0))
        elif name.endswith(".zst"):
            file = zstandard.ZstdCompressor(write_checksum=True).stream_writer(file, closefd=False)
        if name.endswith((".gz", ".zst")):
            stack.callback(file.close)
            # Small writes are slow through a compressor; the buffer gathers them.
            file = cast(BinaryIO, stack.enter_context(io.BufferedWriter(file, _BLOCK)))
        yield file
