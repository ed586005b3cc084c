import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner

from ....engine.aligner import Aligner
from ....engine.commands import align as cli
from ....engine.text.words import split_words
from ...support.bundles import write_toy

COMMAND = [sys.executable, "-m", "mx_align.engine.commands.align"]
SRC = ["die Katze saß auf der Matte", "", "The Cat", "a\tb  c ", "|||", "x\u2028y\r", "hello"]
TGT = ["the cat sat on the mat", "the", "die Katze", "d", "a ||| b", "z\u3000z", "\u200b"]

FEW_WRONG, FEW_MISSING = ["--optimize-for", "precision"], ["--optimize-for", "recall"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy") / "toy.mx").path


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    """A folder with a small corpus, which is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("c.src").write_bytes("".join(f"{line}\n" for line in SRC).encode())
    Path("c.tgt").write_bytes("".join(f"{line}\n" for line in TGT).encode())
    return tmp_path


@pytest.fixture
def run(bundle):
    def run(*arguments, stdin=b"", code=0, model=bundle):
        # What else finds links is tested in test_method.py.
        named = ["-m", str(model), "--langs", "de-en", "--method", "model"] if model else []
        line = [*map(str, arguments), *named]
        result = CliRunner().invoke(cli.main, line, input=stdin)
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def wanted(bundle) -> list[str]:
    return [str(found) for found in Aligner.load(bundle).align_batch(SRC, TGT)]


def out(result) -> list[str]:
    return result.stdout.split("\n")[:-1]


# ---- input ----


def test_two_files(run, work, wanted):
    result = run("c.src", "c.tgt")
    assert out(result) == wanted
    assert "7 pairs in" in result.stderr and "1 with an empty side" in result.stderr
    assert any(wanted)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_compressed_on_both_ends(run, work, wanted, suffix, pack):
    for name in ("c.src", "c.tgt"):
        Path(name + suffix).write_bytes(pack(Path(name).read_bytes()))
    run("c.src" + suffix, "c.tgt" + suffix, "-o", "out" + suffix)
    packed = Path("out" + suffix).read_bytes()
    if suffix == ".gz":
        text = gzip.decompress(packed)
    else:
        text = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    assert text.decode().split("\n")[:-1] == wanted


def test_a_missing_last_line_end_changes_nothing(run, work, wanted):
    for name in ("c.src", "c.tgt"):
        Path(name).write_bytes(Path(name).read_bytes()[:-1])
    assert out(run("c.src", "c.tgt")) == wanted


def test_one_file_of_pairs(run, work, bundle):
    pairs = [("a b", "c"), ("", "d"), ("e", ""), ("f", "g ||| h"), ("", "")]
    wanted = [str(found) for found in Aligner.load(bundle).align_batch(*zip(*pairs, strict=True))]
    bars = b"a b ||| c\n||| d\ne |||\nf ||| g ||| h\nno separator here\n"
    assert out(run("-", stdin=bars)) == wanted
    assert out(run(stdin=bars)) == wanted
    tabs = b"a b\tc\n\td\ne\t\nf\tg ||| h\tand more\n\n"
    assert out(run("-", stdin=tabs)) == wanted
    assert (
        out(run("-", "--separator", "tab", stdin=b"a ||| b\tc\n"))
        == out(run("-", "--separator", "tab", stdin=b"\n" + b"a ||| b\tc\n"))[1:]
    )
    assert out(run("-", "c.tgt", stdin=Path("c.src").read_bytes())) == out(run("c.src", "c.tgt"))


@pytest.mark.slow
def test_a_forgotten_second_file(run, work, wanted):
    """Nothing would be linked; standard input is answered until that is known."""
    wrong = "must have a TAB or ` ||| ` between the sides of each line, unless TGT is given"
    Path("c.src.gz").write_bytes(gzip.compress(b"the cat\n" * 2000))
    for name in ("c.tgt", "c.src.gz"):
        Path("c.tgt").write_text("the cat\n\nthe mat\n")
        result = run(name, "-o", "out", code=2)
        assert f"{name} {wrong}" in result.stderr and not Path("out.partial").exists()
    result = run("-", "--chunk-pairs", 1, stdin=b"the cat\n" * 2000, code=2)
    assert f"standard input {wrong}" in result.stderr and out(result) == [""] * 1000
    run("-", "-o", "out", stdin=b"the cat\n", code=2)
    Path("c.tgt").write_text("".join(f"{line}\n" for line in TGT), "utf-8")
    run("c.src", "c.tgt", "-o", "out")
    assert Path("out").read_text().split("\n")[:-1] == wanted
    some = b"bare\n" * 999 + b"the cat ||| die Katze\n" + b"bare\n" * 2000
    links = out(run("-", stdin=some))
    assert len(links) == 3000 and [n for n, line in enumerate(links) if line] == [999]


def test_different_line_counts_are_found_where_they_happen(run, work, wanted):
    Path("c.tgt").write_text("".join(f"{line}\n" for line in TGT[:5]), "utf-8")
    result = run("c.src", "c.tgt", code=2)
    assert out(result) == wanted[:5]
    assert "c.tgt ends after 5 lines but c.src goes on (7 lines)" in result.stderr
    result = run("c.src", "c.tgt", "-o", "out", "--chunk-pairs", 2, code=2)
    assert not Path("out").exists()
    assert Path("out.partial/part0").read_text() == "".join(f"{line}\n" for line in wanted[:5])
    # The mended corpus goes on from the last whole chunk.
    Path("c.tgt").write_text("".join(f"{line}\n" for line in TGT), "utf-8")
    result = run("c.src", "c.tgt", "-o", "out", "--chunk-pairs", 2)
    assert "(4 of them by an earlier run)" in result.stderr
    assert Path("out").read_text().split("\n")[:-1] == wanted


def test_invalid_utf8(run, work):
    Path("c.src").write_bytes(b"a\nb \xff c\nd\n")
    Path("c.tgt").write_bytes(b"a\nb\nc\n")
    result = run("c.src", "c.tgt", code=2)
    assert (
        len(out(result)) == 1 and "line 2" in result.stderr and "--errors replace" in result.stderr
    )
    assert len(out(run("c.src", "c.tgt", "--errors", "replace"))) == 3


@pytest.mark.slow
def test_long_sentences_are_aligned_to_their_ends(run, work):
    Path("c.src").write_text("the cat " * 2500 + "\nthe\n")
    Path("c.tgt").write_text("die Katze " * 2500 + "\ndie\n")
    result = run("c.src", "c.tgt", "--threshold", "0.001", "--report", "r.json")
    report = json.loads(Path("r.json").read_text())
    assert report["pairs"] == 2 and report["windowed"] == 1 and report["skipped"] == 0
    links = [tuple(map(int, link.split("-"))) for link in split_words(out(result)[0])]
    assert {i // 1000 for i, _ in links} == set(range(5)) == {j // 1000 for _, j in links}


def test_a_sentence_too_long_for_windows_is_counted(run, work, monkeypatch):
    from ....engine.align import batching

    monkeypatch.setattr(batching, "MAX_PIECES", 30)
    Path("c.src").write_text("the cat " * 20 + "\nthe cat\n")
    Path("c.tgt").write_text("die\ndie Katze\n")
    result = run("c.src", "c.tgt", "--report", "r.json")
    assert out(result)[0] == "" and out(result)[1]
    assert json.loads(Path("r.json").read_text())["skipped"] == 1
    assert "1 too long" in result.stderr


def test_tokenize(run, work, bundle):
    Path("c.src").write_text("Don't stop!\n\n我喜欢\n", "utf-8")
    Path("c.tgt").write_text("Halt, nicht.\nx\nI like\n", "utf-8")
    run("c.src", "c.tgt", "--tokenize", "-o", "out", "--write-tokenized", "tok")
    assert Path("tok.src").read_text("utf-8") == "Do n't stop !\n\n我 喜 欢\n"
    assert Path("tok.tgt").read_text("utf-8") == "Halt , nicht .\nx\nI like\n"
    assert out(run("tok.src", "tok.tgt")) == Path("out").read_text().split("\n")[:-1]


def test_links_count_the_tokens_of_the_user(run, work, wanted):
    """Pieces of words are linked as their words are."""
    words = [("the cat sat on the mat", "die Katze saß auf der Matte"), ("hello", "x")] * 3
    Path("w.src").write_text("".join(f"{src}\n" for src, _ in words))
    Path("w.tgt").write_text("".join(f"{tgt}\n" for _, tgt in words))
    marked = [tuple("▁" + " ▁".join(side.split()) for side in pair) for pair in words]
    # The word `cat` is two tokens: what is linked to word 1 is linked to 1 and 2, and so on.
    Path("p.src").write_text("".join(f"{src}\n".replace("▁cat", "▁ca t") for src, _ in marked))
    Path("p.tgt").write_text("".join(f"{tgt}\n" for _, tgt in marked))
    plain, pieces = run("w.src", "w.tgt"), run("p.src", "p.tgt")
    assert "both sides are read as SentencePiece tokens" in pieces.stderr
    for k, (line, found) in enumerate(zip(out(plain), out(pieces), strict=True)):
        links = {tuple(map(int, link.split("-"))) for link in line.split()}
        places = {1: (1, 2), 2: (3,), 3: (4,), 4: (5,), 5: (6,)} if k % 2 == 0 else {}
        spread = {(place, j) for i, j in links for place in places.get(i, (i,))}
        assert {tuple(map(int, link.split("-"))) for link in found.split()} == spread
    as_words = run("p.src", "p.tgt", "--tokens", "words")
    assert "SentencePiece" not in as_words.stderr and out(as_words) != out(pieces)


def test_raw_text_is_cut_by_a_piece_model(run, work, bundle):
    Path("r.src").write_text("The cat, it sat.\nHello!\n")
    Path("r.tgt").write_text("Die Katze, sie saß.\nx\n")
    model = str(next(bundle.glob("*.spm")))
    done = run("r.src", "r.tgt", "--spm-src", model, "--format", "jsonl")
    rows = list(map(json.loads, out(done)))
    for row in rows:
        assert "".join(row["src"]).replace("▁", " ").strip().isascii()
        assert [row["src_text"][a:b] for a, b in row["src_spans"]]
        assert len(row["src"]) == len(row["src_spans"]) > len(row["src_text"].split())
        assert all(i < len(row["src"]) and j < len(row["tgt"]) for i, j in row["links"])
    refused = run("r.src", "r.tgt", "--spm-src", "nothing.model", code=2)
    assert "cannot read nothing.model" in refused.stderr


# ---- worker processes ----

IN_PROCESSES = ["--workers", "2", "--chunk-pairs", "2"]


@pytest.mark.parametrize("form", ["pharaoh", "jsonl", "a3"])
def test_processes_write_what_one_writes(run, work, form):
    beside = ["--scores", "s{}", "--html", "h{}", "--report", "r{}", "--write-tokenized", "t{}"]
    for n, how in enumerate(([], IN_PROCESSES)):
        names = [arg.format(n) for arg in beside]
        run("c.src", "c.tgt", "-o", f"o{n}", "--format", form, *names, *how)
    for name in ("o{}", "s{}", "h{}", "t{}.src", "t{}.tgt"):
        assert Path(name.format(0)).read_bytes() == Path(name.format(1)).read_bytes(), name
    reports = [json.loads(Path(f"r{n}").read_bytes()) for n in range(2)]
    timeless = [
        {k: v for k, v in one.items() if k not in ("seconds", "pairs_per_second")}
        for one in reports
    ]
    assert timeless[0] == timeless[1]


def test_processes_find_broken_lines_where_they_are(run, work, wanted):
    Path("c.tgt").write_bytes(b"".join(Path("c.tgt").read_bytes().splitlines(True)[:5]))
    alone = run("c.src", "c.tgt", "-o", "o1", code=2)
    several = run("c.src", "c.tgt", "-o", "o2", *IN_PROCESSES, code=2)
    assert alone.stderr.replace("o1", "o2") == several.stderr
    Path("c.tgt").write_bytes("".join(f"{line}\n" for line in TGT).encode())
    run("c.src", "c.tgt", "-o", "o2", *IN_PROCESSES)
    assert Path("o2").read_text().split("\n")[:-1] == wanted


def test_a_killed_run_of_processes_goes_on(bundle, work, run):
    Path("l.src").write_text("".join(f"{line}\n" for line in SRC) * 400, "utf-8")
    Path("l.tgt").write_text("".join(f"{line}\n" for line in TGT) * 400, "utf-8")
    line = ["l.src", "l.tgt", "-m", str(bundle), "-o", "killed", "--chunk-pairs", "64"]
    given = [*COMMAND, *line, "--workers", "2", "--method", "model"]
    process = subprocess.Popen(given, stderr=subprocess.PIPE)
    journal = Path("killed.partial/journal")
    while process.poll() is None and not (journal.exists() and b"sums" in journal.read_bytes()):
        time.sleep(0.01)
    process.kill()
    process.communicate()
    run(*line[:2], "-o", "killed", "--chunk-pairs", "64", "--workers", "2")
    run(*line[:2], "-o", "whole", "--workers", "1")
    assert Path("killed").read_bytes() == Path("whole").read_bytes()


# ---- output ----


def test_formats(run, work, wanted):
    links = [[tuple(map(int, one.split("-"))) for one in split_words(line)] for line in wanted]
    plus = [" ".join(f"{i + 1}-{j + 1}" for i, j in line) for line in links]
    assert out(run("c.src", "c.tgt", "--one-based")) == plus
    turned = [" ".join(f"{j}-{i}" for j, i in sorted((j, i) for i, j in line)) for line in links]
    assert out(run("c.src", "c.tgt", "--reverse")) == turned
    scored = out(run("c.src", "c.tgt", "--format", "scored"))
    assert [" ".join(x.split(":")[0] for x in split_words(line)) for line in scored] == wanted
    run("c.src", "c.tgt", "-o", "out", "--scores", "scores", "--reverse")
    values = [split_words(line) for line in Path("scores").read_text().split("\n")[:-1]]
    turned = out(run("c.src", "c.tgt", "--format", "scored", "--reverse"))
    assert [[x.split(":")[1] for x in split_words(line)] for line in turned] == values
    talp = out(run("c.src", "c.tgt", "--format", "talp"))
    assert [line.replace("p", "-") for line in talp] == wanted and any("p" in x for x in talp)
    rows = [json.loads(line) for line in out(run("c.src", "c.tgt", "--format", "jsonl"))]
    for row, src, tgt, line in zip(rows, SRC, TGT, links, strict=True):
        assert row["src"] == split_words(src) and row["tgt"] == split_words(tgt)
        assert [tuple(link) for link in row["links"]] == line
        assert len(row["scores"]) == len(row["probabilities"]) == len(line)
        assert len(row["src_null"]) == len(row["src"]) and len(row["tgt_null"]) == len(row["tgt"])
    a3 = out(run("c.src", "c.tgt", "--format", "a3"))
    assert len(a3) == 3 * len(SRC)
    assert a3[0].startswith("# Sentence pair (1) source length 6 target length 6 alignment score :")
    assert a3[1] == TGT[0] and a3[2].startswith("NULL ({ ") and " die ({ " in a3[2]


def test_scores_stand_beside_the_links(run, work, wanted):
    run("c.src", "c.tgt", "-o", "out", "--scores", "scores")
    scores = Path("scores").read_text().split("\n")[:-1]
    assert Path("out").read_text().split("\n")[:-1] == wanted
    assert [len(split_words(line)) for line in scores] == [
        len(split_words(line)) for line in wanted
    ]
    assert all(0.15 <= float(x) <= 1 for line in scores for x in split_words(line))
    assert "needs -o" in run("c.src", "c.tgt", "--scores", "x", code=2).stderr


def test_directions_and_heuristics(run, work):
    def links(*flags):
        return [set(split_words(line)) for line in out(run("c.src", "c.tgt", *flags))]

    fwd, bwd = links("--forward"), links("--backward")
    for name, join in (("intersect", set.__and__), ("union", set.__or__)):
        assert links("--symmetrize", name) == [join(a, b) for a, b in zip(fwd, bwd, strict=True)]
    grown = links("--symmetrize", "grow-diag-final-and")
    assert all(a & b <= g <= a | b for a, b, g in zip(fwd, bwd, grown, strict=True))
    assert "exclude each other" in run("c.src", "c.tgt", "--forward", "--backward", code=2).stderr
    counts = [sum(map(len, links(*flag))) for flag in (FEW_WRONG, [], FEW_MISSING)]
    assert counts == sorted(counts) and counts[0] < counts[2]
    assert sum(map(len, links("--threshold", "1"))) <= counts[0]
    run("c.src", "c.tgt", "--threshold", "0", code=2)
    run("c.src", "c.tgt", "--threshold", "0.5", *FEW_MISSING, code=2)


def scored(result_file, scores_file) -> list[dict[str, float]]:
    """Links with their scores, line by line."""
    both = (Path(name).read_text().split("\n")[:-1] for name in (result_file, scores_file))
    return [
        dict(zip(split_words(links), map(float, split_words(values)), strict=True))
        for links, values in zip(*both, strict=True)
    ]


@pytest.fixture
def others(work) -> list[list[tuple[str, float]]]:
    """Files of links by others: a, with scores, and b, without."""
    rows = [[("0-0", 1.0), ("5-1", 0.5)], [], [("1-0", 0.9)], [("0-0", 1.0)], [], [], []]
    Path("a").write_text("".join(" ".join(f"{k}:{v}" for k, v in row) + "\n" for row in rows))
    Path("b").write_text("".join(" ".join(k for k, _ in row) + "\n" for row in rows))
    return rows


def test_average_with_links_of_others(run, work, others):
    run("c.src", "c.tgt", "-o", "own", "--scores", "own.s", "--threshold", "0.05")
    flags = ("--average", "a", "--threshold", "0.25")
    run("c.src", "c.tgt", "-o", "out", "--scores", "out.s", *flags)
    for mean, own, other in zip(
        scored("out", "out.s"), scored("own", "own.s"), others, strict=True
    ):
        sums = {k: own.get(k, 0) + dict(other).get(k, 0) for k in {*own, *dict(other)}}
        assert mean == pytest.approx({k: v / 2 for k, v in sums.items() if v >= 0.5}, abs=1e-4)
    counts = [
        len(split_words(run("c.src", "c.tgt", "--average", "a", "--average", "b", *flags).stdout))
        for flags in (FEW_WRONG, [], FEW_MISSING)
    ]
    assert counts == sorted(counts) and counts[0] < counts[2]


def test_a_model_averaged_with_itself_changes_no_score(run, work):
    flags = "c.src", "c.tgt", "--format", "scored"
    run(*flags, "--threshold", "0.05", "-o", "own")
    mean = out(run(*flags, "--average", "own", "--threshold", "0.3"))
    alone = out(run(*flags, "--threshold", "0.3"))
    assert mean == alone and any(alone)


def test_the_average_of_parts_is_that_of_the_whole(run, work, others):
    flags = ("c.src", "c.tgt", "--average", "a", "--average", "b", "--threshold", "0.2")
    whole = run(*flags).stdout
    assert whole == run(*flags, "--chunk-pairs", 2, "--threads", 2).stdout
    parts = (run(*flags, "--shard", f"{n}/3").stdout for n in (1, 2, 3))
    assert "".join(parts) == whole
    turned = run("c.src", "c.tgt", "--average", "a", "--reverse", "--format", "jsonl").stdout
    assert "probabilities" not in turned  # the model's calibration does not hold for means
    found = run(*flags, "--signature", "--html", "page.html", "--report", "r.json")
    assert "|avg:2@0.2" in found.stderr and "|avg:2@0.2" in Path("r.json").read_text()
    assert "|avg:2@0.2" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0-0\n\n\n", "a has no line 4, where the text goes on"),
        ("\n" * 9, "a has more lines than the text, which ends after 7"),
        ("\n\n0-2\n\n\n\n\n", "a line 3: the link 0-2 is outside its pair of 2 and 2 words"),
        ("0-0:2\n\n\n\n\n\n\n", "a line 1: the score 2 of 0-0 is not from 0 to 1"),
        ("0=0\n\n\n\n\n\n\n", "a line 1"),
    ],
)
def test_links_of_another_text_are_noticed(run, work, content, message):
    Path("a").write_text(content)
    found = run("c.src", "c.tgt", "--average", "a", "-o", "out", "--chunk-pairs", 2, code=2)
    assert message in found.stderr and found.stderr.count("\n") == 1
    assert not Path("out").exists()


def test_what_cannot_be_averaged(run, work, others):
    for flags, message in [
        (("--forward",), "--average is for soft links only; leave it or forward out"),
        (("--average", "./a"), "--average: a file is given twice: a, ./a"),
        (("--average", "."), "--average .: there is no such file"),
        (("--train-on-input", "--average", "none", "-m", "x"), "none: there is no such file"),
        (("--average", "none"), "--average none: there is no such file"),
        (("-o", "a"), "a is an input and would be overwritten"),
        (("--ray", "-o", "out"), "--average is not for --ray"),
    ]:
        assert message in run("c.src", "c.tgt", "--average", "a", *flags, code=2).stderr


def test_pairs_before_a_broken_line_of_links_are_aligned(run, work, wanted):
    Path("a").write_bytes(b"\n\n\n\xff\n\n\n\n")
    flags = ("--average", "a", "--threshold", "0.05")
    assert len(out(run("c.src", "c.tgt", *flags, code=2))) == 3


def test_pairs_that_are_too_long_have_no_links_by_others_either(run, work, monkeypatch):
    monkeypatch.setattr("mx_align.engine.align.batching.MAX_PIECES", 5)
    Path("a").write_text("0-0\n\n0-0\n\n\n\n0-0\n")
    links = out(run("c.src", "c.tgt", "--average", "a"))
    assert links[0] == "" and "0-0" in links[2] and "0-0" in links[6]


def test_shards_averaged_with_different_links_are_not_joined(run, work, others):
    from ....engine.commands.merge import main

    for n, name in ((1, "a"), (2, "b")):
        run("c.src", "c.tgt", "--average", name, "--shard", f"{n}/2", "-o", f"o.{n}")
    found = CliRunner().invoke(main, ["o.1", "o.2", "-o", "joined"])
    assert found.exit_code == 2 and "other files given with --average" in found.stderr


def test_the_page_of_an_average_shows_its_links(run, work, others):
    """Not all cells of the model's matrix."""
    run("c.src", "c.tgt", "--average", "a", "--html", "page.html")
    page = Path("page.html").read_text()
    assert '"matrix": false' in page.replace('"matrix":false', '"matrix": false')


def test_changed_links_of_others_between_runs(run, work, others):
    """A run that goes on must not mix two files."""
    Path("b").write_text("0-0" + "\n" * 5)  # too short: what was done before stays
    run("c.src", "c.tgt", "--average", "b", "-o", "out", "--chunk-pairs", 2, code=2)
    Path("b").write_text("\n0-0" + "\n" * 4)
    found = run("c.src", "c.tgt", "--average", "b", "-o", "out", "--chunk-pairs", 2, code=2)
    assert "the input has changed since the first run" in found.stderr
    Path("b").write_text("\n" * 7)
    found = run("c.src", "c.tgt", "--average", "b", "-o", "out", "--chunk-pairs", 2, code=2)
    assert "was begun with other files given with --average; repeat" in found.stderr


def test_a_first_try_without_result_is_not_in_the_way(run, work, others):
    Path("short").write_text("0-0\n")
    run("c.src", "c.tgt", "--average", "short", "-o", "out", code=2)
    assert Path("out.partial").exists()
    run("c.src", "c.tgt", "--average", "a", "-o", "out")
    assert Path("out").read_text() == run("c.src", "c.tgt", "--average", "a").stdout


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("form", ["pharaoh", "a3"])
def test_shards_joined_are_the_whole(run, work, n, form):
    whole = run("c.src", "c.tgt", "--format", form).stdout
    parts = [
        run("c.src", "c.tgt", "--format", form, "--shard", f"{i}/{n}").stdout
        for i in range(1, n + 1)
    ]
    assert "".join(parts) == whole


def test_shards_that_cannot_be(run, work):
    assert "needs files" in run("-", "c.tgt", "--shard", "1/2", stdin=b"a\n", code=2).stderr
    for wrong in ("0/2", "3/2", "1", "1/0", "a/b"):
        assert "like 2/4" in run("c.src", "c.tgt", "--shard", wrong, code=2).stderr


def test_report_and_signature(run, work):
    result = run("c.src", "c.tgt", "--report", "r.json", "--signature")
    report = json.loads(Path("r.json").read_text())
    assert report["pairs"] == 7 and report["empty"] == 1
    assert report["signature"] in result.stderr
    assert report["links"] == sum(len(split_words(line)) for line in out(result))
    assert run("c.src", "c.tgt", "--quiet").stderr == ""


# ---- mistakes ----


def test_mistakes_have_one_clear_line(run, work, bundle):
    for arguments, message in [
        (("no.src", "c.tgt"), "no.src does not exist"),
        (("c.src", "c.tgt", "-o", "c.src"), "is an input and would be overwritten"),
        (("c.src", "c.tgt", "-o", "o", "--scores", "o"), "would be written twice"),
        (("c.src", "c.tgt", "-o", "."), "is a folder"),
        (("c.src", "c.tgt", "-o", "no/out"), "its folder does not exist"),
        (("c.src", "c.tgt", "-o", "/dev/null"), "no regular file"),
        (("c.src", "c.tgt", "--backend", "trt"), "TensorRT"),
        (("-", "-"), "standard input holds only one"),
    ]:
        lines = run(*arguments, code=2).stderr.split("\n")
        assert message in lines[0] and lines[0].startswith("mx-align: ") and lines[1:] == [""]
    assert "no model bundle" in run("c.src", "c.tgt", model="no.mx", code=2).stderr
    assert Path("c.src").read_text().startswith("die Katze")


def test_changed_input_options_or_model_between_runs(run, work, tmp_path_factory):
    Path("c.tgt").write_text("".join(f"{line}\n" for line in TGT[:6]), "utf-8")
    begin = ("c.src", "c.tgt", "-o", "out", "--chunk-pairs", 2)
    run(*begin, code=2)  # six pairs are finished
    assert "one-based False, now True" in run(*begin, "--one-based", code=2).stderr
    other = write_toy(tmp_path_factory.mktemp("other") / "toy.mx", seed=2).path
    assert "was begun with" in run(*begin, model=other, code=2).stderr
    Path("c.src").write_text("".join(f"{line}\n" for line in ["new", *SRC[1:]]), "utf-8")
    changed = run(*begin, code=2).stderr
    assert "the input has changed since the first run, at lines 1 to 2" in changed
    Path("c.tgt").write_text("".join(f"{line}\n" for line in TGT), "utf-8")
    run(*begin, "--restart")
    assert len(Path("out").read_text().split("\n")) == 8
    assert not Path("out.partial").exists()


# ---- the process ----


def start(*arguments, **options) -> subprocess.Popen:
    line = [*COMMAND, *map(str, arguments), "--method", "model"]
    return subprocess.Popen(line, stderr=subprocess.PIPE, **options)


def test_closed_pipe(bundle, work):
    Path("big").write_text("the cat ||| die Katze\n" * 20000)
    line = ("big", "-m", bundle, "--langs", "de-en", "--chunk-pairs", 50)
    with start(*line, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(bundle, work, run):
    read, write = os.pipe()
    line = ("-", "-m", bundle, "--langs", "de-en", "-o", "out", "--chunk-pairs", 2)
    with start(*line, stdin=read) as process:
        os.close(read)
        os.write(write, b"the cat ||| die Katze\n" * 5)
        for _ in range(200):
            journal = Path("out.partial/journal")
            if journal.exists() and journal.read_bytes().count(b'"pairs"') >= 2:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)  # while it waits for more input
        assert process.wait(20) == 130
        message = process.stderr.read().decode()
    os.close(write)
    assert message == "mx-align: interrupted; the same command goes on from there\n"
    stdin = b"the cat ||| die Katze\n" * 5
    result = run("-", "-o", "out", "--chunk-pairs", 2, stdin=stdin)
    assert "(4 of them by an earlier run)" in result.stderr
    assert Path("out").read_text().count("\n") == 5


@pytest.mark.slow
def test_full_disk_keeps_what_is_finished(bundle, work, run):
    Path("big").write_text("the cat sat ||| die Katze saß\n" * 3000, "utf-8")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    arguments = ("big", "-m", bundle, "--langs", "de-en", "-o", "out", "--chunk-pairs", 100)
    with start(*arguments, preexec_fn=small_files) as process:
        assert process.wait(60) == 2
        message = process.stderr.read().decode()
    assert message.startswith("mx-align: cannot write out") and message.count("\n") == 1
    result = run("big", "-o", "out", "--chunk-pairs", 100)
    assert "of them by an earlier run" in result.stderr
    assert Path("out").read_bytes() == run("big").stdout_bytes
    with start("big", "-m", bundle, stdout=open("/dev/full", "wb")) as process:
        assert process.wait(60) == 2
        assert b"No space left on device" in process.stderr.read()


def test_help_is_quick_and_loads_nothing_heavy():
    code = "import sys, mx_align.engine.commands.align; print(*sorted(sys.modules))"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "onnxruntime", "sentencepiece", "torch"} & set(modules)
    helped = CliRunner().invoke(cli.main, ["--help"])
    assert helped.exit_code == 0
    flags = [param for param in cli.main.params if param.param_type_name == "option"]
    assert all(flag.opts[-1] in helped.output for flag in flags)
