"""Pages, reports and figures of alignments, without a browser; `test_page_in_browser` has one."""

import base64
import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ....engine.aligner import Aligner
from ....engine.commands import align as align_cli
from ....engine.commands import view as cli
from ....engine.links.link_files import Gold
from ....engine.types import Links, Pairs
from ....engine.view import corpus_report, page
from ....engine.view.corpus_report import ReportCollector
from ....engine.view.figure import draw_heat_map, draw_links, is_right_to_left
from ....engine.view.page import Page, PairView, build_page
from ...support.bundles import write_toy

HOSTILE = ["</script><script>alert(1)</script>", "<!--", "&amp;", '"', "\u2028", "@DATA@", "\x00"]


def data_of(text: str) -> dict:
    (found,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def unpack(text: str) -> list[int]:
    """Undo the packing of zeros, as the script of the page does."""
    cells, packed = [], iter(base64.b64decode(text))
    for value in packed:
        cells += [value] if value else [0] * next(packed)
    return cells


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy") / "toy.mx").path


@pytest.fixture
def texts(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files = {
        "a.src": "das Haus\n\nThe Cat sat\n",
        "a.tgt": "the house\nthe\ndie Katze\n",
        "a.links": "0-0 1-1\n\n0-0 1p1 2-1\n",
        "b.links": "0-0\n\n0-1\n",
        "a.talp": "0-0 1-1\n\n0-0 1-1 2p1\n",
    }
    for name, text in files.items():
        Path(name).write_text(text, "utf-8")
    return tmp_path


def view(*arguments: str, code: int = 0):
    result = CliRunner().invoke(cli.main, list(arguments))
    assert result.exit_code == code, result.output
    return result


# ---- the page ----


def test_hostile_words_cannot_leave_the_data():
    text = build_page(Page("<b>&", [PairView(1, HOSTILE, HOSTILE, [(0, 0)], 0.5)]))
    assert data_of(text)["pairs"][0]["s"] == HOSTILE
    assert text.count("<script") == 2 and text.count("<!--") == 0
    assert "<title>&lt;b&gt;&amp;</title>" in text


def test_nothing_can_be_loaded_and_only_our_script_runs():
    text = build_page(Page("x", []))
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert set(re.findall("https?://[^\"']*", text)) == {"http://www.w3.org/2000/svg"}
    script = text[text.rindex("<script>") + 8 : text.rindex("</script>")]
    assert page._hash_source(script) in policy


def test_the_slider_begins_with_exactly_the_links():
    """Scores that differ by less than the page can tell stay on their side of the threshold."""
    scores = np.array([[0.2, np.nextafter(np.float32(0.2), np.float32(0))], [0.9, 0.0]], np.float32)
    null = np.zeros(2, np.float32)

    weights = {
        **dict.fromkeys(("scores", "fwd", "bwd"), scores),
        "src_null": null,
        "tgt_null": null,
    }
    pair = PairView(1, ["a", "b"], ["c", "d"], [(0, 0), (1, 0)], 0.5, [0.2, 0.9], weights)
    data = data_of(build_page(Page("x", [pair], threshold=0.2, matrix=True)))
    cells = np.array(unpack(data["pairs"][0]["m"])).reshape(2, 2)
    assert (cells >= data["threshold"]).tolist() == [[True, False], [True, False]]
    assert data["pairs"][0]["l"][2] >= data["threshold"]


def test_a_page_of_a_thousand_pairs_is_small():
    words = [f"word{k}" for k in range(25)]
    cells = np.random.default_rng(1).random((25, 25), np.float32)
    weights = {
        **dict.fromkeys(("scores", "fwd", "bwd"), cells),
        "src_null": cells[0],
        "tgt_null": cells[0],
    }
    pairs = [PairView(n, words, words, [], 0.5, [], weights) for n in range(1000)]
    assert len(build_page(Page("x", pairs, threshold=1.0, matrix=True))) < 4_000_000


@pytest.mark.parametrize("zeros", [0, 1, 2, 254, 255, 256, 600])
def test_matrices_are_packed_without_loss(zeros):
    values = np.array([7, 0, 9, *[0] * zeros, 255, 2, *[0] * zeros], np.uint8)
    packed = page.pack_bytes(values)
    assert unpack(packed) == values.tolist()
    assert len(packed) <= 4 * (8 + 4 * (zeros // 255 + 1)) / 3 + 4


def test_each_import_of_the_script_finds_what_it_names():
    """The modules are laid end to end, so a wrong import would only show in an editor."""
    files = sorted((Path(page.__file__).parent / "web").glob("*.js"))
    texts = {file.name: file.read_text("utf-8") for file in files}
    first, more = re.compile(r"^export const ([\w$]+)", re.M), re.compile(r", (\w+) = layerOf")
    for name, text in texts.items():
        body = re.sub("^import .*\n", "", text, flags=re.M)
        for names, module in re.findall(r'^import \{ (.+) \} from "./(.+)";', text, re.M):
            wanted = set(names.split(", "))
            assert wanted <= {*first.findall(texts[module]), *more.findall(texts[module])}, name
            used = set(re.findall(r"[\w$]+", body))
            assert wanted <= used, (name, wanted - used)


def test_gold_keeps_sure_and_possible_apart():
    gold = Gold(frozenset({(0, 0)}), frozenset({(0, 0), (0, 1)}))
    data = data_of(build_page(Page("x", [PairView(1, ["a"], ["b", "c"], [], 0.0, gold=gold)])))
    assert data["pairs"][0]["gp"] == [0, 0, 1, 0, 1, 0]


# ---- the corpus ----


def chunk(first: int, rows: list[tuple[int, int, list[tuple[int, int, float]]]]):
    flat = [link for _, _, links in rows for link in links]
    table = np.array(flat, float).reshape(-1, 3)
    links = Links(
        np.cumsum([0, *(len(links) for _, _, links in rows)]), table[:, 0].astype(int),
        table[:, 1].astype(int), table[:, 2].astype(np.float32), np.ones(len(flat), bool),
    )  # fmt: skip
    return Pairs(first, [["s"] * n for n, _, _ in rows], [["t"] * n for _, n, _ in rows]), links


ROWS = [
    (2, 2, [(0, 0, 1.0), (0, 1, 0.5)]),
    (0, 3, []),
    (1, 1, []),
    (2, 1, [(0, 0, 0.25), (1, 0, 0.75)]),
]


def test_the_report_counts_by_hand():
    collector = ReportCollector(sample=None)
    collector.add(collector.summarize(*chunk(0, ROWS)))
    report = collector.report()
    assert report["pairs"] == 4
    assert report["links_per_word"]["src"] == {
        "0": 2, "1": 2, "2": 1, "3": 0, "4": 0, "5": 0, "6+": 0,
    }  # fmt: skip
    assert report["links_per_word"]["tgt"]["0"] == 4 and report["unaligned"]["src"] == 0.4
    # Best scores (1 + 0 + 1 + 0.5) / 4; the pair with an empty side is none of the worst.
    assert [(row["line"], row["score"]) for row in report["worst"]] == [
        (3, 0.0), (4, 0.5833), (1, 0.625),
    ]  # fmt: skip
    assert sum(report["link_scores"]["counts"]) == 4
    assert sum(report["pair_scores"]["counts"]) == 3
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize("sample", [0, 2, 3, None])
def test_chunks_do_not_change_what_is_picked(sample, monkeypatch):
    many = ROWS * 5
    whole, parts = ReportCollector(sample), ReportCollector(sample)
    whole.add(whole.summarize(*chunk(0, many)))
    for start in range(0, len(many), 3):
        parts.add(parts.summarize(*chunk(start, many[start : start + 3])))
    assert whole.total.picked == parts.total.picked
    assert whole.report() == parts.report()
    monkeypatch.setattr(corpus_report, "WORST", 0)
    alone = ReportCollector(sample).summarize(*chunk(0, many)).picked
    assert len(alone) == (len(many) if sample is None else sample)


# ---- mx-view ----


def test_a_page_from_link_files(texts):
    result = view("a.src", "a.tgt", "a.links", "--gold", "a.talp", "--compare", "b.links")
    assert "view.html shows 3 of 3 pairs" in result.stderr
    data = data_of(Path("view.html").read_text("utf-8"))
    assert [pair["n"] for pair in data["pairs"]] == [1, 2, 3]
    assert data["pairs"][2]["l"] == [0, 0, -1, 1, 1, -1, 2, 1, -1]
    assert data["pairs"][2]["c"] == [0, 1, -1]
    assert data["names"]["sys"] == "a.links" and data["names"]["cmp"] == "b.links"
    assert data["threshold"] is None and data["report"]["pairs"] == 3


def test_scores_in_the_file_move_with_the_slider(texts):
    Path("s.links").write_text("0-0:0.9 1-1:0.001\n\n\n")
    view("a.src", "a.tgt", "s.links", "--sample", "0")
    data = data_of(Path("view.html").read_text("utf-8"))
    assert data["threshold"] == page.MIN_THRESHOLD
    assert data["pairs"][0]["l"] == [0, 0, 229, 1, 1, page.MIN_THRESHOLD]
    view("a.src", "a.tgt", "s.links", "--ignore-scores")
    assert data_of(Path("view.html").read_text("utf-8"))["threshold"] is None


def test_scores_in_a_file_of_their_own(texts, bundle):
    """What mx-align wrote, also with the target first and counted from 1."""
    model, files = ["-m", str(bundle)], ["-o", "m.links", "--scores", "m.scores"]
    for flags in ([], ["--reverse", "--one-based"]):
        result = CliRunner().invoke(align_cli.main, ["a.src", "a.tgt", *model, *files, *flags])
        assert result.exit_code == 0, result.output
        view("a.src", "a.tgt", "m.links", "--scores", "m.scores", *flags)
        data = data_of(Path("view.html").read_text("utf-8"))
        assert data["threshold"] == page.MIN_THRESHOLD and data["report"]["scored"]
        found = Aligner.load(bundle).align_pair("das Haus", "the house")
        assert len(found) > 1 and len(set(found.scores)) > 1
        wanted = page.quantize_scores(np.round(found.scores, 4)).tolist()
        rows = np.reshape(data["pairs"][0]["l"], (-1, 3)).tolist()
        assert rows == [[*link, score] for link, score in zip(found.links, wanted, strict=True)]


@pytest.mark.parametrize(
    "scores, message",
    [
        ("0.5\n\n0.1 0.2 0.3\n", "s line 1 has 1 scores, but a.links has 2 links"),
        ("0.5 0.5\n\n", "s ends after 2 lines, but a.links goes on"),
        ("0.5 0.5\n\n1 1 1\n\n", "s has 4 lines or more, but a.links has 3"),
        ("0.5 many\n\n1 1 1\n", "s line 1: 'many' is not a score"),
        ("0.5 -2\n\n1 1 1\n", "s line 1: a score is not between 0 and 1"),
    ],
)
def test_scores_that_do_not_fit(texts, scores, message):
    Path("s").write_text(scores)
    result = view("a.src", "a.tgt", "a.links", "--scores", "s", code=2)
    assert message in result.stderr and result.stderr.count("\n") == 1


def test_a_sample_is_small_and_keeps_the_line_numbers(texts):
    for name, line in (("l.src", "a b"), ("l.tgt", "c"), ("l.links", "0-0")):
        Path(name).write_text(f"{line}\n" * 500)
    view("l.src", "l.tgt", "l.links", "--sample", "7", "-o", "l.html")
    data = data_of(Path("l.html").read_text("utf-8"))
    assert 7 <= len(data["pairs"]) <= 27 and data["report"]["pairs"] == 500
    assert len(data["report"]["worst"]) == 20


def test_naacl_gold_may_end_early(texts):
    Path("g.naacl").write_text("1 1 1 S\n1 2 2 P\n")
    view("a.src", "a.tgt", "a.links", "--gold", "g.naacl")
    pairs = data_of(Path("view.html").read_text("utf-8"))["pairs"]
    assert [pair["gp"] for pair in pairs] == [[0, 0, 1, 1, 1, 0], [], []]


def test_a_model_gives_all_layers(texts, bundle):
    view("a.src", "a.tgt", "-m", str(bundle), "--gold", "a.talp")
    data = data_of(Path("view.html").read_text("utf-8"))
    found = Aligner.load(bundle).align_pair("das Haus", "the house")
    first = data["pairs"][0]
    assert {"m", "f", "b", "sn", "tn", "lf", "lb", "gp"} <= set(first)
    cells = np.frombuffer(base64.b64decode(first["m"]), np.uint8).reshape(2, 2)
    assert [tuple(at) for at in np.argwhere(cells >= data["threshold"])] == found.links
    assert "m" not in data["pairs"][1]  # a side is empty


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["a.src", "a.tgt"], "give either LINKS or a model"),
        (["a.src", "a.tgt", "long.links"], "a.src has 3"),
        (["a.src", "a.tgt", "short.links"], "short.links ends after 1 lines"),
        (["a.src", "a.tgt", "out.links"], "out.links line 1: link 5-0 .* outside"),
        (["a.src", "a.tgt", "log.links"], "line 1: a score is not between 0 and 1"),
        (["a.src", "a.tgt", "a.links", "--gold", "short.links"], "short.links ends after 1"),
        (["a.src", "a.tgt", "a.links", "--compare", "out.links"], "out.links line 1"),
        (["a.src", "a.tgt", "a.links", "-o", "a.src"], "would be overwritten"),
        (["a.src", "-", "-"], "more than once"),
        (["a.src", "no.tgt", "a.links"], "no.tgt"),
        (["a.src", "a.tgt", "-m", "x.mx", "--scores", "s"], "--scores cannot go with a model"),
        (["a.src", "a.tgt", "g.naacl", "--scores", "a.links"], "g.naacl is a NAACL file"),
    ],
)
def test_mistakes_are_told_in_one_line(texts, arguments, message):
    Path("long.links").write_text("\n" * 5)
    Path("short.links").write_text("0-0\n")
    Path("out.links").write_text("5-0\n\n\n")
    Path("log.links").write_text("0-0:-3.5\n\n\n")
    Path("g.naacl").write_text("1 1 1 S\n")
    result = view(*arguments, code=2)
    assert re.search(message, result.stderr) and result.stderr.count("\n") == 1
    assert Path("a.src").read_text("utf-8").startswith("das")


# ---- mx-align ----


def test_mx_align_writes_page_and_report(texts, bundle, monkeypatch):
    plain = CliRunner().invoke(align_cli.main, ["a.src", "a.tgt", "-m", str(bundle)])
    flags = ["--html", "a.html", "--html-sample", "2", "--report", "a.json", "-o", "a.out"]
    result = CliRunner().invoke(align_cli.main, ["a.src", "a.tgt", "-m", str(bundle), *flags])
    assert result.exit_code == 0, result.output
    assert Path("a.out").read_text("utf-8") == plain.stdout
    data = data_of(Path("a.html").read_text("utf-8"))
    report = json.loads(Path("a.json").read_text("utf-8"))
    assert data["report"] == report["corpus"] and report["corpus"]["pairs"] == 3
    links = sum(report["corpus"]["link_scores"]["counts"])
    assert links == report["links"] == len(plain.stdout.split())
    assert 2 <= len(data["pairs"]) <= 3


PAIRS = [
    f"{src} {k % 7} ||| {tgt} {k % 5}\n"
    for k, (src, tgt) in enumerate([("The Cat", "die Katze"), ("sat <on>", "saß"), ("", "x")] * 15)
]
LOOK = ["--method", "model", "--chunk-pairs", "8", "--report", "r.json", "--html", "r.html"]


def align(bundle, *arguments, pairs: int = len(PAIRS), code: int = 0):
    line = ["-", "-m", str(bundle), *arguments]
    result = CliRunner().invoke(align_cli.main, line, input="".join(PAIRS[:pairs]).encode())
    assert result.exit_code == code, result.output
    return result


def seen() -> tuple[dict, str]:
    """The report on the corpus, and the page."""
    return json.loads(Path("r.json").read_text())["corpus"], Path("r.html").read_text()


def begin(bundle, *arguments, killed: int = 29) -> None:
    """Align some of the pairs, until the process is killed."""
    command = [
        sys.executable,
        "-m",
        "mx_align.engine.commands.align",
        "-",
        "-m",
        str(bundle),
        *arguments,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        process.stdin.write("".join(PAIRS[:killed]).encode())
        process.stdin.flush()
        journal = Path("out.partial/journal")
        for _ in range(300):
            if journal.exists() and journal.read_bytes().count(b'"pairs"') >= killed // 8:
                break
            time.sleep(0.1)
        process.kill()  # while it waits for more input


@pytest.mark.slow
def test_the_report_of_a_killed_run_is_that_of_all_its_pairs(texts, bundle):
    flags = [*LOOK, "--html-sample", "7", "-o", "out"]
    align(bundle, *flags)
    whole, links = seen(), Path("out").read_bytes()
    assert whole[0]["pairs"] == len(PAIRS)
    for name in ("out", "r.json", "r.html"):
        Path(name).unlink()
    begin(bundle, *flags)
    result = align(bundle, *flags)
    assert "(24 of them by an earlier run)" in result.stderr
    assert seen() == whole and Path("out").read_bytes() == links
    assert not Path("out.partial").exists()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["OutputFiles.finish", "publish_part"])
def test_killed_after_the_last_pair(texts, bundle, monkeypatch, where):
    """The report is written again, also if the links were already on their way to their name."""
    flags = [*LOOK, "-o", "out"]
    align(bundle, *flags)
    whole = seen()

    def killed(*_):
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(f"mx_align.engine.jobs.output_files.{where}", killed)
        assert "killed" in align(bundle, *flags, code=70).stderr
    assert Path("out.partial").exists()
    for name in ("r.json", "r.html"):
        Path(name).unlink()
    assert "by an earlier run" in align(bundle, *flags).stderr
    assert seen() == whole


@pytest.mark.slow
def test_a_run_goes_on_with_another_sample(texts, bundle):
    align(bundle, *LOOK, "--html-sample", "3", "-o", "whole")
    few = seen()
    sampled = [*LOOK, "--html-sample", "5", "-o", "out"]
    begin(bundle, *sampled)
    more = align(bundle, *LOOK, "--html-sample", "6", "-o", "out", code=2)
    assert "was begun with --html-sample 5" in more.stderr
    align(bundle, *LOOK, "--html-sample", "3", "-o", "out")
    assert seen() == few
    begin(bundle, "--method", "model", "--chunk-pairs", "8", "-o", "out")
    result = align(bundle, *sampled, code=2)
    assert "was begun without --report or --html" in result.stderr
    align(bundle, "--method", "model", "--chunk-pairs", "8", "-o", "out")
    assert Path("out").read_bytes() == Path("whole").read_bytes()


@pytest.mark.parametrize("flag", ["--html", "--report"])
def test_mx_align_does_not_write_over_its_input(texts, bundle, flag):
    arguments = ["a.src", "a.tgt", "-m", str(bundle), flag, "a.src"]
    result = CliRunner().invoke(align_cli.main, arguments)
    assert result.exit_code == 2 and "would be overwritten" in result.stderr


def test_heuristics_have_a_page_too(texts, bundle):
    flags = ["--symmetrize", "union", "--html", "a.html"]
    result = CliRunner().invoke(align_cli.main, ["a.src", "a.tgt", "-m", str(bundle), *flags])
    assert result.exit_code == 0, result.output
    data = data_of(Path("a.html").read_text("utf-8"))
    assert data["names"]["sys"] == "union" and data["threshold"] == page.MIN_THRESHOLD
    rows = result.stdout.split("\n")[:-1]
    assert [len(pair["l"]) // 3 for pair in data["pairs"]] == [len(row.split()) for row in rows]


# ---- figures and notebooks ----


def test_figures_are_valid_and_safe():
    src, tgt = ["a<b", "</svg>", "\x01", "&"], ["x", "\ud800", '"']
    for svg in (draw_links(src, tgt, [(0, 1)], [0.5]), draw_heat_map(src, tgt, [[0.5] * 3] * 4)):
        ET.fromstring(svg)
    assert draw_heat_map(["a"], ["b"], [[1.0]], [0.1], [0.2], [(0, 0)]).count("[NULL]") == 4


def test_a_right_to_left_target_is_mirrored():
    assert is_right_to_left(["שלום", "."]) and is_right_to_left(["مرحبا", "OK", "عالم"])
    assert not is_right_to_left(["hello", "."]) and not is_right_to_left([])

    def left(svg: str, column: int) -> float:
        return float(re.findall(r'<rect x="([\d.]+)"', svg)[column])

    plain = draw_heat_map(["a"], ["b", "c"], [[0, 1]])
    assert left(plain, 0) < left(plain, 1)
    mirrored = draw_heat_map(["a"], ["אב", "גד"], [[0, 1]])
    assert left(mirrored, 0) > left(mirrored, 1)
    assert ">\u2067ב-Amazon\u2069</text>" in draw_heat_map(["a"], ["ב-Amazon"], [[0]])


def test_notebooks_show_an_alignment(bundle):
    aligner = Aligner.load(bundle, nulls=True)
    found = aligner.align_pair("das <b> Haus", "the house")
    markup = found._repr_html_()
    assert markup.count("<line") == len(found) and "<script" not in markup
    assert "&lt;b&gt;" in markup and "[NULL]" in markup
    ET.fromstring(markup)
    ET.fromstring(aligner.soft("das Haus", "the house")._repr_html_())
    assert "[NULL]" not in Aligner.load(bundle).align_pair("a", "b")._repr_html_()
    ET.fromstring(aligner.align_pair("", "the house")._repr_html_())
