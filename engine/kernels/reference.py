"""What the kernels compute, in NumPy: the yardstick for each of them, and the CPU's own path.
Knows arrays only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.integer]


def symmetrize(fwd: Floats, bwd: Floats) -> Floats:
    """Harmonic mean of two arrays of weights of one shape; 0 where both are 0."""
    total = fwd + bwd
    scores = np.divide(2 * fwd * bwd, total, out=np.zeros_like(total), where=total > 0)
    return np.asarray(scores, total.dtype)


def pool_words(scores: Floats, src_words: Ints, tgt_words: Ints) -> Floats:
    """The highest score of each pair of words, from scores of pieces (S, T).

    The word of each piece is given, rising from 0 without a gap.
    """
    n_src = int(src_words[-1]) + 1 if len(src_words) else 0
    n_tgt = int(tgt_words[-1]) + 1 if len(tgt_words) else 0
    if not n_src or not n_tgt:
        return np.zeros((n_src, n_tgt), scores.dtype)
    src_starts = np.searchsorted(src_words, np.arange(n_src))
    tgt_starts = np.searchsorted(tgt_words, np.arange(n_tgt))
    rows = np.maximum.reduceat(scores, src_starts, axis=0)
    return np.asarray(np.maximum.reduceat(rows, tgt_starts, axis=1), scores.dtype)
