"""The NumPy twins against loops written from the definition."""

import numpy as np
import pytest

from ....engine.runtime.reference import leaky_attention, static_attention, symmetrize
from ...support.kernel_cases import (
    LENGTHS,
    SIDES,
    leaky_attention_inputs,
    leaky_attention_loops,
    static_attention_inputs,
    static_attention_loops,
    symmetrize_inputs,
    symmetrize_loops,
)


@pytest.mark.parametrize("one_query", [False, True])
@pytest.mark.parametrize("name", LENGTHS)
def test_static_attention(name, one_query, assert_close):
    lengths, size = LENGTHS[name]
    inputs = static_attention_inputs(lengths, size, 12, one_query)
    assert_close(static_attention(*inputs, heads=3), static_attention_loops(*inputs, heads=3), 1e-5)


@pytest.mark.slow
def test_a_row_never_sees_its_own_piece():
    q, k, v, lengths = static_attention_inputs([6], 6, 8)
    before = static_attention(q, k, v, lengths, 2)
    k[0, 2], v[0, 2] = 9, 9
    after = static_attention(q, k, v, lengths, 2)
    assert np.array_equal(before[0, 2], after[0, 2])
    assert (before[0, [0, 1, 3, 4, 5]] != after[0, [0, 1, 3, 4, 5]]).any(axis=1).all()


@pytest.mark.parametrize("name", SIDES)
def test_leaky_attention(name, assert_close):
    inputs = leaky_attention_inputs(*SIDES[name], width=12)
    weights, null = leaky_attention(*inputs, heads=2)
    wanted = leaky_attention_loops(*inputs, heads=2)
    assert_close(weights, wanted[0], 1e-5)
    assert_close(null, wanted[1], 1e-5)
    assert_close(weights.sum(axis=2) + null, np.ones_like(null), 1e-5)


@pytest.mark.parametrize("name", SIDES)
def test_links(name):
    inputs = symmetrize_inputs(*SIDES[name])[:4]
    found = symmetrize(*inputs, 0.1)
    for b, (links, score) in enumerate(symmetrize_loops(*inputs, 0.1)):
        part = slice(found.starts[b], found.starts[b] + found.counts[b])
        pairs = list(zip(found.src[part].tolist(), found.tgt[part].tolist(), strict=True))
        assert pairs == sorted(links)
        assert found.scores[part].tolist() == [links[pair] for pair in pairs]
        assert found.sentence[b] == pytest.approx(score, abs=1e-6)
