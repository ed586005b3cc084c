"""Token caches into batches: order of the pairs, token budgets, shares of devices, links.

The order is a function of the seed and a `Position` alone, so a run continues where it stopped.
Reading and tokenising text is left to `corpus.py`, tensors to `model.py`.
"""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...engine.errors import MxError
from ..networks.losses import Totals
from .token_cache import Side, TokenCache

BLOCK = 256  # neighbouring pairs that stay together when blocks are shuffled: sequential reads
JOIN = 16  # pairs in a row at most
POOL = 128  # blocks whose pairs are shuffled and sorted by length together


@dataclass(frozen=True)
class Position:
    """Where a run stands in its data: `batch` batches into a pool that was cut with `budget`."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0
    budget: int = 0  # pieces per step; 0: the pool is not opened yet


@dataclass(frozen=True)
class Batch:
    """Padded pieces of some pairs; `links` (B, T, S) is how sure each cell's link is, or 0."""

    src: Tensor
    src_lengths: Tensor
    tgt: Tensor
    tgt_lengths: Tensor
    links: Tensor | None = None

    def to(self, device: torch.device) -> "Batch":
        def move(part: Tensor) -> Tensor:
            return part.to(device, non_blocking=True)

        src, src_lengths = move(self.src), move(self.src_lengths)
        tgt, tgt_lengths = move(self.tgt), move(self.tgt_lengths)
        links = None if self.links is None else move(self.links)
        return Batch(src, src_lengths, tgt, tgt_lengths, links)


@dataclass(frozen=True)
class Step:
    """One optimizer step of this device: its micro-batches, the whole step's sums, what is next."""

    batches: list[Batch]
    totals: Totals
    after: Position


class TeacherLinks:
    """Word links of the cached pairs and how sure they are, mapped from disk."""

    def __init__(self, folder: Path) -> None:
        self.offsets = np.memmap(folder / "offsets.bin", "<i8", "r")
        full = self.offsets[-1] > 0  # an empty file cannot be mapped
        links = np.memmap(folder / "links.bin", "<u2", "r") if full else np.zeros(0, "<u2")
        self.links = links.reshape(-1, 3)  # source word, target word, 65535 times its weight

    def cells(self, cache: TokenCache, indices: np.ndarray, join: int = 1) -> np.ndarray:
        """(B, T, S) float32: the weight of the link between the words of two pieces, or 0."""
        src, tgt = (side.word_ids_padded(indices, join) for side in (cache.src, cache.tgt))
        counts = self.offsets[indices + 1] - self.offsets[indices]
        places = np.concatenate([np.arange(self.offsets[i], self.offsets[i + 1]) for i in indices])
        links = self.links[places.astype(np.int64)].astype(np.int64)
        pair = np.repeat(np.arange(len(indices)), counts)
        if join > 1:
            links[:, 0] += words_before(cache.src, indices, join)[pair]
            links[:, 1] += words_before(cache.tgt, indices, join)[pair]
        # One more row and column, never linked, is what padding (word -1) falls on.
        words = np.zeros((len(src), int(tgt.max()) + 2, int(src.max()) + 2), np.float32)
        words[pair // join, links[:, 1], links[:, 0]] = links[:, 2] / np.float32(65535)
        return words[np.arange(len(src))[:, None, None], tgt[:, :, None], src[:, None, :]]

    def of_pairs(self) -> Iterator[list[tuple[int, int, float]]]:
        """The links of each pair, in order."""
        for start, end in pairwise(self.offsets):
            yield [(int(i), int(j), int(w) / 65535) for i, j, w in self.links[start:end]]


def words_before(side: Side, indices: np.ndarray, join: int) -> np.ndarray:
    """How many words of its row come before each sentence, if `join` make a row."""
    words = side.word_ids_padded(indices).max(1) + 1
    before = np.cumsum(words) - words
    return before - np.repeat(before[::join], join)[: len(before)]


def order(n: int, seed: int, epoch: int, pool: int) -> np.ndarray | None:
    """The pairs of a pool, shuffled; None past the epoch's last pool.

    Blocks are shuffled first, so memory does not grow with the corpus and reads stay local.
    """
    blocks = np.random.default_rng([seed, epoch]).permutation(-(-n // BLOCK))
    mine = blocks[pool * POOL : (pool + 1) * POOL]
    if not len(mine):
        return None
    pairs = (mine[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    pairs = pairs[pairs < n]
    return np.random.default_rng([seed, epoch, pool]).permutation(pairs)


def cut(
    src_lengths: np.ndarray, tgt_lengths: np.ndarray, budget: int, least: int = 1
) -> list[np.ndarray]:
    """Rows grouped by length, each group at most `budget` padded pieces of the longer side.

    A group has at least `least` rows, even where that takes more pieces.
    """
    longest = np.maximum(src_lengths, tgt_lengths)
    rows = np.lexsort((src_lengths, tgt_lengths, longest))
    groups, start = [], 0
    for end, length in enumerate(longest[rows].tolist()):
        if (end - start + 1) * length > budget and end - start >= least:
            groups.append(rows[start:end])
            start = end
    groups.append(rows[start:])
    if len(groups) > 1 and len(groups[-1]) < least:
        groups[-2:] = [np.concatenate(groups[-2:])]
    return groups


def cut_freely(longest: np.ndarray, budget: int, least: int = 1) -> list[np.ndarray]:
    """Rows in the order they have, each group with about `budget` pieces without padding."""
    groups, start, total = [], 0, 0
    for end, length in enumerate(longest.tolist()):
        if total + length > budget and end - start >= least:
            groups.append(np.arange(start, end))
            start, total = end, 0
        total += length
    groups.append(np.arange(start, len(longest)))
    if len(groups) > 1 and len(groups[-1]) < least:
        groups[-2:] = [np.concatenate(groups[-2:])]
    return groups


class Batches:
    """An endless stream of steps over a cache, for device `rank` of `world`.

    A share `joins` of the pairs goes into steps of long lines, made of several pairs each.
    """

    def __init__(
        self,
        cache: TokenCache,
        *,
        seed: int,
        budget: Callable[[int], int],
        micro: int,
        rank: int = 0,
        world: int = 1,
        links: TeacherLinks | None = None,
        want_links: Callable[[int], bool] = lambda step: False,
        joins: float = 0.0,
        longest: int = 0,
    ) -> None:
        if len(cache) < world:
            raise MxError(f"{len(cache)} pairs cannot be shared by {world} processes")
        self.cache, self.seed, self.budget, self.micro = cache, seed, budget, micro
        self.rank, self.world = rank, world
        self.links, self.want_links = links, want_links
        self.joins, self.longest = joins, longest

    def indices(self, position: Position, step: int) -> Iterator[tuple[np.ndarray, bool, Position]]:
        """The pairs of each step from `position` on, all devices together, whether they are to be
        joined, and what comes next."""
        n = len(self.cache)
        while True:
            pool = order(n, self.seed, position.epoch, position.pool)
            if pool is None:
                position = Position(position.epoch + 1)
                continue
            if not position.budget:
                position = replace(position, budget=self.budget(step))
            groups = self.groups(pool, position)
            following = Position(position.epoch, position.pool + 1)
            for batch in range(position.batch, len(groups)):
                step += 1
                more = batch + 1 < len(groups)
                after = replace(position, batch=batch + 1) if more else following
                yield *groups[batch], after
            position = following

    def groups(self, pool: np.ndarray, position: Position) -> list[tuple[np.ndarray, bool]]:
        """The pool as groups of pairs for a step each, and whether they are to be joined.

        A last pool smaller than the world cannot be shared out: it is passed over.
        """
        n_joined = round(self.joins * len(pool))  # the pool is in random order already
        groups: list[tuple[np.ndarray, bool]] = []
        for part, joined in ((pool[n_joined:], False), (pool[:n_joined], True)):
            if len(part) < self.world:
                continue
            lengths = self.cache.src.lengths(part), self.cache.tgt.lengths(part)
            if joined:  # of all lengths, so that lines drift off the diagonal as real ones do
                found = cut_freely(np.maximum(*lengths), position.budget, self.world)
            else:
                found = cut(*lengths, position.budget, self.world)
            groups += [(part[group], joined) for group in found]
        rng = np.random.default_rng([self.seed, position.epoch, position.pool, 1])
        rng.shuffle(groups)  # type: ignore[arg-type]
        return groups

    def steps(self, position: Position, step: int) -> Iterator[Step]:
        """This device's share of each step; `step` optimizer steps are done already."""
        for indices, joined, after in self.indices(position, step):
            src, tgt = self.cache.src.lengths(indices), self.cache.tgt.lengths(indices)
            longest = np.maximum(src, tgt)
            padded = int(longest.sum() if joined else len(indices) * longest.max())
            parts = -(-padded // (self.micro * self.world))
            parts = max(1, min(parts, len(indices) // self.world)) * self.world
            join = self.join(step, float(longest.mean())) if joined else 1
            mine = [
                self.batch(indices[k::parts], step, join)
                for k in range(self.rank, parts, self.world)
            ]
            cells = sum(
                int(rows(src[k::parts], join) @ rows(tgt[k::parts], join)) for k in range(parts)
            )
            yield Step(mine, Totals(int(src.sum()), int(tgt.sum()), cells), after)
            step += 1

    def join(self, step: int, mean: float) -> int:
        """How many pairs of so many pieces on average make a row."""
        rng = np.random.default_rng([self.seed, step, 2])
        return max(1, min(int(rng.integers(2, JOIN + 1)), int(self.longest / mean)))

    def batch(self, indices: np.ndarray, step: int = 0, join: int = 1) -> Batch:
        (src, src_lengths), (tgt, tgt_lengths) = (
            map(torch.from_numpy, side.padded(indices, join))
            for side in (self.cache.src, self.cache.tgt)
        )
        links = None
        if self.links is not None and self.want_links(step):
            links = torch.from_numpy(self.links.cells(self.cache, indices, join))
        return Batch(src, src_lengths, tgt, tgt_lengths, links)


def rows(lengths: np.ndarray, join: int) -> np.ndarray:
    """The lengths of rows of `join` sentences each."""
    return np.add.reduceat(lengths, np.arange(0, len(lengths), join))


def evaluation_batches(
    cache: TokenCache, budget: int, links: TeacherLinks | None = None
) -> Iterator[Batch]:
    """Every pair once, in groups of similar length."""
    every = np.arange(len(cache))
    batches = Batches(
        cache, seed=0, budget=lambda step: budget, micro=budget, links=links,
        want_links=lambda step: True,
    )  # fmt: skip
    for group in cut(cache.src.lengths(every), cache.tgt.lengths(every), budget):
        yield batches.batch(group)


def prefetch(steps: Iterator[Step], depth: int = 4) -> Generator[Step, None, None]:
    """The same steps, prepared by a thread while the network computes."""
    ready: queue.Queue[Step | BaseException] = queue.Queue(depth)
    stop = threading.Event()

    def put(item: Step | BaseException) -> None:
        while not stop.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for step in steps:
                put(step)
                if stop.is_set():
                    return
        except BaseException as error:  # the consumer raises it
            put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()
