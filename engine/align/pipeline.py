"""Turn chunks of pairs into rendered results, in order, with every core busy.

Knows threads and queues, and in which order the steps of a chunk follow each other. A chunk goes
through one pass or two: a model's, in batches, and that of statistics. Does not know how batches
are computed or links are found (`batching`, the backend, `decoding`, `long_pairs`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..runtime.backends import Backend
from ..text.corpus import ChunkLines
from ..text.pieces import PieceTokenizer
from ..text.tokens.spans import spread_links
from ..types import Counts, LinkChange, LinkFinder, LinkJoin, Links, Pairs, Renderer, Units
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
from .decoding import (
    BatchLinks,
    LinkRule,
    find_piece_links,
    join_parts,
    link_words,
    unpack_links,
)

# Chunks in memory: one is read, one computed, one written.
_MAX_CHUNKS = 3
# Pairs that statistics look at together: enough to fill blocks of one size, few enough that every
# thread has some of a chunk.
_SLICE = 2048


@dataclass(frozen=True)
class ModelSettings:
    """How a model is run on a chunk."""

    backend: Backend
    tokenizers: tuple[PieceTokenizer, PieceTokenizer]
    max_length: int
    rule: LinkRule
    look_rule: LinkRule  # that finds the links by which long pairs are split
    batch_tokens: int
    swapped: bool = False  # the model's source is the pairs' target


@dataclass(frozen=True)
class Recipe:
    """Everything that turns words into items: at least one of a model and statistics."""

    renderers: Sequence[Renderer]
    model: ModelSettings | None = None
    statistics: LinkFinder | None = None
    join: LinkJoin | None = None  # of the model's links and those of statistics
    change: LinkChange | None = None


@dataclass(frozen=True)
class FinishedChunk:
    """What became of a chunk: for each renderer the items of all its pairs, in order."""

    pairs: Pairs
    items: list[list[Any]]
    counts: Counts


# ---- one chunk ----


class LinkPass(Protocol):
    """One way to find the links of a chunk, in tasks that any thread may run."""

    def prepare(self) -> list[Any]:
        """Return the tasks to run."""

    def run(self, task: Any) -> list[Any]:
        """Run one of them; return what must be run because of it."""

    def finish(self) -> Links:
        """Return the links, after all tasks were run."""


class StatisticsPass:
    """The links of a chunk by statistics, found for slices of its pairs."""

    def __init__(self, find_links: LinkFinder, pairs: Pairs) -> None:
        self._find_links, self._pairs = find_links, pairs
        self._found: dict[int, Links] = {}

    def prepare(self) -> list[slice]:
        """Return slices of the pairs. What a pair is padded to must not depend on the threads."""
        n_pairs = len(self._pairs.src)
        return [slice(k, min(k + _SLICE, n_pairs)) for k in range(0, n_pairs, _SLICE)]

    def run(self, task: slice) -> list[slice]:
        part = Pairs(self._pairs.first + task.start, self._pairs.src[task], self._pairs.tgt[task])
        self._found[task.start] = self._find_links(part)
        return []

    def finish(self) -> Links:
        return join_parts([links for _, links in sorted(self._found.items())])


class ModelPass:
    """The links of a chunk by a model.

    Long pairs are looked at first. The last batch of these looks splits the pairs and asks for
    batches of their parts; parts of very long pairs are looked at again.
    """

    def __init__(self, model: ModelSettings, pairs: Pairs) -> None:
        self.model, self.pairs = model, pairs
        self._lock = threading.Lock()
        self._links: list[BatchLinks] = []
        self._look_links: list[BatchLinks] = []

    def prepare(self) -> list[PlannedBatch]:
        """Encode and plan; return the batches that must be run."""
        self._words = self.pairs.src, self.pairs.tgt
        if self.model.swapped:
            self._words = self.pairs.tgt, self.pairs.src
        both = zip(self.model.tokenizers, self._words, strict=True)
        self.src, self.tgt = (tokenizer.encode_many(words) for tokenizer, words in both)
        lengths = np.diff(self.src.offsets), np.diff(self.tgt.offsets)
        self.too_long = find_too_long(*lengths) & (np.minimum(*lengths) > 0)  # (pairs,)
        units = plan_units(*lengths, self.model.max_length)
        self.n_windowed = len(np.unique(units.pair[units.window]))
        self._looks_left = long_pairs.count_looks(*self._words, self.src, self.tgt)  # (pairs,)
        long = self._looks_left[units.pair] > 0
        self._looked_at = np.unique(units.pair[long])
        self.units = [units.select(~long)]
        looks = self._plan_batches(units.select(long), look=True)
        self._open_looks = len(looks)
        return looks + self._plan_batches(self.units[0])

    def run(self, task: PlannedBatch) -> list[PlannedBatch]:
        """Compute one batch; return what must be run because of it."""
        look = task.look
        links = self._find_links(task, self.model.look_rule if look else self.model.rule)
        with self._lock:
            (self._look_links if look else self._links).append(links)
            self._open_looks -= look
            all_seen = look and not self._open_looks
        more = self._split_long_pairs() if all_seen else []
        with self._lock:
            self._open_looks += sum(one.look for one in more)
        return more

    def finish(self) -> Links:
        """Return the word links, in the order of the pairs' sides."""
        links = link_words(self.model.rule, self._links, self.src, self.tgt)
        self._links = []
        return links.swap_sides() if self.model.swapped else links

    def _plan_batches(self, units: Units, look: bool = False) -> list[PlannedBatch]:
        return plan_batches(units, self.model.batch_tokens, self.model.backend.grain, look)

    def _find_links(self, planned: PlannedBatch, rule: LinkRule) -> BatchLinks:
        backend = self.model.backend
        batch = pack_batch(planned, self.src, self.tgt)
        if backend.finds_links and rule.outputs == ("scores",) and rule.threshold is not None:
            words = find_word_ids(planned, self.src, self.tgt)
            return unpack_links(backend.links(batch, words, rule.threshold), planned.units)
        return find_piece_links(rule, backend.run(batch, rule.outputs), planned.units)

    def _split_long_pairs(self) -> list[PlannedBatch]:
        """Split by the links that were seen; return the batches of the parts."""
        links = link_words(self.model.look_rule, self._look_links, self.src, self.tgt)
        self._look_links = []
        self._looks_left -= 1
        again = self._looks_left > 0
        pairs = self._looked_at
        parts = long_pairs.split_long_pairs(
            pairs, again[pairs], links, *self._words, self.src, self.tgt
        )
        of_again = again[parts[:, 0]]
        self._looked_at = np.unique(parts[of_again, 0])
        max_length = self.model.max_length
        looks = self._plan_batches(plan_parts(parts[of_again], max_length), look=True)
        self.units.append(plan_parts(parts[~of_again], max_length))
        return looks + self._plan_batches(self.units[-1])


Task = tuple[LinkPass, Any]


class ChunkWork:
    """A chunk while it is computed. `prepare` is called once, `run` once per task, in any thread.

    The very last task turns all that was found into the `result`.
    """

    def __init__(self, recipe: Recipe, pairs: Pairs) -> None:
        self.recipe = recipe
        self.pairs = pairs
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._model = ModelPass(recipe.model, pairs) if recipe.model else None
        self._passes: list[LinkPass] = [self._model] if self._model else []
        if recipe.statistics:
            self._passes.append(StatisticsPass(recipe.statistics, pairs))

    def prepare(self) -> list[Task]:
        """Return the tasks that must be run."""
        tasks = [(one, task) for one in self._passes for task in one.prepare()]
        self._open_tasks = len(tasks)
        if not tasks:
            self._finish()
        return tasks

    def run(self, task: Task) -> list[Task]:
        """Do one task; return what must be run because of it."""
        one, planned = task
        more = [(one, asked) for asked in one.run(planned)]
        # Counted after it was done: another thread's task must not end the chunk meanwhile.
        with self._lock:
            self._open_tasks += len(more) - 1
            last = not self._open_tasks
        if last:
            self._finish()
        return more

    def _finish(self) -> None:
        found = [one.finish() for one in self._passes]
        links = self.recipe.join(*found) if self.recipe.join else found[0]
        sizes = [
            (len(src), len(tgt)) for src, tgt in zip(self.pairs.src, self.pairs.tgt, strict=True)
        ]
        too_long = self._model.too_long if self._model else np.zeros(len(sizes), bool)
        if self.recipe.change:
            links = self.recipe.change(_blank_lines(self.pairs, too_long), links)
        # From here on, words are what the user has between spaces, or asked for.
        pairs, links = spread_links(self.pairs, links)
        items = [list(render(pairs, links)) for render in self.recipe.renderers]
        counts = Counts(
            pairs=len(sizes),
            empty=sum(not (src and tgt) for src, tgt in sizes),
            windowed=self._model.n_windowed if self._model else 0,
            skipped=int(too_long.sum()),
            links=len(links.src),
            words=sum(map(len, pairs.src)) + sum(map(len, pairs.tgt)),
        )
        self.result = FinishedChunk(pairs, items, counts)
        self._passes = []
        self.done.set()


def _blank_lines(pairs: Pairs, skipped: npt.NDArray[np.bool_]) -> Pairs:
    """Return the pairs without the links of files for those that are too long for any."""
    if not skipped.any():
        return pairs
    blanked = tuple(
        ["" if skip else line for line, skip in zip(lines, skipped, strict=True)]
        for lines in pairs.link_lines
    )
    return replace(pairs, link_lines=blanked)


def run_chunk(recipe: Recipe, pairs: Pairs) -> FinishedChunk:
    """Compute one chunk in the calling thread."""
    work = ChunkWork(recipe, pairs)
    tasks = work.prepare()
    for task in tasks:  # which grow on the way
        tasks += work.run(task)
    return work.result


@dataclass(frozen=True)
class ChunkFunction:
    """What another process does with lines: makes pairs of them, then the finished chunk."""

    recipe: Recipe
    split_lines: Callable[[ChunkLines], Pairs]

    def __call__(self, lines: ChunkLines) -> FinishedChunk:
        done = run_chunk(self.recipe, self.split_lines(lines))
        # Words were rendered; they need not travel.
        return replace(
            done,
            pairs=replace(
                done.pairs, src=[], tgt=[], link_lines=(), src_tokens=None, tgt_tokens=None
            ),
        )


def find_model_links(model: ModelSettings, pairs: Pairs) -> Links:
    """Return a model's links of one chunk, found in the calling thread."""
    found = ModelPass(model, pairs)
    tasks = found.prepare()
    for task in tasks:  # which grow on the way
        tasks += found.run(task)
    return found.finish()


# ---- many chunks ----


def stream_chunks(recipe: Recipe, chunks: Iterable[Pairs], threads: int) -> Iterator[FinishedChunk]:
    """Yield finished chunks in their order; at most three are in memory.

    One thread reads and prepares chunks, so many `threads` run their tasks. An error of the
    input is raised after everything before it was given.
    """
    slots = threading.Semaphore(_MAX_CHUNKS)
    stop = threading.Event()
    tasks: queue.SimpleQueue[tuple[ChunkWork, Task] | None] = queue.SimpleQueue()
    in_order: queue.SimpleQueue[ChunkWork | BaseException | None] = queue.SimpleQueue()

    def do_step(work: ChunkWork, step: Callable[..., list[Task]], *given: Any) -> None:
        """Do a step of a chunk and queue the tasks that it asks for."""
        try:
            for asked in step(*given):
                tasks.put((work, asked))
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

    def run_tasks() -> None:
        while (queued := tasks.get()) is not None and not stop.is_set():
            work, task = queued
            do_step(work, work.run, task)

    targets = [prepare_chunks, *[run_tasks] * threads]
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
