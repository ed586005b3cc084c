"""mx-eval as its users meet it: tables, TSV, JSON, and one clear line when something is wrong."""

import gzip
import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ....engine.commands.eval import main
from ....engine.version import __version__

GOLD = "0-0 1-1 1p2 2p2\n0-0\n"
LINKS = "0-0 1-2 2-1\n0-0 0-1\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gold").write_text(GOLD)
    (tmp_path / "links").write_text(LINKS)
    (tmp_path / "perfect").write_text("0-0 1-1\n0-0\n")
    return tmp_path


def run(*arguments, stdin=None, code=0):
    result = CliRunner().invoke(main, arguments, input=stdin)
    assert result.exit_code == code, result.output
    return result


def read_json(*arguments, **options):
    return json.loads(run(*arguments, "--json", **options).stdout)


def measures(system):
    return [system[name] for name in ("aer", "precision", "recall", "f1")]


HAND = pytest.approx([3 / 8, 3 / 5, 2 / 3, 12 / 19])


def test_table_has_the_numbers_worked_out_by_hand(folder):
    lines = run("gold", "links", "--bootstrap", "0").stdout.split("\n")
    assert lines[0] == "gold: 2 sentences, 3 sure and 2 possible links"
    assert lines[2].split() == ["links", "37.50", "60.00", "66.67", "63.16", "5"]


def test_table_has_intervals_and_a_comparison_with_the_first_system(folder):
    output = run("gold", "links", "perfect").stdout
    assert "37.50 [" in output
    assert "against links" in output
    assert "-37.50 [" in output
    assert run("gold", "links", "perfect").stdout == output
    assert "against" not in run("gold", "links").stdout


def test_json_has_counts_intervals_and_significance(folder):
    found = read_json("gold", "links", "perfect", "--bootstrap", "200", "--seed", "3")
    assert found["signature"].startswith(f"mx-eval|v:{__version__}|")
    assert found["gold"] == {
        "file": "gold",
        "format": "talp",
        "sentences": 2,
        "sure": 3,
        "possible": 5,
    }
    first, second = found["systems"]
    assert measures(first) == HAND
    assert first["counts"]["links_in_possible"] == 3
    assert first["interval_95"]["aer"] == pytest.approx([1 / 3, 0.4])
    assert "against_first" not in first
    assert second["against_first"]["difference"]["aer"] == pytest.approx(-3 / 8)
    assert 0 < second["against_first"]["p_value"]["aer"] <= 1


def test_per_sentence_rows_add_up(folder):
    header, *rows = run("gold", "links", "--per-sentence").stdout.strip().split("\n")
    rows = [dict(zip(header.split("\t"), row.split("\t"), strict=True)) for row in rows]
    assert [row["sentence"] for row in rows] == ["1", "2"]
    assert [row["aer"] for row in rows] == ["0.400000", "0.333333"]
    assert sum(int(row["links"]) for row in rows) == 5
    system = read_json("gold", "links", "--per-sentence")["systems"][0]
    assert [row["links_in_sure"] for row in system["per_sentence"]] == [1, 1]


def test_stdin_gzip_one_based_naacl_and_reversed_files_give_the_same_numbers(folder):
    (folder / "gold.gz").write_bytes(gzip.compress(GOLD.encode()))
    (folder / "gold1").write_text("1-1 2-2 2?3 3?3\r\n1-1")
    (folder / "naacl").write_text("0001 1 1 S\n0001 2 2 S 1\n1 2 3 P\n1 3 3 P .5\n0002 1 1\n")
    (folder / "links1").write_text("1-1 2-3 3-2\n1-1 1-2\n")
    (folder / "reversed").write_text("0-0 2-1 1-2\n0-0 1-0\n")
    (folder / "links.naacl").write_text("1 1 1\n1 2 3\n1 3 2\n2 1 1\n2 1 2\n")
    for arguments in (
        ("gold.gz", "links"),
        ("gold1", "links", "--gold-one-based"),
        ("naacl", "links"),
        ("naacl", "links.naacl", "--format", "naacl"),
        ("gold", "links1", "--one-based"),
        ("gold", "reversed", "--reverse"),
        ("gold", "links.naacl"),
    ):
        assert measures(read_json(*arguments)["systems"][0]) == HAND, arguments
    assert measures(read_json("gold", "-", stdin=LINKS)["systems"][0]) == HAND


def test_naacl_gold_takes_its_length_from_the_links(folder):
    (folder / "naacl").write_text("0002 1 1 S\n")
    (folder / "three").write_text("\n0-0\n1-1\n")
    found = read_json("naacl", "three")
    assert found["gold"]["sentences"] == 3
    assert found["systems"][0]["precision"] == 0.5


def test_empty_files_are_scored(folder):
    (folder / "empty").write_text("")
    assert measures(read_json("empty", "empty")["systems"][0]) == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("files", "arguments", "message"),
    [
        ({"short": "0-0\n"}, ["gold", "short"], "short has 1 lines, but gold has 2"),
        ({"n": "3 1 1 S\n"}, ["n", "links"], "n names sentence 3, but links has 2 sentences"),
        ({"bad": "0-0\n0-0 1:1\n"}, ["gold", "bad"], "bad line 2: '1:1' is not a link"),
        ({}, ["gold", "links", "--one-based"], "links line 1: '0-0' has index 0"),
        ({}, ["gold", "missing"], "missing"),
        ({"bytes": b"0-0\n\xff\n"}, ["gold", "bytes"], "UTF-8"),
        ({}, ["-", "-"], "more than once"),
        ({"s": "a b\nc\n"}, ["gold", "links", "--src", "s"], "gold sentence 1: link 2-2 .*2 words"),
        ({"t": "a b c\nd\n"}, ["gold", "links", "--tgt", "t"], "links sentence 2: link 0-1"),
        ({"t": "a b c\n"}, ["gold", "links", "--tgt", "t"], "t has 1 lines, but gold has 2"),
    ],
)
def test_mistakes_are_told_in_one_line(folder, files, arguments, message):
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    result = run(*arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("mx-eval: ")
    assert result.stderr.count("\n") == 1
    assert re.search(message, result.stderr)


def test_links_inside_the_text_pass(folder):
    (folder / "s").write_text("a b\tc\nd\n")
    (folder / "t").write_text("a b c\nd\u3000e f\n")
    assert run("gold", "links", "--src", "s", "--tgt", "t").stderr == ""


def test_debug_adds_the_traceback(folder):
    assert "Traceback" in run("gold", "missing", "--debug", code=2).stderr


def test_gold_without_index_zero_gets_a_note_unless_quiet(folder):
    (folder / "gold1").write_text("1-1\n" * 10)
    (folder / "links0").write_text("0-0\n" * 10)
    assert "--gold-one-based" in run("gold1", "links0").stderr
    assert run("gold1", "links0", "--quiet").stderr == ""
    assert run("gold1", "links0", "--gold-one-based").stderr == ""


def test_signature_is_the_last_line(folder):
    output = run("gold", "links", "--signature", "--seed", "7").stdout
    assert output.endswith(f"mx-eval|v:{__version__}|level:set|bootstrap:10000|seed:7\n")


def test_version_and_help():
    assert __version__ in run("--version").stdout
    output = run("--help").stdout
    assert all(title in output for title in ("Input:", "Statistics:", "Output:", "General:"))


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from mx_align.engine.commands.eval import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'sentencepiece', 'onnxruntime') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.endswith("\n[]\n")
