import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.align.batching import (
    MAX_PIECES,
    find_too_long,
    pack_batch,
    plan_batches,
    plan_units,
)
from ....engine.runtime.backends import pad_lengths
from ....engine.types import Pieces

LENGTHS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), max_size=30)


def arrays(lengths):
    table = np.array(lengths, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def pieces(lengths, rng) -> Pieces:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = rng.integers(2, 100, offsets[-1]).astype(np.int32)
    return Pieces(ids, np.zeros_like(ids), offsets, np.asarray(lengths, np.int32))


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 40))
def test_every_pair_is_planned_and_its_windows_divide_it(lengths, max_length):
    units = plan_units(*arrays(lengths), max_length)
    for pair, (n_src, n_tgt) in enumerate(lengths):
        mine = np.flatnonzero(units.pair == pair)
        if not n_src or not n_tgt:
            assert not len(mine)
            continue
        assert (len(mine) > 1) == (max(n_src, n_tgt) > max_length)
        assert units.window[mine].all() == (len(mine) > 1)
        for size, start, length, own in (
            (n_src, units.src_start, units.src_length, units.own_src),
            (n_tgt, units.tgt_start, units.tgt_length, units.own_tgt),
        ):
            bounds = own[mine].tolist()
            assert bounds[0][0] == 0 and bounds[-1][1] == size
            assert [b for _, b in bounds[:-1]] == [a for a, _ in bounds[1:]]
            for unit, (low, high) in zip(mine, bounds, strict=True):
                assert 1 <= length[unit] <= max_length
                assert 0 <= start[unit] <= low <= high <= start[unit] + length[unit] <= size


def test_windows_overlap_by_half_and_own_their_middle():
    units = plan_units(np.array([1000]), np.array([900]), 256)
    assert units.by_src.all()
    assert (np.diff(units.src_start) <= 128).all()
    inner = slice(1, -1)
    assert (units.own_src[inner, 0] - units.src_start[inner] >= 50).all()
    assert (units.tgt_length == 256).all()


def test_a_pair_too_long_even_for_windows_is_left_out():
    n_src, n_tgt = np.array([MAX_PIECES + 1, MAX_PIECES, 3]), np.array([5, 5, 3])
    assert find_too_long(n_src, n_tgt).tolist() == [True, False, False]
    assert set(plan_units(n_src, n_tgt, 256).pair) == {1, 2}


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 40), st.integers(1, 300))
def test_batches_hold_each_unit_once_in_the_shape_of_its_own_lengths(lengths, max_length, tokens):
    units = plan_units(*arrays(lengths), max_length)
    seen = []
    for planned in plan_batches(units, tokens):
        part, n_src, n_tgt = planned.units, planned.n_src, planned.n_tgt
        assert len(part.pair) == 1 or len(part.pair) * max(n_src, n_tgt) <= tokens
        assert (pad_lengths(part.src_length) == n_src).all()
        assert (pad_lengths(part.tgt_length) == n_tgt).all()
        seen += zip(part.pair, part.src_start, part.tgt_start, strict=True)
    assert sorted(seen) == sorted(zip(units.pair, units.src_start, units.tgt_start, strict=True))


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 40))
def test_packed_ids_are_those_of_the_unit_and_zero_behind(lengths, max_length):
    rng = np.random.default_rng(1)
    n_src, n_tgt = arrays(lengths)
    src, tgt = pieces(n_src, rng), pieces(n_tgt, rng)
    units = plan_units(n_src, n_tgt, max_length)
    for planned in plan_batches(units, 100):
        part, size, other = planned.units, planned.n_src, planned.n_tgt
        batch = pack_batch(planned, src, tgt)
        for row, pair in enumerate(part.pair):
            first = src.offsets[pair] + part.src_start[row]
            ids = src.ids[first : first + part.src_length[row]]
            assert batch.src[row].tolist() == ids.tolist() + [0] * (size - len(ids))
            first = tgt.offsets[pair] + part.tgt_start[row]
            ids = tgt.ids[first : first + part.tgt_length[row]]
            assert batch.tgt[row].tolist() == ids.tolist() + [0] * (other - len(ids))


def test_padding_rises_and_never_shrinks():
    lengths = np.arange(1, 3000)
    sizes = pad_lengths(lengths)
    assert (sizes >= lengths).all() and (np.diff(sizes) >= 0).all()
    assert (sizes - lengths < 16).all()
    assert pad_lengths(sizes).tolist() == sizes.tolist()
