"""A stranger's text through mx-align: any language, no model, files, pipes, shards."""

import gzip
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ....engine.aligner import Aligner
from ....engine.commands import align as cli
from ....engine.errors import NoModelError
from ...support.made_up_language import make_corpus, measure_f1

N_PAIRS = 300


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(N_PAIRS, 3)


@pytest.fixture
def work(tmp_path, monkeypatch, corpus) -> Path:
    monkeypatch.chdir(tmp_path)
    src, tgt, _ = corpus
    Path("bible.sw").write_text("".join(" ".join(words) + "\n" for words in src))
    Path("bible.xh").write_text("".join(" ".join(words) + "\n" for words in tgt))
    return tmp_path


def run(*arguments, stdin=b"", code=0):
    result = CliRunner().invoke(cli.main, list(map(str, arguments)), input=stdin)
    assert result.exit_code == code, result.output
    return result


def parse(text: str) -> list[set[tuple[int, int]]]:
    lines = text.split("\n")[:-1]
    return [{tuple(map(int, link.split("-"))) for link in line.split()} for line in lines]


@pytest.fixture
def wanted(work) -> str:
    return run("bible.sw", "bible.xh").stdout


def test_a_language_without_a_model_gets_good_links_and_one_line(work, corpus):
    result = run("bible.sw", "bible.xh")
    assert measure_f1(parse(result.stdout), corpus[2]) > 0.95
    said = result.stderr.split("\n")
    assert said[0] == (
        "mx-align: using statistics learned from these 300 pairs, as no model knows sw-xh"
    )
    assert len(said) == 3 and " pairs in " in said[1]


def test_upper_case_words_are_compared_in_lower_case(work, corpus):
    Path("bible.xh").write_text(Path("bible.xh").read_text().title())
    assert measure_f1(parse(run("bible.sw", "bible.xh").stdout), corpus[2]) > 0.95


def test_every_way_to_give_the_text_gives_the_same_links(work, wanted):
    for name in ("bible.sw", "bible.xh"):
        Path(name + ".gz").write_bytes(gzip.compress(Path(name).read_bytes()))
    assert run("bible.sw.gz", "bible.xh.gz").stdout == wanted
    rows = zip(
        *(Path(f"bible.{x}").read_text().split("\n")[:-1] for x in ("sw", "xh")), strict=True
    )
    table = "".join(f"{a}\t{b}\n" for a, b in rows).encode()
    Path("pairs.tsv").write_bytes(table)
    assert run("pairs.tsv", "--langs", "swahili-xho").stdout == wanted
    assert run("-", "--langs", "swa-xh", stdin=table).stdout == wanted
    assert run("-", "bible.xh", "--langs", "sw_XH", stdin=Path("bible.sw").read_bytes())
    assert run("bible.sw", "bible.xh", "--method", "statistics").stdout == wanted


def test_shards_use_the_statistics_of_the_whole(work, wanted):
    parts = [run("bible.sw", "bible.xh", "--shard", f"{n}/3").stdout for n in (1, 2, 3)]
    assert "".join(parts) == wanted


def test_an_interrupted_run_goes_on_with_the_same_statistics(work, wanted, monkeypatch):
    from ....engine.jobs import chunk_output
    from ....engine.jobs.output_files import OutputFiles

    append, done = OutputFiles.append_chunk, []

    def fail_later(self, *arguments):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(append(self, *arguments))

    monkeypatch.setattr(chunk_output.OutputFiles, "append_chunk", fail_later)
    line = ("bible.sw", "bible.xh", "-o", "out", "--chunk-pairs", 100)
    run(*line, code=130)
    monkeypatch.setattr(chunk_output.OutputFiles, "append_chunk", append)
    assert "(200 of them by an earlier run)" in run(*line).stderr
    assert Path("out").read_text() == wanted


def test_all_outputs(work, wanted):
    line = ("bible.sw", "bible.xh", "-o", "out", "--scores", "scores", "--report", "r.json")
    run(*line, "--html", "page.html", "--write-tokenized", "tok")
    assert Path("out").read_text() == wanted
    assert Path("tok.xh" if Path("tok.xh").exists() else "tok.tgt").read_text().count("\n") == 300
    values = [float(x) for x in Path("scores").read_text().split()]
    assert len(values) == sum(map(len, parse(wanted))) and all(0 < x <= 1 for x in values)
    report = json.loads(Path("r.json").read_text())
    assert report["pairs"] == 300 and report["model"] is None
    assert "statistics:300#" in report["signature"]
    assert "bible.sw · bible.xh · statistics" in Path("page.html").read_text("utf-8")
    rows = [
        json.loads(x) for x in run("bible.sw", "bible.xh", "--format", "jsonl").stdout.splitlines()
    ]
    assert all(row["probabilities"] == row["scores"] for row in rows)
    assert all(len(row["src_null"]) == len(row["src"]) for row in rows)
    assert all(len(row["tgt_null"]) == len(row["tgt"]) for row in rows)


def test_directions_of_statistics_and_their_joins(work):
    def links(*flags):
        return parse(run("bible.sw", "bible.xh", *flags).stdout)

    fwd, bwd = links("--forward"), links("--backward")
    assert all(len({j for _, j in pair}) == len(pair) for pair in fwd)
    joined = links("--symmetrize", "intersect")
    assert joined == [a & b for a, b in zip(fwd, bwd, strict=True)]


def test_thresholds_take_links_away(work):
    counts = [
        sum(map(len, parse(run("bible.sw", "bible.xh", *flags).stdout)))
        for flags in (["--optimize-for", "recall"], [], ["--optimize-for", "precision"])
    ]
    assert counts == sorted(counts, reverse=True) and counts[2] > 0


def test_very_few_pairs_are_aligned_with_a_warning(work):
    result = run("-", "--langs", "sw-xh", stdin=b"a b ||| c d\n")
    assert result.stdout.count("\n") == 1
    assert "this 1 pair" in result.stderr and "warning: that is very little" in result.stderr
    empty = run("-", "--langs", "sw-xh", stdin=b"||| a\nb |||\n")
    assert empty.stdout == "\n\n"


def test_a_model_wanted_but_not_there(work):
    for method in ("model", "both"):
        message = run("bible.sw", "bible.xh", "--method", method, code=2).stderr
        assert "there is no model for sw-xh" in message
    message = run("bible.sw", "bible.xh", "--langs", "swahilli-xh", code=2).stderr
    assert "did you mean swahili" in message


def test_a_model_and_statistics_are_joined(work):
    src, tgt = (Path(__file__).parents[2] / "data" / f"sample.{x}" for x in ("en", "fr"))
    text = [path.read_text("utf-8") for path in (src, tgt)]
    for name, lines in zip(("news.en", "news.fr"), text, strict=True):
        Path(name).write_text(lines * (400 // lines.count("\n") + 1), "utf-8")
    result = run("news.en", "news.fr", "--format", "scored")
    assert re.search(
        r"using the model \S+ and statistics learned from these \d+ pairs", result.stderr
    )
    few = run("news.en", "news.fr", "--method", "both", "--signature")
    assert re.search(r"model:.*\|statistics:\d+#.*fit:", few.stderr)


def test_the_same_door_in_python(work, wanted):
    aligner = Aligner.load(langs="swahili-xhosa")
    summary = aligner.align_files("bible.sw", "bible.xh", "out")
    assert Path("out").read_text() == wanted and "statistics:300" in summary.signatures[0]
    with pytest.raises(NoModelError, match="no model for swahili-xhosa"):
        aligner.align_pair("a", "b")


def test_sentence_scores_tell_translations_by_side(work):
    for name in ("sw", "xh"):
        lines = Path(f"bible.{name}").read_text().split("\n")[:-1]
        if name == "xh":
            lines[:50] = reversed(lines[:50])  # no translations
            lines[50:100] = [" ".join(line.split()[:2]) for line in lines[50:100]]  # cut
        Path(f"bible.{name}").write_text("".join(f"{line}\n" for line in lines))
    line = ("bible.sw", "bible.xh", "-o", "out", "--sentence-scores", "covered")
    run(*line)
    rows = [list(map(float, row.split("\t"))) for row in Path("covered").read_text().splitlines()]
    assert len(rows) == N_PAIRS and all(0 <= x <= 1 for row in rows for x in row)

    def mean(part, side):
        return sum(row[side] for row in part) / len(part)

    assert mean(rows[:50], 0) < 0.5 * mean(rows[100:], 0)
    assert mean(rows[50:100], 0) < 0.7 * mean(rows[50:100], 1)
    run("bible.sw", "bible.xh", "-o", "out2", "--sentence-scores", "turned", "--reverse")
    turned = [list(map(float, row.split("\t"))) for row in Path("turned").read_text().splitlines()]
    assert turned == [row[::-1] for row in rows]
    assert "needs -o" in run("bible.sw", "bible.xh", "--sentence-scores", "x", code=2).stderr
