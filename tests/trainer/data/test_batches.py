"""Batches: every pair once an epoch, within the budget, the same again from any position."""

from itertools import islice

import numpy as np
import pytest
import torch

from ....engine.errors import MxError
from ....trainer.data import batches as data
from ....trainer.data.batches import (
    Batches,
    Position,
    evaluation_batches,
    group_by_length,
    prefetch_steps,
    shuffle_pool,
)
from ....trainer.data.teacher_links import TeacherLinks, write_links
from ....trainer.data.token_cache import TokenCache, build_token_cache


class Pieces:
    """Stands for a tokenizer: a word is a number, its piece that number, twice if it is odd."""

    vocab_size = 300

    def encode_many(self, sentences):
        from ....engine.types import Pieces as Result

        rows = [[(int(w), i) for i, w in enumerate(s) for _ in range(1 + int(w) % 2)]
                for s in sentences]  # fmt: skip
        flat = [pair for row in rows for pair in row]
        ends = np.cumsum([0, *(len(row) for row in rows)])
        return Result(
            np.array([p for p, _ in flat], np.int32),
            np.array([w for _, w in flat], np.int32),
            ends,
            np.array([len(s) for s in sentences], np.int32),
        )


OPTIONS = {"tokenizers": (Pieces(), Pieces()), "max_length": 50, "max_ratio": 9, "key": {}}


def make_cache(folder, n=700, seed=0):
    rng = np.random.default_rng(seed)
    pairs = []
    for k in range(n):
        words = [2 * (k % 128)] + [int(w) for w in rng.integers(0, 200, rng.integers(1, 12))]
        pairs.append((" ".join(map(str, words)), " ".join(map(str, words[::-1]))))
    build_token_cache(pairs, folder, **OPTIONS)
    return TokenCache.open(folder)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return make_cache(tmp_path_factory.mktemp("cache") / "train")


@pytest.fixture(autouse=True)
def small_pools(monkeypatch):
    monkeypatch.setattr(data, "BLOCK", 16)
    monkeypatch.setattr(data, "POOL", 10)


def stream(cache, budget=60, micro=1000, **options):
    return Batches(cache, seed=1, budget=lambda step: budget, micro=micro, **options)


def epoch(batches, number=0):
    """The indices and positions of one epoch's steps."""
    found = []
    for indices, _, after in batches.step_pairs(Position(number), 0):
        found.append((indices, after))
        following = shuffle_pool(len(batches.cache), 1, after.epoch, after.pool)
        if following is None:
            return found
    raise AssertionError


def test_an_epoch_has_every_pair_once_in_an_order_of_its_own(cache):
    epochs = [np.concatenate([i for i, _ in epoch(stream(cache), k)]) for k in (0, 1)]
    for indices in epochs:
        assert sorted(indices) == list(range(len(cache)))
    assert (epochs[0] != epochs[1]).any()


def test_steps_respect_the_budget_and_have_little_padding(cache):
    padded = real = 0
    for indices, _ in epoch(stream(cache)):
        src, tgt = cache.src.lengths(indices), cache.tgt.lengths(indices)
        longest = np.maximum(src, tgt)
        assert len(indices) * longest.max() <= 60 or len(indices) == 1
        padded, real = padded + len(indices) * longest.max(), real + longest.sum()
    assert real / padded > 0.9


def test_any_position_gives_the_same_rest(cache):
    batches = stream(cache, micro=30)
    whole = list(islice(batches.steps(Position(), 0), 120))
    for stop in (1, 37, 70, 111):
        rest = islice(batches.steps(whole[stop - 1].after, stop), 120 - stop)
        for one, other in zip(whole[stop:], rest, strict=True):
            assert one.after == other.after and one.totals == other.totals
            for a, b in zip(one.batches, other.batches, strict=True):
                assert a.src.equal(b.src) and a.tgt.equal(b.tgt)


def test_a_growing_budget_is_a_function_of_the_position_too(cache):
    batches = Batches(cache, seed=1, budget=lambda step: 30 + step, micro=1000)
    whole = list(islice(batches.steps(Position(), 0), 150))
    sizes = [len(step.batches[0].src) for step in whole]
    assert np.mean(sizes[100:]) > 1.3 * np.mean(sizes[:40])
    rest = islice(batches.steps(whole[89].after, 90), 60)
    assert all(a.after == b.after for a, b in zip(whole[90:], rest, strict=True))


@pytest.mark.parametrize("budget", [20, 10_000])
def test_a_pool_is_finished_as_it_was_grouped_when_the_budget_changes(cache, budget):
    before = list(islice(stream(cache, budget=60).step_pairs(Position(), 0), 40))
    rest = stream(cache, budget=budget).step_pairs(before[19][2], 20)
    for (indices, _, after), (others, _, other_after) in zip(before[20:], rest, strict=False):
        if after.pool > before[19][2].pool or after.epoch:
            return
        assert indices.tolist() == others.tolist() and after == other_after
    assert next(rest)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("micro", [20, 1000])
def test_devices_share_each_step_without_duplicates(cache, world, micro):
    everyone = [stream(cache, micro=micro, rank=r, world=world) for r in range(world)]
    seen: list[tuple[int, ...]] = []
    n_steps = len(epoch(everyone[0]))
    for steps in islice(
        zip(*(b.steps(Position(), 0) for b in everyone), strict=True), n_steps
    ):  # fmt: skip
        assert len({step.after for step in steps}) == 1 and len({s.totals for s in steps}) == 1
        assert len({len(step.batches) for step in steps}) == 1
        rows = [
            tuple(row[:n].tolist())
            for step in steps
            for batch in step.batches
            for row, n in zip(batch.src, batch.src_lengths.tolist(), strict=True)
        ]
        assert all(len(batch.src) for step in steps for batch in step.batches)
        assert sum(len(row) for row in rows) == steps[0].totals.src_pieces
        seen += rows
    wanted = sorted(tuple(cache.src.pieces(i).tolist()) for i in range(len(cache)))
    assert sorted(seen) == wanted


def test_a_pool_too_small_to_share_is_passed_over(tmp_path):
    cache = make_cache(tmp_path / "c", n=161)  # 160 pairs in a pool, then one
    batches = stream(cache, world=2)
    indices = [
        i for i, _, after in islice(batches.step_pairs(Position(), 0), 200) if after.epoch == 0
    ]
    assert min(map(len, indices)) >= 2
    with pytest.raises(MxError, match="shared by"):
        stream(make_cache(tmp_path / "d", n=1), world=2)


def test_micro_batches_make_up_the_step(cache):
    whole = next(stream(cache, budget=300).steps(Position(), 0))
    parts = next(stream(cache, budget=300, micro=40).steps(Position(), 0))
    assert whole.totals == parts.totals and len(whole.batches) == 1 and len(parts.batches) > 3
    assert sum(len(b.src) for b in parts.batches) == len(whole.batches[0].src)
    assert max(b.src.shape[0] * max(b.src.shape[1], b.tgt.shape[1]) for b in parts.batches) <= 60


def test_groups_have_all_rows_and_a_small_rest_joins_the_last():
    lengths = np.array([9, 1, 5, 2, 8, 8, 3])
    groups = group_by_length(lengths, lengths[::-1].copy(), 16, least=2)
    assert sorted(np.concatenate(groups)) == list(range(7))
    assert min(map(len, groups)) >= 2


def test_evaluation_sees_every_pair(cache):
    found = evaluation_batches(cache, 100, torch.device("cpu"))
    assert sum(len(batch.src) for batch in found) == len(cache)


@pytest.fixture
def taught(tmp_path):
    """Two pairs with links: pieces "1 1 2 3 3" and "4 5 5", then "7 7 8" and "9 9 11 11 2"."""
    build_token_cache([("1 2 3", "4 5"), ("7 8", "9 11 2")], tmp_path / "c", **OPTIONS)
    write_links(tmp_path / "links", [[(0, 1, 1.0), (2, 0, 0.5)], [(1, 2, 1.0)]])
    return TokenCache.open(tmp_path / "c"), TeacherLinks(tmp_path / "links")


def test_links_fall_on_the_pieces_of_their_words(taught):
    cache, links = taught
    wanted = np.zeros((2, 5, 5))
    wanted[0, 4, 2] = 1
    wanted[1, 1:3, 0:2] = 1
    wanted[1, 0, 3:5] = 0.5
    assert links.cells(cache, np.array([1, 0])) == pytest.approx(wanted, abs=1e-5)
    assert list(links.iterate_pairs()) == [
        [(0, 1, 1.0), (2, 0, pytest.approx(0.5, abs=1e-5))], [(1, 2, 1.0)],
    ]  # fmt: skip


def test_joined_pairs_are_one_row_with_the_links_of_both(taught):
    cache, links = taught
    indices = np.array([0, 1, 0])
    assert cache.src.padded_pieces(indices, 2)[0].tolist() == [
        [1, 1, 2, 3, 3, 7, 7, 8], [1, 1, 2, 3, 3, 0, 0, 0],
    ]  # fmt: skip
    assert cache.tgt.padded_words(indices, 2).tolist() == [
        [0, 1, 1, 2, 2, 3, 3, 4], [0, 1, 1, -1, -1, -1, -1, -1],
    ]  # fmt: skip
    alone = links.cells(cache, np.array([0, 1]))
    joined = links.cells(cache, indices, 2)
    assert (joined[0, :3, :5] == alone[0, :3, :5]).all()
    assert (joined[0, 3:, 5:] == alone[1, :5, :3]).all()
    assert not joined[0, 3:, :5].any() and not joined[0, :3, 5:].any()
    assert (joined[1, :3, :5] == alone[0, :3, :5]).all()


def test_joining_keeps_every_pair_once_and_lines_short_enough(cache):
    batches = stream(cache, joins=0.5, longest=40)
    groups = epoch(batches)
    assert sorted(np.concatenate([indices for indices, _ in groups])) == list(range(len(cache)))
    joined = [flag for _, flag, _ in islice(batches.step_pairs(Position(), 0), len(groups))]
    assert 0.3 < np.mean(joined) < 0.7
    sizes = []
    for flag, step in zip(joined, batches.steps(Position(), 0), strict=False):
        (batch,) = step.batches
        assert batch.src_lengths.sum() == step.totals.src_pieces
        assert step.totals.cells == int((batch.src_lengths * batch.tgt_lengths).sum())
        if flag:
            sizes.append(float(batch.src_lengths.float().mean()))
    mean = cache.src.lengths(np.arange(len(cache))).mean()
    assert 1.5 * mean < np.mean(sizes) < 40


def test_going_on_in_the_middle_of_joined_steps(cache):
    batches = stream(cache, joins=0.5, longest=40)
    whole = list(islice(batches.steps(Position(), 0), 40))
    rest = list(islice(batches.steps(whole[16].after, 17), 23))
    for one, other in zip(whole[17:], rest, strict=True):
        assert torch.equal(one.batches[0].src, other.batches[0].src)


def test_no_links_at_all(tmp_path, cache):
    write_links(tmp_path, [[] for _ in range(len(cache))])
    assert not TeacherLinks(tmp_path).cells(cache, np.arange(5)).any()


def test_prefetch_gives_the_same_and_passes_errors_on():
    def numbers():
        yield from range(10)
        raise MxError("broken")

    made = prefetch_steps(numbers())
    assert list(islice(made, 10)) == list(range(10))
    with pytest.raises(MxError, match="broken"):
        next(made)


def test_prefetch_stops_its_thread():
    import itertools
    import threading

    made = prefetch_steps(itertools.count())
    next(made)
    before = threading.active_count()
    made.close()
    assert threading.active_count() == before - 1
