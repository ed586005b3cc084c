"""What the student's kernels compute, in NumPy: the yardstick for each of them.

Each function is called as its kernel in `gpu.kernels.student` is. Rows are pieces of sentences that
stand one after the other, with an empty row (piece -1) behind each; D is the width.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..types import Floats
from .student_weights import StudentLayer, StudentSide, StudentWeights

Ints = npt.NDArray[np.int32]
_NEVER = np.float32(-1e9)


def student_embed(ids: Ints, side: StudentSide) -> tuple[Floats, Ints]:
    """Return vectors (R, D) of pieces, and 1 where a word begins (R,); 0 in empty rows."""
    real = ids >= 0
    x = side.table[np.maximum(ids, 0)].astype(np.float32) + side.vector
    words = np.where(real, side.starts[np.maximum(ids, 0)], 0).astype(np.int32)
    return np.where(real[:, None], x, np.float32(0)), words


def _norm_rows(x: Floats, ids: Ints, gain: Floats, shift: Floats) -> Floats:
    away = x - x.mean(axis=1, keepdims=True, dtype=np.float32)
    spread = (away * away).mean(axis=1, keepdims=True, dtype=np.float32)
    normed = away / np.sqrt(spread + np.float32(1e-5)) * gain + shift
    return _round_half(np.where((ids >= 0)[:, None], normed, 0))


def _round_half(x: npt.NDArray[np.floating]) -> Floats:
    """Return what products of float16 see of values."""
    return x.astype(np.float16).astype(np.float32)


def student_layer(x: Floats, ids: Ints, layer: StudentLayer) -> Floats:
    """Return x (R, D) with what each row and its neighbours say added."""
    normed = np.pad(_norm_rows(x, ids, layer.gain, layer.shift), ((1, 1), (0, 0)))
    # Of rows a b c, with 0 for none:  0ab  abc  bc0
    seen = np.concatenate([normed[:-2], normed[1:-1], normed[2:]], axis=1)
    hidden = np.maximum(seen @ layer.up.astype(np.float32) + layer.up_bias, 0)
    return x + _round_half(hidden) @ layer.down.astype(np.float32) + layer.down_bias


def student_project(
    x: Floats, ids: Ints, weights: StudentWeights, side: StudentSide
) -> tuple[Floats, Floats]:
    """Return queries or keys (R, D), rounded to float16, and NULL's scores (R,)."""
    normed = _norm_rows(x, ids, weights.gain, weights.shift)
    null = normed @ side.null_weight + side.null_bias
    return _round_half(normed @ side.weight.astype(np.float32) + side.bias), null


def student_scores(
    query: Floats, key: Floats, nulls: tuple[Floats, Floats], words: tuple[Ints, Ints],
    weights: StudentWeights,
) -> tuple[Floats, Floats, Floats, Floats]:  # fmt: skip
    """Return fwd and bwd (S, T), fwd_null (T,) and bwd_null (S,) of one pair.

    `key`, and the first of NULL's scores and of where words begin, are of the source.
    """
    n_src, n_tgt = len(key), len(query)
    if not n_src or not n_tgt:
        none = np.zeros((n_src, n_tgt), np.float32)
        return none, none, np.zeros(n_tgt, np.float32), np.zeros(n_src, np.float32)
    linkable = (words[1][:, None] > 0) & (words[0][None, :] > 0)  # (T, S)
    middle = np.float32(n_src / n_tgt) * (np.arange(n_tgt, dtype=np.float32) + np.float32(0.5))
    away = np.log(
        np.abs(np.arange(n_src, dtype=np.float32) + np.float32(0.5) - middle[:, None]) + 1
    )
    slow, fast = weights.diagonal
    scores = np.where(linkable, query @ key.T - away * (slow + fast * away), _NEVER)
    if weights.channels:
        fwd, bwd = _softmax_both_ways(scores, nulls, linkable)
        both = np.sqrt(fwd * bwd + np.float32(1e-9))
        planes = np.stack([scores / 4, fwd, bwd, both]) * linkable
        seen = np.tensordot(_gather_around(planes), weights.look, 1) + weights.look_bias
        hidden = np.maximum(seen, 0) * linkable[..., None]  # (T, S, C)
        around = _gather_around(hidden.transpose(2, 0, 1)).reshape(n_tgt, n_src, -1, 25)
        judged = np.einsum("tsck,kc->ts", around, weights.judge, optimize=True)
        scores = np.where(linkable, scores + judged + weights.judge_bias, _NEVER)
    fwd, bwd = _softmax_both_ways(scores, nulls, linkable)
    fwd_null = np.exp(nulls[1] - _sum_logs(scores, nulls[1]))
    bwd_null = np.exp(nulls[0] - _sum_logs(scores.T, nulls[0]))
    return (
        fwd.T, bwd.T,
        np.where(words[1] > 0, fwd_null, 1), np.where(words[0] > 0, bwd_null, 1),
    )  # fmt: skip


def _gather_around(planes: Floats) -> Floats:
    """Return (T, S, P * 25): of planes (P, T, S) the cells around each, 0 outside."""
    _, n_tgt, n_src = planes.shape
    padded = np.pad(planes, ((0, 0), (2, 2), (2, 2)))
    parts = [padded[:, i : i + n_tgt, j : j + n_src] for i in range(5) for j in range(5)]
    return np.asarray(np.stack(parts, axis=1).reshape(-1, n_tgt, n_src).transpose(1, 2, 0))


def _sum_logs(scores: Floats, null: Floats) -> Floats:
    """Return log(exp(null) + sum of exp(scores)) of each row."""
    top = np.maximum(scores.max(axis=1), null)
    total = np.exp(scores - top[:, None]).sum(axis=1) + np.exp(null - top)
    return np.asarray(top + np.log(total), np.float32)


def _softmax_both_ways(
    scores: Floats, nulls: tuple[Floats, Floats], linkable: npt.NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return weights (T, S) over sources and over targets, beside NULL."""
    fwd = np.exp(scores - _sum_logs(scores, nulls[1])[:, None])
    bwd = np.exp(scores - _sum_logs(scores.T, nulls[0])[None, :])
    return fwd * linkable, bwd * linkable
