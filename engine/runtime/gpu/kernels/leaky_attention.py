"""Triton source of head-mean softmax weights with a NULL key; there are no values. Its twin has its
name in `reference`.

Imported by export and tests only: the engine launches what was compiled from it (`launch`). The
arguments stand in the order that TensorRT's plugins demand: inputs, numbers, outputs.
"""

import triton
import triton.language as tl


@triton.jit
def leaky_attention(
    q_ptr,  # (B, T, D), scaled
    k_ptr,  # (B, S, D)
    null_key_ptr,  # (D,)
    mask_ptr,  # (B, S), added to the scores
    n_tgt,
    n_src,
    stride_q_b,
    stride_q_row,
    stride_q_head,
    stride_k_b,
    stride_k_row,
    stride_k_head,
    weights_ptr,  # (B, T, S) float32
    null_ptr,  # (B, T) float32
    HEADS: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,  # the next power of two
    HEAD: tl.constexpr,  # width of a head
    HEAD_BLOCK: tl.constexpr,  # the next power of two
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WITH_NULL: tl.constexpr,  # whether `null` is wanted
    WIDEN: tl.constexpr,  # products of float32: the interpreter's bfloat16 ones are wrong
):
    """Compute one tile of target rows of one pair, all heads: grid (B, tiles of rows).

    a_ij = mean over heads of exp(q_i·k_j + m_j - z_i), z_i = log(exp(q_i·k_null) + Σ_j exp(…)).
    Twice over the keys: first the z of each head, then the weights themselves, added
    up over the heads. Keeping the scores instead would take more registers than there are.
    """
    b = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    width = tl.arange(0, HEAD_BLOCK)
    wide = width < HEAD
    real_rows = (row < n_tgt)[:, None] & wide[None, :]
    q_ptr += b * stride_q_b
    k_ptr += b * stride_k_b
    mask_ptr += b * n_src
    q_places = row[:, None] * stride_q_row + width[None, :]

    slot = tl.arange(0, HEADS_BLOCK)
    log_sums = tl.zeros([ROWS, HEADS_BLOCK], tl.float32)
    null_mean = tl.zeros([ROWS], tl.float32)
    for head in range(HEADS):
        q = tl.load(q_ptr + head * stride_q_head + q_places, mask=real_rows, other=0.0)
        null_key = tl.load(null_key_ptr + head * HEAD + width, mask=wide, other=0.0)
        null_score = tl.sum(q.to(tl.float32) * null_key.to(tl.float32)[None, :], 1)
        if WIDEN:
            q = q.to(tl.float32)
        top = null_score
        total = tl.full([ROWS], 1.0, tl.float32)  # NULL's own share
        for start in range(0, n_src, KEYS):
            key = start + tl.arange(0, KEYS)
            real = key < n_src
            k_places = key[None, :] * stride_k_row + width[:, None]
            k_tile = k_ptr + head * stride_k_head + k_places
            k = tl.load(k_tile, mask=wide[:, None] & real[None, :], other=0.0)
            mask = tl.load(mask_ptr + key, mask=real, other=float("-inf")).to(tl.float32)
            if WIDEN:
                k = k.to(tl.float32)
            scores = tl.dot(q, k, input_precision="ieee") + mask[None, :]
            new_top = tl.maximum(top, tl.max(scores, 1))
            total = total * tl.exp(top - new_top) + tl.sum(tl.exp(scores - new_top[:, None]), 1)
            top = new_top
        log_sum = top + tl.log(total)  # z of this head
        null_mean += tl.exp(null_score - log_sum)
        # Registers cannot be indexed: the column of this head is chosen by a comparison.
        log_sums = tl.where(slot[None, :] == head, log_sum[:, None], log_sums)
    if WITH_NULL:
        tl.store(null_ptr + b * n_tgt + row, null_mean / HEADS, mask=row < n_tgt)

    for start in range(0, n_src, KEYS):
        key = start + tl.arange(0, KEYS)
        real = key < n_src
        mask = tl.load(mask_ptr + key, mask=real, other=float("-inf")).to(tl.float32)
        mean = tl.zeros([ROWS, KEYS], tl.float32)
        for head in range(HEADS):
            q = tl.load(q_ptr + head * stride_q_head + q_places, mask=real_rows, other=0.0)
            k_places = key[None, :] * stride_k_row + width[:, None]
            k_tile = k_ptr + head * stride_k_head + k_places
            k = tl.load(k_tile, mask=wide[:, None] & real[None, :], other=0.0)
            if WIDEN:
                q = q.to(tl.float32)
                k = k.to(tl.float32)
            scores = tl.dot(q, k, input_precision="ieee") + mask[None, :]
            log_sum = tl.sum(tl.where(slot[None, :] == head, log_sums, 0.0), 1)
            mean += tl.exp(scores - log_sum[:, None])
        out_places = (b * n_tgt + row[:, None]) * n_src + key[None, :]
        inside = (row < n_tgt)[:, None] & real[None, :]
        tl.store(weights_ptr + out_places, mean / HEADS, mask=inside)
