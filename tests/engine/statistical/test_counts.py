"""Learning shared by machines, and learning that begins with what other text has taught."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ....engine.errors import InputError
from ....engine.statistical.aligner import StatisticalAligner
from ....engine.statistical.counts import ExpectedCounts
from ....engine.statistical.learning import count_links
from ....engine.statistical.model_file import load_counts, save_counts
from ....engine.types import Pairs
from ...support.made_up_language import make_corpus, measure_f1


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(300, random_seed=7)


@pytest.fixture(scope="module")
def start(corpus) -> StatisticalAligner:
    """An aligner that has learned from every fifth pair alone."""
    return StatisticalAligner.learn(corpus[0][::5], corpus[1][::5])


def count_pairs(start: StatisticalAligner, corpus, rows: slice) -> ExpectedCounts:
    return count_links(start.model, [Pairs(0, corpus[0][rows], corpus[1][rows])])


def link_sets(aligner: StatisticalAligner, src, tgt) -> list[set[tuple[int, int]]]:
    return [set(alignment.links) for alignment in aligner.align(src, tgt)]


def test_counts_of_parts_give_the_links_of_the_whole(corpus, start, tmp_path):
    src, tgt, gold = corpus
    whole = start.learn_counts(count_pairs(start, corpus, slice(None)))
    for n, part in enumerate((slice(0, 130), slice(130, 140), slice(140, None))):
        save_counts(count_pairs(start, corpus, part), tmp_path / f"{n}.npz")
    # Added up in any order.
    parts = [load_counts(tmp_path / f"{n}.npz") for n in (2, 0, 1)]
    merged = start.learn_counts(parts[0] + parts[1] + parts[2])
    for one, other in zip(whole.align(src, tgt), merged.align(src, tgt), strict=True):
        assert one.links == other.links
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)
    assert merged.model.n_learned == 300
    assert measure_f1(link_sets(merged, src, tgt), gold) > 0.98


def test_what_was_saved_is_what_was_counted(corpus, start, tmp_path):
    counts = count_pairs(start, corpus, slice(0, 50))
    save_counts(counts, tmp_path / "counts.npz")
    again = load_counts(tmp_path / "counts.npz")
    assert (again.src_words, again.tgt_words) == (counts.src_words, counts.tgt_words)
    assert (again.n_pairs, again.digest) == (50, start.model.digest)
    for name in ("src_occurrences", "tgt_occurrences", "keys", "counts"):
        assert (getattr(again, name) == getattr(counts, name)).all()
    for found, kept in zip(counts.moves, again.moves, strict=True):
        assert all((vars(found)[name] == vars(kept)[name]).all() for name in vars(found))


def test_counts_of_other_models_and_of_nothing_are_refused(corpus, start):
    other = StatisticalAligner.learn(corpus[0][:20], corpus[1][:20])
    mine, others = (count_pairs(one, corpus, slice(0, 9)) for one in (start, other))
    with pytest.raises(InputError, match="count all parts with one model"):
        _ = mine + others
    with pytest.raises(InputError, match="count again with this one"):
        start.learn_counts(others)
    with pytest.raises(InputError, match="of no pairs"):
        start.learn_counts(count_links(start.model, [Pairs(0, [[], ["a"]], [["b"], []])]))


@pytest.mark.parametrize(
    ("name", "values", "complaint"),
    [
        ("pair_expected", np.array([np.nan]), "miscounted|impossible"),
        ("src_seen", np.array([1]), "words are miscounted"),
        ("fwd_jump", np.ones(3), "moves are miscounted"),
        ("bwd_end", -np.ones(9), "moves have impossible counts"),
    ],
)
def test_impossible_counts_are_refused(corpus, start, tmp_path, name, values, complaint):
    from ....engine.statistical import model_file

    path = tmp_path / "counts.npz"
    save_counts(count_pairs(start, corpus, slice(0, 9)), path)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays.pop("header").tobytes())
    arrays[name] = values.astype(arrays[name].dtype)
    header["sha256"] = model_file._hash_arrays(arrays, model_file._COUNT_TYPES)
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    with pytest.raises(InputError, match=f"is not a file of counts .*({complaint}).*count again"):
        load_counts(path)


def test_a_model_is_no_file_of_counts(start, tmp_path):
    start.save(tmp_path / "model.npz")
    with pytest.raises(InputError, match="is not a file of counts"):
        load_counts(tmp_path / "model.npz")


def test_priors_help_a_text_too_small_to_learn_from(corpus):
    src, tgt, gold = make_corpus(12, random_seed=11)
    alone = StatisticalAligner.learn(src, tgt)
    taught = StatisticalAligner.learn(
        src, tgt, priors=StatisticalAligner.learn(corpus[0], corpus[1])
    )
    before, after = (measure_f1(link_sets(one, src, tgt), gold) for one in (alone, taught))
    assert after > 0.97 and after > before + 0.05


def test_a_text_corrects_its_priors():
    """What the new text says often wins over what the old text said."""
    old = StatisticalAligner.learn(
        [["house"], ["tree"], ["a", "house"], ["a", "tree"]] * 5,
        [["tree_"], ["house_"], ["a_", "tree_"], ["a_", "house_"]] * 5,
        cognate_weight=0.0,
    )
    src, tgt = [["house", "tree"]] * 3, [["tree_", "house_"]] * 3
    assert old.align_pair(src[0], tgt[0]).links == [(0, 0), (1, 1)]
    many_src = [["house"], ["tree"], ["a", "house"], ["a", "tree"]] * 200
    many_tgt = [["house_"], ["tree_"], ["a_", "house_"], ["a_", "tree_"]] * 200
    new = StatisticalAligner.learn(many_src, many_tgt, priors=old, cognate_weight=0.0)
    assert new.align_pair(src[0], tgt[0]).links == [(0, 1), (1, 0)]
