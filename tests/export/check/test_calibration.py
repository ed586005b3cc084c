"""Thresholds and probabilities from gold links and from the agreement of the directions."""

import numpy as np
import pytest

from ....engine.links.link_files import Gold
from ....export.check.calibration import agree_directions, calibrate_scores, fit_rising


def test_rising_is_the_closest_sequence_that_never_falls() -> None:
    found = fit_rising(np.array([0.1, 0.5, 0.3, 0.2, 0.9]), np.ones(5))
    np.testing.assert_allclose(found, [0.1, 1 / 3, 1 / 3, 1 / 3, 0.9])
    np.testing.assert_allclose(fit_rising(np.array([1.0, 0.0]), np.array([1.0, 3.0])), [0.25, 0.25])


def test_rising_against_every_possible_cut() -> None:
    """The min-max formula of isotonic regression, by brute force."""
    rng = np.random.default_rng(1)
    values, weights = rng.random(12), rng.random(12) + 0.1
    found = fit_rising(values, weights)
    for k in range(12):
        best = max(
            min(np.average(values[i : j + 1], weights=weights[i : j + 1]) for j in range(k, 12))
            for i in range(k + 1)
        )
        assert found[k] == pytest.approx(best)


def test_calibrated_scores_are_shares_of_right_links() -> None:
    rng = np.random.default_rng(1)
    scores = [rng.random((10, 10)) for _ in range(100)]
    right = [rng.random((10, 10)) < one**2 for one in scores]
    links = [frozenset((int(i), int(j)) for i, j in np.argwhere(one)) for one in right]
    thresholds, table = calibrate_scores(scores, [Gold(one, one) for one in links], "made-up links")
    found = np.interp([0.3, 0.6, 0.9], table.scores, table.probabilities)
    np.testing.assert_allclose(found, [0.09, 0.36, 0.81], atol=0.05)
    assert thresholds.recall <= thresholds.aer <= thresholds.precision
    assert thresholds.precision - thresholds.recall > 0.1
    assert "made-up links" in thresholds.chosen and "made-up links" in table.chosen
    assert len(table.scores) <= 45


def test_scores_that_part_right_from_wrong() -> None:
    scores = [np.array([[0.9, 0.1], [0.2, 0.8]])]
    links = frozenset({(0, 0), (1, 1)})
    thresholds, _ = calibrate_scores(scores, [Gold(links, links)], "")
    assert 0.2 < thresholds.recall <= thresholds.aer <= thresholds.precision < 0.8


def test_of_thresholds_that_are_as_good_the_middle_one() -> None:
    """Not the highest, which a link of other text would hardly reach."""
    scores = [np.array([[0.9998, 0.1], [0.1, 0.9996]])]
    sure, possible = frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)})
    thresholds, _ = calibrate_scores(scores, [Gold(sure, possible)], "")
    assert 0.4 < thresholds.aer < 0.7


def test_without_candidates() -> None:
    nothing = Gold(frozenset(), frozenset())
    thresholds, table = calibrate_scores([np.zeros((2, 2))], [nothing], "")
    assert table.probabilities == (0.0, 1.0)
    assert 0 <= thresholds.recall <= thresholds.aer <= thresholds.precision <= 1


def test_agreement() -> None:
    fwd = np.array([[0.9, 0.3, 0.1], [0.0, 0.6, 0.2]])
    bwd = np.array([[0.8, 0.1, 0.0], [0.5, 0.4, 0.0]])
    gold = agree_directions(fwd, bwd, np.array([0.0, 0.0, 0.7]), np.array([0.0, 0.0]))
    assert gold.sure == {(0, 0)}
    assert gold.possible == {(0, 0), (1, 1), (1, 0)}
    empty = np.zeros((0, 3))
    assert not agree_directions(empty, empty, np.zeros(3), np.zeros(0)).possible
