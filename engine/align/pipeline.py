"""Turn chunks of pairs into rendered results, in order, with every core busy.

Knows threads and queues, and in which order the steps of a chunk follow each other. Does not know
how batches are computed or links are found (`batching`, the backend, `decoding`, `long_pairs`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..runtime.backends import Backend
from ..text.pieces import PieceTokenizer
from ..types import Counts, LinkChange, Pairs, Renderer, Units
from . import long_pairs
from .batching import (
    PlannedBatch,
    find_too_long,
    find_word_ids,
    pack_batch,
    plan_batches,
    plan_parts,
    plan_units,
)
from .decoding import BatchLinks, LinkRule, find_piece_links, link_words, unpack_links

# Chunks in memory: one is read, one computed, one written.
_MAX_CHUNKS = 3


@dataclass(frozen=True)
class Recipe:
    """Everything that turns words into items."""

    backend: Backend
    tokenizers: tuple[PieceTokenizer, PieceTokenizer]
    max_length: int
    rule: LinkRule
    look_rule: LinkRule  # that finds the links by which long pairs are split
    renderers: Sequence[Renderer]
    batch_tokens: int
    swapped: bool = False  # the model's source is the pairs' target
    change: LinkChange | None = None


@dataclass(frozen=True)
class FinishedChunk:
    """What became of a chunk: for each renderer the items of all its pairs, in order."""

    pairs: Pairs
    items: list[list[Any]]
    counts: Counts


# ---- one chunk ----


class ChunkWork:
    """A chunk while it is computed. `prepare` is called once, `run` once per batch, in any thread.

    Long pairs are looked at first. The last batch of these looks splits the pairs and asks for
    batches of their parts; parts of very long pairs are looked at again. The very last batch turns
    all that was found in `units` into the `result`.
    """

    def __init__(self, recipe: Recipe, pairs: Pairs) -> None:
        self.recipe = recipe
        self.pairs = pairs
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._links: list[BatchLinks] = []
        self._look_links: list[BatchLinks] = []

    def prepare(self) -> list[PlannedBatch]:
        """Encode and plan; return the batches that must be run."""
        self._words = self.pairs.src, self.pairs.tgt
        if self.recipe.swapped:
            self._words = self.pairs.tgt, self.pairs.src
        both = zip(self.recipe.tokenizers, self._words, strict=True)
        self.src, self.tgt = (tokenizer.encode_many(words) for tokenizer, words in both)
        lengths = np.diff(self.src.offsets), np.diff(self.tgt.offsets)
        self._empty = np.minimum(*lengths) == 0
        self._too_long = find_too_long(*lengths)
        units = plan_units(*lengths, self.recipe.max_length)
        self._n_windowed = len(np.unique(units.pair[units.window]))
        self._looks_left = long_pairs.count_looks(*self._words, self.src, self.tgt)  # (pairs,)
        long = self._looks_left[units.pair] > 0
        self._looked_at = np.unique(units.pair[long])
        self.units = [units.select(~long)]
        looks = self._plan_batches(units.select(long), look=True)
        planned = looks + self._plan_batches(self.units[0])
        self._open_looks, self._open_batches = len(looks), len(planned)
        if not planned:
            self._finish()
        return planned

    def run(self, planned: PlannedBatch) -> list[PlannedBatch]:
        """Compute one batch; return what must be run because of it."""
        look = planned.look
        links = self._find_links(planned, self.recipe.look_rule if look else self.recipe.rule)
        # Counters change under the lock, the work between them does not hold it: another thread's
        # batch must not end the chunk while this one plans more.
        with self._lock:
            (self._look_links if look else self._links).append(links)
            self._open_looks -= look
            all_seen = look and not self._open_looks
        more = self._split_long_pairs() if all_seen else []
        with self._lock:
            self._open_looks += sum(one.look for one in more)
            self._open_batches += len(more) - 1
            last = not self._open_batches
        if last:
            self._finish()
        return more

    def _plan_batches(self, units: Units, look: bool = False) -> list[PlannedBatch]:
        return plan_batches(units, self.recipe.batch_tokens, self.recipe.backend.grain, look)

    def _find_links(self, planned: PlannedBatch, rule: LinkRule) -> BatchLinks:
        backend = self.recipe.backend
        batch = pack_batch(planned, self.src, self.tgt)
        if backend.finds_links and rule.outputs == ("scores",) and rule.threshold is not None:
            words = find_word_ids(planned, self.src, self.tgt)
            return unpack_links(backend.links(batch, words, rule.threshold), planned.units)
        return find_piece_links(rule, backend.run(batch, rule.outputs), planned.units)

    def _split_long_pairs(self) -> list[PlannedBatch]:
        """Split by the links that were seen; return the batches of the parts."""
        links = link_words(self.recipe.look_rule, self._look_links, self.src, self.tgt)
        self._look_links = []
        self._looks_left -= 1
        again = self._looks_left > 0
        pairs = self._looked_at
        parts = long_pairs.split_long_pairs(
            pairs, again[pairs], links, *self._words, self.src, self.tgt
        )
        of_again = again[parts[:, 0]]
        self._looked_at = np.unique(parts[of_again, 0])
        max_length = self.recipe.max_length
        looks = self._plan_batches(plan_parts(parts[of_again], max_length), look=True)
        self.units.append(plan_parts(parts[~of_again], max_length))
        return looks + self._plan_batches(self.units[-1])

    def _finish(self) -> None:
        links = link_words(self.recipe.rule, self._links, self.src, self.tgt)
        if self.recipe.swapped:
            links = links.swap_sides()
        if self.recipe.change:
            links = self.recipe.change(self._blank_too_long(), links)
        items = [list(render(self.pairs, links)) for render in self.recipe.renderers]
        counts = Counts(
            pairs=len(self._empty),
            empty=int(self._empty.sum()),
            windowed=self._n_windowed,
            skipped=int((self._too_long & ~self._empty).sum()),
            links=len(links.src),
            words=int(self.src.n_words.sum()) + int(self.tgt.n_words.sum()),
        )
        self.result = FinishedChunk(self.pairs, items, counts)
        self._links = []
        self.done.set()

    def _blank_too_long(self) -> Pairs:
        """Return the pairs without the links of files for those that are too long for any."""
        if not self._too_long.any():
            return self.pairs
        blanked = tuple(
            ["" if skipped else line for line, skipped in zip(lines, self._too_long, strict=True)]
            for lines in self.pairs.link_lines
        )
        return replace(self.pairs, link_lines=blanked)


def run_chunk(recipe: Recipe, pairs: Pairs) -> FinishedChunk:
    """Compute one chunk in the calling thread."""
    work = ChunkWork(recipe, pairs)
    run_batches(work, work.prepare())
    return work.result


def run_batches(work: ChunkWork, planned: list[PlannedBatch]) -> list[PlannedBatch]:
    """Run these batches and all that they ask for; return all of them."""
    every = list(planned)
    for batch in every:  # which grows on the way
        every += work.run(batch)
    return every


# ---- many chunks ----


def stream_chunks(recipe: Recipe, chunks: Iterable[Pairs], threads: int) -> Iterator[FinishedChunk]:
    """Yield finished chunks in their order; at most three are in memory.

    One thread reads and prepares chunks, so many `threads` compute their batches. An error of the
    input is raised after everything before it was given.
    """
    slots = threading.Semaphore(_MAX_CHUNKS)
    stop = threading.Event()
    tasks: queue.SimpleQueue[tuple[ChunkWork, PlannedBatch] | None] = queue.SimpleQueue()
    in_order: queue.SimpleQueue[ChunkWork | BaseException | None] = queue.SimpleQueue()

    def do_step(work: ChunkWork, step: Callable[..., list[PlannedBatch]], *given: Any) -> None:
        """Do a step of a chunk and queue the batches that it asks for."""
        try:
            for planned in step(*given):
                tasks.put((work, planned))
        except BaseException as error:
            work.error = error  # for whoever waits
            work.done.set()

    def prepare_chunks() -> None:
        """Read and prepare chunks until they end or fail; an error waits for its turn."""
        end: BaseException | None = None
        try:
            slots.acquire()  # before a chunk is read
            for pairs in chunks:
                work = ChunkWork(recipe, pairs)
                in_order.put(work)
                do_step(work, work.prepare)
                slots.acquire()
                if stop.is_set():
                    break
        except BaseException as error:
            end = error
        in_order.put(end)

    def compute_batches() -> None:
        while (task := tasks.get()) is not None and not stop.is_set():
            work, planned = task
            do_step(work, work.run, planned)

    targets = [prepare_chunks, *[compute_batches] * threads]
    workers = [threading.Thread(target=target, daemon=True) for target in targets]
    for worker in workers:
        worker.start()
    try:
        while isinstance(work := in_order.get(), ChunkWork):
            work.done.wait()
            if work.error is not None:
                raise work.error
            yield work.result
            slots.release()
        if work is not None:
            raise work
    finally:
        stop.set()
        slots.release()
        for _ in range(threads):
            tasks.put(None)
        for worker in workers:
            worker.join(timeout=2)  # the one that reads may wait for input that never comes
