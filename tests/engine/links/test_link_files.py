"""Links as they are read: formats told apart, mistakes named with their line, lengths fitted to the
text."""

from pathlib import Path

import pytest

from ....engine.errors import InputError
from ....engine.links.link_files import (
    EMPTY_GOLD,
    Gold,
    LinkFile,
    LinkSource,
    detect_format,
    parse_links,
    read_link_file,
)


def gold(sure, possible=()):
    return Gold(frozenset(sure), frozenset(possible))


# ---- a line ----


def test_pharaoh_is_sorted_and_each_link_once():
    assert parse_links("3-1 0-0  1-2\t0-0").links == [(0, 0, 1.0), (1, 2, 1.0), (3, 1, 1.0)]


@pytest.mark.parametrize("line", ["", " ", "\t", "\r"])
def test_a_line_without_words_has_no_links(line):
    assert parse_links(line).links == []
    assert parse_links(line).gold == EMPTY_GOLD


def test_talp_has_sure_and_both_marks_of_possible():
    found = parse_links("0-0 1p2 2?3 10-11\r").gold
    assert found.sure == {(0, 0), (10, 11)}
    assert found.possible == {(0, 0), (1, 2), (2, 3), (10, 11)}


@pytest.mark.parametrize("line", ["1-1 1p1", "1p1 1-1"])
def test_a_link_both_sure_and_possible_is_sure(line):
    assert parse_links(line).gold.sure == {(1, 1)}


def test_gold_makes_sure_links_possible():
    assert gold([(0, 0)], [(1, 1)]).possible == {(0, 0), (1, 1)}


def test_one_based_lines_are_shifted():
    assert parse_links("1-1 2p4", one_based=True).gold == gold([(0, 0)], [(1, 3)])


@pytest.mark.parametrize("line", ["0-4", "4-0"])
def test_index_zero_in_a_one_based_line_is_an_error(line):
    with pytest.raises(InputError, match=rf"g line 3: '{line}' has index 0.*0-based"):
        parse_links(line, one_based=True, where="g line 3")


@pytest.mark.parametrize(
    "word", ["1", "1-", "-1", "1--1", "1-2-3", "a-b", "1_0-2", "1x2", "١-٢", "1-2:", "1-2:x", "|||"]
)
def test_a_word_that_is_no_link_is_named_with_its_place(word):
    with pytest.raises(InputError, match=r"g line 7: .* is not a link; wanted i-j"):
        parse_links(f"0-0 {word}", where="g line 7")


def test_a_huge_index_is_an_error_and_shown_cut():
    with pytest.raises(InputError, match=r"\.\.\.' is not a link"):
        parse_links("9" * 5000 + "-1")


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\x0b", "\x85"])
def test_only_spaces_and_tabs_separate_links(space):
    with pytest.raises(InputError, match="is not a link"):
        parse_links(f"0-0{space}1-1")


def test_scored_links_keep_their_first_and_highest_score():
    line = "2-1:.5 0-0:0.25:0.9 0-0:0.75 1-1 3-3:1e-05"
    found = parse_links(line)
    assert found.links == [(0, 0, 0.75), (1, 1, 1.0), (2, 1, 0.5), (3, 3, 1e-5)]
    assert found.scored and not parse_links("0-0").scored


# ---- a file ----

NAACL = ["0001 1 1 S 0.9", "0001 2 3 P", "", "0003 1 2", "3 4 1 0.5", "3 2 2 p 1"]


@pytest.fixture
def parse(tmp_path, monkeypatch):
    """Read lines as the file `g`."""
    monkeypatch.chdir(tmp_path)

    def parse_lines(lines: list[str], **how) -> LinkFile:
        Path("g").write_text("".join(f"{line}\n" for line in lines))
        return read_link_file("g", **how)

    return parse_lines


def test_naacl_sentences_that_are_missing_are_empty(parse):
    found = parse(NAACL)
    assert found.format == "naacl"
    assert found.sentences == [
        gold([(0, 0)], [(1, 2)]),
        EMPTY_GOLD,
        gold([(0, 1), (3, 0)], [(1, 1)]),
    ]


def test_naacl_position_zero_is_null_and_links_nothing(parse):
    assert parse(["1 0 2 S", "1 2 0 S", "1 1 1 S"]).sentences == [gold([(0, 0)])]
    assert parse(["4 0 2 S"]).sentences == [EMPTY_GOLD] * 4


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
def test_naacl_mistakes_are_named_with_their_line(parse, line, message):
    with pytest.raises(InputError, match=f"g line 2: .*{message}"):
        parse(["1 1 1 S", line])


def test_a_talp_mistake_is_named_with_file_and_line(parse):
    with pytest.raises(InputError, match="g line 2: '5' is not a link"):
        parse(["0-0", "5"])


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
    assert detect_format(lines) == format


def test_reverse_swaps_the_sides_of_both_formats(parse):
    assert parse(["0-1 2p3"], reverse=True).sentences == [gold([(1, 0)], [(3, 2)])]
    assert parse(["1 1 2 S"], reverse=True).sentences == [gold([(1, 0)])]


def test_links_of_a_file_are_all_its_links_sorted(parse):
    assert parse(["2p1 0-0", ""]).all_links() == [[(0, 0), (2, 1)], []]


def test_a_naacl_file_grows_to_the_length_of_the_others_and_a_line_file_does_not(parse):
    assert parse(NAACL).fit_length(5, "t").sentences[3:] == [EMPTY_GOLD, EMPTY_GOLD]
    with pytest.raises(InputError, match="g names sentence 3, but t has 2 sentences"):
        parse(NAACL).fit_length(2, "t")
    with pytest.raises(InputError, match="g has 1 lines, but t has 2 sentences"):
        LinkFile("g", "talp", [EMPTY_GOLD]).fit_length(2, "t")


# ---- a line at a time ----


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_rows_have_links_scores_and_gold(tmp_path):
    path = write(tmp_path / "links", "1-0:0.5 0p2\n\n")
    first, second = LinkSource(path).open_rows()[1]
    assert first.scored and first.links == [(0, 2, 1.0), (1, 0, 0.5)]
    assert first.gold == gold([(1, 0)], [(0, 2)])
    assert not second.scored and second.links == []


def test_scores_of_another_file_replace_those_of_the_line(tmp_path):
    path, scores = write(tmp_path / "a", "0-1 1-0:0.9\n"), write(tmp_path / "b", "0.25 .5\n")
    (row,) = LinkSource(path, reverse=True, scores=scores).open_rows()[1]
    assert row.scored and row.links == [(0, 1, 0.5), (1, 0, 0.25)]


def test_selected_rows_are_checked_and_naacl_files_may_end_early(tmp_path):
    naacl = LinkSource(write(tmp_path / "n", "2 1 1 S\n"))
    found = naacl.select_rows({2: (1, 1), 3: (1, 1)}, 5, "text")
    assert [row.gold for row in found] == [gold([(0, 0)]), EMPTY_GOLD]
    with pytest.raises(InputError, match=r"line 2: link 0-0 .* lies outside the pair"):
        naacl.select_rows({2: (0, 1)}, 5, "text")
    with pytest.raises(InputError, match="has 2 lines or more, but text has 1"):
        LinkSource(write(tmp_path / "t", "0-0\n0-0\n")).select_rows({1: (1, 1)}, 1, "text")
