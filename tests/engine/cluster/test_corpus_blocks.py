"""Blocks hold the lines that one reader of the whole corpus finds, whatever it is stored in."""

import json
import random

import pytest

from ....engine.cluster import corpus_blocks
from ....engine.cluster.corpus_blocks import CorpusBlock, divide_corpus, fingerprint_corpus
from ....engine.errors import InputError
from ....engine.text.corpus import ChunkReader, ParallelFiles
from ....engine.text.files import find_line_starts
from ....engine.text.words import split_words

LINES = ["a b", "", " c\td ", "\ufeffx", "ü\r", "|||", "d e f", "\u2028", "g"]


def texts(n: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [rng.choice(LINES) for _ in range(n)]


def lines_of(found: list[CorpusBlock]) -> list[tuple[str, str]]:
    assert [block.number for block in found] == list(range(len(found)))
    return [line for block in found for line in block.open_lines(1)[2]]


@pytest.mark.parametrize("n", [0, 1, 7, 8, 63, 64, 65, 300])
@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_two_files(tmp_path, n, end, mark):
    names = [str(tmp_path / name) for name in ("s", "t")]
    for k, name in enumerate(names):
        text = mark + "\n".join([*texts(n - 1, k), "last"][:n]) + (end if n else "")
        (tmp_path / name).write_bytes(text.encode())
    found = divide_corpus(*names, 8)
    assert lines_of(found) == list(ParallelFiles(*names).read_from())
    assert sum(block.pairs for block in found) == n
    assert all(block.first % 64 == 0 and block.pairs <= 64 for block in found)


def test_starts_of_lines_across_reads(tmp_path):
    data = b"".join(b"x" * (k * 7919 % 3000) + b"\n" for k in range(2000))
    (tmp_path / "f").write_bytes(data)
    starts, lines = find_line_starts(tmp_path / "f", 300)
    ends = [0]
    for line in data.split(b"\n")[:-1]:
        ends.append(ends[-1] + len(line) + 1)
    assert lines == 2000 and starts == [*ends[:2000:300], len(data)]


@pytest.mark.parametrize("mark", ["\t", " ||| "])
def test_one_file(tmp_path, mark):
    path = tmp_path / "pairs"
    path.write_text("\n\n" + "".join(f"a b{mark}{k}\n" for k in range(100)) + "none\n", "utf-8")
    found = divide_corpus(str(path), None, 4)
    sides = [[list(map(split_words, line)) for line in lines]
             for lines in (lines_of(found), ParallelFiles(str(path)).read_from())]  # fmt: skip
    assert sides[0] == sides[1]
    assert len(found) == 4


def test_long_lines_make_small_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_blocks, "_MAX_BYTES", 100)
    for name in "st":
        (tmp_path / name).write_text("".join(f"{'x' * 30} {k}\n" for k in range(50)))
    found = divide_corpus(str(tmp_path / "s"), str(tmp_path / "t"), 2)
    assert len(found) == 25 and len(lines_of(found)) == 50


def test_json_lines(tmp_path):
    path = tmp_path / "c.jsonl"
    rows = [{"x": f"a {k}", "y": ["b", str(k)], "z": 1} for k in range(70)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    found = divide_corpus(str(path), None, 8, names=("x", "y"))
    assert lines_of(found) == [(f"a {k}", f"b {k}") for k in range(70)] + [("", "")]
    with pytest.raises(InputError, match=r"line 1: no object with src and tgt; .*--columns"):
        lines_of(divide_corpus(str(path), None, 8))


@pytest.mark.parametrize(
    ("row", "message"),
    [("{", "not JSON"), ('{"src": 1, "tgt": ""}', "a string or a list"),
     ('{"src": ["a b"], "tgt": ""}', "has a blank")],
)  # fmt: skip
def test_bad_json(tmp_path, row, message):
    path = tmp_path / "c.jsonl"
    path.write_text('{"src": "", "tgt": null}\n' + row + "\n")
    with pytest.raises(InputError, match=f"line 2: .*{message}"):
        lines_of(divide_corpus(str(path), None, 8))


def test_parquet_files(tmp_path):
    pa = pytest.importorskip("pyarrow", reason='needs pyarrow: pip install "mx-align[ray]"')
    parquet = pytest.importorskip("pyarrow.parquet")
    src, tgt = texts(150, 1), [line.split(" ") if line.strip() else None for line in ["a b"] * 150]
    for n, (start, end) in enumerate([(0, 10), (10, 10), (10, 140), (140, 150)]):
        table = pa.table({"tgt": pa.array(tgt[start:end], pa.list_(pa.string())),
                          "src": pa.array(src[start:end], pa.string())})  # fmt: skip
        parquet.write_table(table, tmp_path / f"{n}.parquet", row_group_size=13)
    found = divide_corpus(str(tmp_path), None, 4)
    assert lines_of(found) == [(line, "a b") for line in src]
    assert {block.pairs for block in found[:-1]} == {32}
    with pytest.raises(InputError, match="no column 'de' but tgt, src"):
        divide_corpus(str(tmp_path / "0.parquet"), None, 4, names=("de", "src"))


def test_what_cannot_be_cut(tmp_path):
    (tmp_path / "s").write_text("a\nb\n")
    (tmp_path / "t").write_text("a\n")
    with pytest.raises(InputError, match=r"t ends after 1 lines but .*s goes on \(2 lines\)"):
        divide_corpus(str(tmp_path / "s"), str(tmp_path / "t"), 8)
    for name in ("-", "c.gz", "c.zst"):
        with pytest.raises(InputError, match="by one machine only"):
            divide_corpus(name, None, 8)
    with pytest.raises(InputError, match=r"s must have a TAB or ` \|\|\| ` between the sides"):
        divide_corpus(str(tmp_path / "s"), None, 8)
    with pytest.raises(InputError, match=r"line 2, byte 2: not valid UTF-8"):
        (tmp_path / "s").write_bytes(b"a\n\xff\n")
        lines_of(divide_corpus(str(tmp_path / "s"), str(tmp_path / "s"), 1))


def test_other_files_have_other_fingerprints(tmp_path):
    path = tmp_path / "s"
    found = []
    for text in ("a b\n" * 9, "a c\n" * 9, "a b\n" * 9):
        path.write_text(text)
        found.append(fingerprint_corpus(divide_corpus(str(path), str(path), 2)))
    assert found[0] == found[2] != found[1]


def test_a_block_is_cut_into_the_chunks_of_one_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("mx_align.engine.text.corpus.MAX_CHARS", 60)
    names = [str(tmp_path / name) for name in "st"]
    for name in names:
        lines = [f"{'w' * (k % 11)} {k}" for k in range(100)]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    whole = [(c.first, len(c.src)) for c in ChunkReader(ParallelFiles(*names), 8).read_chunks()]
    parts = [
        (c.first, len(c.src))
        for block in divide_corpus(*names, 8)
        for c in ChunkReader(block, 8).read_chunks()
    ]
    assert parts == whole and max(n for _, n in whole) < 8
