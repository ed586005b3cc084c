"""Link lines: what is read, what is refused and with which words, and what is written."""

import pytest

from ....engine.errors import InputError
from ....engine.links.link_files import (
    EMPTY_GOLD,
    Gold,
    format_links,
    format_scored_links,
    parse_gold,
    parse_links,
    parse_scored_links,
)


def gold(sure, possible=()):
    return Gold(frozenset(sure), frozenset(possible))


def test_pharaoh_is_sorted_and_each_link_once():
    assert parse_links("3-1 0-0  1-2\t0-0") == [(0, 0), (1, 2), (3, 1)]


@pytest.mark.parametrize("line", ["", " ", "\t", "\r"])
def test_a_line_without_words_has_no_links(line):
    assert parse_links(line) == []
    assert parse_gold(line) == EMPTY_GOLD


def test_talp_has_sure_and_both_marks_of_possible():
    found = parse_gold("0-0 1p2 2?3 10-11\r")
    assert found.sure == {(0, 0), (10, 11)}
    assert found.possible == {(0, 0), (1, 2), (2, 3), (10, 11)}


@pytest.mark.parametrize("line", ["1-1 1p1", "1p1 1-1"])
def test_a_link_both_sure_and_possible_is_sure(line):
    assert parse_gold(line).sure == {(1, 1)}


def test_gold_makes_sure_links_possible():
    assert gold([(0, 0)], [(1, 1)]).possible == {(0, 0), (1, 1)}


def test_one_based_lines_are_shifted():
    assert parse_links("1-1 2-4", one_based=True) == [(0, 0), (1, 3)]
    assert parse_gold("1p2", one_based=True).possible == {(0, 1)}


@pytest.mark.parametrize("line", ["0-4", "4-0"])
def test_index_zero_in_a_one_based_line_is_an_error(line):
    with pytest.raises(InputError, match=rf"g line 3: '{line}' has index 0.*0-based"):
        parse_gold(line, one_based=True, where="g line 3")


@pytest.mark.parametrize(
    "word", ["1", "1-", "-1", "1--1", "1-2-3", "a-b", "1_0-2", "1x2", "١-٢", "1-2:", "1-2:x", "|||"]
)
def test_a_word_that_is_no_link_is_named_with_its_place(word):
    with pytest.raises(InputError, match=r"g line 7: .* is not a link; wanted i-j"):
        parse_gold(f"0-0 {word}", where="g line 7")


def test_a_huge_index_is_an_error_and_shown_cut():
    with pytest.raises(InputError, match=r"\.\.\.' is not a link"):
        parse_links("9" * 5000 + "-1")


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\x0b", "\x85"])
def test_only_spaces_and_tabs_separate_links(space):
    with pytest.raises(InputError, match="is not a link"):
        parse_links(f"0-0{space}1-1")


def test_scored_links_keep_their_first_and_highest_score():
    line = "2-1:.5 0-0:0.25:0.9 0-0:0.75 1-1 3-3:1e-05"
    assert parse_scored_links(line) == [(0, 0, 0.75), (1, 1, 1.0), (2, 1, 0.5), (3, 3, 1e-5)]
    assert parse_links(line) == [(0, 0), (1, 1), (2, 1), (3, 3)]


def test_links_are_written_in_the_order_given():
    assert format_links([(1, 2), (0, 0), (300, 5)]) == "1-2 0-0 300-5" and format_links([]) == ""
    assert format_scored_links([(0, 0, 0.5), (1, 2, 0.0625)]) == "0-0:0.5000 1-2:0.0625"


def test_what_is_written_reads_back():
    links = [(i, 1000 - i) for i in range(1000)]
    assert parse_links(format_links(links)) == links
    scored = [(0, 0, 0.5), (1, 2, 0.0625)]
    assert parse_scored_links(format_scored_links(scored)) == scored
