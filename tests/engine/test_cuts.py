"""Long pairs are cut where hardly a link crosses, and their parts are aligned as pairs."""

from pathlib import Path

import numpy as np
import pytest
from bundles import write_toy
from hypothesis import given
from hypothesis import strategies as st

from mx.engine import cuts
from mx.engine.aligner import Aligner, installed_models

WORDS = [f"w{k}" for k in range(400)]


def cut(src, tgt, links, scores=None):
    i, j = np.array(sorted(links), np.int64).reshape(-1, 2).T
    scores = np.ones(len(i), np.float32) if scores is None else scores
    return [tuple(bound) for bound in cuts.cut(src, tgt, i, j, scores).tolist()]


def sentences(n, size):
    return [word for k in range(n) for word in [*WORDS[:size], "."]]


def test_sentences_are_found_by_their_ends():
    src, tgt = sentences(6, 19), sentences(6, 19)
    assert cut(src, tgt, [(k, k) for k in range(120)]) == [(20 * k, 20 * k) for k in range(7)]


def test_without_punctuation_long_lines_are_cut_between_neighbours():
    bounds = cut(WORDS, WORDS, [(k, k) for k in range(400)])
    sizes = np.diff(np.array(bounds), axis=0)
    assert len(bounds) > 2 and sizes.max() < 100 and (sizes[:, 0] == sizes[:, 1]).all()


def test_a_stray_link_does_not_keep_two_sentences_together():
    src, tgt = sentences(6, 19), sentences(6, 19)
    links = [(k, k) for k in range(120)]
    whole = cut(src, tgt, links)
    assert cut(src, tgt, [*links, (3, 111)]) == whole


def test_what_many_links_cross_is_not_cut():
    """Two halves that have changed places: any cut between them would lose one."""
    src, tgt = sentences(6, 19), sentences(6, 19)
    bounds = cut(src, tgt, [(k, (k + 60) % 120) for k in range(120)])
    assert (60, 60) not in bounds


@pytest.mark.parametrize(
    "links", [[], [(0, 0)], [(99, 0)], [(0, 99)], [(k, 5) for k in range(100)]]
)
def test_where_there_is_nothing_to_cut_by_the_pair_stays_whole(links):
    assert cut(WORDS[:100], WORDS[:100], links) == [(0, 0), (100, 100)]


@given(st.sets(st.tuples(st.integers(0, 70), st.integers(0, 90)), max_size=150), st.data())
def test_parts_divide_both_sides_and_crossing_is_what_it_says(links, data):
    words = data.draw(st.lists(st.sampled_from(["a", ","]), min_size=91, max_size=91))
    values = data.draw(
        st.lists(st.floats(0, 1, width=32), min_size=len(links), max_size=len(links))
    )
    src, tgt, scores = words[:71], words, np.array(values, np.float32)
    bounds = np.array(cut(src, tgt, links, scores))
    assert bounds[0].tolist() == [0, 0] and bounds[-1].tolist() == [71, 91]
    assert (np.diff(bounds, axis=0) > 0).all()
    rows = sorted(links)
    for p, q in bounds[1:-1].tolist():
        assert (p - 1, q - 1) in links
        crossing = sum(s for (i, j), s in zip(rows, values, strict=True) if (i < p) != (j < q))
        assert crossing < 4.001


# ---- in the engine ----


def joined(aligner, pairs):
    return aligner.align_pair(" ".join(s for s, _ in pairs), " ".join(t for _, t in pairs))


@pytest.fixture(scope="module")
def sample():
    text = [Path(__file__).parents[1] / "data" / name for name in ("sample.en", "sample.fr")]
    return list(zip(*(path.read_text("utf-8").splitlines() for path in text), strict=True))


def test_joined_sentences_keep_their_links(sample):
    aligner = Aligner.load(installed_models()["en-fr"], backend="cpu", threads=1)
    pairs = sample * 3
    alone = set()
    src = tgt = 0
    for s, t in pairs:
        alone |= {(i + src, j + tgt) for i, j in aligner.align_pair(s, t)}
        src, tgt = src + len(s.split()), tgt + len(t.split())
    assert src > cuts.LONG
    together = set(joined(aligner, pairs))
    assert len(alone & together) > 0.95 * max(len(alone), len(together))


def test_a_higher_threshold_only_takes_links_away(sample):
    found = [
        set(
            joined(
                Aligner.load(installed_models()["en-fr"], backend="cpu", threshold=t), sample * 3
            )
        )
        for t in (0.05, 0.5, 0.9)
    ]
    assert found[2] <= found[1] < found[0]


def test_soft_is_about_the_same_parts_as_the_links(sample):
    aligner = Aligner.load(installed_models()["en-fr"], backend="cpu", nulls=True)
    pairs = sample * 3
    links = joined(aligner, pairs)
    soft = aligner.soft(links.src, links.tgt)
    for (i, j), score in zip(links.links, links.scores, strict=True):
        assert soft.scores[i, j] == pytest.approx(score, abs=1e-5)
    found = {(int(i), int(j)) for i, j in np.argwhere(soft.scores >= aligner.rule.threshold)}
    assert found == set(links)
    assert links.src_null == pytest.approx(soft.src_null.tolist(), abs=1e-5)


def test_long_pairs_with_an_empty_side_or_too_many_words_have_no_links(tmp_path):
    aligner = Aligner.load(write_toy(tmp_path / "toy.mx").path, backend="cpu")
    long = "ein Haus " * 50
    assert [len(a) for a in aligner.align([long, "", long], ["", long, "a " * 70000])] == [0, 0, 0]
