"""mx-align --input-format jsonl: JSON lines in a pipe, as people run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ....engine.commands import align as cli

JSONL = ["--langs", "de-en", "--input-format", "jsonl", "--format", "jsonl"]


def run(*arguments: str, text: str = "", code: int = 0):
    done = CliRunner().invoke(cli.main, [*arguments], input=text)
    assert done.exit_code == code, done.output
    return done


def test_lines_are_answered_with_their_ids():
    text = '{"id": "a", "src": "das\\tHaus", "tgt": "the house"}\n{"src": ["ja"], "tgt": "yes"}\n'
    rows = [json.loads(line) for line in run(*JSONL, "-", text=text).stdout.splitlines()]
    assert rows[0]["id"] == "a" and rows[0]["links"] == [[0, 0], [1, 1]]
    assert rows[1]["links"] == [[0, 0]] and "id" not in rows[1]


def test_answers_are_those_of_the_text(tmp_path, monkeypatch):
    """The same objects as for two files, but for the id."""
    monkeypatch.chdir(tmp_path)
    pairs = [("das Haus ist rot .", "the house is red ."), ("", "x"), ("ja ja", "yes")]
    for name, side in (("s", 0), ("t", 1)):
        Path(name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    lines = "".join(json.dumps({"src": s, "tgt": t}) + "\n" for s, t in pairs)
    Path("p.jsonl").write_text(lines)
    files = run("s", "t", "--langs", "de-en", "--format", "jsonl", "--tokens", "words")
    assert run(*JSONL, "p.jsonl", "--tokens", "words").stdout == files.stdout
    turned = run(*JSONL, "p.jsonl", "--reverse", "--one-based").stdout.splitlines()
    assert json.loads(turned[0])["links"][0] == [1, 1]


def test_wrong_lines_keep_their_places():
    done = run(*JSONL, "-", text='das ||| the\n{"src": "das", "tgt": "the"}\n', code=2)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert "line 1: not JSON" in rows[0]["error"] and rows[1]["links"] == [[0, 0]]
    assert "1 lines were no pairs" in done.stderr


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        (["--input-format", "jsonl"], "add --format jsonl"),
        ([*JSONL, "a", "b"], "leave TGT out"),
        ([*JSONL, "-", "-o", "x"], "`> OUT` instead of -o OUT"),
        ([*JSONL, "-", "--shard", "1/2"], "--shard is not for"),
        ([*JSONL, "nowhere"], "there is no file nowhere"),
        ([*JSONL, "-", "--method", "statistics"], "--method is not for"),
        (["--langs", "fi-sw", *JSONL[2:], "-"], "no text to learn statistics from"),
    ],
)
def test_what_it_cannot_do_is_told(flags, wrong):
    assert wrong in run(*flags, code=2).stderr


@pytest.mark.slow
def test_a_line_is_answered_before_the_pipe_ends():
    command = [sys.executable, "-m", "mx_align.engine.commands.align", *JSONL, "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        for number in range(2):
            process.stdin.write(b'{"id": %d, "src": "das", "tgt": "the"}\n' % number)
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait(30) == 0
