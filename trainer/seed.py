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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from mx.engine.text import visible

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Pair = tuple[Sequence[str], Sequence[str]]
SeedLink = tuple[int, int, float]
Progress = Callable[[str], None]

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


@dataclass(frozen=True)
class SeedConfig:
    """How to learn. The defaults were measured; see docs/seed.md."""

    lowercase: bool = False
    max_pairs: int = 500_000  # of a longer text, an even sample of at least half as many
    max_words: int = 100  # pairs with a longer side teach nothing, but are aligned
    ibm1_rounds: int = 4
    hmm_rounds: int = 6
    null_prob: float = 0.2
    max_jump: int = 8  # longer jumps share one probability
    jump_smoothing: float = 0.05
    prefix_length: int = 4
    prefix_weight: float = 2.0  # pseudo-counts per word from the table of word beginnings
    cognate_weight: float = 0.3  # pseudo-counts of a pair of words that begin alike


# ---- text as arrays ----


class _Vocabulary(dict[str, int]):
    """Word -> id, a new one for each new word; what the model sees is cached with it."""

    def __init__(self, lowercase: bool) -> None:
        super().__init__()
        self.lowercase = lowercase
        self.words: list[str] = []  # by id, as the model sees them
        self._ids: dict[str, int] = {}

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

    def keep(self, every: int) -> _Side:
        """Every n-th sentence."""
        rows = np.arange(0, len(self.offsets) - 1, every)
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
    while chunk := list(islice(stream, 1 << 15)):
        first = -n_read % every
        n_read += len(chunk)
        chunk = chunk[first::every]
        parts.append((_side([p[0] for p in chunk], src), _side([p[1] for p in chunk], tgt)))
        held += len(chunk)
        while held > config.max_pairs:
            sides = _joined([part[0] for part in parts]), _joined([part[1] for part in parts])
            parts = [(sides[0].keep(2), sides[1].keep(2))]
            every, held = 2 * every, (held + 1) // 2
    return _joined([part[0] for part in parts]), _joined([part[1] for part in parts]), n_read


@dataclass(frozen=True)
class _Block:
    """Pairs of about the same size, padded to S source and T target words."""

    rows: Ints
    S: int
    T: int

    @property
    def cells(self) -> int:
        return len(self.rows) * self.S * self.T


def _blocks(n_src: Ints, n_tgt: Ints, max_words: int | None = None) -> list[_Block]:
    """All pairs with words on both sides, sorted by size; long ones are padded a little."""
    use = (n_src > 0) & (n_tgt > 0) & (n_src * n_tgt <= _MAX_CELLS)
    if max_words is not None:
        use &= np.maximum(n_src, n_tgt) <= max_words
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
        null = direction.null[words]
        if not self.hmm:
            return _ibm1(emission, null, n_states, self.null_prob)
        return _hmm(emission, null, n_states, n_steps, direction, self.null_prob, moves)


# ---- translations ----


def _keys(block: _Block, src: _Side, tgt: _Side, n_tgt_words: int) -> Ints:
    """One number for each pair of words in the block, (T * B * S,); -1 in padding."""
    left = src.padded(block.rows, block.S)[None]  # (1, B, S)
    right = tgt.padded(block.rows, block.T).T[:, :, None]  # (T, B, 1)
    keys = np.where((left >= 0) & (right >= 0), left * n_tgt_words + right, -1)
    return keys.ravel()


def _unique(keys: Ints) -> tuple[Ints, Ints]:
    """Sorted keys, each once, and where each one starts in the sorted input."""
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[first], first


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


class _Beginnings:
    """Words by how they begin; the beginnings of both languages are numbered together."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.ids: dict[str, int] = {}

    def add(self, words: Sequence[str]) -> Ints:
        ids = [self.ids.setdefault(word[: self.length], len(self.ids)) for word in words]
        return np.array(ids, np.int64)
