"""Text from strangers: bombs, endless lines and huge words get an answer in bounded memory."""

import gzip
import os
import sys
from pathlib import Path

import pytest
import zstandard

from ...engine.commands import align
from ...engine.errors import InputError
from ...engine.text.files import MAX_LINE, count_lines, read_lines
from ..support.bundles import write_toy
from ..support.fault_scenarios import load_libraries
from ..support.faults import run_job

GIGABYTE = 1 << 20  # in kilobytes


def measure_memory() -> int:
    """Return the kilobytes that this process has, and a fork of it begins with."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    load_libraries()
    folder = tmp_path_factory.mktemp("strange")
    write_toy(folder / "toy.mx")
    (folder / "lines").write_text("a b c\n" * 9)
    return folder


def pack(name: str, size: int, path) -> None:
    block = b"a" * (1 << 20)
    packer = zstandard.ZstdCompressor() if name == "zst" else None
    with (
        open(path, "wb") as file,
        packer.stream_writer(file) if packer else gzip.GzipFile("", "wb", 1, file) as out,
    ):
        for _ in range(size >> 20):
            out.write(block)


@pytest.mark.parametrize("name", ["zst", "gz"])
def test_a_bomb_is_an_endless_line(folder, name):
    pack(name, 512 << 20, folder / f"bomb.{name}")
    line = [folder / f"bomb.{name}", folder / "lines", "-m", folder / "toy.mx", "--threads", 1]
    before = measure_memory()
    ending = run_job(align.main, line, folder)
    assert ending.code == 2 and "line 1: longer than" in ending.said and ending.said.count("\n") < 3
    assert ending.kilobytes - before < GIGABYTE
    assert ending.seconds < 60


def test_the_line_that_is_too_long_is_named(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"a\n" * 300_000 + b"b" * MAX_LINE + b"\nlast\n")
    assert sum(map(len, read_lines(path))) == 300_000 + MAX_LINE + 4
    path.write_bytes(b"a\n" * 300_000 + b"b" * (MAX_LINE + 1))
    with pytest.raises(InputError, match="line 300,001: longer than"):
        list(read_lines(path))
    assert count_lines(path) == 300_001


def test_frames_of_zstd_are_unpacked_bit_by_bit(tmp_path):
    lines = [f"line {n} {'x' * (n % 90)}" for n in range(20_000)]
    data = "".join(f"{line}\n" for line in lines).encode()
    packed = [zstandard.compress(data[:70_000]), zstandard.compress(data[70_000:])]
    (tmp_path / "text.zst").write_bytes(b"".join(packed))
    assert list(read_lines(tmp_path / "text.zst")) == lines


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted otherwise")
def test_huge_words_and_lines_are_aligned_in_bounded_memory(folder):
    (folder / "words").write_text(
        f"{'a' * (MAX_LINE - 1)}\n{'b ' * (MAX_LINE // 2 - 1)}c\nthe cat\n"
    )
    line = [folder / "words", folder / "words", "-m", folder / "toy.mx", "--threads", 1]
    before = measure_memory()
    ending = run_job(align.main, [*line, "-o", "links"], folder)
    assert ending.code == 0, ending
    assert ending.kilobytes - before < GIGABYTE
    assert len((folder / "links").read_bytes().split(b"\n")) == 4
