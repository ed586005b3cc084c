"""Markup carried over links: well nested, nothing lost, never inside a word."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .....engine.apply.projection.annotations import MarkupLine
from .....engine.apply.projection.markup_tree import parse_markup
from .....engine.apply.projection.placement import is_inside_word
from .....engine.apply.projection.ranges import LinkedPair


def carry(line: str, target: str, links: str | None = None) -> tuple[str, list[str]]:
    """Carry markup over; without links, words are linked in their order."""
    item = MarkupLine(line, target, "<" in line)
    n = min(len(item.src_words), len(item.tgt_words))
    found = [(k, k, 1.0) for k in range(n)]
    if links is not None:
        found = [(int(a), int(b), 1.0) for a, b in re.findall(r"(\d+)-(\d+)", links)]
    text, unplaced, _ = item.render(LinkedPair(item.src_words, item.tgt_words, found), "best")
    return text.rstrip("\n"), unplaced


@pytest.mark.parametrize("line, target, links, wanted", [
    ("the <b>red</b> house", "la maison rouge", "0-0 1-2 2-1", "la maison <b>rouge</b>"),
    ("<p>the <b>red</b> house.</p>", "la maison rouge.", "0-0 1-2 2-1 3-3",
     "<p>la maison <b>rouge</b>.</p>"),
    ("the <a href='x>y'><b>red</b> house</a>", "la maison rouge", "0-0 1-2 2-1",
     "la <a href='x>y'>maison <b>rouge</b></a>"),
    ("one<br/>two", "un deux", "0-0 1-1", "un <br/>deux"),
    ("one<br>", "un", "0-0", "un<br>"),
    ("<img src=\"a.png\">one two", "un deux", "0-0 1-1", "<img src=\"a.png\">un deux"),
    ("hit <ph id=\"1\">&lt;b&gt;</ph>it", "tape le", "0-0 1-1",
     "tape <ph id=\"1\">&lt;b&gt;</ph>le"),
    ("<bpt i='1'/>red<ept i='1'/> house", "maison rouge", "0-1 1-0",
     "maison <bpt i='1'/>rouge<ept i='1'/>"),
    ("you have {0} left", "il reste {0}", "0-0 1-1 2-2", "il reste {0}"),
    ("you have {0} left", "vous avez encore", "0-0 1-1 2-2", "vous avez {0} encore"),
    ("un<b>believ</b>able story", "récit incroyable", "0-1 1-0", "récit <b>incroyable</b>"),
    ("<i>a</i> & b", "x < y & z &amp;", "0-0 1-3 2-2", "<i>x</i> &lt; y &amp; z &amp;"),
    ("<!-- note -->yes", "oui", "0-0", "<!-- note -->oui"),
    ("plain & simple < this", "tout & simple < ici", None, "tout & simple < ici"),
    ("<b></b>yes", "oui", "0-0", "<b></b>oui"),
    ("<g id='1'>我们</g>走", "we go", "0-0 1-0 2-1", "<g id='1'>we</g> go"),
])  # fmt: skip
def test_tags_go_with_their_words(line, target, links, wanted):
    assert carry(line, target, links) == (wanted, [])


@pytest.mark.parametrize("line, target, links, wanted, told", [
    ("a <b>red</b> one", "un autre", "0-0 2-1", "un <b></b>autre", ["<b>"]),
    ("a <b>red one", "un rouge", "0-0 1-1", "un <b>rouge", ["<b>"]),
    ("a red</b> one", "un rouge ici", "0-0 1-1 2-2", "un rouge</b> ici", ["</b>"]),
    ("<b>red</b>", "", "", "<b></b>", ["<b>"]),
])  # fmt: skip
def test_what_has_no_place_stays_and_is_told(line, target, links, wanted, told):
    assert carry(line, target, links) == (wanted, told)


@pytest.mark.parametrize("text, place, inside", [
    ("don't", 2, True), ("l'eau", 2, False), ("我们", 1, False), ("ab", 0, False), ("ab", 2, False),
    ("e\u0301a", 1, True), ("카드", 1, True), ("a.b", 1, False),
])  # fmt: skip
def test_inside_a_word(text, place, inside):
    assert is_inside_word(text, place) is inside


WORDS = st.sampled_from(["red", "house", "l'eau", "don't", "我们", "x-y", "3.5", ".", ",", "été"])


@st.composite
def marked_lines(draw, depth=3, joints=("", " ")):
    """Draw well-formed markup around words."""
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.integers(0, 4 if depth else 2))
        if kind <= 2:
            parts.append(draw(WORDS) if kind else draw(st.sampled_from(["<x id='1'/>", "<br/>"])))
        else:
            name = draw(st.sampled_from(["b", "g", "a"]))
            parts.append(f"<{name}>{draw(marked_lines(depth - 1, joints))}</{name}>")
    return draw(st.sampled_from(joints)).join(parts)


def list_tags(line: str) -> list[str]:
    return sorted(re.findall(r"<[^>]*>", line))


@given(marked_lines(), st.lists(WORDS, max_size=8), st.data())
@settings(max_examples=400, deadline=None)
def test_markup_is_whole_well_nested_and_outside_words(line, words, data):
    target = " ".join(words)
    item = MarkupLine(line, target)
    places = [(i, j) for i in range(len(item.src_words)) for j in range(len(item.tgt_words))]
    links = data.draw(st.sets(st.sampled_from(places), max_size=20)) if places else set()
    text, _ = carry(line, target, " ".join(f"{i}-{j}" for i, j in links))
    assert list_tags(text) == list_tags(line)
    ElementTree.fromstring(f"<r>{text}</r>")
    # A tag that stood alone between blanks may bring one of them.
    assert "".join(re.sub("<[^>]*>", "", text).split()) == target.replace(" ", "")
    for found in re.finditer("<[^>]*>", text):
        sides = text[: found.start()], text[found.end() :]
        before, after = (re.sub("<[^>]*>", "", side) for side in sides)
        assert not is_inside_word(before + after, len(before))


@given(marked_lines(joints=(" ",)))
@settings(max_examples=200, deadline=None)
def test_a_copy_of_the_text_gets_the_tags_where_they_were(line):
    """Round trip: with each word linked to itself, every element has its words again."""
    plain = parse_markup(line).text
    text, unplaced = carry(line, plain)
    assert not unplaced

    def list_words(marked: str) -> list[tuple[str, list[str]]]:
        root = ElementTree.fromstring(f"<r>{marked}</r>")
        return sorted(
            (e.tag, "".join(e.itertext()).split())
            for e in root.iter()
            if "".join(e.itertext()).strip()
        )

    assert list_words(text) == list_words(line)
