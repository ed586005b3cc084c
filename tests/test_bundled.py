"""The model that ships with the package: found without -m, and it aligns without PyTorch."""

from pathlib import Path

import pytest
from test_boundaries import run_guarded

from mx.engine import Aligner, MxError
from mx.engine.aligner import installed_models

DATA = Path(__file__).parent / "data"


def lines(name: str) -> list[str]:
    return (DATA / name).read_text("utf-8").split("\n")[:-1]


def test_the_sample_is_aligned_without_torch():
    files = [str(DATA / "sample.en"), str(DATA / "sample.fr")]
    code = f"from mx.engine.cli import main; main({files}, prog_name='mx-align')"
    done = run_guarded({"torch", "triton", "mx.trainer", "mx.export"}, code)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split("\n")[:-1]
    src, tgt = lines("sample.en"), lines("sample.fr")
    assert len(found) == len(src) == len(tgt)
    for links, s, t in zip(found, src, tgt, strict=True):
        pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
        assert pairs == sorted(set(pairs))
        assert all(i < len(s.split(" ")) and j < len(t.split(" ")) for i, j in pairs)
        assert bool(pairs) == bool(s and t)
    assert found[0] == "0-0 1-1 2-2 3-3 4-4"  # the house is small . / la maison est petite .


def test_adjectives_change_places():
    aligner = Aligner.load(langs="en-fr")
    links = aligner.align_pair("the black cat sleeps", "le chat noir dort").links
    assert {(0, 0), (1, 2), (2, 1), (3, 3)} <= set(links)


def test_languages_without_a_model_are_named():
    assert list(installed_models()) == ["en-fr"]
    with pytest.raises(MxError, match=r"no model for fi-hu; installed: en-fr"):
        Aligner.load(langs="fi-hu")


def test_lines_of_open_files_are_read_without_their_newline():
    aligner = Aligner.load(langs="en-fr")
    with open(DATA / "sample.en", encoding="utf-8") as src, open(DATA / "sample.fr") as tgt:
        found = list(aligner.align(src, tgt))
    assert [a.links for a in found] == [
        a.links for a in aligner.align(lines("sample.en"), lines("sample.fr"))
    ]
    assert found[0].src == ("the", "house", "is", "small", ".")
