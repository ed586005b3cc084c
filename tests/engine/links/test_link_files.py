"""Link files: formats told apart, mistakes named with their line, lengths fitted to the text."""

from pathlib import Path

import pytest

from ....engine.errors import InputError
from ....engine.links.link_files import LinkFile, LinkSource, detect_format, parse_link_file
from ....engine.links.link_files import EMPTY_GOLD, Gold


def gold(sure, possible=()):
    return Gold(frozenset(sure), frozenset(possible))


NAACL = ["0001 1 1 S 0.9", "0001 2 3 P", "", "0003 1 2", "3 4 1 0.5", "3 2 2 p 1"]


def test_naacl_sentences_that_are_missing_are_empty():
    found = parse_link_file(NAACL, "g")
    assert found.format == "naacl"
    assert found.sentences == [
        gold([(0, 0)], [(1, 2)]),
        EMPTY_GOLD,
        gold([(0, 1), (3, 0)], [(1, 1)]),
    ]


def test_naacl_position_zero_is_null_and_links_nothing():
    assert parse_link_file(["1 0 2 S", "1 2 0 S", "1 1 1 S"], "g").sentences == [gold([(0, 0)])]
    assert parse_link_file(["4 0 2 S"], "g").sentences == [EMPTY_GOLD] * 4


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
        parse_link_file(["1 1 1 S", line], "g")


def test_a_talp_mistake_is_named_with_file_and_line():
    with pytest.raises(InputError, match="g line 2: '5' is not a link"):
        parse_link_file(["0-0", "5"], "g")


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


def test_reverse_swaps_the_sides_of_both_formats():
    assert parse_link_file(["0-1 2p3"], "g", reverse=True).sentences == [gold([(1, 0)], [(3, 2)])]
    assert parse_link_file(["1 1 2 S"], "g", reverse=True).sentences == [gold([(1, 0)])]


def test_links_of_a_file_are_all_its_links_sorted():
    assert parse_link_file(["2p1 0-0", ""], "g").all_links() == [[(0, 0), (2, 1)], []]


def test_a_naacl_file_grows_to_the_length_of_the_others_and_a_line_file_does_not():
    assert parse_link_file(NAACL, "g").fit_length(5, "t").sentences[3:] == [EMPTY_GOLD, EMPTY_GOLD]
    with pytest.raises(InputError, match="g names sentence 3, but t has 2 sentences"):
        parse_link_file(NAACL, "g").fit_length(2, "t")
    with pytest.raises(InputError, match="g has 1 lines, but t has 2 sentences"):
        LinkFile("g", "talp", [EMPTY_GOLD]).fit_length(2, "t")


# ---- a line at a time ----


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_rows_have_links_scores_and_gold(tmp_path):
    path = write(tmp_path / "links", "1-0:0.5 0p2\n\n")
    first, second = LinkSource(path).read_rows()
    assert first.scored and first.links == [(0, 2, 1.0), (1, 0, 0.5)]
    assert first.gold == gold([(1, 0)], [(0, 2)])
    assert not second.scored and second.links == []


def test_scores_of_another_file_replace_those_of_the_line(tmp_path):
    path, scores = write(tmp_path / "a", "0-1 1-0:0.9\n"), write(tmp_path / "b", "0.25 .5\n")
    (row,) = LinkSource(path, reverse=True, scores=scores).read_rows()
    assert row.scored and row.links == [(0, 1, 0.5), (1, 0, 0.25)]


def test_selected_rows_are_checked_and_naacl_files_may_end_early(tmp_path):
    naacl = LinkSource(write(tmp_path / "n", "2 1 1 S\n"))
    found = naacl.select_rows({2: (1, 1), 3: (1, 1)}, 5, "text")
    assert [row.gold for row in found] == [gold([(0, 0)]), EMPTY_GOLD]
    with pytest.raises(InputError, match=r"line 2: link 0-0 .* lies outside the pair"):
        naacl.select_rows({2: (0, 1)}, 5, "text")
    with pytest.raises(InputError, match="has 2 lines or more, but text has 1"):
        LinkSource(write(tmp_path / "t", "0-0\n0-0\n")).select_rows({1: (1, 1)}, 1, "text")
