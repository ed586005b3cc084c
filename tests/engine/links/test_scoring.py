"""Measures against numbers worked out by hand, and statistics against full enumeration."""

import itertools
import math

import numpy as np
import pytest

from ....engine.errors import InputError
from ....engine.links.link_files import Gold, parse_links
from ....engine.links.scoring import (
    MEASURES,
    LinkCounts,
    best_threshold,
    bootstrap_intervals,
    compare_systems,
    compute_measures,
    count_sentences,
    score_counts,
    score_links,
    sweep_thresholds,
)

GOLD = [parse_links("0-0 1-1 1p2 2p2").gold, parse_links("0-0").gold]
LINKS = [[(0, 0), (1, 2), (2, 1)], [(0, 0), (0, 1)]]


def random_table(rng, gold_rows, accuracy):
    """Counts of a made-up system that hits each gold link with a probability."""
    sure, extra = gold_rows
    in_sure = rng.binomial(sure, accuracy)
    in_possible = in_sure + rng.binomial(extra, accuracy / 2)
    links = in_possible + rng.binomial(sure, 1 - accuracy)
    return np.stack([links, sure, sure + extra, in_sure, in_possible], axis=1)


def test_counts_of_the_classic_case_with_possible_links():
    assert count_sentences(LINKS[:1], GOLD[:1]).tolist() == [[3, 2, 4, 1, 2]]
    assert count_sentences([LINKS[0] * 2], GOLD[:1]).tolist() == [[3, 2, 4, 1, 2]]


def test_score_of_one_sentence_by_hand():
    found = score_links(LINKS[:1], GOLD[:1])
    assert found.aer == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(1 / 2)
    assert found.f1 == pytest.approx(4 / 7)


def test_score_of_a_set_is_made_of_sums():
    found = score_links(LINKS, GOLD)
    assert found.counts == LinkCounts(5, 3, 5, 2, 3)
    assert found.aer == pytest.approx(1 - 5 / 8)
    assert found.precision == pytest.approx(3 / 5)
    assert found.recall == pytest.approx(2 / 3)
    assert found.f1 == pytest.approx(12 / 19)


def test_all_sure_links_give_an_error_rate_of_zero_however_many_possible_ones_are_left():
    assert score_links([GOLD[0].sure], GOLD[:1]).aer == 0
    assert score_links([GOLD[0].possible], GOLD[:1]).aer == 0


@pytest.mark.parametrize(
    ("links", "wanted", "expected"),
    [
        ("", "", (0, 1, 1, 1)),
        ("", "0-0", (1, 1, 0, 0)),
        ("0-0", "", (1, 0, 1, 0)),
        ("", "0p0", (0, 1, 1, 1)),
        ("0-0", "0p0", (0, 1, 1, 1)),
        ("1-1", "0-0", (1, 0, 0, 0)),
        ("0-0", "0-0", (0, 1, 1, 1)),
    ],
)
def test_empty_cases_are_defined(links, wanted, expected):
    found = score_links([parse_links(links).gold.possible], [parse_links(wanted).gold])
    assert (found.aer, found.precision, found.recall, found.f1) == expected


def test_no_sentences_at_all_is_perfect():
    assert score_links([], []).aer == 0
    assert bootstrap_intervals(count_sentences([], []), 10)["aer"] == (0, 0)
    assert compare_systems(count_sentences([], []), count_sentences([], []), 10).p_value["aer"] == 1


def test_aer_is_one_minus_f1_when_every_gold_link_is_sure():
    table = np.random.default_rng(0).integers(0, 5, (200, 5))
    table[:, 2] = table[:, 1]
    table[:, 3] = table[:, 4] = np.minimum(table[:, 3], table[:, :2].min(axis=1))
    found = compute_measures(table)
    np.testing.assert_allclose(found[:, 0], 1 - found[:, 3], atol=1e-12)


def test_lengths_that_differ_are_named():
    with pytest.raises(InputError, match="links for 1 sentences, but gold for 2"):
        score_links(LINKS[:1], GOLD)


# ---- intervals and significance ----


def test_bootstrap_agrees_with_all_possible_draws():
    table = np.array([[3, 2, 4, 1, 2], [2, 1, 1, 1, 1], [6, 4, 9, 3, 4], [5, 5, 7, 5, 5]])
    draws = itertools.product(range(4), repeat=4)
    exact = compute_measures(np.array([table[list(draw)].sum(axis=0) for draw in draws]))
    low, high = np.percentile(exact, [2.5, 97.5], axis=0)
    found = bootstrap_intervals(table, 20_000, seed=3)
    for n, name in enumerate(MEASURES):
        assert found[name] == pytest.approx((low[n], high[n]), abs=0.015)


def test_sentences_all_alike_leave_nothing_to_chance():
    table = np.tile([3, 2, 4, 1, 2], (50, 1))
    assert bootstrap_intervals(table, 200)["aer"] == pytest.approx((0.4, 0.4))


def test_bootstrap_repeats_with_its_seed_and_does_not_depend_on_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    table = random_table(rng, (rng.integers(1, 20, 60), rng.integers(0, 9, 60)), 0.8)
    once = bootstrap_intervals(table, 300, seed=5)
    assert bootstrap_intervals(table, 300, seed=5) == once
    assert bootstrap_intervals(table, 300, seed=6) != once
    monkeypatch.setattr("mx_align.engine.links.scoring._MAX_CELLS", 1000)
    assert bootstrap_intervals(table, 300, seed=5) == once


def test_p_value_agrees_with_all_possible_swaps():
    rng = np.random.default_rng(2)
    gold = rng.integers(1, 12, 8), rng.integers(0, 5, 8)
    first, second = random_table(rng, gold, 0.7), random_table(rng, gold, 0.85)

    def difference(swap):
        keep = np.array(swap)[:, None]
        one = np.where(keep, second, first).sum(axis=0)
        other = np.where(keep, first, second).sum(axis=0)
        return compute_measures(other)[0] - compute_measures(one)[0]

    observed = difference([0] * 8)
    swaps = [difference(swap) for swap in itertools.product([0, 1], repeat=8)]
    exact = np.mean([abs(value) >= abs(observed) - 1e-12 for value in swaps])
    found = compare_systems(first, second, 20_000)
    assert found.difference["aer"] == pytest.approx(observed)
    assert found.p_value["aer"] == pytest.approx(exact, abs=0.015)


def test_a_system_does_not_differ_from_itself():
    table = count_sentences(LINKS, GOLD)
    found = compare_systems(table, table, 100)
    assert found.difference["f1"] == 0
    assert found.interval_95["f1"] == (0, 0)
    assert found.p_value == dict.fromkeys(MEASURES, 1.0)


def test_a_clear_difference_is_significant_and_has_the_sign_of_second_minus_first():
    rng = np.random.default_rng(1)
    gold = rng.integers(5, 20, 200), rng.integers(0, 5, 200)
    worse, better = random_table(rng, gold, 0.6), random_table(rng, gold, 0.9)
    found = compare_systems(worse, better, 1000)
    assert found.difference["aer"] < 0 < found.difference["recall"]
    low, high = found.interval_95["aer"]
    assert low < found.difference["aer"] < high < 0
    assert found.p_value["aer"] == pytest.approx(1 / 1001)


def test_tables_of_different_gold_are_refused():
    table = count_sentences(LINKS, GOLD)
    with pytest.raises(ValueError, match="same gold"):
        compare_systems(table, table + 1)


# ---- thresholds ----

SCORED = [[(0, 0, 0.9), (1, 2, 0.5), (2, 1, 0.3), (1, 1, 0.4)], [(0, 0, 0.5), (0, 1, 0.1)]]


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.3, 0.35, 0.4, 0.5, 0.51, 0.9, 1.0])
def test_sweep_scores_what_reaches_the_threshold(threshold):
    links = [[(i, j) for i, j, s in triples if s >= threshold] for triples in SCORED]
    assert sweep_thresholds(SCORED, GOLD, [threshold]) == [score_links(links, GOLD)]


def test_sweep_keeps_the_order_of_thresholds_and_accepts_arrays():
    found = sweep_thresholds([np.array(triples) for triples in SCORED], GOLD, [0.6, 0.1])
    assert [each.counts.links for each in found] == [1, 6]
    assert sweep_thresholds([[], []], GOLD, [0.5])[0].counts == LinkCounts(0, 3, 5, 0, 0)


def test_sweep_takes_the_higher_of_two_scores_and_never_nan():
    scored = [[(0, 0, 0.2), (0, 0, 0.8), (1, 1, math.nan)], []]
    assert sweep_thresholds(scored, GOLD, [0.5, 0.0]) == [score_links([[(0, 0)], []], GOLD)] * 2


def test_best_threshold_lies_between_the_last_kept_and_the_first_dropped():
    threshold, found = best_threshold(SCORED, GOLD)
    assert threshold == pytest.approx(0.35)
    assert found == sweep_thresholds(SCORED, GOLD, [threshold])[0]
    assert found.aer == 0


def test_best_threshold_never_cuts_between_equal_scores():
    gold = [Gold(frozenset({(0, 0)}), frozenset())]
    threshold, found = best_threshold([[(0, 0, 0.5), (1, 1, 0.5)]], gold)
    assert (threshold, found.counts.links) == (0.5, 2)
    assert best_threshold([[]], gold)[0] == 1.0


def test_best_threshold_is_the_best_of_a_fine_sweep():
    rng = np.random.default_rng(4)
    gold = [Gold(frozenset((i, i) for i in range(6)), frozenset()) for _ in range(20)]
    scored = [
        [(i, j, float(rng.random() + 0.4 * (i == j))) for i in range(6) for j in range(6)]
        for _ in gold
    ]
    threshold, found = best_threshold(scored, gold)
    assert found.aer <= min(
        each.aer for each in sweep_thresholds(scored, gold, np.linspace(0, 1.4, 500))
    )
    assert sweep_thresholds(scored, gold, [threshold])[0] == found


def test_score_counts_takes_a_table_or_a_row():
    table = count_sentences(LINKS, GOLD)
    assert score_counts(table) == score_links(LINKS, GOLD)
    assert score_counts(table[0]) == score_links(LINKS[:1], GOLD[:1])
