"""Pairs of lines to rendered results, in order, with every core busy and a bounded read-ahead.
Knows threads and queues; what is computed is the matter of `batching`, `decode`, the backend."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mx.engine.backends import Backend
from mx.engine.batching import Batch, IntArray, batches, pack, plan, too_long, word_ids
from mx.engine.decode import Found, Links, Rule, find, link, placed
from mx.engine.text import Tokenizer

Words = Sequence[str]


@dataclass(frozen=True)
class Pairs:
    """A chunk of the corpus: the words of consecutive pairs, the first of which has number
    `first`. `note` travels along untouched."""

    first: int
    src: list[Words]
    tgt: list[Words]
    note: Any = None


# One item for each pair of the chunk.
Render = Callable[[Pairs, Links], Sequence[Any]]


@dataclass(frozen=True)
class Counts:
    """What happened to some pairs."""

    pairs: int = 0
    empty: int = 0  # a side without words
    windowed: int = 0
    skipped: int = 0  # too long even for windows
    links: int = 0
    words: int = 0  # of both sides

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self.row(), other.row(), strict=True)))

    def row(self) -> tuple[int, ...]:
        """The numbers in the order of the fields."""
        return self.pairs, self.empty, self.windowed, self.skipped, self.links, self.words


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
    renders: Sequence[Render]
    batch_tokens: int
    swapped: bool = False  # the model's source is the pairs' target


# ---- one chunk ----


class Work:
    """A chunk while it is computed. `prepare` is called once, `run` once per batch, in any
    thread; the last `run` turns all that was found into items."""

    def __init__(self, engine: Engine, pairs: Pairs) -> None:
        self.engine = engine
        self.pairs = pairs
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._found: list[Found] = []

    def prepare(self) -> list[tuple[IntArray, int, int]]:
        """Tokenise and plan; returns the batches that must be run."""
        src_tokenizer, tgt_tokenizer = self.engine.tokenizers
        src, tgt = self.pairs.src, self.pairs.tgt
        if self.engine.swapped:
            src, tgt = tgt, src
        self.src = src_tokenizer.encode_many(src)
        self.tgt = tgt_tokenizer.encode_many(tgt)
        src_lengths, tgt_lengths = np.diff(self.src.offsets), np.diff(self.tgt.offsets)
        self.units = plan(src_lengths, tgt_lengths, self.engine.max_length)
        planned = list(batches(self.units, self.engine.batch_tokens, self.engine.backend.grain))
        self._left = len(planned)
        if not planned:
            self._finish()
        return planned

    def run(self, places: IntArray, n_src: int, n_tgt: int) -> None:
        """Compute one batch; the last one completes the chunk."""
        found = self._find(pack(self.units, places, n_src, n_tgt, self.src, self.tgt))
        with self._lock:
            self._found.append(found)
            self._left -= 1
            last = not self._left
        if last:
            self._finish()

    def _find(self, batch: Batch) -> Found:
        backend, rule = self.engine.backend, self.engine.rule
        if backend.finds_links and rule.links_alone and rule.threshold is not None:
            words = word_ids(self.units, batch, self.src, self.tgt)
            return placed(backend.links(batch, words, rule.threshold), self.units, batch)
        return find(rule, backend.run(batch, rule.outputs), self.units, batch)

    def _finish(self) -> None:
        links = link(self.engine.rule, self._found, self.src, self.tgt)
        if self.engine.swapped:
            links = links.swapped()
        items = [list(render(self.pairs, links)) for render in self.engine.renders]
        self.result = Done(self.pairs, items, self._count(links))
        self._found = []
        self.done.set()

    def _count(self, links: Links) -> Counts:
        src_lengths, tgt_lengths = np.diff(self.src.offsets), np.diff(self.tgt.offsets)
        empty = np.minimum(src_lengths, tgt_lengths) == 0
        return Counts(
            pairs=len(src_lengths),
            empty=int(empty.sum()),
            windowed=len(np.unique(self.units.pair[self.units.window])),
            skipped=int((too_long(src_lengths, tgt_lengths) & ~empty).sum()),
            links=len(links.src),
            words=int(self.src.n_words.sum()) + int(self.tgt.n_words.sum()),
        )

    def fail(self, error: BaseException) -> None:
        """Give up; whoever waits gets the error."""
        self.error = error
        self.done.set()


def run_here(engine: Engine, pairs: Pairs) -> Done:
    """One chunk in the calling thread."""
    work = Work(engine, pairs)
    for planned in work.prepare():
        work.run(*planned)
    return work.result


# ---- many chunks ----


@dataclass
class _Line:
    """The belt between the threads of one run."""

    engine: Engine
    threads: int
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.slots = threading.Semaphore(3)  # chunks in flight: one read, one run, one written
        self.tasks: queue.Queue[Any] = queue.Queue(4 * self.threads)
        self.order: queue.Queue[Any] = queue.Queue()

    def put(self, item: Any) -> bool:
        """Queue a task, waiting for room; False if the run was stopped."""
        while not self.stop.is_set():
            try:
                self.tasks.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def produce(self, chunks: Iterator[Pairs]) -> None:
        """Read and prepare chunks until they end or fail; an error waits for its turn."""
        end: BaseException | None = None
        try:
            while self._free() and (pairs := next(chunks, None)) is not None:
                work = Work(self.engine, pairs)
                self.order.put(work)
                try:
                    planned = work.prepare()
                except BaseException as error:
                    work.fail(error)
                    break
                if not all(self.put((work, *task)) for task in planned):
                    break
        except BaseException as error:
            end = error
        self.order.put(end)
        for _ in range(self.threads):
            self.put(None)

    def _free(self) -> bool:
        while not self.stop.is_set():
            if self.slots.acquire(timeout=0.1):
                return True
        return False

    def compute(self) -> None:
        """Run tasks until there are no more."""
        while not self.stop.is_set():
            try:
                task = self.tasks.get(timeout=0.1)
            except queue.Empty:
                continue
            if task is None:
                return
            work, *planned = task
            try:
                work.run(*planned)
            except BaseException as error:
                work.fail(error)


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
        belt.stop.set()
        for worker in workers:
            worker.join(timeout=2)  # the one that reads may wait for input that never comes
