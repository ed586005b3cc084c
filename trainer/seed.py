"""Seed links by statistics alone: two HMM aligners that are taught to agree, in NumPy.
Knows words and sentences as lists; files, flags and how links are written are left to others.

The model: Vogel's HMM (1996) with Och and Ney's empty word (2003), one in each direction, whose
expected counts are the product of both posteriors (Liang, Taskar and Klein, 2006). Rare words
lean on a table over word beginnings and on words that begin alike in both languages.

Arrays of a block are laid out as (T, B, S): steps first, so that one step of the recursion is one
matrix product over all pairs of the block. In direction fwd the source words are the states and
the target words the steps; in direction bwd it is the other way round.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from mx.engine.errors import InputError
from mx.engine.files import atomic_write
from mx.engine.text import visible

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Pair = tuple[Sequence[str], Sequence[str]]
SeedLink = tuple[int, int, float]
Progress = Callable[[str], None]

# The key of padding, which is no pair of words.
_PADDING = -1
# Pairs read at a time.
_READ = 1 << 15
# Cells of one block: a few arrays of this size stay in a core's cache.
_BLOCK_CELLS = 60_000
# Cells sorted at a time while cells are given their parameters.
_GROUP_CELLS = 6_000_000
# Counts are kept in single precision for this many cells, then added to double ones.
_FLUSH_CELLS = 24_000_000
# A pair larger than this is not aligned: its arrays would no longer fit in memory.
_MAX_CELLS = 4_000_000
# What an impossible translation is worth: small, yet a forced path stays finite.
_FLOOR = 1e-8
# Where the scripts begin whose characters stand for syllables or words.
_CJK = "\u2e80"
# How much of its beginning's mass a word never met is thought to have.
_NEW_SHARE = 0.1


@dataclass(frozen=True)
class SeedConfig:
    """How to learn. The defaults were measured; see docs/seed.md."""

    lowercase: bool = False
    max_pairs: int = 1_000_000  # of a longer text, an even sample of at least half as many
    max_cells: int = 100_000_000  # the same for source words x target words, over all pairs
    max_words: int = 100  # pairs with a longer side teach nothing, but are aligned
    ibm1_rounds: int = 4
    hmm_rounds: int = 6
    null_prob: float = 0.2
    max_jump: int = 8  # longer jumps share one probability
    jump_smoothing: float = 0.05
    prefix_length: int = 4
    prefix_weight: float = 6.0  # pseudo-counts per word from the table of word beginnings
    cognate_weight: float = 1.0  # pseudo-counts of a pair of words that begin alike


# ---- text as arrays ----


class _Vocabulary(dict[str, int]):
    """Word -> id, a new one for each new word; what the model sees is cached with it."""

    def __init__(self, lowercase: bool, words: Iterable[str] = ()) -> None:
        super().__init__()
        self.lowercase = lowercase
        self.words = list(words)  # by id, as the model sees them
        self._ids = {word: number for number, word in enumerate(self.words)}

    def __missing__(self, word: str) -> int:
        seen = visible(word, self.lowercase)
        number = self._ids.setdefault(seen, len(self.words))
        if number == len(self.words):
            self.words.append(seen)
        self[word] = number
        return number


@dataclass(frozen=True)
class _Side:
    """The sentences of one language, flat."""

    ids: npt.NDArray[np.int32]
    offsets: Ints  # (sentences + 1,)

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def padded(self, rows: Ints, width: int) -> Ints:
        """(rows, width) word ids, -1 behind the end of a sentence."""
        starts = self.offsets[rows][:, None]
        inside = np.arange(width) < (self.offsets[rows + 1][:, None] - starts)
        places = np.minimum(starts + np.arange(width), len(self.ids) - 1)
        return np.where(inside, self.ids[places], -1).astype(np.int64)

    def take(self, rows: Ints) -> _Side:
        """Some of the sentences."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return _Side(self.ids[places], offsets)


def _side(sentences: Sequence[Sequence[str]], vocabulary: _Vocabulary) -> _Side:
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    words = map(vocabulary.__getitem__, chain.from_iterable(sentences))
    ids = np.fromiter(words, np.int32, int(lengths.sum()))
    return _Side(ids, np.concatenate([[0], np.cumsum(lengths)]))


def _joined(sides: Sequence[_Side]) -> _Side:
    lengths = [side.lengths for side in sides]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]))])
    return _Side(np.concatenate([np.zeros(0, np.int32), *(side.ids for side in sides)]), offsets)


def _sample(
    pairs: Iterable[Pair], config: SeedConfig, src: _Vocabulary, tgt: _Vocabulary
) -> tuple[_Side, _Side, int]:
    """At most max_pairs pairs spread evenly over the text, and how many pairs it had. When
    too many are held, every second one is dropped and from then on every second one read."""
    every, n_read, held = 1, 0, 0
    parts: list[tuple[_Side, _Side]] = []
    stream = iter(pairs)
    while chunk := list(islice(stream, _READ)):
        first = -n_read % every
        n_read += len(chunk)
        chunk = chunk[first::every]
        parts.append((_side([p[0] for p in chunk], src), _side([p[1] for p in chunk], tgt)))
        held += len(chunk)
        while held > config.max_pairs:
            sides = _joined([part[0] for part in parts]), _joined([part[1] for part in parts])
            second = np.arange(0, held, 2)
            parts = [(sides[0].take(second), sides[1].take(second))]
            every, held = 2 * every, (held + 1) // 2
    return _joined([part[0] for part in parts]), _joined([part[1] for part in parts]), n_read


def _thinned(src: _Side, tgt: _Side, config: SeedConfig) -> tuple[_Side, _Side]:
    """The pairs short enough to learn from, or an even sample of max_cells of their cells."""
    longest = np.maximum(src.lengths, tgt.lengths)
    rows = np.flatnonzero((src.lengths > 0) & (tgt.lengths > 0) & (longest <= config.max_words))
    n_cells = int((src.lengths * tgt.lengths)[rows].sum())
    if n_cells > config.max_cells:
        n_kept = max(1, len(rows) * config.max_cells // n_cells)
        rows = rows[np.arange(n_kept) * len(rows) // n_kept]
    return src.take(rows), tgt.take(rows)


@dataclass(frozen=True)
class _Block:
    """Pairs of about the same size, padded to S source and T target words."""

    rows: Ints
    S: int
    T: int

    @property
    def cells(self) -> int:
        return len(self.rows) * self.S * self.T


def _blocks(n_src: Ints, n_tgt: Ints) -> list[_Block]:
    """All pairs with words on both sides, sorted by size; long ones are padded a little."""
    use = (n_src > 0) & (n_tgt > 0) & (n_src * n_tgt <= _MAX_CELLS)
    rows = np.flatnonzero(use)
    S, T = _rounded(n_src[rows]), _rounded(n_tgt[rows])
    order = np.lexsort((rows, T, S))
    rows, S, T = rows[order], S[order], T[order]
    cuts = np.flatnonzero((np.diff(S) != 0) | (np.diff(T) != 0)) + 1
    blocks = []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        if start < end:
            s, t = int(S[start]), int(T[start])
            step = max(1, _BLOCK_CELLS // (s * t))
            blocks += [_Block(rows[i : min(end, i + step)], s, t) for i in range(start, end, step)]
    return blocks


def _rounded(lengths: Ints) -> Ints:
    """Up to 16 as they are, then to the next multiple of 2, 4, 8, ...: few, well-filled blocks."""
    unit = 1 << np.maximum(0, np.ceil(np.log2(np.maximum(lengths, 1) / 16))).astype(np.int64)
    return -(-lengths // unit) * unit


# ---- one direction ----


@dataclass
class _Direction:
    """What a direction knows besides translations: its empty word and how it moves."""

    null: Floats  # (words,) probability of a word given the empty word; last: an unknown word
    jump: Floats  # (2 * max_jump + 1,) weight of each jump width
    start: Floats  # (max_jump + 1,) weight of the first state, from the beginning
    end: Floats  # (max_jump + 1,) weight of the last state, from the end


@dataclass
class _Moves:
    """Expected counts of moves, as in _Direction."""

    jump: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]

    @classmethod
    def zero(cls, max_jump: int) -> _Moves:
        return cls(np.zeros(2 * max_jump + 1), np.zeros(max_jump + 1), np.zeros(max_jump + 1))


def _widths(n: int, max_jump: int) -> Ints:
    """(n, n) index of the jump from the row's state to the column's."""
    places = np.arange(n)
    return np.clip(places[None] - places[:, None], -max_jump, max_jump) + max_jump


def _ibm1(emission: Floats, null: Floats, n_states: Ints, null_prob: float) -> Floats:
    """Posterior of each state when all are equally likely beforehand; uses up `emission`."""
    total = emission.sum(2)
    total += null * n_states * (null_prob / (1 - null_prob))
    emission /= np.maximum(total, 1e-30)[:, :, None]
    return emission


def _hmm(
    emission: Floats,  # (T, B, S), 0 in padding; used up
    null: Floats,  # (T, B), 0 in padding
    n_states: Ints,
    n_steps: Ints,
    direction: _Direction,
    null_prob: float,
    moves: _Moves | None = None,
) -> Floats:
    """Posterior of each state at each step, by the forward-backward recursion.

    The empty word keeps the place of the last real state, so that a state is a place, entered
    either by a jump (`entered`) or by staying for a word that comes from nowhere.
    """
    T, B, S = emission.shape
    max_jump = len(direction.start) - 1
    widths = _widths(S, max_jump)
    jump = direction.jump[widths]  # (S, S)
    # Jumps may only end inside the sentence, so their weights add up differently in each length.
    leave = (1 - null_prob) / np.cumsum(jump, 1).T[n_states - 1]  # (B, S)
    start, end = _ends(direction, n_states, S)
    stay = np.where(np.arange(T)[:, None] < n_steps, null * null_prob, 1)  # padding changes nothing
    stay = stay.astype(np.float32)[:, :, None]

    entered, left = np.empty_like(emission), np.empty_like(emission)
    scale = np.empty((T, B, 1), np.float32)
    state = start
    for t in range(T):
        if t == 0:
            np.multiply(start, 1 - null_prob, out=entered[0])
        else:
            np.multiply(state, leave, out=left[t])
            np.matmul(left[t], jump, out=entered[t])
        state = state * stay[t]
        state += entered[t] * emission[t]
        state.sum(1, keepdims=True, out=scale[t])
        state /= scale[t]

    ahead = end / (state * end).sum(1, keepdims=True)
    emission /= scale
    stay /= scale
    backwards = np.ascontiguousarray(jump.T)
    for t in range(T - 1, -1, -1):
        emission[t] *= ahead
        if t:
            ahead *= stay[t]
            ahead += (emission[t] @ backwards) * leave
    entered *= emission
    if moves is not None:
        _count_moves(moves, entered, left, emission, jump, widths, n_states, n_steps)
    return entered


def _ends(direction: _Direction, n_states: Ints, S: int) -> tuple[Floats, Floats]:
    """(B, S) weights of the first and the last state."""
    max_jump = len(direction.start) - 1
    places = np.arange(S)
    behind = n_states[:, None] - 1 - places  # words left after this one
    inside = behind >= 0
    start = np.where(inside, direction.start[np.minimum(places, max_jump)], 0)
    end = np.where(inside, direction.end[np.clip(behind, 0, max_jump)], 0)
    start = start / start.sum(1, keepdims=True)
    return start.astype(np.float32), end.astype(np.float32)


def _count_moves(
    moves: _Moves,
    posterior: Floats,
    left: Floats,
    ahead: Floats,
    jump: Floats,
    widths: Ints,
    n_states: Ints,
    n_steps: Ints,
) -> None:
    T, B, S = posterior.shape
    max_jump = len(moves.start) - 1
    if T > 1:
        counts = left[1:].reshape(-1, S).T @ ahead[1:].reshape(-1, S) * jump
        moves.jump += np.bincount(widths.ravel(), counts.ravel(), len(moves.jump))
    places = np.arange(S)
    moves.start += np.bincount(np.minimum(places, max_jump), posterior[0].sum(0), max_jump + 1)
    last = posterior[n_steps - 1, np.arange(B)]  # (B, S)
    behind = np.clip(n_states[:, None] - 1 - places, 0, max_jump)
    moves.end += np.bincount(behind.ravel(), last.ravel(), max_jump + 1)


def _smoothed(counts: npt.NDArray[np.float64], share: float, tails: Sequence[int]) -> Floats:
    """Weights from counts, mixed with an even distribution; a tail stands for several widths."""
    n_widths = np.ones(len(counts))
    n_widths[list(tails)] = 5
    even = n_widths / n_widths.sum()
    mixed = (1 - share) * counts / max(counts.sum(), 1e-9) + share * even
    return (mixed / n_widths).astype(np.float32)


# ---- both directions of a block ----


@dataclass
class _Pairing:
    """The two directions together: all that an E-step needs besides the translations."""

    fwd: _Direction
    bwd: _Direction
    null_prob: float
    hmm: bool = False

    def posteriors(
        self,
        block: _Block,
        sides: tuple[_Side, _Side],
        emissions: tuple[Floats, Floats],
        moves: tuple[_Moves, _Moves] | None = None,
    ) -> tuple[Floats, Floats]:
        """Posteriors of the links by fwd and by bwd, both (T, B, S)."""
        n_src, n_tgt = (side.lengths[block.rows] for side in sides)
        src, tgt = sides[0].padded(block.rows, block.S), sides[1].padded(block.rows, block.T)
        fwd = self._one(self.fwd, emissions[0], tgt.T, n_src, n_tgt, moves and moves[0])
        turned = np.ascontiguousarray(emissions[1].transpose(2, 1, 0))
        bwd = self._one(self.bwd, turned, src.T, n_tgt, n_src, moves and moves[1])
        return fwd, bwd.transpose(2, 1, 0)

    def _one(
        self,
        direction: _Direction,
        emission: Floats,
        words: Ints,  # (T, B) of the steps
        n_states: Ints,
        n_steps: Ints,
        moves: _Moves | None,
    ) -> Floats:
        null = direction.null[np.minimum(words, len(direction.null) - 1)]
        if not self.hmm:
            return _ibm1(emission, null, n_states, self.null_prob)
        return _hmm(emission, null, n_states, n_steps, direction, self.null_prob, moves)


# ---- translations ----


def _keys(block: _Block, src: _Side, tgt: _Side) -> Ints:
    """One number for each pair of words in the block, (T * B * S,); _PADDING in padding."""
    left = src.padded(block.rows, block.S)[None]  # (1, B, S)
    right = tgt.padded(block.rows, block.T).T[:, :, None]  # (T, B, 1)
    keys = np.where((left >= 0) & (right >= 0), (left << 32) | right, _PADDING)
    return keys.ravel()


def _unique(keys: Ints) -> tuple[Ints, Ints]:
    """Sorted keys, each once, and where each one starts in the sorted input."""
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[first], first


def _merged(keys: Ints, counts: Ints, more: Ints, more_counts: Ints) -> tuple[Ints, Ints]:
    """Two lists of sorted keys with their counts as one."""
    place = np.searchsorted(keys, more)
    known = keys[np.minimum(place, len(keys) - 1)] == more
    counts[place[known]] += more_counts[known]
    new, place = ~known, place[~known]
    return np.insert(keys, place, more[new]), np.insert(counts, place, more_counts[new])


def _groups(blocks: Sequence[_Block]) -> list[list[_Block]]:
    """Consecutive blocks of about _GROUP_CELLS cells together."""
    groups: list[list[_Block]] = []
    size = _GROUP_CELLS
    for block in blocks:
        if size + block.cells > _GROUP_CELLS:
            groups.append([])
            size = 0
        groups[-1].append(block)
        size += block.cells
    return groups


def _beginnings(words: Sequence[str], length: int, known: dict[str, int]) -> Ints:
    """The number of each word's first characters; new ones are added to `known`. Both languages
    are numbered together, so that words which begin alike can be seen."""
    ids = [known.setdefault(_beginning(word, length), len(known)) for word in words]
    return np.array(ids, np.int64)


def _beginning(word: str, length: int) -> str:
    """The first characters, of which a Chinese or Japanese word needs only one."""
    return word[: 1 if word[:1] >= _CJK else length]


def _pair_keys(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> Ints:
    return (left.astype(np.int64) << 32) | right


@dataclass
class _Prior:
    """Pseudo-counts for pairs of words, from their beginnings."""

    config: SeedConfig
    src_class: Ints  # (source words,)
    tgt_class: Ints
    src_share: npt.NDArray[np.float64]  # (source words,) of a word among those that begin alike
    tgt_share: npt.NDArray[np.float64]
    keys: Ints  # sorted pairs of beginnings
    fwd: npt.NDArray[np.float64]  # (keys,) target beginning given source beginning
    bwd: npt.NDArray[np.float64]

    def counts(self, src: Ints, tgt: Ints, place: Ints | None = None) -> tuple[Any, Any]:
        """Pseudo-counts of each pair of words, for fwd and for bwd."""
        src_class, tgt_class = self.src_class[src], self.tgt_class[tgt]
        known: Any = 1.0
        if place is None:
            place, found = _find(self.keys, _pair_keys(src_class, tgt_class))
            known = found.astype(np.float64)
        weight = self.config.prefix_weight * known
        alike = self.config.cognate_weight * (src_class == tgt_class)
        fwd = weight * self.fwd[place] * self.tgt_share[tgt] + alike
        bwd = weight * self.bwd[place] * self.src_share[src] + alike
        return fwd, bwd

    def pruned(self) -> _Prior:
        """Without the pairs of beginnings that are hardly ever linked."""
        keep = np.maximum(self.fwd, self.bwd) > 1e-5
        keep[0] = True  # never empty
        return replace(self, keys=self.keys[keep], fwd=self.fwd[keep], bwd=self.bwd[keep])


def _find(keys: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Place of each wanted key among the sorted keys, and whether it is there."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return place, keys[place] == wanted


def _shares(counts: Ints, classes: Ints) -> npt.NDArray[np.float64]:
    """Of each word among those that begin alike; a word never met gets a guess."""
    alike = np.bincount(classes, counts)[classes]
    return np.where(counts > 0, counts / np.maximum(alike, 1), _NEW_SHARE)


# ---- learning ----


class _Learner:
    """The text with a parameter number in each cell, and the parameters. Parameter 0 stands in
    padding and is worth nothing; the others are numbered by frequency, which keeps the busy ones
    together in the cache."""

    def __init__(
        self,
        src: _Side,
        tgt: _Side,
        words: tuple[_Vocabulary, _Vocabulary],
        config: SeedConfig,
        report: Progress,
        folder: str,
    ) -> None:
        self.config, self.report = config, report
        self.sides = src, tgt
        blocks = _blocks(src.lengths, tgt.lengths)
        self.groups = _groups(blocks)
        total = sum(block.cells for block in blocks)
        # On disk, where the system may drop what it does not need just now.
        self.cells = np.memmap(Path(folder) / "cells", np.int32, "w+", shape=max(total, 1))
        self.occurrences = tuple(
            np.bincount(side.ids, minlength=len(vocabulary.words))
            for side, vocabulary in zip(self.sides, words, strict=True)
        )
        self.src_of, self.tgt_of = self._number_cells()
        self.fwd = np.ones(len(self.src_of), np.float32)
        self.fwd[0] = 0
        self.bwd = self.fwd.copy()
        self.totals: tuple[Any, Any] = (None, None)
        self._group_by_beginning(words)
        self.pairing = self._first_pairing()

    def _number_cells(self) -> tuple[Ints, Ints]:
        """Fill self.cells; the source and the target word of each parameter."""
        keys, counts = np.array([_PADDING]), np.zeros(1, np.int64)
        for group in self.groups:
            found = np.sort(np.concatenate([_keys(block, *self.sides) for block in group]))
            once, first = _unique(found)
            keys, counts = _merged(keys, counts, once, np.diff(first, append=len(found)))
        counts[0] = np.iinfo(np.int64).max  # padding is parameter 0
        order = np.argsort(-counts, kind="stable")
        rank = np.empty(len(keys), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        start = 0
        for group in self.groups:
            found = np.concatenate([_keys(block, *self.sides) for block in group])
            by_key = np.argsort(found)
            once, first = _unique(found[by_key])
            numbers = rank[np.searchsorted(keys, once)]
            cells = np.empty(len(found), np.int32)
            cells[by_key] = np.repeat(numbers, np.diff(first, append=len(found)))
            self.cells[start : start + len(found)] = cells
            start += len(found)
        keys = np.maximum(keys[order], 0)
        return (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)

    def _group_by_beginning(self, words: tuple[_Vocabulary, _Vocabulary]) -> None:
        known: dict[str, int] = {}
        length = self.config.prefix_length
        src, tgt = (_beginnings(vocabulary.words, length, known) for vocabulary in words)
        keys = _pair_keys(src[self.src_of], tgt[self.tgt_of])
        keys, class_of = np.unique(keys, return_inverse=True)
        self.class_of = class_of.astype(np.int32)
        src_share, tgt_share = (_shares(*x) for x in zip(self.occurrences, (src, tgt), strict=True))
        none = np.zeros(0)
        self.prior = _Prior(self.config, src, tgt, src_share, tgt_share, keys, none, none)

    def _first_pairing(self) -> _Pairing:
        max_jump = self.config.max_jump
        jump = np.exp(-0.5 * np.abs(np.arange(-max_jump, max_jump + 1) - 1)).astype(np.float32)
        end = np.exp(-0.5 * np.arange(max_jump + 1)).astype(np.float32)
        # Before anything is known, every translation is worth 1 and so is the empty word.
        fwd, bwd = (
            _Direction(np.ones(len(n) + 1, np.float32), jump, end, end)
            for n in reversed(self.occurrences)
        )
        return _Pairing(fwd, bwd, self.config.null_prob)

    def run(self) -> None:
        config = self.config
        for n in range(config.ibm1_rounds + config.hmm_rounds):
            self.pairing.hmm = n >= config.ibm1_rounds
            self.report(f"round {n + 1} of {config.ibm1_rounds + config.hmm_rounds}")
            self._update(*self._expect())

    def _expect(self) -> tuple[npt.NDArray[np.float64], tuple[_Moves, _Moves]]:
        """Expected counts of each parameter, both directions agreeing, and of the moves."""
        counts = np.zeros(len(self.fwd))
        moves = _Moves.zero(self.config.max_jump), _Moves.zero(self.config.max_jump)
        recent, n_recent, start = np.zeros(len(counts), np.float32), 0, 0
        for block in chain.from_iterable(self.groups):
            cells = self.cells[start : start + block.cells]
            start += block.cells
            shape = block.T, len(block.rows), block.S
            emissions = self.fwd[cells].reshape(shape), self.bwd[cells].reshape(shape)
            fwd, bwd = self.pairing.posteriors(
                block, self.sides, emissions, moves if self.pairing.hmm else None
            )
            np.add.at(recent, cells, (fwd * bwd).ravel())
            n_recent += block.cells
            if n_recent > _FLUSH_CELLS:
                counts += recent
                recent[:], n_recent = 0, 0
        counts += recent
        counts[0] = 0
        return counts, moves

    def _update(self, counts: npt.NDArray[np.float64], moves: tuple[_Moves, _Moves]) -> None:
        self.counts = counts
        self._update_prior()
        fwd, bwd = self.prior.counts(self.src_of, self.tgt_of, self.class_of)
        n_src, n_tgt = map(len, self.occurrences)
        self.fwd, src_total = _normal(counts + fwd, self.src_of, n_src)
        self.bwd, tgt_total = _normal(counts + bwd, self.tgt_of, n_tgt)
        # Words that were met only in pairs not sampled count once, as new words do.
        self.totals = np.where(src_total > 0, src_total, 1), np.where(tgt_total > 0, tgt_total, 1)
        self.pairing.fwd.null = self._null(self.occurrences[1], self.tgt_of)
        self.pairing.bwd.null = self._null(self.occurrences[0], self.src_of)
        if self.pairing.hmm:
            for direction, seen in zip((self.pairing.fwd, self.pairing.bwd), moves, strict=True):
                share = self.config.jump_smoothing
                direction.jump = _smoothed(seen.jump, share, (0, -1))
                direction.start = _smoothed(seen.start, share, (-1,))
                direction.end = _smoothed(seen.end, share, (-1,))

    def _update_prior(self) -> None:
        prior = self.prior
        counts = np.bincount(self.class_of, self.counts, len(prior.keys))
        src, tgt = prior.keys >> 32, prior.keys & 0xFFFFFFFF
        prior.fwd = counts / np.maximum(np.bincount(src, counts), 1e-9)[src]
        prior.bwd = counts / np.maximum(np.bincount(tgt, counts), 1e-9)[tgt]

    def _null(self, occurrences: Ints, word_of: Ints) -> Floats:
        """Probability of each word given the empty word: what the links leave over of it."""
        linked = np.bincount(word_of, self.counts, len(occurrences))
        left = np.maximum(occurrences - linked, 0)
        total = max(left.sum(), 1.0)
        null = np.append(left / total, 1 / total)  # last: a word never seen
        return np.maximum(null, 1e-9).astype(np.float32)


def _normal(counts: npt.NDArray[Any], given: Ints, n: int) -> tuple[Floats, Any]:
    """Counts as probabilities given a word, and the total of each word."""
    counts[0] = 0
    totals = np.bincount(given, counts, n)
    out = np.maximum(counts / np.maximum(totals, 1e-9)[given], _FLOOR).astype(np.float32)
    out[0] = 0
    return out, totals


# ---- the model ----

_FORMAT = 1
_ARRAYS = ("keys", "fwd", "bwd", "src_totals", "tgt_totals")


def _packed(strings: Sequence[str]) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Strings as UTF-8 bytes and where each one ends."""
    encoded = [string.encode() for string in strings]
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def _strings(packed: npt.NDArray[np.uint8], ends: Ints) -> list[str]:
    data = packed.tobytes()
    return [data[start:end].decode() for start, end in pairwise([0, *ends.tolist()])]


@dataclass
class SeedModel:
    """What was learned from a text; aligns that text or any other of the same languages."""

    config: SeedConfig
    src_words: list[str]
    tgt_words: list[str]
    keys: Ints  # sorted pairs of word ids that were linked
    fwd: Floats  # (keys,) target word given source word
    bwd: Floats
    src_totals: npt.NDArray[np.float64]  # (source words,) counts that fwd was divided by
    tgt_totals: npt.NDArray[np.float64]
    n_learned: int  # pairs it learned from
    _prior: _Prior = field(repr=False)
    _pairing: _Pairing = field(repr=False)

    @classmethod
    def learn(
        cls,
        pairs: Iterable[Pair],
        config: SeedConfig | None = None,
        *,
        report: Progress = lambda message: None,
    ) -> SeedModel:
        """From pairs of sentences as lists of words, read once. The same pairs give the same
        model. `report` is told what is being done."""
        config = config or SeedConfig()
        words = _Vocabulary(config.lowercase), _Vocabulary(config.lowercase)
        src, tgt, n_read = _sample(pairs, config, *words)
        src, tgt = _thinned(src, tgt, config)
        n_learned = len(src.offsets) - 1
        if not n_learned:
            raise InputError(
                f"no pair has 1 to {config.max_words} words on both sides; "
                "there is nothing to learn from"
            )
        report(f"learning from {n_learned:,} of {n_read:,} pairs")
        with tempfile.TemporaryDirectory(prefix="mx-seed-") as folder:
            learner = _Learner(src, tgt, words, config, report, folder)
            learner.run()
            del learner.cells
        return cls._from(learner, words, n_learned)

    @classmethod
    def _from(
        cls, learner: _Learner, words: tuple[_Vocabulary, _Vocabulary], n_learned: int
    ) -> SeedModel:
        """Keeps the parameters that say more than the prior, by key."""
        kept = np.flatnonzero(learner.counts > 1e-3)
        keys = _pair_keys(learner.src_of[kept], learner.tgt_of[kept])
        order = np.argsort(keys)
        kept = kept[order]
        return cls(
            learner.config,
            words[0].words,
            words[1].words,
            keys[order],
            learner.fwd[kept],
            learner.bwd[kept],
            *learner.totals,
            n_learned,
            learner.prior.pruned(),
            learner.pairing,
        )

    def align(
        self, pairs: Iterable[Pair], *, threshold: float = 0.4, chunk: int = 10_000
    ) -> Iterator[list[SeedLink]]:
        """For each pair its links (source word, target word, confidence), sorted; none where a
        side is empty. Confidence is the geometric mean of both directions' posteriors."""
        stream = iter(pairs)
        while held := list(islice(stream, chunk)):
            yield from self._links(held, threshold)

    def save(self, path: str | Path) -> None:
        """Into one .npz file, without pickle."""
        pairing, prior = self._pairing, self._prior
        arrays: dict[str, Any] = {
            "format": np.array([_FORMAT]),
            "config": _packed([json.dumps(asdict(self.config))])[0],
            "n_learned": np.array([self.n_learned]),
            **dict(zip(("src_words", "src_ends"), _packed(self.src_words), strict=True)),
            **dict(zip(("tgt_words", "tgt_ends"), _packed(self.tgt_words), strict=True)),
            **{name: getattr(self, name) for name in _ARRAYS},
            **{f"prior_{f.name}": getattr(prior, f.name) for f in fields(prior)[1:]},
            **{f"fwd_{f.name}": getattr(pairing.fwd, f.name) for f in fields(pairing.fwd)},
            **{f"bwd_{f.name}": getattr(pairing.bwd, f.name) for f in fields(pairing.bwd)},
        }
        with atomic_write(path) as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> SeedModel:
        """What `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            if arrays["format"].tolist() != [_FORMAT]:
                raise InputError(f"{path} is a seed model of another version; learn it again")
            return cls._unpacked(arrays)
        except FileNotFoundError:
            raise InputError(f"{path} does not exist; write it with mx-seed --save") from None
        except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
            raise InputError(f"{path} is not a seed model ({error}); learn it again") from error

    @classmethod
    def _unpacked(cls, arrays: dict[str, Any]) -> SeedModel:
        config = SeedConfig(**json.loads(arrays["config"].tobytes()))
        directions = (
            _Direction(**{f.name: arrays[f"{side}_{f.name}"] for f in fields(_Direction)})
            for side in ("fwd", "bwd")
        )
        prior = {f.name: arrays[f"prior_{f.name}"] for f in fields(_Prior)[1:]}
        return cls(
            config,
            _strings(arrays["src_words"], arrays["src_ends"]),
            _strings(arrays["tgt_words"], arrays["tgt_ends"]),
            *(arrays[name] for name in _ARRAYS),
            int(arrays["n_learned"][0]),
            _Prior(config, **prior),
            _Pairing(*directions, config.null_prob, config.hmm_rounds > 0),
        )

    @cached_property
    def _beginnings(self) -> dict[str, int]:
        known: dict[str, int] = {}
        for words in (self.src_words, self.tgt_words):
            _beginnings(words, self.config.prefix_length, known)
        return known

    def _links(self, pairs: Sequence[Pair], threshold: float) -> Iterator[list[SeedLink]]:
        lowercase = self.config.lowercase
        src, tgt = _Vocabulary(lowercase, self.src_words), _Vocabulary(lowercase, self.tgt_words)
        sides = _side([pair[0] for pair in pairs], src), _side([pair[1] for pair in pairs], tgt)
        look_up = _LookUp(self, src.words[len(self.src_words) :], tgt.words[len(self.tgt_words) :])
        found = [
            _confident(block, *self._pairing.posteriors(block, sides, emissions), threshold)
            for group in _groups(_blocks(sides[0].lengths, sides[1].lengths))
            for block, emissions in look_up.emissions(group, sides)
        ]
        none = np.zeros(0, np.int64)
        columns = zip((none, none, none, none.astype(np.float32)), *found, strict=True)
        rows, i, j, score = (np.concatenate(column) for column in columns)
        order = np.lexsort((j, i, rows))
        ends = np.searchsorted(rows[order], np.arange(len(pairs) + 1))
        links = list(zip(i[order].tolist(), j[order].tolist(), score[order].tolist(), strict=True))
        for start, end in pairwise(ends.tolist()):
            yield links[start:end]


def _confident(
    block: _Block, fwd: Floats, bwd: Floats, threshold: float
) -> tuple[Ints, Ints, Ints, Floats]:
    """Row, source word, target word and confidence of each link."""
    score = np.sqrt(fwd * bwd)
    j, b, i = np.nonzero(score >= threshold)
    return block.rows[b], i, j, np.minimum(score[j, b, i], 1)


class _LookUp:
    """Translations for a text that may hold words and pairs of words the model never met."""

    def __init__(self, model: SeedModel, new_src: list[str], new_tgt: list[str]) -> None:
        self.model = model
        prior, length = model._prior, model.config.prefix_length
        known = dict(model._beginnings)
        new = _beginnings(new_src, length, known), _beginnings(new_tgt, length, known)
        self.prior = replace(
            prior,
            src_class=np.concatenate([prior.src_class, new[0]]),
            tgt_class=np.concatenate([prior.tgt_class, new[1]]),
            src_share=np.pad(prior.src_share, (0, len(new_src)), constant_values=_NEW_SHARE),
            tgt_share=np.pad(prior.tgt_share, (0, len(new_tgt)), constant_values=_NEW_SHARE),
        )
        self.src_totals = np.pad(model.src_totals, (0, len(new_src)), constant_values=1)
        self.tgt_totals = np.pad(model.tgt_totals, (0, len(new_tgt)), constant_values=1)

    def emissions(
        self, group: Sequence[_Block], sides: tuple[_Side, _Side]
    ) -> Iterator[tuple[_Block, tuple[Floats, Floats]]]:
        """Each block with its translation probabilities by fwd and bwd, (T, B, S)."""
        keys = np.concatenate([_keys(block, *sides) for block in group])
        order = np.argsort(keys)
        once, first = _unique(keys[order])
        place = np.empty(len(keys), np.int32)
        place[order] = np.repeat(
            np.arange(len(once), dtype=np.int32), np.diff(first, append=len(keys))
        )
        fwd, bwd = self._values(once)
        start = 0
        for block in group:
            cells = place[start : start + block.cells]
            start += block.cells
            shape = block.T, len(block.rows), block.S
            yield block, (fwd[cells].reshape(shape), bwd[cells].reshape(shape))

    def _values(self, keys: Ints) -> tuple[Floats, Floats]:
        """What each pair of words is worth: as learned, or what its prior alone gives."""
        model = self.model
        place, known = _find(model.keys, keys)
        src, tgt = np.maximum(keys, 0) >> 32, np.maximum(keys, 0) & 0xFFFFFFFF
        fwd, bwd = self.prior.counts(src, tgt)
        fwd = np.maximum(fwd / np.maximum(self.src_totals[src], 1e-3), _FLOOR)
        bwd = np.maximum(bwd / np.maximum(self.tgt_totals[tgt], 1e-3), _FLOOR)
        padding = keys < 0
        fwd = np.where(padding, 0, np.where(known, model.fwd[place], np.minimum(fwd, 1)))
        bwd = np.where(padding, 0, np.where(known, model.bwd[place], np.minimum(bwd, 1)))
        return fwd.astype(np.float32), bwd.astype(np.float32)


def seed_links(
    src: Iterable[Sequence[str]],
    tgt: Iterable[Sequence[str]],
    config: SeedConfig | None = None,
    *,
    threshold: float = 0.4,
) -> list[list[SeedLink]]:
    """Learns from the sentences and gives the links of each pair."""
    pairs = list(zip(src, tgt, strict=True))
    return list(SeedModel.learn(pairs, config).align(pairs, threshold=threshold))
