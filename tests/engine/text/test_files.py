import errno
import gzip
import io
import os
import sys

import pytest
import zstandard

from ....engine.errors import InputError, MxError
from ....engine.storage import atomic_write
from ....engine.text import files
from ....engine.text.files import open_output, read_lines, read_pairs

ODD = "a\u2028b\u0085c\x0bd\x0c\x1c\x1de\u3000 \r"


def pack(kind: str, data: bytes) -> bytes:
    if kind == ".gz":
        return gzip.compress(data)
    return zstandard.ZstdCompressor(write_checksum=True).compress(data) if kind == ".zst" else data


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def stdin(monkeypatch, data: bytes):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))


# ---- reading ----


@pytest.mark.parametrize("kind", [".txt", ".gz", ".zst"])
@pytest.mark.parametrize("block", [1, 7, 1 << 18])
def test_lines_of_each_kind_of_file(tmp_path, monkeypatch, kind, block):
    monkeypatch.setattr(files, "_BLOCK", block)
    monkeypatch.setattr(files, "_ZST_BLOCK", block)
    lines = ["", "ä ö", ODD, "", "x" * 50, "中文 😀", ""]
    path = write(tmp_path, "t" + kind, pack(kind, "".join(f"{x}\n" for x in lines).encode()))
    assert list(read_lines(path)) == lines
    assert list(read_lines(str(path))) == lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"\xef\xbb\xbfa\nb", ["a", "b"]),
        (b"\xef\xbb\xbf\n\xef\xbb\xbfb", ["", "\ufeffb"]),
        (b"\xef\xbb\xbf", []),
        (b"a\r\nb\r\n", ["a\r", "b\r"]),
        (b"a\0b\n", ["a\0b"]),
    ],
)
def test_line_ends_and_byte_order_mark(tmp_path, data, lines):
    assert list(read_lines(write(tmp_path, "t", data))) == lines


def test_several_compressed_parts_read_as_one(tmp_path):
    for kind in (".gz", ".zst"):
        path = write(tmp_path, "t" + kind, pack(kind, b"a\nb") + pack(kind, b"c\nd\n"))
        assert list(read_lines(path)) == ["a", "bc", "d"]
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00junk"
    path = write(tmp_path, "s.zst", skippable + pack(".zst", b"a\n") + skippable)
    assert list(read_lines(path)) == ["a"]


def test_standard_input(monkeypatch):
    stdin(monkeypatch, b"\xef\xbb\xbfa b\nc")
    assert list(read_lines("-")) == ["a b", "c"]


@pytest.mark.parametrize("block", [3, 1 << 18])
def test_bad_bytes_name_the_place_after_the_good_lines(tmp_path, monkeypatch, block):
    monkeypatch.setattr(files, "_BLOCK", block)
    path = write(tmp_path, "t.txt", "ä\nb\n".encode() + b"cd\xff\nlast\n")
    given = []
    with pytest.raises(InputError, match=r"t\.txt, line 3, byte 7: .*--errors replace"):
        given.extend(read_lines(path))
        pytest.fail("not reached")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["ä", "b"]
    assert list(read_lines(path, errors="replace")) == ["ä", "b", "cd\ufffd", "last"]


def test_byte_offset_counts_the_byte_order_mark(tmp_path):
    with pytest.raises(InputError, match="line 1, byte 3:"):
        list(read_lines(write(tmp_path, "t", b"\xef\xbb\xbf\xff")))


def test_a_cut_character_does_not_swallow_the_line_end(tmp_path):
    path = write(tmp_path, "t", b"a\xe2\x82\nb\xf0")
    assert list(read_lines(path, errors="replace")) == ["a\ufffd", "b\ufffd"]


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (gzip.compress(b"a", mtime=0), "gzip; give .* ends in .gz"),
        (pack(".zst", b"a"), "zstd; give .* ends in .zst"),
        ("ab".encode("utf-16"), "UTF-16"),
    ],
)
def test_other_formats_are_recognised(tmp_path, data, hint):
    with pytest.raises(InputError, match=hint):
        list(read_lines(write(tmp_path, "t.txt", data)))


@pytest.mark.parametrize("kind", [".gz", ".zst"])
def test_damaged_archives(tmp_path, kind):
    whole = pack(kind, os.urandom(3000).hex().encode())
    with pytest.raises(InputError, match="ends too early"):
        list(read_lines(write(tmp_path, "cut" + kind, whole[:-9])))
    with pytest.raises(InputError, match="ends too early"):
        list(read_lines(write(tmp_path, "empty" + kind, b"")))
    assert list(read_lines(write(tmp_path, "nothing" + kind, pack(kind, b"")))) == []
    with pytest.raises(InputError, match="is not valid"):
        list(read_lines(write(tmp_path, "text" + kind, b"just text\n")))
    broken = whole[:100] + bytes(255 - b for b in whole[100:140]) + whole[140:]
    with pytest.raises(InputError, match="damaged"):
        list(read_lines(write(tmp_path, "broken" + kind, broken)))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match=r"no\.txt does not exist"):
        list(read_lines(tmp_path / "no.txt"))
    with pytest.raises(InputError, match="is a folder"):
        list(read_lines(tmp_path))


def test_pairs(tmp_path):
    src = write(tmp_path, "a", "1\n\n3\n")
    tgt = write(tmp_path, "b.gz", gzip.compress(b"x\ny\n"))
    given = []
    with pytest.raises(InputError) as caught:
        for pair in read_pairs(src, tgt):
            given.append(pair)
    assert given == [("1", "x"), ("", "y")]
    assert str(caught.value) == (
        f"{tgt} ends after 2 lines but {src} goes on (3 lines); "
        "the files must have equal line counts"
    )
    with pytest.raises(InputError, match=r"b\.gz ends after 2 lines but .*a goes on \(3 lines\)"):
        list(read_pairs(tgt, src))
    assert list(read_pairs(src, src)) == [("1", "1"), ("", ""), ("3", "3")]


def test_uneven_pairs_give_the_true_count(tmp_path):
    src = write(tmp_path, "a", "x\n" * 2500)
    tgt = write(tmp_path, "b", "x\n" * 1999)
    with pytest.raises(InputError, match=r"after 1,999 lines .*\(2,500 lines\)"):
        list(read_pairs(src, tgt))


def test_uneven_pairs_from_standard_input(tmp_path, monkeypatch):
    stdin(monkeypatch, b"1\n2\n3\n")
    tgt = write(tmp_path, "b", "x\n")
    with pytest.raises(InputError, match=r"after 1 lines but standard input .*2 lines or more"):
        list(read_pairs("-", tgt))


def test_two_standard_inputs():
    with pytest.raises(InputError, match="both files are '-'"):
        list(read_pairs("-", "-"))


# ---- writing ----


@pytest.mark.parametrize("opener", [atomic_write, open_output])
def test_writing_where_it_cannot_be(tmp_path, opener):
    inside = tmp_path / "no" / "out"
    with pytest.raises(MxError, match=r"no/out: its folder does not exist"), opener(inside):
        pass
    with pytest.raises(MxError, match="cannot write"), opener(tmp_path):
        pass
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(MxError, match=r"out: No space left.*free"), opener(tmp_path / "out"):
        raise full
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_errors_of_the_caller_stay_its_own(tmp_path):
    with pytest.raises(BrokenPipeError), open_output(tmp_path / "out"):
        raise BrokenPipeError
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "out"):
        (tmp_path / "nothing").read_bytes()


@pytest.mark.parametrize("kind", [".txt", ".gz", ".zst"])
def test_output_reads_back_and_is_repeatable(tmp_path, kind):
    paths = [tmp_path / (name + kind) for name in ("a", "b")]
    for path in paths:
        with open_output(path) as file:
            for line in range(1000):
                file.write(f"{line} {ODD}\n".encode())
    assert list(read_lines(paths[0])) == [f"{line} {ODD}" for line in range(1000)]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_standard_output(capfdbinary):
    with open_output("-") as file:
        file.write("ä\n".encode())
    assert capfdbinary.readouterr().out == "ä\n".encode()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("kind", [".txt", ".gz", ".zst"])
@pytest.mark.parametrize("size", [10, 1 << 20])
def test_full_disk(tmp_path, kind, size):
    path = tmp_path / ("out" + kind)
    path.symlink_to("/dev/full")
    with pytest.raises(MxError, match=r"out.* No space left"), open_output(path) as file:
        file.write(os.urandom(size))


def test_long_windows(tmp_path):
    params = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    packed = zstandard.ZstdCompressor(compression_params=params).compressobj()
    data = packed.compress(b"a\n") + packed.flush()
    assert list(read_lines(write(tmp_path, "t.zst", data))) == ["a"]
