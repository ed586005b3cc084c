"""Pairs of lines to rendered results, in order, with every core busy and a bounded read-ahead.
Knows threads and queues; what is computed is the matter of `batching`, `decode`, the backend."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..runtime.backends import Backend
from ..text.words import Tokenizer
from ..types import Batch, Change, Counts, IntArray, Links, Pairs, Render, Units
from . import long_pairs as cuts
from .batching import batches, pack, plan, plan_parts, too_long, word_ids
from .decoding import Found, Rule, find, link, placed


@dataclass(frozen=True)
class Done:
    """A finished chunk: for each render the items of all its pairs, in order."""

    pairs: Pairs
    items: list[list[Any]]
    counts: Counts


@dataclass(frozen=True)
class Engine:
    """Everything that turns words into items."""

    backend: Backend
    tokenizers: tuple[Tokenizer, Tokenizer]
    max_length: int
    rule: Rule
    look: Rule  # that finds the links by which long pairs are cut
    renders: Sequence[Render]
    batch_tokens: int
    swapped: bool = False  # the model's source is the pairs' target
    change: Change | None = None


# ---- one chunk ----


@dataclass(frozen=True)
class Planned:
    """A batch to be run: these of the units, padded to these sizes. Of a `look` the links only
    tell where long pairs are cut."""

    units: Units
    places: IntArray
    n_src: int
    n_tgt: int
    look: bool


class Work:
    """A chunk while it is computed. `prepare` is called once, `run` once per batch, in any thread.

    Long pairs are looked at first; the last batch of that asks for batches of their parts, which
    in longer pairs are looked at once more. The very last batch turns all that was found in
    `units` into the `result`.
    """

    def __init__(self, engine: Engine, pairs: Pairs) -> None:
        self.engine = engine
        self.pairs = pairs
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._found: list[Found] = []
        self._seen: list[Found] = []  # in long pairs

    def prepare(self) -> list[Planned]:
        """Tokenise and plan; returns the batches that must be run."""
        src_tokenizer, tgt_tokenizer = self.engine.tokenizers
        self._words = self.pairs.src, self.pairs.tgt
        if self.engine.swapped:
            self._words = self.pairs.tgt, self.pairs.src
        self.src = src_tokenizer.encode_many(self._words[0])
        self.tgt = tgt_tokenizer.encode_many(self._words[1])
        src_lengths, tgt_lengths = np.diff(self.src.offsets), np.diff(self.tgt.offsets)
        units = plan(src_lengths, tgt_lengths, self.engine.max_length)
        self._windowed = len(np.unique(units.pair[units.window]))
        self._again = cuts.looks(*self._words, self.src, self.tgt)
        long = self._again[units.pair] > 0
        self._long = np.unique(units.pair[long])
        self.units = [units.only(~long)]
        looks = self._batches(units.only(long), look=True)
        planned = looks + self._batches(self.units[0])
        self._looks, self._left = len(looks), len(planned)
        if not planned:
            self._finish()
        return planned

    def _batches(self, units: Units, look: bool = False) -> list[Planned]:
        engine = self.engine
        cut = batches(units, engine.batch_tokens, engine.backend.grain)
        return [Planned(units, *batch, look) for batch in cut]

    def run(self, planned: Planned) -> list[Planned]:
        """Compute one batch; returns what must be run because of it."""
        units, look = planned.units, planned.look
        batch = pack(units, planned.places, planned.n_src, planned.n_tgt, self.src, self.tgt)
        found = self._find(self.engine.look if look else self.engine.rule, units, batch)
        with self._lock:
            (self._seen if look else self._found).append(found)
            self._looks -= look
            seen = look and not self._looks
        more = self._cut() if seen else []
        with self._lock:
            self._looks += sum(one.look for one in more)
            self._left += len(more) - 1
            last = not self._left
        if last:
            self._finish()
        return more

    def _cut(self) -> list[Planned]:
        """The batches of what long pairs are cut into by the links that were seen in them."""
        links = link(self.engine.look, self._seen, self.src, self.tgt)
        self._seen = []
        self._again -= 1
        left = self._again > 0
        parts = cuts.parts(self._long, left[self._long], links, *self._words, self.src, self.tgt)
        again = left[parts[:, 0]]
        self._long = np.unique(parts[again, 0])
        looks = self._batches(plan_parts(parts[again], self.engine.max_length), look=True)
        self.units.append(plan_parts(parts[~again], self.engine.max_length))
        return looks + self._batches(self.units[-1])

    def _find(self, rule: Rule, units: Units, batch: Batch) -> Found:
        backend = self.engine.backend
        if backend.finds_links and rule.links_alone and rule.threshold is not None:
            words = word_ids(units, batch, self.src, self.tgt)
            return placed(backend.links(batch, words, rule.threshold), units, batch)
        return find(rule, backend.run(batch, rule.outputs), units, batch)

    def _finish(self) -> None:
        links = link(self.engine.rule, self._found, self.src, self.tgt)
        if self.engine.swapped:
            links = links.swapped()
        if self.engine.change:
            links = self.engine.change(self._fit(), links)
        items = [list(render(self.pairs, links)) for render in self.engine.renders]
        self.result = Done(self.pairs, items, self._count(links))
        self._found = []
        self.done.set()

    def _fit(self) -> Pairs:
        """The pairs, without links by others for those that are too long for any."""
        long = too_long(np.diff(self.src.offsets), np.diff(self.tgt.offsets))
        if not long.any():
            return self.pairs
        others = tuple(
            ["" if skipped else line for line, skipped in zip(lines, long, strict=True)]
            for lines in self.pairs.others
        )
        return replace(self.pairs, others=others)

    def _count(self, links: Links) -> Counts:
        src_lengths, tgt_lengths = np.diff(self.src.offsets), np.diff(self.tgt.offsets)
        empty = np.minimum(src_lengths, tgt_lengths) == 0
        return Counts(
            pairs=len(src_lengths),
            empty=int(empty.sum()),
            windowed=self._windowed,
            skipped=int((too_long(src_lengths, tgt_lengths) & ~empty).sum()),
            links=len(links.src),
            words=int(self.src.n_words.sum()) + int(self.tgt.n_words.sum()),
        )

    def fail(self, error: BaseException) -> None:
        """Give up; whoever waits gets the error."""
        self.error = error
        self.done.set()


def run_here(engine: Engine, pairs: Pairs) -> Work:
    """One chunk, finished, in the calling thread."""
    work = Work(engine, pairs)
    run_all(work, work.prepare())
    return work


def run_all(work: Work, planned: list[Planned]) -> list[Planned]:
    """Run these batches and all that they ask for; gives all of them."""
    every = list(planned)
    for one in every:  # which grows on the way
        every += work.run(one)
    return every


# ---- many chunks ----


@dataclass
class _Line:
    """The belt between the threads of one run."""

    engine: Engine
    threads: int
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.slots = threading.Semaphore(3)  # chunks in flight: one read, one run, one written
        self.tasks: queue.SimpleQueue[tuple[Work, Planned] | None] = queue.SimpleQueue()
        self.order: queue.SimpleQueue[Work | BaseException | None] = queue.SimpleQueue()

    def produce(self, chunks: Iterator[Pairs]) -> None:
        """Read and prepare chunks until they end or fail; an error waits for its turn."""
        end: BaseException | None = None
        try:
            while self._free() and (pairs := next(chunks, None)) is not None:
                work = Work(self.engine, pairs)
                self.order.put(work)
                try:
                    self._add(work, work.prepare())
                except BaseException as error:
                    work.fail(error)
                    break
        except BaseException as error:
            end = error
        self.order.put(end)

    def _free(self) -> bool:
        while not self.stop.is_set():
            if self.slots.acquire(timeout=0.1):
                return True
        return False

    def _add(self, work: Work, planned: list[Planned]) -> None:
        for batch in planned:
            self.tasks.put((work, batch))

    def compute(self) -> None:
        """Run tasks, and what they ask for, until the run ends."""
        while (task := self.tasks.get()) is not None and not self.stop.is_set():
            work, planned = task
            try:
                self._add(work, work.run(planned))
            except BaseException as error:
                work.fail(error)

    def end(self) -> None:
        """Let all threads end; what they have not begun is dropped."""
        self.stop.set()
        for _ in range(self.threads):
            self.tasks.put(None)


def stream(engine: Engine, chunks: Iterable[Pairs], threads: int) -> Iterator[Done]:
    """Finished chunks in their order; at most three are in memory. An error of the input is
    raised after everything before it was given."""
    belt = _Line(engine, threads)
    source = iter(chunks)
    workers = [threading.Thread(target=belt.produce, args=(source,), daemon=True)]
    workers += [threading.Thread(target=belt.compute, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        while isinstance(work := belt.order.get(), Work):
            work.done.wait()
            if work.error is not None:
                raise work.error
            yield work.result
            belt.slots.release()
        if work is not None:
            raise work
    finally:
        belt.end()
        for worker in workers:
            worker.join(timeout=2)  # the one that reads may wait for input that never comes
