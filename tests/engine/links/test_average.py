"""Averages of links against those worked out by hand."""

import numpy as np
import pytest

from ....engine.errors import InputError
from ....engine.links.average import LinkAverager, LinkTable, average_links
from ....engine.types import Links, Pairs


def test_a_source_without_a_link_counts_zero():
    first = LinkTable.from_rows([(1, 0, 3, 0.5), (0, 2, 1, 0.75)])
    second = LinkTable.from_rows([(0, 2, 1, 0.25), (0, 0, 0, 1.0)])
    found = [column.tolist() for column in average_links([first, second])]
    assert found == [[0, 0, 1], [0, 2, 0], [0, 1, 3], [0.5, 0.5, 0.25]]


def test_nothing_averaged_is_nothing():
    assert len(average_links([LinkTable.from_rows([])] * 2).pair) == 0


@pytest.fixture
def pairs() -> Pairs:
    lines = ["0-0:0.9 1-1:0.3", "", "0-0"]
    return Pairs(10, [["a", "b"], [], ["c"]], [["x", "y"], ["z"], ["w"]], link_lines=(lines,))


@pytest.fixture
def links() -> Links:
    """Of the first pair 0-0 with 0.5 and 1-0 with 0.2."""
    places = np.array([0, 1]), np.array([0, 0])
    return Links(
        np.array([0, 2, 2, 2]), *places, np.array([0.5, 0.2], np.float32), np.ones(2, bool)
    )


def test_the_model_is_averaged_with_the_lines_of_a_file(pairs, links):
    found = LinkAverager(("f",), 0.15)(pairs, links)
    assert found.offsets.tolist() == [0, 2, 2, 3]
    assert (found.src.tolist(), found.tgt.tolist()) == ([0, 1, 0], [0, 1, 0])
    np.testing.assert_allclose(found.score, [0.7, 0.15, 0.5], rtol=1e-6)
    assert found.sure.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2-0", "f line 11: the link 2-0 is outside its pair of 2 and 2 words"),
        ("0-0:7", "f line 11: the score 7 of 0-0 is not from 0 to 1"),
    ],
)
def test_lines_of_other_text_are_refused(pairs, links, line, message):
    pairs.link_lines[0][0] = line
    with pytest.raises(InputError, match=message):
        LinkAverager(("f",), 0.4)(pairs, links)
