"""The recursion over blocks against plain enumeration of all paths."""

from __future__ import annotations

from itertools import product

import numpy as np

from ....engine.statistical import hmm


def enumerate_posteriors(emission, null, start, end, jump, null_prob):
    """Posteriors of one pair by summing over every path of places and kinds of step."""
    T, S = emission.shape
    total, out = 0.0, np.zeros((T, S))
    for path in product(range(2 * S), repeat=T):  # place, or place + S for the empty word
        weight, place = 1.0, None
        for t, state in enumerate(path):
            to, real = state % S, state < S
            if real:
                move = start[to] if place is None else jump[place, to] / jump[place].sum()
                weight *= (1 - null_prob) * move * emission[t, to]
            else:
                move = start[to] if place is None else float(place == to)
                weight *= null_prob * move * null[t]
            place = to
        weight *= end[place]
        total += weight
        for t, state in enumerate(path):
            if state < S:
                out[t, state] += weight
    return out / total


def test_posteriors_match_enumeration_also_in_padding():
    rng = np.random.default_rng(3)
    S, T, null_prob, max_jump = 3, 3, 0.3, 2
    sizes = [(3, 3), (2, 3), (3, 1), (1, 2)]
    n_states, n_steps = (np.array(column) for column in zip(*sizes, strict=True))
    emission = np.zeros((T, len(sizes), S), np.float32)
    null = np.zeros((T, len(sizes)), np.float32)
    for b, (s, t) in enumerate(sizes):
        emission[:t, b, :s] = rng.random((t, s))
        null[:t, b] = rng.random(t)
    weights = [rng.random(n).astype(np.float32) + 0.1 for n in (5, 3, 3)]
    direction = hmm.HmmDirection(null, *weights)
    got = hmm.hmm_posteriors(emission.copy(), null, n_states, n_steps, direction, null_prob)
    for b, (s, t) in enumerate(sizes):
        jump = direction.jump[hmm._jump_widths(s, max_jump)]
        start, end = hmm._end_weights(direction, np.array([s]), s)
        want = enumerate_posteriors(
            emission[:t, b, :s], null[:t, b], start[0], end[0], jump, null_prob
        )
        np.testing.assert_allclose(got[:t, b, :s], want, rtol=1e-4, atol=1e-6)
        assert not got[t:, b].any() and not got[:, b, s:].any()


def test_ibm1_is_the_hmm_without_preferences():
    """Even moves: the empty word then has the weight p0 n_t, each state (1 - p0) / I."""
    rng = np.random.default_rng(4)
    emission = rng.random((3, 1, 2)).astype(np.float32)
    null = rng.random((3, 1)).astype(np.float32)
    even = hmm.HmmDirection(null, *(np.ones(n, np.float32) for n in (3, 2, 2)))
    sizes = np.array([2]), np.array([3])
    by_hmm = hmm.hmm_posteriors(emission.copy(), null, *sizes, even, 0.2)
    by_ibm1 = hmm.ibm1_posteriors(emission.copy(), null, sizes[0], 0.2)
    np.testing.assert_allclose(by_ibm1, by_hmm, rtol=1e-5)


def test_products_in_parts_are_those_of_the_whole(monkeypatch):
    rng = np.random.default_rng(5)
    rows, more, matrix = (
        rng.random(shape).astype(np.float32) for shape in ((50, 3), (50, 3), (3, 3))
    )
    monkeypatch.setattr(hmm, "_ONE_THREAD", 70)  # seven rows at a time
    out = np.empty_like(rows)
    hmm._multiply_rows(rows, matrix, out)
    np.testing.assert_allclose(out, rows @ matrix, rtol=1e-6)
    np.testing.assert_allclose(hmm._sum_products(rows, more), rows.T @ more, rtol=1e-6)
