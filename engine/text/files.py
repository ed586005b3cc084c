"""Text files as lines, in and out: plain, `.gz`, `.zst`, or `-` for the standard streams.
Knows bytes, compression and UTF-8; what the words of a line are is the matter of `text`."""

from __future__ import annotations

import errno
import gzip
import io
import os
import secrets
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from ..errors import InputError, MxError

# Large enough that decoding and splitting dominate, small enough to stay in the cache.
_BLOCK = 1 << 18
# One compressed block can grow a lot when decompressed, so it is kept small.
_ZST_BLOCK = 1 << 16
_BOM = b"\xef\xbb\xbf"
# What a write can meet that is the disk's doing and not a bug.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS}

# ---- reading ----


def read_lines(path: str | Path, *, errors: str = "strict", first: int = 0) -> Iterator[str]:
    """The lines of a file without their "\\n", which alone ends a line; a final one may lack it.
    With `first`, so many lines are left out: of a plain file they are counted but not decoded.

    `errors` is what `bytes.decode` takes: with "strict", bytes that are not UTF-8 raise
    InputError after all lines before them were given.
    """
    if not first:
        return _decoded(path, _chunks(path), errors)
    if not _plain(path):
        return islice(_decoded(path, _chunks(path), errors), first, None)
    starts, lines = line_starts(path, first)
    if lines <= first:
        return iter(())
    return read_span(path, starts[1], starts[-1], first + 1, errors=errors)


def _plain(path: str | Path) -> bool:
    return Path(path).is_file() and not str(path).endswith((".gz", ".zst"))


def count_lines(path: str | Path) -> int:
    """How many lines `read_lines` gives."""
    return line_starts(path, 1 << 62)[1]


def read_span(
    path: str | Path, start: int, end: int, line: int, *, errors: str = "strict"
) -> Iterator[str]:
    """The lines of a plain file between two bytes, the first of which begins line `line`."""
    return _decoded(path, _span(path, start, end), errors, line - 1, start)


def _decoded(
    path: str | Path, chunks: Iterator[bytes], errors: str, n_lines: int = 0, n_bytes: int = 0
) -> Iterator[str]:
    for block in _whole_lines(chunks):
        text = block[len(_BOM) :] if n_bytes == 0 and block.startswith(_BOM) else block
        try:
            lines = text.decode("utf-8", errors).split("\n")
        except UnicodeDecodeError as error:
            good = text.rfind(b"\n", 0, error.start) + 1
            yield from text[:good].decode("utf-8").split("\n")[:-1]
            line = n_lines + text.count(b"\n", 0, good) + 1
            offset = n_bytes + len(block) - len(text) + error.start
            raise _not_utf8(path, line, offset, block if n_bytes == 0 else b"") from None
        if not lines[-1]:
            lines.pop()
        yield from lines
        n_lines += len(lines)
        n_bytes += len(block)


def read_pairs(
    src: str | Path, tgt: str | Path, *, errors: str = "strict", first: int = 0
) -> Iterator[tuple[str, str]]:
    """Lines of two parallel files together, but the first few; raises InputError, after the last
    complete pair, when one file has more lines than the other."""
    if str(src) == str(tgt) == "-":
        raise InputError(
            "both files are '-' but standard input holds only one; give a path for the other"
        )
    src_lines = read_lines(src, errors=errors, first=first)
    tgt_lines = read_lines(tgt, errors=errors, first=first)
    for n, (src_line, tgt_line) in enumerate(zip_longest(src_lines, tgt_lines), first):
        if src_line is None:
            raise _uneven(src, tgt, n, tgt_lines)
        if tgt_line is None:
            raise _uneven(tgt, src, n, src_lines)
        yield src_line, tgt_line


def _uneven(short: str | Path, long: str | Path, n: int, rest: Iterator[str]) -> InputError:
    """The error for a file that ends after n lines; counts the other one when it is on disk."""
    count = f"{n + 1:,} lines or more"
    if Path(long).is_file():
        with suppress(InputError):  # a bad byte further on: the count stays "or more"
            count = f"{n + 1 + sum(1 for _ in rest):,} lines"
    if Path(short).is_file():
        n = count_lines(short)  # fewer than n if it ended among lines that were left out
    return InputError(
        f"{_name(short)} ends after {n:,} lines but {_name(long)} goes on ({count}); "
        "the files must have equal line counts"
    )


def _name(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _not_utf8(path: str | Path, line: int, offset: int, head: bytes) -> InputError:
    where = f"{_name(path)}, line {line:,}, byte {offset:,}"
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


def _whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, cut behind line ends, so that each block decodes by itself."""
    held: list[bytes] = []  # joined once: a line may be longer than many chunks
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            held.append(chunk[:cut])
            yield b"".join(held)
            held = []
        if cut < len(chunk):
            held.append(chunk[cut:])
    if held:
        yield b"".join(held)


def _chunks(path: str | Path) -> Iterator[bytes]:
    """The decompressed bytes of a file, with all that can go wrong turned into InputError."""
    name = str(path)
    try:
        if name == "-":
            # read1 gives what has arrived, so a pipe is answered before it is full.
            stdin = cast(io.BufferedReader, sys.stdin.buffer)
            yield from _until_empty(lambda: stdin.read1(_BLOCK))
            return
        with open(path, "rb") as file:
            if name.endswith((".gz", ".zst")) and not file.peek(1):
                raise EOFError
            if name.endswith(".gz"):
                with gzip.GzipFile(fileobj=file) as unzipped:
                    yield from _until_empty(lambda: unzipped.read(_BLOCK))
            elif name.endswith(".zst"):
                yield from _zst_chunks(file, name)
            else:
                yield from _until_empty(lambda: file.read(_BLOCK))
    except FileNotFoundError:
        raise InputError(f"{name} does not exist; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{name} is a folder; a text file is needed") from None
    except EOFError:
        raise _damaged(name, "ends too early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(name, f"is not valid gzip ({error})") from None
    except zstandard.ZstdError as error:
        raise _damaged(name, f"is not valid zstd ({error})") from None
    except OSError as error:
        raise InputError(f"cannot read {_name(path)}: {error.strerror or error}") from None


def _span(path: str | Path, start: int, end: int) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            while start < end:
                chunk = file.read(min(_BLOCK, end - start))
                if not chunk:
                    raise InputError(f"{path} has become shorter since it was counted")
                start += len(chunk)
                yield chunk
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def line_starts(path: str | Path, every: int) -> tuple[list[int], int]:
    """Where each `every`-th line of a plain file begins, and the file ends, in bytes; and the
    number of lines. A byte order mark is passed over."""
    starts: list[int] = []
    lines = place = 0
    last = b"\n"
    for chunk in _chunks(path):
        if place == 0:
            place = len(_BOM) if chunk.startswith(_BOM) else 0
            chunk, starts = chunk[place:], [place]
        count = chunk.count(b"\n")
        while lines // every < (lines + count) // every:  # the next cut lies in this chunk
            cut = 0
            for _ in range(every - lines % every):
                cut = chunk.index(b"\n", cut) + 1
            lines += every - lines % every
            count = chunk.count(b"\n", cut)
            place += cut
            starts.append(place)
            chunk = chunk[cut:]
        lines += count
        place += len(chunk)
        last = chunk[-1:] or last
    lines += last != b"\n"
    if not starts or starts[-1] != place:
        starts.append(place)
    return starts, lines


def _until_empty(read: Callable[[], bytes]) -> Iterator[bytes]:
    while chunk := read():
        yield chunk


def _zst_chunks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Frame by frame, because zstandard's own reader takes a cut file for a complete one."""
    context = zstandard.ZstdDecompressor(max_window_size=1 << 31)  # what zstd --long=31 needs
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
        raise _damaged(name, "ends too early")


def _damaged(name: str, what: str) -> InputError:
    return InputError(f"{name} {what}; the file is damaged or incomplete, fetch or make it again")


# ---- writing ----


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that appears at `path`, complete, when the block ends without an error;
    until then, and after an error, whatever was at `path` stays as it is."""
    target = Path(os.path.realpath(path))  # write through a link instead of replacing it
    temp = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with _disk_errors(path):
        try:
            with _open(temp, path, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            try:
                os.replace(temp, target)
            except OSError as error:
                raise _cannot_write(path, error) from None
            sync_folder(target.parent)
        finally:
            temp.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renames inside the folder survive a power cut, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def open_output(path: str | Path, *, whole: bool = False) -> Iterator[BinaryIO]:
    """A binary file to stream results into: plain, `.gz`, `.zst`, or `-` for standard output.
    `whole`: it has its name only when it is complete, unless that is a device or a pipe.
    The same content gives the same bytes: no time or name is stored."""
    name = str(path)
    with _disk_errors(path), ExitStack() as stack:
        if name == "-":
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        device = Path(path).exists() and not Path(path).is_file()
        whole = whole and not device
        opened = atomic_write(path) if whole else _open(Path(path), path, "wb")
        file = stack.enter_context(opened)
        if name.endswith(".gz"):
            file = cast(BinaryIO, gzip.GzipFile("", "wb", 6, file, mtime=0))
        elif name.endswith(".zst"):
            file = zstandard.ZstdCompressor(write_checksum=True).stream_writer(file, closefd=False)
        if name.endswith((".gz", ".zst")):
            stack.callback(file.close)
            # Small writes are slow through a compressor; the buffer gathers them.
            file = cast(BinaryIO, stack.enter_context(io.BufferedWriter(file, _BLOCK)))
        yield file


def _open(file: Path, path: str | Path, mode: str) -> BinaryIO:
    try:
        return cast(BinaryIO, open(file, mode))
    except FileNotFoundError:
        raise MxError(f"cannot write {path}: its folder does not exist; create it first") from None
    except OSError as error:
        raise _cannot_write(path, error) from None


@contextmanager
def _disk_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _DISK:
            raise _cannot_write(path, error) from None
        raise  # a closed pipe, or an error of the caller's own


def _cannot_write(path: str | Path, error: OSError) -> MxError:
    name = "standard output" if str(path) == "-" else str(path)
    hint = "; free some space or choose another disk" if error.errno == errno.ENOSPC else ""
    return MxError(f"cannot write {name}: {error.strerror or error}{hint}")
