"""Learns the statistical aligner: two HMMs that are taught to agree, by expectation maximisation.

Each round computes the posteriors p of direction fwd and q of bwd for all links (s, t) of the text
(E-step), counts what they agree on, and makes probabilities of the counts (M-step):

    c(s, t)   = sum over the text of (p q)^a         agreement: Liang, Taskar and Klein (2006)
    fwd(t | s) = (c(s, t) + prior_fwd(s, t)) / sum over t' of the same
    bwd(s | t) = (c(s, t) + prior_bwd(s, t)) / sum over s' of the same

with the prior of `spelling`. The first rounds use IBM model 1 and a = 1, as Liang has it. The
others use the HMM of `hmm` and a smaller a: a link that one direction is sure of and the other
nearly excludes then counts a little, so that a word may learn to be linked with several. Does not
read files and does not align.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError, MxError
from ..types import Floats, Pairs
from . import blocks
from .blocks import Ints, SentenceIds
from .counts import ExpectedCounts
from .hmm import HmmDirection, HmmPair, MoveCounts, smooth_counts, spread_weights
from .model import LEAST_PROBABILITY, StatisticalModel
from .settings import LearningSettings
from .spelling import SpellingPrior, number_prefixes, prefix_shares

OnProgress = Callable[[str], None]
# Counts are kept in float32 for this many cells, then added to float64 ones: a sum of more numbers
# up to 1 would stop growing (from 2**24 on float32 no longer counts by 1).
_FLUSH_CELLS = 24_000_000
# Links with a smaller count say no more than the prior.
_LEAST_COUNT = 1e-3
# As how many words and moves the empty word and the jumps of a model from before count. Never
# varied.
_START_MOVES = 200

Counts = npt.NDArray[np.float64]
BothMoves = tuple[MoveCounts, MoveCounts]


# ---- rounds ----


def learn_model(
    chunks: Iterable[Pairs],
    settings: LearningSettings,
    on_progress: OnProgress,
    start: StatisticalModel | None = None,
) -> StatisticalModel:
    """Learn from all pairs of the chunks, or an even sample; reads them once.

    The same pairs in the same order give the same model. `start` is a model from before, of other
    text: learning starts with it, in rounds with word order alone, and adds to it.
    """
    words = blocks.Vocabulary(settings.lowercase), blocks.Vocabulary(settings.lowercase)
    src, tgt, n_read = blocks.sample_pairs(chunks, settings.max_pairs, *words)
    src, tgt = blocks.limit_cells(src, tgt, settings.max_words, settings.max_cells)
    n_learned = len(src.lengths)
    if not n_learned:
        raise InputError(
            f"no pair has 1 to {settings.max_words} words on both sides; "
            "there is nothing to learn from"
        )
    on_progress(f"learning from {n_learned:,} of {n_read:,} pairs")
    learner = _Learner((src, tgt), (words[0].new_words, words[1].new_words), settings, start)
    n_simple = 0 if start is not None and settings.hmm_rounds else settings.ibm1_rounds
    n_rounds = n_simple + settings.hmm_rounds
    for n in range(n_rounds):
        on_progress(f"round {n + 1} of {n_rounds}")
        learner.run_round(moves_matter=n >= n_simple)
    return learner.parameters.make_model(n_learned)


def count_links(model: StatisticalModel, chunks: Iterable[Pairs]) -> ExpectedCounts:
    """Return what a round of learning counts in a text, for a model to begin with.

    Counts of several texts can be added up; `estimate_model` makes the next model of their sum.
    Pairs that are too long to learn from are left out; memory grows with the pairs of words that
    meet, not with the text.
    """
    settings = model.settings
    total = ExpectedCounts.zeros(settings.max_jump, model.digest)
    for chunk in chunks:
        words = blocks.Vocabulary(settings.lowercase), blocks.Vocabulary(settings.lowercase)
        sides = (
            blocks.encode_sentences(chunk.src, words[0]),
            blocks.encode_sentences(chunk.tgt, words[1]),
        )
        n_cells = int((sides[0].lengths * sides[1].lengths).sum())
        sides = blocks.limit_cells(*sides, settings.max_words, n_cells)
        if len(sides[0].lengths):
            lists = words[0].new_words, words[1].new_words
            total = total + _Learner(sides, lists, settings, model).count_round()
    return total


def estimate_model(counts: ExpectedCounts, settings: LearningSettings) -> StatisticalModel:
    """Make a model of expected counts."""
    if not counts.n_pairs:
        raise InputError("the counts are of no pairs; there is nothing to learn from")
    src, tgt = blocks.split_keys(counts.keys)
    pairs = np.append(0, src).astype(np.int32), np.append(0, tgt).astype(np.int32)
    occurrences = counts.src_occurrences, counts.tgt_occurrences
    parameters = _Parameters((counts.src_words, counts.tgt_words), occurrences, pairs, settings)
    parameters.hmms.moves_matter = True
    parameters.update(np.append(0, counts.counts), counts.moves)
    return parameters.make_model(counts.n_pairs)


# ---- counting: the E-step ----


class _Learner:
    """The text with a parameter number in each cell, and the parameters.

    A parameter is a pair of words that meets somewhere in the text. Number 0 stands in padding; the
    others are numbered by frequency, which keeps the busy ones together in the cache.
    """

    def __init__(
        self,
        sides: tuple[SentenceIds, SentenceIds],
        words: tuple[list[str], list[str]],
        settings: LearningSettings,
        start: StatisticalModel | None = None,
    ) -> None:
        self.sides, self.settings = sides, settings
        self.groups = blocks.make_blocks(*sides)
        n_cells = sum(block.cells for block in chain.from_iterable(self.groups))
        self.cells = _allocate_on_disk(n_cells)
        src_seen, tgt_seen = (
            np.bincount(side.ids, minlength=len(known))
            for side, known in zip(sides, words, strict=True)
        )
        pairs = self._number_cells()
        self.parameters = _Parameters(words, (src_seen, tgt_seen), pairs, settings, start)

    def _number_cells(self) -> tuple[Ints, Ints]:
        """Fill self.cells; return the source and the target word of each parameter."""
        keys, counts = np.array([blocks.PADDING_KEY]), np.zeros(1, np.int64)
        for group in self.groups:
            found = np.unique(blocks.cell_keys(group, *self.sides), return_counts=True)
            keys, counts = blocks.merge_counts(keys, counts, *found)
        counts[0] = np.iinfo(np.int64).max  # padding has number 0
        order = np.argsort(-counts, kind="stable")
        rank = np.empty(len(keys), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        start = 0
        for group in self.groups:
            found_keys, place = np.unique(blocks.cell_keys(group, *self.sides), return_inverse=True)
            numbers = rank[np.searchsorted(keys, found_keys)]
            self.cells[start : start + len(place)] = numbers[place]
            start += len(place)
        src, tgt = blocks.split_keys(keys[order])
        return src.astype(np.int32), tgt.astype(np.int32)

    def run_round(self, moves_matter: bool) -> None:
        """Do one E-step and one M-step: with the HMM, or with IBM model 1."""
        self.parameters.hmms.moves_matter = moves_matter
        counts, moves = self._expected_counts()
        self.parameters.update(counts, moves if moves_matter else None)

    def count_round(self) -> ExpectedCounts:
        """Do one E-step, and return what it counts, in a form that can be added up."""
        counts, moves = self._expected_counts()
        known, start = self.parameters, self.parameters.start
        keys = blocks.pair_keys(known.src_of[1:], known.tgt_of[1:])
        order = np.argsort(keys)
        return ExpectedCounts(
            *known.words, *known.occurrences, keys[order], counts[1:][order], moves,
            len(self.sides[0].lengths), start.digest if start else "",
        )  # fmt: skip

    def _expected_counts(self) -> tuple[npt.NDArray[np.float64], tuple[MoveCounts, MoveCounts]]:
        """Return how often each parameter is expected, both directions agreeing, and each move."""
        known = self.parameters
        counts = np.zeros(len(known.fwd))
        max_jump = self.settings.max_jump
        moves = MoveCounts.zeros(max_jump), MoveCounts.zeros(max_jump)
        recent, n_recent = np.zeros(len(counts), np.float32), 0
        for block, cells in blocks.cells_by_block(chain.from_iterable(self.groups), self.cells):
            emissions = known.fwd[cells], known.bwd[cells]
            p, q = known.hmms.link_posteriors(block, self.sides, emissions, moves)
            agreed = p * q
            if known.hmms.moves_matter:
                np.power(agreed, np.float32(self.settings.agreement), out=agreed)
            np.add.at(recent, cells.ravel(), agreed.ravel())
            n_recent += block.cells
            if n_recent > _FLUSH_CELLS:
                counts += recent
                recent[:], n_recent = 0, 0
        counts += recent
        counts[0] = 0
        return counts, moves


def _allocate_on_disk(n: int) -> npt.NDArray[np.int32]:
    """Return room for n numbers in a file, which the system may drop from memory meanwhile.

    The file has no name in its folder, so that nothing stays there however the process ends.
    """
    size = n * np.dtype(np.int32).itemsize
    folder = "the temporary folder"
    try:
        folder = tempfile.gettempdir()  # writes to see where it can
        with tempfile.TemporaryFile(prefix="mx-align-") as file:
            if hasattr(os, "posix_fallocate"):
                # A mapped file with holes kills the process (SIGBUS) when the disk gets full.
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, np.int32, "r+", shape=n)
    except OSError as error:
        raise MxError(
            f"learning needs a temporary file of {size / 1e6:,.1f} MB in {folder}: "
            f"{error.strerror}; make room there or set TMPDIR to a folder on another disk"
        ) from error


# ---- from counts to probabilities: the M-step ----


class _Parameters:
    """The probabilities of all pairs of words that meet somewhere in a text, and of moves.

    Number 0 stands in padding and is worth nothing. `start` is a model from before: it is where
    learning starts, and stays in the counts as pseudo-counts.
    """

    def __init__(
        self,
        words: tuple[list[str], list[str]],
        occurrences: tuple[Ints, Ints],
        pairs: tuple[Ints, Ints],
        settings: LearningSettings,
        start: StatisticalModel | None = None,
    ) -> None:
        self.words, self.occurrences, self.settings, self.start = (
            words,
            occurrences,
            settings,
            start,
        )
        self.src_of, self.tgt_of = pairs
        self.counts: Counts = np.zeros(len(self.src_of))
        # Before anything is known, every translation is worth 1, and so is the empty word.
        self.fwd = np.ones(len(self.src_of), np.float32)
        self.fwd[0] = 0
        self.bwd = self.fwd.copy()
        self.prior, self.class_of = self._make_prior()
        self.hmms = self._make_hmms()
        if start is not None:
            self._take_over(start)

    def _make_prior(self) -> tuple[SpellingPrior, Ints]:
        """Return the prior, which knows nothing yet, and the pair of classes of each parameter."""
        settings, numbers = self.settings, dict[str, int]()
        src, tgt = (number_prefixes(words, settings.prefix_length, numbers) for words in self.words)
        keys = blocks.pair_keys(src[self.src_of], tgt[self.tgt_of])
        keys, class_of = np.unique(keys, return_inverse=True)
        shares = prefix_shares(self.occurrences[0], src), prefix_shares(self.occurrences[1], tgt)
        weights = settings.prefix_weight, settings.cognate_weight
        prior = SpellingPrior(*weights, src, tgt, *shares, keys, np.zeros(0), np.zeros(0))
        return prior, class_of.astype(np.int32)

    def _make_hmms(self) -> HmmPair:
        """Return HMMs that prefer to step to the next word, and to begin and end at the ends."""
        max_jump = self.settings.max_jump
        # exp(-|width - 1| / 2): only for the first round with word order, which counts anew.
        jump = np.exp(-0.5 * np.abs(np.arange(-max_jump, max_jump + 1) - 1)).astype(np.float32)
        end = np.exp(-0.5 * np.arange(max_jump + 1)).astype(np.float32)
        fwd, bwd = (
            HmmDirection(np.ones(len(n) + 1, np.float32), jump, end, end)
            for n in reversed(self.occurrences)
        )
        return HmmPair(fwd, bwd, self.settings.null_prob)

    def _take_over(self, start: StatisticalModel) -> None:
        """Begin with what a model knows of these words, and keep it as pseudo-counts.

        The model counts as much as it has seen of a word, up to the setting start_weight.
        """
        model, src, tgt = start.number_words(*self.words)
        keys = blocks.pair_keys(src[self.src_of], tgt[self.tgt_of])
        keys[0] = blocks.PADDING_KEY
        self.fwd, self.bwd = model.translations(keys)
        most = self.settings.start_weight
        src_weight = np.where(
            src < len(start.src_words), np.minimum(model.src_totals[src], most), 0
        )
        tgt_weight = np.where(
            tgt < len(start.tgt_words), np.minimum(model.tgt_totals[tgt], most), 0
        )
        self._start_counts = (
            self.fwd * src_weight[self.src_of],
            self.bwd * tgt_weight[self.tgt_of],
        )
        self.hmms.moves_matter = start.hmms.moves_matter
        for name, ids in (("fwd", tgt), ("bwd", src)):
            old, new = getattr(start.hmms, name), getattr(self.hmms, name)
            new.null = old.null[np.append(np.minimum(ids, len(old.null) - 1), -1)]
            new.jump, new.start, new.end = old.jump, old.start, old.end
        self._start_hmms = HmmPair(self.hmms.fwd.copy(), self.hmms.bwd.copy(), 0)

    def update(self, counts: Counts, moves: BothMoves | None = None) -> None:
        """Make probabilities of expected counts: of all parameters, and maybe of moves."""
        self.counts = counts
        self._update_translations()
        for name, words, others in (("fwd", 1, self.tgt_of), ("bwd", 0, self.src_of)):
            direction = getattr(self.hmms, name)
            known = getattr(self._start_hmms, name) if self.start is not None else None
            direction.null = self._null_probabilities(self.occurrences[words], others, known)
            if moves is not None:
                share = self.settings.jump_smoothing
                for kind, tails in (("jump", (0, -1)), ("start", (-1,)), ("end", (-1,))):
                    seen = getattr(moves[1 - words], kind)
                    if known is not None:
                        seen = seen + _START_MOVES * spread_weights(getattr(known, kind), tails)
                    setattr(direction, kind, smooth_counts(seen, share, tails))

    def _update_translations(self) -> None:
        """Make probabilities of translations of the counts and the priors."""
        by_class = np.bincount(self.class_of, self.counts, len(self.prior.keys))
        self.prior.update(by_class.astype(np.float64))
        fwd, bwd = self.prior.pseudo_counts(self.src_of, self.tgt_of, self.class_of)
        fwd += self.counts
        bwd += self.counts
        if self.start is not None:
            fwd += self._start_counts[0]
            bwd += self._start_counts[1]
        n_src, n_tgt = map(len, self.occurrences)
        self.fwd, src_total = _normalize_counts(fwd, self.src_of, n_src)
        self.bwd, tgt_total = _normalize_counts(bwd, self.tgt_of, n_tgt)
        # Words that were met only in pairs not sampled count once, as new words do.
        self.totals = np.where(src_total > 0, src_total, 1), np.where(tgt_total > 0, tgt_total, 1)

    def _null_probabilities(
        self, occurrences: Ints, word_of: Ints, known: HmmDirection | None
    ) -> Floats:
        """Return the probability of each word given the empty word: what links leave over of it."""
        linked = np.bincount(word_of, self.counts, len(occurrences))
        left = np.maximum(occurrences - linked, 0)
        left = left.astype(np.float64)
        if known is not None:
            left += _START_MOVES * known.null[:-1]
        total = max(left.sum(), 1.0)
        null = np.append(left / total, 1 / total)  # last: a word never seen
        return np.asarray(np.maximum(null, 1e-9), np.float32)

    def make_model(self, n_learned: int) -> StatisticalModel:
        """Keep the parameters that say more than the prior, sorted by key."""
        kept = np.flatnonzero(self.counts > _LEAST_COUNT)
        if not len(kept):
            kept = 1 + np.argmax(self.counts[1:], keepdims=True)
        keys = blocks.pair_keys(self.src_of[kept], self.tgt_of[kept])
        order = np.argsort(keys)
        kept = kept[order]
        table: tuple[Any, Any, Any] = keys[order], self.fwd[kept], self.bwd[kept]
        prior = self.prior.prune()
        return StatisticalModel(
            self.settings, *self.words, *table, *self.totals, n_learned, prior, self.hmms
        )


def _normalize_counts(counts: npt.NDArray[Any], given: Ints, n: int) -> tuple[Floats, Any]:
    """Return counts as probabilities given a word, and the total of each word."""
    counts[0] = 0
    totals = np.bincount(given, counts, n)
    probabilities = counts / np.maximum(totals, 1e-9)[given]
    out = np.maximum(probabilities, LEAST_PROBABILITY).astype(np.float32)
    out[0] = 0
    return out, totals
