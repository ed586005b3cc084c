"""mx-tokenize: a line of words for each line of text."""

import json

import pytest
from click.testing import CliRunner

from ....engine.commands.tokenize import main
from ....engine.text.files import read_lines


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "news.fr"
    path.write_text("L'eau, c'est bien.\n\nIl dit « oui ».\n", "utf-8")
    return str(path)


def run(*args, stdin=None):
    return CliRunner().invoke(main, list(args), input=stdin)


def test_a_line_for_each_line(text):
    done = run(text)
    assert done.exit_code == 0 and done.stderr == ""
    assert done.stdout.split("\n")[:-1] == ["L' eau , c' est bien .", "", "Il dit « oui » ."]
    assert run("-", stdin="It's so.\n").stdout == "It 's so .\n"


def test_the_language_is_given_or_told_by_the_name(text):
    english = run("-", "--lang", "english", stdin="c'est\n")
    german = run("-", "--lang", "deu", stdin="c'est\n")
    assert english.stdout == "c' est\n" and german.stdout == "c'est\n"
    wrong = run(text, "--lang", "germn")
    assert wrong.exit_code == 2 and "did you mean german" in wrong.stderr


def test_places_are_kept(text, tmp_path):
    out, spans = tmp_path / "out.jsonl.gz", tmp_path / "spans"
    assert run(text, "--format", "jsonl", "-o", str(out), "--spans", str(spans)).exit_code == 0
    rows = list(map(json.loads, read_lines(out)))
    lines = list(read_lines(text))
    assert [row["text"] for row in rows] == lines
    for row, line, written in zip(rows, lines, read_lines(spans), strict=True):
        assert [line[start:end] for start, end in row["spans"]] == row["words"]
        assert written == " ".join(f"{start}-{end}" for start, end in row["spans"])


def test_the_text_is_not_written_over(text):
    done = run(text, "-o", text)
    assert done.exit_code == 2 and "is the text or would be written twice" in done.stderr
    assert run(text, "--spans", "-").exit_code == 2


def test_bytes_that_are_no_text(tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(b"good\n\xff\n")
    assert run(str(bad)).exit_code == 2
    assert run(str(bad), "--errors", "replace").stdout == "good\n\ufffd\n"
