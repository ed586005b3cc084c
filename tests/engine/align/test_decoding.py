import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.align.batching import plan_batches, plan_units
from ....engine.align.decoding import MODES, LinkRule, find_piece_links, link_words
from ....engine.links.heuristics import JOIN_METHODS, join_directions
from ....engine.runtime.reference import pool_words
from ....engine.types import Pieces


def sentences(rng, counts) -> Pieces:
    """Words of 1 to 3 pieces."""
    words, offsets, n_words = [], [0], []
    for n in counts:
        sizes = rng.integers(1, 4, n)
        words.append(np.repeat(np.arange(n), sizes))
        offsets.append(offsets[-1] + int(sizes.sum()))
        n_words.append(n)
    flat = np.concatenate([*words, np.zeros(0, int)]).astype(np.int32)
    return Pieces(flat + 2, flat, np.array(offsets), np.array(n_words, np.int32))


class Oracle:
    """Weights of whole pairs, given out for whatever part of them is in a batch."""

    def __init__(self, rng, src: Pieces, tgt: Pieces) -> None:
        shapes = list(zip(np.diff(src.offsets), np.diff(tgt.offsets), strict=True))
        # Few different values, so that ties are common.
        self.cells = {
            name: [rng.integers(0, 20, shape).astype(np.float32) / 20 for shape in shapes]
            for name in ("scores", "fwd", "bwd")
        }
        self.nulls = {
            "fwd_null": [rng.integers(0, 20, t).astype(np.float32) / 20 for _, t in shapes],
            "bwd_null": [rng.integers(0, 20, s).astype(np.float32) / 20 for s, _ in shapes],
        }

    def run(self, planned):
        units, n_src, n_tgt = planned.units, planned.n_src, planned.n_tgt
        rows = len(units.pair)
        outputs = {name: np.zeros((rows, n_src, n_tgt), np.float32) for name in self.cells}
        outputs["fwd_null"] = np.zeros((rows, n_tgt), np.float32)
        outputs["bwd_null"] = np.zeros((rows, n_src), np.float32)
        for row, pair in enumerate(units.pair):
            s, t = units.src_start[row], units.tgt_start[row]
            n, m = units.src_length[row], units.tgt_length[row]
            for name, full in self.cells.items():
                outputs[name][row, :n, :m] = full[pair][s : s + n, t : t + m]
            outputs["fwd_null"][row, :m] = self.nulls["fwd_null"][pair][t : t + m]
            outputs["bwd_null"][row, :n] = self.nulls["bwd_null"][pair][s : s + n]
        return outputs


def decoded(rule, counts, max_length, tokens=60, seed=1):
    rng = np.random.default_rng(seed)
    src, tgt = (sentences(rng, [pair[side] for pair in counts]) for side in (0, 1))
    oracle = Oracle(rng, src, tgt)
    units = plan_units(np.diff(src.offsets), np.diff(tgt.offsets), max_length)
    found = []
    for planned in plan_batches(units, tokens):
        found.append(find_piece_links(rule, oracle.run(planned), planned.units))
    return link_words(rule, found, src, tgt), oracle, src, tgt


def rows(links, pair):
    part = slice(links.offsets[pair], links.offsets[pair + 1])
    return list(zip(links.src[part].tolist(), links.tgt[part].tolist(), strict=True))


def words_of(side, pair):
    return side.words[side.offsets[pair] : side.offsets[pair + 1]]


def directed(weights, null, threshold, src_words, tgt_words):
    """Loop version of the forward links: weights (S, T), null (T,)."""
    links = set()
    for t in range(weights.shape[1]):
        s = int(weights[:, t].argmax()) if len(weights) else 0
        value = weights[s, t] if len(weights) else 0
        if value > null[t] if threshold is None else value >= np.float32(threshold):
            links.add((int(src_words[s]), int(tgt_words[t])))
    return links


COUNTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=8)


@settings(deadline=None)
@given(COUNTS, st.sampled_from([0.05, 0.5, 0.95]), st.integers(0, 99))
def test_soft_links_against_loops(counts, threshold, seed):
    rule = LinkRule(threshold=threshold, sure=0.8)
    links, oracle, src, tgt = decoded(rule, counts, 64, seed=seed)
    assert len(links.offsets) == len(counts) + 1
    for pair, (n_src, n_tgt) in enumerate(counts):
        full = pool_words(oracle.cells["scores"][pair], words_of(src, pair), words_of(tgt, pair))
        wanted = [
            (i, j) for i in range(n_src) for j in range(n_tgt)
            if full[i, j] >= np.float32(threshold)
        ]  # fmt: skip
        assert rows(links, pair) == wanted
        part = slice(links.offsets[pair], links.offsets[pair + 1])
        assert links.score[part].tolist() == [full[link] for link in wanted]
        assert links.sure[part].tolist() == [bool(full[i] >= np.float32(0.8)) for i in wanted]


@settings(deadline=None)
@given(COUNTS, st.sampled_from([None, 0.5]), st.sampled_from(MODES[1:]), st.integers(0, 99))
def test_directions_and_heuristics_against_loops(counts, threshold, mode, seed):
    links, oracle, src, tgt = decoded(LinkRule(mode, threshold), counts, 64, seed=seed)
    for pair in range(len(counts)):
        s, t = words_of(src, pair), words_of(tgt, pair)
        cells, nulls = oracle.cells, oracle.nulls
        fwd = directed(cells["fwd"][pair], nulls["fwd_null"][pair], threshold, s, t)
        bwd = directed(cells["bwd"][pair].T, nulls["bwd_null"][pair], threshold, t, s)
        if not len(s) or not len(t):
            fwd, bwd = set(), set()
        bwd = {(i, j) for j, i in bwd}
        wanted = {"forward": fwd, "backward": bwd}.get(mode)
        if mode in JOIN_METHODS:
            wanted = join_directions(mode, fwd, bwd)
        assert rows(links, pair) == sorted(wanted)


@settings(deadline=None)
@given(COUNTS, st.integers(0, 99))
def test_null_weights_of_a_word_are_the_lowest_of_its_pieces(counts, seed):
    links, oracle, src, tgt = decoded(LinkRule(nulls=True), counts, 64, seed=seed)
    for side, found, name in ((src, links.src_null, "bwd_null"), (tgt, links.tgt_null, "fwd_null")):
        wanted = []
        for pair, (n_src, n_tgt) in enumerate(counts):
            words, weights = words_of(side, pair), oracle.nulls[name][pair]
            blank = not n_src or not n_tgt
            wanted += [
                1.0 if blank else weights[words == word].min() for word in range(side.n_words[pair])
            ]
        assert found.tolist() == wanted


@pytest.mark.parametrize(("n_src", "n_tgt"), [(60, 55), (50, 70), (80, 3), (2, 90)])
@pytest.mark.parametrize("tokens", [16, 1000])
def test_windows_give_what_one_look_at_the_pair_gives_near_the_diagonal(n_src, n_tgt, tokens):
    counts = [(3, 3), (n_src, n_tgt), (4, 2)]
    rule = LinkRule(threshold=0.9, nulls=True)
    cut, *_ = decoded(rule, counts, 24, tokens)
    whole, *_ = decoded(rule, counts, 1000, tokens)
    assert cut.src_null.tolist() == whole.src_null.tolist()
    assert cut.tgt_null.tolist() == whole.tgt_null.tolist()
    for pair in (0, 2):
        assert rows(cut, pair) == rows(whole, pair)
    near = [(i, j) for i, j in rows(whole, 1) if abs(i / n_src - j / n_tgt) * max(n_src, n_tgt) < 2]
    assert set(near) <= set(rows(cut, 1)) <= set(rows(whole, 1))
    assert rows(cut, 1) == sorted(set(rows(cut, 1)))


@pytest.mark.parametrize("mode", ["forward", "backward"])
def test_a_piece_has_one_partner_even_across_windows(mode):
    links, *_ = decoded(LinkRule(mode, 0.05), [(40, 44)], 16)
    _, _, src, tgt = decoded(LinkRule(mode, 0.05), [(40, 44)], 16)
    assert 0 < len(links.src) <= len(tgt.ids if mode == "forward" else src.ids)
