"""Two HMM aligners over blocks of pairs, one in each direction: posteriors and counts of moves.

Arrays of a block are laid out as (T, B, S): steps first, so that one step of the recursion is one
matrix product over all pairs of the block. In direction fwd the source words are the states and
the target words the steps; in direction bwd it is the other way round. Does not know where the
translation probabilities come from.

The model is Vogel's HMM (1996) with Och and Ney's empty word (2003). With I states, p0 the share of
the empty word, e_t(i) the probability of word t given state i and n_t that given the empty word:

    first move   m_1(i)   = (1 - p0) start(i)
    later moves  m_t(i)   = (1 - p0) sum_k a_{t-1}(k) jump(i - k) / sum_{i' < I} jump(i' - k)
    forward      a_t(i)   = m_t(i) e_t(i) + p0 n_t a_{t-1}(i)        a_0 = start
    backward     b_T(i)   = end(i)
                 b_t(k)   = p0 n_{t+1} b_{t+1}(k)
                          + (1 - p0) sum_i jump(i - k) / sum_{i'} jump(i' - k) e_{t+1}(i) b_{t+1}(i)
    posterior    p_t(i)   = m_t(i) e_t(i) b_t(i) / sum of a_T(i) end(i)

The empty word keeps the place of the last real state, so a state is a place: it is entered by a
jump (m) or kept for a word that comes from nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..types import Floats
from .blocks import Ints, PairBlock, SentenceIds

# OpenBLAS shares products of more multiplications than 2**18 between threads, and then their sums
# depend on how many there are. Smaller ones are no slower here.
_ONE_THREAD = 1 << 17

# ---- one direction ----


@dataclass
class HmmDirection:
    """What a direction knows besides translations: its empty word and how it moves."""

    null: Floats  # (words + 1,) probability of a word given the empty word; last: an unknown word
    jump: Floats  # (2 * max_jump + 1,) weight of each jump width
    start: Floats  # (max_jump + 1,) weight of the first state, from the beginning
    end: Floats  # (max_jump + 1,) weight of the last state, from the end

    def copy(self) -> HmmDirection:
        return replace(self)


@dataclass
class MoveCounts:
    """Expected counts of moves, as in HmmDirection."""

    jump: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]

    @classmethod
    def zeros(cls, max_jump: int) -> MoveCounts:
        return cls(np.zeros(2 * max_jump + 1), np.zeros(max_jump + 1), np.zeros(max_jump + 1))

    def __add__(self, other: MoveCounts) -> MoveCounts:
        return MoveCounts(self.jump + other.jump, self.start + other.start, self.end + other.end)


def ibm1_posteriors(emission: Floats, null: Floats, n_states: Ints, null_prob: float) -> Floats:
    """Return the posterior of each state when all are equally likely; overwrites `emission`.

    IBM model 1 is the HMM whose moves are all (1 - p0) / I:
    p_t(i) = e_t(i) / (sum of e_t + n_t I p0 / (1 - p0)).
    """
    total = emission.sum(2)
    total += null * n_states * (null_prob / (1 - null_prob))
    emission /= np.maximum(total, 1e-30)[:, :, None]
    return emission


def hmm_posteriors(
    emission: Floats,  # (T, B, S), 0 in padding; overwritten
    null: Floats,  # (T, B), anything in padding
    n_states: Ints,
    n_steps: Ints,
    direction: HmmDirection,
    null_prob: float,
    moves: MoveCounts | None = None,
) -> Floats:
    """Return the posterior of each state at each step; adds to `moves`, if given."""
    T, B, S = emission.shape
    widths = _jump_widths(S, len(direction.start) - 1)
    jump = direction.jump[widths]  # (S, S)
    # Jumps may only end inside the sentence, so their weights add up differently in each length:
    # (B, S), the factor of all jumps from a state.
    leave = (1 - null_prob) / np.cumsum(jump, 1).T[n_states - 1]
    start, end = _end_weights(direction, n_states, S)
    # Behind the last step the state stays as it is: pairs of one block may differ in length.
    stay = np.where(np.arange(T)[:, None] < n_steps, null * null_prob, 1)
    stay = stay.astype(np.float32)[:, :, None]

    # Forward. Each a_t is divided by its sum, without which float32 would underflow.
    entered, left = np.empty_like(emission), np.empty_like(emission)
    scale = np.empty((T, B, 1), np.float32)
    state = start
    for t in range(T):
        if t == 0:
            np.multiply(start, 1 - null_prob, out=entered[0])
        else:
            np.multiply(state, leave, out=left[t])
            _multiply_rows(left[t], jump, entered[t])
        state = state * stay[t]
        state += entered[t] * emission[t]
        state.sum(1, keepdims=True, out=scale[t])
        state /= scale[t]

    # Backward. `emission[t]` becomes e_t b_t, which both the posteriors and the counts need.
    ahead = end / (state * end).sum(1, keepdims=True)
    emission /= scale
    stay /= scale
    backwards = np.ascontiguousarray(jump.T)
    reached = np.empty((B, S), np.float32)
    for t in range(T - 1, -1, -1):
        emission[t] *= ahead
        if t:
            ahead *= stay[t]
            _multiply_rows(emission[t], backwards, reached)
            ahead += reached * leave
    entered *= emission
    if moves is not None:
        if T > 1:
            counts = _sum_products(left[1:].reshape(-1, S), emission[1:].reshape(-1, S)) * jump
            moves.jump += np.bincount(widths.ravel(), counts.ravel(), len(moves.jump))
        _count_ends(moves, entered, n_states, n_steps)
    return entered


def _multiply_rows(rows: Floats, matrix: Floats, out: Floats) -> None:
    """Multiply each row by a matrix, a few rows at a time (_ONE_THREAD)."""
    step = max(1, _ONE_THREAD // matrix.size)
    for first in range(0, len(rows), step):
        np.matmul(rows[first : first + step], matrix, out=out[first : first + step])


def _sum_products(left: Floats, right: Floats) -> npt.NDArray[np.float64]:
    """Return the sum over all rows of the products of each two values in them, (S, S)."""
    S = left.shape[1]
    total = np.zeros((S, S))
    step = max(1, _ONE_THREAD // (S * S))
    for first in range(0, len(left), step):
        total += left[first : first + step].T @ right[first : first + step]
    return total


def _jump_widths(n: int, max_jump: int) -> Ints:
    """Return (n, n) index of the jump from the row's state to the column's."""
    places = np.arange(n)
    widths = np.clip(places[None] - places[:, None], -max_jump, max_jump)
    return np.asarray(widths + max_jump)


def _end_weights(direction: HmmDirection, n_states: Ints, S: int) -> tuple[Floats, Floats]:
    """Return (B, S) weights of the first and of the last state."""
    max_jump = len(direction.start) - 1
    places = np.arange(S)
    behind = n_states[:, None] - 1 - places  # words left after this one
    inside = behind >= 0
    start = np.where(inside, direction.start[np.minimum(places, max_jump)], 0)
    end = np.where(inside, direction.end[np.clip(behind, 0, max_jump)], 0)
    start = start / start.sum(1, keepdims=True)
    return start.astype(np.float32), end.astype(np.float32)


def _count_ends(moves: MoveCounts, posterior: Floats, n_states: Ints, n_steps: Ints) -> None:
    """Add the expected first and last states, by their distance from the ends of the sentence."""
    _, B, S = posterior.shape
    max_jump = len(moves.start) - 1
    places = np.arange(S)
    moves.start += np.bincount(np.minimum(places, max_jump), posterior[0].sum(0), max_jump + 1)
    last = posterior[n_steps - 1, np.arange(B)]  # (B, S)
    behind = np.clip(n_states[:, None] - 1 - places, 0, max_jump)
    moves.end += np.bincount(behind.ravel(), last.ravel(), max_jump + 1)


def smooth_counts(counts: npt.NDArray[np.float64], share: float, tails: Sequence[int]) -> Floats:
    """Turn counts into weights of single widths, mixed with a `share` of an even distribution.

    The widths named in `tails` stand for all longer ones, taken to be five.
    """
    n_widths = _count_widths(len(counts), tails)
    even = n_widths / n_widths.sum()
    mixed = (1 - share) * counts / max(counts.sum(), 1e-9) + share * even
    return np.asarray(mixed / n_widths, np.float32)


def spread_weights(weights: Floats, tails: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return weights of single widths as shares that add up to 1: `smooth_counts` turned round."""
    shares = weights * _count_widths(len(weights), tails)
    return np.asarray(shares / shares.sum(), np.float64)


def _count_widths(n: int, tails: Sequence[int]) -> npt.NDArray[np.float64]:
    n_widths = np.ones(n)
    n_widths[list(tails)] = 5
    return n_widths


# ---- both directions of a block ----


@dataclass
class HmmPair:
    """The two directions together: all that an E-step needs besides the translations."""

    fwd: HmmDirection
    bwd: HmmDirection
    null_prob: float
    moves_matter: bool = False  # else IBM model 1

    def link_posteriors(
        self,
        block: PairBlock,
        sides: tuple[SentenceIds, SentenceIds],
        emissions: tuple[Floats, Floats],
        moves: tuple[MoveCounts | None, MoveCounts | None] = (None, None),
    ) -> tuple[Floats, Floats]:
        """Return posteriors of the links by fwd and by bwd, both (T, B, S); adds to `moves`."""
        n_src, n_tgt = (side.lengths[block.rows] for side in sides)
        # The words of the steps are -1 in padding, where emissions are 0 anyway.
        src, tgt = sides[0].pad(block.rows, block.S), sides[1].pad(block.rows, block.T)
        turned = np.ascontiguousarray(emissions[1].transpose(2, 1, 0))
        found = []
        for direction, emission, words, n_states, n_steps, seen in (
            (self.fwd, emissions[0], tgt.T, n_src, n_tgt, moves[0]),
            (self.bwd, turned, src.T, n_tgt, n_src, moves[1]),
        ):
            null = direction.null[np.minimum(words, len(direction.null) - 1)]
            if self.moves_matter:
                weights = direction, self.null_prob, seen
                found.append(hmm_posteriors(emission, null, n_states, n_steps, *weights))
            else:
                found.append(ibm1_posteriors(emission, null, n_states, self.null_prob))
        return found[0], found[1].transpose(2, 1, 0)
