from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.errors import InputError
from ....engine.text import corpus
from ....engine.text.corpus import ChunkReader, ParallelFiles


@pytest.fixture
def source(tmp_path):
    def write(src: list[str], tgt: list[str] | None = None, **options) -> ParallelFiles:
        paths = []
        for name, lines in (("src", src), ("tgt", tgt)):
            if lines is not None:
                (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
                paths.append(str(tmp_path / name))
        return ParallelFiles(*paths, **options)

    return write


LINES = [f"line {n}" for n in range(10)]


def test_chunks_are_cut_at_multiples_wherever_reading_began(source):
    reader = ChunkReader(source(LINES, LINES, shard=(2, 3)), 4)
    chunks = list(reader.read_chunks())
    assert reader.first == 3
    assert [(chunk.first, len(chunk.src)) for chunk in chunks] == [(3, 1), (4, 2)]
    assert [chunk.whole for chunk in chunks] == [True, False]
    reader = ChunkReader(source(LINES, LINES), 5)
    chunks = list(reader.read_chunks())
    assert [(chunk.first, len(chunk.src), chunk.whole) for chunk in chunks] == [
        (0, 5, True), (5, 5, True),
    ]  # fmt: skip


def test_long_lines_make_chunks_short(source, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_CHARS", 30)
    chunks = list(ChunkReader(source(LINES, LINES), 8).read_chunks())
    assert [len(chunk.src) for chunk in chunks] == [3, 3, 2, 2]
    assert [words for chunk in chunks for words in chunk.src] == [line.split(" ") for line in LINES]
    assert [chunk.whole for chunk in chunks] == [True, True, True, False]


def test_going_over_what_was_done(source):
    made = list(ChunkReader(source(LINES, LINES), 4).read_chunks())
    reader = ChunkReader(source(LINES, LINES), 3)  # chunks may have another size now
    for chunk in made[:2]:
        reader.skip_chunk(len(chunk.src), chunk.digest)
    assert [(chunk.first, len(chunk.src)) for chunk in reader.read_chunks()] == [(8, 1), (9, 1)]
    changed = ChunkReader(source([*LINES[:5], "x", *LINES[6:]], LINES), 4)
    changed.skip_chunk(4, made[0].digest)
    with pytest.raises(InputError, match="changed since the first run, at lines 5 to 8"):
        changed.skip_chunk(4, made[1].digest)
    shorter = ChunkReader(source(LINES[:6], LINES[:6]), 4)
    shorter.skip_chunk(4, made[0].digest)
    with pytest.raises(InputError, match="changed"):
        shorter.skip_chunk(4, made[1].digest)


def test_moving_a_line_end_changes_the_digest(source):
    pairs = [(["a", "b"], ["c", "d"]), (["a", "b c"], ["", "d"]), (["ab", ""], ["c", "d"])]
    digests = {next(ChunkReader(source(*pair), 4).read_chunks()).digest for pair in pairs}
    assert len(digests) == 3


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(1, 12), st.integers(1, 9))
def test_shards_divide_the_lines(tmp_path_factory, n, of, multiple):
    path = Path(tmp_path_factory.mktemp("s")) / "f"
    path.write_text("x\n" * n)
    shares = [
        ParallelFiles(str(path), shard=(i, of)).line_range(multiple) for i in range(1, of + 1)
    ]
    assert shares[0][0] == 0 and shares[-1][1] is None
    assert [end for _, end in shares[:-1]] == [start for start, _ in shares[1:]]
    assert all(start % multiple == 0 for start, _ in shares)
    if multiple == 1 and of > 1:
        ends = [end if end is not None else n for _, end in shares]
        sizes = [end - start for (start, _), end in zip(shares, ends, strict=True)]
        assert max(sizes) - min(sizes) <= 1


def test_lines_without_a_separator_keep_their_places(source, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_BARE", 3)
    bars = ["", "bare", "bare too", "a ||| b", *["bare"] * 5]
    sides = [(s.strip(), t.strip()) for s, t in source(bars).read_from()]
    assert sides == [(s, "b" if s == "a" else "") for s in ["", *bars[1:3], "a", *bars[4:]]]
    late = source(bars, shard=(2, 2))  # whose own lines have none
    assert len(list(late.open_lines(1)[2])) == 5
    assert len(list(source(["", " ", "\t"]).read_from())) == 3


@pytest.mark.parametrize(
    ("separator", "lines", "found"),
    [
        ("auto", ["", "a b", "a|||b"], "` ||| ` in its first 2 lines with words and no TAB in the"),
        ("auto", ["a", "b", "c", "d ||| e"], "` ||| ` in its first 3 lines with words and no TAB"),
        ("bars", ["a\tb"], "` ||| ` in its first 1 lines with words"),
        ("tab", ["a ||| b"], "TAB in its first 1 lines with words"),
    ],
)
@pytest.mark.parametrize("shard", [(1, 1), (1, 2), (2, 2)])
def test_a_second_file_seems_forgotten(source, monkeypatch, separator, lines, found, shard):
    monkeypatch.setattr(corpus, "MAX_BARE", 3)
    wanted = r"src must have a TAB or ` \|\|\| ` .*, unless TGT is given, a second file; found no "
    with pytest.raises(InputError, match=wanted) as error:
        ChunkReader(source(lines, separator=separator, shard=shard), 4)
    assert found in str(error.value)


def test_an_error_comes_with_the_lines_before_it(source):
    reader = ChunkReader(source(LINES, LINES[:6]), 4)
    got = []
    with pytest.raises(InputError, match="ends after 6 lines"):
        for chunk in reader.read_chunks():
            got.append((len(chunk.src), chunk.whole))
    assert got == [(4, True), (2, False)]
