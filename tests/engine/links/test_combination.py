"""One probability from the scores of a model and of statistics."""

import numpy as np

from ....engine.links.combination import Combination, measure_fit, weigh_by_fit
from ....engine.types import Links, Pairs


def make_links(*rows: list[tuple[int, int, float]]) -> Links:
    flat = [one for row in rows for one in sorted(row)]
    src, tgt, score = np.array(flat, np.float64).reshape(-1, 3).T
    offsets = np.cumsum([0, *map(len, rows)])
    return Links(offsets, src.astype(int), tgt.astype(int), score.astype("f"), src >= 0)


def test_links_of_either_are_weighed():
    model = make_links([(0, 0, 0.9), (1, 1, 0.5)], [])
    statistics = make_links([(0, 0, 0.9), (2, 2, 0.9)], [(0, 1, 0.9)])
    found = Combination(0.0, 1.0, 0.5, 0.02, 0.9)(model, statistics)
    assert found.offsets.tolist() == [0, 3, 4]
    assert list(zip(found.src.tolist(), found.tgt.tolist(), strict=True)) == [
        (0, 0), (1, 1), (2, 2), (0, 1),
    ]  # fmt: skip
    odds = found.score / (1 - found.score)
    # What one of the two did not find counts as the lowest score, 0.01.
    np.testing.assert_allclose(odds, [27, 99**-0.5, 3 / 99, 3 / 99], rtol=1e-3)
    assert found.sure.tolist() == [True, False, False, False]


def test_statistics_alone_keep_their_order():
    links = make_links([(0, 0, 0.2), (0, 1, 0.9), (1, 0, 0.5)])
    found = weigh_by_fit(measure_fit(Pairs(0, [["a", "b"]], [["c", "d"]]), None, links), 5000)(
        links
    )
    assert 0 < len(found.src) <= 3 and (found.score >= 0.25).all()
    few = weigh_by_fit(measure_fit(Pairs(0, [["a"]], [["c"]]), None, links), 10)(links)
    assert few.score[0] < found.score[0]  # what few pairs say is less sure
