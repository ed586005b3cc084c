"""Makes batches of token caches: order of the pairs, token budgets, shares of devices, links.

The order is a function of the random seed and a `Position` alone, so a run goes on where it
stopped. Does not read or tokenise text.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...engine.errors import MxError
from .teacher_links import TeacherLinks
from .token_cache import TokenCache

BLOCK = 256  # neighbouring pairs that stay together when blocks are shuffled: sequential reads
# Blocks whose pairs are shuffled and sorted by length together: with 32,768 pairs some 2 % of a
# batch is padding, in random order it would be half (counted over 600 En-Fr batches).
POOL = 128
JOIN = 16  # pairs in a row at most; judged, not measured


@dataclass(frozen=True)
class Position:
    """Where a run stands in its data: `batch` steps into a pool that was grouped by `budget`."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0
    budget: int = 0  # pieces per step; 0: the pool is not grouped yet


@dataclass(frozen=True)
class TrainingBatch:
    """Padded pieces of some pairs; `links` (B, T, S) is how sure each cell's link is, or 0."""

    src: Tensor
    src_lengths: Tensor
    tgt: Tensor
    tgt_lengths: Tensor
    links: Tensor | None = None

    def to(self, device: torch.device) -> "TrainingBatch":
        """Move all tensors to a device."""
        parts = {k: t.to(device, non_blocking=True) for k, t in vars(self).items() if t is not None}
        return TrainingBatch(**parts)


@dataclass(frozen=True)
class Totals:
    """What the sums of a whole step, on all devices, are divided by."""

    src_pieces: int
    tgt_pieces: int
    cells: int  # pairs of pieces, Σ S·T


@dataclass(frozen=True)
class Step:
    """One optimizer step of this device: its micro-batches, and where the data stands after it."""

    batches: list[TrainingBatch]
    totals: Totals
    after: Position


def shuffle_pool(n: int, seed: int, epoch: int, pool: int) -> np.ndarray | None:
    """Return the pairs of a pool in random order; None past the epoch's last pool.

    Whole blocks are shuffled first, then the pairs of POOL blocks: memory does not grow with the
    corpus and reads stay local. With BLOCK 2 and POOL 2, pairs 0 to 7 might become
    45 01 | 23 67 and then 1405 | 7236.
    """
    blocks = np.random.default_rng([seed, epoch]).permutation(-(-n // BLOCK))
    mine = blocks[pool * POOL : (pool + 1) * POOL]
    if not len(mine):
        return None
    pairs = (mine[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    pairs = pairs[pairs < n]
    return np.random.default_rng([seed, epoch, pool]).permutation(pairs)


def group_by_length(
    src_lengths: np.ndarray, tgt_lengths: np.ndarray, budget: int, least: int = 1
) -> list[np.ndarray]:
    """Group rows of similar length, each group at most `budget` padded pieces of the longer side.

    A group has at least `least` rows, even where that takes more pieces.
    """
    longest = np.maximum(src_lengths, tgt_lengths)
    # By the longer side first, which decides the cost; the others keep equal shapes together.
    rows = np.lexsort((src_lengths, tgt_lengths, longest))
    return [rows[group] for group in group_in_order(longest[rows], budget, least, padded=True)]


def group_in_order(
    longest: np.ndarray, budget: int, least: int = 1, *, padded: bool = False
) -> list[np.ndarray]:
    """Group rows in the order they have, each group with about `budget` pieces.

    With `padded` rows are sorted by length, and a row costs as much as the longest of its group.
    """
    starts, total = [0], 0
    for row, length in enumerate(longest.tolist()):
        before = row - starts[-1]
        total = (before + 1) * length if padded else total + length
        if total > budget and before >= least:
            starts.append(row)
            total = length
    # A rest of fewer than `least` rows, one for each device, goes to the group before it.
    if len(starts) > 1 and len(longest) - starts[-1] < least:
        starts.pop()
    return np.split(np.arange(len(longest)), starts[1:])


def make_batch(
    cache: TokenCache, indices: np.ndarray, links: TeacherLinks | None = None, join: int = 1
) -> TrainingBatch:
    """Pad the pairs of these numbers, `join` of them in each row."""
    (src, src_lengths), (tgt, tgt_lengths) = (
        map(torch.from_numpy, side.padded_pieces(indices, join)) for side in (cache.src, cache.tgt)
    )
    cells = None if links is None else torch.from_numpy(links.cells(cache, indices, join))
    return TrainingBatch(src, src_lengths, tgt, tgt_lengths, cells)


def evaluation_batches(
    cache: TokenCache, budget: int, device: torch.device, links: TeacherLinks | None = None
) -> Iterator[TrainingBatch]:
    """Yield every pair once, in groups of similar length."""
    every = np.arange(len(cache))
    for group in group_by_length(cache.src.lengths(every), cache.tgt.lengths(every), budget):
        yield make_batch(cache, group, links).to(device)


@dataclass(frozen=True)
class Batches:
    """An endless stream of steps over a cache, for device `rank` of `world`.

    `budget` and `want_links` are schedules: the pieces of a step, and whether it is given links.
    A share `joins` of the pairs goes into steps of long lines, made of several pairs each, with
    about `longest` pieces at most.
    """

    cache: TokenCache
    seed: int
    budget: Callable[[int], int]
    micro: int  # pieces of a micro-batch
    rank: int = 0
    world: int = 1
    links: TeacherLinks | None = None
    want_links: Callable[[int], bool] = lambda step: False
    joins: float = 0.0
    longest: int = 0

    def __post_init__(self) -> None:
        if len(self.cache) < self.world:
            raise MxError(f"{len(self.cache)} pairs cannot be shared by {self.world} processes")

    def steps(self, position: Position, step: int) -> Iterator[Step]:
        """Yield this device's share of each step; `step` optimizer steps are done already."""
        for indices, joined, after in self.step_pairs(position, step):
            src, tgt = self.cache.src.lengths(indices), self.cache.tgt.lengths(indices)
            longest = np.maximum(src, tgt)
            padded = int(longest.sum() if joined else len(indices) * longest.max())
            # As many parts for each device, and in each part every n-th pair: all are of a size.
            parts = -(-padded // (self.micro * self.world))
            parts = max(1, min(parts, len(indices) // self.world)) * self.world
            join = self.choose_join(step, float(longest.mean())) if joined else 1
            links = self.links if self.want_links(step) else None
            mine = [
                make_batch(self.cache, indices[k::parts], links, join)
                for k in range(self.rank, parts, self.world)
            ]
            cells = sum(
                int(row_lengths(src[k::parts], join) @ row_lengths(tgt[k::parts], join))
                for k in range(parts)
            )
            yield Step(mine, Totals(int(src.sum()), int(tgt.sum()), cells), after)
            step += 1

    def step_pairs(
        self, position: Position, step: int
    ) -> Iterator[tuple[np.ndarray, bool, Position]]:
        """Yield for each step from `position` on the pairs of all devices, whether they are to be
        joined, and the position after it."""
        n = len(self.cache)
        while True:
            pool = shuffle_pool(n, self.seed, position.epoch, position.pool)
            if pool is None:
                position = Position(position.epoch + 1)
                continue
            # A pool keeps the budget it was grouped by, so that a resumed run with another one, or
            # a budget that grows, finds the same steps behind the same position.
            if not position.budget:
                position = replace(position, budget=self.budget(step))
            groups = self.group_pool(pool, position)
            following = Position(position.epoch, position.pool + 1)
            for batch in range(position.batch, len(groups)):
                step += 1
                more = batch + 1 < len(groups)
                after = replace(position, batch=batch + 1) if more else following
                yield *groups[batch], after
            position = following

    def group_pool(self, pool: np.ndarray, position: Position) -> list[tuple[np.ndarray, bool]]:
        """Divide a pool into the pairs of each step, and say which are to be joined.

        A last pool smaller than the world cannot be shared out: it is passed over.
        """
        n_joined = round(self.joins * len(pool))  # the pool is in random order already
        groups: list[tuple[np.ndarray, bool]] = []
        for part, joined in ((pool[n_joined:], False), (pool[:n_joined], True)):
            if len(part) < self.world:
                continue
            lengths = self.cache.src.lengths(part), self.cache.tgt.lengths(part)
            if joined:  # of all lengths, so that lines drift off the diagonal as real ones do
                found = group_in_order(np.maximum(*lengths), position.budget, self.world)
            else:
                found = group_by_length(*lengths, position.budget, self.world)
            groups += [(part[group], joined) for group in found]
        # The groups are sorted by length; steps of one length must not follow each other.
        rng = np.random.default_rng([self.seed, position.epoch, position.pool, 1])
        rng.shuffle(groups)  # type: ignore[arg-type]
        return groups

    def choose_join(self, step: int, mean: float) -> int:
        """Draw how many pairs, of `mean` pieces on average, make a row."""
        rng = np.random.default_rng([self.seed, step, 2])
        return max(1, min(int(rng.integers(2, JOIN + 1)), int(self.longest / mean)))


def row_lengths(lengths: np.ndarray, join: int) -> np.ndarray:
    """Add up the lengths of `join` sentences at a time: 3 1 4 1 5 by two are 4 5 5."""
    return np.add.reduceat(lengths, np.arange(0, len(lengths), join))


def prefetch_steps(steps: Iterator[Step], depth: int = 4) -> Generator[Step, None, None]:
    """Yield the steps of an endless stream, which a thread prepares while the network computes."""
    thread = ThreadPoolExecutor(1)
    try:
        ready = deque(thread.submit(next, steps) for _ in range(depth))
        while True:
            step = ready.popleft().result()
            ready.append(thread.submit(next, steps))
            yield step
    finally:
        thread.shutdown(cancel_futures=True)
