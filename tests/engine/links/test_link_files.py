"""Link lines: what is read, what is refused and with which words, and what is written."""

import pytest

from ....engine.errors import InputError
from ....engine.links.link_files import (
    EMPTY,
    Gold,
    LinkFile,
    detect,
    format_naacl,
    format_pharaoh,
    format_scored,
    format_talp,
    parse_file,
    parse_pharaoh,
    parse_scored,
    parse_talp,
)


def gold(sure, possible=()):
    return Gold(frozenset(sure), frozenset(possible))


def test_pharaoh_is_sorted_and_each_link_once():
    assert parse_pharaoh("3-1 0-0  1-2\t0-0") == [(0, 0), (1, 2), (3, 1)]


@pytest.mark.parametrize("line", ["", " ", "\t", "\r"])
def test_a_line_without_words_has_no_links(line):
    assert parse_pharaoh(line) == []
    assert parse_talp(line) == EMPTY


def test_talp_has_sure_and_both_marks_of_possible():
    found = parse_talp("0-0 1p2 2?3 10-11\r")
    assert found.sure == {(0, 0), (10, 11)}
    assert found.possible == {(0, 0), (1, 2), (2, 3), (10, 11)}


@pytest.mark.parametrize("line", ["1-1 1p1", "1p1 1-1"])
def test_a_link_both_sure_and_possible_is_sure(line):
    assert parse_talp(line).sure == {(1, 1)}


def test_gold_makes_sure_links_possible():
    assert gold([(0, 0)], [(1, 1)]).possible == {(0, 0), (1, 1)}


def test_one_based_lines_are_shifted():
    assert parse_pharaoh("1-1 2-4", one_based=True) == [(0, 0), (1, 3)]
    assert parse_talp("1p2", one_based=True).possible == {(0, 1)}


@pytest.mark.parametrize("line", ["0-4", "4-0"])
def test_index_zero_in_a_one_based_line_is_an_error(line):
    with pytest.raises(InputError, match=rf"g line 3: '{line}' has index 0.*0-based"):
        parse_talp(line, one_based=True, where="g line 3")


@pytest.mark.parametrize(
    "word", ["1", "1-", "-1", "1--1", "1-2-3", "a-b", "1_0-2", "1x2", "١-٢", "1-2:", "1-2:x", "|||"]
)
def test_a_word_that_is_no_link_is_named_with_its_place(word):
    with pytest.raises(InputError, match=r"g line 7: .* is not a link; wanted i-j"):
        parse_talp(f"0-0 {word}", where="g line 7")


def test_a_huge_index_is_an_error_and_shown_cut():
    with pytest.raises(InputError, match=r"\.\.\.' is not a link"):
        parse_pharaoh("9" * 5000 + "-1")


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\x0b", "\x85"])
def test_only_spaces_and_tabs_separate_links(space):
    with pytest.raises(InputError, match="is not a link"):
        parse_pharaoh(f"0-0{space}1-1")


def test_scored_links_keep_their_first_and_highest_score():
    line = "2-1:.5 0-0:0.25:0.9 0-0:0.75 1-1 3-3:1e-05"
    assert parse_scored(line) == [(0, 0, 0.75), (1, 1, 1.0), (2, 1, 0.5), (3, 3, 1e-5)]
    assert parse_pharaoh(line) == [(0, 0), (1, 1), (2, 1), (3, 3)]


NAACL = ["0001 1 1 S 0.9", "0001 2 3 P", "", "0003 1 2", "3 4 1 0.5", "3 2 2 p 1"]


def test_naacl_sentences_that_are_missing_are_empty():
    found = parse_file(NAACL, "g")
    assert found.format == "naacl"
    assert found.sentences == [
        gold([(0, 0)], [(1, 2)]),
        EMPTY,
        gold([(0, 1), (3, 0)], [(1, 1)]),
    ]


def test_naacl_position_zero_is_null_and_links_nothing():
    assert parse_file(["1 0 2 S", "1 2 0 S", "1 1 1 S"], "g").sentences == [gold([(0, 0)])]
    assert parse_file(["4 0 2 S"], "g").sentences == [EMPTY] * 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2", "is not a NAACL link; wanted"),
        ("1 2 3 X", "is not a NAACL link; wanted"),
        ("0 1 1 S", "is not a NAACL link; wanted"),
        ("1 1 1 S 0.5 7", "is not a NAACL link; wanted"),
        ("1-1 2-2", "is not a NAACL link; wanted"),
        ("1 0 0 S", "is the file 0-based"),
    ],
)
def test_naacl_mistakes_are_named_with_their_line(line, message):
    with pytest.raises(InputError, match=f"g line 2: .*{message}"):
        parse_file(["1 1 1 S", line], "g")


def test_a_talp_mistake_is_named_with_file_and_line():
    with pytest.raises(InputError, match="g line 2: '5' is not a link"):
        parse_file(["0-0", "5"], "g")


@pytest.mark.parametrize(
    ("lines", "format"),
    [
        ([], "talp"),
        (["", ""], "talp"),
        (["", "0-0 1-1 2-2"], "talp"),
        (["", "0001 1 1"], "naacl"),
        (["0001\t1\t1\tS"], "naacl"),
        (["1 1"], "talp"),
    ],
)
def test_format_is_seen_from_the_first_line_with_words(lines, format):
    assert detect(lines) == format


def test_reverse_swaps_the_sides_of_both_formats():
    assert parse_file(["0-1 2p3"], "g", reverse=True).sentences == [gold([(1, 0)], [(3, 2)])]
    assert parse_file(["1 1 2 S"], "g", reverse=True).sentences == [gold([(1, 0)])]


def test_links_of_a_file_are_all_its_links_sorted():
    assert parse_file(["2p1 0-0", ""], "g").links() == [[(0, 0), (2, 1)], []]


def test_a_naacl_file_grows_to_the_length_of_the_others_and_a_line_file_does_not():
    assert parse_file(NAACL, "g").fit(5, "t").sentences[3:] == [EMPTY, EMPTY]
    with pytest.raises(InputError, match="g names sentence 3, but t has 2 sentences"):
        parse_file(NAACL, "g").fit(2, "t")
    with pytest.raises(InputError, match="g has 1 lines, but t has 2 sentences"):
        LinkFile("g", "talp", [EMPTY]).fit(2, "t")


def test_pharaoh_is_written_in_the_order_given():
    assert format_pharaoh([(1, 2), (0, 0), (300, 5), (5, 300)]) == "1-2 0-0 300-5 5-300"
    assert format_pharaoh(zip([0, 1], [2, 3], strict=True)) == "0-2 1-3"
    assert format_pharaoh([]) == ""


def test_what_is_written_reads_back():
    links = [(i, 1000 - i) for i in range(1000)]
    assert parse_pharaoh(format_pharaoh(links)) == links
    one = gold([(0, 0), (10, 2)], [(3, 4)])
    assert format_talp(one) == "0-0 10-2 3p4"
    assert parse_talp(format_talp(one)) == one
    assert format_naacl(7, one) == ["0007 1 1 S", "0007 4 5 P", "0007 11 3 S"]
    assert parse_file(format_naacl(1, one), "g").sentences == [one]
    scored = [(0, 0, 0.5), (1, 2, 0.0625)]
    assert format_scored(scored) == "0-0:0.5000 1-2:0.0625"
    assert parse_scored(format_scored(scored)) == scored
