"""Two HMMs over the blocks of seed_text, one in each direction: posteriors and counts of moves.
Knows arrays of probabilities only; where they come from is the matter of seed.

Arrays of a block are laid out as (T, B, S): steps first, so that one step of the recursion is one
matrix product over all pairs of the block. In direction fwd the source words are the states and
the target words the steps; in direction bwd it is the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .blocks import Block, Floats, Ints, Side

# ---- one direction ----


@dataclass
class Direction:
    """What a direction knows besides translations: its empty word and how it moves."""

    null: Floats  # (words,) probability of a word given the empty word; last: an unknown word
    jump: Floats  # (2 * max_jump + 1,) weight of each jump width
    start: Floats  # (max_jump + 1,) weight of the first state, from the beginning
    end: Floats  # (max_jump + 1,) weight of the last state, from the end


@dataclass
class Moves:
    """Expected counts of moves, as in Direction."""

    jump: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]

    @classmethod
    def zero(cls, max_jump: int) -> Moves:
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
    direction: Direction,
    null_prob: float,
    moves: Moves | None = None,
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


def _ends(direction: Direction, n_states: Ints, S: int) -> tuple[Floats, Floats]:
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
    moves: Moves,
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


def smoothed(counts: npt.NDArray[np.float64], share: float, tails: Sequence[int]) -> Floats:
    """Weights from counts, mixed with an even distribution; a tail stands for several widths."""
    n_widths = np.ones(len(counts))
    n_widths[list(tails)] = 5
    even = n_widths / n_widths.sum()
    mixed = (1 - share) * counts / max(counts.sum(), 1e-9) + share * even
    return (mixed / n_widths).astype(np.float32)


# ---- both directions of a block ----


@dataclass
class Pairing:
    """The two directions together: all that an E-step needs besides the translations."""

    fwd: Direction
    bwd: Direction
    null_prob: float
    hmm: bool = False

    def posteriors(
        self,
        block: Block,
        sides: tuple[Side, Side],
        emissions: tuple[Floats, Floats],
        moves: tuple[Moves, Moves] | None = None,
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
        direction: Direction,
        emission: Floats,
        words: Ints,  # (T, B) of the steps
        n_states: Ints,
        n_steps: Ints,
        moves: Moves | None,
    ) -> Floats:
        null = direction.null[np.minimum(words, len(direction.null) - 1)]
        if not self.hmm:
            return _ibm1(emission, null, n_states, self.null_prob)
        return _hmm(emission, null, n_states, n_steps, direction, self.null_prob, moves)
