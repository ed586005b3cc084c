"""Labels carried over links: which words get them, what is lost, round trips."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .....engine.apply.projection.labels import (
    Label,
    format_tags,
    parse_tags,
    project_characters,
    project_labels,
)
from .....engine.apply.projection.ranges import LinkedPair, best_run, find_ranges
from .....engine.errors import InputError


def pair_of(n_src: int, n_tgt: int, links: str) -> LinkedPair:
    found = [tuple(map(int, link.split("-"))) for link in links.split()]
    src, tgt = [f"s{n}" for n in range(n_src)], [f"t{n}" for n in range(n_tgt)]
    return LinkedPair(src, tgt, [(i, j, 1.0) for i, j in found])


@pytest.mark.parametrize("links, policy, wanted", [
    ("0-0 1-2", "best", [(0, 3)]),  # an unlinked word between is taken in
    ("0-0 2-1 1-2", "best", [(0, 1)]),  # a word of somebody else's is not
    ("0-0 2-1 1-2", "cover", [(0, 3)]),
    ("0-0 2-1 1-2", "split", [(0, 1), (2, 3)]),
    ("0-0 1-2", "split", [(0, 3)]),
    ("0-1 1-2 2-1", "best", [(2, 3)]),  # a shared word is worth nothing
    ("2-2", "best", []),
    ("0-0 1-3 1-4 2-1", "best", [(3, 5)]),  # the longer part of a split span
])  # fmt: skip
def test_policies(links, policy, wanted):
    assert find_ranges(pair_of(3, 5, links), [(0, 2)], policy) == [wanted]


def test_best_run():
    assert best_run([0.5, -0.001, 1, -1, 1]) == (0, 3)
    assert best_run([-1, -0.001]) is None
    assert best_run([]) is None


def test_two_spans_share_no_word_unless_they_overlap():
    pair = pair_of(2, 2, "0-0 0-1 1-1 1-0")
    one, other = find_ranges(pair_of(3, 3, "0-0 0-1 1-1 1-2"), [(0, 1), (1, 2)], "cover")
    assert not {j for a, b in one for j in range(a, b)} & {j for a, b in other for j in range(a, b)}
    assert find_ranges(pair, [(0, 2), (0, 2)]) == [[(0, 2)], [(0, 2)]]


def test_a_span_without_links_goes_where_its_words_stand():
    pair = LinkedPair(["in", "PARIS"], ["à", "Paris"], [(0, 0, 1.0)])
    found = project_labels(pair, [Label(1, 2, "LOC")])
    assert found.labels == [Label(1, 2, "LOC")] and not found.lost


def test_lost_labels_are_told():
    found = project_labels(pair_of(2, 2, "0-0"), [Label(0, 1, "A"), Label(1, 2, "B")])
    assert found.labels == [Label(0, 1, "A")] and found.lost == [Label(1, 2, "B")]


@pytest.mark.parametrize("tags, labels", [
    ("O B-A I-A B-A O", [(1, 3), (3, 4)]),
    ("I-A I-A O I-A", [(0, 2), (3, 4)]),
    ("S-A B-A E-A S-A", [(0, 1), (1, 3), (3, 4)]),
])  # fmt: skip
def test_tags_of_every_scheme(tags, labels):
    assert parse_tags(tags.split()) == [Label(a, b, "A") for a, b in labels]


def test_wrong_tags_are_named():
    with pytest.raises(InputError, match=r"x.conll: 'PER' is not a label; wanted O, or B-"):
        parse_tags(["O", "PER"], "x.conll")


@st.composite
def labelled(draw):
    """Draw a number of words and labels of them that do not overlap."""
    n = draw(st.integers(1, 12))
    cuts = sorted(draw(st.sets(st.integers(0, n), max_size=6)))
    names = [draw(st.sampled_from("AB-")) for _ in cuts]
    spans = zip(cuts, cuts[1:], names, strict=False)
    return n, [Label(a, b, name) for a, b, name in spans if name != "-"]


@given(labelled(), st.booleans(), st.sampled_from(["best", "cover", "split"]))
@settings(max_examples=200, deadline=None)
def test_labels_survive_a_copy_of_the_sentence(drawn, bioes, policy):
    n, labels = drawn
    assert parse_tags(format_tags(labels, n, bioes)) == labels
    pair = pair_of(n, n, " ".join(f"{k}-{k}" for k in range(n)))
    assert project_labels(pair, labels, policy).labels == labels


@given(labelled(), st.data())
@settings(max_examples=200, deadline=None)
def test_labels_are_inside_and_apart_or_lost(drawn, data):
    n, labels = drawn
    m = data.draw(st.integers(0, 12))
    places = [(i, j) for i in range(n) for j in range(m)]
    links = data.draw(st.sets(st.sampled_from(places))) if places else set()
    pair = pair_of(n, m, " ".join(f"{i}-{j}" for i, j in links))
    for policy in ("best", "cover", "split"):
        found = project_labels(pair, labels, policy)
        words = [j for label in found.labels for j in range(label.start, label.end)]
        assert len(words) == len(set(words)) and all(0 <= j < m for j in words)
        if policy == "best":
            assert len(found.labels) + len(found.lost) == len(labels)


def test_characters_widen_to_words():
    pair = LinkedPair(["ab", "cd"], ["xyz", "w"], [(0, 1, 1.0), (1, 0, 1.0)])
    spans = [(0, 2), (3, 5)], [(0, 3), (4, 5)]
    found = project_characters(pair, spans, [Label(4, 5, "X"), Label(2, 3, "Y")])
    assert found.labels == [Label(0, 3, "X")] and found.lost == [Label(2, 3, "Y")]
