"""Links and their confidence from the posteriors of both directions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ....engine.alignment import chunk_sentences
from ....engine.errors import MxError
from ....engine.links.heuristics import JOIN_METHODS
from ....engine.statistical.aligner import StatisticalAligner
from ....engine.statistical.model import MODES, score_links
from ....engine.types import Links, Pairs
from ...support.made_up_language import make_corpus


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    src, tgt, _ = make_corpus(60, random_seed=7)
    return next(iter(chunk_sentences([*src, [], ["a", "b"]], [*tgt, ["a"], []], 100)))


@pytest.fixture(scope="module")
def aligner() -> StatisticalAligner:
    src, tgt, _ = make_corpus(400, random_seed=7)
    return StatisticalAligner.learn(src, tgt)


def posteriors(*cells: tuple[int, int, float], shape=(3, 3)):
    """Return (T, 1, S) posteriors with these cells, given as source, target, value."""
    out = np.zeros((shape[1], 1, shape[0]), np.float32)
    for i, j, value in cells:
        out[j, 0, i] = value
    return out


def test_a_word_left_over_is_linked_beside_a_likely_link():
    # Target words 0 and 1 both come from source word 0; only one of them can be its translation.
    p = posteriors((0, 0, 0.9), (0, 1, 0.9))
    q = posteriors((0, 0, 0.95))
    score = score_links(p, q)[:, 0, 0]
    np.testing.assert_allclose(score, [np.sqrt(0.9 * 0.95), 0.45, 0], rtol=1e-5)


def test_one_direction_alone_does_not_link_far_from_likely_links_or_words_that_have_one():
    far = score_links(posteriors((0, 0, 0.9), (0, 2, 0.9)), posteriors((0, 0, 0.9)))
    assert far[2, 0, 0] == 0
    both = (0, 0, 0.9), (1, 1, 0.9)
    taken = score_links(posteriors(*both, (1, 0, 0.5)), posteriors(*both))
    assert taken[0, 0, 1] == 0


def test_two_words_left_over_are_linked_wherever_they_are():
    score = score_links(posteriors((0, 0, 0.9), (2, 2, 0.9)), posteriors((0, 0, 0.9)))
    assert score[2, 0, 2] == pytest.approx(0.45)


def link_sets(links: Links) -> list[set[tuple[int, int]]]:
    ends = links.offsets.tolist()
    both = list(zip(links.src.tolist(), links.tgt.tolist(), strict=True))
    return [set(both[a:b]) for a, b in itertools.pairwise(ends)]


def test_directions_give_each_word_one_partner_at_most_and_join_as_usual(aligner, pairs):
    found = {mode: link_sets(aligner.model.find_links(pairs, 0.4, mode=mode)) for mode in MODES}
    for fwd, bwd in zip(found["forward"], found["backward"], strict=True):
        assert len({j for _, j in fwd}) == len(fwd)
        assert len({i for i, _ in bwd}) == len(bwd)
    for method, join in JOIN_METHODS.items():
        both = zip(found["forward"], found["backward"], strict=True)
        assert found[method] == [join(fwd, bwd) for fwd, bwd in both]
    assert sum(map(len, found["intersect"])) > 100


def test_modes_found_in_one_pass_are_those_found_alone(aligner, pairs):
    together = aligner.model.find_modes(pairs, 0.4, set(MODES))
    for mode in MODES:
        alone = aligner.model.find_links(pairs, 0.4, mode=mode)
        assert alone.offsets.tolist() == together[mode].offsets.tolist()
        assert alone.score.tolist() == together[mode].score.tolist()


@pytest.mark.parametrize("mode", ["soft", "backward", "union"])
def test_words_without_counterpart_are_known(aligner, pairs, mode):
    links = aligner.model.find_links(pairs, 0.4, mode=mode, nulls=True)
    for side, null in ((pairs.src, links.src_null), (pairs.tgt, links.tgt_null)):
        assert len(null) == sum(map(len, side))
        assert null.min() >= 0 and null.max() <= 1
        assert null[-1] == 1  # of a pair with an empty side
    # Most words have a counterpart.
    assert np.median(links.src_null) < 0.1
    assert aligner.model.find_links(pairs, 0.4, mode=mode).src_null is None


def test_alignments_tell_null_probabilities_if_asked(aligner):
    src, tgt, _ = make_corpus(1, random_seed=9)
    asked = StatisticalAligner(aligner.model, nulls=True).align_pair(src[0], tgt[0])
    assert len(asked.src_null) == len(src[0]) and len(asked.tgt_null) == len(tgt[0])
    assert aligner.align_pair(src[0], tgt[0]).src_null is None


def test_an_unknown_mode_is_refused(aligner):
    with pytest.raises(MxError, match="no symmetrization 'best'; there are soft, forward"):
        StatisticalAligner(aligner.model, symmetrize="best")
