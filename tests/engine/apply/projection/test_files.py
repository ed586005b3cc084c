"""Files of annotated text: every kind, errors by name, runs that were killed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from .....engine.apply.projection import files
from .....engine.apply.projection.files import project_files
from .....engine.commands.apply.project import main
from .....engine.errors import InputError
from .....engine.types import Links, Pairs


def link_in_order(pairs: Pairs) -> Links:
    """Link the first words of both sides, the second ones, and so on."""
    counts = [min(len(s), len(t)) for s, t in zip(pairs.src, pairs.tgt, strict=True)]
    places = np.concatenate([np.arange(n) for n in counts]) if counts else np.zeros(0, int)
    ones = np.ones(len(places), np.float32)
    return Links(np.cumsum([0, *counts]), places, places, ones, ones > 0)


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return str(tmp_path / name)

    return write


CONLL = "# id 1\nEU\tNNP\tB-ORG\nsays\tVB\tO\n\nParis\tNNP\tB-LOC\n\nyes UH O\n"


def test_conll(write, tmp_path):
    src, tgt = write("a.conll", CONLL), write("b", "UE dit\n\noui\n")
    summary = project_files("conll", src, tgt, str(tmp_path / "out"), finder=link_in_order)
    assert (tmp_path / "out").read_text() == (
        "# id 1\nUE\tB-ORG\ndit\tO\n\n# no words\n\noui\tO\n\n"
    )
    assert (summary.sentences, summary.annotations, summary.unplaced) == (3, 2, 1)


def test_json_lines_keep_their_shape(write, tmp_path):
    row = {"text": "the red house", "label": [[4, 7, "X"]], "id": 7}
    src, tgt = write("a.jsonl", json.dumps(row) + "\n"), write("b", "le rouge toit\n")
    project_files("spans", src, tgt, str(tmp_path / "out"), finder=link_in_order)
    found = json.loads((tmp_path / "out").read_text())
    assert found == {"text": "le rouge toit", "label": [[3, 8, "X"]], "id": 7}


@pytest.mark.parametrize("kind, text, target, said", [
    ("conll", CONLL, "UE dit\n", "the target ends before .*a; it needs a line for each sentence"),
    ("conll", "EU\n", "UE\n", "line 1: 'EU' has one column"),
    ("conll", "EU O\n", "UE\nb\n", "the target goes on after the last sentence"),
    ("spans", "[]\n", "x\n", r"line 1: '\[\]' is not"),
    ("spans", '{"text": "ab", "spans": [[0, 9, "X"]]}\n', "x\n", "span 0 to 9 is not inside"),
    ("markup", "a\nb\n", "a\n", "the target ends after 1 lines"),
    ("markup", "a\n", "a\nb\n", "a ends after 1 lines but the target goes on"),
])  # fmt: skip
def test_mistakes_are_named(write, kind, text, target, said):
    with pytest.raises(InputError, match=said):
        project_files(kind, write("a", text), write("b", target), finder=link_in_order)


def test_a_killed_run_goes_on(write, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 2)
    src = write("a", "".join(f"<b>w{n}</b> x\n" for n in range(7)))
    tgt = write("b", "".join(f"v{n} y\n" for n in range(7)))
    whole, out, report = (str(tmp_path / name) for name in ("whole", "out", "report"))
    project_files("markup", src, tgt, whole, finder=link_in_order)
    calls = []

    def die_later(pairs: Pairs) -> Links:
        calls.append(pairs.first)
        if pairs.first == 4:
            raise KeyboardInterrupt
        return link_in_order(pairs)

    with pytest.raises(KeyboardInterrupt):
        project_files("markup", src, tgt, out, finder=die_later, report=report)
    summary = project_files("markup", src, tgt, out, finder=link_in_order, report=report)
    assert Path(out).read_text() == Path(whole).read_text() and summary.annotations == 7
    assert calls == [0, 2, 4]


def test_the_command_takes_links_of_what_plain_writes(write, tmp_path):
    src, tgt = write("a.html", "the <b>red</b> house.\n"), write("b", "la maison rouge.\n")
    prefix = str(tmp_path / "p")
    assert CliRunner().invoke(main, [src, tgt, "--plain", prefix]).exit_code == 0
    assert Path(prefix + ".src").read_text() == "the red house .\n"
    links = write("links", "0-0 1-2 2-1 3-3\n")
    done = CliRunner().invoke(main, [src, tgt, "--links", links, "-q"])
    assert done.stdout == "la maison <b>rouge</b>.\n"
    wrong = CliRunner().invoke(main, [src, tgt, "--links", links, "--langs", "en-fr"])
    assert wrong.exit_code == 2 and "--links and -m or --langs were given" in wrong.stderr
    short = write("short", "")
    wrong = CliRunner().invoke(main, [src, tgt, "--links", short])
    assert wrong.exit_code == 2 and "ends after 0 lines but the text goes on" in wrong.stderr


def test_without_links_or_model_the_text_is_learned_from(write):
    src = write("a", "the <b>red</b> house\nthe house\nred\n" * 5)
    tgt = write("b", "la maison rouge\nla maison\nrouge\n" * 5)
    done = CliRunner().invoke(main, [src, tgt])
    assert done.stdout.splitlines()[0] == "la maison <b>rouge</b>"
    assert "mx-project: 5 tags in 15 sentences\n" in done.stderr
