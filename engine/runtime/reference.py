"""What the kernels compute, in NumPy: the yardstick for each of them, and the CPU's own path.

Each function is called as its kernel in `gpu.kernels` is. Shapes: B pairs, S source and T target
pieces, L either, D width, H heads, K = D / H. Queries come scaled by 1/√K.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..types import Floats, PackedLinks

Ints = npt.NDArray[np.integer]


# ---- attention ----


def static_attention(q: Floats, k: Floats, v: Floats, lengths: Ints, heads: int) -> Floats:
    """Return attention whose row i never sees key i, (B, L, D): softmax_{j≠i}(q_i k_j) v_j.

    Only the first `lengths` (B,) keys of a pair are seen. Rows that have no key to look at are
    zero: those beyond the length, and the only one of a sentence of one piece. q may have B = 1.
    """
    place = np.arange(k.shape[1])
    inside = place < np.asarray(lengths)[:, None]  # (B, L)
    seen = inside[:, None, :] & inside[:, :, None] & (place[:, None] != place)  # (B, L, L)
    queries, keys, values = (_split_heads(x, heads) for x in (q, k, v))
    scores = np.einsum("bihk,bjhk->bhij", queries, keys, optimize=True)
    scores = np.where(seen[:, None], scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    # A row without keys has top -inf; 0 instead keeps -inf - -inf from being NaN.
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=-1, keepdims=True)
    weights /= np.where(total > 0, total, 1)
    mixed = np.einsum("bhij,bjhk->bihk", weights, values, optimize=True)
    return np.asarray(mixed.reshape(k.shape), np.float32)


def leaky_attention(
    q: Floats, k: Floats, null_key: Floats, mask: Floats, heads: int
) -> tuple[Floats, Floats]:
    """Return head-mean softmax weights (B, T, S) over the keys and a NULL key, and NULL's (B, T).

    a_ij = exp(q_i k_j + m_j) / (exp(q_i k_null) + Σ_j' exp(q_i k_j' + m_j')), and the mean of the
    heads. `mask` m (B, S) is 0, or -inf for a key that is not there.
    """
    queries, keys = _split_heads(q, heads), _split_heads(k, heads)
    scores = np.einsum("bihk,bjhk->bhij", queries, keys, optimize=True)
    scores = scores + np.asarray(mask, np.float32)[:, None, None, :]
    null = np.asarray(null_key, np.float32).reshape(heads, -1)
    null_scores = np.einsum("bihk,hk->bhi", queries, null, optimize=True)[..., None]
    top = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), null_scores)
    weights, null_weights = np.exp(scores - top), np.exp(null_scores - top)
    total = weights.sum(axis=-1, keepdims=True) + null_weights
    mean, null_mean = (weights / total).mean(axis=1), (null_weights / total).mean(axis=1)
    return np.asarray(mean, np.float32), np.asarray(null_mean[..., 0], np.float32)


def _split_heads(x: Floats, heads: int) -> Floats:
    batch, length, width = x.shape
    return np.asarray(x, np.float32).reshape(batch, length, heads, width // heads)


# ---- links ----


def pool_words(scores: Floats, src_words: Ints, tgt_words: Ints) -> Floats:
    """Return the highest score of each pair of words, from scores of pieces (S, T).

    The word of each piece is given, rising from 0 without a gap.
    """
    n_src = int(src_words[-1]) + 1 if len(src_words) else 0
    n_tgt = int(tgt_words[-1]) + 1 if len(tgt_words) else 0
    if not n_src or not n_tgt:
        return np.zeros((n_src, n_tgt), scores.dtype)
    # Words [0, 0, 1, 2, 2] start at [0, 2, 3]; reduceat takes the maximum of 0:2, 2:3 and 3:.
    src_starts = np.searchsorted(src_words, np.arange(n_src))
    tgt_starts = np.searchsorted(tgt_words, np.arange(n_tgt))
    rows = np.maximum.reduceat(scores, src_starts, axis=0)
    return np.asarray(np.maximum.reduceat(rows, tgt_starts, axis=1), scores.dtype)


def symmetrize(
    fwd: Floats, bwd: Floats, src_words: Ints, tgt_words: Ints, threshold: float
) -> PackedLinks:
    """Turn both directions' weights (B, S, T) into word links that reach the threshold.

    The score of two pieces is the harmonic mean 2ab / (a + b) of their weights, 0 where both are 0.

    `src_words` (B, S) and `tgt_words` (B, T) say which word a piece belongs to, rising; pieces
    that do not count, such as padding, have -1, and stand before or behind all others.
    """
    total = fwd + bwd
    means = np.divide(2 * fwd * bwd, total, out=np.zeros_like(total), where=total > 0)
    found = [
        _find_pair_links(*pair, threshold) for pair in zip(means, src_words, tgt_words, strict=True)
    ]
    counts = np.array([len(src) for src, *_ in found], np.int32)
    starts = (np.cumsum(counts) - counts).astype(np.int32)
    src, tgt, scores = (np.concatenate([row[i] for row in found]) for i in range(3))
    sentence = np.array([row[3] for row in found], np.float32)
    return PackedLinks(counts, starts, src, tgt, scores, sentence)


def _find_pair_links(
    scores: Floats, src_words: Ints, tgt_words: Ints, threshold: float
) -> tuple[Any, Any, Any, float]:
    """Return first source pieces, first target pieces and scores of links, and the pair's score."""
    rows, columns = np.flatnonzero(src_words >= 0), np.flatnonzero(tgt_words >= 0)
    if not len(rows) or not len(columns):
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32), 0.0
    # Pieces [3, 4, 5] of words [0, 0, 1] give the first pieces of the words, [3, 5].
    src_first, tgt_first = (
        side[np.append(True, words[side][1:] != words[side][:-1])]
        for side, words in ((rows, src_words), (columns, tgt_words))
    )
    # The last words must not run into what stands behind them.
    inside = scores[: rows[-1] + 1, : columns[-1] + 1]
    cells = np.maximum.reduceat(inside, src_first, axis=0)
    cells = np.maximum.reduceat(cells, tgt_first, axis=1)
    linked = np.where(cells >= scores.dtype.type(threshold), cells, 0)
    best = linked.max(axis=1).sum() + linked.max(axis=0).sum()
    src, tgt = np.nonzero(linked)
    places = src_first[src].astype(np.int32), tgt_first[tgt].astype(np.int32)
    return *places, linked[src, tgt].astype(np.float32), float(best / sum(cells.shape))
